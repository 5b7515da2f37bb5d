//! `gguf-run`: see `gguf_runtime::run`.

fn main() -> std::process::ExitCode {
    gguf_runtime::run::main()
}
