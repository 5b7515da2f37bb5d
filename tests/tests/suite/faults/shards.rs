//! A shard that is missing, and comes later.

use std::path::Path;

use super::job::{Inputs, run};
use super::world::{command, names, words};
use suite_tests::data;

#[test]
fn a_shard_that_is_missing_is_named_and_may_come_later() {
    let inputs = Inputs::get();
    let folder = tempfile::tempdir().expect("a folder");
    let shards = inputs.shards();
    let name = |shard: &Path| shard.file_name().expect("a file").display().to_string();
    for shard in &shards {
        let to = folder.path().join(shard.file_name().expect("a file"));
        std::fs::copy(shard, to).expect("room");
    }
    let (first, text) = (name(&shards[0]), data("evaluation.txt"));
    let text = text.display();
    let lines = [
        format!("gguf-inspect hash {first} -q"),
        format!("gguf-inspect merge {first} out-merge.gguf -q"),
        format!("gguf-quantize {first} out-quantize.gguf Q4_0 --quiet"),
        format!("gguf-imatrix -m {first} -f {text} -c 64 --chunks 1 -o out-imatrix.gguf --quiet"),
        format!("gguf-perplexity -m {first} -f {text} -c 64 --chunks 1 --quiet"),
        format!("gguf-run -m {first} -p text -n 1 --no-chat --quiet"),
        format!("gguf-bench -m {first} -p 8 -n 1 -r 1 --no-bandwidth --quiet"),
        format!("gguf-inspect merge --in-place-safe {first} out-consume.gguf -q"),
    ];
    for shard in &shards[1..] {
        let missing = name(shard);
        let gone = folder.path().join(&missing);
        std::fs::remove_file(&gone).expect("there");
        let before = names(folder.path());
        for line in &lines {
            let end = run(folder.path(), &words(line));
            assert!(end.is_error(&[1, 2], &[&missing]), "{line}: {end:?}");
        }
        let check = words(&format!("gguf-inspect check {first}"));
        let out = command(folder.path(), &check)
            .stdout(std::process::Stdio::piped())
            .output();
        let out = out.expect("a built program starts");
        let report = String::from_utf8_lossy(&out.stdout);
        assert!(
            out.status.code() == Some(1) && report.contains(&missing),
            "{report}"
        );
        assert_eq!(names(folder.path()), before, "nothing is written");
        std::fs::copy(shard, &gone).expect("room");
    }
    for line in &lines {
        let end = run(folder.path(), &words(line));
        assert!(end.is_fine(), "{line}: {end:?}");
    }
    let model = std::fs::read(inputs.model()).expect("there");
    for merged in ["out-merge.gguf", "out-consume.gguf"] {
        assert!(std::fs::read(folder.path().join(merged)).expect("there") == model);
    }
}

#[test]
fn a_file_of_a_checkpoint_that_is_missing_is_named_and_may_come_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (data("qwen3moe"), folder.path().join("checkpoint"));
    std::fs::create_dir(&to).expect("a name");
    for name in names(&from) {
        std::fs::copy(from.join(&name), to.join(name)).expect("room");
    }
    let line = words("gguf-convert checkpoint -o out.gguf -q");
    for missing in [
        "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
        "config.json",
    ] {
        std::fs::remove_file(to.join(missing)).expect("there");
        let end = run(folder.path(), &line);
        assert!(end.is_error(&[1, 2], &[missing]), "{missing}: {end:?}");
        assert_eq!(names(folder.path()), ["checkpoint"]);
        std::fs::copy(from.join(missing), to.join(missing)).expect("room");
    }
    let end = run(folder.path(), &line);
    assert!(end.is_fine(), "{end:?}");
    assert_eq!(names(folder.path()), ["checkpoint", "out.gguf"]);
}
