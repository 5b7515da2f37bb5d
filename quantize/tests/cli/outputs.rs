//! Where the tensors go: shards, parts of the work, several types from one read.

use std::path::{Path, PathBuf};

use gguf::GgufFile;

use crate::fixture::{Fixture, succeeds};

/// Tensors with their types and bytes, by name.
fn tensors(path: &Path) -> Vec<(String, String, Vec<u8>)> {
    let file = GgufFile::open(path).unwrap();
    assert!(file.is_complete());
    let mut all: Vec<_> = file
        .tensors
        .iter()
        .map(|t| {
            (
                t.name.clone(),
                t.type_name(),
                file.tensor_bytes(t).unwrap().into_owned(),
            )
        })
        .collect();
    all.sort();
    all
}

/// Names and bytes of the files whose names begin so.
fn files(f: &Fixture, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let names = f.files().into_iter().filter(|n| n.starts_with(prefix));
    names
        .map(|n| (n.clone(), std::fs::read(f.path(&n)).unwrap()))
        .collect()
}

#[test]
fn shards_hold_what_one_file_holds() {
    let f = Fixture::new();
    succeeds(&f, "in.gguf one.gguf Q4_K_M");
    succeeds(&f, "--split-max-size 50K in.gguf set.gguf Q4_K_M");
    let shards = files(&f, "set-");
    assert!(shards.len() > 2 && shards[0].0 == format!("set-00001-of-{:05}.gguf", shards.len()));
    assert_eq!(tensors(&f.path(&shards[0].0)), tensors(&f.path("one.gguf")));
    let set = GgufFile::open(&f.path(&shards[1].0)).unwrap();
    for part in 0..shards.len() {
        let sizes: Vec<u64> = set
            .tensors
            .iter()
            .filter(|t| t.part == part)
            .map(|t| t.n_bytes)
            .collect();
        assert!(
            sizes.len() == 1 || sizes.iter().sum::<u64>() <= 50_000,
            "{sizes:?}"
        );
    }

    // A split set goes in like one file, whichever shard is named, and comes out whole or as it was.
    let name = &shards[2].0;
    succeeds(&f, &format!("{name} whole.gguf COPY"));
    assert_eq!(tensors(&f.path("whole.gguf")), tensors(&f.path("one.gguf")));
    let whole = GgufFile::open(&f.path("whole.gguf")).unwrap();
    assert!(whole.metadata.iter().all(|(key, _)| !key.starts_with("split.")));
    succeeds(&f, &format!("--keep-split {name} kept.gguf COPY"));
    let kept = files(&f, "kept-");
    assert_eq!(kept.len(), shards.len());
    let parts = |path: PathBuf| -> Vec<_> {
        let file = GgufFile::open(&path).unwrap();
        file.tensors.iter().map(|t| (t.name.clone(), t.part)).collect()
    };
    assert_eq!(parts(f.path(&kept[0].0)), parts(f.path(&shards[0].0)));
}

#[test]
fn parts_make_the_set_that_one_run_makes() {
    let f = Fixture::new();
    for split in ["--split-max-size 50K", ""] {
        succeeds(&f, &format!("{split} --part 1-3/3 in.gguf one.gguf Q4_K_M"));
        // As an array job does: separate processes, in any order, at the same time.
        let mut children: Vec<_> = [3, 1, 2]
            .into_iter()
            .map(|i| f.spawn(&format!("{split} --part {i}/3 in.gguf many.gguf Q4_K_M --quiet")))
            .collect();
        for child in &mut children {
            assert!(child.wait().unwrap().success());
        }
        let bytes = |prefix| files(&f, prefix).into_iter().map(|(_, b)| b).collect::<Vec<_>>();
        assert!(bytes("one-").len() >= 3);
        assert!(bytes("one-") == bytes("many-"), "{split}");
        for (name, _) in files(&f, "one-").iter().chain(&files(&f, "many-")) {
            std::fs::remove_file(f.path(name)).unwrap();
        }
    }
    // A part that is missing is told by name.
    succeeds(&f, "--part 1/2 in.gguf half.gguf Q8_0");
    let set = GgufFile::open(&f.path("half-00001-of-00002.gguf"));
    assert!(set.unwrap_err().to_string().contains("half-00002-of-00002.gguf"));
    // More parts than shards: those without work have nothing to fail at.
    succeeds(&f, "--part 2/8 --split-max-size 1G in.gguf few.gguf Q8_0");
    succeeds(&f, "--part 1-8/8 --split-max-size 1G in.gguf few.gguf Q8_0");
    assert_eq!(files(&f, "few-").len(), 1);
    f.refuses("--part 1/99 in.gguf few.gguf Q8_0", 2, &["99 parts are too many"]);
}

#[test]
fn several_types_are_what_single_runs_make() {
    let f = Fixture::new();
    std::fs::create_dir(f.path("out")).unwrap();
    succeeds(&f, "-o out in.gguf Q4_K_M Q8_0 COPY 3");
    for kind in ["Q4_K_M", "Q8_0", "COPY"] {
        succeeds(&f, &format!("in.gguf one-{kind}.gguf {kind}"));
        let (a, b) = (
            f.path(&format!("out/in-{kind}.gguf")),
            f.path(&format!("one-{kind}.gguf")),
        );
        assert!(std::fs::read(a).unwrap() == std::fs::read(b).unwrap(), "{kind}");
    }
    let plans = f.json("--dry-run --force -o out in.gguf Q4_K_M Q8_0");
    assert_eq!(plans.as_array().unwrap().len(), 2);
}

#[test]
fn the_source_is_known_by_its_digest() {
    let f = Fixture::new();
    succeeds(&f, "in.gguf out.gguf Q8_0");
    let digest = gguf::digest::Digest::of(&std::fs::read(f.path("in.gguf")).unwrap()).to_string();
    let key = "quantize.source.sha256";
    let found = |name: &str| {
        let file = GgufFile::open(&f.path(name)).unwrap();
        file.metadata.string(key).unwrap().map(str::to_owned)
    };
    assert_eq!(found("out.gguf"), Some(digest));
    succeeds(&f, "--no-source-hash in.gguf without.gguf Q8_0");
    assert_eq!(found("without.gguf"), None);
    // Of a set the digests of all its files.
    succeeds(&f, "--split-max-size 100K in.gguf set.gguf COPY");
    let shards = files(&f, "set-");
    succeeds(&f, &format!("{} again.gguf COPY", shards[0].0));
    let again = GgufFile::open(&f.path("again.gguf")).unwrap();
    let Some(gguf::Value::Array(gguf::Array::String(found))) = again.metadata.get(key) else {
        panic!("a list of digests");
    };
    let found: Vec<_> = found.iter().map(std::borrow::Cow::into_owned).collect();
    let expected: Vec<_> = shards
        .iter()
        .map(|(_, b)| gguf::digest::Digest::of(b).to_string())
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn losses_are_reported_for_each_tensor() {
    let f = Fixture::new();
    succeeds(&f, "--report losses.json in.gguf out.gguf Q4_0");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(f.path("losses.json")).unwrap()).unwrap();
    let tensors = json["outputs"][0]["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 6);
    for t in tensors {
        let error = t["error"].as_f64().unwrap();
        assert!(error > 1e-6 && error < 0.05, "{t}");
        assert!(t["sampled_rows"].as_u64().unwrap() >= 4);
    }
    assert!(
        json["outputs"][0]["roles"]
            .as_array()
            .unwrap()
            .iter()
            .any(|r| r["role"] == "experts")
    );
    f.refuses(
        "--report losses.json in.gguf other.gguf Q4_0",
        2,
        &["exists already"],
    );
    f.refuses(
        "--report ./other.gguf in.gguf other.gguf Q4_0 --force",
        2,
        &["--report `./other.gguf`: it is an output"],
    );
    f.refuses(
        "--report in.gguf in.gguf other.gguf Q4_0 --force",
        2,
        &["same file as the input"],
    );
}

#[test]
fn rows_beyond_the_memory_are_refused() {
    let f = Fixture::new();
    f.refuses(
        "--max-memory 1K in.gguf out.gguf Q8_0",
        2,
        &["--max-memory", "for one thread"],
    );
    let few = f.run("--max-memory 20K in.gguf few.gguf Q4_K_M 8");
    assert!(few.status.success());
    assert!(String::from_utf8_lossy(&few.stderr).contains("leave memory for"));
    succeeds(&f, "in.gguf many.gguf Q4_K_M 8");
    assert!(std::fs::read(f.path("few.gguf")).unwrap() == std::fs::read(f.path("many.gguf")).unwrap());
}

/// Half a GiB of experts under a quarter of a GiB of address space.
#[test]
fn tensors_may_be_larger_than_the_memory() {
    let f = Fixture::new();
    f.put_sparse("large.gguf", "blk.0.ffn_up_exps.weight", &[4096, 4096, 8]);
    let out = f.run_limited("-v 262144", "--max-memory 64M --quiet large.gguf out.gguf Q8_0 2");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let file = GgufFile::open(&f.path("out.gguf")).unwrap();
    assert_eq!(file.tensors[0].n_bytes, 4096 * 4096 * 8 / 32 * 34);
}
