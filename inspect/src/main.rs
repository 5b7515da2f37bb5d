//! `gguf-inspect`: see the crate's documentation.

fn main() -> std::process::ExitCode {
    gguf_inspect::main()
}
