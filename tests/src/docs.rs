//! Parts of documents that are made from what was measured: `UPDATE_DOCS=1 cargo test -p suite-tests` writes them.

use std::fs;

use crate::workspace;

/// Checks that `file` has `expected` between the lines `<!-- name:begin -->` and `<!-- name:end -->`, or puts it there
/// where `UPDATE_DOCS` is set.
///
/// # Panics
/// If it has something else, or no such lines.
#[expect(clippy::disallowed_methods, reason = "a document of the tree, on request")]
pub fn check(file: &str, name: &str, expected: &str) {
    let path = workspace().join(file);
    let text = fs::read_to_string(&path).expect("a document of the tree");
    let (begin, end) = (
        format!("<!-- {name}:begin -->\n"),
        format!("<!-- {name}:end -->\n"),
    );
    let parts = text
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
    let (before, (found, after)) = parts.unwrap_or_else(|| panic!("{file} has no place for `{name}`"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, [before, &begin, expected, &end, after].concat())
            .expect("the document can be written");
        return;
    }
    assert!(
        found == expected,
        "`{name}` of {file} is not what was measured: run `UPDATE_DOCS=1 cargo test -p suite-tests --test suite`"
    );
}
