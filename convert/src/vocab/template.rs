//! Chat templates: from their own file or from `tokenizer_config.json`.

use std::path::{Path, PathBuf};

use gguf::{Metadata, Value, listed, short};
use serde_json::Value as Json;

use super::TOKENIZER_CONFIG;
use crate::Result;
use crate::error::Error;
use crate::source::{read_json_if_there, read_text_if_there};

const JINJA: &str = "chat_template.jinja";
const IN_JSON: &str = "chat_template.json";
const FOLDER: &str = "additional_chat_templates";

/// Templates beside the default one, each of which becomes a key. Models in use have up to four.
const MAX_NAMED: usize = 1024;

/// Bytes of a template's name: each becomes part of a key.
const MAX_NAME: usize = 256;

/// Left out templates that a note names.
const N_SHOWN: usize = 4;

/// The templates of a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Templates {
    default: Option<String>,
    /// Name and text, in the order in which they were found.
    named: Vec<(String, String)>,
    /// The files they came from.
    pub(super) files: Vec<PathBuf>,
}

impl Templates {
    /// The default template is that of `chat_template.jinja`, else `chat_template.json`, else
    /// `tokenizer_config.json`. Named ones come from the latter and from `additional_chat_templates`.
    pub(super) fn read(dir: &Path, config: &Json, notes: &mut Vec<String>) -> Result<Self> {
        let mut found = Self::default();
        let mut candidates: Vec<(&str, String)> = Vec::new();
        if let Some(text) = read_text_if_there(&dir.join(JINJA))? {
            candidates.push((JINJA, text));
        }
        let json: Option<Json> = read_json_if_there(&dir.join(IN_JSON))?;
        for (name, settings) in [(IN_JSON, json.as_ref()), (TOKENIZER_CONFIG, Some(config))] {
            let object = format!("{name} `chat_template`");
            let template = settings.map_or(&Json::Null, |s| &s["chat_template"]);
            if let Some(text) = template.as_str() {
                candidates.push((name, text.to_owned()));
            }
            if !(template.is_null() || template.is_string() || template.is_array()) {
                let expected = "a text, a list of named texts, or null";
                return Err(Error::mismatch(object, expected, template));
            }
            for entry in template.as_array().into_iter().flatten() {
                match (entry["name"].as_str(), entry["template"].as_str()) {
                    (Some("default"), Some(text)) => candidates.push((name, text.to_owned())),
                    (Some(key), Some(text)) => found.add_named(key, text, &object)?,
                    _ => {
                        return Err(Error::mismatch(
                            object,
                            "entries with a name and a template",
                            entry,
                        ));
                    }
                }
            }
        }
        found.read_folder(&dir.join(FOLDER))?;
        found.files.extend([dir.join(JINJA), dir.join(IN_JSON)]);
        let mut candidates = candidates.into_iter();
        if let Some((name, text)) = candidates.next() {
            let others: Vec<_> = candidates
                .filter(|(_, t)| *t != text)
                .map(|(n, _)| n.to_owned())
                .collect();
            if !others.is_empty() {
                notes.push(format!(
                    "the chat template is that of {name}; left out: {}",
                    listed(&others, N_SHOWN, ", ")
                ));
            }
            found.default = Some(text);
        }
        Ok(found)
    }

    /// Adds a template, unless there is one of that name; `object` is what has it, for messages.
    fn add_named(&mut self, name: &str, text: &str, object: &str) -> Result<()> {
        if name.len() > MAX_NAME {
            let expected = format!("names of at most {MAX_NAME} bytes");
            return Err(Error::mismatch(object, expected, format!("`{}`", short(name))));
        }
        if self.named.iter().any(|(known, _)| known == name) {
            return Ok(());
        }
        if self.named.len() == MAX_NAMED {
            let expected = format!("at most {MAX_NAMED} named templates in all");
            return Err(Error::mismatch(object, expected, "more"));
        }
        self.named.push((name.to_owned(), text.to_owned()));
        Ok(())
    }

    /// `additional_chat_templates/NAME.jinja`.
    fn read_folder(&mut self, folder: &Path) -> Result<()> {
        let entries = match std::fs::read_dir(folder) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|e| Error::io("read", folder, e))?,
        };
        let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        paths.sort_unstable();
        for path in paths
            .into_iter()
            .filter(|p| p.extension().is_some_and(|e| e == "jinja"))
        {
            let (Some(name), Some(text)) = (
                path.file_stem().and_then(|s| s.to_str()),
                read_text_if_there(&path)?,
            ) else {
                continue;
            };
            self.add_named(name, &text, FOLDER)?;
            self.files.push(path);
        }
        Ok(())
    }

    /// Appends the keys.
    pub(super) fn write(self, out: &mut Metadata) {
        let names: Vec<String> = self.named.iter().map(|(name, _)| name.clone()).collect();
        for (name, text) in self.named {
            out.set(format!("tokenizer.chat_template.{name}"), Value::String(text));
        }
        if !names.is_empty() {
            out.set("tokenizer.chat_templates", Value::from(names));
        }
        if let Some(text) = self.default {
            out.set("tokenizer.chat_template", Value::String(text));
        }
    }
}
