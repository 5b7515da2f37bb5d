//! What a model is, apart from its numbers: architecture descriptions shared by convert, quantize, imatrix,
//! inspect and the runtime.
//!
//! An [`Architecture`](arch::Architecture) is one file of plain data under `arch/`. It says
//!
//! - which **hyper-parameters** a model has: rows of [`hparams::Row`], each with the key in GGUF metadata, where a
//!   Hugging Face `config.json` has the value or how it is computed from that, the type and the range. The order of
//!   the rows is the order in which a converter writes the keys. [`HParams::from_gguf`] reads them back and checks
//!   every value, so what is computed from them afterwards cannot overflow or divide by zero;
//! - which **other keys** must have values that change nothing ([`effects::check`]): a runtime that passes them
//!   over would compute another model;
//! - which **settings of a checkpoint** must have one fixed value ([`hf::Fixed`]): what the description does not
//!   cover is refused by name, never ignored;
//! - which **tensors** it has and how large they are ([`arch::TensorExpectation`]); [`check()`] compares a file
//!   with that and lists every difference. A tensor is known by its [`Role`] and [`Part`], which [`names`] turns into
//!   the GGUF name and back;
//! - how a checkpoint's tensors become GGUF tensors: rules of [`hf::TensorRule`], a name pattern and the
//!   [`hf::Piece`]s that are made of it: which rows and columns, transposed or not, with which operation. What is left
//!   out has a reason, [`hf::Skip`];
//! - the **forward pass** as a [`spec::ModelSpec`], plain data that the runtime interprets.
//!
//! Beside that the crate has tables that all programs share: [`component`], which part of a model a tensor belongs to,
//! whatever the architecture; [`identity`], what tells a model apart whatever its tensor types; [`attributes`], what
//! the metadata of any architecture say; [`keys`], the types of the
//! format's keys; [`file_type`], the names that people ask for (`Q4_K_M`); [`vocab`], how each pre-tokenizer cuts text.
//!
//! The crate knows no kernels, opens no files of its own and runs no code of a checkpoint. It refuses an
//! architecture that it has no description of, keys of another type than needed, and values that no sound
//! model has.

pub mod arch;
pub mod attributes;
pub mod check;
pub mod component;
pub mod effects;
mod error;
pub mod file_type;
pub mod hf;
pub mod hparams;
pub mod identity;
pub mod keys;
pub mod names;
pub mod spec;
pub mod vocab;

pub use attributes::Attributes;
pub use check::check;
pub use component::Component;
pub use error::{Error, Result};
pub use hparams::HParams;
pub use identity::Identity;
pub use names::{Part, Role};
pub use spec::LayerSpec;
