//! Ways to have a model's bytes, and memory while a model runs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::allocations;
use crate::common::{Tiny, write};
use gguf::{GgufFile, split};
use gguf_runtime::options::LoadArgs;
use gguf_runtime::{LoadOptions, Model, Prefetch, Session, Settings, Token};

fn batch(n: usize) -> Vec<Token> {
    (0..n as u32)
        .map(|pos| Token {
            id: pos * 3 % 200,
            seq: 0,
            pos,
            logits: true,
        })
        .collect()
}

fn logits(model: &Model) -> Vec<f32> {
    let settings = Settings {
        n_ctx: 16,
        ..Settings::default()
    };
    Session::new(model, settings).unwrap().decode(&batch(16)).unwrap()
}

/// A model in one file and the first shard of the same in several.
fn files(folder: &Path) -> [PathBuf; 2] {
    let whole = folder.join("whole.gguf");
    Tiny::new().write(&whole);
    let file = GgufFile::open(&whole).unwrap();
    let shards = split::plan(&file, split::Limits::Tensors(7), false).unwrap();
    let paths = split::write(&file, &shards, &folder.join("set"), false, &mut |_| Ok(())).unwrap();
    assert!(paths.len() > 2);
    [whole, paths[0].clone()]
}

#[test]
fn however_the_bytes_are_had_logits_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mapped = LoadOptions::default();
    let files = files(folder.path());
    let expected = logits(&Model::open(&files[0]).unwrap());
    for path in &files {
        for options in [
            mapped,
            LoadOptions {
                mmap: false,
                ..mapped
            },
            LoadOptions {
                prefetch: Prefetch::Background,
                ..mapped
            },
        ] {
            let model = Model::open_with(path, options).unwrap();
            assert!(logits(&model) == expected, "{options:?}");
        }
        let args = LoadArgs {
            no_mmap: true,
            ..LoadArgs::default()
        };
        assert!(logits(&args.open(path, true).unwrap()) == expected);
    }
}

#[test]
fn all_bytes_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    for path in files(folder.path()) {
        let file = GgufFile::open(&path).unwrap();
        let all: u64 = file.parts().iter().map(|p| p.source().len()).sum();
        let tensors: u64 = file.tensors.iter().map(|t| t.n_bytes).sum();
        for (mmap, expected) in [(false, all), (true, tensors)] {
            let options = LoadOptions {
                mmap,
                mlock: false,
                prefetch: Prefetch::Background,
            };
            let told = Arc::new(AtomicU64::new(0));
            let (done, through) = std::sync::mpsc::channel();
            let (told_of, done) = (Arc::clone(&told), Mutex::new(done));
            let model = Model::open_watched(
                &path,
                options,
                Arc::new(move |loaded| {
                    assert_eq!(loaded.total, expected);
                    if told_of.fetch_add(loaded.piece, Ordering::Relaxed) + loaded.piece == expected {
                        done.lock().unwrap().send(()).unwrap();
                    }
                }),
            );
            let model = model.unwrap();
            through.recv().unwrap();
            assert_eq!(told.load(Ordering::Relaxed), expected);
            drop(model);
        }
    }
}

#[test]
fn a_file_that_is_too_short_is_refused_in_every_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.gguf");
    let bytes = Tiny::new().bytes();
    write(&path, &bytes[..bytes.len() - 100]);
    for (mmap, mlock) in [(true, false), (false, false), (true, true)] {
        let options = LoadOptions {
            mmap,
            mlock,
            ..LoadOptions::default()
        };
        let text = Model::open_with(&path, options).unwrap_err().to_string();
        assert!(
            text.contains("short.gguf") && text.contains("blk.1.ffn_down_exps"),
            "{text}"
        );
    }
}

#[test]
fn locked_bytes_are_the_same_or_the_limit_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.gguf");
    Tiny::new().write(&path);
    for mmap in [true, false] {
        let options = LoadOptions {
            mmap,
            mlock: true,
            ..LoadOptions::default()
        };
        match Model::open_with(&path, options) {
            Ok(model) => assert!(logits(&model) == logits(&Model::open(&path).unwrap())),
            Err(e) => {
                let text = e.to_string();
                assert!(
                    text.contains("cannot lock") && text.contains("ulimit -l"),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn tokens_behind_the_first_take_no_memory() {
    for matrix_type in ["F32", "Q8_0"] {
        let tiny = Tiny {
            matrix_type,
            ..Tiny::new()
        };
        let model = Model::bind(tiny.file()).unwrap();
        let batch = batch(120);
        for n_threads in [1, 2] {
            let pool = allocations::counted_pool(n_threads);
            let n = pool.enter(|| {
                let settings = Settings {
                    n_ctx: 120,
                    n_ubatch: 8,
                    ..Settings::default()
                };
                let mut session = Session::new(&model, settings).unwrap();
                let mut sum = 0.0;
                let mut step = |tokens: &[Token]| {
                    session
                        .decode_with(tokens, None, &mut |logits| {
                            sum += logits.rows[0];
                            Ok(())
                        })
                        .unwrap();
                };
                step(&batch[..8]);
                let mut before = allocations::count();
                assert!(before > 0, "the first tokens took memory");
                // A thread makes its buffers when it first gets work, which can be late on a busy machine.
                let (mut quiet, mut longest) = (0, 0);
                for token in batch[8..].chunks(1) {
                    step(token);
                    let now = allocations::count();
                    quiet = if now == before { quiet + 1 } else { 0 };
                    longest = longest.max(quiet);
                    before = now;
                }
                longest
            });
            assert!(n >= 20, "{matrix_type}, {n_threads} threads: {n} tokens");
        }
    }
}
