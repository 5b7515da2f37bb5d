//! Options that several programs have.

use clap::Args;

use crate::{Result, thread_pool};

/// `-t`, `--threads`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ThreadArgs {
    /// Threads to compute with; 0 takes as many as the machine offers
    #[arg(short, long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub threads: usize,
}

impl ThreadArgs {
    /// The pool for this number of threads.
    pub fn pool(self) -> Result<rayon::ThreadPool> {
        thread_pool(self.threads)
    }
}

/// `--force`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct OutputArgs {
    /// Replace the output if it exists
    #[arg(long)]
    pub force: bool,
}

/// `-q`, `--quiet`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct TalkArgs {
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}
