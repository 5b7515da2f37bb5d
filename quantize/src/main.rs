//! `gguf-quantize`: see the crate's documentation.

fn main() -> std::process::ExitCode {
    gguf_quantize::main()
}
