//! Blocks of GGUF types put together from codes, and the reference's bytes.

use std::fmt::Write;

use gguf_blocks::half_bulk::f32_to_f16;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;
use crate::view::{Select, View};

/// Rows as blocks, decoded again.
fn through_blocks(weights: &Weights, view: View) -> (Vec<f32>, &'static str) {
    let view = view.repacked();
    let format = view.native().expect("a type");
    let row_bytes = format.geometry.row_bytes(view.n_cols()).expect("whole blocks");
    let mut blocks = vec![0; (row_bytes * view.n_rows()) as usize];
    view.read_native(&weights.files, 0, &mut blocks)
        .expect("readable");
    let mut values = vec![0.0; (view.n_rows() * view.n_cols()) as usize];
    format
        .decode_rows(view.n_cols() as usize, &blocks, &mut values)
        .expect("decodes");
    (values, format.name)
}

fn values(weights: &Weights, view: &View) -> Vec<f32> {
    let mut values = vec![0.0; (view.n_rows() * view.n_cols()) as usize];
    view.read(&weights.files, 0, &mut values).expect("readable");
    values
}

#[test]
fn blocks_have_the_values_of_the_codes() {
    let scheme =
        json!({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": true});
    let int4 = Made::new(
        json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {"group_0": {"weights": scheme}}}),
    )
    .with("a.weight_packed", "I32", &[8, 16], bytes(30, 512))
    .with("a.weight_scale", "F16", &[8, 4], f16s(&scales(31, 32)).0);
    let mxfp4 = Made::new(json!({"quant_method": "mxfp4"}))
        .with("a.weight_blocks", "U8", &[8, 4, 16], bytes(32, 512))
        .with(
            "a.weight_scales",
            "U8",
            &[8, 4],
            bytes(33, 32).iter().map(|b| b % 128 + 60).collect(),
        );
    let scales: Vec<u8> = bytes(34, 64).iter().map(|b| b % 0x7f).collect();
    let nvfp4 = Made::new(json!({"quant_algo": "NVFP4"}))
        .with("a.weight", "U8", &[8, 64], bytes(35, 512))
        .with("a.weight_scale", "F8_E4M3", &[8, 8], scales)
        .with("a.weight_scale_2", "F32", &[1], f32s(&[1.0]));
    for (made, name) in [(int4, "Q4_0"), (mxfp4, "MXFP4"), (nvfp4, "NVFP4")] {
        let (_dir, weights) = made.open();
        let weights = weights.expect("opens");
        let stored = tensor(&weights, "a.weight").matrix(0);
        assert_eq!(stored.misfits(&weights.files).expect("readable"), 0);
        let whole = View::whole(stored);
        assert!(whole.native().is_none(), "{name}: only where it is asked for");
        let every_second = Select::Groups {
            first: 1,
            len: 1,
            step: 2,
            n: 4,
        };
        let odd = View {
            rows: every_second,
            ..whole.clone()
        };
        let permuted = View {
            rows: Select::Interleaved { head_dim: 4, n: 8 },
            ..whole.clone()
        };
        for view in [whole.clone(), odd, permuted] {
            assert_eq!(view.repack().map(|f| f.name), Some(name));
            let expected = values(&weights, &view);
            assert_eq!(through_blocks(&weights, view), (expected, name));
        }
        let columns = View {
            cols: Select::span(0, 64),
            ..whole.clone()
        };
        assert!(columns.clone().repacked().native().is_none() && columns.repack().is_none());
        let turned = View {
            transpose: true,
            ..whole
        };
        assert!(turned.repacked().native().is_none());
    }
}

#[test]
fn scales_that_a_type_does_not_hold() {
    let scheme =
        json!({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": true});
    let config = json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": scheme}}});
    // Too small, too fine, too large and no number; the last is exact.
    let scale = [1e-8, 1.0 + 1.0 / 4096.0, 1e6, f32::NAN, 0.375];
    assert_eq!(f32_to_f16(scale[4]), 0x3600);
    let made = Made::new(config)
        .with("a.weight_packed", "I32", &[5, 4], bytes(36, 80))
        .with("a.weight_scale", "F32", &[5, 1], f32s(&scale));
    let (_dir, weights) = made.open();
    let weights = weights.expect("opens");
    let stored = tensor(&weights, "a.weight").matrix(0);
    assert_eq!(stored.misfits(&weights.files).expect("readable"), 4);
    let stored = stored.repacked();
    let message = stored
        .read_native(&weights.files, 1, &mut [0; 18])
        .expect_err("refused")
        .to_string();
    assert!(
        message.contains("group 0 of row 1") && message.contains("F16"),
        "{message}"
    );
    stored.read_native(&weights.files, 4, &mut [0; 18]).expect("fits");
    // Scales of NVFP4 have no sign in GGUF.
    let made = Made::new(json!({"quant_algo": "NVFP4"}))
        .with("a.weight", "U8", &[1, 32], bytes(37, 32))
        .with("a.weight_scale", "F8_E4M3", &[1, 4], vec![0x80, 0x38, 0x38, 0xb8])
        .with("a.weight_scale_2", "F32", &[], f32s(&[1.0]));
    let (_dir, weights) = made.open();
    let weights = weights.expect("opens");
    let stored = tensor(&weights, "a.weight").matrix(0).repacked();
    let message = stored
        .read_native(&weights.files, 0, &mut [0; 36])
        .expect_err("refused")
        .to_string();
    assert!(message.contains("group 3 of row 0"), "{message}");
}

fn digest(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in Sha256::digest(bytes) {
        write!(hex, "{byte:02x}").expect("strings take all");
    }
    hex
}

/// Digests of the reference's tensors by GGUF name, and the checkpoint's weights.
fn reference(model: &str) -> Option<(Weights, impl Fn(&str) -> (String, String))> {
    let dir = shared(&format!("models/sources/{model}"))?;
    let golden = shared(&format!("golden/convert/{model}.json"))?;
    let json =
        |path: &Path| -> Json { serde_json::from_slice(&fs::read(path).expect("there")).expect("JSON") };
    let golden = json(&golden)["tensors"].clone();
    let config = gguf_models::hf::text_config(&json(&dir.join("config.json"))).expect("a config");
    let weights = Weights::open(&dir, &config).expect("opens");
    let find = move |name: &str| {
        let tensors = golden.as_array().expect("tensors");
        let tensor = tensors
            .iter()
            .find(|t| t[0] == name)
            .expect("a tensor of the golden");
        let text = |i: usize| tensor[i].as_str().expect("text").to_owned();
        (text(2), text(3))
    };
    Some((weights, find))
}

#[test]
fn dequantized_weights_equal_the_reference() {
    let layers = [
        (
            "deepseek-v3-fp8",
            "model.layers.1.self_attn.o_proj.weight",
            "blk.1.attn_output.weight",
        ),
        (
            "deepseek-v3-fp8",
            "model.layers.2.self_attn.q_a_proj.weight",
            "blk.2.attn_q_a.weight",
        ),
        (
            "deepseek-v3-fp8",
            "model.layers.0.mlp.down_proj.weight",
            "blk.0.ffn_down.weight",
        ),
        (
            "deepseek-v3-fp8",
            "model.layers.1.mlp.shared_experts.up_proj.weight",
            "blk.1.ffn_up_shexp.weight",
        ),
        (
            "deepseek-v3-fp8",
            "model.embed_tokens.weight",
            "token_embd.weight",
        ),
        (
            "qwen3-fp8-channel",
            "model.layers.0.mlp.down_proj.weight",
            "blk.0.ffn_down.weight",
        ),
        (
            "qwen3-fp8-channel",
            "model.layers.2.self_attn.q_proj.weight",
            "blk.2.attn_q.weight",
        ),
        (
            "qwen3-fp8-channel",
            "model.layers.1.self_attn.o_proj.weight",
            "blk.1.attn_output.weight",
        ),
        ("qwen3-fp8-channel", "lm_head.weight", "output.weight"),
    ];
    for (model, name, gguf_name) in layers {
        let Some((weights, golden)) = reference(model) else {
            return;
        };
        let found = digest(&f32s(&read(&weights, name, 0)));
        assert_eq!(("F32".to_owned(), found), golden(gguf_name), "{name}");
    }
}

#[test]
fn repacked_weights_equal_the_reference() {
    let Some((weights, golden)) = reference("gpt-oss-mxfp4") else {
        return;
    };
    let blocks = |view: View, weights: &Weights| {
        let view = view.repacked();
        let row_bytes = view.native().and_then(|f| f.geometry.row_bytes(view.n_cols()));
        let mut out = vec![0; (row_bytes.expect("a type") * view.n_rows()) as usize];
        view.read_native(&weights.files, 0, &mut out).expect("readable");
        out
    };
    let gate_up = tensor(&weights, "model.layers.1.mlp.experts.gate_up_proj");
    for (first, name) in [(0, "blk.1.ffn_gate_exps.weight"), (1, "blk.1.ffn_up_exps.weight")] {
        let part = |i| View {
            rows: Select::Groups {
                first,
                len: 1,
                step: 2,
                n: 64,
            },
            ..View::whole(gate_up.matrix(i))
        };
        let all: Vec<u8> = (0..gate_up.n_matrices())
            .flat_map(|i| blocks(part(i), &weights))
            .collect();
        assert_eq!(("MXFP4".to_owned(), digest(&all)), golden(name), "{name}");
    }
    let (weights, golden) = reference("qwen3moe-nvfp4").expect("beside the other");
    let expert = |e| format!("model.layers.0.mlp.experts.{e}.up_proj.weight");
    let stored: Vec<_> = (0..8).map(|e| tensor(&weights, &expert(e)).matrix(0)).collect();
    let all: Vec<u8> = stored
        .iter()
        .flat_map(|s| blocks(View::whole(s.clone()), &weights))
        .collect();
    assert_eq!(
        ("NVFP4".to_owned(), digest(&all)),
        golden("blk.0.ffn_up_exps.weight")
    );
    let of = |part: fn(&crate::source::Stored) -> Option<crate::source::Stored>| {
        let value = |s| part(s).expect("there").value(&weights.files).expect("readable");
        f32s(&stored.iter().map(value).collect::<Vec<_>>())
    };
    assert_eq!(
        digest(&of(crate::source::Stored::factor)),
        golden("blk.0.ffn_up_exps.scale").1
    );
    assert_eq!(
        digest(&of(crate::source::Stored::input_factor)),
        golden("blk.0.ffn_up_exps.input_scale").1
    );
}

#[test]
fn a_wrapped_checkpoint_of_packed_experts_opens() {
    let Some(dir) = shared("models/sources/kimi-k2.5") else {
        return;
    };
    let config: Json =
        serde_json::from_slice(&fs::read(dir.join("config.json")).expect("there")).expect("JSON");
    let weights = Weights::open(&dir, &config).expect("opens");
    let name = "language_model.model.layers.1.mlp.experts.11.down_proj.weight";
    let view = View::whole(tensor(&weights, name).matrix(0));
    assert_eq!(view.stored.misfits(&weights.files).expect("readable"), 0);
    let expected = values(&weights, &view);
    assert_eq!(through_blocks(&weights, view), (expected, "Q4_0"));
}
