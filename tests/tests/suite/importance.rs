//! Importance matrices of every checkpoint: that all weights are covered, and that both layouts of latent attention give
//! the same.

use std::path::{Path, PathBuf};

use gguf::TensorInfo;
use gguf_imatrix_format::{Entry, Imatrix};
use gguf_runtime::Model;
use suite_tests::{data, run_ok};

/// Relative L2 distance of sums between the layouts, whose caches round other numbers to 16 bits.
const BETWEEN_LAYOUTS: f64 = 1e-3;

/// The matrix of a model over a short text.
fn collect(model: &Path) -> Imatrix {
    let text = model.with_extension("txt");
    let whole = std::fs::read_to_string(data("calibration.txt")).expect("readable");
    #[expect(clippy::disallowed_methods, reason = "an input of the test")]
    std::fs::write(&text, &whole[..3000]).expect("writable");
    let out = model.with_extension("imatrix");
    let path = |p: &PathBuf| p.display().to_string();
    let (model, text, to) = (model.display().to_string(), path(&text), path(&out));
    let args = ["-m", &model, "-f", &text, "-o", &to, "-c", "32", "--chunks", "2"];
    run_ok(
        "gguf-imatrix",
        &[&args[..], &["--no-ppl", "--quiet", "--force"]].concat(),
    );
    Imatrix::read(&out).expect("a matrix")
}

/// Whether a tensor is a weight of the layers that are run and takes part in a product: not the kernel of a convolution,
/// nor what layers that predict further tokens have.
fn is_multiplied(t: &TensorInfo, n_layer: usize) -> bool {
    let Some((layer, role)) = t.name.strip_prefix("blk.").and_then(|n| n.split_once('.')) else {
        return false;
    };
    let is_run = layer.parse::<usize>().is_ok_and(|l| l < n_layer);
    is_run && t.shape.dims().len() > 1 && role.ends_with(".weight") && role != "ssm_conv1d.weight"
}

/// What lacks an entry, or has one of another length, in words.
pub(crate) fn uncovered(name: &str, file: &Path) -> Vec<String> {
    let model = Model::open(file).expect("runs");
    let matrix = collect(file);
    let tensors = model.file().tensors.iter();
    let n_layer = model.spec().layers.len();
    let wanted: Vec<_> = tensors.filter(|t| is_multiplied(t, n_layer)).collect();
    let lacks = |t: &&TensorInfo| {
        let n = t.shape.n_cols() * t.shape.dim(2);
        let found = matrix.entries.get(&t.name).map(|e| e.sums.len() as u64);
        (found != Some(n)).then(|| format!("{name}: `{}`: expected {n} sums, found {found:?}", t.name))
    };
    let mut wrong: Vec<_> = wanted.iter().filter_map(lacks).collect();
    if wanted.is_empty() {
        wrong.push(format!("{name}: no weights"));
    }
    wrong
}

fn distance(a: &Entry, b: &Entry) -> f64 {
    assert_eq!((a.sums.len(), &a.counts), (b.sums.len(), &b.counts));
    let pairs = a.sums.iter().zip(&b.sums).chain(a.means.iter().zip(&b.means));
    let (mut apart, mut length) = (0.0, 0.0);
    for (&a, &b) in pairs {
        apart += f64::from(a - b).powi(2);
        length += f64::from(b).powi(2);
    }
    (apart / length).sqrt()
}

/// Where the matrices of a model's two layouts of latent attention differ.
pub(crate) fn between_layouts(name: &str, absorbed: &Path, expanded: &Path) -> Vec<String> {
    let (a, b) = (collect(absorbed), collect(expanded));
    let latent = |n: &&String| {
        ["attn_kv_b", "attn_k_b", "attn_v_b"]
            .iter()
            .any(|w| n.contains(w))
    };
    let names: Vec<_> = a.entries.keys().filter(latent).collect();
    let mut wrong = Vec::new();
    if !a.entries.keys().eq(b.entries.keys()) || names.is_empty() || names.len() % 3 != 0 {
        wrong.push(format!(
            "{name}: expected the same weights, three a layer, found {names:?}"
        ));
        return wrong;
    }
    for weight in names {
        let d = distance(&a.entries[weight], &b.entries[weight]);
        if a.entries[weight].counts != [64] || d.is_nan() || d > BETWEEN_LAYOUTS {
            wrong.push(format!("{name}: `{weight}`: distance {d:.1e}"));
        }
    }
    wrong
}

/// A checkpoint needs no file between: as it is read, whole or layer by layer, it gives the bytes that the file gives.
#[test]
fn a_checkpoint_gives_the_matrix_of_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (dir, text) = (
        data("qwen3moe").display().to_string(),
        data("calibration.txt").display().to_string(),
    );
    let file = path("file.gguf");
    run_ok("gguf-convert", &[&dir, "-o", &file, "--quiet"]);
    let matrix = |model: &str, name: &str, more: &[&str]| {
        let to = path(name);
        let args = [
            "-m", model, "-f", &text, "-o", &to, "-c", "64", "--chunks", "3", "--quiet",
        ];
        let printed = run_ok("gguf-imatrix", &[&args[..], more].concat());
        (printed, std::fs::read(to).expect("a matrix"))
    };
    let expected = matrix(&file, "usual", &[]);
    assert!(matrix(&dir, "whole", &[]) == expected, "read whole");
    assert!(
        matrix(&dir, "layers", &["--layer-major"]) == expected,
        "layer by layer"
    );
    assert!(
        matrix(&file, "file-layers", &["--layer-major"]) == expected,
        "the file layer by layer"
    );
}
