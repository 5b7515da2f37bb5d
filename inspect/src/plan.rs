//! What a command line means.

use std::path::PathBuf;

use crate::args::{Args, Command};

/// A file and what to do with it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) file: PathBuf,
    pub(crate) json: bool,
    pub(crate) task: Task,
}

#[derive(Debug)]
pub(crate) enum Task {
    Show(Sections),
    Key(String),
    Check { strict: bool },
}

/// The parts of a file to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sections {
    /// Header and totals.
    pub(crate) summary: bool,
    pub(crate) metadata: bool,
    pub(crate) tensors: bool,
}

impl From<Args> for Plan {
    fn from(args: Args) -> Self {
        match args.command {
            Command::Show(show) => {
                let all = show.metadata == show.tensors;
                let sections = Sections {
                    summary: !(show.metadata || show.tensors),
                    metadata: all || show.metadata,
                    tensors: all || show.tensors,
                };
                let task = show.key.map_or(Task::Show(sections), Task::Key);
                Self {
                    file: show.file,
                    json: show.json,
                    task,
                }
            }
            Command::Check(check) => Self {
                file: check.file,
                json: check.json,
                task: Task::Check { strict: check.strict },
            },
        }
    }
}
