//! `gguf-run`: see `gguf_runtime::run`.

#[global_allocator]
static ALLOCATOR: gguf_cli::Allocator = gguf_cli::Allocator;

fn main() -> std::process::ExitCode {
    gguf_runtime::run::main()
}
