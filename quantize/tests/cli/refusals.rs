//! What the program refuses, and that it leaves nothing behind when it does.

use crate::fixture::*;
use gguf::{GgufFile, Layout, TensorSpec, Writer};
use gguf_blocks::registry;
use gguf_imatrix_format::Imatrix;

#[test]
fn outputs_that_must_not_be_written() {
    let f = Fixture::new();
    f.put("there.gguf", b"precious");
    std::os::unix::fs::symlink(f.path("in.gguf"), f.path("soft.gguf")).unwrap();
    std::fs::hard_link(f.path("in.gguf"), f.path("hard.gguf")).unwrap();
    for name in ["in.gguf", "./in.gguf", "soft.gguf", "hard.gguf"] {
        f.refuses(&format!("in.gguf {name} Q8_0"), 2, &["same file as the input"]);
        f.refuses(
            &format!("--force in.gguf {name} Q8_0"),
            2,
            &["same file as the input"],
        );
    }
    f.refuses("in.gguf there.gguf Q8_0", 2, &["there.gguf", "exists"]);
    assert_eq!(std::fs::read(f.path("there.gguf")).unwrap(), b"precious");
    f.refuses("in.gguf no/such/folder/out.gguf Q8_0", 2, &["no/such/folder"]);
    f.refuses("absent.gguf out.gguf Q8_0", 2, &["absent.gguf"]);
    assert!(f.run("in.gguf there.gguf Q8_0 --force").status.success());
    assert!(GgufFile::open(&f.path("there.gguf")).is_ok());
}

#[test]
fn inputs_that_are_not_sound() {
    let f = Fixture::new();
    let whole = model(None, &[]);
    f.put("cut.gguf", &whole[..whole.len() - 100]);
    f.refuses(
        "cut.gguf out.gguf Q8_0",
        1,
        &["cut.gguf", "blk.0.ffn_down_exps.weight"],
    );
    f.put("text.gguf", b"version https://git-lfs.github.com/spec/v1\n");
    f.refuses("text.gguf out.gguf Q8_0", 1, &["text.gguf"]);
    f.put("shard.gguf", &model(None, &[("split.no", 1), ("split.count", 3)]));
    f.refuses("shard.gguf out.gguf Q8_0", 1, &["shard 2 of 3", "rename"]);
    // Row 10 of the second expert.
    f.put("nan.gguf", &model(Some((288 + 10) * N_EMBD + 17), &[]));
    let place = ["`blk.0.ffn_up_exps.weight`, matrix 1, row 10, column 17", "NaN"];
    f.refuses("nan.gguf out.gguf Q8_0", 1, &place);
    f.refuses("nan.gguf out.gguf Q4_K_M 5", 1, &place);
    f.refuses("nan.gguf out.gguf F32", 1, &place[..1]);
    assert!(f.run("in.gguf q8.gguf Q8_0").status.success());
    f.refuses(
        "q8.gguf out.gguf Q4_0",
        1,
        &["already quantized (`Q8_0`)", "--allow-requantize"],
    );
}

/// A model and a matrix that belongs to it.
fn with_importance() -> Fixture {
    let f = Fixture::new();
    imatrix(256).write_gguf(&f.path("good.gguf"), false, &[]).unwrap();
    f
}

#[test]
fn importance_that_does_not_belong() {
    let f = with_importance();
    let write = |name: &str, m: &Imatrix| m.write_gguf(&f.path(name), false, &[]).unwrap();
    write("short.gguf", &imatrix(64));
    let mut other = imatrix(256);
    other.entries = other
        .entries
        .into_iter()
        .map(|(n, e)| (format!("other.{n}"), e))
        .collect();
    write("other.gguf", &other);
    let bytes = std::fs::read(f.path("good.gguf")).unwrap();
    let at = bytes.windows(4).rposition(|w| w == 4_f32.to_le_bytes()).unwrap();
    f.put(
        "nan.dat",
        &[&bytes[..at], &f32::NAN.to_le_bytes(), &bytes[at + 4..]].concat(),
    );

    f.refuses(
        "--imatrix short.gguf in.gguf out.gguf Q4_0",
        1,
        &["`blk.0.attn_v.weight`", "needs 256", "found 64"],
    );
    f.refuses(
        "--imatrix other.gguf in.gguf out.gguf Q4_0",
        1,
        &["`other.gguf` is of another model"],
    );
    f.refuses(
        "--imatrix nan.dat in.gguf out.gguf Q4_0",
        1,
        &["`blk.0.ffn_up_exps.weight`", "matrix 1", "NaN"],
    );
    f.refuses("--imatrix in.gguf in.gguf out.gguf Q4_0", 1, &["in.gguf"]);
    f.refuses("--imatrix absent in.gguf out.gguf Q4_0", 2, &["absent"]);
    f.refuses(
        "--imatrix good.gguf in.gguf good.gguf Q4_0 --force",
        2,
        &["same file as the input `good.gguf`"],
    );
}

#[test]
fn importance_that_covers_some_or_nothing() {
    let f = with_importance();
    for (option, code) in [
        ("--include-weights nothing.has.this", 2),
        ("--exclude-weights blk", 2),
    ] {
        f.refuses(
            &format!("{option} --imatrix good.gguf in.gguf out.gguf Q4_0"),
            code,
            &[
                option.split(' ').next().unwrap(),
                "leaves nothing of the",
                "`good.gguf`",
            ],
        );
    }
    let plan = f.json("--dry-run --imatrix good.gguf in.gguf out.gguf Q4_0");
    let notes = plan["notes"].to_string();
    assert!(
        notes.contains("covers 2 of 6 tensors") && notes.contains("`token_embd.weight`"),
        "{notes}"
    );
    let excluded = f.json("--exclude-weights up_exps --dry-run --imatrix good.gguf in.gguf out.gguf Q4_0");
    assert!(excluded["notes"].to_string().contains("covers 1 of 6 tensors"));
}

#[test]
fn a_dry_run_tells_the_truth_and_writes_nothing() {
    let f = Fixture::new();
    for file_type in ["Q4_K_M", "Q2_K", "Q8_0", "F16"] {
        let before = f.files();
        let plan = f.json(&format!("--dry-run in.gguf {file_type}"));
        assert_eq!(f.files(), before);
        let done = f.json(&format!("in.gguf {file_type}"));
        let written = std::fs::metadata(f.path(&format!("ggml-model-{file_type}.gguf")))
            .unwrap()
            .len();
        assert_eq!(
            (&plan["bytes"], &plan["tensors"]),
            (&done["bytes"], &done["tensors"])
        );
        assert_eq!(plan["bytes"], written);
    }
    let text = String::from_utf8(f.run("--dry-run in.gguf new.gguf Q4_K_M").stdout).unwrap();
    assert!(
        text.contains("fallback from Q4_K") && text.contains("would write `new.gguf`"),
        "{text}"
    );
    // What would stop the run is told behind the plan, with the run's exit code.
    let exists = f.run("--dry-run in.gguf ggml-model-Q8_0.gguf Q8_0");
    assert_eq!(exists.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&exists.stderr).contains("exists already"));
    assert!(String::from_utf8_lossy(&exists.stdout).contains("would write `ggml-model-Q8_0.gguf`"));
}

#[test]
fn fallbacks_are_told_and_can_be_forbidden() {
    let f = Fixture::new();
    let out = f.run("in.gguf out.gguf Q4_K_M --quiet");
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success());
    assert!(
        text.contains("warning: 1 of 6 tensors required fallback quantization"),
        "{text}"
    );
    assert!(
        text.contains("`blk.0.ffn_down_exps.weight`: rows of 288 elements"),
        "{text}"
    );
    f.refuses("--strict in.gguf other.gguf Q4_K_M", 1, &["--strict"]);
    assert!(f.run("--strict in.gguf other.gguf Q8_0").status.success());
}

#[test]
fn the_users_types_win_wherever_they_stand() {
    let f = Fixture::new();
    let v = "blk.1.attn_v.weight";
    assert_eq!(f.planned("in.gguf o Q4_K_M --tensor-type ATTN_V=q5_k", v), "Q5_K");
    assert_eq!(
        f.planned("--tensor-type attn_v=q5_k --pure in.gguf o Q4_K_M", v),
        "Q5_K"
    );
    assert_eq!(f.planned("in.gguf --tensor-type attn_v=q5_k o F16", v), "Q5_K");
    assert_eq!(f.planned("in.gguf o Q4_K_M --tensor-type attn_v=q4_k", v), "Q4_K");
    assert_eq!(
        f.planned(
            "in.gguf o Q4_0 --tensor-type blk.1=q8_0 --tensor-type attn_v=q5_0",
            v
        ),
        "Q8_0"
    );
    assert_eq!(
        f.planned("in.gguf o Q4_0 --output-tensor-type BF16", "output.weight"),
        "BF16"
    );
    assert_eq!(
        f.planned("in.gguf o Q4_0 --leave-output-tensor", "output.weight"),
        "F32"
    );
    assert_eq!(
        f.planned("in.gguf o Q4_0 --token-embedding-type q8_0", "token_embd.weight"),
        "Q8_0"
    );
}

#[test]
fn rules_without_effect_and_types_that_do_not_fit() {
    let f = Fixture::new();
    let plan = f.json("--dry-run in.gguf o Q4_0 --tensor-type attn=q8_0 --tensor-type attn_v=q5_0");
    assert!(
        plan["warnings"]
            .to_string()
            .contains("`attn_v=q5_0`: decides nothing"),
        "{}",
        plan["warnings"]
    );
    let talk = f.run("in.gguf told.gguf Q4_0 --tensor-type attn=q8_0 --tensor-type attn_v=q5_0 -q");
    let talk = String::from_utf8(talk.stderr).unwrap();
    assert!(
        talk.contains("warning: --tensor-type `attn_v=q5_0`: decides nothing"),
        "{talk}"
    );
    f.refuses(
        "in.gguf o Q4_0 --tensor-type attn_w=q8_0",
        2,
        &["`attn_w=q8_0`: no tensor's name matches"],
    );
    f.refuses(
        "in.gguf o Q4_0 --tensor-type norm=q8_0",
        2,
        &["never quantized", "`output_norm.weight`"],
    );
    f.refuses(
        "in.gguf o Q4_0 --tensor-type down=q4_k",
        1,
        &["288 elements", "`Q4_K`", "types that fit: "],
    );
    assert_eq!(
        f.planned(
            "in.gguf o Q4_0 --tensor-type down=q5_1",
            "blk.0.ffn_down_exps.weight"
        ),
        "Q5_1"
    );
}

/// Slabs end inside matrices and importance follows the matrix, so a tensor of several slabs must equal its
/// rows encoded one by one.
#[test]
fn rows_keep_their_own_importance() {
    let f = Fixture::new();
    let mut m = imatrix(256);
    for (i, s) in m
        .entries
        .get_mut("blk.0.ffn_up_exps.weight")
        .unwrap()
        .sums
        .iter_mut()
        .enumerate()
    {
        *s = (i % 97) as f32 + 0.5 + (i / 256) as f32 * 50.0;
    }
    m.write_gguf(&f.path("m.gguf"), false, &[]).unwrap();
    assert!(f.run("--imatrix m.gguf in.gguf out.gguf Q4_K_M").status.success());
    let file = GgufFile::open(&f.path("out.gguf")).unwrap();
    let tensor = file.tensor("blk.0.ffn_up_exps.weight").unwrap();
    let encode = tensor
        .format()
        .unwrap()
        .encoder(gguf_blocks::Cpu::best())
        .unwrap();
    let importance = m.importance("blk.0.ffn_up_exps.weight").unwrap();
    let bytes = file.tensor_bytes(tensor).unwrap();
    let row_bytes = bytes.len() / (288 * 2);
    for (row, found) in bytes.chunks_exact(row_bytes).enumerate() {
        let values: Vec<f32> = (0..N_EMBD).map(|c| value(row as u64 * N_EMBD + c)).collect();
        let mut expected = vec![0; row_bytes];
        let weights = &importance[row / 288 * 256..][..256];
        encode(&values, gguf_blocks::Importance::Column(weights), &mut expected);
        assert_eq!(found, expected, "row {row}");
    }
}

#[test]
fn values_beyond_a_type_are_named_with_their_size() {
    let f = Fixture::new();
    let mut bytes = model(Some((288 + 10) * N_EMBD + 17), &[]);
    let at = bytes
        .windows(4)
        .rposition(|w| w == f32::NAN.to_le_bytes())
        .unwrap();
    bytes[at..at + 4].copy_from_slice(&(-3e9_f32).to_le_bytes());
    f.put("large.gguf", &bytes);
    for to in ["Q4_K_M", "Q8_0", "F16"] {
        f.refuses(
            &format!("large.gguf out.gguf {to}"),
            1,
            &[
                "`blk.0.ffn_up_exps.weight`, matrix 1, row 10, column 17",
                "found -3e9",
                "too large",
            ],
        );
    }
    assert!(f.run("large.gguf out.gguf BF16 --quiet").status.success());
}

#[test]
fn keys_are_named_with_their_file() {
    let f = Fixture::new();
    f.put("odd.gguf", &model(None, &[]));
    let bytes = std::fs::read(f.path("odd.gguf")).unwrap();
    let file = GgufFile::from_source(gguf::source::bytes("odd.gguf".into(), bytes)).unwrap();
    let mut metadata = file.metadata.clone();
    metadata.set("llama.expert_count", "two".into());
    let specs = file.tensors.iter().map(TensorSpec::from).collect();
    let layout = Layout::plan(&metadata, specs).unwrap();
    let mut writer = Writer::new(Vec::new(), &layout).unwrap();
    for t in &file.tensors {
        writer.write(&file.tensor_bytes(t).unwrap()).unwrap();
    }
    f.put("odd.gguf", &writer.finish().unwrap());
    f.refuses(
        "odd.gguf out.gguf Q8_0",
        1,
        &["`odd.gguf`: metadata key `llama.expert_count`: expected an unsigned integer"],
    );
}

#[test]
fn room_for_metadata_is_the_last_key_and_only_on_request() {
    let f = Fixture::new();
    let pad = |name: &str| {
        let file = GgufFile::open(&f.path(name)).unwrap();
        let last = file
            .metadata
            .iter()
            .last()
            .map(|(k, v)| (k.to_owned(), v.clone()));
        last.filter(|(k, _)| k == gguf::key::PAD).map(|(_, v)| v)
    };
    let run = |args: &str| assert!(f.run(args).status.success(), "{args}");
    run("in.gguf plain.gguf Q8_0 --quiet");
    run("in.gguf wide.gguf Q8_0 --reserve-metadata 64K --quiet");
    assert_eq!(pad("plain.gguf"), None);
    assert_eq!(pad("wide.gguf"), Some(vec![0_u8; 65_536].into()));
    // Encoded again without the option, the file is what it is without room in the source.
    run("wide.gguf again.gguf COPY --quiet");
    run("plain.gguf copy.gguf COPY --quiet");
    let read = |name: &str| {
        let file = GgufFile::open(&f.path(name)).unwrap();
        let stays = |k: &str| !k.starts_with("quantize.source.");
        let pairs = file.metadata.iter().filter(|(k, _)| stays(k));
        let pairs: Vec<_> = pairs.map(|(k, v)| (k.to_owned(), v.clone())).collect();
        let data: Vec<u8> = file
            .tensors
            .iter()
            .flat_map(|t| file.tensor_bytes(t).unwrap().into_owned())
            .collect();
        (pairs, data)
    };
    assert!(read("again.gguf") == read("copy.gguf"));
    run("wide.gguf other.gguf COPY --reserve-metadata 10 --quiet");
    assert_eq!(pad("other.gguf"), Some(vec![0_u8; 10].into()));
    f.refuses(
        "in.gguf out.gguf Q8_0 --reserve-metadata 1X",
        2,
        &["--reserve-metadata", "64K"],
    );
}

/// The model with one tensor as another type, of random bytes that are sound.
fn with_type(tensor: &str, name: &str) -> Vec<u8> {
    let source = gguf::source::bytes("in.gguf".into(), model(None, &[]));
    let file = GgufFile::from_source(source).unwrap();
    let format = registry::by_name(name).unwrap();
    let mut specs: Vec<TensorSpec> = file.tensors.iter().map(TensorSpec::from).collect();
    let spec = specs.iter_mut().find(|s| s.name == tensor).unwrap();
    spec.type_id = format.id;
    let n_bytes = spec.shape.n_bytes(format).unwrap();
    let layout = Layout::plan(&file.metadata, specs).unwrap();
    let mut writer = Writer::new(Vec::new(), &layout).unwrap();
    for t in &file.tensors {
        if t.name == tensor {
            let bytes: Vec<u8> = (0..n_bytes).map(|i| (i * 7919 % 1009) as u8 & 0x3f).collect();
            writer.write(&bytes).unwrap();
        } else {
            writer.write(&file.tensor_bytes(t).unwrap()).unwrap();
        }
    }
    writer.finish().unwrap()
}

#[test]
fn rows_with_headers_and_interleaved_rows_are_read() {
    let f = Fixture::new();
    let name = "blk.0.ffn_up_exps.weight";
    for from in ["IQ4_KS", "IQ4_NL_R4", "IQ4_KS_R4", "Q8_K_R16"] {
        f.put("from.gguf", &with_type(name, from));
        let run = f.run("--allow-requantize from.gguf out.gguf Q8_0 --force --quiet");
        assert!(
            run.status.success(),
            "{from}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
        let source = GgufFile::open(&f.path("from.gguf")).unwrap();
        let raw = source.tensor_bytes(source.tensor(name).unwrap()).unwrap();
        let mut values = vec![0.0; 256 * 288 * 2];
        let format = registry::by_name(from).unwrap();
        format.decode_rows(256, &raw, &mut values).unwrap();
        let q8 = registry::by_name("Q8_0").unwrap();
        let mut expected = vec![0; values.len() / 32 * 34];
        q8.encoder(gguf_blocks::Cpu::best()).unwrap()(&values, gguf_blocks::Importance::None, &mut expected);
        let file = GgufFile::open(&f.path("out.gguf")).unwrap();
        let found = file.tensor_bytes(file.tensor(name).unwrap()).unwrap();
        assert!(found == expected, "{from}");
    }
}

#[test]
fn tensors_with_a_trailer_are_copied_whole_or_refused() {
    let f = Fixture::new();
    f.put("from.gguf", &with_type("output_norm.weight", "I2_S"));
    assert!(f.run("from.gguf out.gguf Q8_0 --quiet").status.success());
    let bytes = ["from.gguf", "out.gguf"].map(|path| {
        let file = GgufFile::open(&f.path(path)).unwrap();
        file.tensor_bytes(file.tensor("output_norm.weight").unwrap())
            .unwrap()
            .into_owned()
    });
    assert_eq!(bytes[0].len(), 256 / 4 + 32);
    assert_eq!(bytes[0], bytes[1]);
    f.put("from.gguf", &with_type("blk.0.attn_v.weight", "I2_S"));
    f.refuses(
        "--allow-requantize from.gguf other.gguf Q8_0",
        1,
        &["`blk.0.attn_v.weight`", "`I2_S` cannot be decoded"],
    );
}
