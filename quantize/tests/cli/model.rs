//! What changes in the model besides its types: layers left out, metadata, and what the output says of how it was made.

use gguf::{GgufFile, Value};

use crate::fixture::*;

fn metadata(f: &Fixture, name: &str) -> gguf::Metadata {
    GgufFile::open(&f.path(name)).unwrap().metadata.clone()
}

/// Four layers, a number of key heads for each, and a matrix with something else for every layer.
fn four_layers(f: &Fixture) {
    let names: Vec<String> = (0..4)
        .flat_map(|i| ["attn_v", "ffn_down"].map(|t| format!("blk.{i}.{t}.weight")))
        .collect();
    let tensors: Vec<(&str, &[u64])> = names.iter().map(|n| (n.as_str(), &[256_u64, 16][..])).collect();
    let pairs = [
        ("general.architecture", Value::from("llama")),
        ("llama.block_count", 4_u32.into()),
        ("llama.attention.head_count", 8_u32.into()),
        ("llama.attention.head_count_kv", vec![1_u32, 2, 4, 8].into()),
    ];
    f.put("four.gguf", &built(&pairs, &tensors));
    let mut m = imatrix(256);
    m.entries = names
        .iter()
        .enumerate()
        .map(|(i, n)| {
            (
                n.clone(),
                entry((0..256).map(|c| ((c + i) % 7) as f32 + 0.5).collect(), &[1]),
            )
        })
        .collect();
    m.write_gguf(&f.path("m"), true, &[]).unwrap();
}

#[test]
fn layers_are_left_out() {
    let f = Fixture::new();
    four_layers(&f);
    succeeds(&f, "--imatrix m four.gguf all Q4_K_M --pure");
    succeeds(&f, "--imatrix m four.gguf two Q4_K_M --pure --prune-layers 2,0");
    let two = GgufFile::open(&f.path("two")).unwrap();
    assert_eq!(two.metadata.uint("llama.block_count").unwrap(), Some(2));
    assert_eq!(
        two.metadata.get("llama.attention.head_count_kv"),
        Some(&vec![2_u32, 8].into())
    );
    let names: Vec<_> = two.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "blk.0.attn_v.weight",
            "blk.0.ffn_down.weight",
            "blk.1.attn_v.weight",
            "blk.1.ffn_down.weight"
        ]
    );
    // The tensors are those of layers 1 and 3 with those layers' importance.
    let all = GgufFile::open(&f.path("all")).unwrap();
    for (new, old) in [(0, 1), (1, 3)] {
        for t in ["attn_v", "ffn_down"] {
            let of = |file: &GgufFile, i: u32| {
                let tensor = file.tensor(&format!("blk.{i}.{t}.weight")).unwrap();
                file.tensor_bytes(tensor).unwrap().into_owned()
            };
            assert!(of(&two, new) == of(&all, old), "{t} {new}");
        }
    }
    // Pruned first and quantized then, the types are the same.
    succeeds(&f, "four.gguf pruned COPY --prune-layers 0,2");
    succeeds(&f, "pruned direct Q4_K_M");
    succeeds(&f, "four.gguf at-once Q4_K_M --prune-layers 0,2");
    let types = |name: &str| {
        let file = GgufFile::open(&f.path(name)).unwrap();
        let all = file.tensors.iter().map(|t| (t.name.clone(), t.type_name()));
        all.collect::<Vec<_>>()
    };
    assert_eq!(types("direct"), types("at-once"));

    f.refuses(
        "four.gguf o Q8_0 --prune-layers 4",
        2,
        &["--prune-layers", "below 4", "found 4"],
    );
    f.refuses(
        "four.gguf o Q8_0 --prune-layers 0,1,2,3",
        2,
        &["leaves none of 4 layers"],
    );
}

#[test]
fn metadata_is_set_on_request() {
    let f = Fixture::new();
    succeeds(
        &f,
        "in.gguf o Q8_0 --override-kv general.name=str:some --override-kv llama.context_length=int:77 --override-kv \
         llama.rope.freq_base=float:1.5 --override-kv a.b=bool:true --override-kv llama.block_count=int:-2",
    );
    let m = metadata(&f, "o");
    assert_eq!(m.get("general.name"), Some(&"some".into()));
    assert_eq!(m.get("llama.context_length"), Some(&Value::U32(77)));
    assert_eq!(m.get("llama.rope.freq_base"), Some(&Value::F32(1.5)));
    assert_eq!(m.get("a.b"), Some(&Value::Bool(true)));
    assert_eq!(m.get("llama.block_count"), Some(&Value::U32(2)));
}

#[test]
fn the_output_says_how_it_was_made_and_names_no_folder() {
    let f = Fixture::new();
    imatrix(256).write_gguf(&f.path("m.gguf"), false, &[]).unwrap();
    f.put("rules", b"attn_v=q8_0");
    let folder = f.path("");
    let folder = folder.to_str().unwrap().trim_end_matches('/');
    let options = format!(
        "--imatrix {folder}/m.gguf --tensor-type up_exps=(nothing)?Q5_K --tensor-type-file {folder}/rules \
         --exclude-weights attn_v --token-embedding-type q6_k --override-kv a.b=int:5"
    )
    .replace("up_exps=(nothing)?Q5_K", "u(p_exps)=q5_k");
    succeeds(&f, &format!("{options} {folder}/in.gguf {folder}/o.gguf Q4_K_M"));
    let m = metadata(&f, "o.gguf");
    let text = |key: &str| m.string(key).unwrap().unwrap_or_default().to_owned();
    assert!(text("quantize.version").starts_with("gguf-quantize "));
    assert_eq!(text("quantize.source.file"), "in.gguf");
    assert_eq!(text("quantize.imatrix.file"), "m.gguf");
    let sha = |name: &str| gguf::digest::Digest::of(&std::fs::read(f.path(name)).unwrap()).to_string();
    assert_eq!(text("quantize.source.sha256"), sha("in.gguf"));
    assert_eq!(text("quantize.imatrix.sha256"), sha("m.gguf"));
    assert_eq!(
        text("quantize.recipe"),
        "Q4_K_M --imatrix m.gguf --exclude-weights attn_v --token-embedding-type Q6_K --tensor-type 'u(p_exps)=Q5_K' \
         --tensor-type attn_v=Q8_0 --override-kv a.b=int:5"
    );
    let bytes = std::fs::read(f.path("o.gguf")).unwrap();
    assert!(!bytes.windows(folder.len()).any(|w| w == folder.as_bytes()));

    // The recipe is enough to make the same file again.
    let recipe = text("quantize.recipe").replace('\'', "");
    succeeds(&f, &format!("in.gguf again.gguf {recipe}"));
    let tensors = |name: &str| {
        let file = GgufFile::open(&f.path(name)).unwrap();
        let all = file.tensors.iter();
        all.map(|t| {
            (
                t.name.clone(),
                t.type_id,
                file.tensor_bytes(t).unwrap().into_owned(),
            )
        })
        .collect::<Vec<_>>()
    };
    assert!(tensors("again.gguf") == tensors("o.gguf"));

    succeeds(&f, "in.gguf plain.gguf Q8_0 --no-source-hash");
    let plain = metadata(&f, "plain.gguf");
    assert!(!plain.contains("quantize.source.sha256") && !plain.contains("quantize.imatrix.file"));
    // What a file says of an earlier run does not survive a new one; a copy keeps what still holds.
    succeeds(&f, "--allow-requantize o.gguf new.gguf Q8_0");
    assert!(!metadata(&f, "new.gguf").contains("quantize.imatrix.file"));
    succeeds(&f, "o.gguf copy.gguf COPY");
    assert!(metadata(&f, "copy.gguf").contains("quantize.imatrix.file"));
}

/// Roles with a say of their own: a tied embedding is the output, routers and norms are left alone.
#[test]
fn tensors_that_matter_more() {
    let f = Fixture::new();
    let pairs = [
        ("general.architecture", Value::from("llama")),
        ("llama.block_count", 1_u32.into()),
    ];
    let tensors: [(&str, &[u64]); 5] = [
        ("token_embd.weight", &[256, 16]),
        ("output_norm.weight", &[256]),
        ("blk.0.ffn_gate_inp.weight", &[256, 8]),
        ("blk.0.attn_k_b.weight", &[128, 16, 4]),
        ("v.patch_embd.weight", &[14, 14, 3, 8]),
    ];
    f.put("tied.gguf", &built(&pairs, &tensors));
    let plan = |tensor: &str| f.planned("tied.gguf o Q4_K_M", tensor);
    assert_eq!(plan("token_embd.weight"), "Q6_K");
    for kept in [
        "output_norm.weight",
        "blk.0.ffn_gate_inp.weight",
        "v.patch_embd.weight",
    ] {
        assert_eq!(plan(kept), "F32", "{kept}");
    }
    assert_eq!(plan("blk.0.attn_k_b.weight"), "Q5_0");
    f.refuses(
        "tied.gguf o Q4_K_M --tensor-type k_b=q4_k",
        1,
        &["`blk.0.attn_k_b.weight`", "128 elements", "types that fit: "],
    );
}

/// COPY keeps everything but what is asked for by name.
#[test]
fn a_copy_with_other_types_for_some() {
    let f = Fixture::new();
    let args = "in.gguf o COPY --tensor-type attn_v=q8_0 --output-tensor-type q6_k";
    assert_eq!(f.planned(args, "blk.1.attn_v.weight"), "Q8_0");
    assert_eq!(f.planned(args, "output.weight"), "Q6_K");
    assert_eq!(f.planned(args, "blk.0.ffn_up_exps.weight"), "F32");
    f.refuses(
        "in.gguf o COPY --tensor-type nothing=q8_0",
        2,
        &["no tensor's name matches"],
    );
}

/// Bytes of a type that this build does not know are copied where nobody asks for its values.
#[test]
fn unknown_types_stop_only_who_needs_their_values() {
    let f = Fixture::new();
    let mut bytes = std::fs::read(f.path("in.gguf")).unwrap();
    // Behind the name stand the number of dimensions, two or three of them, and the type.
    let set_type = |bytes: &mut Vec<u8>, name: &str, n_dims: usize| {
        let at = bytes
            .windows(name.len())
            .position(|w| w == name.as_bytes())
            .unwrap()
            + name.len()
            + 4
            + n_dims * 8;
        bytes[at..at + 4].copy_from_slice(&4242_u32.to_le_bytes());
    };
    set_type(&mut bytes, "output_norm.weight", 1);
    f.put("norm.gguf", &bytes);
    succeeds(&f, "norm.gguf o Q8_0");
    let data = |name: &str| {
        let file = GgufFile::open(&f.path(name)).unwrap();
        let t = file.tensor("output_norm.weight").unwrap();
        (t.type_id, file.tensor_bytes(t).unwrap().into_owned())
    };
    assert!(data("o") == data("norm.gguf") && data("o").0.0 == 4242);
    set_type(&mut bytes, "blk.0.attn_v.weight", 2);
    f.put("v.gguf", &bytes);
    f.refuses(
        "v.gguf x Q8_0 --allow-requantize",
        1,
        &[
            "`blk.0.attn_v.weight`",
            "4242",
            "cannot be decoded to encode it as `Q8_0`",
        ],
    );
    succeeds(&f, "v.gguf same COPY");
}
