//! What is read, what is made of it, and where it goes: as a job, and as the positional arguments say it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gguf::GgufFile;
use gguf::split::ShardName;
use gguf_blocks::registry;
use gguf_cli::{Failure, Result, count};
use gguf_models::file_type::{self, FileType};

use crate::options::{RecipeArgs, WorkArgs};

/// Name of the target that keeps every tensor's type and the file's own file type.
const COPY: &str = "COPY";

/// File types that converters write and for which no mixture is defined.
const WITHOUT_MIXTURE: &[&str] = &["NVFP4"];

/// Ends of names that say what the weights of the source were, which an output's name leaves out.
const SOURCE_TYPES: &[&str] = &["-F32", "-F16", "-BF16"];

/// What the positional arguments mean.
#[derive(Debug)]
pub(crate) struct Positional {
    pub(crate) input: PathBuf,
    /// At least one; several with `-o` only.
    pub(crate) targets: Vec<Target>,
    /// 0 for every hardware thread.
    pub(crate) threads: usize,
}

/// One output.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name for messages: of the file type, or `COPY`.
    pub type_name: &'static str,
    /// What becomes of the model.
    pub kind: Kind,
    /// The file, or what the names of its shards are made from.
    pub output: PathBuf,
    /// Whether the user gave that name, and no folder or nothing.
    pub is_named: bool,
}

/// What becomes of a model.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Its tensors are encoded as a file type asks.
    FileType(&'static FileType),
    /// Every tensor keeps its type unless an option gives it another; the output says how it was made.
    Copy,
    /// Tensors and metadata are taken as they are.
    Plain,
}

impl Target {
    /// The file type asked for.
    pub(crate) fn file_type(&self) -> Option<&'static FileType> {
        match self.kind {
            Kind::FileType(file_type) => Some(file_type),
            Kind::Copy | Kind::Plain => None,
        }
    }
}

/// How tensors lie in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// By layer and name.
    ByLayer,
    /// In the order of the source.
    AsSource,
    /// In the order and the shards of the source.
    SourceShards,
}

/// An opened model and what is to be made of it.
#[derive(Debug)]
pub struct Job<'a> {
    /// The model, which may be computed as it is read.
    pub file: &'a GgufFile,
    /// Its name for messages.
    pub input: &'a Path,
    /// Its name in the output's metadata, without folders.
    pub source_name: String,
    /// At least one.
    pub targets: Vec<Target>,
    /// What the tensors become.
    pub recipe: &'a RecipeArgs,
    /// Which files come out, and how.
    pub work: &'a WorkArgs,
    /// Where tensors go.
    pub arrangement: Arrangement,
    /// 0 for every hardware thread.
    pub threads: usize,
    /// What is done, in a word for the line of progress.
    pub title: &'static str,
}

/// Resolves the arguments; `dir` is that of `-o`.
pub(crate) fn resolve(positional: &[OsString], dir: Option<&Path>) -> Result<Positional> {
    let Some((input, rest)) = positional.split_first() else {
        return Err(Failure::Usage(
            "expected IN and TYPE, found no argument".to_owned(),
        ));
    };
    if is_type(input) && !Path::new(input).exists() {
        let what = format!(
            "`{}` stands where IN belongs and is a file type: expected IN [OUT] TYPE [NTHREADS]",
            input.to_string_lossy()
        );
        return Err(Failure::Usage(what));
    }
    let input = PathBuf::from(input);
    match dir {
        Some(dir) => into_folder(input, rest, dir),
        None => one_output(input, rest),
    }
}

/// IN [OUT] TYPE [NTHREADS]. What follows IN is TYPE if it parses as one and stands alone or in front of a number.
fn one_output(input: PathBuf, rest: &[OsString]) -> Result<Positional> {
    let (output, rest) = match rest {
        [kind] => (None, (kind, None)),
        [kind, threads] if is_type(kind) && number(threads).is_some() => (None, (kind, Some(threads))),
        [a, b, ..] if is_name(a) && is_type(b) && !Path::new(a).exists() => return Err(several(a)),
        [out, kind] => (Some(out), (kind, None)),
        [_, n, kind] if number(n).is_some() && is_name(kind) => return Err(not_threads(kind)),
        [out, kind, threads] => (Some(out), (kind, Some(threads))),
        _ => {
            let what = format!(
                "expected IN [OUT] TYPE [NTHREADS], found {}",
                count(rest.len() as u64 + 1, "argument")
            );
            return Err(Failure::Usage(what));
        }
    };
    let (kind, threads) = rest;
    let parsed = parse_type(kind).map_err(|e| match output.filter(|o| is_name(o)) {
        Some(o) => Failure::Usage(format!(
            "`{}` stands where TYPE belongs and is no file type, and the file type `{}` where OUT belongs: expected IN \
             [OUT] TYPE [NTHREADS]",
            kind.to_string_lossy(),
            o.to_string_lossy()
        )),
        None => e,
    });
    let (type_name, kind) = parsed?;
    let threads = threads.map_or(Ok(0), parse_threads)?;
    let beside = || input.with_file_name(format!("ggml-model-{type_name}.gguf"));
    let is_named = output.is_some();
    let output = output.map_or_else(beside, PathBuf::from);
    let targets = vec![Target {
        type_name,
        kind,
        output,
        is_named,
    }];
    Ok(Positional {
        input,
        targets,
        threads,
    })
}

/// IN TYPE [TYPE ..] [NTHREADS]. A number behind a TYPE, at the end, is NTHREADS.
fn into_folder(input: PathBuf, rest: &[OsString], dir: &Path) -> Result<Positional> {
    let (kinds, threads) = match rest {
        [] => {
            let what = "expected IN TYPE [TYPE ..] [NTHREADS] with `-o`, found 1 argument";
            return Err(Failure::Usage(what.to_owned()));
        }
        [kinds @ .., last] if !kinds.is_empty() && number(last).is_some() => (kinds, parse_threads(last)?),
        _ => (rest, 0),
    };
    let base = base_name(&input);
    let mut targets: Vec<Target> = Vec::with_capacity(kinds.len());
    for (i, kind) in kinds.iter().enumerate() {
        let (type_name, becomes) = parse_type(kind).map_err(|e| {
            let is_output = i == 0 && kinds.len() > 1 && is_type(&kinds[1]);
            if !is_output {
                return e;
            }
            Failure::Usage(format!(
                "`{}` is no file type: with `-o` the outputs are named after IN, and what follows IN is TYPE [TYPE ..] \
                 [NTHREADS]",
                kind.to_string_lossy()
            ))
        })?;
        if targets.iter().any(|t| t.type_name == type_name) {
            return Err(Failure::Usage(format!("file type `{type_name}` is given twice")));
        }
        targets.push(Target {
            type_name,
            kind: becomes,
            output: dir.join(format!("{base}-{type_name}.gguf")),
            is_named: false,
        });
    }
    Ok(Positional {
        input,
        targets,
        threads,
    })
}

/// The name of a model without folder, number of the shard, `.gguf` and the type of its weights.
fn base_name(input: &Path) -> String {
    let whole = ShardName::parse(input).map_or_else(|| input.to_owned(), |s| s.prefix().to_owned());
    let name = whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy();
    let name = name.strip_suffix(".gguf").unwrap_or(&name);
    let ends_in = |end: &&&str| {
        let at = name.len().checked_sub(end.len());
        at.and_then(|at| name.get(at..))
            .is_some_and(|tail| tail.eq_ignore_ascii_case(end))
    };
    let cut = SOURCE_TYPES.iter().find(ends_in).map_or(0, |end| end.len());
    name[..name.len() - cut].to_owned()
}

fn several(first: &OsString) -> Failure {
    Failure::Usage(format!(
        "`{0}` stands where OUT belongs and is a file type: several TYPEs need `-o DIR`; an output of that name is \
         `./{0}`",
        first.to_string_lossy()
    ))
}

fn number(s: &OsString) -> Option<i64> {
    s.to_str()?.parse().ok()
}

fn parse_threads(s: &OsString) -> Result<usize> {
    let threads = number(s).ok_or_else(|| not_threads(s))?;
    Ok(usize::try_from(threads).unwrap_or(0))
}

fn not_threads(s: &OsString) -> Failure {
    let hint = if is_type(s) {
        "; it is a file type, and the order is IN [OUT] TYPE [NTHREADS]"
    } else {
        ""
    };
    Failure::Usage(format!(
        "NTHREADS: expected a number, found `{}`{hint}",
        s.to_string_lossy()
    ))
}

fn is_type(s: &OsString) -> bool {
    s.to_str()
        .is_some_and(|s| s.eq_ignore_ascii_case(COPY) || file_type::by_name(s).is_some())
}

/// Whether a text is a file type by its name and not by its number.
fn is_name(s: &OsString) -> bool {
    is_type(s) && number(s).is_none()
}

/// Whether a model can be made of a file type here.
fn is_available(t: &FileType) -> bool {
    registry::by_name(t.base).is_some_and(|f| f.encode.is_some()) && !WITHOUT_MIXTURE.contains(&t.name)
}

fn parse_type(s: &OsString) -> Result<(&'static str, Kind)> {
    let s = s.to_string_lossy();
    if s.eq_ignore_ascii_case(COPY) {
        return Ok((COPY, Kind::Copy));
    }
    let file_type = parse_file_type(&s).map_err(|e| match e {
        Failure::Usage(line) => Failure::Usage(format!("{line}, {COPY}")),
        e => e,
    })?;
    Ok((file_type.name, Kind::FileType(file_type)))
}

/// A file type that models can be quantized to, by its name, an alias or its number.
///
/// # Errors
/// A usage failure that lists those that there are.
pub fn parse_file_type(s: &str) -> Result<&'static FileType> {
    let problem = match file_type::by_name(s) {
        Some(t) if is_available(t) => return Ok(t),
        Some(t) if WITHOUT_MIXTURE.contains(&t.name) => format!(
            "no mixture is defined for file type `{}`, but `--tensor-type .={}` beside another TYPE gives tensors this type",
            t.name, t.base
        ),
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
        "{problem}; available: {}",
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(args: &[&str], dir: Option<&str>) -> Result<Positional> {
        let args: Vec<OsString> = args.iter().map(Into::into).collect();
        resolve(&args, dir.map(Path::new))
    }

    /// Outputs with their types, and the number of threads.
    fn outputs(args: &[&str], dir: Option<&str>) -> (Vec<(String, &'static str)>, usize) {
        let job = job(args, dir).unwrap();
        let target = |t: &Target| (t.output.to_str().unwrap().to_owned(), t.type_name);
        (job.targets.iter().map(target).collect(), job.threads)
    }

    #[test]
    fn output_may_be_left_out() {
        let one = |args: &[&str]| {
            let (mut all, threads) = outputs(args, None);
            let (path, type_name) = all.remove(0);
            (path, type_name, threads)
        };
        let expected = |path: &str, name, threads| (path.to_owned(), name, threads);
        assert_eq!(
            one(&["dir/in.gguf", "q4_k", "3"]),
            expected("dir/ggml-model-Q4_K_M.gguf", "Q4_K_M", 3)
        );
        assert_eq!(
            one(&["in.gguf", "7"]),
            expected("ggml-model-Q8_0.gguf", "Q8_0", 0)
        );
        assert_eq!(
            one(&["in.gguf", "out.gguf", "7", "-1"]),
            expected("out.gguf", "Q8_0", 0)
        );
        assert_eq!(one(&["in.gguf", "./q4_0", "Q8_0"]), expected("./q4_0", "Q8_0", 0));
        // A number is never taken for the name of an output's type.
        assert_eq!(one(&["in.gguf", "15", "Q8_0"]), expected("15", "Q8_0", 0));
    }

    #[test]
    fn several_types_go_into_a_folder() {
        let (all, threads) = outputs(
            &["x/tiny-00001-of-00002.gguf", "q4_k_m", "IQ4_NL", "4"],
            Some("out"),
        );
        assert_eq!(
            all,
            [
                ("out/tiny-Q4_K_M.gguf".to_owned(), "Q4_K_M"),
                ("out/tiny-IQ4_NL.gguf".to_owned(), "IQ4_NL")
            ]
        );
        assert_eq!(threads, 4);
        let (all, threads) = outputs(&["in.gguf", "7"], Some("."));
        assert_eq!((all, threads), (vec![("./in-Q8_0.gguf".to_owned(), "Q8_0")], 0));
    }

    #[test]
    fn names_of_outputs() {
        for (input, base) in [
            ("a/tiny-bf16.gguf", "tiny"),
            ("tiny-F32.gguf", "tiny"),
            ("tiny-F16-00002-of-00003.gguf", "tiny"),
            ("tiny-Q8_0.gguf", "tiny-Q8_0"),
            ("F16.gguf", "F16"),
            ("tiny", "tiny"),
            ("ä-f16", "ä"),
        ] {
            assert_eq!(base_name(Path::new(input)), base, "{input}");
        }
    }
}
