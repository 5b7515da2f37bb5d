//! Logits against definitions and against the checkpoint's own, however a batch is cut.

use crate::common::{N_EMBD, N_EXPERT, N_USED, Random, Tiny, data, in_f32, relative_l2, shared};
use crate::naive::Naive;
use gguf_blocks::Cpu;
use gguf_runtime::{Error, Input, Model, Observe, Session, Settings, Token};

fn token(id: u32, seq: u32, pos: usize) -> Token {
    Token {
        id,
        seq,
        pos: pos as u32,
        logits: true,
    }
}

fn sequence(ids: &[u32]) -> Vec<Token> {
    ids.iter()
        .enumerate()
        .map(|(pos, &id)| token(id, 0, pos))
        .collect()
}

fn session(model: &Model, n_ctx: usize, n_seq: usize, n_ubatch: usize) -> Session<'_> {
    Session::new(
        model,
        Settings {
            n_ctx,
            n_seq,
            n_ubatch,
            ..Settings::default()
        },
    )
    .unwrap()
}

fn random_ids(n: usize, n_vocab: usize) -> Vec<u32> {
    let mut r = Random(3);
    (0..n)
        .map(|_| (r.next().abs() * n_vocab as f32) as u32 % n_vocab as u32)
        .collect()
}

#[test]
fn logits_match_the_definition() {
    let tiny = Tiny::new();
    let model = Model::bind(tiny.file()).unwrap();
    let ids = random_ids(23, tiny.n_vocab());
    let found = session(&model, 32, 1, 32).decode(&sequence(&ids)).unwrap();
    let error = relative_l2(&found, &Naive::new(&model).logits(&ids));
    assert!(error < 1e-3, "{error}");
}

#[test]
fn a_batch_can_be_cut_anywhere() {
    let tiny = Tiny::new();
    let model = Model::bind(tiny.file()).unwrap();
    let ids = random_ids(40, tiny.n_vocab());
    let whole = session(&model, 40, 1, 64).decode(&sequence(&ids)).unwrap();
    for n_ubatch in [1, 7, 39] {
        let pieces = session(&model, 40, 1, n_ubatch).decode(&sequence(&ids)).unwrap();
        let error = relative_l2(&pieces, &whole);
        assert!(error < 1e-5, "ubatch {n_ubatch}: {error}");
    }
    let mut one_by_one = session(&model, 40, 1, 64);
    let rows: Vec<f32> = sequence(&ids)
        .iter()
        .flat_map(|&t| one_by_one.decode(&[t]).unwrap())
        .collect();
    assert!(relative_l2(&rows, &whole) < 1e-5);
}

#[test]
fn sequences_do_not_see_each_other() {
    let tiny = Tiny::new();
    let model = Model::bind(tiny.file()).unwrap();
    let ids = random_ids(36, tiny.n_vocab());
    let parts = [&ids[..14], &ids[14..20], &ids[20..]];
    let mut batch = Vec::new();
    for pos in 0..16 {
        for (seq, part) in parts.iter().enumerate().filter(|(_, part)| pos < part.len()) {
            batch.push(token(part[pos], seq as u32, pos));
        }
    }
    let n_vocab = tiny.n_vocab();
    let together = session(&model, 16, 3, 5).decode(&batch).unwrap();
    for (seq, part) in parts.iter().enumerate() {
        let alone = session(&model, 16, 1, 16).decode(&sequence(part)).unwrap();
        let rows = batch
            .iter()
            .zip(together.chunks(n_vocab))
            .filter(|(t, _)| t.seq == seq as u32);
        let mine: Vec<f32> = rows.flat_map(|(_, row)| row.to_vec()).collect();
        assert!(relative_l2(&mine, &alone) < 1e-5, "sequence {seq}");
    }
}

#[test]
fn only_the_wanted_rows_come_and_they_are_the_same() {
    let tiny = Tiny::new();
    let model = Model::bind(tiny.file()).unwrap();
    let mut batch = sequence(&random_ids(20, tiny.n_vocab()));
    let all = session(&model, 20, 1, 8).decode(&batch).unwrap();
    for t in &mut batch {
        t.logits = t.pos % 3 == 1;
    }
    let n_vocab = tiny.n_vocab();
    let mut indices = Vec::new();
    session(&model, 20, 1, 8)
        .decode_with(&batch, None, &mut |l| {
            for (&i, row) in l.index.iter().zip(l.rows.chunks(l.n_vocab)) {
                assert!(relative_l2(row, &all[i * n_vocab..][..n_vocab]) < 1e-6);
                indices.push(i);
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(indices, (0..20).filter(|i| i % 3 == 1).collect::<Vec<_>>());
}

#[test]
fn truncating_and_clearing_go_back() {
    let tiny = Tiny::new();
    let model = Model::bind(tiny.file()).unwrap();
    let ids = random_ids(12, tiny.n_vocab());
    let batch = sequence(&ids);
    let mut s = session(&model, 12, 1, 12);
    let first = s.decode(&batch).unwrap();
    assert_eq!(s.truncate(0, 7), 7);
    assert_eq!(s.n_past(0), 7);
    let again = s.decode(&batch[7..]).unwrap();
    assert!(relative_l2(&again, &first[7 * tiny.n_vocab()..]) < 1e-5);
    s.clear();
    assert_eq!(s.decode(&batch).unwrap(), first);
}

#[test]
fn bits_do_not_depend_on_threads_or_level() {
    for matrix_type in ["F32", "BF16", "Q8_0", "Q4_0"] {
        let tiny = Tiny {
            matrix_type,
            ..Tiny::new()
        };
        let model = Model::bind(tiny.file()).unwrap();
        let batch = sequence(&random_ids(30, tiny.n_vocab()));
        let run = |n_threads: usize, cpu: Cpu| {
            let pool =
                gguf_runtime::pool::Pool::new(&gguf_runtime::pool::PoolOptions::threads(n_threads)).unwrap();
            let settings = Settings {
                n_ctx: 30,
                n_ubatch: 30,
                cpu,
                ..Settings::default()
            };
            pool.enter(|| Session::new(&model, settings).unwrap().decode(&batch).unwrap())
        };
        let expected = run(1, Cpu::best());
        assert_eq!(run(3, Cpu::best()), expected, "{matrix_type}");
        for cpu in Cpu::available() {
            assert_eq!(run(2, cpu), expected, "{matrix_type} at {}", cpu.level().name());
        }
    }
}

#[test]
fn tied_embeddings_are_the_output() {
    let mut tiny = Tiny::new();
    let embd = tiny.tensor("token_embd.weight").2.clone();
    tiny.tensor_mut("output.weight").2 = embd;
    let ids = random_ids(9, tiny.n_vocab());
    let expected = Naive::new(&Model::bind(tiny.file()).unwrap()).logits(&ids);
    tiny.tensors.retain(|t| t.0 != "output.weight");
    let model = Model::bind(tiny.file()).unwrap();
    let found = session(&model, 9, 1, 9).decode(&sequence(&ids)).unwrap();
    assert!(relative_l2(&found, &expected) < 1e-3);
}

/// Counts what it sees.
#[derive(Default)]
struct Seen {
    names: Vec<String>,
    products: Vec<usize>,
}

impl Observe for Seen {
    fn input(&mut self, tensor: &str, input: Input<'_>) {
        self.products.push(input.n_products());
        if let Input::Experts {
            rows,
            n_cols,
            source,
            group_starts,
            tokens,
        } = input
        {
            assert_eq!(group_starts.len(), N_EXPERT + 1);
            assert_eq!(group_starts[N_EXPERT], source.len());
            assert!(source.iter().all(|&s| (s as usize) < rows.len() / n_cols));
            let group = |w: &[usize]| tokens[w[0]..w[1]].is_sorted();
            assert!(
                group_starts.windows(2).all(group),
                "tokens of an expert are in order"
            );
        }
        self.names.push(tensor.to_owned());
    }
}

#[test]
fn observers_see_every_product_and_change_nothing() {
    let tiny = Tiny::new();
    let model = Model::bind(tiny.file()).unwrap();
    let mut batch = sequence(&random_ids(11, tiny.n_vocab()));
    for t in &mut batch {
        t.logits = t.pos > 5;
    }
    let expected = session(&model, 11, 1, 11).decode(&batch).unwrap();
    let (mut seen, mut found) = (Seen::default(), Vec::new());
    session(&model, 11, 1, 11)
        .decode_with(&batch, Some(&mut seen), &mut |l| {
            found.extend_from_slice(l.rows);
            Ok(())
        })
        .unwrap();
    assert_eq!(found, expected);
    let layer = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp"];
    let experts = ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"];
    let names = (0..2).flat_map(|i| {
        layer
            .iter()
            .chain(&experts)
            .map(move |n| format!("blk.{i}.{n}.weight"))
    });
    let names: Vec<String> = names.chain(["output.weight".to_owned()]).collect();
    assert_eq!(seen.names, names);
    let pairs = 11 * N_USED;
    let products = [[11; 5].as_slice(), &[pairs; 3], &[11; 5], &[pairs; 3], &[5]].concat();
    assert_eq!(seen.products, products);
}

#[test]
fn bad_batches_are_refused_and_change_nothing() {
    let tiny = Tiny::new();
    let n_vocab = tiny.n_vocab();
    let model = Model::bind(tiny.file()).unwrap();
    let mut s = session(&model, 4, 2, 4);
    s.decode(&sequence(&[1, 2])).unwrap();
    let mut refuse = |t: Token| s.decode(&[token(1, 1, 0), t]).unwrap_err();
    let e = refuse(token(n_vocab as u32, 0, 2));
    assert!(matches!(e, Error::TokenId { index: 1, .. }), "{e}");
    assert!(matches!(
        refuse(token(0, 2, 0)),
        Error::Sequence { seq: 2, n_seq: 2, .. }
    ));
    assert!(matches!(
        refuse(token(0, 0, 3)),
        Error::Position {
            expected: 2,
            found: 3,
            ..
        }
    ));
    let long = [token(0, 0, 2), token(0, 0, 3), token(0, 0, 4)];
    assert!(matches!(
        s.decode(&long),
        Err(Error::ContextFull { seq: 0, n_ctx: 4 })
    ));
    assert_eq!((s.n_past(0), s.n_past(1)), (2, 0));
    s.decode(&long[..2]).unwrap();
}

#[test]
fn settings_without_sense_or_memory_are_refused() {
    let model = Model::bind(Tiny::new().file()).unwrap();
    let refuse = |s: Settings| Session::new(&model, s).unwrap_err().to_string();
    let base = Settings::default();
    assert!(refuse(Settings { n_ctx: 0, ..base }).contains("context: expected 1"));
    assert!(refuse(Settings { n_ubatch: 0, ..base }).contains("ubatch: expected 1"));
    let huge = Settings {
        n_ctx: 1 << 30,
        n_seq: 1 << 30,
        ..base
    };
    assert!(refuse(huge).contains("memory"));
    let plan = Session::plan(&model, &base).unwrap();
    // Keys and values of a position: 2 layers of 2 heads of 16 elements in 2 bytes.
    assert_eq!(plan.kv, 512 * 2 * 2 * 2 * 16 * 2);
    assert!(plan.scratch > 512 * N_EMBD as u64 * 4);
}

#[test]
fn the_trained_model_has_its_checkpoint_s_logits() {
    let Some(path) = shared("golden/quantize/qwen3moe-bf16.gguf") else {
        return;
    };
    let golden = std::fs::read(data("golden/qwen3moe-logits.safetensors")).unwrap();
    let golden = safetensors::SafeTensors::deserialize(&golden).unwrap();
    let ids: Vec<u32> = {
        let t = golden.tensor("input_ids").unwrap();
        let size = t.data().len() / t.shape().iter().product::<usize>();
        t.data()
            .chunks_exact(size)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect()
    };
    let logits = golden.tensor("logits").unwrap();
    let expected: Vec<f32> = logits
        .data()
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    // In front of BF16 weights activations would be rounded.
    let model = Model::bind(in_f32(&path)).unwrap();
    let mut naive = Naive::new(&model);
    let exact = naive.logits(&ids);
    // The checkpoint's logits come from a model that had been BF16 as a whole: its frequencies are rounded.
    for f in &mut naive.frequencies {
        *f = half::bf16::from_f64(*f).to_f64();
    }
    let definition = relative_l2(&naive.logits(&ids), &expected);
    assert!(definition < 1e-6, "the definition itself: {definition}");

    let found = session(&model, ids.len(), 1, 512)
        .decode(&sequence(&ids))
        .unwrap();
    let error = relative_l2(&found, &exact);
    println!("relative L2 error of {} rows of logits: {error:.2e}", ids.len());
    assert!(error < 1e-4, "{error}");
    for n_ubatch in [37, 1] {
        let pieces = session(&model, ids.len(), 1, n_ubatch)
            .decode(&sequence(&ids))
            .unwrap();
        let error = relative_l2(&pieces, &found);
        assert!(error < 1e-5, "ubatch {n_ubatch}: {error}");
    }
}
