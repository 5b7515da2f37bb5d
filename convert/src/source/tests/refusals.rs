//! Bad input: each is one error that names what is wrong.

use serde_json::json;

use super::*;
use crate::source::Method;

#[test]
fn schemes_are_counted_by_what_they_say() {
    let dir = tempfile::tempdir().expect("a folder");
    let find = |n: usize, n_sizes: usize| {
        let group = |i: usize| json!({"weights": {"num_bits": 8, "strategy": "group", "group_size": 32 * (1 + i % n_sizes)}});
        let groups: serde_json::Map<_, _> = (0..n).map(|i| (format!("group_{i}"), group(i))).collect();
        let settings = json!({"quant_method": "compressed-tensors", "config_groups": groups});
        Method::find(dir.path(), &json!({"quantization_config": settings}))
    };
    assert!(find(1000, 64).is_ok());
    let message = find(65, 65).expect_err("refused").to_string();
    assert!(
        message.contains("at most 64 different schemes, found more, in 65 groups"),
        "{message}"
    );
}

#[test]
fn methods_that_are_not_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let refused = |config: &Json, words: &[&str]| {
        let message = Method::find(dir.path(), config).expect_err("refused").to_string();
        for word in words {
            assert!(message.contains(word), "no `{word}` in: {message}");
        }
    };
    for (quantization, word) in [
        (
            json!({"quant_method": "bitsandbytes", "load_in_4bit": true}),
            "`bitsandbytes`",
        ),
        (json!({"quant_method": "aqlm"}), "`aqlm`"),
        (json!({}), "`unknown`"),
        (
            json!({"quant_method": "compressed-tensors", "format": "marlin-24"}),
            "`marlin-24`",
        ),
        (
            json!({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}),
            "`W4A8_AWQ`",
        ),
        (
            json!({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}),
            "`marlin`",
        ),
        (
            json!({"quant_method": "awq", "bits": 4, "version": "gemv"}),
            "`gemv`",
        ),
    ] {
        let config = json!({"quantization_config": quantization});
        refused(&config, &[word, "config.json", "unquantized"]);
        refused(&json!({ "text_config": config }), &[word]);
    }
    for (quantization, words) in [
        (
            json!({"quant_method": "gptq", "bits": 3}),
            ["`bits`", "one of 2, 4, 8"],
        ),
        (
            json!({"quant_method": "gptq", "bits": 4, "group_size": 0}),
            ["`group_size`", "above 0"],
        ),
        (
            json!({"quant_method": "fp8", "weight_block_size": [128]}),
            ["`weight_block_size`", "two"],
        ),
        (
            json!({"quant_method": "fp8", "weight_block_size": [0, 128]}),
            ["`weight_block_size`", "two"],
        ),
    ] {
        refused(&json!({"quantization_config": quantization}), &words);
    }
    fs::write(
        dir.path().join("hf_quant_config.json"),
        r#"{"quantization": {"quant_algo": "W8A8"}}"#,
    )
    .expect("written");
    refused(&json!({}), &["hf_quant_config.json", "`W8A8`"]);
}

#[test]
fn eight_bit_floats() {
    let block = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    let made = |config: &Json| {
        Made::new(config.clone())
            .with("a.weight", "F8_E4M3", &[200, 300], vec![0; 60_000])
            .with("a.weight_scale_inv", "F32", &[2, 3], vec![0; 24])
    };
    let good = made(&block);
    assert!(good.open().1.is_ok());
    good.clone()
        .without("a.weight_scale_inv")
        .refused(&["`a.weight`", "`a.weight_scale_inv`", "incomplete"]);
    good.clone()
        .without("a.weight")
        .refused(&["`a.weight_scale_inv`", "belongs to"]);
    let turned = good.clone().bent("a.weight_scale_inv", "F32", &[3, 2]);
    turned.refused(&["`a.weight_scale_inv`", "[2, 3]", "[200, 300]", "[3, 2]"]);
    good.clone()
        .bent("a.weight_scale_inv", "I32", &[2, 3])
        .refused(&["`a.weight_scale_inv`", "I32"]);
    good.clone()
        .bent("a.weight", "F8_E4M3", &[60_000])
        .refused(&["`a.weight`", "[60000]"]);
    // Without settings the size of a block is not known.
    made(&json!(null)).refused(&["`a.weight_scale_inv`", "[2, 3]"]);
    // Half converted: plain numbers beside their scales.
    let half = good
        .without("a.weight")
        .with("a.weight", "F32", &[1, 1], vec![0; 4]);
    half.refused(&["`a.weight_scale_inv`", "belongs to"]);
    // Codes are never numbers by themselves.
    for dtype in ["I8", "F8_E5M2", "F8_E4M3"] {
        let made = Made::default().with("a.weight", dtype, &[2, 2], vec![0; 4]);
        made.refused(&["`a.weight`", dtype, "`a.weight_scale`"]);
    }
}

#[test]
fn plain_integers_are_no_weights() {
    for (dtype, n) in [("U8", 4), ("I32", 16), ("I64", 32), ("F8_E8M0", 4)] {
        let made = Made::default().with("a.weight", dtype, &[2, 2], vec![0; n]);
        let (_dir, weights) = made.open();
        let weights = weights.expect("opens");
        let stored = tensor(&weights, "a.weight").matrix(0);
        let message = stored
            .read(&weights.files, 0..2, 0..2, &mut [0.0; 4])
            .expect_err("refused")
            .to_string();
        assert!(message.contains(dtype), "{message}");
        assert!(stored.native().is_none());
    }
}

#[test]
fn packed_whole_numbers() {
    let weights = json!({"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": true});
    let config = json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": weights}}});
    let shape = |rows: i32, cols: i32| i32s([rows, cols]);
    let base = || {
        Made::new(config.clone())
            .with("a.weight_packed", "I32", &[4, 8], vec![0; 128])
            .with("a.weight_scale", "BF16", &[4, 2], vec![0; 16])
    };
    let made = |stated: Vec<u8>| base().with("a.weight_shape", "I32", &[2], stated);
    assert!(made(shape(4, 64)).open().1.is_ok() && base().open().1.is_ok());
    base()
        .without("a.weight_scale")
        .refused(&["`a.weight_packed`", "`a.weight_scale`"]);
    base()
        .bent("a.weight_scale", "BF16", &[2, 4])
        .refused(&["`a.weight_scale`", "[4, 2]", "[2, 4]"]);
    base()
        .bent("a.weight_packed", "F32", &[4, 8])
        .refused(&["`a.weight_packed`", "I32"]);
    made(shape(4, 65)).refused(&["`a.weight_packed`", "9 for 65"]);
    made(shape(5, 64)).refused(&["`a.weight_shape`", "[5, 64]"]);
    made(shape(4, -1)).refused(&["`a.weight_shape`"]);
    made(shape(4, i32::MAX)).refused(&["`a.weight_shape`"]);
    let mut plain = base();
    plain.config = json!({});
    plain.refused(&["`a.weight_packed`", "quantization_config"]);
    let mut asymmetric = base();
    asymmetric.config["quantization_config"]["config_groups"]["group_0"]["weights"]["symmetric"] =
        false.into();
    asymmetric.refused(&["`a.weight_packed`", "`a.weight_zero_point`"]);
    let zeros = base().with("a.weight_zero_point", "I32", &[2, 2], vec![0; 16]);
    zeros.refused(&["`a.weight_zero_point`", "[1, 2]", "[2, 2]"]);
    // One of many alike states another shape than the first.
    let expert = |e: u32, cols: i32| {
        let name = move |of: &str| format!("e.{e}.weight_{of}");
        move |made: Made| {
            made.with(&name("packed"), "I32", &[4, 8], vec![0; 128])
                .with(&name("scale"), "BF16", &[4, 2], vec![0; 16])
                .with(&name("shape"), "I32", &[2], shape(4, cols))
        }
    };
    let made = expert(1, 60)(expert(0, 64)(Made::new(config.clone())));
    let (_dir, weights) = made.open();
    let weights = weights.expect("opens");
    let read = |name: &str| {
        let stored = tensor(&weights, name).matrix(0);
        stored.read(&weights.files, 0..1, 0..1, &mut [0.0])
    };
    assert!(read("e.0.weight").is_ok());
    let message = read("e.1.weight").expect_err("refused").to_string();
    assert!(
        message.contains("`e.1.weight_packed`") && message.contains("[4, 60]"),
        "{message}"
    );
}

#[test]
fn four_bit_floats() {
    let mxfp4 = Made::new(json!({"quant_method": "mxfp4"}))
        .with("x_blocks", "U8", &[2, 4, 3, 16], vec![0; 384])
        .with("x_scales", "U8", &[2, 4, 3], vec![0; 24]);
    assert!(mxfp4.open().1.is_ok());
    mxfp4
        .clone()
        .without("x_scales")
        .refused(&["`x_blocks`", "`x_scales`"]);
    mxfp4
        .clone()
        .bent("x_scales", "U8", &[2, 3, 4])
        .refused(&["`x_scales`", "[2, 4, 3]"]);
    mxfp4
        .clone()
        .bent("x_scales", "BF16", &[2, 2, 3])
        .refused(&["`x_scales`", "BF16"]);
    mxfp4
        .bent("x_blocks", "U8", &[2, 4, 6, 8])
        .refused(&["`x_blocks`", "16 bytes"]);
    let nvfp4 = Made::new(json!({"quant_algo": "NVFP4"}))
        .with("a.weight", "U8", &[2, 32], vec![0; 64])
        .with("a.weight_scale", "F8_E4M3", &[2, 4], vec![0; 8])
        .with("a.weight_scale_2", "F32", &[], vec![0; 4]);
    assert!(nvfp4.open().1.is_ok());
    nvfp4
        .clone()
        .without("a.weight_scale_2")
        .refused(&["`a.weight`", "`a.weight_scale_2`"]);
    nvfp4
        .clone()
        .without("a.weight_scale")
        .refused(&["`a.weight`", "`a.weight_scale`"]);
    nvfp4
        .clone()
        .bent("a.weight_scale", "U8", &[2, 4])
        .refused(&["`a.weight_scale`", "F8_E4M3"]);
    nvfp4
        .bent("a.weight_scale", "F8_E4M3", &[4, 2])
        .refused(&["`a.weight_scale`", "[2, 4]"]);
}

#[test]
fn words_along_columns() {
    let config = json!({"quant_method": "gptq", "bits": 4, "group_size": 32});
    let gptq = Made::new(config)
        .with("a.qweight", "I32", &[8, 16], vec![0; 512])
        .with("a.qzeros", "I32", &[2, 2], vec![0; 16])
        .with("a.scales", "F16", &[2, 16], vec![0; 64])
        .with(
            "a.g_idx",
            "I32",
            &[64],
            i32s((0..64).map(|i| if i == 63 { 2 } else { i / 32 })),
        );
    let (_dir, weights) = gptq.open();
    let weights = weights.expect("opens");
    let stored = tensor(&weights, "a.weight").matrix(0);
    let message = stored
        .read(&weights.files, 0..1, 0..64, &mut [0.0; 64])
        .expect_err("refused")
        .to_string();
    assert!(
        message.contains("`a.qweight`") && message.contains("below the 2 groups"),
        "{message}"
    );
    gptq.clone()
        .without("a.scales")
        .refused(&["`a.qweight`", "`a.scales`"]);
    gptq.clone()
        .without("a.qzeros")
        .refused(&["`a.qweight`", "`a.qzeros`"]);
    gptq.clone()
        .without("a.qweight")
        .refused(&["`a.qzeros`", "belongs to"]);
    gptq.clone()
        .bent("a.scales", "F16", &[16, 2])
        .refused(&["`a.scales`", "[2, 16]", "[16, 2]"]);
    gptq.clone()
        .bent("a.qzeros", "I32", &[4, 1])
        .refused(&["`a.qzeros`", "[2, 2]"]);
    let mut other = gptq.clone();
    other.config = json!({});
    other.refused(&["`a.qweight`", "`gptq` or `awq`"]);
    // In the other layout the same words have another shape.
    let mut awq = gptq;
    awq.config = json!({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}});
    awq.refused(&["shape of tensor `a.scales`"]);
}

#[test]
fn shapes_without_elements() {
    let empty = |shape: &[u64]| {
        Made::new(json!({"quant_method": "fp8"}))
            .with("a.weight", "F8_E4M3", shape, Vec::new())
            .with("a.weight_scale", "F32", &[1], vec![0; 4])
    };
    empty(&[0, 1 << 60]).refused(&["`a.weight`"]);
    empty(&[1 << 60, 0]).refused(&["`a.weight`"]);
}

#[test]
fn settings_without_quantized_weights_are_told() {
    let made = Made::new(json!({"quant_method": "fp8"})).with("a.weight", "F32", &[1, 1], vec![0; 4]);
    let (_dir, weights) = made.open();
    let notes = weights.expect("opens").notes;
    assert!(
        notes.len() == 1 && notes[0].contains("`fp8`") && notes[0].contains("plain"),
        "{notes:?}"
    );
}
