//! `gguf-bench`: see `gguf_runtime::bench`.

fn main() -> std::process::ExitCode {
    gguf_runtime::bench::main()
}
