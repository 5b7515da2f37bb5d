//! The plan: what it says before any work, and that the run then does just that.

use gguf::Value;
use serde_json::Value as Json;

use crate::fixture::*;

fn llama(tensors: &[(&str, &[u64])]) -> Vec<u8> {
    let pairs = [
        ("general.architecture", Value::from("llama")),
        ("llama.block_count", 1_u32.into()),
    ];
    built(&pairs, tensors)
}

#[test]
fn a_dry_run_ends_as_the_run_would() {
    let f = Fixture::new();
    f.put("there", b"precious");
    imatrix(256).write_gguf(&f.path("m"), false, &[]).unwrap();
    assert!(f.run("in.gguf q8.gguf Q8_0 --quiet").status.success());
    for (args, code) in [
        ("in.gguf there Q8_0", 2),
        ("in.gguf in.gguf Q8_0 --force", 2),
        ("in.gguf no/folder/o Q8_0", 2),
        ("absent o Q8_0", 2),
        ("q8.gguf o Q4_0", 1),
        ("in.gguf o IQ2_XXS", 1),
        (
            "in.gguf o Q8_0 --strict --tensor-type attn=q5_0 --tensor-type attn_v=q4_0",
            2,
        ),
        ("in.gguf o Q4_K_M --strict", 1),
        ("in.gguf o Q4_K_M --tensor-type down=q4_k", 1),
        ("in.gguf o Q4_K_M --tensor-type nothing=q4_k", 2),
        ("in.gguf o Q4_K_M --imatrix m --uncovered fail", 1),
        ("in.gguf o Q4_K_M --max-memory 1000", 2),
    ] {
        let line = |args: &str| {
            let before = f.files();
            let out = f.run(args);
            assert_eq!(out.status.code(), Some(code), "{args}");
            assert_eq!(f.files(), before, "{args}");
            let text = String::from_utf8(out.stderr).unwrap();
            let errors = text.lines().filter(|l| l.starts_with("error: "));
            errors.map(str::to_owned).collect::<Vec<_>>()
        };
        let dry = line(&format!("--dry-run {args}"));
        assert_eq!((dry.len(), &dry), (1, &line(args)), "{args}");
    }
}

/// A model with rows of many lengths, most of them no multiple of 256.
fn odd_rows() -> Fixture {
    let f = Fixture::new();
    f.put(
        "rows.gguf",
        &llama(&[
            ("output.weight", &[288, 32]),
            ("token_embd.weight", &[288, 32]),
            ("blk.0.attn_q.weight", &[288, 16]),
            ("blk.0.attn_k.weight", &[1408, 16]),
            ("blk.0.attn_output.weight", &[4544, 16]),
            ("blk.0.ffn_up.weight", &[4304, 16]),
            ("blk.0.ffn_gate.weight", &[512, 16]),
            ("v.patch_embd.weight", &[14, 14, 3, 8]),
            ("v.blk.0.conv.weight", &[14, 14, 3, 8]),
        ]),
    );
    f
}

#[test]
fn a_plan_names_every_substitution() {
    let f = odd_rows();
    let plan = f.json("--dry-run rows.gguf o Q4_K_M");
    let found: Vec<(&str, &str, &str)> = plan["tensors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            (
                t["name"].as_str().unwrap(),
                t["to"].as_str().unwrap(),
                t["reason"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (
                "output.weight",
                "Q8_0",
                "mixture: output, rows not whole blocks of the base type"
            ),
            ("token_embd.weight", "Q5_0", "fallback from Q4_K"),
            ("v.blk.0.conv.weight", "F16", "fallback from Q4_K"),
            ("v.patch_embd.weight", "F32", "kept"),
            ("blk.0.attn_k.weight", "Q5_0", "fallback from Q4_K"),
            ("blk.0.attn_output.weight", "Q5_0", "fallback from Q4_K"),
            ("blk.0.attn_q.weight", "Q5_0", "fallback from Q4_K"),
            ("blk.0.ffn_gate.weight", "Q4_K", "base"),
            ("blk.0.ffn_up.weight", "F16", "fallback from Q4_K"),
        ]
    );
    assert_eq!(
        (&plan["tensors_fallback"], &plan["tensors_chosen"]),
        (&6.into(), &8.into())
    );
    let warnings = plan["warnings"].to_string();
    assert!(
        warnings.contains("6 of 8 tensors required fallback quantization")
            && warnings.contains("rows of 4544 elements are not whole blocks of `Q4_K`, using `Q5_0`"),
        "{warnings}"
    );
    f.refuses(
        "--strict rows.gguf o Q4_K_M",
        1,
        &[
            "5 problems",
            "`blk.0.attn_output.weight`: rows of 4544 elements",
            "`--strict` forbids",
            "`F16`",
        ],
    );
}

#[test]
fn of_many_lengths_of_rows_some_are_named() {
    let names: Vec<String> = (0..20).map(|i| format!("blk.0.part_{i:02}.weight")).collect();
    let dims: Vec<[u64; 2]> = (0..20).map(|i| [32 + 256 * i, 2]).collect();
    let tensors: Vec<(&str, &[u64])> = names
        .iter()
        .map(String::as_str)
        .zip(dims.iter().map(|d| &d[..]))
        .collect();
    let f = Fixture::new();
    f.put("rows.gguf", &llama(&tensors));
    let plan = f.json("--dry-run rows.gguf o Q4_K_M");
    let warnings: Vec<&str> = plan["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w.as_str().unwrap())
        .collect();
    assert_eq!(warnings.len(), 18, "{warnings:?}");
    for (i, line) in warnings[..16].iter().enumerate() {
        let rows = format!(
            "tensor `blk.0.part_{i:02}.weight`: rows of {} elements are not",
            32 + 256 * i
        );
        assert!(line.starts_with(&rows), "{line}");
    }
    assert_eq!(warnings[16], "and 4 more kinds of rows get a fallback type");
    assert!(
        warnings[17].starts_with("20 of 20 tensors required fallback"),
        "{}",
        warnings[17]
    );
}

#[test]
fn of_many_warnings_the_first_are_told() {
    let f = Fixture::new();
    f.put("rules", "attn_v=q5_0\n".repeat(601).as_bytes());
    let args = "--dry-run in.gguf o Q4_0 --tensor-type-file rules";
    let idle = [
        "--tensor-type-file `rules`, item ",
        ", `attn_v=q5_0`: decides nothing",
    ];
    let plan = f.json(args);
    let warnings = plan["warnings"].as_array().unwrap().iter();
    assert_eq!(
        warnings
            .filter(|w| idle.iter().all(|part| w.as_str().unwrap().contains(part)))
            .count(),
        600
    );
    let told = String::from_utf8(f.run(args).stderr).unwrap();
    assert_eq!(told.matches(idle[1]).count(), 500);
    assert!(
        told.contains("warning: and 100 more warnings (`--json` has all)\n"),
        "{told}"
    );
}

#[test]
fn a_rule_for_every_tensor() {
    let names: Vec<String> = (0..300).map(|i| format!("blk.{i}.attn_q.weight")).collect();
    let dims = [32_u64, 2];
    let tensors: Vec<(&str, &[u64])> = names.iter().map(|n| (n.as_str(), &dims[..])).collect();
    let f = Fixture::new();
    f.put("large.gguf", &llama(&tensors));
    let types = ["Q4_0", "Q5_0", "Q8_0"];
    let rules: Vec<String> = (0..300)
        .map(|i| format!("^blk\\.{i}\\.attn_q={}\n", types[i % 3]))
        .collect();
    f.put("rules", rules.concat().as_bytes());
    let plan = f.json("--dry-run large.gguf o Q4_0 --tensor-type-file rules");
    assert!(
        plan["warnings"].as_array().unwrap().is_empty(),
        "{}",
        plan["warnings"]
    );
    let tensors = plan["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 300);
    for tensor in tensors {
        let name = tensor["name"].as_str().unwrap();
        let layer: usize = name.split('.').nth(1).unwrap().parse().unwrap();
        assert_eq!(tensor["to"], types[layer % 3], "{name}");
    }
}

#[test]
fn a_plan_says_what_fallbacks_cost() {
    let plan = odd_rows().json("--dry-run rows.gguf o Q4_K_M");
    // Four bits and a half for five, or for sixteen.
    let elems = |name: &str| {
        let tensors = plan["tensors"].as_array().unwrap();
        let t = tensors.iter().find(|t| t["name"] == name).unwrap();
        t["shape"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d.as_f64().unwrap())
            .product::<f64>()
    };
    let more: f64 = [
        ("token_embd", 1.0),
        ("blk.0.attn_q", 1.0),
        ("blk.0.attn_k", 1.0),
        ("blk.0.attn_output", 1.0),
    ]
    .into_iter()
    .chain([("v.blk.0.conv", 11.5), ("blk.0.ffn_up", 11.5)])
    .map(|(name, bits)| elems(&format!("{name}.weight")) * bits)
    .sum();
    let tensors = plan["tensors"].as_array().unwrap().iter();
    let all: f64 = tensors.map(|t| elems(t["name"].as_str().unwrap())).sum();
    let said = plan["fallback_bits_per_weight"].as_f64().unwrap();
    assert!((said - more / all).abs() < 1e-3, "{said} {}", more / all);
}

fn sum(plan: &Json, list: &str, field: &str) -> u64 {
    plan[list]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s[field].as_u64().unwrap())
        .sum()
}

#[test]
fn sums_add_up_and_needs_are_told() {
    let f = Fixture::new();
    let plan = f.json("--dry-run in.gguf o Q4_K_M --max-memory 64M");
    for list in ["by_role", "by_type"] {
        assert_eq!(sum(&plan, list, "bytes"), plan["data_bytes"], "{list}");
        assert_eq!(sum(&plan, list, "tensors"), 7, "{list}");
    }
    let roles = plan["by_role"].as_array().unwrap();
    let experts = roles.iter().find(|r| r["name"] == "experts").unwrap();
    assert_eq!(experts["types"], serde_json::json!([["Q5_0", 1], ["Q4_K", 1]]));
    assert_eq!(plan["needs"]["memory"], 64 << 20);
    assert_eq!(plan["needs"]["disk"], plan["bytes"]);
    assert!(plan["needs"]["memory_least"].as_u64().unwrap() >= 288 * 4);
    assert!(plan["needs"]["disk_free"].as_u64().unwrap() > 0);
    assert_eq!(plan["problems"], serde_json::json!([]));

    let text = String::from_utf8(
        f.run("--dry-run in.gguf o Q4_K_M --tensor-type attn_v=q5_k")
            .stdout,
    )
    .unwrap();
    for part in [
        "rule `attn_v=q5_k`",
        "mixture: output",
        "experts",
        "Q5_0 1, Q4_K 1",
        "fallback: 1 of 6 tensors, +",
        "memory: 1.00 GiB for weights in work (`--max-memory`)",
        "disk: ",
        "would write `o`: Q4_K_M",
    ] {
        assert!(text.contains(part), "expected `{part}` in {text}");
    }
}

/// Problems are in the plan, and in the exit code.
#[test]
fn a_plan_with_problems_is_shown() {
    let f = Fixture::new();
    let out = f.run("--dry-run in.gguf o IQ2_XXS --json");
    assert_eq!(out.status.code(), Some(1));
    let plan: Json = serde_json::from_slice(&out.stdout).unwrap();
    let problems = plan["problems"].to_string();
    assert!(problems.contains("needs an importance matrix"), "{problems}");
    assert_eq!(plan["tensors"].as_array().unwrap().len(), 7);
}

/// A rule says what it says whatever the base type, and of two the first decides.
#[test]
fn rules_always_win() {
    let f = Fixture::new();
    let v = "blk.1.attn_v.weight";
    for (args, wanted) in [
        ("in.gguf o Q4_K_M --tensor-type attn_v=q4_k", "Q4_K"),
        ("in.gguf o Q4_K_M --pure --tensor-type attn_v=q5_k", "Q5_K"),
        ("in.gguf o Q4_K_M --tensor-type attn_v=q5_k", "Q5_K"),
        ("in.gguf o F16 --tensor-type attn_v=q5_k", "Q5_K"),
        ("in.gguf o Q4_K_M --tensor-type attn_v=bf16", "BF16"),
        (
            "in.gguf o Q4_K_M --tensor-type attn=q6_k --tensor-type attn_v=q5_k",
            "Q6_K",
        ),
        (
            "in.gguf o Q4_K_M --tensor-type blk\\.[0-9]+\\.ATTN_V=IQ4_nl",
            "IQ4_NL",
        ),
    ] {
        assert_eq!(f.planned(args, v), wanted, "{args}");
    }
    f.refuses(
        "in.gguf o Q4_K_M --strict --tensor-type down=q8_0 --tensor-type attn=q6_k --tensor-type attn_v=q5_k",
        2,
        &["`attn_v=q5_k`: decides nothing", "--strict"],
    );
}
