//! Which files are the model's: copies, odd names, links.

use serde_json::json;

use super::*;

const INDEX: &str = "model.safetensors.index.json";

fn one(name: &str, values: &[f32]) -> Made {
    Made::default().with(name, "F32", &[1, values.len() as u64], f32s(values))
}

fn index(map: &Json) -> (&'static str, Vec<u8>) {
    (INDEX, json!({ "weight_map": map }).to_string().into_bytes())
}

#[test]
fn shards_have_any_names() {
    let dir = folder(&[
        ("mtp.safetensors", one("b", &[2.0, 3.0, 4.0, 5.0]).bytes()),
        ("model-1.safetensors", one("a", &[1.0, 3.0, 5.0, 7.0]).bytes()),
        index(&json!({"a": "model-1.safetensors", "b": "mtp.safetensors"})),
    ]);
    let weights = Weights::open(dir.path(), &json!({})).expect("opens");
    assert_eq!(read(&weights, "b", 0), [2.0, 3.0, 4.0, 5.0]);
    assert!(weights.notes.is_empty(), "{:?}", weights.notes);
}

#[test]
fn files_that_the_index_does_not_name_are_left_out() {
    let dir = folder(&[
        ("model-1.safetensors", one("a", &[1.0, 3.0, 5.0, 7.0]).bytes()),
        ("consolidated.safetensors", one("a", &[0.0; 4]).bytes()),
        ("extra.safetensors", one("c", &[0.0; 4]).bytes()),
        ("pytorch_model.bin", vec![0]),
        index(&json!({"a": "model-1.safetensors"})),
    ]);
    let weights = Weights::open(dir.path(), &json!({})).expect("opens");
    assert_eq!(weights.tensors.len(), 1);
    assert_eq!(weights.notes.len(), 1, "{:?}", weights.notes);
    for name in [
        "consolidated.safetensors",
        "extra.safetensors",
        "pytorch_model.bin",
    ] {
        assert!(weights.notes[0].contains(name), "{:?}", weights.notes);
    }
}

#[test]
fn copies_of_a_tensor() {
    let open = |second: &Made, listed: &str| {
        let rest = |made: &Made, name: &str| made.clone().with(name, "F32", &[1], f32s(&[0.0])).bytes();
        let dir = folder(&[
            ("a.safetensors", rest(&one("t", &[1.0, 2.0]), "s")),
            ("b.safetensors", rest(second, "u")),
            index(&json!({"s": "a.safetensors", "t": listed, "u": "b.safetensors"})),
        ]);
        let weights = Weights::open(dir.path(), &json!({}))?;
        Ok::<_, crate::Error>(weights.tensors.into_iter().map(|t| t.name).collect::<Vec<_>>())
    };
    let same = one("t", &[1.0, 2.0]);
    assert_eq!(open(&same, "a.safetensors").expect("the same"), ["s", "t", "u"]);
    assert_eq!(open(&same, "b.safetensors").expect("the same"), ["s", "t", "u"]);
    let other = one("t", &[1.0, 2.5]);
    let half = Made::default().with("t", "BF16", &[1, 2], bf16s(&[1.0, 2.0]).0);
    for (second, words) in [
        (other, ["`a.safetensors`", "`b.safetensors`", "other values"]),
        (half, ["`a.safetensors`", "`b.safetensors`", "BF16"]),
    ] {
        let message = open(&second, "a.safetensors")
            .expect_err("they differ")
            .to_string();
        assert!(words.iter().all(|w| message.contains(w)), "{message}");
    }
}

#[test]
fn folders_without_an_index() {
    let dir = folder(&[("consolidated.00.safetensors", one("a", &[1.0, 2.0]).bytes())]);
    assert_eq!(
        Weights::open(dir.path(), &json!({}))
            .expect("opens")
            .tensors
            .len(),
        1
    );
    let dir = folder(&[("pytorch_model.bin", vec![0])]);
    let message = Weights::open(dir.path(), &json!({}))
        .expect_err("refused")
        .to_string();
    assert!(
        message.contains("`pytorch_model.bin`") && message.contains("safetensors"),
        "{message}"
    );
}

#[test]
fn links_into_a_cache() {
    let dir = folder(&[("blob", one("a", &[1.0, 2.0, 3.0, 4.0]).bytes())]);
    let snapshot = dir.path().join("snapshot");
    fs::create_dir(&snapshot).expect("a folder");
    std::os::unix::fs::symlink("../blob", snapshot.join("model.safetensors")).expect("a link");
    let weights = Weights::open(&snapshot, &json!({})).expect("opens");
    assert_eq!(read(&weights, "a", 0), [1.0, 2.0, 3.0, 4.0]);
    fs::remove_file(dir.path().join("blob")).expect("removed");
    let message = Weights::open(&snapshot, &json!({}))
        .expect_err("refused")
        .to_string();
    assert!(message.contains("model.safetensors"), "{message}");
}

#[test]
fn tensors_come_by_file_and_name() {
    let made = one("b", &[0.0])
        .with("a", "F16", &[1], vec![0; 2])
        .with("c", "I64", &[1], vec![0; 8]);
    let (_dir, weights) = made.open();
    let names: Vec<_> = weights
        .expect("opens")
        .tensors
        .into_iter()
        .map(|t| t.name)
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
}
