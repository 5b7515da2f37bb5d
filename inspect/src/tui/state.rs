//! What is shown, and what keys do to it.

use std::fmt::Write;

use gguf::{GgufFile, Outline, TensorInfo, Value};
use gguf_cli::{file_name, human_bytes, preview_cut};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Which list is on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Tensors,
    Metadata,
}

/// What typed characters mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Commands.
    Walk,
    /// Part of the search.
    Search,
    /// Part of a layer's number.
    Layer,
}

/// Everything about the screen but its size.
pub(super) struct State<'a> {
    outline: &'a Outline,
    pub(super) tab: Tab,
    pub(super) mode: Mode,
    /// Rows hold this, upper and lower case alike.
    pub(super) search: String,
    /// Digits typed so far.
    pub(super) layer: String,
    /// Rows of the list that match the search: indices of tensors or of metadata pairs.
    pub(super) rows: Vec<usize>,
    /// Position in `rows`.
    pub(super) selected: usize,
    /// First line of the details that is shown.
    pub(super) scroll: u16,
    /// Rows of a page, as last drawn.
    pub(super) page: usize,
    /// What happened last, where a key could not do what it should.
    pub(super) note: String,
    pub(super) left: bool,
}

impl<'a> State<'a> {
    pub(super) fn new(outline: &'a Outline) -> Self {
        let mut state = Self {
            outline,
            tab: Tab::Tensors,
            mode: Mode::Walk,
            search: String::new(),
            layer: String::new(),
            rows: Vec::new(),
            selected: 0,
            scroll: 0,
            page: 1,
            note: String::new(),
            left: false,
        };
        if state.file().tensors.is_empty() {
            state.tab = Tab::Metadata;
        }
        state.filter();
        state
    }

    pub(super) fn file(&self) -> &'a GgufFile {
        self.outline.file()
    }

    /// Name and one-line value of a row.
    pub(super) fn row(&self, i: usize) -> (&'a str, String) {
        match self.tab {
            Tab::Tensors => {
                let t = &self.file().tensors[i];
                let text = format!(
                    "{:<9} {:<28} {:>10}",
                    t.type_name(),
                    t.shape.to_string(),
                    human_bytes(t.n_bytes)
                );
                (&t.name, text)
            }
            Tab::Metadata => {
                let (key, value) = self.pair(i);
                (key, preview_cut(value, 8, 100, self.outline.cut_len(key)))
            }
        }
    }

    fn pair(&self, i: usize) -> (&'a str, &'a Value) {
        self.file()
            .metadata
            .iter()
            .nth(i)
            .expect("rows are indices of pairs")
    }

    /// All that is known of the selected row.
    pub(super) fn details(&self) -> String {
        let Some(&i) = self.rows.get(self.selected) else {
            return String::new();
        };
        match self.tab {
            Tab::Tensors => self.tensor_details(&self.file().tensors[i]),
            Tab::Metadata => {
                let (key, value) = self.pair(i);
                let value_text = match value {
                    Value::String(s) => s.clone(),
                    _ => preview_cut(value, usize::MAX, usize::MAX, self.outline.cut_len(key)),
                };
                format!("{key}: {}\n{value_text}", value.type_name())
            }
        }
    }

    fn tensor_details(&self, t: &TensorInfo) -> String {
        let file = self.file();
        let range = file.tensor_range(t);
        let bits = t.bits_per_weight().map_or("-".to_owned(), |b| format!("{b:.4}"));
        let mut text = format!(
            "{}\ntype {}, shape {}, {} elements, {} bytes, {bits} bits/weight\nbytes {} to {}",
            t.name,
            t.type_name(),
            t.shape,
            t.shape.n_elems(),
            t.n_bytes,
            range.start,
            range.end
        );
        if file.parts().len() > 1 {
            let _ = write!(text, " of {}", file_name(file.part(t).path()));
        }
        text
    }

    /// Shows the rows that match the search, the selected one still selected if it is among them.
    fn filter(&mut self) {
        let before = self.rows.get(self.selected).copied();
        let wanted = self.search.to_lowercase();
        let file = self.file();
        let matches = |name: &str| name.to_lowercase().contains(&wanted);
        self.rows = match self.tab {
            Tab::Tensors => {
                let all = file.tensors.iter().enumerate();
                all.filter(|(_, t)| matches(&t.name) || matches(&t.type_name()))
                    .map(|(i, _)| i)
                    .collect()
            }
            Tab::Metadata => {
                let all = file.metadata.iter().enumerate();
                all.filter(|(_, (key, value))| {
                    matches(key) || matches!(value, Value::String(s) if matches(s))
                })
                .map(|(i, _)| i)
                .collect()
            }
        };
        let kept = before.and_then(|i| self.rows.binary_search(&i).ok());
        self.select(kept.unwrap_or(0));
    }

    fn select(&mut self, i: usize) {
        self.selected = i.min(self.rows.len().saturating_sub(1));
        self.scroll = 0;
    }

    /// Does what a key stands for.
    pub(super) fn press(&mut self, key: KeyEvent) {
        self.note.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.left = true;
            return;
        }
        match self.mode {
            Mode::Walk => self.walk(key.code),
            Mode::Search => self.type_search(key.code),
            Mode::Layer => self.type_layer(key.code),
        }
    }

    fn walk(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char('q') => self.left = true,
            KeyCode::Esc if self.search.is_empty() => self.left = true,
            KeyCode::Esc => {
                self.search.clear();
                self.filter();
            }
            KeyCode::Tab | KeyCode::Left | KeyCode::Right => self.switch(),
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected + 1),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(self.page)),
            KeyCode::PageDown => self.select(self.selected + self.page),
            KeyCode::Home | KeyCode::Char('g') => self.select(0),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            KeyCode::Char('[') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Char(']') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Char('/') => self.mode = Mode::Search,
            KeyCode::Char(c @ '0'..='9') => {
                self.mode = Mode::Layer;
                self.layer = c.to_string();
            }
            KeyCode::Char('l') => {
                self.mode = Mode::Layer;
                self.layer.clear();
            }
            _ => {}
        }
    }

    fn switch(&mut self) {
        self.tab = match self.tab {
            Tab::Tensors => Tab::Metadata,
            Tab::Metadata => Tab::Tensors,
        };
        self.rows.clear();
        self.filter();
    }

    fn type_search(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::Walk,
            KeyCode::Esc => {
                self.mode = Mode::Walk;
                self.search.clear();
            }
            KeyCode::Backspace => drop(self.search.pop()),
            KeyCode::Char(c) => self.search.push(c),
            _ => return,
        }
        self.filter();
    }

    fn type_layer(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => {
                self.mode = Mode::Walk;
                self.jump();
            }
            KeyCode::Esc => self.mode = Mode::Walk,
            KeyCode::Backspace => drop(self.layer.pop()),
            KeyCode::Char(c @ '0'..='9') if self.layer.len() < 6 => self.layer.push(c),
            _ => {}
        }
    }

    /// Selects the first tensor of the layer typed.
    fn jump(&mut self) {
        if self.tab != Tab::Tensors {
            self.tab = Tab::Tensors;
        }
        self.search.clear();
        self.rows.clear();
        self.filter();
        let prefix = format!("blk.{}.", self.layer.trim_start_matches('0'));
        let prefix = if prefix == "blk.." {
            "blk.0.".to_owned()
        } else {
            prefix
        };
        match self
            .file()
            .tensors
            .iter()
            .position(|t| t.name.starts_with(&prefix))
        {
            Some(i) => self.select(i),
            None => self.note = format!("no tensor of layer {}", self.layer),
        }
    }
}
