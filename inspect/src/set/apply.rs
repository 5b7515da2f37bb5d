//! Plans an edit, shows it and carries it out.

use std::path::Path;

use gguf::atomic::AtomicFile;
use gguf::edit::{self, Change, Plan, Room};
use gguf::validate::{self, Finding};
use gguf::{GgufFile, OpenOptions, key};
use gguf_cli::{Failure, Progress, Result, Unit, print_json, warn, write_report};

use super::EditArgs;
use super::report::{N_ITEMS, Report};

/// A file and how to change it.
pub(super) struct Job<'a> {
    pub(super) file: &'a Path,
    pub(super) args: &'a EditArgs,
    /// Files with values.
    pub(super) inputs: Vec<&'a Path>,
}

impl Job<'_> {
    /// Takes an interrupted edit back, then makes the changes that `changes` finds for the file. It may add notices.
    pub(super) fn run(
        &self,
        changes: impl FnOnce(&GgufFile, &mut Vec<String>) -> Result<Vec<Change>>,
    ) -> Result<()> {
        // A copy leaves the file alone, and so does a look.
        let restored = if self.args.dry_run || self.args.output.is_some() {
            None
        } else {
            edit::recover(self.file, &self.inputs)?
        };
        if let Some(journal) = &restored {
            warn(&format!(
                "an earlier edit was interrupted: the old head was restored from `{}`",
                journal.display()
            ));
        }
        // Nothing that stays is written from here, so the vocabulary need not be kept for people to see its front.
        let keep = if self.args.json { usize::MAX } else { N_ITEMS };
        let outline = OpenOptions::new().alone().outline(self.file, keep)?;
        let file = outline.file();
        let mut notes = Vec::new();
        let changes = changes(file, &mut notes)?;
        if changes.is_empty() && self.args.room() == Room::Keep {
            return match restored {
                Some(_) => Ok(()),
                None => Err(Failure::Usage(format!(
                    "nothing to do for `{}`: give KEY=VALUE (no edit of it was interrupted)",
                    file.path().display()
                ))),
            };
        }
        let plan = edit::plan(file, &changes, self.args.room())?;
        self.note(&notes);
        for finding in new_findings(file.path(), &changes, &plan)? {
            warn(&format!(
                "{}: {}; {}",
                finding.object, finding.what, finding.remedy
            ));
        }
        let report = Report::of(self, &outline, &changes, &plan);
        if self.args.dry_run {
            self.check_output(&plan)?;
        } else {
            self.apply(&plan)?;
        }
        if self.args.json {
            return print_json(&report);
        }
        write_report(|out| report.write(out))
    }

    fn note(&self, notes: &[String]) {
        let progress = Progress::new("", 0, Unit::Bytes, self.args.talk.quiet);
        for note in notes {
            progress.note(&format!("notice: {note}"));
        }
    }

    /// Refuses a copy that could not be written.
    fn check_output(&self, plan: &Plan) -> Result<()> {
        let Some(out) = &self.args.output else {
            return Ok(());
        };
        let inputs = [&self.inputs[..], &[self.file]].concat();
        let outputs = [(out.clone(), plan.copy_bytes())];
        Ok(AtomicFile::check_all(
            &outputs,
            self.args.existing.force,
            &inputs,
        )?)
    }

    fn apply(&self, plan: &Plan) -> Result<()> {
        if self.args.output.is_none() && (plan.is_nothing() || plan.is_in_place()) {
            return Ok(plan.apply_in_place(&mut |_| Ok(()))?);
        }
        let progress = Progress::new(
            "copying",
            plan.copy_bytes().saturating_mul(2),
            Unit::Bytes,
            self.args.talk.quiet,
        );
        let mut on = |n| {
            progress.add(n);
            Ok(())
        };
        match &self.args.output {
            Some(out) => plan.copy_to(out, self.args.existing.force, &self.inputs, &mut on)?,
            None => plan.replace(&mut on)?,
        }
        progress.finish();
        Ok(())
    }
}

/// What is wrong with the metadata after a change and was not before.
fn new_findings(path: &Path, changes: &[Change], plan: &Plan) -> Result<Vec<Finding>> {
    let matters = |key: &String| key.starts_with("tokenizer.ggml.") || key == key::ARCHITECTURE;
    let any = changes.iter().any(|change| match change {
        Change::Set { key, .. } | Change::Unset(key) => matters(key),
        Change::Rename { from, to } => matters(from) || matters(to),
    });
    if !any {
        return Ok(Vec::new());
    }
    let old = validate::metadata(&OpenOptions::new().alone().open(path)?);
    let known = |f: &Finding| old.iter().any(|o| (&o.object, &o.what) == (&f.object, &f.what));
    let new = validate::metadata(&plan.head()?);
    Ok(new.into_iter().filter(|f| !known(f)).collect())
}
