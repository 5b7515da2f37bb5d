//! Keys pressed on a screen that is a buffer.

use std::path::PathBuf;

use gguf::{Layout, Metadata, Outline, Shape, TensorSpec, Writer};
use gguf_blocks::TypeId;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::State;
use super::view;

/// A file with 30 layers of two tensors.
fn model(folder: &std::path::Path) -> PathBuf {
    let path = folder.join("m.gguf");
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "test".into());
    metadata.set("general.name", "A model of layers".into());
    let specs = (0..30).flat_map(|layer| {
        ["attn_q", "ffn_up"].map(|role| {
            let shape = Shape::new(&[4, 2]).expect("small");
            TensorSpec::new(format!("blk.{layer}.{role}.weight"), shape, TypeId(0))
        })
    });
    let layout = Layout::plan(&metadata, specs.collect()).expect("sound");
    let out = gguf::atomic::AtomicFile::create(&path, false, &[], None).expect("a new file");
    let mut writer = Writer::new(out, &layout).expect("room");
    for _ in 0..60 {
        writer.write(&[0; 32]).expect("room");
    }
    writer.finish().expect("complete").commit().expect("room");
    path
}

/// The screen after some keys.
fn screen(keys: &[KeyCode]) -> (String, bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let outline = Outline::open(&model(folder.path()), 8).expect("opens");
    let mut state = State::new(&outline);
    let mut terminal = Terminal::new(TestBackend::new(100, 24)).expect("a buffer");
    terminal
        .draw(|frame| view::draw(frame, &mut state))
        .expect("drawn");
    for &key in keys {
        state.press(KeyEvent::new(key, KeyModifiers::NONE));
        terminal
            .draw(|frame| view::draw(frame, &mut state))
            .expect("drawn");
    }
    (terminal.backend().to_string(), state.left)
}

fn typed(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
}

#[test]
fn the_first_screen_lists_tensors() {
    let (text, left) = screen(&[]);
    assert!(!left);
    for words in [
        "m.gguf",
        "60 tensors",
        "2 keys",
        "blk.0.attn_q.weight",
        "[4, 2]",
        "q leave",
    ] {
        assert!(text.contains(words), "`{words}` not in:\n{text}");
    }
    assert!(!text.contains("blk.29."), "{text}");
}

#[test]
fn digits_jump_to_a_layer() {
    let keys = [typed("29"), vec![KeyCode::Enter]].concat();
    let (text, _) = screen(&keys);
    assert!(
        text.contains("blk.29.attn_q.weight") && text.contains("8 elements"),
        "{text}"
    );
    let keys = [typed("l77"), vec![KeyCode::Enter]].concat();
    assert!(screen(&keys).0.contains("no tensor of layer 77"));
}

#[test]
fn a_search_keeps_what_matches() {
    let keys = [typed("/FFN_UP"), vec![KeyCode::Enter, KeyCode::End]].concat();
    let (text, _) = screen(&keys);
    assert!(
        text.contains("30 with `FFN_UP`") && text.contains("blk.29.ffn_up.weight"),
        "{text}"
    );
    assert!(!text.contains("attn_q"), "{text}");
    let nothing = screen(&typed("/nothing like it")).0;
    assert!(nothing.contains("0 with"), "{nothing}");
}

#[test]
fn the_other_tab_shows_metadata_in_full() {
    let (text, _) = screen(&[KeyCode::Tab, KeyCode::Down]);
    assert!(
        text.contains("general.name: string") && text.contains("A model of layers"),
        "{text}"
    );
    assert!(screen(&typed("q")).1);
}
