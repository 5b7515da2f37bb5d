//! The command line, and the job it stands for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gguf_blocks::{Format, registry};
use gguf_cli::{Failure, OutputArgs, ReserveArgs, Result, TalkArgs, count};
use gguf_models::file_type::{self, FileType};

use crate::policy::{Override, Wish};

/// Name that keeps every tensor's type and the file's own file type.
const COPY: &str = "COPY";

/// Encode a GGUF model in smaller tensor types
///
/// TYPE is a file type (`Q4_K_M`), an alias (`Q4_K`) or its number (15), or COPY. Without OUT the result is
/// `ggml-model-TYPE.gguf` beside IN. NTHREADS of 0 or less means every hardware thread.
#[derive(Debug, clap::Parser)]
#[command(
    name = "gguf-quantize",
    version,
    override_usage = "gguf-quantize [OPTIONS] IN [OUT] TYPE [NTHREADS]"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct Args {
    /// IN [OUT] TYPE [NTHREADS]
    #[arg(
        value_name = "ARGS",
        required = true,
        hide = true,
        allow_negative_numbers = true
    )]
    positional: Vec<OsString>,
    /// Importance matrix (either form) that says which columns matter
    #[arg(long, value_name = "FILE")]
    pub imatrix: Option<PathBuf>,
    /// Use only entries of the importance matrix whose name contains this (repeatable)
    #[arg(
        long,
        value_name = "NAME",
        requires = "imatrix",
        conflicts_with = "exclude_weights"
    )]
    pub include_weights: Vec<String>,
    /// Leave out entries of the importance matrix whose name contains this (repeatable)
    #[arg(long, value_name = "NAME", requires = "imatrix")]
    pub exclude_weights: Vec<String>,
    /// Encode tensors again that are already quantized; this loses more than starting from the original
    #[arg(long)]
    pub allow_requantize: bool,
    /// Keep `output.weight` as it is
    #[arg(long)]
    leave_output_tensor: bool,
    /// Give every tensor the base type instead of the file type's mixture
    #[arg(long)]
    pure: bool,
    /// Tensor type of `output.weight`
    #[arg(long, value_name = "TENSOR_TYPE")]
    output_tensor_type: Option<String>,
    /// Tensor type of the token embeddings
    #[arg(long, value_name = "TENSOR_TYPE")]
    token_embedding_type: Option<String>,
    /// Tensor type of tensors whose name matches (repeatable; the first match decides, case is ignored)
    #[arg(long, value_name = "REGEX=TENSOR_TYPE")]
    tensor_type: Vec<String>,
    /// Refuse if any tensor needs a fallback type
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "described by its own options")]
    pub reserve: ReserveArgs,
    /// Print the plan and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Print the plan, or what was done, as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) talk: TalkArgs,
}

/// What the positional arguments mean.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) input: PathBuf,
    pub(crate) output: PathBuf,
    /// Name for messages: of the file type, or `COPY`.
    pub(crate) type_name: &'static str,
    pub(crate) file_type: Option<&'static FileType>,
    /// 0 for every hardware thread.
    pub(crate) threads: usize,
}

impl Args {
    /// Resolves the positional arguments. What follows IN is TYPE if it parses as one and no other TYPE
    /// comes after it.
    pub(crate) fn job(&self) -> Result<Job> {
        let (input, rest) = match self.positional.as_slice() {
            [input, rest @ ..] if (1..=3).contains(&rest.len()) => (input, rest),
            other => {
                let what = format!(
                    "expected IN [OUT] TYPE [NTHREADS], found {}",
                    count(other.len() as u64, "argument")
                );
                return Err(Failure::Usage(what));
            }
        };
        let number = |s: &OsString| s.to_str().and_then(|s| s.parse::<i64>().ok());
        let without_output = match rest {
            [_] => true,
            [first, second] => is_type(first) && number(second).is_some(),
            _ => false,
        };
        let (output, rest) = if without_output {
            (None, rest)
        } else {
            (Some(&rest[0]), &rest[1..])
        };
        let (type_name, file_type) = parse_type(&rest[0])?;
        let threads = match rest.get(1) {
            None => 0,
            Some(s) => number(s).ok_or_else(|| {
                Failure::Usage(format!(
                    "NTHREADS: expected a number, found `{}`",
                    s.to_string_lossy()
                ))
            })?,
        };
        let input = PathBuf::from(input);
        let beside = || input.with_file_name(format!("ggml-model-{type_name}.gguf"));
        let output = output.map_or_else(beside, PathBuf::from);
        Ok(Job {
            output,
            input,
            type_name,
            file_type,
            threads: usize::try_from(threads).unwrap_or(0),
        })
    }

    /// What the options ask of the policy.
    pub(crate) fn wish(&self, job: &Job, has_imatrix: bool) -> Result<Wish> {
        let asked = |flag: &str, name: &Option<String>| {
            name.as_ref()
                .map(|n| tensor_type(n).map_err(|e| e.of(flag)))
                .transpose()
        };
        Ok(Wish {
            file_type: job.file_type,
            has_imatrix,
            pure: self.pure,
            leave_output: self.leave_output_tensor,
            output_type: asked("--output-tensor-type", &self.output_tensor_type)?,
            token_embd_type: asked("--token-embedding-type", &self.token_embedding_type)?,
            overrides: self
                .tensor_type
                .iter()
                .map(|r| parse_rule(r))
                .collect::<Result<_>>()?,
        })
    }

    /// The importance matrix's path, if one is to be used.
    pub(crate) fn imatrix_path(&self) -> Option<&Path> {
        self.imatrix.as_deref()
    }
}

fn is_type(s: &OsString) -> bool {
    s.to_str()
        .is_some_and(|s| s.eq_ignore_ascii_case(COPY) || file_type::by_name(s).is_some())
}

/// Whether this build can encode what most tensors get under a file type.
fn is_available(t: &FileType) -> bool {
    registry::by_name(t.base).is_some_and(|f| f.encode.is_some())
}

fn parse_type(s: &OsString) -> Result<(&'static str, Option<&'static FileType>)> {
    let s = s.to_string_lossy();
    if s.eq_ignore_ascii_case(COPY) {
        return Ok((COPY, None));
    }
    let problem = match file_type::by_name(&s) {
        Some(t) if is_available(t) => return Ok((t.name, Some(t))),
        Some(t) => format!(
            "file type `{}` needs tensor type `{}`, which this build cannot encode",
            t.name, t.base
        ),
        None => format!("unknown file type `{s}`"),
    };
    let names: Vec<_> = file_type::all()
        .iter()
        .filter(|t| is_available(t))
        .map(|t| t.name)
        .collect();
    Err(Failure::Usage(format!(
        "{problem}; available: {}, {COPY}",
        names.join(", ")
    )))
}

/// A tensor type that was not understood, before it is known where it was given.
struct UnknownType(String);

impl UnknownType {
    fn of(self, place: &str) -> Failure {
        let names: Vec<_> = encodable().map(|f| f.name).collect();
        Failure::Usage(format!(
            "{place}: unknown tensor type `{}`; available: {}",
            self.0,
            names.join(", ")
        ))
    }
}

fn encodable() -> impl Iterator<Item = &'static Format> {
    registry::all().iter().copied().filter(|f| f.encode.is_some())
}

fn tensor_type(name: &str) -> std::result::Result<&'static str, UnknownType> {
    let found = encodable().find(|f| f.name.eq_ignore_ascii_case(name));
    found.map(|f| f.name).ok_or_else(|| UnknownType(name.to_owned()))
}

fn parse_rule(rule: &str) -> Result<Override> {
    let bad = |what: &str| Failure::Usage(format!("--tensor-type `{rule}`: {what}"));
    let (pattern, name) = rule
        .rsplit_once('=')
        .ok_or_else(|| bad("expected REGEX=TENSOR_TYPE"))?;
    if pattern.is_empty() {
        return Err(bad("expected a pattern in front of `=`"));
    }
    let type_name = tensor_type(name).map_err(|e| e.of(&format!("--tensor-type `{rule}`")))?;
    let pattern = regex::RegexBuilder::new(pattern)
        .case_insensitive(true)
        .build()
        .map_err(|e| {
            // The crate's message draws the pattern over several lines; its last line says what is wrong.
            let text = e.to_string();
            bad(&format!(
                "not a regular expression: {}",
                text.lines().last().unwrap_or_default().trim()
            ))
        })?;
    Ok(Override {
        text: rule.to_owned(),
        pattern,
        type_name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn job(args: &[&str]) -> Result<Job> {
        Args::try_parse_from([&["gguf-quantize"], args].concat())
            .unwrap()
            .job()
    }

    #[test]
    fn output_may_be_left_out() {
        let j = job(&["dir/in.gguf", "q4_k", "3"]).unwrap();
        assert_eq!(
            (j.output.to_str(), j.type_name, j.threads),
            (Some("dir/ggml-model-Q4_K_M.gguf"), "Q4_K_M", 3)
        );
        let j = job(&["in.gguf", "8"]);
        assert!(matches!(
            j,
            Err(Failure::Usage(_))
                | Ok(Job {
                    type_name: "Q5_0",
                    ..
                })
        ));
        let j = job(&["in.gguf", "out.gguf", "7", "-1"]).unwrap();
        assert_eq!(
            (j.output.to_str(), j.type_name, j.threads),
            (Some("out.gguf"), "Q8_0", 0)
        );
        let j = job(&["in.gguf", "q4_0", "Q8_0"]).unwrap();
        assert_eq!((j.output.to_str(), j.type_name), (Some("q4_0"), "Q8_0"));
    }

    #[test]
    fn wrong_types_are_told_apart() {
        let text = |args: &[&str]| job(args).unwrap_err().to_string();
        assert!(
            text(&["in.gguf", "out.gguf", "Q4_L"]).starts_with("unknown file type `Q4_L`; available: F32")
        );
        assert!(text(&["in.gguf", "out.gguf"]).starts_with("unknown file type `out.gguf`"));
        assert_eq!(
            text(&["in.gguf", "o", "Q8_0", "two"]),
            "NTHREADS: expected a number, found `two`"
        );
    }

    #[test]
    fn rules_are_read_from_the_last_equals_sign() {
        let rule = parse_rule("blk\\.(0|1)\\.FFN=q5_k").unwrap();
        assert!(rule.pattern.is_match("blk.1.ffn_up.weight") && rule.type_name == "Q5_K");
        for bad in ["ffn", "=q5_k", "a=Q99", "(a=q8_0"] {
            let text = parse_rule(bad).unwrap_err().to_string();
            assert!(text.contains(bad) && text.lines().count() == 1, "{text}");
        }
    }
}
