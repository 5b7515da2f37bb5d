//! Models with any metadata, and states of sequences.

use std::sync::OnceLock;

use gguf::GgufFile;
use gguf_blocks::{TypeId, registry};
use gguf_models::hparams::MAX_STATE_SIZE;
use gguf_runtime::{Compute, KvType, Model, Session, Settings, Token};
use sha2::{Digest, Sha256};

use super::container::parse;
use crate::workspace;

/// Bytes of a model's data at most; more only takes time.
const MOST_DATA: u64 = 4 << 20;
/// Tokens of a context.
const N_CTX: usize = 6;

/// Loads any bytes as a model, whose data are made up where the input does not have them, and computes the logits of a few
/// tokens.
pub(super) fn model(data: &[u8]) {
    let Some(file) = with_data(data) else {
        return;
    };
    if let Ok(tokenizer) = gguf_runtime::Tokenizer::from_metadata(&file.metadata) {
        let _refused = gguf_runtime::ChatTemplate::from_metadata(
            &file.metadata,
            None,
            &tokenizer,
            gguf_runtime::Interpreter::Here,
        );
    }
    let Ok(model) = Model::bind(file) else {
        return;
    };
    // The last byte is padding or weights.
    let pick = data.last().copied().unwrap_or_default();
    let compute = if pick % 2 == 1 {
        Compute::F32
    } else {
        Compute::Fast
    };
    let Some(mut session) = session(&model, compute, pick / 2) else {
        return;
    };
    let n_vocab = model.spec().n_vocab;
    for tokens in [&[0, 1, 2][..], &[3]] {
        let batch: Vec<Token> = tokens.iter().map(|&pos| token(pos, n_vocab)).collect();
        let logits = session.decode(&batch).expect("a sound batch");
        assert_eq!(logits.len(), n_vocab * batch.len());
    }
}

fn token(pos: u32, n_vocab: usize) -> Token {
    Token {
        id: (pos * 7) % n_vocab as u32,
        seq: 0,
        pos,
        logits: true,
    }
}

/// A session for a few tokens, unless the model needs more memory than that is worth. `pick` says which types the keys and
/// values have in its cache: F16 with 0, and where heads are no whole blocks of one that it picks.
fn session(model: &Model, compute: Compute, pick: u8) -> Option<Session<'_>> {
    let nth = |i: u8| KvType::ALL.into_iter().cycle().skip(1).nth(usize::from(i));
    let settings = |pick: u8| Settings {
        n_ctx: N_CTX,
        n_ubatch: 2,
        type_k: nth(pick % 5).expect("types without end"),
        type_v: nth(pick / 5).expect("types without end"),
        compute,
        ..Settings::default()
    };
    let picks = [pick, pick % 5, pick - pick % 5, 0];
    let planned = |pick| Some((settings(pick), Session::plan(model, &settings(pick)).ok()?));
    let (settings, plan) = picks.into_iter().find_map(planned)?;
    // A model's layers and widths are those of its tensors: so is what a token takes.
    let bytes: u64 = model.file().parts().iter().map(|p| p.source().len()).sum();
    let most = (64 << 20) + bytes * 16;
    // A state has up to `MAX_STATE_SIZE` numbers for each row of the matrices of values, which take 4 bytes at least.
    let most_kv = most + bytes * MAX_STATE_SIZE as u64;
    assert!(
        plan.kv <= most_kv && plan.scratch <= most,
        "{plan:?} for a file of {bytes} bytes"
    );
    if plan.kv > most {
        return None;
    }
    Session::new(model, settings).ok()
}

/// The file with data for its tensors, if that is not too much.
fn with_data(head: &[u8]) -> Option<GgufFile> {
    let file = parse(head.to_vec()).ok()?;
    let end = file.tensors.iter().map(|t| file.tensor_range(t).end).max()?;
    if end > MOST_DATA + head.len() as u64 {
        return None;
    }
    let mut bytes = head.to_vec();
    bytes.resize(bytes.len().max(end as usize), 0);
    for tensor in &file.tensors {
        let range = file.tensor_range(tensor);
        let range = range.start.max(head.len() as u64) as usize..range.end as usize;
        if !range.is_empty() {
            let pattern = pattern(tensor.type_id);
            let n = range.len();
            bytes[range].copy_from_slice(&pattern[..n]);
        }
    }
    parse(bytes).ok()
}

/// Made-up numbers of a tensor type: moderate ones where it is one of floats.
fn pattern(id: TypeId) -> &'static [u8] {
    static ALL: OnceLock<[Vec<u8>; 3]> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let n = MOST_DATA as usize + (1 << 16);
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u32
        });
        let random: Vec<u32> = words.take(n / 4).collect();
        let unit = |w: &u32| (*w >> 8) as f32 / (1 << 23) as f32 - 1.0;
        [
            random.iter().flat_map(|w| w.to_le_bytes()).collect(),
            random
                .iter()
                .flat_map(|w| (unit(w) * 0.25).to_le_bytes())
                .collect(),
            // Small numbers in both forms of 16 bits.
            random
                .iter()
                .flat_map(|w| w.to_le_bytes().map(|byte| byte & 0x3B))
                .collect(),
        ]
    });
    match registry::by_id(id).map(|f| f.name) {
        Some("F32") => &all[1],
        Some("F16" | "BF16") => &all[2],
        _ => &all[0],
    }
}

/// Any bytes as the state of a sequence, once as they are and once with the digest that they should have; then one token
/// more. The first byte picks the model and the types of its cache.
pub(super) fn state(data: &[u8]) {
    let Some((pick, state)) = data.split_first() else {
        return;
    };
    let (model, mut session) = picked(*pick);
    let mut sealed = state.to_vec();
    if let Some((body, digest)) = sealed.split_last_chunk_mut::<32>() {
        *digest = Sha256::digest(body).into();
    }
    for bytes in [state, &sealed] {
        if session.load_state(0, &mut &bytes[..]).is_err() {
            assert_eq!(session.n_past(0), 0);
        }
        let n_past = session.n_past(0);
        assert!(n_past <= N_CTX);
        if n_past < N_CTX {
            let next = token(n_past as u32, model.spec().n_vocab);
            session.decode(&[next]).expect("a sound batch");
        }
    }
}

/// Models whose states are tried: with keys and values, with latent vectors, with recurrent states, with heads of whole
/// blocks.
pub(super) const STATES: [&str; 4] = ["llama-2", "deepseek-v2-lite", "qwen3next", "llama-wide"];

fn models() -> &'static [Model] {
    static MODELS: OnceLock<Vec<Model>> = OnceLock::new();
    MODELS.get_or_init(|| STATES.map(tiny).into())
}

/// A tiny model of the corpus.
fn tiny(name: &str) -> Model {
    let path = workspace().join("tests/fuzz/corpus/model").join(name);
    let head = std::fs::read(path).expect("the corpus has this model");
    Model::bind(with_data(&head).expect("it is small")).expect("it is sound")
}

/// One of the models and a session with one of the types of caches.
fn picked(pick: u8) -> (&'static Model, Session<'static>) {
    let models = models();
    let n = models.len() as u8;
    let model = &models[usize::from(pick % n)];
    (
        model,
        session(model, Compute::Fast, pick / n).expect("a small model"),
    )
}

/// The state of a model's sequence, for the corpus.
pub(super) fn seed_of_state(pick: u8) -> Vec<u8> {
    let (model, mut session) = picked(pick);
    let batch = [0, 1].map(|pos| token(pos, model.spec().n_vocab));
    session.decode(&batch).expect("a sound batch");
    let mut out = vec![pick];
    session.save_state(0, &mut out).expect("memory takes it");
    out
}

/// Whether a tiny model can be made of a head.
pub(super) fn is_model(head: &[u8]) -> bool {
    let model = with_data(head).map(Model::bind);
    model.is_some_and(|m| m.is_ok_and(|m| session(&m, Compute::Fast, 0).is_some()))
}
