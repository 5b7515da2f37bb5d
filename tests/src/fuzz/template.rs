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
    let Ok(template) = ChatTemplate::new(&template, &built_in()[0], Interpreter::Here) else {
        return;
    };
    let more = more.unwrap_or_default();
    if let Ok(text) = template.render(&messages, parts.len().is_multiple_of(2), &more) {
        assert!(text.len() <= MOST, "{} bytes", text.len());
    }
}
