//! What corpora begin with: small sound inputs. `tests/fuzz/fuzz_targets/seeds.rs` writes them; they stay in the corpus,
//! so this is run again only where the suite has learned something new, as an architecture.

mod folders;

use std::path::{Path, PathBuf};

use gguf::split::{self, Limits};
use gguf::{Array, GgufFile, Layout, Metadata, Shape, TensorSpec, Value, Writer};
use gguf_blocks::registry;
use gguf_convert::{Options, open_checkpoint};
use gguf_imatrix_format::{Entry, Imatrix};

use super::{TARGETS, checkpoint, container, folder, model, tokenizer};
use crate::shared;

/// A target, a name and an input.
pub type Seed = (&'static str, String, Vec<u8>);

/// All of them but those of [`states`]. What needs the folder `shared` is left out where it is absent.
pub fn all() -> Vec<Seed> {
    let mut all = Vec::new();
    all.extend(sets());
    all.extend(matrices());
    all.extend(base_files());
    all.extend(vocabularies());
    all.extend(templates());
    all.extend(types());
    all.extend(folders::weights());
    all.extend(folders::tokenizers());
    all.extend(wide());
    for dir in zoo() {
        all.extend(of_checkpoint(&dir));
    }
    // The fuzzer would cut longer ones, which leaves nothing sound.
    let fits = |seed: &Seed| {
        TARGETS
            .iter()
            .any(|t| t.name == seed.0 && seed.2.len() <= t.max_len)
    };
    all.retain(fits);
    all
}

/// States of the models that are in the corpus.
pub fn states() -> Vec<Seed> {
    let n = model::STATES.len() as u8;
    // With each type once for the keys and once for the values.
    let picks = (0..5).flat_map(|kind| (0..n).map(move |i| (kind, i)));
    picks
        .map(|(kind, i)| {
            let name = model::STATES[usize::from(i)];
            let name = if kind == 0 {
                name.to_owned()
            } else {
                format!("{name}-{kind}")
            };
            ("state", name, model::seed_of_state(i + n * types_of_cache(kind)))
        })
        .collect()
}

/// A file of two or more shards, one after the other.
fn sets() -> Vec<Seed> {
    let f32 = registry::by_name("F32").expect("a type");
    let tensor = |i: u64| TensorSpec::new(format!("t{i}"), Shape::new(&[4, i]).expect("small"), f32.id);
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", Value::String("test".into()));
    let layout = Layout::plan(&metadata, (1..6).map(tensor).collect()).expect("a small file");
    let mut writer = Writer::new(Vec::new(), &layout).expect("memory takes it");
    for i in 1..6 {
        writer.write(&vec![i as u8; 16 * i]).expect("memory takes it");
    }
    let file = container::parse(writer.finish().expect("all are written")).expect("it is sound");
    let set = |n| {
        let shards = split::plan(&file, Limits::Tensors(n), false).expect("it can be split");
        let shards = shards.iter().map(|shard| {
            let mut writer = Writer::new(Vec::new(), &shard.layout).expect("memory takes it");
            for tensor in &file.tensors[shard.first_tensor..][..shard.layout.tensors.len()] {
                writer
                    .write(&file.tensor_bytes(tensor).expect("it is sound"))
                    .expect("memory takes it");
            }
            writer.finish().expect("all are written")
        });
        let bytes = shards.collect::<Vec<_>>().concat();
        ("split-set", format!("shards-of-{n}"), bytes)
    };
    [1, 2, 3].map(set).into()
}

fn matrices() -> Vec<Seed> {
    let entry = |n: usize, counts: &[u64], means: bool| Entry {
        sums: (0..n * counts.len()).map(|i| (i % 3) as f32).collect(),
        means: (0..if means { n * counts.len() } else { 0 })
            .map(|i| i as f32 - 1.0)
            .collect(),
        counts: counts.to_vec(),
    };
    let matrix = Imatrix {
        entries: [
            ("blk.0.attn_q.weight".to_owned(), entry(4, &[9], true)),
            ("blk.0.ffn_up_exps.weight".to_owned(), entry(3, &[5, 0, 2], false)),
        ]
        .into(),
        datasets: vec!["a.txt".to_owned()],
        chunk_count: 2,
        chunk_size: 8,
        origin: None,
    };
    let dir = tempfile::tempdir().expect("a folder");
    let written = |name: &str, done: gguf_imatrix_format::Result<()>| {
        done.expect("a sound matrix");
        std::fs::read(dir.path().join(name)).expect("it was written")
    };
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    vec![
        (
            "imatrix",
            "gguf".to_owned(),
            written("new", matrix.write_gguf(&new, false, &[])),
        ),
        (
            "imatrix",
            "legacy".to_owned(),
            written("old", matrix.write_legacy(&old, false, &[])),
        ),
    ]
}

/// Two chunks of four tokens, of which each scores one; all tokens are equally likely.
fn base_files() -> Vec<Seed> {
    let n_vocab = 5u32;
    let p = -(n_vocab as f32).ln();
    let head = |magic: &[u8]| {
        let mut out = magic.to_vec();
        for n in [4, n_vocab, 2].into_iter().chain((0..8).map(|i| i % n_vocab)) {
            out.extend(n.to_le_bytes());
        }
        out
    };
    let mut full = head(b"_logits_");
    let mut compact = head(b"_logitc_");
    for _ in 0..2 {
        full.extend([0.0, p].map(f32::to_le_bytes).concat());
        full.extend([0; 12]);
        compact.extend([0.0, p, 0.0, -p].map(f32::to_le_bytes).concat());
        compact.extend((0..n_vocab as u16).flat_map(u16::to_le_bytes));
        compact.extend([0; 10]);
    }
    vec![
        ("base-file", "full".to_owned(), full),
        ("base-file", "compact".to_owned(), compact),
    ]
}

/// Vocabularies of every family, each behind a text.
fn vocabularies() -> Vec<Seed> {
    let mut all = Vec::new();
    let mut add = |name: String, metadata: &Metadata| {
        let text = "Hello  w\u{f6}rld 123\n\u{4f60}\u{597d} <s>".as_bytes();
        all.push(("tokenizer", name, [text, &bytes(metadata, Vec::new())].concat()));
    };
    for (name, metadata) in tokenizer::families() {
        add(name.to_owned(), &metadata);
    }
    for name in [
        "llama-bpe",
        "llama-spm",
        "phi-3",
        "qwen2",
        "gpt-2",
        "deepseek-llm",
    ] {
        if let Some(path) = shared(&format!("vocabs/ggml-vocab-{name}.gguf")) {
            let file = GgufFile::open(&path).expect("a sound vocabulary");
            add(name.to_owned(), &cut_vocabulary(&file.metadata, 300));
        }
    }
    for text in [
        "plain text",
        "a\u{301}\u{fb01}\u{1f600} \u{2581}\t\r\n  x",
        "It's 1234567 <bos><eos>",
    ] {
        all.push((
            "tokenizer",
            format!("text-{}", text.len()),
            text.as_bytes().to_vec(),
        ));
    }
    all
}

/// The first tokens of a vocabulary, without ids of tokens that it has no more.
fn cut_vocabulary(metadata: &Metadata, n: usize) -> Metadata {
    let mut out = Metadata::new();
    for (key, value) in metadata.iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
        let value = match value {
            Value::U32(id) if key.ends_with("_token_id") && *id as usize >= n => continue,
            Value::Array(Array::String(all)) => Value::from(all.to_vec()[..all.len().min(n)].to_vec()),
            Value::Array(Array::F32(all)) => Value::Array(Array::F32(all[..all.len().min(n)].to_vec())),
            Value::Array(Array::I32(all)) => Value::Array(Array::I32(all[..all.len().min(n)].to_vec())),
            other => other.clone(),
        };
        out.set(key.to_owned(), value);
    }
    out
}

fn templates() -> Vec<Seed> {
    let messages = b"\xFFsystem\xFFBe brief.\xFFuser\xFFHi!";
    let more = br#"{"enable_thinking": false, "tools": [{"name": "f", "of": [[1, 2.5, null], {"a": []}]}]}"#;
    let texts = [
        (
            "chatml",
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        ),
        (
            "macro",
            "{%- macro say(m) -%}{{ m.content | trim }}{%- endmacro -%}{{ bos_token }}{% for m in messages %}{% if loop.index0 % 2 == 0 %}{% continue %}{% endif %}{{ say(m) ~ loop.index }}{% endfor %}",
        ),
        (
            "namespace",
            "{% set ns = namespace(n=0, first=messages[0]) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n ~ m['content'] }}{% endfor %}{{ ns.first.role }}",
        ),
        (
            "methods",
            "{{ messages[0].content.split(' ') | join(',') | upper }}{{ 'abc'.replace('b', 'x') }}{{ messages | tojson(indent=2) }}{{ strftime_now('%Y-%m-%d') }}",
        ),
        (
            "refusal",
            "{% if messages | length > 1 %}{{ raise_exception('no: ' ~ messages[1].role) }}{% endif %}",
        ),
        (
            "loops",
            "{% for i in range(1000) %}{% for j in range(1000) %}{{ i * j }}{% endfor %}{% endfor %}",
        ),
        (
            "doubling",
            "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        ),
        (
            "generation",
            "{% generation %}{{ eos_token }}{% endgeneration %}{% filter upper %}a{% endfilter %}{{ [1, 2, 3] | map('string') | list }}",
        ),
        (
            "more",
            "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}{% for t in tools or [] %}{{ t | tojson(indent=1) }}{{ t.of[0] | sum }}{{ t.items() | list }}{% endfor %}",
        ),
        (
            "recursion",
            "{% for x in tools recursive %}{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %}{% endfor %}{% macro m(n) %}{{ n }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
        ),
    ];
    let seed = |(name, text): (&str, &str)| {
        let more: &[&[u8]] = if text.contains("tools") {
            &[b"\xFF", more]
        } else {
            &[]
        };
        let input = [&[text.as_bytes(), messages], more].concat().concat();
        ("chat-template", name.to_owned(), input)
    };
    texts.into_iter().map(seed).collect()
}

/// A few bytes for every type.
fn types() -> Vec<Seed> {
    let mut all = Vec::new();
    for (i, format) in (0..).zip(registry::all()) {
        // Halves and floats of moderate size.
        let bytes: Vec<u8> = (0..96u8).map(|b| b.wrapping_mul(53) & 0x3F).collect();
        for target in ["blocks", "kernels"] {
            all.push((target, format.name.to_lowercase(), [&[i, 1][..], &bytes].concat()));
        }
    }
    all
}

fn zoo() -> Vec<PathBuf> {
    let folder = shared("models/zoo");
    let entries = folder
        .into_iter()
        .flat_map(|f| std::fs::read_dir(f).expect("a folder"));
    let mut all: Vec<PathBuf> = entries.map(|e| e.expect("it can be read").path()).collect();
    all.sort();
    all
}

/// Of a tiny checkpoint: the head of its model, its settings with its header, the files of its tokenizer.
fn of_checkpoint(dir: &Path) -> Vec<Seed> {
    let name = dir
        .file_name()
        .expect("a folder's name")
        .to_string_lossy()
        .into_owned();
    let options = Options {
        outtype: "f32".to_owned(),
        ..Options::default()
    };
    let file = open_checkpoint(dir, &options).expect("it can be converted").file;
    let mut all = Vec::new();
    let head = head(&file);
    assert!(model::is_model(&head), "{name}");
    all.push(("model", name.clone(), head));
    let file = |name: &str| std::fs::read(dir.join(name)).ok();
    let config = folder::entry("config.json", &file("config.json").expect("settings"));
    if let Some(weights) = file("model.safetensors") {
        let n = u64::from_le_bytes(*weights.first_chunk().expect("a header")) as usize;
        let header = folder::entry("model.safetensors.header", &weights[8..8 + n]);
        all.push(("config", name.clone(), [config, header].concat()));
    }
    if let Some(model) = file("tokenizer.model") {
        let settings = folder::entry(
            "tokenizer_config.json",
            &file("tokenizer_config.json").unwrap_or_default(),
        );
        let model = folder::entry("tokenizer.model", &model);
        all.push(("vocabulary", name, [settings, model].concat()));
    }
    all
}

/// A model with heads of 32 elements, whole blocks of any type of a cache: as it is, and with each type once for the keys
/// and once for the values.
fn wide() -> Vec<Seed> {
    let config = checkpoint::CONFIG.replace("\"head_dim\":16", "\"head_dim\":32");
    let header = checkpoint::header_of(32);
    let dir = checkpoint::usual_but(&[
        ("config.json", config.as_bytes()),
        ("model.safetensors.header", header.as_bytes()),
    ]);
    let options = Options {
        outtype: "f32".to_owned(),
        ..Options::default()
    };
    let file = open_checkpoint(dir.path(), &options)
        .expect("it can be converted")
        .file;
    let head = head(&file);
    let with = |kind: u8| {
        // A first byte of data, which picks the types.
        let picked = [&head[..], &[2 * types_of_cache(kind)]].concat();
        ("model", format!("llama-wide-{kind}"), picked)
    };
    let mut all: Vec<Seed> = (1..5).map(with).collect();
    all.push(("model", "llama-wide".to_owned(), head));
    all
}

/// What picks type `kind` of five for the keys, and another one for the values.
fn types_of_cache(kind: u8) -> u8 {
    kind + 5 * (kind * 2 % 5)
}

/// The head of a model with 32 tokens.
fn head(file: &GgufFile) -> Vec<u8> {
    const TOKENS: u64 = 32;
    let n_vocab = file.tensor("token_embd.weight").expect("a model").shape.n_rows();
    let mut metadata = Metadata::new();
    for (key, value) in file.metadata.iter() {
        let of_vocabulary = key.starts_with("tokenizer.") || key.ends_with(".vocab_size");
        let talk = key.starts_with("general.") && !key.ends_with(".architecture");
        if !of_vocabulary && !talk {
            metadata.set(key.to_owned(), value.clone());
        }
    }
    let tokens: Vec<String> = (0..TOKENS).map(|i| format!("t{i}")).collect();
    metadata.set(gguf::key::TOKENS, Value::from(tokens));
    let specs = file.tensors.iter().map(|t| {
        let mut dims = t.shape.dims().to_vec();
        if let [_, rows] = &mut dims[..]
            && *rows == n_vocab
        {
            *rows = TOKENS;
        }
        TensorSpec::new(
            t.name.clone(),
            Shape::new(&dims).expect("smaller than before"),
            t.type_id,
        )
    });
    bytes(&metadata, specs.collect())
}

/// The head of a file, without its data.
fn bytes(metadata: &Metadata, specs: Vec<TensorSpec>) -> Vec<u8> {
    Layout::plan(metadata, specs).expect("a sound file").head
}
