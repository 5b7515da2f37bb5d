//! Groups of options that every program has which runs the engine.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use gguf::split::Limits;
use gguf_cli::{OutputArgs, ReserveArgs, TalkArgs, parse_decimal_size, parse_size};

/// Memory for the weights in work where `--max-memory` names none, in bytes.
const USUAL_MEMORY: u64 = 1 << 30;

/// What the tensors become: the options that a file type is refined with.
#[derive(clap::Args, Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct RecipeArgs {
    /// Importance matrix (either form) that says which columns matter
    #[arg(long, value_name = "FILE", help_heading = "Importance")]
    pub(crate) imatrix: Option<PathBuf>,
    /// Use only entries of the importance matrix whose name contains this (repeatable)
    #[arg(long, value_name = "NAME", requires = "imatrix", help_heading = "Importance")]
    #[arg(conflicts_with = "exclude_weights")]
    pub(crate) include_weights: Vec<String>,
    /// Leave out entries of the importance matrix whose name contains this (repeatable)
    #[arg(long, value_name = "NAME", requires = "imatrix", help_heading = "Importance")]
    pub(crate) exclude_weights: Vec<String>,
    /// What to do with tensors and experts that the importance matrix lacks. Without this option a tensor whose type
    /// cannot do without is refused, and an expert that saw no token counts all columns alike
    #[arg(long, value_name = "HOW", requires = "imatrix", help_heading = "Importance")]
    pub(crate) uncovered: Option<Uncovered>,
    /// Count each expert as if it had seen N tokens more, whose importance is the mean of its tensor: experts that saw
    /// few tokens, or none, are pulled towards it
    #[arg(long, value_name = "N", requires = "imatrix", help_heading = "Importance")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) prior: Option<u32>,

    /// Give every tensor the base type instead of the file type's mixture
    #[arg(long, help_heading = "Types")]
    pub(crate) pure: bool,
    /// Keep `output.weight` as it is
    #[arg(long, help_heading = "Types", conflicts_with = "output_tensor_type")]
    pub(crate) leave_output_tensor: bool,
    /// Tensor type of `output.weight`
    #[arg(long, value_name = "TENSOR_TYPE", help_heading = "Types")]
    pub(crate) output_tensor_type: Option<String>,
    /// Tensor type of the token embeddings
    #[arg(long, value_name = "TENSOR_TYPE", help_heading = "Types")]
    pub(crate) token_embedding_type: Option<String>,
    /// Tensor type of tensors in whose name the expression is found, in any case (repeatable; the first match decides)
    #[arg(long, value_name = "NAME_OR_REGEX=TENSOR_TYPE", help_heading = "Types")]
    pub(crate) tensor_type: Vec<String>,
    /// File with such rules, separated by white space; they come after those of `--tensor-type`
    #[arg(long, value_name = "FILE", help_heading = "Types")]
    pub(crate) tensor_type_file: Vec<PathBuf>,
    /// Encode tensors again that are already quantized; this loses more than starting from the original
    #[arg(long, help_heading = "Types")]
    pub(crate) allow_requantize: bool,
    /// Refuse fallback types, experts without importance, an importance matrix that was made with another model or other
    /// settings, and rules that decide nothing
    #[arg(long, help_heading = "Types")]
    pub(crate) strict: bool,

    /// Layers to leave out, by number; those behind them move up
    #[arg(long, value_name = "L0,L1,..", value_delimiter = ',', help_heading = "Model")]
    pub(crate) prune_layers: Vec<u32>,
    /// Metadata key to set in the output; TYPE is int, float, bool or str (repeatable)
    #[arg(long, value_name = "KEY=TYPE:VALUE", help_heading = "Model")]
    pub(crate) override_kv: Vec<String>,
    /// Write the error of each tensor to this file, as JSON
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Work",
        conflicts_with = "no_verify"
    )]
    pub(crate) report: Option<PathBuf>,
    /// Leave the SHA-256 of the source out of the metadata; it takes a read of the whole source
    #[arg(long, help_heading = "Work")]
    pub(crate) no_source_hash: bool,
}

/// Which files come out, and how the work is done.
#[derive(clap::Args, Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct WorkArgs {
    #[command(flatten)]
    pub(crate) reserve: ReserveArgs,

    /// Write shards of at most this many bytes of tensors: 500M, 2G (decimal units, as in llama.cpp)
    #[arg(long, value_name = "SIZE", value_parser = parse_decimal_size, help_heading = "Output")]
    #[arg(conflicts_with = "split_max_tensors")]
    pub(crate) split_max_size: Option<u64>,
    /// Write shards of this many tensors
    #[arg(long, value_name = "N", help_heading = "Output")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) split_max_tensors: Option<u64>,
    /// Do part I of N, or parts I to J, of the work and write their shards alone. Without a split option the output
    /// gets N shards of even work
    #[arg(long, value_name = "I/N or I-J/N", help_heading = "Output")]
    pub(crate) part: Option<Part>,
    /// Go on where an interrupted run of the same command line stopped
    #[arg(long, help_heading = "Output")]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Memory for the weights in work: 256M, 2G (binary units; 1G if not given)
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, help_heading = "Work")]
    pub(crate) max_memory: Option<u64>,
    /// As `--max-memory`, in MiB
    #[arg(long, value_name = "MIB", hide = true, conflicts_with = "max_memory")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_buffer_size: Option<u32>,
    /// Leave out the comparison of samples of the result with the source
    #[arg(long, help_heading = "Work")]
    pub(crate) no_verify: bool,
    /// Print the plan and stop, with the exit code that the run would have
    #[arg(long, help_heading = "Work")]
    pub dry_run: bool,
    /// Print the plan, or what was done, as JSON
    #[arg(long, help_heading = "Work")]
    pub json: bool,
    /// Progress
    #[command(flatten)]
    pub talk: TalkArgs,
}

/// What to do with tensors and experts that an importance matrix lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Uncovered {
    /// Refuse, naming all of them.
    Fail,
    /// Count all columns alike.
    Neutral,
    /// Give the tensor the next type up that does without importance.
    Raise,
}

impl Uncovered {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Neutral => "neutral",
            Self::Raise => "raise",
        }
    }
}

/// Parts `first` to `last` (from 1, inclusive) of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first part to do, from 1.
    pub(crate) first: u32,
    /// The last part to do.
    pub(crate) last: u32,
    /// Parts of the whole work.
    pub(crate) of: u32,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || "expected I/N or I-J/N, such as 3/8 or 1-4/8".to_owned();
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            plain
                .then(|| digits.parse::<u32>().ok())
                .flatten()
                .ok_or_else(wrong)
        };
        let (parts, of) = text.split_once('/').ok_or_else(wrong)?;
        let (first, last) = parts.split_once('-').unwrap_or((parts, parts));
        let (first, last, of) = (number(first)?, number(last)?, number(of)?);
        if of > gguf::split::MAX_SHARDS {
            return Err(format!("expected at most {} parts", gguf::split::MAX_SHARDS));
        }
        if first == 0 || last > of || first > last {
            return Err(format!("expected parts from 1 to {of}"));
        }
        Ok(Self { first, last, of })
    }
}

fn parse_memory(text: &str) -> std::result::Result<u64, String> {
    match parse_size(text)? {
        0 => Err("expected more than 0 bytes".to_owned()),
        n => Ok(n),
    }
}

impl RecipeArgs {
    /// The importance matrix's path, if one is to be used.
    pub(crate) fn imatrix_path(&self) -> Option<&Path> {
        self.imatrix.as_deref()
    }
}

impl WorkArgs {
    /// Memory for the weights in work, in bytes.
    pub(crate) fn max_memory(&self) -> u64 {
        let mib = |n: u32| u64::from(n) << 20;
        self.max_memory
            .or(self.max_buffer_size.map(mib))
            .unwrap_or(USUAL_MEMORY)
    }

    /// When a new shard begins, if there are to be several.
    pub(crate) fn limits(&self) -> Option<Limits> {
        let tensors = self.split_max_tensors.map(Limits::Tensors);
        self.split_max_size.map(Limits::Bytes).or(tensors)
    }

    /// Whether the result is looked at.
    pub fn verifies(&self) -> bool {
        !self.no_verify
    }

    /// Whether the shards of other runs may be missing when this one ends.
    pub fn is_part(&self) -> bool {
        self.part.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_one_or_a_range() {
        let part = |first, last, of| Ok(Part { first, last, of });
        assert_eq!("3/8".parse(), part(3, 3, 8));
        assert_eq!("1-4/8".parse(), part(1, 4, 8));
        assert_eq!("1/1".parse(), part(1, 1, 1));
        for wrong in [
            "", "3", "0/8", "9/8", "4-3/8", "1-9/8", "a/8", "+1/8", "1/", "1-/8", "1/0", "1/70000",
        ] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
    }
}
