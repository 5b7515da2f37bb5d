//! `gguf-perplexity`: see `gguf_runtime::perplexity`.

fn main() -> std::process::ExitCode {
    gguf_runtime::perplexity::main()
}
