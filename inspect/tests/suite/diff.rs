//! `gguf-inspect diff`: what it finds in pairs of models, and its exit codes.

use crate::models::{Model, encode, format, inspect, values};
use gguf::Value;
use tempfile::TempDir;

/// Saves two models and gives their paths.
fn pair(a: &Model, b: &Model) -> (TempDir, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let (a, b) = (a.save(folder.path(), "a.gguf"), b.save(folder.path(), "b.gguf"));
    (folder, a, b)
}

#[test]
fn equal_models_exit_0_whatever_their_layout() {
    let model = Model::usual();
    let (folder, a, b) = pair(&model, &model);
    for extra in [&["--data"][..], &[], &["--strict"], &["--json"]] {
        let run = inspect(&[&["diff", &a, &b][..], extra].concat());
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{extra:?}\n{}", run.out);
    }
    inspect(&["diff", "--data", &a, &b]).assert(0, &["equal: metadata, tensors and data"]);

    let mut sorted = model.clone();
    sorted.tensors.reverse();
    let name = sorted.metadata.remove("general.name").expect("a name");
    sorted.metadata.set("general.name", name);
    let sorted = sorted.save_split(folder.path(), "s", 2);
    let run = inspect(&["diff", &a, &sorted, "--data"]);
    run.assert(
        0,
        &[
            "metadata: equal",
            "tensors: the same names, types and shapes",
            "1 file against 3; keys in another order; tensors in another order",
            "other values of split.no",
            "data: 5 of 5 tensors have the same bytes",
        ],
    );
    assert_eq!(inspect(&["diff", &a, &sorted, "--strict"]).code, 1);
    let json = inspect(&["diff", &a, &sorted, "--json"]).json();
    assert_eq!(json["equal"], true);
    assert_eq!(json["layout"]["tensors_reordered"], true);
}

#[test]
fn metadata_and_lists_of_tensors_are_compared() {
    let model = Model::usual();
    let mut other = model.clone();
    other.metadata.remove("general.name");
    other.metadata.set("test.block_count", Value::from(3_u64));
    other.metadata.set("test.new", Value::from(true));
    let mut tokens: Vec<String> = (0..41).map(|i| format!("token{i}")).collect();
    tokens[7] = "new".to_owned();
    other.metadata.set("tokenizer.ggml.tokens", Value::from(tokens));
    other.tensors.remove(4);
    other.tensors[1].dims = vec![11, 3];
    let other = other.random("blk.1.attn_v.weight", &[32, 3], "F16", 1);
    let (_folder, a, b) = pair(&model, &other);
    let run = inspect(&["diff", &a, &b, "--data"]);
    run.assert(1, &[
        "metadata: 1 added, 1 removed, 2 changed",
        "- general.name: string = \"A model\"",
        "+ test.new: bool = true",
        "~ test.block_count: u32 -> u64: 2 -> 3",
        "~ tokenizer.ggml.tokens: array of string: 40 -> 41 elements, 1 of those that both have differ: [7] \
         \"token7\" -> \"new\"",
        "tensors: 1 added, 1 removed, 1 of another type or shape",
        "- blk.1.attn_k.weight: Q4_0 [32, 3], 54 bytes",
        "+ blk.1.attn_v.weight: F16 [32, 3], 192 bytes",
        "[33] -> [11, 3]",
        "blk.0.attn_norm.weight: not compared: the shapes differ",
    ]);
    assert_eq!(run.err, "", "the report says it all");
    let json = inspect(&["diff", &b, &a, "--json"]).json();
    assert_eq!(json["metadata"]["changed"][1]["key"], "tokenizer.ggml.tokens");
    assert_eq!(
        json["metadata"]["changed"][1]["a"].as_array().map(Vec::len),
        Some(41)
    );
    assert_eq!(json["tensors"]["by_type"]["F16"]["bytes_a"], 192);
    assert_eq!(
        json["tensors"]["changed"][0]["shape_a"],
        serde_json::json!([11, 3])
    );
    // With a filter only the tensors count.
    let run = inspect(&["diff", &a, &b, "--filter", "^blk.1.attn_q"]);
    assert_eq!(run.code, 0, "{}", run.out);
    assert_eq!(inspect(&["diff", &a, &b, "--filter", "("]).code, 2);
}

/// Errors by their definition.
struct Naive {
    rmse: f64,
    relative: f64,
    cosine: f64,
    max: f64,
    at: usize,
}

fn naive(a: &[f32], b: &[f32]) -> Naive {
    // Sums of sums round less than one long sum.
    let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        let part =
            |(a, b): (&[f32], &[f32])| -> f64 { a.iter().zip(b).map(|(&x, &y)| f(x.into(), y.into())).sum() };
        a.chunks(1000).zip(b.chunks(1000)).map(part).sum()
    };
    let (ee, aa, bb) = (
        sum(&|x, y| (y - x).powi(2)),
        sum(&|x, _| x * x),
        sum(&|_, y| y * y),
    );
    let error = |i: usize| (f64::from(b[i]) - f64::from(a[i])).abs();
    let at = (0..a.len()).fold(0, |best, i| if error(i) > error(best) { i } else { best });
    Naive {
        rmse: (ee / a.len() as f64).sqrt(),
        relative: (ee / aa).sqrt(),
        cosine: sum(&|x, y| x * y) / (aa * bb).sqrt(),
        max: error(at),
        at,
    }
}

/// Index and value of the largest relative error among pieces of `n` values.
fn worst(a: &[f32], b: &[f32], n: usize) -> (usize, f64) {
    let errors = a.chunks(n).zip(b.chunks(n)).map(|(a, b)| naive(a, b).relative);
    errors
        .enumerate()
        .fold((0, -1.0), |best, (i, e)| if e > best.1 { (i, e) } else { best })
}

#[test]
fn errors_are_those_of_the_definition() {
    // A stack of matrices that one piece has several of, one of several pieces, rows that are cut, a vector.
    let shapes: [(&[u64], &str); 4] = [
        (&[256, 5, 7], "Q4_K"),
        (&[512, 300, 2], "Q5_0"),
        (&[300_032, 3], "Q8_0"),
        (&[77], "F16"),
    ];
    let (mut a, mut b) = (Model::new(), Model::new());
    let mut expected = Vec::new();
    for (i, (dims, type_name)) in shapes.into_iter().enumerate() {
        let name = format!("t{i}");
        let x = values(i as u64 + 9, dims.iter().product::<u64>() as usize);
        let bytes = encode(type_name, dims[0] as usize, &x);
        let mut y = vec![0.0; x.len()];
        format(type_name).decode.expect("a decoder")(&bytes, &mut y);
        a = a.with(&name, dims, "F32", &x);
        b = b.tensor(&name, dims, type_name, bytes);
        expected.push((dims, x, y));
    }
    let (_folder, a, b) = pair(&a, &b);
    let run = inspect(&["diff", &a, &b, "--data", "--json", "--sort", "file"]);
    assert_eq!(run.code, 1);
    let json = run.json();
    let near = |found: &serde_json::Value, expected: f64, what: &str| {
        let found = found.as_f64().expect(what);
        assert!(
            (found - expected).abs() <= 1e-12 * expected.abs(),
            "{what}: {found} {expected}"
        );
    };
    for (found, (dims, x, y)) in json["data"]["tensors"]
        .as_array()
        .expect("a list")
        .iter()
        .zip(&expected)
    {
        let n = dims[0] as usize;
        let e = naive(x, y);
        near(&found["rmse"], e.rmse, "rmse");
        near(&found["relative"], e.relative, "relative");
        near(&found["cosine"], e.cosine, "cosine");
        near(&found["max"]["abs"], e.max, "max");
        assert_eq!(
            (&found["max"]["row"], &found["max"]["col"]),
            (&(e.at / n).into(), &(e.at % n).into())
        );
        let (row, relative) = worst(x, y, n);
        assert_eq!(found["worst_row"]["index"], row, "{dims:?}");
        near(&found["worst_row"]["relative"], relative, "worst row");
        if let [cols, rows, _] = dims {
            let (expert, relative) = worst(x, y, (cols * rows) as usize);
            assert_eq!(found["worst_expert"]["index"], expert, "{dims:?}");
            near(&found["worst_expert"]["relative"], relative, "worst expert");
        } else {
            assert!(found["worst_expert"].is_null());
        }
    }
    let x: Vec<f32> = expected.iter().flat_map(|e| e.1.clone()).collect();
    let y: Vec<f32> = expected.iter().flat_map(|e| e.2.clone()).collect();
    let total = naive(&x, &y);
    near(&json["data"]["total"]["relative"], total.relative, "total");
    for threads in ["1", "3", "6"] {
        let again = inspect(&[
            "diff", &a, &b, "--data", "--json", "--sort", "file", "-t", threads,
        ]);
        assert_eq!(again.out, run.out, "{threads} threads");
    }
}

#[test]
fn bytes_decide_where_values_cannot_be_decoded() {
    let bytes: Vec<u8> = (0..160).collect();
    let mut changed = bytes.clone();
    changed[41] = 0;
    let a = Model::new()
        .tensor("other", &[40], "type 4242", bytes.clone())
        .tensor("same", &[20], "type 4242", bytes.clone())
        .tensor("types", &[40], "type 4242", bytes.clone());
    let b = Model::new()
        .tensor("other", &[40], "type 4242", changed)
        .tensor("same", &[20], "type 4242", bytes.clone())
        .tensor("types", &[40], "F32", bytes);
    let (_folder, a, b) = pair(&a, &b);
    inspect(&["diff", &a, &b, "--data"]).assert(
        1,
        &[
            "other: type 4242 data differs from byte 41 on",
            "types: not compared: the types differ and one of them cannot be decoded",
            "data: 1 of 3 tensors have the same bytes",
        ],
    );
}

#[test]
fn one_changed_value_is_found_and_nan_does_not_hide_it() {
    let x = values(1, 400 * 1000);
    let mut y = x.clone();
    y[123_456] += 2.0;
    y[7] = f32::NAN;
    let a = Model::new()
        .with("w", &[400, 1000], "F32", &x)
        .random("v", &[32, 2], "F16", 5);
    let b = Model::new()
        .with("w", &[400, 1000], "F32", &y)
        .random("v", &[32, 2], "F16", 5);
    let (_folder, a, b) = pair(&a, &b);
    // Without the data the models are the same.
    assert_eq!(inspect(&["diff", &a, &b]).code, 0);
    let run = inspect(&["diff", &a, &b, "--data"]);
    run.assert(
        1,
        &[
            "308[256]",
            "308 (",
            "data: 1 of 2 tensors have the same bytes",
            "left out: 1 pair with an infinite or NaN value",
        ],
    );
    let w = &inspect(&["diff", &a, &b, "--data", "--json"]).json()["data"]["tensors"][0];
    assert_eq!(w["elements"], 399_999);
    assert_eq!(w["max"]["row"], 308);
}

#[test]
fn the_table_is_sorted_and_cut() {
    let scaled = |k: f32| values(3, 640).iter().map(|v| v * k).collect::<Vec<_>>();
    let (mut a, mut b) = (Model::new(), Model::new());
    // Relative errors 0.1, 0.3, 0.2; absolute ones the other way round.
    for (name, size, by) in [("x", 100.0, 1.1), ("y", 1.0, 1.3), ("z", 10.0, 1.2)] {
        a = a.with(name, &[64, 10], "F32", &scaled(size));
        b = b.with(name, &[64, 10], "F32", &scaled(size * by));
    }
    let (_folder, a, b) = pair(&a, &b);
    let order = |sort: &str| {
        let json = inspect(&["diff", &a, &b, "--data", "--json", "--sort", sort]).json();
        let tensors = json["data"]["tensors"].as_array().expect("a list").clone();
        tensors
            .iter()
            .map(|t| t["name"].as_str().expect("a name").to_owned())
            .collect::<String>()
    };
    for (sort, names) in [
        ("relative", "yzx"),
        ("rmse", "xzy"),
        ("max", "xzy"),
        ("name", "xyz"),
        ("file", "xyz"),
    ] {
        assert_eq!(order(sort), names, "{sort}");
    }
    let run = inspect(&["diff", &a, &b, "--data", "--top", "1"]);
    run.assert(1, &["y       F32", ".. and 2 more (`--top 0` shows all)"]);
    assert!(!run.out.contains("\nz "));
}
