//! `relayout`: the two layouts of latent attention.

use gguf::{GgufFile, Value};
use tempfile::TempDir;

use crate::models::{Model, encode, inspect, values};

const N_HEAD: usize = 3;
const RANK: usize = 8;
const NOPE: usize = 4;
const ROPE: usize = 2;
const VALUE: usize = 5;

/// A model of one layer in the older layout.
fn fused(type_name: &'static str) -> Model {
    let mut model = Model::new();
    let set = |model: &mut Model, key: &str, value: usize| {
        model
            .metadata
            .set(format!("deepseek2.{key}"), Value::from(value as u32));
    };
    model.metadata.set("general.architecture", "deepseek2".into());
    for (key, value) in [
        ("attention.head_count", N_HEAD),
        ("attention.head_count_kv", N_HEAD),
        ("attention.kv_lora_rank", RANK),
        ("attention.key_length", NOPE + ROPE),
        ("attention.value_length", VALUE),
        ("rope.dimension_count", ROPE),
    ] {
        set(&mut model, key, value);
    }
    let n_rows = N_HEAD * (NOPE + VALUE);
    model
        .random("token_embd.weight", &[16, 4], "F32", 1)
        .random(
            "blk.0.attn_kv_b.weight",
            &[RANK as u64, n_rows as u64],
            type_name,
            2,
        )
        .random("blk.0.attn_output.weight", &[16, 2], "F16", 3)
}

fn bytes(file: &GgufFile, name: &str) -> Vec<u8> {
    let tensor = file.tensors.iter().find(|t| t.name == name).expect("the tensor");
    let mut out = vec![0; tensor.n_bytes as usize];
    file.read_tensor(tensor, 0, &mut out).expect("its bytes");
    out
}

fn number(file: &GgufFile, key: &str) -> Option<u64> {
    file.metadata
        .uint(&format!("deepseek2.attention.{key}"))
        .expect("a number")
}

#[test]
fn there_and_back_gives_the_same_tensors() {
    for type_name in ["F32", "BF16"] {
        let folder = TempDir::new().expect("a folder");
        let old = fused(type_name).save(folder.path(), "old.gguf");
        let [new, back] = ["new.gguf", "back.gguf"].map(|n| crate::models::text(&folder.path().join(n)));
        inspect(&["relayout", &old, &new, "--to", "k_b"]).assert(0, &[]);
        let file = GgufFile::open(new.as_ref()).expect("a model");
        let names: Vec<_> = file.tensors.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "token_embd.weight",
                "blk.0.attn_k_b.weight",
                "blk.0.attn_v_b.weight",
                "blk.0.attn_output.weight"
            ]
        );
        assert_eq!(number(&file, "head_count_kv"), Some(1));
        assert_eq!(number(&file, "key_length"), Some((RANK + ROPE) as u64));
        assert_eq!(number(&file, "value_length"), Some(RANK as u64));
        assert_eq!(number(&file, "key_length_mla"), Some((NOPE + ROPE) as u64));
        assert_eq!(number(&file, "value_length_mla"), Some(VALUE as u64));

        // Element (j, i) of a head's keys is element (i, j) of its rows in the fused matrix.
        let fused = values(2, RANK * N_HEAD * (NOPE + VALUE));
        let at = |row: usize, col: usize| fused[row * RANK + col];
        let (mut k, mut v) = (Vec::new(), Vec::new());
        for head in 0..N_HEAD {
            let first = head * (NOPE + VALUE);
            k.extend((0..RANK).flat_map(|j| (0..NOPE).map(move |i| at(first + i, j))));
            v.extend((0..VALUE).flat_map(|i| (0..RANK).map(move |j| at(first + NOPE + i, j))));
        }
        assert_eq!(bytes(&file, "blk.0.attn_k_b.weight"), encode(type_name, NOPE, &k));
        assert_eq!(bytes(&file, "blk.0.attn_v_b.weight"), encode(type_name, RANK, &v));

        inspect(&["relayout", &new, &back, "--to", "kv_b"]).assert(0, &[]);
        assert_eq!(
            std::fs::read(&back).expect("a file"),
            std::fs::read(&old).expect("a file")
        );
    }
}

#[test]
fn what_cannot_be_rearranged_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let out = crate::models::text(&folder.path().join("out.gguf"));
    let old = fused("BF16").save(folder.path(), "old.gguf");
    let plain = Model::usual().save(folder.path(), "plain.gguf");
    let mut quantized = fused("F32");
    quantized.tensors[1].dims = vec![32, 27];
    quantized.tensors[1].type_name = "Q8_0";
    quantized.tensors[1].bytes = vec![0; 27 * 34];
    quantized
        .metadata
        .set("deepseek2.attention.kv_lora_rank", 32_u32.into());
    let quantized = quantized.save(folder.path(), "quantized.gguf");
    for (input, to, word) in [
        (
            &old,
            "kv_b",
            "is in the layout `kv_b` (`attn_kv_b.weight`) already: there is nothing to do; `--to k_b`",
        ),
        (&plain, "k_b", "kv_lora_rank"),
        (&quantized, "k_b", "before quantization"),
    ] {
        let run = inspect(&["relayout", input, &out, "--to", to]);
        assert!(run.code == 1 && run.err.contains(word), "{}", run.err);
        let of_key = run.err.contains("metadata key `");
        assert_eq!(of_key, word == "kv_lora_rank", "{}", run.err);
        assert!(!std::path::Path::new(&out).exists());
    }
    let run = inspect(&["relayout", &old, &old, "--to", "k_b", "--force"]);
    assert_eq!(run.code, 2, "{}", run.err);
}
