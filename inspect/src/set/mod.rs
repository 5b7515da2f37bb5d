//! `gguf-inspect set`, `unset` and `rename-key`: metadata changed in place where it fits, else by a copy.

mod apply;
mod known;
pub(crate) mod rename;
mod report;
pub(crate) mod unset;
mod value;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use gguf::edit::{Change, Room};
use gguf::{GgufFile, Value};
use gguf_cli::{Failure, OutputArgs, ReserveArgs, Result, TalkArgs, read_text};

use apply::Job;
use value::Type;

/// Options that all edits have.
#[derive(ClapArgs, Debug)]
pub(crate) struct EditArgs {
    /// Write a changed copy there and leave FILE as it is
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Show what would change, in place or by a copy, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reserve: ReserveArgs,
    /// Take the room for later edits (`gguf.pad`) out, by a copy
    #[arg(long, conflicts_with = "reserve_metadata")]
    compact: bool,
    #[command(flatten)]
    existing: OutputArgs,
    #[command(flatten)]
    talk: TalkArgs,
}

impl EditArgs {
    fn job<'a>(&'a self, file: &'a Path) -> Result<Job<'a>> {
        if gguf::source::is_url(file) {
            return Err(Failure::Usage(format!(
                "`{}`: a file on a server cannot be edited; download it first",
                file.display()
            )));
        }
        Ok(Job {
            file,
            args: self,
            inputs: Vec::new(),
        })
    }

    fn room(&self) -> Room {
        match self.reserve.reserve_metadata {
            Some(n) => Room::Exactly(n as u64),
            None if self.compact => Room::Exactly(0),
            None => Room::Keep,
        }
    }
}

/// Set metadata keys, in place where it fits
///
/// A key that is there keeps its type and place. A new key takes its usual type, else one that fits its value. Without
/// a KEY=VALUE, an edit that was interrupted is taken back. The tensor data is never changed.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// The GGUF file; of a split set its first shard
    file: PathBuf,
    /// A key and its value; KEY:TYPE=VALUE gives the type too
    #[arg(value_name = "KEY=VALUE")]
    assignments: Vec<String>,
    /// Type of the values: u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool str, or arr[TYPE]
    #[arg(long = "type", value_name = "TYPE", value_parser = Type::parse)]
    value_type: Option<Type>,
    /// The values are JSON: text in quotes, numbers, true and false, arrays
    #[arg(long)]
    json_value: bool,
    /// A key and a file with its value, for instance a chat template; repeatable
    #[arg(long, value_name = "KEY=PATH")]
    from_file: Vec<String>,
    #[command(flatten)]
    edit: EditArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (mut given, mut inputs) = (Vec::new(), Vec::new());
    for text in &args.assignments {
        let (key, kind, value) = take_apart(text, "KEY=VALUE", args.value_type)?;
        given.push((key, kind, value.to_owned()));
    }
    for text in &args.from_file {
        let (key, kind, path) = take_apart(text, "KEY=PATH", args.value_type)?;
        given.push((key, kind, read_text(Path::new(path))?));
        inputs.push(Path::new(path));
    }
    let mut keys = HashSet::new();
    if let Some((key, ..)) = given.iter().find(|(key, ..)| !keys.insert(key)) {
        return Err(Failure::Usage(format!(
            "key `{key}` is given twice; leave one of its values out"
        )));
    }
    let job = Job {
        inputs,
        ..args.edit.job(&args.file)?
    };
    job.run(|file, notes| {
        let mut changes = Vec::new();
        for (key, kind, text) in &given {
            let value = new_value(file, key, *kind, text, args.json_value, notes)?;
            changes.push(Change::Set {
                key: key.clone(),
                value,
            });
        }
        Ok(changes)
    })
}

/// Key, type and text of `KEY=TEXT` or `KEY:TYPE=TEXT`.
fn take_apart<'a>(text: &'a str, form: &str, usual: Option<Type>) -> Result<(String, Option<Type>, &'a str)> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(Failure::Usage(format!("expected {form}, found `{text}`")));
    };
    if let Some((key, name)) = key.rsplit_once(':') {
        let kind = Type::parse(name).map_err(|e| Failure::Usage(format!("key `{key}`: {e}")))?;
        return Ok((key.to_owned(), Some(kind), value));
    }
    Ok((key.to_owned(), usual, value))
}

/// The value for a key: of the type that was named, or that the key has, or that it usually has, or that fits.
fn new_value(
    file: &GgufFile,
    key: &str,
    named: Option<Type>,
    text: &str,
    json: bool,
    notes: &mut Vec<String>,
) -> Result<Value> {
    let there = file.metadata.get(key).map(Type::of);
    let known = named.or(there).or_else(|| known::type_of(key, &file.metadata));
    let kind = known.unwrap_or_else(|| {
        let kind = Type::that_fits(text, json);
        notes.push(format!(
            "key `{key}` is new and not known: type {kind}, from its value; `--type` sets another"
        ));
        kind
    });
    kind.value(text, json)
        .map_err(|e| Failure::Usage(format!("key `{key}`: {e}")))
}
