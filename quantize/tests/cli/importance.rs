//! What an importance matrix does to a plan and to the bytes: what it lacks, what is odd in it, and matrices that were
//! made from another layout or another model.

use gguf::{GgufFile, Value};
use gguf_blocks::{Importance, registry};
use gguf_imatrix_format::Imatrix;
use serde_json::Value as Json;

use crate::fixture::*;

pub(crate) const UP: &str = "blk.0.ffn_up_exps.weight";

impl Fixture {
    pub(crate) fn matrix(&self, name: &str, matrix: &Imatrix) {
        matrix.write_gguf(&self.path(name), true, &[]).unwrap();
    }

    fn tensor(&self, file: &str, tensor: &str) -> (String, Vec<u8>) {
        let file = GgufFile::open(&self.path(file)).unwrap();
        let t = file.tensor(tensor).unwrap();
        (t.type_name(), file.tensor_bytes(t).unwrap().into_owned())
    }

    pub(crate) fn succeeds(&self, args: &str) -> String {
        let out = self.run(args);
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.success(), "{args}: {text}");
        text
    }
}

/// A tensor of [`value`]s as a type, `weights` giving the importance of each matrix.
fn encoded(type_name: &str, dims: &[u64], weights: &[&[f32]]) -> Vec<u8> {
    let format = registry::by_name(type_name).unwrap();
    let encode = format.encoder(gguf_blocks::Cpu::best()).unwrap();
    let row_bytes = format.geometry.row_bytes(dims[0]).unwrap() as usize;
    let (n_rows, n_mat) = (dims[1], dims.get(2).copied().unwrap_or(1));
    let mut out = vec![0; row_bytes * (n_rows * n_mat) as usize];
    for (row, out) in (0..).zip(out.chunks_exact_mut(row_bytes)) {
        let values: Vec<f32> = (0..dims[0]).map(|c| value(row * dims[0] + c)).collect();
        encode(&values, Importance::Column(weights[(row / n_rows) as usize]), out);
    }
    out
}

fn row<'a>(plan: &'a Json, tensor: &str) -> &'a Json {
    let rows = plan["tensors"].as_array().unwrap();
    rows.iter().find(|t| t["name"] == tensor).unwrap()
}

/// Sums that differ from column to column.
fn sums(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 31 % 97) as f32 + 1.0).collect()
}

/// The matrix of the fixture with `counts` for the experts; nothing without.
fn with_experts(counts: Option<&[u64]>) -> Imatrix {
    let mut m = imatrix(256);
    match counts {
        Some(counts) => m.entries.insert(UP.to_owned(), entry(sums(512), counts)),
        None => m.entries.remove(UP),
    };
    m
}

#[test]
fn all_problems_are_told_at_once_and_by_a_dry_run_too() {
    let f = Fixture::new();
    let mut m = with_experts(None);
    for name in ["blk.0.attn_v.weight", "blk.1.attn_v.weight"] {
        m.entries.insert(name.to_owned(), entry(vec![1.0; 64], &[1]));
    }
    f.matrix("m", &m);
    for dry in ["", "--dry-run --quiet"] {
        f.refuses(
            &format!("{dry} --imatrix m in.gguf o IQ2_XXS"),
            1,
            &[
                "2 problems",
                "tensors `blk.0.attn_v.weight`, `blk.1.attn_v.weight`",
                "needs 256 values",
                "found 64",
                "`blk.0.ffn_up_exps.weight`: type `IQ2_XXS` needs importance",
                "--uncovered",
            ],
        );
    }
    f.refuses(
        "in.gguf o IQ2_XXS --tensor-type nothing=q8_0",
        1,
        &[
            "2 problems",
            "`nothing=q8_0`: no tensor's name matches",
            "needs an importance matrix (`--imatrix`)",
        ],
    );
}

#[test]
fn an_expert_that_no_token_reached() {
    let f = Fixture::new();
    f.matrix("m", &with_experts(Some(&[4, 0])));
    let means: Vec<f32> = sums(256).iter().map(|s| s / 4.0).collect();
    let expected = encoded("IQ2_XXS", &[256, 288, 2], &[&means, &[1.0; 256]]);
    let said = "1 of its 2 experts saw no token (1)";
    for how in ["", "--uncovered neutral"] {
        let text = f.succeeds(&format!("{how} --imatrix m in.gguf o IQ2_XXS --force"));
        assert!(
            text.contains(&format!("warning: tensor `{UP}`: {said}")),
            "{text}"
        );
        let (type_name, bytes) = f.tensor("o", UP);
        assert_eq!(type_name, "IQ2_XXS");
        assert!(bytes == expected, "{how}");
    }
    f.refuses(
        "--uncovered fail --imatrix m in.gguf x IQ2_XXS",
        1,
        &[UP, said, "--uncovered fail"],
    );
    f.refuses("--uncovered fail --imatrix m in.gguf x Q4_K_M", 1, &[UP, said]);
    f.refuses(
        "--strict --imatrix m in.gguf x IQ2_XXS",
        1,
        &[UP, said, "--strict"],
    );
    let plan = f.json("--uncovered raise --dry-run --imatrix m in.gguf x IQ2_XXS");
    let up = row(&plan, UP);
    assert_eq!(
        (&up["to"], &up["reason"]),
        (&"Q2_K".into(), &"raised from IQ2_XXS".into())
    );
    assert_eq!(up["importance"], 0.5);
    let plan = f.json("--uncovered raise --dry-run --imatrix m in.gguf x IQ3_XXS");
    assert_eq!(row(&plan, UP)["to"], "Q3_K");
    // Types that can do without are not raised.
    let plan = f.json("--uncovered raise --dry-run --imatrix m in.gguf x Q2_K");
    assert_eq!(row(&plan, UP)["to"], "Q2_K");
    // Eight-bit blocks do not look at importance, so nothing lacks it.
    f.succeeds("--uncovered fail --imatrix m in.gguf x Q8_0 --force");
}

#[test]
fn a_tensor_without_an_entry() {
    let f = Fixture::new();
    f.matrix("m", &with_experts(None));
    f.refuses("--imatrix m in.gguf x IQ2_XXS", 1, &[UP, "needs importance"]);
    f.refuses(
        "--uncovered fail --imatrix m in.gguf x Q4_K_M",
        1,
        &[UP, "blk.1.attn_v.weight", "no entry"],
    );
    f.succeeds("--uncovered neutral --imatrix m in.gguf o IQ2_XXS");
    let ones = [1.0; 256];
    assert!(f.tensor("o", UP).1 == encoded("IQ2_XXS", &[256, 288, 2], &[&ones, &ones]));
    let plan = f.json("--uncovered raise --dry-run --imatrix m in.gguf x IQ2_XXS");
    assert_eq!(row(&plan, UP)["reason"], "raised from IQ2_XXS");
    // Q2_K cannot do without in its smallest mixture alone.
    f.refuses(
        "--imatrix m in.gguf x Q2_K_S",
        1,
        &[UP, "`Q2_K` needs importance"],
    );
    let plan = f.json("--uncovered raise --dry-run --imatrix m in.gguf x Q2_K_S");
    assert_eq!(row(&plan, UP)["to"], "Q3_K");
}

fn decoded(type_name: &str, bytes: &[u8], n: usize) -> Vec<f32> {
    let mut out = vec![0.0; n];
    registry::by_name(type_name)
        .unwrap()
        .decode_rows(256, bytes, &mut out)
        .unwrap();
    out
}

/// Columns that count for nothing are encoded about as well as without a matrix.
#[test]
fn groups_of_zeros_stay_finite_and_close() {
    let f = Fixture::new();
    let zero = 64..128;
    let mut zeros = sums(512);
    zeros[zero.clone()].fill(0.0);
    let mut m = with_experts(Some(&[4, 4]));
    m.entries.get_mut(UP).unwrap().sums = zeros;
    f.matrix("m", &m);
    let plain: Vec<f32> = (0..288 * 256).map(value).collect();
    let error = |values: &[f32]| {
        let squares = values.iter().zip(&plain).enumerate();
        let of = squares.filter(|(i, _)| zero.contains(&(i % 256)));
        of.map(|(_, (a, b))| f64::from(a - b).powi(2)).sum::<f64>()
    };
    for to in [
        "Q4_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ3_S",
    ] {
        let args = format!("in.gguf o Q8_0 --force --tensor-type up_exps={to}");
        let text = f.succeeds(&format!("--imatrix m {args}"));
        assert!(
            text.contains("4 groups of 16 columns count for nothing"),
            "{text}"
        );
        let n = 288 * 256 * 2;
        let with = decoded(to, &f.tensor("o", UP).1, n);
        assert!(with.iter().all(|v| v.is_finite()), "{to}");
        f.succeeds(&args);
        let without = decoded(to, &f.tensor("o", UP).1, n);
        let (with, without) = (error(&with), error(&without));
        assert!(with <= without * 1.5, "{to}: {with} {without}");
    }
    // A matrix of nothing but zeros says as much as none of any kind: all columns count alike.
    m.entries.get_mut(UP).unwrap().sums = vec![0.0; 512];
    f.matrix("m", &m);
    f.succeeds("--imatrix m in.gguf o Q4_K_M --force");
    let ones = [1.0; 256];
    assert!(f.tensor("o", UP).1 == encoded("Q4_K", &[256, 288, 2], &[&ones, &ones]));
}

#[test]
fn values_that_cannot_be_are_all_named() {
    let f = Fixture::new();
    f.matrix("good", &with_experts(Some(&[4, 4])));
    let bytes = std::fs::read(f.path("good")).unwrap();
    let put = |at: usize, v: f32| [&bytes[..at], &v.to_le_bytes(), &bytes[at + 4..]].concat();
    let file = GgufFile::open(&f.path("good")).unwrap();
    let start = |name: &str| file.tensor_range(file.tensor(name).unwrap()).start as usize;
    let at = start(&format!("{UP}.in_sum2")) + (256 + 7) * 4;
    for (v, found) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (-1.0, "-1")] {
        f.put("bad", &put(at, v));
        f.refuses(
            "--imatrix bad in.gguf o Q4_0",
            1,
            &[UP, "matrix 1, column 7", &format!("found {found}")],
        );
    }
    f.put("bad", &put(at, f32::NAN));
    let other = start("blk.0.attn_v.weight.in_sum2") + 4;
    let mut both = std::fs::read(f.path("bad")).unwrap();
    both[other..other + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    f.put("bad", &both);
    f.refuses(
        "--imatrix bad in.gguf o Q4_0",
        1,
        &["2 weights", "`blk.0.attn_v.weight`, matrix 0, column 1", UP],
    );
}

#[test]
fn the_legacy_form_gives_the_same_bytes() {
    let f = Fixture::new();
    let mut m = imatrix(256);
    m.entries.insert(UP.to_owned(), entry(sums(512), &[2, 2]));
    f.matrix("m", &m);
    m.write_legacy(&f.path("m.gguf.dat"), false, &[]).unwrap();
    f.succeeds("--imatrix m in.gguf new IQ2_XXS");
    f.succeeds("--imatrix m.gguf.dat in.gguf old IQ2_XXS");
    for name in [UP, "blk.0.attn_v.weight"] {
        assert!(f.tensor("new", name) == f.tensor("old", name), "{name}");
    }
    let whole = std::fs::read(f.path("m.gguf.dat")).unwrap();
    f.put("cut.dat", &whole[..whole.len() / 2]);
    f.refuses(
        "--imatrix cut.dat in.gguf o Q4_0",
        1,
        &["cut.dat", "truncated at byte", "entry 2 of 2"],
    );
}

/// Targets of one run that use importance, and that do not, get each what it would alone.
#[test]
fn targets_do_not_mix_their_importance() {
    let f = Fixture::new();
    f.matrix("m", &with_experts(None));
    std::fs::create_dir(f.path("d")).unwrap();
    let options = "--uncovered neutral --imatrix m in.gguf";
    f.succeeds(&format!("-o d {options} Q8_0 Q4_0 IQ2_XXS Q4_K_M"));
    for t in ["Q8_0", "Q4_0", "IQ2_XXS", "Q4_K_M"] {
        f.succeeds(&format!("{options} one {t} --force"));
        let read = |name: &str| std::fs::read(f.path(name)).unwrap();
        assert!(read("one") == read(&format!("d/in-{t}.gguf")), "{t}");
    }
}

/// A model with latent attention, whose weights for keys and values are apart, or together.
fn latent(apart: bool) -> Vec<u8> {
    let pairs = [
        ("general.architecture", Value::from("deepseek2")),
        ("deepseek2.block_count", 1_u32.into()),
    ];
    let apart: [(&str, &[u64]); 3] = if apart {
        [
            ("blk.0.attn_k_b.weight", &[256, 64, 4]),
            ("blk.0.attn_v_b.weight", &[256, 32, 4]),
            ("blk.0.ffn_up.weight", &[256, 64]),
        ]
    } else {
        [
            ("blk.0.attn_kv_b.weight", &[256, 96]),
            ("blk.0.attn_q.weight", &[256, 64]),
            ("blk.0.ffn_up.weight", &[256, 64]),
        ]
    };
    built(&pairs, &apart)
}

#[test]
fn the_other_layout_of_latent_attention() {
    let f = Fixture::new();
    f.put("apart.gguf", &latent(true));
    f.put("together.gguf", &latent(false));
    let matrix = |name: &str, sums: Vec<f32>| {
        let mut m = imatrix(256);
        m.entries = [
            (name.to_owned(), entry(sums, &[2])),
            ("blk.0.ffn_up.weight".to_owned(), entry(vec![2.0; 256], &[2])),
        ]
        .into();
        m
    };
    f.matrix("together", &matrix("blk.0.attn_kv_b.weight", sums(256)));
    let text = f.succeeds("--imatrix together apart.gguf o Q4_K_M");
    assert!(
        text.contains("nothing for the keys alone: `blk.0.attn_k_b.weight`"),
        "{text}"
    );
    let half: Vec<f32> = sums(256).iter().map(|s| s / 2.0).collect();
    let (type_name, bytes) = f.tensor("o", "blk.0.attn_v_b.weight");
    assert!(bytes == encoded(&type_name, &[256, 32, 4], &[half.as_slice(); 4]));
    let plan = f.json("--dry-run --imatrix together apart.gguf x Q4_K_M");
    assert_eq!(row(&plan, "blk.0.attn_v_b.weight")["importance"], 1.0);
    assert_eq!(row(&plan, "blk.0.attn_k_b.weight")["importance"], 0.0);

    f.matrix("apart", &matrix("blk.0.attn_v_b.weight", sums(1024)));
    f.succeeds("--imatrix apart together.gguf o Q4_K_M --force");
    let all = sums(1024);
    let mean: Vec<f32> = (0..256)
        .map(|c| ((0..4).map(|h| f64::from(all[h * 256 + c] / 2.0)).sum::<f64>() / 4.0) as f32)
        .collect();
    let (type_name, bytes) = f.tensor("o", "blk.0.attn_kv_b.weight");
    assert!(bytes == encoded(&type_name, &[256, 96], &[&mean]));

    // Of another model: what does not fit is named.
    let mut other = matrix("blk.0.attn_v_b.weight", vec![1.0; 512]);
    other
        .entries
        .insert("blk.0.ffn_up.weight".to_owned(), entry(vec![1.0; 128], &[1]));
    f.matrix("other", &other);
    f.refuses(
        "--imatrix other apart.gguf x Q4_K_M",
        1,
        &[
            "`blk.0.attn_v_b.weight`: [256, 32, 4] needs 1024 values",
            "found 512",
            "`blk.0.ffn_up.weight`: [256, 64] needs 256",
            "another model",
        ],
    );
}

/// Many matrices, and the mean of many heads for all of them.
#[test]
fn matrices_share_the_mean_of_heads() {
    let f = Fixture::new();
    let pairs = [
        ("general.architecture", Value::from("deepseek2")),
        ("deepseek2.block_count", 1_u32.into()),
    ];
    let name = "blk.0.attn_kv_b.weight";
    let dims: [u64; 3] = [256, 2, 300];
    f.put("many.gguf", &built(&pairs, &[(name, &dims)]));
    let (n_heads, all) = (200, sums(256 * 200));
    let mut m = imatrix(256);
    m.entries = [("blk.0.attn_v_b.weight".to_owned(), entry(all.clone(), &[2]))].into();
    f.matrix("m", &m);
    f.succeeds("--imatrix m many.gguf o Q4_K_M");
    let mean: Vec<f32> = (0..256)
        .map(|c| {
            let heads = (0..n_heads).map(|h| f64::from(all[h * 256 + c] / 2.0));
            (heads.sum::<f64>() / n_heads as f64) as f32
        })
        .collect();
    let (type_name, bytes) = f.tensor("o", name);
    assert!(bytes == encoded(&type_name, &dims, &[mean.as_slice(); 300]));
}

/// The values of latent attention apart: each head has its own, with one count for all.
#[test]
fn heads_that_share_a_count_have_importance_of_their_own() {
    let f = Fixture::new();
    f.put("apart.gguf", &latent(true));
    let mut m = imatrix(256);
    m.entries = [
        ("blk.0.attn_k_b.weight".to_owned(), entry(sums(1024), &[2])),
        ("blk.0.attn_v_b.weight".to_owned(), entry(sums(1024), &[2])),
    ]
    .into();
    f.matrix("m", &m);
    f.succeeds("--imatrix m apart.gguf o Q4_K_M");
    let half: Vec<f32> = sums(1024).iter().map(|s| s / 2.0).collect();
    let heads: Vec<&[f32]> = half.chunks(256).collect();
    for (name, rows) in [("blk.0.attn_k_b.weight", 64), ("blk.0.attn_v_b.weight", 32)] {
        let (type_name, bytes) = f.tensor("o", name);
        assert!(bytes == encoded(&type_name, &[256, rows, 4], &heads), "{name}");
    }
}

#[test]
fn a_prior_pulls_experts_to_the_mean_of_their_tensor() {
    let f = Fixture::new();
    let matrix = with_experts(Some(&[4, 0]));
    f.matrix("m", &matrix);
    let text = f.succeeds("--prior 8 --imatrix m in.gguf o IQ2_XXS");
    assert!(
        text.contains("1 of its 2 experts saw no token and have the mean of all (`--prior 8`)"),
        "{text}"
    );
    let means: Vec<f32> = sums(512)
        .chunks(256)
        .next()
        .unwrap()
        .iter()
        .map(|s| s / 4.0)
        .collect();
    let all = sums(512);
    let column = |c: usize| (f64::from(all[c]) + f64::from(all[256 + c])) / 4.0;
    let shrunk = |expert: usize, count: u64| {
        let of = |c: usize| gguf_imatrix_format::shrink(all[expert * 256 + c], count, column(c), 8);
        (0..256).map(of).collect::<Vec<f32>>()
    };
    let (first, second) = (shrunk(0, 4), shrunk(1, 0));
    assert_ne!(first, means);
    assert!(f.tensor("o", UP).1 == encoded("IQ2_XXS", &[256, 288, 2], &[&first, &second]));
    let file = GgufFile::open(&f.path("o")).unwrap();
    let recipe = file
        .metadata
        .string("quantize.recipe")
        .unwrap()
        .unwrap()
        .to_owned();
    assert!(recipe.contains(" --prior 8"), "{recipe}");

    // The same from a matrix that has the prior in it.
    let mut baked = matrix.clone();
    assert_eq!(baked.bake_prior(8), 1);
    f.matrix("baked", &baked);
    f.succeeds("--imatrix baked in.gguf b IQ2_XXS");
    let distance = |a: &[u8], b: &[u8]| a.iter().zip(b).filter(|(x, y)| x != y).count();
    let (a, b) = (f.tensor("o", UP).1, f.tensor("b", UP).1);
    // Sums are rounded to F32 once more on the way.
    assert!(
        distance(&a, &b) * 100 <= a.len(),
        "{} of {}",
        distance(&a, &b),
        a.len()
    );

    matrix.write_legacy(&f.path("m.dat"), false, &[]).unwrap();
    f.refuses(
        "--prior 8 --imatrix m.dat in.gguf x Q4_K_M",
        1,
        &["m.dat", "`--prior` needs counts of single experts"],
    );
    f.refuses("--prior 0 --imatrix m in.gguf x Q4_K_M", 2, &["--prior"]);
}

/// What merging makes: several texts in an array, here under the name of the other form.
#[test]
fn a_merged_matrix_is_used() {
    let f = Fixture::new();
    let mut m = with_experts(Some(&[4, 2]));
    let mut other = with_experts(Some(&[1, 3]));
    other.datasets = vec!["other.txt".to_owned()];
    assert_eq!(m.merge(other).unwrap(), Vec::<String>::new());
    f.matrix("merged.dat", &m);
    f.succeeds("--imatrix merged.dat in.gguf o IQ2_XXS");
    let mean = |expert: usize, count: f32| -> Vec<f32> {
        let all = sums(512);
        all[expert * 256..][..256]
            .iter()
            .map(|s| s * 2.0 / count)
            .collect()
    };
    assert!(f.tensor("o", UP).1 == encoded("IQ2_XXS", &[256, 288, 2], &[&mean(0, 5.0), &mean(1, 5.0)]));
    let file = GgufFile::open(&f.path("o")).unwrap();
    assert_eq!(
        file.metadata.string("quantize.imatrix.dataset").unwrap(),
        Some("text.txt")
    );
}
