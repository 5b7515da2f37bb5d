//! `gguf-imatrix`: see the crate's documentation.

fn main() -> std::process::ExitCode {
    gguf_imatrix::main()
}
