use std::path::{Path, PathBuf};

use super::*;

const GOLDEN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/golden/qwen3moe.imatrix"
);

fn golden(form: &str) -> PathBuf {
    PathBuf::from(format!("{GOLDEN}.{form}"))
}

fn parse(name: &str, bytes: Vec<u8>) -> Result<Imatrix, String> {
    let parsed = Imatrix::from_source(gguf::source::bytes(PathBuf::from(name), bytes));
    parsed.map_err(|e| e.to_string())
}

/// A dense weight and one of two experts, the second of which saw nothing.
fn sample() -> Imatrix {
    let dense = Entry {
        sums: vec![2.0, 8.0, 0.0],
        means: vec![-1.0, 3.5, 0.0],
        counts: vec![4],
    };
    let experts = Entry {
        sums: vec![6.0, 3.0, 0.0, 0.0],
        means: vec![],
        counts: vec![3, 0],
    };
    Imatrix {
        entries: [
            ("blk.0.attn_q.weight".to_owned(), dense),
            ("blk.0.ffn_up_exps.weight".to_owned(), experts),
        ]
        .into(),
        datasets: vec!["one.txt".to_owned(), "two.txt".to_owned()],
        chunk_count: 2,
        chunk_size: 3,
        origin: None,
    }
}

/// The bytes that a writer makes.
fn written(write: impl Fn(&Path) -> Result<()>) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    write(&path).unwrap();
    std::fs::read(path).unwrap()
}

fn gguf_bytes(imatrix: &Imatrix) -> Vec<u8> {
    written(|p| imatrix.write_gguf(p, false, &[]))
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = bytes
        .windows(from.len())
        .position(|w| w == from)
        .expect("is in there");
    [&bytes[..at], to, &bytes[at + to.len()..]].concat()
}

#[test]
fn the_reference_files_agree() {
    let new = Imatrix::read(&golden("gguf")).unwrap();
    let old = Imatrix::read(&golden("dat")).unwrap();
    for m in [&new, &old] {
        assert_eq!((m.chunk_count, m.entries.len()), (213, 24));
        assert_eq!(m.datasets, ["calibration.txt"]);
    }
    assert_eq!(new.chunk_size, 256);
    let up = &new.entries["blk.2.ffn_up_exps.weight"];
    assert_eq!((up.counts.len(), up.sums.len(), up.means.len()), (8, 2048, 2048));
    assert_eq!(up.counts.iter().sum::<u64>(), 213 * 256 * 2);
    for name in new.entries.keys() {
        let (a, b) = (new.importance(name).unwrap(), old.importance(name).unwrap());
        assert_eq!(a.len(), b.len());
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= a.abs() * 1e-6;
        assert!(a.iter().zip(&b).all(close), "{name}");
    }
}

#[test]
fn the_legacy_form_is_the_references() {
    let new = Imatrix::read(&golden("gguf")).unwrap();
    assert_eq!(
        written(|p| new.write_legacy(p, false, &[])),
        std::fs::read(golden("dat")).unwrap()
    );
    assert!(
        new.lost_in_legacy()
            .unwrap()
            .contains("of 9 weights and the plain sums of 24")
    );
}

#[test]
fn the_gguf_form_has_the_references_keys_and_tensors() {
    let new = Imatrix::read(&golden("gguf")).unwrap();
    let bytes = gguf_bytes(&new);
    let open =
        |name: &str, bytes| gguf::GgufFile::from_source(gguf::source::bytes(name.into(), bytes)).unwrap();
    let ours = open("ours", bytes.clone());
    let theirs = open("theirs", std::fs::read(golden("gguf")).unwrap());
    let pairs = |f: &gguf::GgufFile| {
        let all = f.metadata.iter();
        all.map(|(k, v)| (k.to_owned(), v.clone())).collect::<Vec<_>>()
    };
    assert_eq!(pairs(&ours), pairs(&theirs));
    let values = |f: &gguf::GgufFile, t: &gguf::TensorInfo| {
        let bytes = f.tensor_bytes(t).unwrap();
        let (words, _) = bytes.as_chunks::<4>();
        words.iter().map(|w| f32::from_le_bytes(*w)).collect::<Vec<_>>()
    };
    assert_eq!(ours.tensors.len(), theirs.tensors.len());
    for (a, b) in ours.tensors.iter().zip(&theirs.tensors) {
        assert_eq!((&a.name, a.shape, a.type_id), (&b.name, b.shape, b.type_id));
        let (x, y) = (values(&ours, a), values(&theirs, b));
        if a.name.strip_suffix(".stats").is_some() {
            // The reference computes some of them in f32.
            let close = |(x, y): (&f32, &f32)| {
                (x.is_nan() && y.is_nan()) || (x - y).abs() <= 1e-5 * y.abs().max(1e-2)
            };
            assert!(x.iter().zip(&y).all(close), "{}: {x:?} {y:?}", a.name);
        } else {
            assert_eq!(x, y, "{}", a.name);
        }
    }
    assert_eq!(parse("ours", bytes), Ok(new));
}

#[test]
fn an_expert_without_tokens_counts_all_columns_alike() {
    let m = sample();
    assert_eq!(
        m.importance("blk.0.ffn_up_exps.weight"),
        Some(vec![2.0, 1.0, 1.0, 1.0])
    );
    assert_eq!(m.importance("blk.0.attn_q.weight"), Some(vec![0.5, 2.0, 0.0]));
    assert_eq!(m.importance("blk.1.attn_q.weight"), None);
    let old = parse("old", written(|p| m.write_legacy(p, false, &[]))).unwrap();
    assert_eq!(
        old.importance("blk.0.ffn_up_exps.weight"),
        m.importance("blk.0.ffn_up_exps.weight")
    );
}

#[test]
fn a_single_dataset_and_other_suffixes_are_read() {
    let mut metadata = gguf::Metadata::new();
    metadata.set("general.type", gguf::Value::String("imatrix".into()));
    metadata.set(
        "imatrix.datasets",
        gguf::Value::String("/home/someone/text.txt".into()),
    );
    metadata.set("imatrix.chunk_count", gguf::Value::I32(5));
    metadata.set("imatrix.chunk_size", gguf::Value::U32(512));
    let specs = ["w.in_sum2", "w.counts", "w.hessian"]
        .map(|n| gguf::TensorSpec::new(n, gguf::Shape::new(&[1]).unwrap(), gguf_blocks::TypeId(0)));
    let layout = gguf::Layout::plan(&metadata, specs.into()).unwrap();
    let mut writer = gguf::Writer::new(Vec::new(), &layout).unwrap();
    for _ in 0..3 {
        writer.write(&2_f32.to_le_bytes()).unwrap();
    }
    let m = parse("single", writer.finish().unwrap()).unwrap();
    assert_eq!(m.datasets, ["text.txt"]);
    assert_eq!(
        m.entries["w"],
        Entry {
            sums: vec![2.0],
            means: vec![],
            counts: vec![2]
        }
    );
}

#[test]
fn what_a_matrix_was_made_of_comes_back_and_is_no_obstacle() {
    let mut m = sample();
    for model in [
        None,
        Some(OriginModel {
            architecture: "qwen3moe".to_owned(),
            fingerprint: "ab12".to_owned(),
            settings: vec!["qwen3moe.expert_used_count=2".to_owned()],
        }),
    ] {
        m.origin = Some(Origin {
            model,
            texts: vec!["01ff".to_owned(), "02".to_owned()],
            tool: "gguf-imatrix 1".to_owned(),
        });
        let bytes = gguf_bytes(&m);
        assert_eq!(index("m", bytes.clone()).unwrap().origin, m.origin);
        assert_eq!(parse("m", bytes), Ok(m.clone()));
    }
    assert!(m.lost_in_legacy().unwrap().ends_with("and what it was made of"));
    let bad = replace(&gguf_bytes(&m), b"imatrix.tool", b"imatrix.took");
    assert_eq!(parse("m", bad).unwrap().origin.unwrap().tool, "");
}

/// As the reference writes a weight of several matrices without experts: one row, one count.
#[test]
fn matrices_that_share_a_count_are_one_row() {
    let mut m = sample();
    let heads = Entry {
        sums: vec![4.0, 8.0, 12.0, 16.0, 20.0, 24.0],
        means: vec![1.0; 6],
        counts: vec![4],
    };
    let name = "blk.0.attn_v_b.weight";
    m.entries.insert(name.to_owned(), heads.clone());
    let bytes = gguf_bytes(&m);
    let file = gguf::GgufFile::from_source(gguf::source::bytes("m".into(), bytes.clone())).unwrap();
    let dims = |suffix: &str| {
        file.tensor(&format!("{name}{suffix}"))
            .unwrap()
            .shape
            .dims()
            .to_vec()
    };
    assert_eq!(
        (dims(".in_sum2"), dims(".counts"), dims(".stats")),
        (vec![6], vec![1], vec![12])
    );
    let found = index("m", bytes.clone()).unwrap();
    assert_eq!(
        found.mean_squares(name, 2..6).unwrap(),
        Some(vec![3.0, 4.0, 5.0, 6.0])
    );
    assert_eq!(found.column_means(name).unwrap(), None);
    assert_eq!(parse("m", bytes).unwrap().entries[name], heads);
}

#[test]
fn unsound_values_are_named() {
    let good = gguf_bytes(&sample());
    let cases: [(f32, f32, &str); 8] = [
        (
            8.0,
            f32::NAN,
            "`blk.0.attn_q.weight`, matrix 0, column 1: sum of squares: expected a finite number that is not negative, found NaN",
        ),
        (
            8.0,
            -1.0,
            "matrix 0, column 1: sum of squares: expected a finite number that is not negative, found -1",
        ),
        (
            3.5,
            f32::INFINITY,
            "matrix 0, column 1: sum: expected a finite number, found inf",
        ),
        (
            4.0,
            -4.0,
            "`blk.0.attn_q.weight.counts`, matrix 0: expected a whole number of tokens, found -4e0",
        ),
        (4.0, f32::NAN, "expected a whole number of tokens, found NaN"),
        (4.0, 1e-40, "expected a whole number of tokens, found 1e-40"),
        (
            4.0,
            4.5,
            "matrix 0: expected a whole number of tokens, found 4.5e0",
        ),
        (4.0, 1e30, "expected a whole number of tokens, found 1e30"),
    ];
    for (from, to, message) in cases {
        let bad = replace(&good, &from.to_le_bytes(), &to.to_le_bytes());
        let err = parse("bad", bad).unwrap_err();
        assert!(err.starts_with("`bad`: ") && err.contains(message), "{err}");
    }
    let err = parse("bad", replace(&good, b"q.weight.counts", b"q.weight.countz")).unwrap_err();
    assert!(
        err.ends_with("weight `blk.0.attn_q.weight`: tensor `blk.0.attn_q.weight.counts` is missing"),
        "{err}"
    );
    let err = parse("bad", replace(&good, b"\0imatrix", b"\0adapter")).unwrap_err();
    assert!(
        err.ends_with("metadata key `general.type`: expected `imatrix`, found `adapter`"),
        "{err}"
    );
    let err = parse("bad", replace(&good, b"chunk_size", b"chunk_sizf")).unwrap_err();
    assert!(
        err.starts_with("`bad`: ")
            && err.contains("`imatrix.chunk_size`: expected an unsigned integer, found nothing"),
        "{err}"
    );
}

#[test]
fn a_cut_legacy_file_is_refused_where_it_ends() {
    let good = written(|p| sample().write_legacy(p, false, &[]));
    let trailer = good.len() - (4 + 4 + "two.txt".len());
    let whole = parse("x.dat", good[..trailer].to_vec()).unwrap();
    assert_eq!(
        (whole.entries.len(), whole.chunk_count, whole.datasets.len()),
        (2, 0, 0)
    );
    assert_eq!(
        parse("x.dat", good[..trailer + 4].to_vec()).unwrap().chunk_count,
        2
    );
    for end in (0..good.len()).filter(|&n| n != trailer && n != trailer + 4) {
        let err = parse("x.dat", good[..end].to_vec()).unwrap_err();
        // A piece too short for two records is taken for no matrix at all.
        let expected = if end < 2 * 17 {
            "neither GGUF nor legacy form) at byte 0, head: ".to_owned()
        } else {
            format!("truncated at byte {end} in ")
        };
        assert!(err.contains(&expected), "{end}: {err}");
    }
    let second = 4 + 4 + "blk.0.attn_q.weight".len() + 4 + 4 + 12;
    for (cut, what) in [
        (
            second + 2,
            format!("length of the name: expected 4 bytes from byte {second} on, found 2"),
        ),
        (
            second + 9,
            format!("the name: expected 24 bytes from byte {} on, found 5", second + 4),
        ),
        (
            second + 4 + 24 + 8 + 7,
            format!(
                "the values of `blk.0.ffn_up_exps.weight`: expected 16 bytes from byte {} on, found 7",
                second + 4 + 24 + 8
            ),
        ),
    ] {
        let err = parse("x.dat", good[..cut].to_vec()).unwrap_err();
        let expected = format!("truncated at byte {cut} in entry 2 of 2: {what}");
        assert!(err.ends_with(&expected), "expected {expected} in: {err}");
    }
}

#[test]
fn numbers_of_chunks_that_make_no_sense_are_refused() {
    let good = written(|p| sample().write_legacy(p, false, &[]));
    let first = 4 + 4 + "blk.0.attn_q.weight".len();
    let trailer = good.len() - (4 + 4 + "two.txt".len());
    let changed = |at: usize, n: i32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
        parse("x.dat", bytes)
    };
    for (at, n, part) in [
        (
            first,
            -1,
            "entry 1 of 2: number of chunks of `blk.0.attn_q.weight`: expected 0 to 268435456, found -1",
        ),
        (
            first,
            i32::MAX,
            "entry 1 of 2: number of chunks of `blk.0.attn_q.weight`",
        ),
        (
            first,
            3,
            "the trailer: number of chunks: expected at least the 3 of weight `blk.0.attn_q.weight`, found 2",
        ),
        (trailer, -5, "the trailer: number of chunks"),
        (trailer, 1, "expected at least the 2 of weight"),
    ] {
        let err = changed(at, n).unwrap_err();
        assert!(
            err.starts_with("`x.dat`: ") && err.contains(part),
            "expected {part} in: {err}"
        );
    }
    // The reference takes values without a number of chunks as they are, and merged files have no total.
    assert_eq!(
        changed(first, 0).unwrap().entries["blk.0.attn_q.weight"].counts,
        [1]
    );
    assert_eq!(changed(trailer, 0).unwrap().chunk_count, 0);
}

#[test]
fn sizes_are_known_before_there_are_sums() {
    let m = sample();
    let weights: Vec<Weight<'_>> = m
        .entries
        .iter()
        .map(|(name, e)| Weight {
            name,
            n_cols: (e.sums.len() / e.counts.len()) as u64,
            n_mat: e.counts.len() as u64,
            has_means: !e.means.is_empty(),
        })
        .collect();
    assert_eq!(
        super::gguf_bytes(&weights, &m.datasets, None).unwrap(),
        gguf_bytes(&m).len() as u64
    );
    let old = written(|p| m.write_legacy(p, false, &[]));
    assert_eq!(legacy_bytes(&weights, "folder/two.txt"), old.len() as u64);
}

#[test]
fn what_is_no_matrix_at_all_is_refused() {
    for text in [
        "",
        "abc",
        "<!DOCTYPE html><html>",
        "version https://git-lfs.github.com/spec/v1\n",
        "GGUF\u{3}\0\0\0",
    ] {
        assert!(parse("x", text.as_bytes().to_vec()).is_err(), "{text}");
    }
    // Claims of 2^31 - 1 entries, name bytes and values allocate nothing.
    let huge = i32::MAX.to_le_bytes();
    let one = 1_i32.to_le_bytes();
    for bytes in [
        [huge, huge].concat(),
        [one, huge, one].concat(),
        [one, one, *b"wwww", huge, huge].concat(),
    ] {
        assert!(parse("x", bytes).is_err());
    }
}

#[test]
fn outputs_are_not_written_over_inputs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    sample().write_gguf(&path, false, &[]).unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(sample().write_gguf(&path, false, &[]).is_err());
    assert!(sample().write_legacy(&path, true, &[&path]).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    sample().write_legacy(&path, true, &[]).unwrap();
    assert_ne!(std::fs::read(&path).unwrap(), before);
}

fn index(name: &str, bytes: Vec<u8>) -> Result<Index, String> {
    Index::from_source(gguf::source::bytes(PathBuf::from(name), bytes)).map_err(|e| e.to_string())
}

#[test]
fn an_index_reads_what_the_whole_matrix_holds() {
    for form in ["gguf", "dat"] {
        let whole = Imatrix::read(&golden(form)).unwrap();
        let index = Index::open(&golden(form)).unwrap();
        assert_eq!(
            (index.chunk_count, &index.datasets),
            (whole.chunk_count, &whole.datasets)
        );
        assert!(index.entries.keys().eq(whole.entries.keys()));
        for (name, entry) in &whole.entries {
            let expected = whole.importance(name).unwrap();
            let n = expected.len() as u64;
            let unseen = (0..entry.counts.len()).filter(|&i| entry.counts[i] == 0);
            assert!(index.entries[name].unseen().eq(unseen), "{form}, {name}");
            let all = index.mean_squares(name, 0..n).unwrap();
            assert_eq!(all.as_ref(), Some(&expected), "{form}, {name}");
            let some = index.mean_squares(name, n / 2..n / 2 + 7).unwrap().unwrap();
            assert_eq!(some, expected[(n / 2) as usize..][..7], "{form}, {name}");
            assert_eq!(index.mean_squares(name, 1..n + 1).unwrap(), None);
        }
        assert_eq!(index.mean_squares("none", 0..1).unwrap(), None);
    }
}

#[test]
fn an_index_names_all_that_is_not_sound_and_counts_groups_of_zeros() {
    let mut m = sample();
    let sums = |n: usize| (0..n).map(|i| if i / 16 == 2 { 0.0 } else { 1.5 }).collect();
    let experts = m.entries.get_mut("blk.0.ffn_up_exps.weight").unwrap();
    (experts.sums, experts.counts) = (sums(128), vec![3, 0]);
    m.entries.get_mut("blk.0.attn_q.weight").unwrap().sums = sums(80);
    m.entries.get_mut("blk.0.attn_q.weight").unwrap().means.clear();
    m.entries.get_mut("blk.0.attn_q.weight").unwrap().counts = vec![3];
    let found = index("m", gguf_bytes(&m)).unwrap();
    assert_eq!(found.entries["blk.0.ffn_up_exps.weight"].zero_groups, 1);
    assert_eq!(
        found.entries["blk.0.ffn_up_exps.weight"]
            .unseen()
            .collect::<Vec<_>>(),
        [1]
    );
    assert_eq!(found.entries["blk.0.attn_q.weight"].zero_groups, 1);

    for form in ["gguf", "dat"] {
        let bytes = if form == "gguf" {
            gguf_bytes(&m)
        } else {
            m.entries.get_mut("blk.0.ffn_up_exps.weight").unwrap().counts = vec![3, 3];
            written(|p| m.write_legacy(p, false, &[]))
        };
        // The last value of the first weight and one in the second matrix of the second weight.
        let value = if form == "gguf" { 1.5_f32 } else { 1.5 / 3.0 };
        let places: Vec<usize> = (0..bytes.len() - 4)
            .filter(|&i| bytes[i..i + 4] == value.to_le_bytes())
            .collect();
        let mut bad = bytes.clone();
        for at in [places[0], *places.last().unwrap()] {
            bad[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        let text = index("bad", bad).unwrap_err();
        for part in [
            "`bad`: 2 weights are not sound",
            "`blk.0.attn_q.weight`, matrix 0, column 0",
            "`blk.0.ffn_up_exps.weight`, matrix ",
        ] {
            assert!(text.contains(part), "{form}: {text}");
        }
        assert!(!text.contains('\n'));
    }
}

/// An expert that saw little counts as if it had seen the chunks of the one that saw most.
#[test]
fn what_the_legacy_form_cannot_hold_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old");
    let mut large = sample();
    let entry = large.entries.get_mut("blk.0.ffn_up_exps.weight").unwrap();
    entry.sums = vec![1.0, 1.0, 1.0, f32::MAX];
    entry.counts = vec![300, 1];
    large.chunk_size = 1;
    let refused = large.write_legacy(&path, false, &[]).unwrap_err().to_string();
    assert!(
        refused.contains("`blk.0.ffn_up_exps.weight`, value 3: mean"),
        "{refused}"
    );
    let mut long = sample();
    long.entries.get_mut("blk.0.attn_q.weight").unwrap().counts = vec![(1 << 30) + 1];
    long.chunk_size = 1;
    let refused = long.write_legacy(&path, false, &[]).unwrap_err().to_string();
    assert!(
        refused.contains("at most 268435456, found 1073741825"),
        "{refused}"
    );
    assert!(!path.exists());
}
