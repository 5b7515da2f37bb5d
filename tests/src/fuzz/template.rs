//! Chat templates.

use gguf_runtime::{ChatTemplate, Interpreter, Message};

use super::tokenizer::built_in;

/// The parts between bytes 0xFF, which no text has: the template, then roles and contents of messages in turn. A last part
/// that is a JSON object are further values for the template.
pub(super) fn chat_template(data: &[u8]) {
    /// Text that a render may give: its fuel pays for 64 bytes a step.
    const MOST: usize = 64 * 4_000_000;
    let mut parts = data.split(|&b| b == 0xFF).map(String::from_utf8_lossy);
    let template = parts.next().unwrap_or_default();
    let mut parts: Vec<_> = parts.collect();
    let more = parts.last().and_then(|text| serde_json::from_str(text).ok());
    if more.is_some() {
        parts.pop();
    }
    let message = |pair: &[std::borrow::Cow<'_, str>]| {
        Message::new(pair[0].clone(), pair.get(1).cloned().unwrap_or_default())
    };
    let messages: Vec<Message> = parts.chunks(2).map(message).collect();
    let is_bounded = is_bounded(&template);
    let Ok(template) = ChatTemplate::new(&template, &built_in()[0], Interpreter::Here) else {
        return;
    };
    if !is_bounded {
        return;
    }
    let more = more.unwrap_or_default();
    if let Ok(text) = template.render(&messages, parts.len().is_multiple_of(2), &more) {
        assert!(text.len() <= MOST, "{} bytes", text.len());
    }
}

/// Whether no value can come to hold itself, or another one very often: what one step on such a value costs has no bound,
/// so it takes the process in which `gguf-run` runs templates, and is tried there by the runtime's tests.
fn is_bounded(template: &str) -> bool {
    let calls_itself = ["macro", "call", "recursive"];
    let makes_lists = ["[", ":", "((", "dict", "namespace"];
    let has = |words: &[&str]| words.iter().any(|w| template.contains(w));
    let makes_plain = |assigned: &str| {
        let value = assigned.split_once('=').map_or("", |(_, v)| v);
        let value = value.split_once("%}").map_or(value, |(v, _)| v);
        // Text, which steps pay for; sums with a number, since those of lists may be long chains.
        let has_number = value.split_whitespace().any(|word| word.parse::<f64>().is_ok());
        let is_sum = value.contains('~') || (value.contains(['+', '-', '*']) && has_number);
        let is_plain =
            !value.contains(['[', '{', '(', '|']) && !value.contains(" if ") && !value.contains(" or ");
        let is_constant = !value.contains(char::is_alphabetic) || ["true", "false"].contains(&value.trim());
        is_plain && (is_sum || is_constant)
    };
    // Only namespaces change. What is assigned to a name of one begins behind a `set`.
    let mut assigned = template.split("set").skip(1);
    !(has(&calls_itself) && has(&makes_lists))
        && (!template.contains("namespace") || assigned.all(|a| !is_of_a_namespace(a) || makes_plain(a)))
}

/// Whether what is assigned, `NAME = VALUE` or more than one, is to a name of a namespace, `NAME.NAME`.
fn is_of_a_namespace(assigned: &str) -> bool {
    assigned
        .split_once('=')
        .is_none_or(|(names, _)| names.contains('.') || names.contains(','))
}
