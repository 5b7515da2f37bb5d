//! Rules about the tree itself: where `unsafe` may stand, how long files may be, what must not be in them.

use std::path::Path;

use suite_tests::{sources, workspace};

/// The only modules that may re-allow `unsafe`, as ARCHITECTURE.md lists them.
fn may_be_unsafe(path: &Path) -> bool {
    let p = path
        .strip_prefix(workspace())
        .expect("sources lie in the workspace")
        .to_string_lossy()
        .into_owned();
    p == "gguf/src/source/mmap.rs"
        || p == "gguf/src/fault.rs"
        || p == "gguf/blocks/src/guard.rs"
        || p == "gguf/cli/src/memory.rs"
        || p == "gguf/blocks/src/x86.rs"
        || p == "gguf/blocks/src/codebook/x86.rs"
        || ["avx512", "avxvnni", "neon", "x86"]
            .iter()
            .any(|level| p == format!("gguf/blocks/src/kernel/{level}.rs"))
        || p == "gguf/blocks/src/kernel/x86/columns.rs"
        || p == "gguf/blocks/src/kernel/x86/by_rows.rs"
        || p.starts_with("gguf/blocks/src/simd/x86")
        || (p.starts_with("gguf/blocks/src/types/") && p.ends_with("/x86.rs"))
        || (p.starts_with("runtime/src/kernels/") && p.contains("x86"))
        || p.starts_with("tests/emulators/probe")
        || p == "runtime/src/memory.rs"
        || p == "runtime/src/pool/region.rs"
        || p == "runtime/tests/suite/allocations.rs"
}

#[test]
fn unsafe_stands_only_where_the_architecture_says() {
    let word = regex_like_unsafe();
    let strays: Vec<String> = sources(&["rs"])
        .into_iter()
        .filter(|p| !may_be_unsafe(p))
        .filter(|p| {
            let text = std::fs::read_to_string(p).expect("a source is UTF-8");
            text.lines()
                .any(|l| !l.trim_start().starts_with("//") && word.iter().any(|w| l.contains(w)))
        })
        .map(|p| p.display().to_string())
        .collect();
    assert!(
        strays.is_empty(),
        "`unsafe` outside the named modules: {strays:?}"
    );
}

/// Spellings of unsafe code; put together here so that this file does not match itself.
fn regex_like_unsafe() -> Vec<String> {
    ["{", "fn", "impl", "extern"]
        .iter()
        .map(|tail| format!("{} {tail}", concat!("un", "safe")))
        .collect()
}

#[test]
fn files_stay_short_enough_to_read() {
    let long: Vec<String> = sources(&["rs"])
        .into_iter()
        .filter_map(|p| {
            let n = std::fs::read_to_string(&p)
                .expect("a source is UTF-8")
                .lines()
                .count();
            (n > 600).then(|| format!("{} ({n} lines)", p.display()))
        })
        .collect();
    assert!(long.is_empty(), "files over 600 lines: {long:?}");
}

#[test]
fn nothing_is_left_unfinished() {
    let marks: Vec<String> = ["todo!(", "unimplemented!(", "#[ign"]
        .iter()
        .map(|m| (*m).to_owned())
        .collect();
    let this = workspace().join("tests/tests/suite/tree.rs");
    let found: Vec<String> = sources(&["rs"])
        .into_iter()
        .filter(|p| *p != this)
        .filter(|p| {
            let text = std::fs::read_to_string(p).expect("a source is UTF-8");
            marks.iter().any(|m| text.contains(m.as_str()))
        })
        .map(|p| p.display().to_string())
        .collect();
    assert!(found.is_empty(), "unfinished or switched off: {found:?}");
}

#[test]
fn documents_exist_and_the_top_level_is_as_designed() {
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "STYLE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "demo.sh",
        ".ci/run",
    ] {
        assert!(workspace().join(name).exists(), "`{name}` is missing");
    }
    let folders: Vec<String> = std::fs::read_dir(workspace())
        .expect("the workspace can be listed")
        .map(|e| e.expect("an entry can be read"))
        .filter(|e| e.path().is_dir())
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|n| !n.starts_with('.') && n != "target" && n != "docs")
        .collect();
    let mut folders = folders;
    folders.sort();
    assert_eq!(
        folders,
        [
            "convert", "gguf", "imatrix", "inspect", "quantize", "runtime", "tests"
        ]
    );
}
