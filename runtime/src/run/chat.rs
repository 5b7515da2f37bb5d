//! Conversations: messages from the command line or stdin, answers from the model.

use std::io::{BufRead as _, IsTerminal as _, Read as _};

use gguf_cli::{Failure, Result, say};

use super::args::Args;
use super::input;
use super::start::Run;
use crate::{ChatTemplate, Interpreter, Message, Model, Tokenizer};

/// Bytes of a message that is typed or piped in, at most.
const MAX_LINE: u64 = 16 << 20;

/// The template that the command line asks for, else the file's.
pub(super) fn template(args: &Args, model: &Model, tokenizer: &Tokenizer) -> Result<ChatTemplate> {
    let chat = &args.chat;
    let interpreter = Interpreter::own()
        .map_err(|e| Failure::Usage(format!("cannot find this program's own file: {e}")))?;
    if let Some(path) = &chat.chat_template_file {
        let source = gguf_cli::read_text(path)?;
        return ChatTemplate::new(&source, tokenizer, interpreter)
            .map_err(|e| Failure::Input(format!("`{}`: {e}", path.display())));
    }
    let name = match &chat.chat_template {
        // Names have no braces, templates do.
        Some(text) if text.contains('{') => return Ok(ChatTemplate::new(text, tokenizer, interpreter)?),
        name => name.as_deref(),
    };
    let path = args.model.display();
    let found = ChatTemplate::from_metadata(&model.file().metadata, name, tokenizer, interpreter).map_err(
        |e| match e {
            crate::Error::Settings(_) => Failure::from(e),
            e => Failure::Input(format!("`{path}`: {e}")),
        },
    )?;
    found.ok_or_else(|| {
        Failure::Input(format!(
            "`{path}` has no chat template; give one with `--chat-template-file FILE` or `--chat-template chatml`, \
             or a text with `-p TEXT --no-chat`"
        ))
    })
}

/// A conversation, until there are no more messages.
pub(super) fn run(
    args: &Args,
    run: &mut Run<'_>,
    template: &ChatTemplate,
    mut first: Option<String>,
) -> Result<()> {
    let mut messages = Vec::new();
    if let Some(text) = &args.chat.system_prompt {
        messages.push(Message::new("system", args.input.unescaped(text)?));
    }
    let n_fixed = messages.len();
    let typed = std::io::stdin().is_terminal();
    // A message on the command line is all there is, unless somebody can type more.
    let single = args.chat.single_turn || args.json || first.is_some() && !typed;
    let more = args.chat.chat_template_kwargs.clone().unwrap_or_default();
    if typed && !single && !args.talk.quiet {
        say("one message a line; `/clear` forgets the conversation, `/exit` ends it");
    }
    let mut answered = false;
    while !(answered && single) {
        let Some(text) = first
            .take()
            .map_or_else(|| read_line(typed), |text| Ok(Some(text)))?
        else {
            break;
        };
        match text.trim() {
            "" => continue,
            "/exit" if typed => break,
            "/clear" if typed => {
                messages.truncate(n_fixed);
                continue;
            }
            _ => messages.push(Message::new("user", text)),
        }
        let text = template.render(&messages, true, &more)?;
        let turn = run.turn(&input::encode(run.tokenizer, &text)?)?;
        run.report(&text, &turn)?;
        answered = true;
        if turn.is_full() && !single {
            break;
        }
        messages.push(Message::new("assistant", turn.text));
    }
    if answered || typed {
        return Ok(());
    }
    Err(Failure::Usage(
        "no message: give one with `-p TEXT`, or lines on the standard input".into(),
    ))
}

/// The next message; `None` at the end of the input.
fn read_line(typed: bool) -> Result<Option<String>> {
    if typed {
        // On stderr, so that stdout has the answers alone.
        eprint!("> ");
    }
    let mut line = Vec::new();
    let mut input = std::io::stdin().lock().take(MAX_LINE + 1);
    input
        .read_until(b'\n', &mut line)
        .map_err(|e| Failure::Usage(format!("cannot read the standard input: {e}")))?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() as u64 > MAX_LINE {
        let text = "standard input: expected a message of at most 16.0 MiB, found more";
        return Err(Failure::Input(text.into()));
    }
    let line = String::from_utf8(line)
        .map_err(|_| Failure::Input("standard input: expected UTF-8 text, found other bytes".into()))?;
    Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
}
