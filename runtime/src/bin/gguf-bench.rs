//! `gguf-bench`: see `gguf_runtime::bench`.

#[global_allocator]
static ALLOCATOR: gguf_cli::Allocator = gguf_cli::Allocator;

fn main() -> std::process::ExitCode {
    gguf_runtime::bench::main()
}
