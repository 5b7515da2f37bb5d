//! The table of types in the documents is what the registry gives.

use std::fmt::Write as _;
use std::path::Path;

use gguf_blocks::{Format, registry};

const HEAD: &str = "\
# Tensor types

Generated from the registry of `gguf-blocks`: change the record, not this file.

A row is a header, if the type has one, and blocks of so many elements in so many bytes. Bits per weight leave headers
out. The bits of types of `ik_llama.cpp` were taken from a description and not compared with the program.

| name | id | source | block | bytes | row header | rows interleaved | bits per weight | encodes | needs importance | what it is |
|---|---:|---|---:|---:|---:|---:|---:|---|---|---|
";

fn row(f: &Format) -> String {
    let yes = |b| if b { "yes" } else { "no" };
    let g = f.geometry;
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        f.name,
        f.id.0,
        f.origin,
        g.block_elems,
        g.block_bytes,
        g.row_header_bytes,
        g.interleave,
        g.bits_per_weight(),
        yes(f.encode.is_some()),
        yes(f.requires_importance),
        f.doc
    )
}

#[test]
fn the_table_of_types_is_fresh() {
    let mut table = HEAD.to_owned();
    for format in registry::all() {
        writeln!(table, "{}", row(format)).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/types.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        #[expect(
            clippy::disallowed_methods,
            reason = "a document of the source tree, not an output of a program"
        )]
        std::fs::write(&path, &table).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == table,
        "`docs/types.md` is not what the registry gives: run `UPDATE_DOCS=1 cargo test -p gguf-blocks --test docs`"
    );
}
