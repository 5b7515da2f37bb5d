//! Bad input: one clear line, exit 1 or 2, nothing written.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::checkpoint::{Checkpoint, N_EMBD, safetensors, with_header, write, write_json};
use crate::{convert, convert_ok, stderr, text};

/// Converts what is in `dir` and expects a refusal whose line has all of `words`.
fn refused(case: &str, dir: &Path, more: &[&str], code: i32, words: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.gguf");
    let run = convert(&[&[text(dir), "-o", text(&out)], more].concat());
    let message = stderr(&run);
    assert_eq!(run.status.code(), Some(code), "{case}: {message}");
    let errors: Vec<_> = message.lines().filter(|l| l.starts_with("error: ")).collect();
    let others = message
        .lines()
        .filter(|l| !l.starts_with("error: ") && !l.starts_with("warning: "));
    assert!(errors.len() == 1 && others.count() == 0, "{case}: {message}");
    for word in words {
        assert!(errors[0].contains(word), "{case}: no `{word}` in: {message}");
    }
    assert_eq!(
        fs::read_dir(folder.path()).expect("a folder").count(),
        0,
        "{case}: something was written"
    );
}

/// A refusal of a tiny checkpoint that `bend` has changed.
fn bent(case: &str, words: &[&str], bend: impl FnOnce(&mut Checkpoint)) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut checkpoint = Checkpoint::tiny("BF16");
    bend(&mut checkpoint);
    let dir = checkpoint.write(&folder.path().join("tiny"));
    refused(case, &dir, &[], 1, words);
}

#[test]
fn missing_and_broken_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let absent = folder.path().join("absent");
    refused("no folder", &absent, &[], 2, &["absent", "there is none"]);
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
    refused(
        "a file",
        &dir.join("config.json"),
        &[],
        2,
        &["config.json", "folder"],
    );
    for (name, code, word) in [
        ("tokenizer.json", 2, "tokenizer.json"),
        ("model.safetensors", 2, "neither"),
        ("config.json", 2, "config.json"),
    ] {
        let (file, aside) = (dir.join(name), folder.path().join("aside"));
        let bytes = fs::read(&file).expect("there");
        fs::copy(&file, &aside).expect("copied");
        fs::remove_file(&file).expect("removed");
        refused(name, &dir, &[], code, &[word]);
        write(&file, &bytes);
    }
    write(&dir.join("config.json"), b"{\n  \"a\": 1,\n}");
    refused(
        "trailing comma",
        &dir,
        &[],
        1,
        &["config.json", "line 3 column 1", "trailing comma"],
    );
    write(&dir.join("config.json"), b"[]");
    refused("no object", &dir, &[], 1, &["architectures"]);
}

#[test]
fn shards() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = Checkpoint::tiny("BF16");
    let second = "model-00002-of-00002.safetensors";
    let case = |name: &str, code, words: &[&str], bend: &dyn Fn(&Path)| {
        let dir = checkpoint.write_sharded(&folder.path().join(name), 7);
        bend(&dir);
        refused(name, &dir, &[], code, words);
    };
    case("missing", 1, &[second, "missing", "download"], &|dir| {
        fs::remove_file(dir.join(second)).expect("removed");
    });
    case("cut", 1, &[second, "it is cut"], &|dir| {
        let bytes = fs::read(dir.join(second)).expect("there");
        write(&dir.join(second), &bytes[..bytes.len() - 1]);
    });
    case("surplus byte", 1, &[second, "more than"], &|dir| {
        let bytes = fs::read(dir.join(second)).expect("there");
        write(&dir.join(second), &[bytes, vec![0]].concat());
    });
    let index = "model.safetensors.index.json";
    let edit = |dir: &Path, edit: &dyn Fn(&mut serde_json::Value)| {
        let path = dir.join(index);
        let mut json = serde_json::from_slice(&fs::read(&path).expect("there")).expect("JSON");
        edit(&mut json);
        write_json(&path, &json);
    };
    case("unlisted", 1, &["lm_head.weight", index], &|dir| {
        edit(dir, &|json| {
            drop(
                json["weight_map"]
                    .as_object_mut()
                    .expect("a map")
                    .remove("lm_head.weight"),
            );
        });
    });
    case("listed only", 1, &["`ghost`", "none"], &|dir| {
        edit(dir, &|json| json["weight_map"]["ghost"] = second.into());
    });
    case("in another shard", 1, &["lm_head.weight", second], &|dir| {
        edit(dir, &|json| json["weight_map"]["lm_head.weight"] = second.into());
    });
    case("outside the folder", 1, &["../x.safetensors"], &|dir| {
        edit(dir, &|json| {
            json["weight_map"]["ghost"] = "../x.safetensors".into();
        });
    });
    case("no map", 1, &[index, "weight_map"], &|dir| {
        write(&dir.join(index), b"{}");
    });
    case("without index", 1, &["missing", "1 of 2"], &|dir| {
        fs::remove_file(dir.join(index)).expect("removed");
        fs::remove_file(dir.join(second)).expect("removed");
    });
}

#[test]
fn hostile_headers() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
    let entry = |dtype: &str, shape: &str, begin: u64, end: u64| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    };
    let one = |entry: String| with_header(&format!(r#"{{"a":{entry}}}"#), &[0; 16]);
    let two = |a: String, b: String| with_header(&format!(r#"{{"a":{a},"b":{b}}}"#), &[0; 16]);
    let huge = [&(1u64 << 60).to_le_bytes()[..], b"{}"].concat();
    let max = u64::MAX;
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("empty", Vec::new(), "8 bytes"),
        ("short", vec![1, 2, 3], "8 bytes"),
        ("length", huge, "header length"),
        ("no JSON", with_header("{", &[]), "JSON"),
        ("more JSON", with_header("{} {}", &[]), "JSON"),
        ("a list", with_header("[]", &[]), "JSON"),
        ("dtype", one(entry("F13", "[8]", 0, 16)), "`F13`"),
        ("product", one(entry("BF16", "[9]", 0, 16)), "16 bytes"),
        (
            "overflow",
            one(entry("F32", "[4294967296,4294967296,4]", 0, 16)),
            "can be counted",
        ),
        (
            "overflow of bits",
            one(entry("F32", &format!("[{}]", max / 4), 0, 16)),
            "can be counted",
        ),
        ("reversed", one(entry("BF16", "[8]", 16, 0)), "offsets"),
        ("beyond", one(entry("BF16", "[16]", 0, 32)), "it is cut"),
        ("far", one(entry("BF16", "[8]", max - 16, max)), "behind"),
        (
            "overlap",
            two(entry("BF16", "[8]", 0, 16), entry("BF16", "[4]", 8, 16)),
            "behind",
        ),
        (
            "gap",
            two(entry("BF16", "[2]", 0, 4), entry("BF16", "[4]", 8, 16)),
            "behind",
        ),
        (
            "twice",
            with_header(
                r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#,
                &[],
            ),
            "one copy",
        ),
        (
            "negative",
            with_header(r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}"#, &[]),
            "JSON",
        ),
        ("nothing", with_header("{}", &[]), "embed_tokens"),
    ];
    for (case, bytes, word) in cases {
        write(&dir.join("model.safetensors"), bytes);
        refused(case, &dir, &["--outtype", "f32"], 1, &[word]);
    }
}

#[test]
fn settings_that_the_architecture_does_not_have() {
    bent(
        "unknown class",
        &["LlamaForNothing", "Qwen3MoeForCausalLM"],
        |c| {
            c.config["architectures"] = json!(["LlamaForNothing"]);
        },
    );
    bent("quantized", &["`bitsandbytes`"], |c| {
        c.config["quantization_config"] = json!({"quant_method": "bitsandbytes"});
    });
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
    write_json(
        &dir.join("hf_quant_config.json"),
        &json!({"quantization": {"quant_algo": "W4A8_AWQ"}}),
    );
    refused(
        "quantized aside",
        &dir,
        &[],
        1,
        &["hf_quant_config.json", "`W4A8_AWQ`"],
    );
    for (key, value) in [
        ("hidden_act", json!("gelu")),
        ("norm_topk_prob", json!(false)),
        ("mlp_only_layers", json!([0])),
        ("decoder_sparse_step", json!(2)),
        ("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0})),
        ("num_hidden_layers", json!(0)),
        ("num_hidden_layers", json!("1")),
        ("num_hidden_layers", json!(null)),
        ("hidden_size", json!(u64::MAX)),
        ("rms_norm_eps", json!(-1)),
        ("num_experts_per_tok", json!(4)),
        ("num_key_value_heads", json!(3)),
        ("head_dim", json!(15)),
    ] {
        let case = format!("{key} {value}");
        bent(&case, &["config.json", "expected", "found"], |c| {
            c.config[key] = value;
        });
    }
}

#[test]
fn without_weights_the_tokenizer_backs_the_size_of_the_vocabulary() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut checkpoint = Checkpoint::tiny("BF16");
    checkpoint.config["vocab_size"] = json!(10_000_000);
    let dir = checkpoint.write(&folder.path().join("tiny"));
    let words = ["`vocab_size`", "at most", "10000000"];
    refused("vocab_size", &dir, &["--vocab-only"], 1, &words);

    let mut checkpoint = Checkpoint::tiny("BF16");
    checkpoint.tokenizer["added_tokens"] = json!([{"id": 16_000_000, "content": "<|far|>", "special": true}]);
    let dir = checkpoint.write(&folder.path().join("far"));
    let words = ["token `<|far|>`: expected an id below", "found 16000000"];
    refused("far id", &dir, &["--vocab-only"], 1, &words);
}

#[test]
fn tensors_that_do_not_fit() {
    let expert = "model.layers.0.mlp.experts.1.up_proj.weight";
    bent("missing expert", &[expert, "layer 0"], |c| {
        c.tensors.retain(|t| t.name != expert);
    });
    bent("surplus expert", &["experts.9.", "below the 3"], |c| {
        c.tensor(expert).name = expert.replace(".1.", ".9.");
    });
    bent("odd expert", &[expert, "[32, 48]"], |c| {
        c.tensor(expert).shape.reverse();
    });
    let norm = "model.layers.0.self_attn.q_norm.weight";
    bent("missing norm", &["blk.0.attn_q_norm.weight", "none"], |c| {
        c.tensors.retain(|t| t.name != norm);
    });
    bent(
        "missing output",
        &["lm_head.weight", "tie_word_embeddings"],
        |c| drop(c.tensors.remove(0)),
    );
    bent(
        "wrong shape",
        &["blk.0.attn_q.weight", "[32, 32]", "[16, 64]"],
        |c| {
            c.tensor("model.layers.0.self_attn.q_proj.weight").shape = vec![64, 16];
        },
    );
    bent("too many dimensions", &["q_proj", "at most 4"], |c| {
        c.tensor("model.layers.0.self_attn.q_proj.weight").shape = vec![2, 2, 2, 2, 64];
    });
    bent("too many matrices", &["q_proj", "at most 65536 matrices"], |c| {
        let tensor = c.tensor("model.layers.0.self_attn.q_proj.weight");
        (tensor.shape, tensor.data) = (vec![65_537, 1, 1], vec![0; 65_537 * 2]);
    });
    // Nothing in the file backs the other dimensions.
    bent("no elements", &["q_proj", "above 0"], |c| {
        let tensor = c.tensor("model.layers.0.self_attn.q_proj.weight");
        (tensor.shape, tensor.data) = (vec![1 << 40, 0, 4], Vec::new());
    });
    bent("unknown name", &["mtp.weight", "no place"], |c| {
        c.tensor(norm).name = "mtp.weight".into();
    });
    bent("another layer", &["blk.1.attn_norm.weight"], |c| {
        let mut more = c.tensor("model.layers.0.input_layernorm.weight").clone();
        more.name = "model.layers.1.input_layernorm.weight".into();
        c.tensors.push(more);
    });
    bent("no numbers", &["`I16`", "lm_head.weight"], |c| {
        c.tensor("lm_head.weight").dtype = "I16";
    });
    bent("both layouts", &["blk.0.ffn_down_exps.weight"], |c| {
        let single: Vec<_> = c
            .tensors
            .iter()
            .filter(|t| t.name.contains(".experts."))
            .cloned()
            .collect();
        c.fuse();
        c.tensors.extend(single);
    });
}

#[test]
fn vocabularies_that_do_not_fit() {
    bent("token beyond the embedding", &["`far`", "12 rows", "200"], |c| {
        c.tokenizer["model"]["vocab"]["far"] = 200.into();
    });
    bent("unknown pattern", &["--pre"], |c| {
        c.tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\w+".into();
    });
    bent("unigram", &["Unigram"], |c| {
        c.tokenizer["model"] = json!({"type": "Unigram", "vocab": [["a", -1]]});
    });
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
    refused(
        "unknown --pre",
        &dir,
        &["--pre", "nonsense"],
        2,
        &["`nonsense`", "--help"],
    );
    refused(
        "nearly known --pre",
        &dir,
        &["--pre", "lama-bpe"],
        2,
        &["`llama-bpe`"],
    );
    let help = convert(&["--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("llama-bpe"));
}

#[test]
fn settings_of_the_wrong_type_are_named() {
    for (key, value) in [
        ("vocab_size", json!(0)),
        ("vocab_size", json!(-1)),
        ("vocab_size", json!(5)),
        ("vocab_size", json!(1_000_000)),
        ("vocab_size", json!("12")),
        ("rope_parameters", json!([1])),
        ("rope_parameters", json!("default")),
        ("rope_scaling", json!(4.0)),
        ("text_config", json!([])),
        ("tie_word_embeddings", json!("no")),
        ("bos_token_id", json!("0")),
        ("eos_token_id", json!(1.5)),
        ("pad_token_id", json!({})),
        ("rope_theta", json!("10000")),
        ("head_dim", json!([16])),
        ("num_experts", json!(true)),
        ("norm_topk_prob", json!("true")),
    ] {
        let case = format!("{key} {value}");
        bent(
            &case,
            &["config.json", &format!("`{key}`"), "expected", "found"],
            |c| {
                c.config[key] = value;
            },
        );
    }
    for (key, value) in [
        ("eos_token", json!(3)),
        ("bos_token", json!({"text": "a"})),
        ("add_bos_token", json!("true")),
        ("chat_template", json!(7)),
    ] {
        let case = format!("{key} {value}");
        let words = ["tokenizer_config.json", key, "expected", "found"];
        bent(&case, &words, |c| c.tokenizer_config[key] = value);
    }
    // What is absent, null or a list of ids as generation takes it is no fault.
    let folder = tempfile::tempdir().expect("a folder");
    let mut c = Checkpoint::tiny("BF16");
    for (key, value) in [
        ("vocab_size", json!(null)),
        ("rope_scaling", json!(null)),
        ("eos_token_id", json!([9, 3])),
        ("pad_token_id", json!(-1)),
    ] {
        c.config[key] = value;
    }
    c.tokenizer_config["bos_token"] = json!(null);
    let dir = c.write(&folder.path().join("tiny"));
    convert_ok(&dir, &folder.path().join("out.gguf"), &[]);
}

#[test]
fn messages_about_json_know_no_program() {
    for (case, tokenizer) in [
        ("list", json!([])),
        ("model", json!({"model": []})),
        ("added", json!({"model": {}, "added_tokens": [3]})),
        (
            "id",
            json!({"model": {}, "added_tokens": [{"id": "a", "content": "a"}]}),
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
        write_json(&dir.join("tokenizer.json"), &tokenizer);
        let run = convert(&[text(&dir)]);
        let message = stderr(&run);
        assert_eq!(run.status.code(), Some(1), "{case}: {message}");
        for word in ["struct ", "TokenizerJson", "u64", "sequence"] {
            assert!(!message.contains(word), "{case}: {message}");
        }
    }
}

#[test]
fn shards_that_are_no_files_are_told_from_missing_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write_sharded(&folder.path().join("tiny"), 7);
    let second = dir.join("model-00002-of-00002.safetensors");
    fs::remove_file(&second).expect("removed");
    fs::create_dir(&second).expect("a folder");
    refused(
        "a folder",
        &dir,
        &[],
        2,
        &["model-00002-of-00002.safetensors", "not a regular file"],
    );
}

#[test]
fn names_that_say_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
    for name in ["", " ", "-", "a\nb"] {
        let argument = format!("--model-name={name}");
        refused(name, &dir, &[&argument], 2, &["--model-name", "expected a name"]);
    }
}

#[test]
fn values_that_the_type_cannot_hold() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut checkpoint = Checkpoint::tiny("F32");
    let at = N_EMBD + 5;
    checkpoint
        .tensor("model.layers.0.mlp.experts.0.gate_proj.weight")
        .set(at, 70_000.0);
    let dir = checkpoint.write(&folder.path().join("tiny"));
    let words = [
        "blk.0.ffn_gate_exps.weight",
        "matrix 0, row 1, column 5",
        "7e4",
        "`F16`",
    ];
    refused("f16", &dir, &["--outtype", "f16"], 1, &words);
    let kept = folder.path().join("kept.gguf");
    convert_ok(&dir, &kept, &["--outtype", "f16", "--keep-wide"]);
    let file = gguf::GgufFile::open(&kept).expect("readable");
    let type_of = |name: &str| file.tensor(name).expect("there").type_name();
    assert_eq!(type_of("blk.0.ffn_gate_exps.weight"), "F32");
    assert_eq!(type_of("blk.0.ffn_up_exps.weight"), "F16");
    convert_ok(&dir, &folder.path().join("bf16.gguf"), &["--outtype", "bf16"]);
    convert_ok(&dir, &folder.path().join("q8_0.gguf"), &["--outtype", "q8_0"]);
    checkpoint
        .tensor("model.layers.0.mlp.experts.0.gate_proj.weight")
        .set(at, 9e6);
    checkpoint.write(&dir);
    let words = [
        "blk.0.ffn_gate_exps.weight",
        "matrix 0, row 1, column 5",
        "9e6",
        "block of `Q8_0`",
    ];
    refused("q8_0", &dir, &["--outtype", "q8_0"], 1, &words);
}

#[test]
fn values_that_are_no_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    for (dtype, value, found) in [
        ("F32", f32::NAN, "found NaN"),
        ("F32", f32::NEG_INFINITY, "found -inf"),
        ("BF16", f32::INFINITY, "found inf"),
        ("BF16", f32::NAN, "found NaN"),
    ] {
        let mut checkpoint = Checkpoint::tiny(dtype);
        let tensor = checkpoint.tensor("model.layers.0.mlp.experts.1.up_proj.weight");
        tensor.set(N_EMBD + 5, value);
        let dir = checkpoint.write(&folder.path().join("tiny"));
        for outtype in ["f32", "bf16", "f16", "q8_0", "q4_0"] {
            let case = format!("{dtype} {value} as {outtype}");
            let words = [
                "blk.0.ffn_up_exps.weight",
                "matrix 1, row 1, column 5",
                "finite",
                found,
            ];
            refused(&case, &dir, &["--outtype", outtype], 1, &words);
        }
    }
}

#[test]
fn outputs_that_must_not_be_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
    let weights = dir.join("model.safetensors");
    let before = fs::read(&weights).expect("there");
    let link = folder.path().join("link.gguf");
    std::os::unix::fs::symlink(&weights, &link).expect("a link");
    let existing = folder.path().join("existing.gguf");
    write(&existing, b"precious");
    for (out, force, word) in [
        (&existing, false, "exists"),
        (&weights, true, "input"),
        (&link, true, "input"),
        (&dir.join("config.json"), true, "input"),
        (&folder.path().join("absent/out.gguf"), false, "absent"),
    ] {
        let run = convert(
            &[
                &[text(&dir), "-o", text(out)][..],
                if force { &["--force"] } else { &[] },
            ]
            .concat(),
        );
        assert_eq!(run.status.code(), Some(2), "{}", stderr(&run));
        assert!(stderr(&run).contains(word), "{}", stderr(&run));
    }
    assert_eq!(fs::read(&existing).expect("there"), b"precious");
    assert!(
        fs::read(&weights).expect("there") == before
            && before == safetensors(&Checkpoint::tiny("BF16").tensors)
    );
}

#[test]
fn wrong_command_lines() {
    for (args, word) in [
        (&["--outtype", "q4_k_x", "x"][..], "Q4_K_M"),
        (&["--outtype", "q8_0", "--pure", "x"], "`--pure`"),
        (&["--imatrix", "y", "x"], "`--imatrix`"),
        (&["--via", "f32", "x"], "`--via`"),
        (&["--outtype", "q4_k_m", "--via", "q4_0", "x"], "tq2_0"),
        (&[], "MODEL"),
        (&["x", "--nonsense"], "--nonsense"),
        (&["x", "-t", "many"], "many"),
    ] {
        let run = convert(args);
        assert_eq!(run.status.code(), Some(2), "{args:?}");
        assert!(stderr(&run).contains(word), "{args:?}: {}", stderr(&run));
    }
}
