//! `gguf-inspect`: see the crate's documentation.

#[global_allocator]
static ALLOCATOR: gguf_cli::Allocator = gguf_cli::Allocator;

fn main() -> std::process::ExitCode {
    gguf_inspect::main()
}
