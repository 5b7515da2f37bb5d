//! Damaged and hostile files: each is refused or reported in its own words, without a panic and without memory
//! that the file cannot back.

use crate::common::{ARRAY, F32, INT32, Q4_0, Raw, STRING, parse, sound};
use gguf::{Endian, GgufFile, validate};
use proptest::prelude::*;

/// The message with which a file is refused at opening.
fn refusal(raw: &Raw) -> String {
    parse(raw.build())
        .expect_err("this file must be refused")
        .to_string()
}

/// The severe findings of a file that opens.
fn severe(raw: &Raw) -> Vec<String> {
    let file = parse(raw.build()).expect("this file opens");
    let findings = validate::layout(&file).into_iter().filter(|f| f.severe);
    findings.map(|f| format!("{}: {}", f.object, f.what)).collect()
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` not in: {text}");
    }
}

#[test]
fn alignments_that_hide_the_data_are_refused() {
    let file = |kind, bytes: &[u8]| Raw::new().pair("general.alignment", kind, bytes);
    for n in [0_u32, 3, 33] {
        let text = refusal(&file(4, &n.to_le_bytes()));
        assert_has(
            &text,
            &[
                "general.alignment",
                "expected a power of two",
                &format!("found {n}"),
            ],
        );
    }
    assert_has(
        &refusal(&file(4, &(1_u32 << 30).to_le_bytes())),
        &["found 1073741824, which is unreasonable"],
    );
    let text = [&2_u64.to_le_bytes()[..], b"32"].concat();
    assert_has(
        &refusal(&file(STRING, &text)),
        &["general.alignment", "found string"],
    );
}

#[test]
fn an_alignment_of_another_integer_type_is_a_finding() {
    let raw = Raw::new()
        .pair("general.alignment", INT32, &64_i32.to_le_bytes())
        .pad_to(64);
    assert_eq!(parse(raw.build()).expect("opens").first().alignment, 64);
    assert_has(&severe(&raw)[0], &["expected type u32, found i32"]);
}

#[test]
fn shapes_that_overflow_are_refused() {
    let cases: [&[u64]; 3] = [
        &[(1 << 63) + 5, 2, 1, 1],
        &[1 << 21, (1 << 42) + 1],
        &[1 << 32, 1 << 32],
    ];
    for dims in cases {
        let text = refusal(&sound().tensor("huge", dims, F32, 128));
        assert_has(&text, &["tensor `huge`", "overflows"]);
    }
    // The elements fit in 63 bits, the bytes not in 64.
    let text = refusal(&sound().tensor("huge", &[1 << 62], 27, 128));
    assert_has(&text, &["tensor `huge`", "overflow"]);
}

#[test]
fn too_many_dimensions_are_refused() {
    for n in [5, 9, u32::MAX] {
        let text = refusal(&sound().tensor_claiming_dims("flat", n));
        assert_has(
            &text,
            &["tensor `flat`", &format!("{n} dimensions: expected at most 4")],
        );
    }
}

/// Peak of the address space of this process in KiB, where the system tells.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status
        .lines()
        .find_map(|l| l.strip_prefix("VmPeak:"))?
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .ok()
}

#[test]
fn counts_that_the_file_cannot_back_are_refused_without_memory() {
    let nested = {
        let mut elements = Vec::new();
        for _ in 0..10_000 {
            elements.extend(ARRAY.to_le_bytes());
            elements.extend(1_u64.to_le_bytes());
        }
        Raw::new().array("deep", ARRAY, 1, &elements)
    };
    let cases = [
        (
            Raw::new().counts(0, 1 << 40),
            "metadata count 1099511627776 is unreasonable",
        ),
        (
            Raw::new().counts(1 << 40, 0),
            "tensor count 1099511627776 is unreasonable",
        ),
        (Raw::new().counts(0, 1 << 16), "list of 65536 metadata pairs"),
        (Raw::new().counts(1 << 20, 0), "list of 1048576 tensors"),
        (
            Raw::new().pair("long", STRING, &(1_u64 << 30).to_le_bytes()),
            "key `long`: string needs 1073741824",
        ),
        (
            Raw::new().pair("long", STRING, &u64::MAX.to_le_bytes()),
            "key `long`: string needs",
        ),
        (
            Raw::new().array("many", STRING, 1 << 30, &[0; 100]),
            "key `many`: array of 1073741824 elements is unreasonable",
        ),
        (
            Raw::new().array("many", INT32, 1 << 62, &[0; 100]),
            "array of 4611686018427387904 elements",
        ),
        (nested, "key `deep`: arrays are nested deeper than 4 levels"),
    ];
    let before = peak_kib();
    for (raw, words) in cases {
        assert_has(&refusal(&raw), &[words]);
    }
    // 2^30 strings would be 24 GiB.
    if let Some((before, after)) = before.zip(peak_kib()) {
        assert!(
            after - before < 1 << 20,
            "the address space grew by {} KiB",
            after - before
        );
    }
}

#[test]
fn versions_and_byte_orders() {
    assert_has(
        &refusal(&sound().version(1)),
        &["version 1 is no longer read", "convert"],
    );
    assert_has(&refusal(&sound().version(4)), &["version 4 is newer"]);
    let two = parse(sound().version(2).build()).expect("version 2");
    assert_eq!(
        (two.first().header.version, two.first().header.endian),
        (2, Endian::Little)
    );

    let big = Raw::new()
        .big_endian()
        .string("general.architecture", "test")
        .u32("test.block_count", 7)
        .strings("tokenizer.ggml.tokens", &["x"])
        .tensor("t", &[4, 2], F32, 0)
        .data(32);
    let file = parse(big.build()).expect("big-endian opens");
    assert_eq!(
        (file.first().header.version, file.first().header.endian),
        (3, Endian::Big)
    );
    assert_eq!(file.metadata.uint("test.block_count").expect("u32"), Some(7));
    assert_eq!(file.tensors[0].shape.dims(), [4, 2]);
    assert_has(
        &file.require_sound().expect_err("no conversion").to_string(),
        &["big-endian"],
    );
}

#[test]
fn tensors_beyond_the_end_are_refused_where_they_are_used() {
    let raw = sound()
        .tensor("last", &[1 << 20], F32, 128)
        .tensor("wrap", &[4], F32, u64::MAX - 8);
    let file = parse(raw.build()).expect("opens");
    for name in ["last", "wrap"] {
        let tensor = file.tensor(name).expect("is listed");
        let parts = ["test.gguf", "tensor", name, "truncated"];
        assert_has(
            &file.tensor_bytes(tensor).expect_err("beyond the end").to_string(),
            &parts,
        );
        assert_has(
            &file
                .read_tensor(tensor, 0, &mut [0; 4])
                .expect_err("beyond the end")
                .to_string(),
            &parts,
        );
    }
    let findings = severe(&raw).join("\n");
    assert_has(
        &findings,
        &[
            "file is truncated",
            "the first is `last`",
            "tensor `wrap`: it ends at byte",
        ],
    );
    assert_has(&file.require_sound().expect_err("unsound").to_string(), &["wrap"]);
    let cut = parse(sound().tensor("last", &[1 << 20], F32, 128).build()).expect("opens");
    let text = cut.require_sound().expect_err("cut").to_string();
    assert_has(&text, &["test.gguf", ": the file is truncated: needs "]);
    assert!(!text.contains("file: "), "{text}");
    let first = file.tensor("first").expect("is listed");
    assert_eq!(file.tensor_bytes(first).expect("inside").len(), 48);
    assert_has(
        &file
            .read_tensor(first, 40, &mut [0; 16])
            .expect_err("past it")
            .to_string(),
        &["48 in all"],
    );
}

#[test]
fn overlaps_holes_and_disorder_are_findings() {
    let overlap = severe(&sound().tensor("third", &[4], F32, 96).data(64)).join("\n");
    assert_has(&overlap, &["tensor `second`", "run into tensor `third`"]);
    let hole = severe(&sound().tensor("third", &[4], F32, 192).data(96)).join("\n");
    assert_has(
        &hole,
        &["tensor `third`: offset 192 leaves a hole of 64 bytes: expected 128"],
    );
    let crooked = severe(&sound().tensor("third", &[4], F32, 132).data(32)).join("\n");
    assert_has(&crooked, &["tensor `third`: offset 132 is not a multiple of 32"]);
    let swapped = Raw::new()
        .tensor("b", &[8], F32, 32)
        .tensor("a", &[8], F32, 0)
        .data(64);
    assert_has(
        &severe(&swapped).join("\n"),
        &["tensor `a`: offset 0 is out of order"],
    );
    let short = Raw::new()
        .tensor("a", &[32, 9], Q4_0, 0)
        .tensor("b", &[8], F32, 128)
        .data(160);
    assert_has(&severe(&short).join("\n"), &["tensor `a`: its 162 bytes", "`b`"]);
}

#[test]
fn duplicates_and_long_names_are_findings() {
    let long = "n".repeat(64);
    let raw = sound()
        .u32("test.block_count", 2)
        .tensor("first", &[4], F32, 128)
        .tensor(&long, &[4], F32, 160)
        .data(64);
    let file = parse(raw.build()).expect("opens");
    assert_eq!(
        file.metadata.uint("test.block_count").expect("u32"),
        Some(1),
        "the first one counts"
    );
    let findings = severe(&raw).join("\n");
    assert_has(
        &findings,
        &[
            "key `test.block_count`: the key appears a second time",
            "tensor `first`: two tensors",
            "64 bytes",
        ],
    );
}

#[test]
fn unknown_types_and_ragged_rows_take_the_room_they_have() {
    let raw = sound()
        .tensor("odd", &[33], 4242, 128)
        .tensor("ragged", &[40], Q4_0, 192)
        .data(96);
    let file = parse(raw.build()).expect("opens");
    let sizes: Vec<u64> = file.tensors.iter().map(|t| t.n_bytes).collect();
    assert_eq!(sizes, [48, 36, 64, 32]);
    assert_eq!(file.tensors[2].type_name(), "type 4242");
    let findings = severe(&raw);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_has(&findings[0], &["tensor `ragged`", "divisible by 32"]);
}

#[test]
fn what_follows_the_last_tensor_is_seen() {
    let mut joined = sound().build();
    joined.extend(sound().build());
    let file = parse(joined).expect("opens");
    let findings = validate::layout(&file);
    assert!(
        findings
            .iter()
            .any(|f| f.severe && f.what.contains("second GGUF file")),
        "{findings:?}"
    );
    let file = parse(sound().data(7).build()).expect("opens");
    let findings = validate::layout(&file);
    assert!(
        findings.iter().all(|f| !f.severe) && findings[0].what.contains("7 bytes follow"),
        "{findings:?}"
    );
}

/// Bytes of all findings of a file.
fn findings_bytes(raw: &Raw) -> usize {
    let file = parse(raw.build()).expect("this file opens");
    let all = [validate::layout(&file), validate::metadata(&file)].concat();
    all.iter().map(|f| f.object.len() + f.what.len()).sum()
}

/// Names of 64 KiB, and thousands of things to say about each.
#[test]
fn findings_take_little_memory_however_long_the_names() {
    let long = "k".repeat(65_535);
    let broken = [
        &STRING.to_le_bytes()[..],
        &1_u64.to_le_bytes(),
        &1_u64.to_le_bytes(),
        b"\xff",
    ]
    .concat();
    let keys = Raw::new().array(&long, ARRAY, 2000, &broken.repeat(2000));
    assert!(findings_bytes(&keys) < 1000);
    let file = parse(keys.build()).expect("opens");
    assert_eq!(validate::layout(&file).len(), 1, "one for each key");

    let mut tensors = Raw::new().tensor(&long, &[1 << 40], F32, 0);
    for i in 0..2000 {
        tensors = tensors.tensor(&format!("{i}"), &[1], F32, 0);
    }
    assert!(findings_bytes(&tensors) < 200_000);
    assert_has(
        &severe(&tensors).join("\n"),
        &[
            "tensors that run into another: and 1900 more",
            "kkk.. (65535 bytes)",
        ],
    );

    // Every kind of finding of one tensor, and of one key.
    let mut many = Raw::new().u32("general.alignment", 32);
    for i in 0..2000 {
        let name = format!("{}{i}", "n".repeat(1000));
        many = many.pair(&name, STRING, &[&1_u64.to_le_bytes()[..], b"\xff"].concat());
        many = many.u32(&name, 1);
        many = many.tensor(&name, &[7], [Q4_0, 4242][i % 2], 1 << (i % 40));
    }
    assert!(findings_bytes(&many) < 500_000, "{}", findings_bytes(&many));
}

#[test]
fn vocabularies_that_disagree_with_themselves_are_findings() {
    let raw = sound()
        .u32("tokenizer.ggml.bos_token_id", 3)
        .u32("tokenizer.ggml.padding_token_id", u32::MAX)
        .array("tokenizer.ggml.token_type", INT32, 2, &[0; 8]);
    let findings = validate::metadata(&parse(raw.build()).expect("opens"));
    let objects: Vec<&str> = findings.iter().map(|f| f.object.as_str()).collect();
    assert_eq!(
        objects,
        [
            "key `tokenizer.ggml.token_type`",
            "key `tokenizer.ggml.bos_token_id`"
        ]
    );
}

#[test]
fn text_that_is_not_utf8_is_repaired_in_values_and_kept_in_arrays() {
    let bytes = [&3_u64.to_le_bytes()[..], b"a\xe4\xb8"].concat();
    let file = parse(sound().pair("note", STRING, &bytes).build()).expect("opens");
    assert_eq!(file.metadata.string("note").expect("string"), Some("a\u{fffd}"));
    assert!(
        validate::layout(&file)
            .iter()
            .any(|f| !f.severe && f.object == "key `note`")
    );
    let file = parse(sound().array("tokens", STRING, 1, &bytes).build()).expect("opens");
    let tokens = file
        .metadata
        .strings("tokens")
        .expect("strings")
        .expect("is there");
    assert_eq!(tokens.bytes(0), Some(&b"a\xe4\xb8"[..]));
    assert!(
        validate::layout(&file)
            .iter()
            .any(|f| !f.severe && f.object == "key `tokens`")
    );
}

/// Uses everything of a file that a program would.
fn use_all(file: &GgufFile) {
    validate::layout(file);
    validate::metadata(file);
    for tensor in &file.tensors {
        let bytes = file.tensor_bytes(tensor);
        assert!(bytes.is_err() || bytes.is_ok_and(|b| b.len() as u64 == tensor.n_bytes));
    }
}

#[test]
fn a_file_cut_anywhere_is_refused_or_reported() {
    let whole = sound().build();
    let data_end = whole.len() - 28;
    for len in 0..whole.len() {
        let Ok(file) = parse(whole[..len].to_vec()) else {
            continue;
        };
        use_all(&file);
        let sound = file.require_sound().is_ok();
        assert_eq!(sound, len >= data_end, "cut at {len} of {}", whole.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_bytes_never_panic(at in 0_usize..400, byte: u8, at2 in 0_usize..400, byte2: u8, cut in 0_usize..600) {
        let mut bytes = sound().build();
        for (at, byte) in [(at, byte), (at2, byte2)] {
            if let Some(b) = bytes.get_mut(at) {
                *b = byte;
            }
        }
        bytes.truncate(cut);
        if let Ok(file) = parse(bytes) {
            use_all(&file);
        }
    }

    #[test]
    fn random_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..200), n_tensors in 0_u64..3, n_pairs in 0_u64..3) {
        let mut bytes = Raw::new().counts(n_tensors, n_pairs).build();
        bytes.truncate(24);
        bytes.extend(tail);
        if let Ok(file) = parse(bytes) {
            use_all(&file);
        }
    }
}
