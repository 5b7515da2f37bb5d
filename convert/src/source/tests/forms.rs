//! Values of each form.

use serde_json::json;

use super::*;

/// Codes that are numbers in every format of 8 bits.
fn finite_codes(seed: u32, n: usize) -> Vec<u8> {
    bytes(seed, n)
        .into_iter()
        .map(|b| if b & 0x7f >= 0x7c { b & 0x8f } else { b })
        .collect()
}

#[test]
fn fp8_blocks_with_ragged_edges() {
    let config = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    let (codes, scale) = (finite_codes(1, 200 * 300), scales(2, 6));
    let expected: Vec<f32> = (0..200 * 300)
        .map(|i| e4m3(codes[i]) * scale[i / 300 / 128 * 3 + i % 300 / 128])
        .collect();
    let made = Made::new(config)
        .with("a.weight", "F8_E4M3", &[200, 300], codes.clone())
        .with("a.weight_scale_inv", "F32", &[2, 3], f32s(&scale));
    expect(&made, "a.weight", 0, &expected);
    // Blocks that are no squares, and scales that are powers of two.
    let config = json!({"quant_method": "fp8", "weight_block_size": [7, 100]});
    let powers: Vec<u8> = bytes(3, 29 * 3).iter().map(|b| 120 + b % 16).collect();
    let expected: Vec<f32> = (0..200 * 300)
        .map(|i| e4m3(codes[i]) * 2.0f32.powi(i32::from(powers[i / 300 / 7 * 3 + i % 300 / 100]) - 127))
        .collect();
    let made = Made::new(config)
        .with("a.weight", "F8_E4M3", &[200, 300], codes)
        .with("a.weight_scale_inv", "F8_E8M0", &[29, 3], powers);
    expect(&made, "a.weight", 0, &expected);
}

#[test]
fn fp8_channels_and_tensors_and_stacks() {
    let codes = finite_codes(4, 2 * 9 * 10);
    let scale = scales(5, 18);
    let (stored, scale) = bf16s(&scale);
    let channel = json!({"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true});
    let config = json!({"quant_method": "compressed-tensors", "format": "float-quantized",
        "config_groups": {"group_0": {"weights": channel}}});
    let made = Made::new(config)
        .with("s", "F8_E5M2", &[2, 9, 10], codes.clone())
        .with("s_scale", "BF16", &[2, 9, 1], stored);
    for matrix in 0..2 {
        let expected: Vec<f32> = (0..90)
            .map(|i| e5m2(codes[matrix * 90 + i]) * scale[matrix * 9 + i / 10])
            .collect();
        expect(&made, "s", matrix as u64, &expected);
    }
    let expected: Vec<f32> = codes[..90].iter().map(|c| e4m3(*c) * 0.75).collect();
    for (config, scale, unused) in [
        (
            json!({"quant_method": "fp8"}),
            "a.weight_scale_inv",
            "a.activation_scale",
        ),
        (
            json!({"quant_method": "modelopt", "quant_algo": "FP8"}),
            "a.weight_scale",
            "a.input_scale",
        ),
        (json!({"quant_method": "fp8"}), "a.qscale_weight", "a.qscale_act"),
        (json!(null), "a.weight_scale", "a.k_scale"),
    ] {
        let made = Made::new(config)
            .with("a.weight", "F8_E4M3", &[9, 10], codes[..90].to_vec())
            .with(scale, "F32", &[], f32s(&[0.75]))
            .with(unused, "F32", &[], f32s(&[0.5]));
        expect(&made, "a.weight", 0, &expected);
        let (_dir, weights) = made.open();
        let weights = weights.expect("opens");
        assert_eq!(weights.tensors.len(), 1, "{scale}");
        assert!(
            weights.notes.iter().any(|n| n.contains("1 scale of")),
            "{:?}",
            weights.notes
        );
    }
}

#[test]
fn fp8_codes_of_no_number_stay_no_number() {
    for (dtype, code) in [
        ("F8_E4M3", 0x7f),
        ("F8_E4M3", 0xff),
        ("F8_E5M2", 0x7d),
        ("F8_E5M2", 0xfc),
    ] {
        let made = Made::new(json!({"quant_method": "fp8"}))
            .with("a.weight", dtype, &[4, 8], vec![code; 32])
            .with("a.weight_scale", "F32", &[1], f32s(&[0.5]));
        let (_dir, weights) = made.open();
        let weights = weights.expect("opens");
        let mut values = [0.0; 32];
        let stored = tensor(&weights, "a.weight").matrix(0);
        stored
            .read(&weights.files, 0..4, 0..8, &mut values)
            .expect("readable");
        assert!(values.iter().all(|v| !v.is_finite()), "{dtype} {code}");
    }
}

#[test]
fn whole_numbers_of_8_bits() {
    let codes = bytes(6, 6 * 64);
    let zeros = bytes(7, 6 * 4);
    let (stored, scale) = f16s(&scales(8, 24));
    let weights =
        json!({"num_bits": 8, "type": "int", "strategy": "group", "group_size": 16, "symmetric": false});
    let config = json!({"quant_method": "compressed-tensors", "format": "int-quantized",
        "config_groups": {"group_0": {"weights": weights}}});
    let signed = |b: u8| f32::from(b.cast_signed());
    let group = |i: usize| i / 64 * 4 + i % 64 / 16;
    let made = Made::new(config)
        .with("a.weight", "I8", &[6, 64], codes.clone())
        .with("a.weight_scale", "F16", &[6, 4], stored);
    let plain: Vec<f32> = (0..384).map(|i| signed(codes[i]) * scale[group(i)]).collect();
    expect(&made, "a.weight", 0, &plain);
    let made = made.with("a.weight_zero_point", "I8", &[6, 4], zeros.clone());
    let shifted: Vec<f32> = (0..384)
        .map(|i| (signed(codes[i]) - signed(zeros[group(i)])) * scale[group(i)])
        .collect();
    expect(&made, "a.weight", 0, &shifted);
}

/// Settings of `compressed-tensors` for packed whole numbers.
fn packed_config(bits: usize, strategy: &str, size: i64, symmetric: bool) -> Json {
    let weights = json!({"num_bits": bits, "type": "int", "strategy": strategy, "group_size": size,
        "symmetric": symmetric});
    json!({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}})
}

#[test]
fn packed_whole_numbers() {
    for bits in [2, 4, 8] {
        // The last word of a row is not full.
        let (rows, cols, group) = (11, 90, 10);
        let n_words = usize::div_ceil(cols, 32 / bits);
        let data = bytes(9, rows * n_words * 4);
        let codes: Vec<i32> = data
            .chunks(n_words * 4)
            .flat_map(|r| unpacked(r, bits, cols))
            .collect();
        let (stored, scale) = bf16s(&scales(10, rows * cols / group));
        let zeros: Vec<i32> = bytes(11, scale.len())
            .iter()
            .map(|b| i32::from(*b) % (1 << bits))
            .collect();
        let at = |i: usize| i / cols * (cols / group) + i % cols / group;
        let shape = i32s([rows as i32, cols as i32]);
        let symmetric = Made::new(packed_config(bits, "group", group as i64, true))
            .with("e.7.weight_packed", "I32", &[rows as u64, n_words as u64], data)
            .with(
                "e.7.weight_scale",
                "BF16",
                &[rows as u64, (cols / group) as u64],
                stored,
            )
            .with("e.7.weight_shape", "I32", &[2], shape);
        let half = 1 << (bits - 1);
        let expected: Vec<f32> = (0..rows * cols)
            .map(|i| (codes[i] - half) as f32 * scale[at(i)])
            .collect();
        expect(&symmetric, "e.7.weight", 0, &expected);
        // Zero points are packed along rows.
        let columns: Vec<Vec<i32>> = (0..cols / group)
            .map(|g| {
                words(
                    &(0..rows)
                        .map(|r| zeros[r * (cols / group) + g])
                        .collect::<Vec<_>>(),
                    bits,
                )
            })
            .collect();
        let n_rows = columns[0].len();
        let lines = (0..n_rows).flat_map(|w| columns.iter().map(move |c| c[w]));
        let mut asymmetric = symmetric.with("e.7.weight_zero_point", "I32", &[n_rows as u64, 9], i32s(lines));
        asymmetric.config = Made::new(packed_config(bits, "group", group as i64, false)).config;
        let expected: Vec<f32> = (0..rows * cols)
            .map(|i| (codes[i] - zeros[at(i)]) as f32 * scale[at(i)])
            .collect();
        expect(&asymmetric, "e.7.weight", 0, &expected);
        // Columns that were sorted before they were grouped.
        let group_of: Vec<i32> = bytes(12, cols).iter().map(|b| i32::from(b % 9)).collect();
        let sorted = asymmetric.with("e.7.weight_g_idx", "I32", &[cols as u64], i32s(group_of.clone()));
        let at = |i: usize| i / cols * (cols / group) + group_of[i % cols] as usize;
        let expected: Vec<f32> = (0..rows * cols)
            .map(|i| (codes[i] - zeros[at(i)]) as f32 * scale[at(i)])
            .collect();
        expect(&sorted, "e.7.weight", 0, &expected);
    }
}

#[test]
fn packed_whole_numbers_by_channel_and_tensor_and_in_the_text_model() {
    let data = bytes(13, 5 * 2 * 4);
    let codes: Vec<i32> = data.chunks(8).flat_map(|r| unpacked(r, 4, 16)).collect();
    let scale = scales(14, 5);
    for (strategy, shape, per_row) in [("channel", vec![5, 1], 1), ("tensor", vec![1], 0)] {
        let n = shape[0] as usize;
        let mut made = Made::new(json!(null))
            .with("a.weight_packed", "I32", &[5, 2], data.clone())
            .with("a.weight_scale", "F32", &shape, f32s(&scale[..n]))
            .with("b.weight", "F32", &[2, 2], f32s(&[1.0, 2.0, 3.0, 4.0]));
        made.config = json!({"text_config": {"quantization_config": packed_config(4, strategy, -1, true)}});
        let expected: Vec<f32> = (0..80)
            .map(|i| (codes[i] - 8) as f32 * scale[i / 16 * per_row])
            .collect();
        expect(&made, "a.weight", 0, &expected);
        // What is plain stays plain.
        expect(&made, "b.weight", 0, &[1.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn four_bit_floats() {
    let (rows, blocks) = (6, 3);
    let data = bytes(15, 2 * rows * blocks * 16);
    let exponents: Vec<u8> = bytes(16, 2 * rows * blocks)
        .iter()
        .map(|b| 100 + b % 40)
        .collect();
    let made = Made::new(json!({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}))
        .with("x.down_proj_blocks", "U8", &[2, 6, 3, 16], data.clone())
        .with("x.down_proj_scales", "U8", &[2, 6, 3], exponents.clone());
    let code = |i: usize| data[i / 2] >> (i % 2 * 4) & 15;
    for matrix in 0..2 {
        let expected: Vec<f32> = (0..rows * 96)
            .map(|i| matrix * rows * 96 + i)
            .map(|i| e2m1(code(i)) * 2.0f32.powi(i32::from(exponents[i / 32]) - 127))
            .collect();
        expect(&made, "x.down_proj", matrix as u64, &expected);
    }
    let codes = finite_codes(17, rows * 6)
        .into_iter()
        .map(|b| b & 0x7f)
        .collect::<Vec<_>>();
    let data = &data[..rows * 48];
    let expected: Vec<f32> = (0..rows * 96)
        .map(|i| (e2m1(code(i)) * e4m3(codes[i / 16])) * 0.25)
        .collect();
    let model_opt = Made::new(json!({"quant_algo": "NVFP4"}))
        .with("a.weight", "U8", &[6, 48], data.to_vec())
        .with("a.weight_scale", "F8_E4M3", &[6, 6], codes.clone())
        .with("a.weight_scale_2", "F32", &[], f32s(&[0.25]))
        .with("a.input_scale", "F32", &[], f32s(&[0.125]));
    expect(&model_opt, "a.weight", 0, &expected);
    let format = json!({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"});
    let inverse = Made::new(format)
        .with("a.weight_packed", "U8", &[6, 48], data.to_vec())
        .with("a.weight_scale", "F8_E4M3", &[6, 6], codes)
        .with("a.weight_global_scale", "F32", &[1], f32s(&[4.0]))
        .with("a.input_global_scale", "F32", &[1], f32s(&[8.0]));
    expect(&inverse, "a.weight", 0, &expected);
    for made in [model_opt, inverse] {
        let (_dir, weights) = made.open();
        let weights = weights.expect("opens");
        assert_eq!(weights.tensors.len(), 1);
        let stored = tensor(&weights, "a.weight").matrix(0);
        let value =
            |s: Option<crate::source::Stored>| s.expect("there").value(&weights.files).expect("readable");
        assert_eq!(
            [value(stored.factor()), value(stored.input_factor())],
            [0.25, 0.125]
        );
    }
}

#[test]
fn gptq() {
    let (inputs, outputs, group) = (96, 48, 32);
    for bits in [2, 4, 8] {
        let per_word = 32 / bits;
        let top = (1 << bits) - 1;
        let q: Vec<i32> = bytes(18, inputs * outputs)
            .iter()
            .map(|b| i32::from(*b) & top)
            .collect();
        let z: Vec<i32> = bytes(19, 3 * outputs)
            .iter()
            .map(|b| i32::from(*b) & top)
            .collect();
        // Words hold neighbours along inputs.
        let columns: Vec<Vec<i32>> = (0..outputs)
            .map(|o| words(&(0..inputs).map(|i| q[i * outputs + o]).collect::<Vec<_>>(), bits))
            .collect();
        let lines = (0..inputs / per_word).flat_map(|w| columns.iter().map(move |c| c[w]));
        let zeros = z.chunks(outputs).flat_map(|line| words(line, bits));
        let (stored, scale) = f16s(&scales(20, 3 * outputs));
        let sorted: Vec<i32> = bytes(21, inputs).iter().map(|b| i32::from(b % 3)).collect();
        let in_order: Vec<i32> = (0..inputs).map(|i| (i / group) as i32).collect();
        let (n_words, n_zeros) = ((inputs / per_word) as u64, (outputs / per_word) as u64);
        for (format, offset) in [(json!(null), 1), (json!("gptq"), 1), (json!("gptq_v2"), 0)] {
            for group_of in [&sorted, &in_order] {
                let config = json!({"quant_method": "gptq", "bits": bits, "group_size": group,
                    "desc_act": true, "checkpoint_format": format});
                let made = Made::new(config)
                    .with(
                        "a.qweight",
                        "I32",
                        &[n_words, outputs as u64],
                        i32s(lines.clone()),
                    )
                    .with("a.qzeros", "I32", &[3, n_zeros], i32s(zeros.clone()))
                    .with("a.scales", "F16", &[3, outputs as u64], stored.clone())
                    .with("a.g_idx", "I32", &[inputs as u64], i32s(group_of.clone()));
                let expected: Vec<f32> = (0..inputs * outputs)
                    .map(|at| (at / inputs, at % inputs))
                    .map(|(o, i)| (q[i * outputs + o], group_of[i] as usize * outputs + o))
                    .map(|(q, at)| scale[at] * (q - z[at] - offset) as f32)
                    .collect();
                expect(&made, "a.weight", 0, &expected);
                if *group_of == in_order {
                    expect(&made.without("a.g_idx"), "a.weight", 0, &expected);
                }
            }
        }
    }
}

#[test]
fn awq() {
    const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
    let (inputs, outputs) = (64, 160);
    let packed = |codes: &[i32]| {
        let word = |eight: &[i32]| words(&ORDER.map(|o| eight[o]), 4)[0];
        codes.chunks(8).map(word).collect::<Vec<_>>()
    };
    let q: Vec<i32> = bytes(22, inputs * outputs)
        .iter()
        .map(|b| i32::from(b % 16))
        .collect();
    let z: Vec<i32> = bytes(23, 2 * outputs).iter().map(|b| i32::from(b % 16)).collect();
    let (stored, scale) = f16s(&scales(24, 2 * outputs));
    let config =
        json!({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": true});
    let made = Made::new(config)
        .with("a.qweight", "I32", &[64, 20], i32s(packed(&q)))
        .with("a.qzeros", "I32", &[2, 20], i32s(packed(&z)))
        .with("a.scales", "F16", &[2, 160], stored);
    let expected: Vec<f32> = (0..inputs * outputs)
        .map(|at| (at / inputs, at % inputs))
        .map(|(o, i)| scale[i / 32 * outputs + o] * (q[i * outputs + o] - z[i / 32 * outputs + o]) as f32)
        .collect();
    expect(&made, "a.weight", 0, &expected);
    // Two tiles of rows, and settings in a file of their own.
    let dir = folder(&[
        ("model.safetensors", made.bytes()),
        (
            "quant_config.json",
            br#"{"w_bit": 4, "q_group_size": 32, "version": "GEMM"}"#.to_vec(),
        ),
    ]);
    let weights = Weights::open(dir.path(), &json!({})).expect("opens");
    assert_eq!(read(&weights, "a.weight", 0), expected);
}

#[test]
fn ternary() {
    let data: Vec<u8> = bytes(25, 3 * 20).iter().map(|b| b & 0b1010_1010).collect();
    let made = Made::new(json!({"quant_method": "bitnet"}))
        .with("a.weight", "U8", &[3, 20], data.clone())
        .with("a.weight_scale", "BF16", &[1], bf16s(&[1.25]).0);
    let expected: Vec<f32> = (0..12 * 20)
        .map(|i| (i / 20, i % 20))
        .map(|(row, col)| data[row % 3 * 20 + col] >> (row / 3 * 2) & 3)
        .map(|code| (f32::from(code) - 1.0) / 1.25)
        .collect();
    expect(&made, "a.weight", 0, &expected);
}
