//! `--tui`: a model to walk through in the terminal.
//!
//! `state` is what is shown and what keys do to it, `view` how it looks; neither needs a terminal, so both are tested
//! without one.

mod state;
#[cfg(test)]
mod tests;
mod view;

use std::io::IsTerminal;
use std::path::Path;

use gguf::OpenOptions;
use gguf_cli::{Failure, Result};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use state::State;

/// Elements of an array that can be looked at.
const N_ITEMS: usize = 10_000;

/// Shows a model until the user leaves.
///
/// # Errors
/// No terminal on both sides; a file that cannot be opened.
pub(crate) fn run(path: &Path) -> Result<()> {
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return Err(Failure::Usage(
            "`--tui` needs a terminal: expected one on the standard input and output".to_owned(),
        ));
    }
    let outline = OpenOptions::new().incomplete().outline(path, N_ITEMS)?;
    let mut state = State::new(&outline);
    let mut terminal = ratatui::try_init().map_err(|e| failed(&e))?;
    let ended = browse(&mut terminal, &mut state);
    ratatui::restore();
    ended.map_err(|e| failed(&e))
}

fn failed(e: &std::io::Error) -> Failure {
    Failure::Usage(format!("cannot use the terminal: {e}"))
}

fn browse(terminal: &mut ratatui::DefaultTerminal, state: &mut State<'_>) -> std::io::Result<()> {
    while !state.left {
        terminal.draw(|frame| view::draw(frame, state))?;
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            state.press(key);
        }
    }
    Ok(())
}
