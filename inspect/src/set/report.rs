//! What an edit changes, in words or JSON.

use std::io::{self, Write};

use gguf::edit::{Change, Plan, Room};
use gguf::{Outline, Value};
use gguf_cli::{preview_cut, printable};
use serde::Serialize;

use super::apply::Job;
use crate::json::JsonValue;

/// Elements and characters of a value that are shown.
pub(super) const N_ITEMS: usize = 6;
const N_CHARS: usize = 64;

#[derive(Serialize)]
pub(super) struct Report<'a> {
    file: String,
    /// Where the result is: the file itself but for `-o`.
    output: String,
    changes: Vec<ChangeReport<'a>>,
    /// Whether only bytes of the head are written over.
    in_place: bool,
    /// Bytes that are written.
    bytes_written: u64,
    /// Bytes of room that are left for later edits.
    room: u64,
    written: bool,
}

#[derive(Serialize)]
struct ChangeReport<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_key: Option<&'a str>,
    #[serde(rename = "type")]
    type_name: String,
    old: Option<JsonValue<'a>>,
    new: Option<JsonValue<'a>>,
    /// Elements of an old array, of which only the front is in memory.
    #[serde(skip)]
    old_len: Option<u64>,
}

impl<'a> Report<'a> {
    pub(super) fn of(job: &Job<'_>, outline: &'a Outline, changes: &'a [Change], plan: &Plan) -> Self {
        let file = outline.file();
        let nothing = plan.is_nothing() && job.args.output.is_none();
        let in_place =
            job.args.output.is_none() && job.args.room() == Room::Keep && (nothing || plan.is_in_place());
        Self {
            file: file.path().display().to_string(),
            output: job
                .args
                .output
                .as_deref()
                .unwrap_or(file.path())
                .display()
                .to_string(),
            changes: changes.iter().map(|c| ChangeReport::of(outline, c)).collect(),
            in_place,
            bytes_written: match (nothing, in_place) {
                (true, _) => 0,
                (_, true) => plan.bytes_in_place(),
                _ => plan.copy_bytes(),
            },
            room: plan.room_bytes(),
            written: !job.args.dry_run,
        }
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for change in &self.changes {
            change.write(out)?;
        }
        let would = if self.written { "" } else { "would be " };
        if self.bytes_written == 0 {
            return writeln!(out, "`{}` {would}unchanged: it is so already", self.file);
        }
        if self.in_place {
            return writeln!(
                out,
                "{would}changed in place: {} bytes of the head, {} bytes of room left",
                self.bytes_written, self.room
            );
        }
        writeln!(
            out,
            "{would}copied to `{}`: {} bytes, {} bytes of room",
            self.output, self.bytes_written, self.room
        )
    }
}

impl<'a> ChangeReport<'a> {
    fn of(outline: &'a Outline, change: &'a Change) -> Self {
        let file = outline.file();
        let (key, new_key, new) = match change {
            Change::Set { key, value } => (key, None, Some(value)),
            Change::Unset(key) => (key, None, None),
            Change::Rename { from, to } => (from, Some(to.as_str()), file.metadata.get(from)),
        };
        let old = file.metadata.get(key);
        Self {
            key,
            new_key,
            type_name: new.or(old).map_or_else(String::new, Value::type_name),
            old: old.map(JsonValue),
            new: new.map(JsonValue),
            old_len: outline.cut_len(key),
        }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(new_key) = self.new_key {
            return writeln!(out, "{} -> {}", printable(self.key), printable(new_key));
        }
        let show = |value: &Option<JsonValue<'_>>, len, none: &str| {
            let text = value.as_ref().map(|v| preview_cut(v.0, N_ITEMS, N_CHARS, len));
            text.unwrap_or_else(|| none.to_owned())
        };
        let old = show(&self.old, self.old_len, "(new)");
        let new = show(&self.new, None, "(removed)");
        writeln!(out, "{}: {}: {old} -> {new}", printable(self.key), self.type_name)
    }
}
