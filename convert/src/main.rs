//! `gguf-convert`: see the crate's documentation.

fn main() -> std::process::ExitCode {
    gguf_convert::main()
}
