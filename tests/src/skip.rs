//! What a machine lacks that a test needs. Other crates' tests include this file by its path.

/// Tells that this test, or a part of it, cannot be done here, and why. With `GGUF_NO_SKIPS` set that is a failure; the file
/// that `GGUF_SKIPS` names gets a line, since Cargo shows nothing of a test that passes.
pub(crate) fn skip(why: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    assert!(
        std::env::var_os("GGUF_NO_SKIPS").is_none(),
        "skipped, which `GGUF_NO_SKIPS` forbids: {line}"
    );
    eprint!("skipped: {line}");
    if let Some(path) = std::env::var_os("GGUF_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        // In one write: others append to it at the same time.
        file.and_then(|mut f| f.write_all(line.as_bytes()))
            .expect("the list of what is skipped can be written");
    }
}
