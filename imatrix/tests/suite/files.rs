//! Commands that work on matrices: merging, statistics, comparison, conversion.

use std::path::Path;
use std::process::Output;

use gguf_imatrix_format::{Entry, Imatrix, Index, Origin, OriginModel};

use crate::common::{DATA, run};

const UP: &str = "blk.0.ffn_up_exps.weight";

fn golden(form: &str) -> String {
    format!("{DATA}/golden/qwen3moe.imatrix.{form}")
}

/// A folder in which the program runs.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn matrix(&self, name: &str) -> Imatrix {
        Imatrix::read(Path::new(&self.path(name))).unwrap()
    }

    /// Arguments that begin with `@` are names in the folder, `GGUF` and `DAT` the files of the reference.
    fn run(&self, args: &str) -> Output {
        let word = |w: &str| match (w, w.strip_prefix('@')) {
            ("GGUF", _) => golden("gguf"),
            ("DAT", _) => golden("dat"),
            (_, Some(name)) => self.path(name),
            _ => w.to_owned(),
        };
        let words: Vec<String> = args.split_whitespace().map(word).collect();
        run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// What went to stdout and stderr.
    fn succeeds(&self, args: &str) -> (String, String) {
        let out = self.run(args);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (data, talk) = (text(out.stdout), text(out.stderr));
        assert!(out.status.success(), "{args}: {talk}");
        (data, talk)
    }

    fn refuses(&self, args: &str, code: i32, part: &str) {
        let out = self.run(args);
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(code), "{args}: {text}");
        assert!(
            text.lines().count() == 1 && text.contains(part),
            "{args}: expected `{part}` in: {text}"
        );
    }

    fn json(&self, args: &str) -> serde_json::Value {
        serde_json::from_str(&self.succeeds(args).0).unwrap()
    }
}

/// A matrix of one stack of experts.
fn experts(counts: &[u64]) -> Imatrix {
    let entry = Entry {
        sums: (0..counts.len() * 32).map(|i| (i % 7) as f32 + 1.0).collect(),
        means: vec![],
        counts: counts.to_vec(),
    };
    Imatrix {
        entries: [(UP.to_owned(), entry)].into(),
        datasets: vec!["text.txt".to_owned()],
        chunk_count: 4,
        chunk_size: 256,
        origin: None,
    }
}

#[test]
fn merging_twice_the_same_doubles_it_and_the_result_is_sound() {
    let f = Folder::new();
    let (_, talk) = f.succeeds("--in-file GGUF --in-file GGUF -o @out.gguf");
    assert!(
        talk.contains("24 weights of 2 matrices, 426 chunks of 256 tokens"),
        "{talk}"
    );
    let (once, twice) = (
        Imatrix::read(Path::new(&golden("gguf"))).unwrap(),
        f.matrix("out.gguf"),
    );
    assert_eq!(twice.datasets, ["calibration.txt", "calibration.txt"]);
    for (name, e) in &once.entries {
        let t = &twice.entries[name];
        assert!(e.sums.iter().zip(&t.sums).all(|(a, b)| a * 2.0 == *b), "{name}");
        assert!(e.means.iter().zip(&t.means).all(|(a, b)| a * 2.0 == *b), "{name}");
        assert!(e.counts.iter().zip(&t.counts).all(|(a, b)| a * 2 == *b), "{name}");
    }
    assert_eq!(
        Index::open(Path::new(&f.path("out.gguf")))
            .unwrap()
            .datasets
            .len(),
        2
    );
    // With the legacy form, either first.
    let (_, talk) = f.succeeds("--in-file DAT --in-file GGUF -o @old.gguf");
    assert!(
        talk.contains("taken for 256 tokens each") && talk.contains("plain sums of 24"),
        "{talk}"
    );
    let (_, talk) = f.succeeds("--in-file GGUF --in-file DAT -o @newer.gguf");
    let what = "imatrix.dat`: there are no plain sums of 24 of 24 weights here";
    assert!(talk.contains(what), "{talk}");
    f.succeeds("--in-file GGUF --in-file DAT -o @new.gguf --quiet");
    assert_eq!(f.matrix("old.gguf").entries, f.matrix("new.gguf").entries);

    f.refuses("--in-file GGUF -o @out.gguf", 2, "exists");
    f.refuses(
        "--in-file @out.gguf -o @out.gguf --force",
        2,
        "same file as the input",
    );
    experts(&[1, 2])
        .write_gguf(Path::new(&f.path("other")), false, &[])
        .unwrap();
    f.refuses(
        "--in-file GGUF --in-file @other -o @x",
        1,
        "other`: weight `blk.0.ffn_up_exps.weight`: expected 2048 sums",
    );
    f.refuses("", 2, "expected `-m MODEL -f TEXT`, or `--in-file FILE`");
}

#[test]
fn a_name_of_the_legacy_form_does_not_choose_it() {
    let f = Folder::new();
    let is_gguf = |name: &str| std::fs::read(f.path(name)).unwrap().starts_with(b"GGUF");
    let (_, talk) = f.succeeds("--in-file GGUF -o @a.dat");
    let what = "a.dat` gets the GGUF form: `--output-format dat` gives the legacy form";
    assert!(is_gguf("a.dat") && talk.contains(what), "{talk}");
    let (_, talk) = f.succeeds("--in-file GGUF -o @b.dat --output-format gguf");
    assert!(is_gguf("b.dat") && !talk.contains("the GGUF form"), "{talk}");
    let (_, talk) = f.succeeds("--in-file GGUF -o @c.dat --output-format dat");
    assert!(!is_gguf("c.dat") && !talk.contains("the GGUF form"), "{talk}");
    let (_, talk) = f.succeeds("--in-file GGUF -o @d.dat --quiet");
    assert_eq!(talk, "");
}

/// A matrix that says what it was made of.
fn made(counts: &[u64], settings: &[&str], text: &str) -> Imatrix {
    let model = OriginModel {
        architecture: "llama".to_owned(),
        fingerprint: "f".to_owned(),
        settings: settings.iter().map(|&s| s.to_owned()).collect(),
    };
    Imatrix {
        origin: Some(Origin {
            model: Some(model),
            texts: vec![text.to_owned()],
            tool: "test".to_owned(),
        }),
        ..experts(counts)
    }
}

#[test]
fn merging_says_what_came_out_of_it() {
    let f = Folder::new();
    let usual = [
        "llama.attention.head_count=4",
        "llama.attention.layer_norm_rms_epsilon=1e-5",
        "llama.block_count=1",
        "llama.embedding_length=32",
        "llama.feed_forward_length=64",
    ];
    let more = |more: &'static str| [&usual[..], &[more]].concat();
    for (name, settings, text) in [
        ("a", usual.to_vec(), "t"),
        // What is usual without the key.
        ("same", more("llama.rope.freq_base=10000.0"), "u"),
        ("other", more("llama.rope.freq_base=500000.0"), "t"),
    ] {
        let matrix = made(&[50, 0], &settings, text);
        matrix.write_gguf(Path::new(&f.path(name)), false, &[]).unwrap();
    }
    let json = f.json("--in-file @a --in-file @same -o @m --json --quiet --min-expert-tokens 0");
    assert_eq!(
        (
            &json["chunk_size"],
            &json["weights"],
            &json["coverage"]["layers"][0]["median_tokens"]
        ),
        (&256.into(), &1.into(), &100.into())
    );
    assert!(f.matrix("m").origin.unwrap().model.is_some());
    let (_, talk) = f.succeeds("compare @a @same");
    assert_eq!(talk, "");
    let (_, talk) = f.succeeds("compare @a @other");
    let what = "different settings of one model, key `llama.rope.freq_base`: nothing and 500000.0";
    assert!(talk.contains(what), "{talk}");
    let (_, talk) = f.succeeds("--in-file @a --in-file @other -o @n");
    assert!(talk.contains("text t is in the matrices before"), "{talk}");
    assert!(talk.contains("different settings of one model"), "{talk}");
    let (data, talk) = f.succeeds("--in-file @a --in-file @other -o @p.dat --output-format dat --quiet");
    assert_eq!((data.as_str(), talk.as_str()), ("", ""));
    let (_, talk) = f.succeeds("convert @a @q.dat --quiet");
    assert_eq!(talk, "");
    let few = "--in-file @a --in-file @same -o @r --quiet --min-expert-tokens 5";
    f.refuses(few, 1, "expected at least 5 tokens for each expert, found 0");
    assert!(Path::new(&f.path("r")).exists());
    let shown = f.run("--show-statistics --in-file @a --min-expert-tokens 60 --json");
    let json: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(
        (shown.status.code(), &json["coverage"]["below"]),
        (Some(1), &2.into())
    );
}

/// Keys that no forward pass reads change nothing; of an architecture that is not known each does.
#[test]
fn any_number_of_settings_makes_a_short_message() {
    let f = Folder::new();
    for (name, architecture, value) in [
        ("a", "llama", 1),
        ("b", "llama", 2),
        ("c", "none", 1),
        ("d", "none", 2),
    ] {
        let settings: Vec<String> = (0..20_000)
            .map(|i| format!("{architecture}.k{i:05}={value}"))
            .collect();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let mut matrix = made(&[50, 0], &settings, name);
        let model = matrix.origin.as_mut().and_then(|o| o.model.as_mut());
        model.unwrap().architecture = architecture.to_owned();
        matrix.write_gguf(Path::new(&f.path(name)), false, &[]).unwrap();
    }
    assert_eq!(f.succeeds("compare @a @b").1, "");
    f.succeeds("--in-file @a --in-file @b -o @ab --quiet");
    assert!(f.matrix("ab").origin.unwrap().model.is_some());
    let (_, talk) = f.succeeds("compare @c @d");
    let what = "different settings of one model, key `none.k00000`: 1 and 2, key `none.k00001`: 1 and 2, ";
    assert!(
        talk.contains(what) && talk.trim_end().ends_with("and 19992 more"),
        "{talk}"
    );
    f.succeeds("--in-file @c --in-file @d -o @cd --quiet");
    assert_eq!(f.matrix("cd").origin.unwrap().model, None);
}

#[test]
fn forms_are_told_by_their_bytes_and_what_is_lost_is_said() {
    let f = Folder::new();
    let (_, talk) = f.succeeds("convert GGUF @a.dat");
    assert!(
        talk.contains("warning: the legacy form does not hold the counts of single experts of 9 weights"),
        "{talk}"
    );
    assert!(std::fs::read(f.path("a.dat")).unwrap() == std::fs::read(golden("dat")).unwrap());
    let (_, talk) = f.succeeds("convert @a.dat @b.gguf");
    assert!(
        talk.contains("warning: the legacy form had lost the counts of single experts"),
        "{talk}"
    );
    let name = "blk.1.ffn_down_exps.weight";
    assert_eq!(
        f.matrix("b.gguf").importance(name),
        f.matrix("a.dat").importance(name)
    );
    // GGUF under the other name, as some tools wrote it.
    f.succeeds("convert GGUF @c.dat --output-format gguf");
    assert_eq!(
        f.matrix("c.dat"),
        Imatrix::read(Path::new(&golden("gguf"))).unwrap()
    );
    f.succeeds("stats @c.dat");
    f.refuses("convert GGUF @c.dat", 2, "exists");
    f.refuses("convert @c.dat @c.dat --force", 2, "same file as the input");
    f.refuses(
        "convert DAT @x --prior 16",
        1,
        "`--prior` needs counts of single experts",
    );
}

#[test]
fn a_prior_goes_into_the_file() {
    let f = Folder::new();
    let (_, talk) = f.succeeds("convert GGUF @p.gguf --prior 16");
    assert!(talk.contains("counts of 9 weights hold 16 tokens"), "{talk}");
    let mut expected = Imatrix::read(Path::new(&golden("gguf"))).unwrap();
    let before = expected.clone();
    expected.bake_prior(16);
    assert_eq!(f.matrix("p.gguf"), expected);
    // Experts that saw much keep what is theirs.
    let (a, b) = (before.importance(UP).unwrap(), expected.importance(UP).unwrap());
    let seen = &before.entries[UP].counts;
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        if seen[i / 256] > 10_000 {
            assert!((a - b).abs() < 1e-2 * a, "{i}");
        }
    }
    // The legacy form has no more chunks of a weight than in all.
    f.succeeds("convert @p.gguf @p.dat");
    assert_eq!(f.matrix("p.dat").entries.len(), 24);
}

/// 16 experts of which a text reaches 13.
#[test]
fn statistics_show_what_experts_saw() {
    let f = Folder::new();
    let counts: Vec<u64> = (0..16).map(|i| if i % 5 == 4 { 0 } else { 20 + i }).collect();
    experts(&counts)
        .write_gguf(Path::new(&f.path("m")), false, &[])
        .unwrap();
    let asked = f.run("stats @m --min-expert-tokens 25");
    assert_eq!(asked.status.code(), Some(1));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (table, talk) = (text(asked.stdout), text(asked.stderr));
    assert!(
        table.contains("experts  reached  below 25  least tokens  of expert  median"),
        "{table}"
    );
    assert!(table.contains("16       13"), "{table}");
    assert!(
        talk.contains("warning: 7 of 16 experts in 1 layer (0) saw fewer than 25 tokens, 3 of them none"),
        "{talk}"
    );
    assert_eq!(f.run("stats @m --min-expert-tokens 0").status.code(), Some(0));
    let asked = f.run("stats @m --min-expert-tokens 25 --json");
    assert_eq!(asked.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
    let layer = &json["coverage"]["layers"][0];
    assert_eq!(
        (&layer["experts"], &layer["reached"], &layer["below"]),
        (&16.into(), &13.into(), &7.into())
    );
    assert_eq!(
        (&layer["least_tokens"], &layer["least_expert"]),
        (&0.into(), &4.into())
    );
    assert!(layer["text_needed"].is_null());
    assert_eq!(f.matrix("m").entries[UP].counts, counts);
}

#[test]
fn statistics_are_ranked_on_request_and_the_same_in_json() {
    let f = Folder::new();
    let (table, _) = f.succeeds("stats GGUF --sort -cossim");
    assert_eq!(
        f.succeeds("--show-statistics --in-file GGUF").0,
        f.succeeds("stats GGUF").0
    );
    let json = f.json("stats GGUF --sort -cossim --json");
    let tensors = json["tensors"].as_array().unwrap();
    let first = &tensors[0];
    assert_eq!(first["name"], "blk.1.ffn_down_exps.weight");
    let cosines: Vec<f64> = tensors.iter().filter_map(|t| t["cossim"].as_f64()).collect();
    assert!(cosines.len() == 16 && cosines.is_sorted());
    let line = table.lines().nth(2).unwrap();
    let number = |key: &str| format!("{:.4}", first[key].as_f64().unwrap());
    for key in ["sum_sq", "mean", "gain", "cossim", "l2_dist"] {
        assert!(line.contains(&number(key)), "{key}: {line}");
    }
    f.refuses("stats GGUF --sort size", 2, "expected one of sum_sq, ");
    f.refuses("--show-statistics", 2, "`--in-file FILE`");
}

#[test]
fn two_matrices_are_compared() {
    let f = Folder::new();
    experts(&[4, 0, 2])
        .write_gguf(Path::new(&f.path("a")), false, &[])
        .unwrap();
    let mut other = experts(&[4, 9, 2]);
    other.entries.get_mut(UP).unwrap().sums[70..90].fill(0.0);
    other.entries.insert(
        "blk.0.attn_q.weight".to_owned(),
        Entry {
            sums: vec![1.0; 32],
            means: vec![],
            counts: vec![9],
        },
    );
    other.write_gguf(Path::new(&f.path("b")), false, &[]).unwrap();
    let json = f.json("compare @a @b --json");
    let row = &json["tensors"][0];
    assert_eq!(
        (&row["a"]["reached"], &row["b"]["reached"]),
        (&2.into(), &3.into())
    );
    assert_eq!(row["least_alike"]["expert"], 2);
    assert_eq!(json["only_b"], serde_json::json!(["blk.0.attn_q.weight"]));
    let (table, _) = f.succeeds("compare @a @b");
    for key in [&row["cosine"], &row["least_alike"]["cosine"], &json["cosine"]] {
        let number = format!("{:.6}", key.as_f64().unwrap());
        assert!(table.contains(&number), "{number}: {table}");
    }
    assert!(
        table.contains("2/3, least 0") && table.contains("only in B: blk.0.attn_q.weight"),
        "{table}"
    );
    f.refuses("compare @a @none", 2, "none");
    let same = f.json("compare GGUF GGUF --json");
    assert!((same["cosine"].as_f64().unwrap() - 1.0).abs() < 1e-12);
}

/// One long name would pad every row.
#[test]
fn tables_cut_long_names_and_json_has_them_whole() {
    let f = Folder::new();
    let long = format!("blk.0.{}", "x".repeat(50_000));
    let names = (1..20).map(|i| format!("blk.{i}.attn_q.weight"));
    let entry = |name: String| {
        let sums = vec![1.0, 2.0];
        let (means, counts) = (vec![], vec![4]);
        (name, Entry { sums, means, counts })
    };
    let mut matrix = experts(&[4]);
    matrix.write_legacy(Path::new(&f.path("b")), false, &[]).unwrap();
    matrix.entries.extend(names.chain([long.clone()]).map(entry));
    matrix.write_legacy(Path::new(&f.path("a")), false, &[]).unwrap();
    for args in ["stats @a", "compare @a @a", "compare @a @b"] {
        let (table, _) = f.succeeds(args);
        assert!(table.contains("xxx.. (50006 bytes)"), "{args}: {table}");
        assert!(table.len() < 50_000, "{args}: {} bytes", table.len());
    }
    for args in ["stats @a --json", "compare @a @a --json"] {
        let json = f.json(args);
        let rows = json["tensors"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["name"] == long.as_str()), "{args}");
    }
    let json = f.json("compare @a @b --json");
    assert_eq!(json["only_a"][0], long.as_str());
}
