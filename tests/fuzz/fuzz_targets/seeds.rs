//! `seeds list` names the targets with the bytes of their longest inputs; `seeds write` writes what corpora begin with.

use std::fs::OpenOptions;
use std::io::Write;

use suite_tests::fuzz::TARGETS;
use suite_tests::fuzz::seeds::{self, Seed};
use suite_tests::workspace;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("list") => {
            for target in TARGETS {
                println!("{} {}", target.name, target.max_len);
            }
        }
        Some("write") => {
            write(seeds::all());
            // These are of models that were written before.
            write(seeds::states());
        }
        _ => eprintln!("usage: seeds list|write"),
    }
}

fn write(seeds: Vec<Seed>) {
    for (target, name, bytes) in seeds {
        let folder = workspace().join("tests/fuzz/corpus").join(target);
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let path = folder.join(name);
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
        file.and_then(|mut f| f.write_all(&bytes)).expect("a seed can be written");
        println!("{}: {} bytes", path.display(), bytes.len());
    }
}
