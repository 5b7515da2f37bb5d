//! Every checkpoint beside the project, converted to F32, against the logits that Hugging Face's code computes from it;
//! and that importance is collected of all its weights.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gguf_runtime::chunks::{ChunkRows, ChunkSettings, Chunks, Evaluator, Wanted};
use gguf_runtime::{
    Compute, Input, KvType, LayerStep, Layered, LayeredOptions, Model, Observe, Session, Settings, Token,
};
use safetensors::SafeTensors;
use suite_tests::{run_ok, shared};

use crate::importance;

/// Relative L2 error of logits.
const TOLERANCE: f64 = 1e-4;
/// The same between batches that are cut differently.
const BETWEEN_CUTS: f64 = 1e-5;

struct Golden {
    ids: Vec<u32>,
    logits: Vec<f32>,
}

fn checkpoints() -> Vec<PathBuf> {
    let folders = ["models/zoo", "models/sources"].into_iter().filter_map(shared);
    let mut all: Vec<PathBuf> = folders
        .flat_map(|folder| std::fs::read_dir(folder).expect("a folder"))
        .map(|entry| entry.expect("readable").path())
        .filter(|dir| dir.join("golden.safetensors").exists())
        .collect();
    all.sort();
    all
}

fn golden(dir: &Path) -> Golden {
    let bytes = std::fs::read(dir.join("golden.safetensors")).expect("readable");
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    let data = |name: &str| tensors.tensor(name).expect("there").data().to_vec();
    let ids = data("input_ids");
    let n = tensors.tensor("logits").expect("there").shape()[0];
    let width = ids.len() / n;
    Golden {
        ids: ids
            .chunks(width)
            .map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]))
            .collect(),
        logits: data("logits")
            .chunks(4)
            .map(|v| f32::from_le_bytes([v[0], v[1], v[2], v[3]]))
            .collect(),
    }
}

fn error(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len(), "logits");
    let square = |v: f64| v * v;
    let pairs = found.iter().zip(expected);
    let differences: f64 = pairs.map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let length: f64 = expected.iter().map(|v| square(f64::from(*v))).sum();
    (differences / length).sqrt()
}

/// How a model is run.
#[derive(Clone, Copy)]
struct Cut {
    n_batch: usize,
    n_ubatch: usize,
    compute: Compute,
}

/// Logits of all tokens, which are decoded `n_batch` at a time, in micro-batches of `n_ubatch`.
fn logits(model: &Model, ids: &[u32], cut: Cut) -> Vec<f32> {
    let settings = Settings {
        n_ctx: ids.len(),
        n_ubatch: cut.n_ubatch,
        type_k: KvType::F32,
        type_v: KvType::F32,
        compute: cut.compute,
        ..Settings::default()
    };
    let mut session = Session::new(model, settings).expect("room");
    let tokens: Vec<Token> = ids
        .iter()
        .enumerate()
        .map(|(pos, &id)| Token {
            id,
            seq: 0,
            pos: pos as u32,
            logits: true,
        })
        .collect();
    tokens
        .chunks(cut.n_batch)
        .flat_map(|batch| session.decode(batch).expect("decodes"))
        .collect()
}

/// What is wrong with a converted file, if anything.
fn compare(name: &str, file: &Path, golden: &Golden, compute: Compute) -> Option<String> {
    let model = match Model::open(file) {
        Ok(model) => model,
        Err(e) => return Some(format!("{name}: {e}")),
    };
    let cut = |n_batch, n_ubatch| {
        let cut = Cut {
            n_batch,
            n_ubatch,
            compute,
        };
        logits(&model, &golden.ids, cut)
    };
    let n = golden.ids.len();
    let whole = cut(n, n);
    let found = error(&whole, &golden.logits);
    let one_by_one = error(&cut(1, 1), &whole);
    let uneven = error(&cut(37, 13), &whole);
    println!("{name}: {found:.1e}, one by one {one_by_one:.1e}, in uneven parts {uneven:.1e}");
    if let Some(what) = by_layer(file, &model, &golden.ids, compute) {
        return Some(format!("{name}, layer by layer: {what}"));
    }
    let is_right = found <= TOLERANCE && one_by_one <= BETWEEN_CUTS && uneven <= BETWEEN_CUTS;
    (!is_right).then(|| {
        format!(
            "{name}: {found:.1e} from the checkpoint's, one by one {one_by_one:.1e}, in uneven parts {uneven:.1e}"
        )
    })
}

/// Inputs of each weight, in the order in which they are seen.
#[derive(Default)]
struct Inputs(BTreeMap<String, Vec<f32>>);

impl Observe for Inputs {
    fn input(&mut self, tensor: &str, input: Input<'_>) {
        let all = self.0.entry(tensor.to_owned()).or_default();
        match input {
            Input::Dense { rows, .. } | Input::Heads { rows, .. } => all.extend(rows),
            Input::Experts {
                rows, n_cols, source, ..
            } => {
                let rows = source.iter().map(|&row| &rows[row as usize * n_cols..][..n_cols]);
                all.extend(rows.flatten());
            }
        }
    }
}

fn observer(inputs: &mut Inputs, observe: bool) -> Option<&mut dyn Observe> {
    observe.then_some(inputs)
}

/// Bits of the logits of all chunks, and what an observer saw.
fn chunk_logits(chunks: &Chunks, evaluator: &mut Evaluator<'_>, observe: bool) -> (Vec<u32>, Inputs) {
    let (mut bits, mut inputs) = (Vec::new(), Inputs::default());
    let wanted = if observe { Wanted::All } else { Wanted::Scored };
    if let Evaluator::Layered(layered) = evaluator {
        let watch = &mut |_: LayerStep<'_>| Ok(());
        layered
            .run_layers(&[chunks], wanted, None, observer(&mut inputs, observe), watch)
            .expect("layers");
    }
    let sink = &mut |rows: ChunkRows<'_>| {
        bits.extend(rows.rows.iter().map(|v| v.to_bits()));
        Ok(())
    };
    chunks
        .evaluate(evaluator, wanted, observer(&mut inputs, observe), sink)
        .expect("evaluates");
    (bits, inputs)
}

/// What differs, if anything, between the usual order and one layer after the other, with hidden states in memory and in
/// a file.
fn by_layer(file: &Path, model: &Model, ids: &[u32], compute: Compute) -> Option<String> {
    let cut = ChunkSettings {
        n_ctx: 11,
        n_batch: 22,
        limit: None,
    };
    let chunks = Chunks::of_whole(ids.to_vec(), cut, None).expect("chunks");
    let settings = Settings {
        compute,
        latent_inputs: true,
        ..chunks.session_settings(7)
    };
    let streamed = Model::open_streamed(file).expect("opened before");
    let temp = tempfile::tempdir().expect("a folder");
    let mut options = LayeredOptions {
        max_memory: None,
        temp_dir: temp.path().to_owned(),
    };
    let layered =
        |options: &LayeredOptions| Layered::new(&streamed, settings, &[&chunks], Wanted::All, options);
    // All memory that leaves no room for hidden states.
    options.max_memory = Some(1);
    let least = layered(&options).expect_err("too little").to_string();
    let least: u64 = least.split(' ').nth(7).expect("a number").parse().expect("MiB");
    for (max_memory, observe) in [(None, true), (Some(least << 20), false)] {
        options.max_memory = max_memory;
        let session = Session::new(model, settings).expect("room");
        let (expected, seen) = chunk_logits(&chunks, &mut Evaluator::Session(session), observe);
        let mut evaluator = Evaluator::Layered(layered(&options).expect("room"));
        let (found, seen_by_layer) = chunk_logits(&chunks, &mut evaluator, observe);
        if found != expected {
            return Some(format!("other logits with {max_memory:?} bytes"));
        }
        if let Some((name, _)) = seen
            .0
            .iter()
            .find(|(name, rows)| seen_by_layer.0.get(*name) != Some(rows))
        {
            return Some(format!("other inputs of `{name}`"));
        }
    }
    None
}

#[test]
fn checkpoints_have_their_logits_and_all_weights_are_collected() {
    let tmp = tempfile::tempdir().expect("a folder");
    let mut wrong = Vec::new();
    for dir in checkpoints() {
        let name = dir.file_name().expect("a name").to_string_lossy().into_owned();
        let golden = golden(&dir);
        let path = |more: &str| tmp.path().join(format!("{name}{more}.gguf"));
        let text = |path: &Path| path.display().to_string();
        let convert = |to: &Path, outtype: &str| {
            run_ok(
                "gguf-convert",
                &[&text(&dir), "--outtype", outtype, "-o", &text(to)],
            )
        };
        let file = path("");
        convert(&file, "f32");
        wrong.extend(compare(&name, &file, &golden, Compute::Fast));
        wrong.extend(importance::uncovered(&name, &file));
        // Blocks of 4 bits that are kept hold the same numbers.
        if name.contains("fp4") {
            let kept = path("-kept");
            convert(&kept, "auto");
            wrong.extend(compare(
                &format!("{name}, blocks kept"),
                &kept,
                &golden,
                Compute::F32,
            ));
        }
        // Keys and values made of latent vectors, and queries that meet these, are the same.
        let is_latent = Model::open(&file).is_ok_and(|m| m.file().tensor("blk.0.attn_k_b.weight").is_some());
        if is_latent {
            let expanded = path("-expanded");
            run_ok(
                "gguf-inspect",
                &["relayout", &text(&file), &text(&expanded), "--to", "kv_b"],
            );
            wrong.extend(compare(
                &format!("{name}, keys and values made"),
                &expanded,
                &golden,
                Compute::Fast,
            ));
            wrong.extend(importance::between_layouts(&name, &file, &expanded));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
