//! How the screen looks: a title, the list, the details of the selected row, and the keys.

use gguf_cli::{file_name, human_bytes, printable};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, List, ListItem, ListState, Paragraph, Wrap};

use super::state::{Mode, State, Tab};

const KEYS: &str = "Tab other list   arrows move   / search   0-9 layer   [ ] scroll   q leave";

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State<'_>) {
    let [title, list, details, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Percentage(30),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title_line(state), title);
    state.page = usize::from(list.height.saturating_sub(2)).max(1);
    draw_list(frame, state, list);
    let details_text: Vec<Line<'_>> = state
        .details()
        .lines()
        .map(|l| Line::from(printable(l).into_owned()))
        .collect();
    let text = Paragraph::new(details_text)
        .wrap(Wrap { trim: false })
        .scroll((state.scroll, 0))
        .block(Block::bordered());
    frame.render_widget(text, details);
    frame.render_widget(foot_line(state), foot);
}

fn title_line(state: &State<'_>) -> Line<'static> {
    let file = state.file();
    let name = file_name(file.path());
    let name = printable(&name);
    let tab = |text: String, on: bool| {
        if on { text.reversed() } else { Span::raw(text) }
    };
    Line::from(vec![
        format!("{name}  {}   ", human_bytes(file.n_bytes())).bold(),
        tab(
            format!(" {} tensors ", file.tensors.len()),
            state.tab == Tab::Tensors,
        ),
        Span::raw(" "),
        tab(
            format!(" {} keys ", file.metadata.len()),
            state.tab == Tab::Metadata,
        ),
    ])
}

/// Only the rows on the screen are made, so that a model of 100,000 tensors scrolls like a small one.
fn draw_list(frame: &mut Frame<'_>, state: &State<'_>, area: ratatui::layout::Rect) {
    let first = (state.selected / state.page) * state.page;
    let shown = state.rows.iter().skip(first).take(state.page);
    let rows: Vec<_> = shown
        .map(|&i| state.row(i))
        .map(|(name, text)| (printable(name), text))
        .collect();
    let width = rows
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let items: Vec<ListItem<'_>> = rows
        .iter()
        .map(|(name, text)| ListItem::new(format!("{name:<width$}  {text}")))
        .collect();
    let title = if state.search.is_empty() {
        format!(" {} ", state.rows.len())
    } else {
        format!(" {} with `{}` ", state.rows.len(), state.search)
    };
    let list = List::new(items)
        .block(Block::bordered().title(title))
        .highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut at = ListState::default();
    if !state.rows.is_empty() {
        at.select(Some(state.selected - first));
    }
    frame.render_stateful_widget(list, area, &mut at);
}

fn foot_line(state: &State<'_>) -> Line<'static> {
    match state.mode {
        Mode::Search => Line::from(format!("search: {}_   Enter keep, Esc drop", state.search)),
        Mode::Layer => Line::from(format!("layer: {}_   Enter jump, Esc stay", state.layer)),
        Mode::Walk if !state.note.is_empty() => Line::from(state.note.clone().bold()),
        Mode::Walk => Line::from(KEYS.dim()),
    }
}
