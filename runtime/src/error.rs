//! What can go wrong when a model is opened or run.

use std::path::{Path, PathBuf};

use gguf::listed;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The container.
    #[error(transparent)]
    Container(#[from] gguf::Error),
    /// The architecture's description.
    #[error(transparent)]
    Models(#[from] gguf_models::Error),
    /// Something that the file's metadata say.
    #[error("`{}`: {source}", file.display())]
    InFile {
        /// The file.
        file: PathBuf,
        /// What is wrong there.
        source: Box<Error>,
    },
    /// The file does not hold the model that its metadata describe: all findings.
    #[error("`{}` cannot be run as `{arch}`: {}", file.display(), listed(findings, SHOWN, "; "))]
    Misfit {
        /// The file.
        file: PathBuf,
        /// Its architecture.
        arch: Box<str>,
        /// One finding a tensor, in the order that the architecture lists them.
        findings: Vec<String>,
    },
    /// A legal value that this build has no code for.
    #[error("{object}: expected {known}, found {found}")]
    Unsupported {
        /// The key or property.
        object: Box<str>,
        /// What this build knows.
        known: Box<str>,
        /// What the file says.
        found: Box<str>,
    },
    /// A saved state that is not one of this session.
    #[error("the saved state does not fit: {0}")]
    State(Box<str>),
    /// A state cannot be written or read.
    #[error("the saved state: {0}")]
    StateIo(std::io::Error),
    /// A text that no tokenizer takes.
    #[error("{0}")]
    Text(Box<str>),
    /// A token that the model has no embedding of.
    #[error("token {index} of the batch: expected an id below {n_vocab}, found {id}")]
    TokenId {
        /// Position in the batch.
        index: usize,
        /// The id.
        id: u32,
        /// Rows of the embedding.
        n_vocab: usize,
    },
    /// A sequence that the session was not made for.
    #[error("token {index} of the batch: expected a sequence below {n_seq}, found {seq}")]
    Sequence {
        /// Position in the batch.
        index: usize,
        /// The sequence.
        seq: u32,
        /// Sequences of the session.
        n_seq: usize,
    },
    /// A token that does not continue its sequence.
    #[error("token {index} of the batch: expected position {expected} of sequence {seq}, found {found}")]
    Position {
        /// Position in the batch.
        index: usize,
        /// The sequence.
        seq: u32,
        /// The next position of the sequence.
        expected: u32,
        /// What the token says.
        found: u32,
    },
    /// A sequence has no room left.
    #[error(
        "sequence {seq} is full: all {n_ctx} positions of the context are taken; ask for a longer context"
    )]
    ContextFull {
        /// The sequence.
        seq: u32,
        /// Positions of a sequence.
        n_ctx: usize,
    },
    /// A setting that no session can have.
    #[error("{0}")]
    Settings(Box<str>),
    /// The text has too few tokens.
    #[error(
        "the text is too short: expected at least {needed} tokens ({why}), found {found}; use a longer text \
         or a smaller `-c`"
    )]
    TextTooShort {
        /// Tokens needed.
        needed: usize,
        /// What makes up this number.
        why: String,
        /// Tokens of the text.
        found: usize,
    },
    /// Whoever takes the results wants no more; it knows why.
    #[error("stopped by the receiver of the results")]
    Stopped,
    /// A base file with a value that is no number.
    #[error("`{}`: {what}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where, expected and found.
        what: String,
    },
    /// A chat template that cannot be used or does not take the messages.
    #[error("chat template{place}: {what}")]
    Template {
        /// `, line 3`, where it is known.
        place: Box<str>,
        /// What is wrong.
        what: Box<str>,
    },
    /// A token cannot be chosen from logits of which one is no number.
    #[error("the logit of token {token} is {value}; the model file is damaged or its type loses too much")]
    Logit {
        /// Id of the token.
        token: usize,
        /// The value.
        value: f32,
    },
    /// A layer gave a hidden state that is no finite number.
    #[error(
        "chunk {chunk}, position {pos}: layer {layer} gives {value}; the model file is damaged or its type loses too \
         much"
    )]
    NonFiniteState {
        /// Chunk, counted from 1.
        chunk: usize,
        /// Position in the chunk.
        pos: usize,
        /// The layer.
        layer: usize,
        /// The value.
        value: f32,
    },
    /// The model computed a logit that is no finite number.
    #[error(
        "chunk {chunk}, position {pos}: the logit of token {token} is {value}; the model file is damaged or \
         its type loses too much"
    )]
    NonFinite {
        /// Chunk, counted from 1.
        chunk: usize,
        /// Position in the chunk.
        pos: usize,
        /// Id of the token.
        token: usize,
        /// The value.
        value: f32,
    },
}

impl Error {
    /// The same, with the file in front where the message does not name it.
    pub(crate) fn in_file(self, file: &Path) -> Self {
        use gguf_models::Error as Models;
        match self {
            Self::Container(gguf::Error::Key { .. })
            | Self::Models(
                Models::Mismatch { .. }
                | Models::UnknownArchitecture { .. }
                | Models::Container(gguf::Error::Key { .. }),
            )
            | Self::Unsupported { .. } => Self::InFile {
                file: file.to_owned(),
                source: Box::new(self),
            },
            other => other,
        }
    }
}

impl From<Error> for gguf_cli::Failure {
    fn from(e: Error) -> Self {
        match e {
            Error::Container(e) | Error::Models(gguf_models::Error::Container(e)) => e.into(),
            Error::Settings(_) => Self::Usage(e.to_string()),
            _ => Self::Input(e.to_string()),
        }
    }
}

/// Findings that an error message shows before it only counts.
const SHOWN: usize = 12;
