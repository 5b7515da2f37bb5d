//! `gguf-perplexity`: see `gguf_runtime::perplexity`.

#[global_allocator]
static ALLOCATOR: gguf_cli::Allocator = gguf_cli::Allocator;

fn main() -> std::process::ExitCode {
    gguf_runtime::perplexity::main()
}
