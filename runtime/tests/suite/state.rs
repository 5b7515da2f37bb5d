//! Sequences that are saved, loaded, copied and cut; types of the cache.

use crate::common::{Random, Tiny, relative_l2};
use gguf_runtime::{Error, KvType, Model, Session, Settings, Token};

fn batch(ids: &[u32], first: usize, seq: u32) -> Vec<Token> {
    let tokens = ids.iter().enumerate().skip(first);
    tokens
        .map(|(pos, &id)| Token {
            id,
            seq,
            pos: pos as u32,
            logits: true,
        })
        .collect()
}

fn ids(n: usize) -> Vec<u32> {
    let mut r = Random(11);
    (0..n).map(|_| (r.next().abs() * 250.0) as u32).collect()
}

fn settings(type_k: KvType, type_v: KvType) -> Settings {
    Settings {
        n_ctx: 40,
        n_seq: 2,
        type_k,
        type_v,
        ..Settings::default()
    }
}

/// The tiny model with heads of 32 elements, so that types of blocks fit.
fn wide() -> Tiny {
    let mut tiny = Tiny::new();
    for key in ["key_length", "value_length"] {
        tiny.metadata
            .set(format!("qwen3moe.attention.{key}"), gguf::Value::U32(32));
    }
    let mut r = Random(5);
    for (name, shape, values) in &mut tiny.tensors {
        let which = name.split('.').nth(2).unwrap_or_default();
        match which {
            "attn_q" | "attn_k" | "attn_v" => shape[1] *= 2,
            "attn_output" | "attn_q_norm" | "attn_k_norm" => shape[0] *= 2,
            _ => continue,
        }
        let more = r.values(values.len(), 0.2);
        let norm = which.ends_with("norm");
        values.extend(more.into_iter().map(|v| if norm { 1.0 + v } else { v }));
    }
    tiny
}

#[test]
fn a_saved_sequence_goes_on_as_if_never_stopped() {
    let model = Model::bind(wide().file()).unwrap();
    let ids = ids(30);
    for (k, v) in [(KvType::F16, KvType::F32), (KvType::Q8_0, KvType::Bf16)] {
        let mut one = Session::new(&model, settings(k, v)).unwrap();
        one.decode(&batch(&ids[..21], 0, 1)).unwrap();
        let mut bytes = Vec::new();
        one.save_state(1, &mut bytes).unwrap();
        let expected = one.decode(&batch(&ids, 21, 1)).unwrap();

        let mut other = Session::new(&model, settings(k, v)).unwrap();
        // Something that is to be replaced, and something behind the state that is not to be read.
        other.decode(&batch(&ids[3..9], 0, 0)).unwrap();
        let saved = bytes.len();
        bytes.extend_from_slice(b"more");
        let mut from = &bytes[..];
        other.load_state(0, &mut from).unwrap();
        assert_eq!(from, b"more");
        assert_eq!((other.n_past(0), other.n_past(1)), (21, 0));
        assert_eq!(other.decode(&batch(&ids, 21, 0)).unwrap(), expected);

        let mut again = Vec::new();
        other.truncate(0, 21);
        other.save_state(0, &mut again).unwrap();
        assert!(again == bytes[..saved], "the same state has the same bytes");
    }
}

#[test]
fn states_that_do_not_fit_are_refused_and_leave_the_sequence_empty() {
    let model = Model::bind(wide().file()).unwrap();
    let types = settings(KvType::F16, KvType::F16);
    let mut s = Session::new(&model, types).unwrap();
    s.decode(&batch(&ids(19), 0, 0)).unwrap();
    let mut good = Vec::new();
    s.save_state(0, &mut good).unwrap();

    let refuse = |model: &Model, settings: Settings, bytes: &[u8]| {
        let mut s = Session::new(model, settings).unwrap();
        s.decode(&batch(&ids(4), 0, 1)).unwrap();
        let text = s.load_state(1, &mut &bytes[..]).unwrap_err().to_string();
        assert_eq!(s.n_past(1), 0, "{text}");
        s.decode(&batch(&ids(4), 0, 1)).unwrap();
        text
    };
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let end = good.len();
    assert!(refuse(&model, types, &flipped(0)).contains("expected `GGUFSEQ`"));
    assert!(refuse(&model, types, &flipped(8)).contains("expected version 1, found 0"));
    assert!(refuse(&model, types, &flipped(12)).contains("not written with the model"));
    for at in [300, end - 40, end - 1] {
        assert!(refuse(&model, types, &flipped(at)).contains("damaged"));
    }
    for n in [0, 7, 50, 100, end - 33, end - 1] {
        assert!(
            refuse(&model, types, &good[..n]).contains("ends too early"),
            "{n}"
        );
    }
    let text = refuse(&model, settings(KvType::Q8_0, KvType::F16), &good);
    assert!(
        text.contains("(`-ctk`) in the cache of layer 0: expected Q8_0, found F16"),
        "{text}"
    );
    let text = refuse(&model, settings(KvType::F16, KvType::F32), &good);
    assert!(
        text.contains("(`-ctv`) in the cache of layer 0: expected F32, found F16"),
        "{text}"
    );
    let short = Settings { n_ctx: 18, ..types };
    let text = refuse(&model, short, &good);
    assert!(
        text.contains("at most the 18 positions of the context, found 19"),
        "{text}"
    );
    let mut other = wide();
    other.tensor_mut("blk.1.attn_k.weight").2[0] += 0.5;
    let other = Model::bind(other.file()).unwrap();
    assert!(refuse(&other, types, &good).contains("not written with the model `tiny.gguf`"));
    let e = s.save_state(2, &mut Vec::new()).unwrap_err();
    assert!(
        e.to_string().contains("expected a sequence below 2, found 2"),
        "{e}"
    );
}

#[test]
fn a_prefix_can_be_shared() {
    let model = Model::bind(wide().file()).unwrap();
    let ids = ids(30);
    let mut s = Session::new(&model, settings(KvType::F16, KvType::Q4_0)).unwrap();
    s.decode(&batch(&ids[..20], 0, 0)).unwrap();
    assert_eq!(s.copy_sequence(0, 1, 13), 13);
    assert_eq!((s.n_past(0), s.n_past(1)), (20, 13));
    let copied = s.decode(&batch(&ids, 13, 1)).unwrap();
    assert_eq!(s.truncate(0, 13), 13);
    assert_eq!(s.decode(&batch(&ids, 13, 0)).unwrap(), copied);
    assert_eq!(s.copy_sequence(0, 1, 100), 30);
    assert_eq!(s.copy_sequence(1, 0, 0), 0);
}

#[test]
fn types_of_the_cache_change_logits_by_their_precision() {
    let model = Model::bind(wide().file()).unwrap();
    let batch = batch(&ids(40), 0, 0);
    let run = |k, v| {
        Session::new(&model, settings(k, v))
            .unwrap()
            .decode(&batch)
            .unwrap()
    };
    let exact = run(KvType::F32, KvType::F32);
    for (k, v, bound) in [
        (KvType::F16, KvType::F16, 1e-3),
        (KvType::Bf16, KvType::F16, 5e-3),
        (KvType::Q8_0, KvType::Q8_0, 0.01),
        (KvType::Q8_0, KvType::Q4_0, 0.1),
        (KvType::Q4_0, KvType::F32, 0.1),
    ] {
        let error = relative_l2(&run(k, v), &exact);
        assert!(error > 0.0 && error < bound, "{k} {v}: {error}");
    }
}

#[test]
fn types_that_do_not_divide_a_head_are_refused() {
    let model = Model::bind(Tiny::new().file()).unwrap();
    let refuse = |k, v| {
        let e = Session::new(&model, settings(k, v)).unwrap_err();
        assert!(matches!(e, Error::Settings(_)));
        e.to_string()
    };
    assert_eq!(
        refuse(KvType::F16, KvType::Q8_0),
        "`-ctv q8_0`: expected heads of whole blocks of 32 elements, found values of 16 in layer 0; use `-ctv f16`"
    );
    assert!(refuse(KvType::Q4_0, KvType::F16).contains("`-ctk q4_0`"));
}
