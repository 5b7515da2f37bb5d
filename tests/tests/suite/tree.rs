//! Rules about the tree itself: where `unsafe` may stand, how long files may be, what must not be in them.

use std::path::PathBuf;

use suite_tests::{sources, workspace};

/// The word, put together so that this file does not have it.
const UNSAFE: &str = concat!("un", "safe");

/// The modules that may re-allow it: the first column of ARCHITECTURE.md's table, with braces, `*` and `**`.
fn named_modules() -> Vec<String> {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("a document");
    let (_, table) = text
        .split_once("\n| module | why |\n|---|---|\n")
        .expect("the table");
    let rows = table.lines().take_while(|l| l.starts_with('|'));
    let cells = rows.map(|row| row.split('|').nth(1).expect("a cell").to_owned());
    cells
        .flat_map(|cell| {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .flat_map(spread)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// A pattern for each of the words between braces.
fn spread(pattern: &str) -> Vec<String> {
    let Some((front, (inner, rest))) = pattern
        .split_once('{')
        .map(|(f, r)| (f, r.split_once('}').expect("an end")))
    else {
        return vec![pattern.to_owned()];
    };
    inner
        .split(',')
        .map(|word| format!("{front}{word}{rest}"))
        .collect()
}

/// Whether a path is one of a pattern: `*` stands for a part of a name, `**/` for any folders.
fn is_of(path: &str, pattern: &str) -> bool {
    if let Some(rest) = pattern.strip_prefix("**/") {
        return is_of(path, rest) || path.split_once('/').is_some_and(|(_, path)| is_of(path, pattern));
    }
    match pattern.chars().next() {
        None => path.is_empty(),
        Some('*') => {
            let rest = &pattern[1..];
            is_of(path, rest) || !path.starts_with('/') && !path.is_empty() && is_of(&path[1..], pattern)
        }
        Some(c) => path
            .strip_prefix(c)
            .is_some_and(|path| is_of(path, &pattern[c.len_utf8()..])),
    }
}

#[test]
fn patterns_of_modules_are_understood() {
    for (path, pattern, expected) in [
        ("a/b.rs", "a/b.rs", true),
        ("a/b.rs", "a/*.rs", true),
        ("a/c/b.rs", "a/*.rs", false),
        ("a/c/d/b_x.rs", "a/**/b*.rs", true),
        ("a/b.rs", "a/**/b*.rs", true),
        ("a/c/d/x.rs", "a/**/b*.rs", false),
    ] {
        assert_eq!(is_of(path, pattern), expected, "{path} {pattern}");
    }
    assert_eq!(spread("a/{b,c}.rs"), ["a/b.rs", "a/c.rs"]);
}

/// The word stands, in any spelling of a block, a function or a lint, only in the modules that ARCHITECTURE.md names, and
/// in each of them.
#[test]
fn the_architecture_says_where_code_is_not_checked() {
    let has_it = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("a source is UTF-8");
        text.lines()
            .any(|l| !l.trim_start().starts_with("//") && l.contains(UNSAFE))
    };
    let with_it = sources(&["rs"]).into_iter().filter(has_it).map(|path| {
        let path = path.strip_prefix(workspace()).expect("in the workspace");
        path.to_string_lossy().into_owned()
    });
    let with_it: Vec<String> = with_it.collect();
    let modules = named_modules();
    let strays = with_it
        .iter()
        .filter(|path| !modules.iter().any(|m| is_of(path, m)));
    assert_eq!(
        strays.collect::<Vec<_>>(),
        [""; 0],
        "with `{UNSAFE}`, but not in ARCHITECTURE.md"
    );
    let stale = modules
        .iter()
        .filter(|m| !with_it.iter().any(|path| is_of(path, m)));
    assert_eq!(
        stale.collect::<Vec<_>>(),
        [""; 0],
        "in ARCHITECTURE.md, but without `{UNSAFE}`"
    );
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
    let ignored = std::fs::read_to_string(workspace().join(".gitignore")).expect("a list");
    let is_made = |name: &str| ignored.lines().any(|line| line.strip_prefix('/') == Some(name));
    let folders: Vec<String> = std::fs::read_dir(workspace())
        .expect("the workspace can be listed")
        .map(|e| e.expect("an entry can be read"))
        .filter(|e| e.path().is_dir())
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|n| !n.starts_with('.') && !is_made(n) && n != "docs")
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
