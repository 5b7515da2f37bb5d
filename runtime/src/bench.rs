//! `gguf-bench`.

/// The program.
pub fn main() -> std::process::ExitCode {
    todo!()
}
