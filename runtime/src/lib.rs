//! CPU inference over GGUF files, and the programs over it: `gguf-run`, `gguf-perplexity` and `gguf-bench`.
//!
//! A [`Model`] is a file, mapped, in memory or read by position, bound to the description of its architecture in `gguf-models`. Opening it looks
//! up every tensor that the description expects, checks shapes and types, and reports all that is wrong in one
//! message. Weights are used where they lie in the file: nothing is copied but the norms, and no weight is
//! expanded to f32 as a whole. Integer types are multiplied as integers with activations quantized to 8 bits.
//!
//! A [`Session`] holds what changes while a model runs: the keys and values of one or several sequences and the
//! scratch memory. It evaluates batches of [`Token`]s, each of which names its sequence and position and says
//! whether its logits are wanted. Batches are cut into micro-batches, which bounds the scratch memory; logits
//! are handed out in pieces, so that they never exist for a whole batch. [`Session::plan`] tells the bytes
//! beforehand. An [`Observe`] sees the activations in front of every matrix product; importance matrices are
//! collected that way.
//!
//! A model larger than memory is evaluated by a [`Layered`]: all chunks of a text pass one layer after the other, each
//! weight is read once by a thread that reads ahead, and the hidden states wait in memory or in a temporary file. What
//! comes out is the same bits. [`chunks::Evaluator`] is one or the other. [`BadWeight`] finds the weight behind a number
//! that is not finite.
//!
//! A [`Sampler`] chooses the next token from a row of logits: greedy, or by temperature, top-k, top-p, min-p and
//! penalties, with the same tokens for a seed on every machine. A [`ChatTemplate`] makes of [`Message`]s the text
//! that the model was trained on.
//!
//! ```no_run
//! use gguf_runtime::{Model, Sampler, SamplerSettings, Session, Settings, Token};
//!
//! let model = Model::open("model.gguf".as_ref())?;
//! let tokenizer = model.tokenizer()?;
//! let ids = tokenizer.encode("The council met at the inn.", true, false)?;
//! let last = ids.len() - 1;
//! let token = |(i, &id): (usize, &u32)| Token { id, seq: 0, pos: i as u32, logits: i == last };
//! let batch: Vec<Token> = ids.iter().enumerate().map(token).collect();
//! let logits = Session::new(&model, Settings::default())?.decode(&batch)?;
//! assert_eq!(logits.len(), model.spec().n_vocab);
//! let next = Sampler::new(SamplerSettings::greedy())?.sample(&logits)?;
//! println!("{}", tokenizer.decode(&[next]));
//! # Ok::<(), gguf_runtime::Error>(())
//! ```
//!
//! `examples/generate.rs` continues a text, `examples/observe.rs` looks at the input of every product.
//!
//! A [`Tokenizer`] needs the metadata alone. It reads the four families that files name: BPE behind one of some
//! sixty pre-tokenizers, SPM, UGM and WPM; [`TokenRole`] names what special tokens are for. Ids are those of the
//! reference, and the time is about linear in the text, whatever the text holds.
//!
//! Inside, `forward` interprets the layers of the description: a file in `mixers` for each way to mix
//! positions, `ffn` and `moe` for the feed-forward parts, [`kernels`] for the arithmetic, [`kv`] for the cache.
//! A model made of known parts needs no code here. [`chunks`] cuts texts the way perplexity and importance runs
//! do.
//!
//! All parallel work runs on the threads of the [`pool`] that the caller has entered. Results are the same bits for any
//! number of threads, at any CPU level, in debug and release builds: sums have a fixed order, and the same products are
//! fused. They may differ in the last bits between batches cut differently, no more.
//!
//! Refused, with the name of what is at fault: big-endian files, unknown architectures, tensors that are
//! missing, superfluous, misshapen or of a type without a decoder, vocabularies of an unknown family (BPE, SPM,
//! UGM and WPM are known) or pre-tokenizer, token ids beyond the vocabulary, positions that leave a gap, full
//! contexts, and settings that need more memory than there is. A logit that is not a finite number is
//! never sampled from. There is no server and no GPU.

mod bad_weight;
pub mod bench;
mod bind;
pub mod chat;
pub mod chunks;
mod error;
mod ffn;
mod forward;
pub mod kernels;
pub mod kv;
mod layered;
mod load;
mod memory;
mod mixers;
mod model;
mod moe;
mod observe;
pub mod options;
pub mod perplexity;
pub mod pool;
mod recurrent;
mod routing;
pub mod run;
mod sampler;
mod session;
#[cfg(test)]
#[path = "../../tests/src/skip.rs"]
mod skip;
mod state;
mod tokenizer;

pub use bad_weight::BadWeight;
pub use chat::{ChatTemplate, Interpreter, Message, interpret};
pub use error::{Error, Result};
pub use kv::KvType;
pub use layered::{HiddenStates, LayerStart, LayerStep, LayerWatch, Layered, LayeredOptions};
pub use load::{LoadOptions, LoadWatch, Loaded, Prefetch};
pub use model::Model;
pub use observe::{Input, Observe, Observed};
pub use sampler::{Sampler, SamplerSettings};
pub use session::{Compute, Logits, LogitsSink, MemoryPlan, Session, Settings, Token};
pub use tokenizer::{TokenRole, Tokenizer};
