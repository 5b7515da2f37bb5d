//! The command line: every way to put it wrong gives one line that says what is wrong, and nothing is written.

use crate::fixture::*;
use gguf_blocks::registry;

/// Command lines, and what the one line must contain. The exit code is 2.
const WRONG: &[(&str, &[&str])] = &[
    // Positional arguments.
    ("", &["required", "--help"]),
    (
        "in.gguf",
        &["expected IN [OUT] TYPE [NTHREADS]", "found 1 argument"],
    ),
    (
        "in.gguf out.gguf",
        &["unknown file type `out.gguf`", "available: F32"],
    ),
    (
        "in.gguf out.gguf Q4_L",
        &[
            "unknown file type `Q4_L`",
            "available: F32, F16, Q4_0",
            "Q4_K_M",
            "COPY",
        ],
    ),
    (
        "in.gguf out.gguf Q8_0 two",
        &["NTHREADS", "expected a number", "`two`"],
    ),
    (
        "in.gguf out.gguf 4 Q8_0",
        &["NTHREADS", "`Q8_0`", "is a file type", "IN [OUT] TYPE [NTHREADS]"],
    ),
    (
        "in.gguf Q8_0 out.gguf",
        &["`out.gguf` stands where TYPE belongs", "`Q8_0` where OUT belongs"],
    ),
    (
        "in.gguf Q4_K_M Q8_0",
        &["`Q4_K_M` stands where OUT belongs", "-o DIR", "./Q4_K_M"],
    ),
    (
        "in.gguf Q4_K_M Q5_K_M Q8_0",
        &["`Q4_K_M` stands where OUT belongs", "-o DIR"],
    ),
    ("Q8_0 in.gguf out.gguf", &["`Q8_0` stands where IN belongs"]),
    ("in.gguf out.gguf Q8_0 2 3", &["found 5 arguments"]),
    // Several types.
    ("-o . in.gguf", &["expected IN TYPE", "`-o`"]),
    (
        "-o . in.gguf out.gguf Q8_0",
        &["`out.gguf` is no file type", "`-o`", "named after IN"],
    ),
    ("-o . in.gguf Q8_0 Q4_L", &["unknown file type `Q4_L`"]),
    ("-o . in.gguf Q8_0 q8_0", &["`Q8_0` is given twice"]),
    ("-o . in.gguf Q4_K Q4_K_M 2", &["`Q4_K_M` is given twice"]),
    ("-o . -o . in.gguf Q8_0", &["--output-dir"]),
    // Options that are not there, lack a value or have a wrong one.
    ("in.gguf out.gguf Q8_0 --no-such-flag", &["--no-such-flag"]),
    ("in.gguf out.gguf Q8_0 --imatrix", &["--imatrix", "value"]),
    (
        "in.gguf out.gguf Q8_0 --output-tensor-type Q9",
        &["--output-tensor-type", "`Q9`", "Q6_K"],
    ),
    (
        "in.gguf out.gguf Q8_0 --token-embedding-type x",
        &["--token-embedding-type", "`x`"],
    ),
    (
        "in.gguf out.gguf Q8_0 --tensor-type attn",
        &["`attn`", "NAME_OR_REGEX=TENSOR_TYPE"],
    ),
    (
        "in.gguf out.gguf Q8_0 --tensor-type =q8_0",
        &["`=q8_0`", "in front of `=`"],
    ),
    (
        "in.gguf out.gguf Q8_0 --tensor-type (=q8_0",
        &["`(=q8_0`", "not a regular expression"],
    ),
    (
        "in.gguf out.gguf Q8_0 --tensor-type a=Q4_K_M",
        &["unknown tensor type `Q4_K_M`"],
    ),
    ("in.gguf out.gguf Q8_0 --tensor-type-file absent", &["absent"]),
    (
        "in.gguf out.gguf Q8_0 --prune-layers 1,x",
        &["--prune-layers", "'x'"],
    ),
    (
        "in.gguf out.gguf Q8_0 --override-kv a.b",
        &["--override-kv `a.b`", "KEY=TYPE:VALUE"],
    ),
    (
        "in.gguf out.gguf Q8_0 --override-kv a.b=int:9999999999",
        &["at most 32 bits"],
    ),
    (
        "in.gguf out.gguf Q8_0 --override-kv a=int:1 --override-kv a=int:2",
        &["key `a` is set twice"],
    ),
    (
        "in.gguf out.gguf Q8_0 --split-max-size 5X",
        &["--split-max-size", "500M or 2G"],
    ),
    (
        "in.gguf out.gguf Q8_0 --split-max-size 0",
        &["--split-max-size", "more than 0"],
    ),
    (
        "in.gguf out.gguf Q8_0 --max-memory lots",
        &["--max-memory", "64K, 20M or 5G"],
    ),
    (
        "in.gguf out.gguf Q8_0 --max-buffer-size 1G",
        &["--max-buffer-size"],
    ),
    (
        "in.gguf out.gguf Q8_0 --part 0/4",
        &["--part", "parts from 1 to 4"],
    ),
    (
        "in.gguf out.gguf Q8_0 --part 5/4",
        &["--part", "parts from 1 to 4"],
    ),
    ("in.gguf out.gguf Q8_0 --part 2", &["--part", "I/N or I-J/N"]),
    (
        "in.gguf out.gguf Q8_0 --imatrix m --uncovered perhaps",
        &["perhaps", "fail, neutral, raise"],
    ),
    (
        "in.gguf out.gguf Q8_0 --reserve-metadata 1X",
        &["--reserve-metadata", "64K"],
    ),
    // Options that contradict each other or the type.
    (
        "in.gguf out.gguf Q8_0 --imatrix m --include-weights a --exclude-weights b",
        &["--include-weights", "--exclude-weights"],
    ),
    ("in.gguf out.gguf Q8_0 --include-weights a", &["--imatrix"]),
    ("in.gguf out.gguf Q8_0 --exclude-weights a", &["--imatrix"]),
    ("in.gguf out.gguf Q8_0 --uncovered raise", &["--imatrix"]),
    (
        "in.gguf out.gguf Q8_0 --keep-split --split-max-size 1G",
        &["--keep-split", "--split-max-size"],
    ),
    (
        "in.gguf out.gguf Q8_0 --max-memory 1G --max-buffer-size 64",
        &["--max-memory", "--max-buffer-size"],
    ),
    (
        "in.gguf out.gguf Q8_0 --leave-output-tensor --output-tensor-type Q6_K",
        &["--leave-output-tensor", "--output-tensor-type"],
    ),
    (
        "in.gguf out.gguf Q8_0 --no-verify --report r.json",
        &["--no-verify", "--report"],
    ),
    ("in.gguf out.gguf COPY --pure", &["--pure", "`COPY` has none"]),
];

#[test]
fn wrong_command_lines() {
    let f = Fixture::new();
    for (args, parts) in WRONG {
        f.refuses(args, 2, parts);
        f.refuses(
            &format!("--dry-run {args}"),
            2,
            if args.is_empty() { &[] } else { parts },
        );
    }
}

#[test]
fn file_types_without_an_encoder_are_refused_by_name() {
    let f = Fixture::new();
    for t in gguf_models::file_type::all() {
        if registry::by_name(t.base).is_none_or(|b| b.encode.is_none()) {
            f.refuses(
                &format!("in.gguf out.gguf {}", t.name),
                2,
                &[t.name, t.base, "cannot encode"],
            );
        }
    }
}

#[test]
fn rules_in_files_are_named_by_item() {
    let f = Fixture::new();
    f.put("rules", b"attn_v=q8_0\n  ffn_up=Q5_0\tdown=q4_L\n");
    f.refuses(
        "in.gguf out.gguf Q4_0 --tensor-type-file rules",
        2,
        &[
            "--tensor-type-file `rules`, item 3, `down=q4_L`",
            "unknown tensor type `q4_L`",
        ],
    );
    f.put("empty", b" \n");
    f.refuses(
        "in.gguf out.gguf Q4_0 --tensor-type-file empty",
        2,
        &["`empty`", "found none"],
    );
    f.put("rules", b"attn_v=q8_0\n  ffn_up=Q5_0\n");
    let args = "--tensor-type-file rules in.gguf o Q4_0 --tensor-type blk.1.attn_v=Q5_1";
    assert_eq!(f.planned(args, "blk.0.attn_v.weight"), "Q8_0");
    // Those of the command line come first, wherever they stand.
    assert_eq!(f.planned(args, "blk.1.attn_v.weight"), "Q5_1");
    assert_eq!(f.planned(args, "blk.0.ffn_up_exps.weight"), "Q5_0");
}

#[test]
fn rules_have_bounds_of_memory() {
    let f = Fixture::new();
    f.put("rules", b"attn_v=q8_0 (a{1000}){1000}=q8_0");
    f.refuses(
        "in.gguf o Q4_0 --tensor-type-file rules",
        2,
        &["--tensor-type-file `rules`, item 2, `(a{1000}){1000}=q8_0`: expected a pattern of at most 1.00 MiB compiled"],
    );
    f.refuses(
        "in.gguf o Q4_0 --tensor-type (a{1000}){1000}=q8_0",
        2,
        &["--tensor-type `(a{1000}){1000}=q8_0`: ", "repeat less in it"],
    );
    let large = format!("{}=q8_0\n", "x".repeat(4096));
    f.put("rules", large.repeat(65).as_bytes());
    f.refuses(
        "in.gguf o Q4_0 --tensor-type-file rules",
        2,
        &[
            "item 65, `xxxx",
            ".. (4101 bytes)`: expected at most 64 rules of this size, found more",
        ],
    );
}

#[test]
fn long_rules_are_cut_where_they_are_told() {
    let f = Fixture::new();
    let rule = format!("(attn_v|{})=q8_0", "x".repeat(1000));
    f.put("rules", rule.as_bytes());
    let args = "--dry-run in.gguf o Q4_0 --tensor-type-file rules";
    let plan = f.json(args);
    let why = plan["tensors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["reason"].as_str().unwrap());
    assert!(why.into_iter().any(|w| w.contains(&rule)), "{plan}");
    let told = String::from_utf8(f.run(args).stdout).unwrap();
    assert!(
        told.contains("(1021 bytes)") && !told.contains(&"x".repeat(100)),
        "{told}"
    );
}

#[test]
fn options_stand_anywhere() {
    let f = Fixture::new();
    let v = "blk.1.attn_v.weight";
    for args in [
        "--tensor-type attn_v=q5_k in.gguf o Q4_K_M 2",
        "in.gguf --tensor-type attn_v=q5_k o Q4_K_M 2",
        "in.gguf o --tensor-type attn_v=q5_k Q4_K_M 2",
        "in.gguf o Q4_K_M --tensor-type=attn_v=q5_k 2",
        "in.gguf o Q4_K_M 2 --tensor-type ATTN_V=q5_k",
    ] {
        assert_eq!(f.planned(args, v), "Q5_K", "{args}");
    }
}

#[test]
fn several_types_from_one_command() {
    let f = Fixture::new();
    std::fs::create_dir(f.path("d")).unwrap();
    let run = f.run("-o d in.gguf Q8_0 Q4_0 BF16 2 --quiet");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    for name in ["Q8_0", "Q4_0", "BF16"] {
        assert!(
            f.run(&format!("in.gguf {name}.gguf {name} --quiet"))
                .status
                .success()
        );
        let one = std::fs::read(f.path(&format!("{name}.gguf"))).unwrap();
        let of_several = std::fs::read(f.path(&format!("d/in-{name}.gguf"))).unwrap();
        assert!(one == of_several, "{name}");
    }
}
