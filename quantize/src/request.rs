//! What the options ask for, every text of theirs parsed, before any file but those of rules is looked at.

mod rules;

use std::fmt::Write as _;

use gguf::{Value, key, short};
use gguf_blocks::{Format, registry};
use gguf_cli::{Failure, ReserveArgs, Result, file_name};

use crate::job::{Arrangement, Job, Kind, Target};
use crate::options::{RecipeArgs, Uncovered};
use crate::policy::Wish;

use rules::Rules;

/// Longest string value of `--override-kv`, in bytes, as readers of the reference have it.
const MAX_TEXT: usize = 127;

/// What all targets have in common.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct Request {
    pub(crate) allow_requantize: bool,
    pub(crate) strict: bool,
    pub(crate) uncovered: Option<Uncovered>,
    /// Whether the source's digest goes into the output.
    pub(crate) hashes_source: bool,
    pub(crate) reserve: ReserveArgs,
    pure: bool,
    /// Where tensors go.
    pub(crate) arrangement: Arrangement,
    leave_output: bool,
    output_type: Option<&'static str>,
    token_embd_type: Option<&'static str>,
    rules: Rules,
    /// Layers to leave out, ascending, each once.
    pub(crate) prune: Vec<u32>,
    /// Metadata to set.
    pub(crate) pairs: Vec<(String, Value)>,
    /// The options as they go into the recipe, texts quoted for a shell where they need it.
    recipe: String,
}

impl Request {
    pub(crate) fn new(job: &Job<'_>) -> Result<Self> {
        let args = job.recipe;
        let asked = |flag: &str, name: &Option<String>| {
            name.as_ref()
                .map(|n| tensor_type(n).map_err(|e| e.of(flag)))
                .transpose()
        };
        if args.pure && job.targets.iter().any(|t| matches!(t.kind, Kind::Copy)) {
            let what = "`--pure` asks for the base type of a file type, and `COPY` has none";
            return Err(Failure::Usage(what.to_owned()));
        }
        let mut rules = Rules::default();
        for text in &args.tensor_type {
            rules.add(text, &format!("--tensor-type `{}`", short(text)))?;
        }
        for path in &args.tensor_type_file {
            rules.add_file(path)?;
        }
        let mut prune = args.prune_layers.clone();
        prune.sort_unstable();
        prune.dedup();
        let mut pairs: Vec<(String, Value)> = Vec::new();
        for text in &args.override_kv {
            let (key, value) = parse_pair(text)?;
            if pairs.iter().any(|(k, _)| *k == key) {
                return Err(Failure::Usage(format!(
                    "--override-kv `{text}`: key `{key}` is set twice"
                )));
            }
            pairs.push((key, value));
        }
        let mut this = Self {
            allow_requantize: args.allow_requantize,
            strict: args.strict,
            uncovered: args.uncovered,
            hashes_source: !args.no_source_hash,
            reserve: job.work.reserve,
            pure: args.pure,
            arrangement: job.arrangement,
            leave_output: args.leave_output_tensor,
            output_type: asked("--output-tensor-type", &args.output_tensor_type)?,
            token_embd_type: asked("--token-embedding-type", &args.token_embedding_type)?,
            rules,
            prune,
            pairs,
            recipe: String::new(),
        };
        this.recipe = this.options(args);
        Ok(this)
    }

    /// What is asked of the policy for one target.
    pub(crate) fn wish(&self, target: &Target, has_imatrix: bool) -> Wish {
        Wish {
            file_type: target.file_type(),
            has_imatrix,
            pure: self.pure,
            leave_output: self.leave_output,
            output_type: self.output_type,
            token_embd_type: self.token_embd_type,
            overrides: self.rules.list.clone(),
        }
    }

    /// One line that says how a target is made: its type and the options that decide what its tensors hold, in a fixed
    /// order, without folders.
    pub(crate) fn recipe(&self, target: &Target) -> String {
        format!("{}{}", target.type_name, self.recipe)
    }

    fn options(&self, args: &RecipeArgs) -> String {
        let mut out = String::new();
        let mut switch = |on: bool, name: &str| {
            if on {
                let _ = write!(out, " {name}");
            }
        };
        switch(args.allow_requantize, "--allow-requantize");
        switch(self.leave_output, "--leave-output-tensor");
        switch(self.pure, "--pure");
        let mut option = |name: &str, value: &str| {
            let _ = write!(out, " {name} {}", quoted(value));
        };
        if let Some(path) = &args.imatrix {
            option("--imatrix", &file_name(path));
        }
        for name in &args.include_weights {
            option("--include-weights", name);
        }
        for name in &args.exclude_weights {
            option("--exclude-weights", name);
        }
        if let Some(how) = args.uncovered {
            option("--uncovered", how.name());
        }
        if let Some(n) = args.prior {
            option("--prior", &n.to_string());
        }
        if let Some(t) = self.output_type {
            option("--output-tensor-type", t);
        }
        if let Some(t) = self.token_embd_type {
            option("--token-embedding-type", t);
        }
        for rule in &self.rules.list {
            let pattern = rule.text.rsplit_once('=').map_or(rule.text.as_str(), |(p, _)| p);
            option("--tensor-type", &format!("{pattern}={}", rule.type_name));
        }
        if !self.prune.is_empty() {
            let layers: Vec<_> = self.prune.iter().map(u32::to_string).collect();
            option("--prune-layers", &layers.join(","));
        }
        for text in &args.override_kv {
            option("--override-kv", text);
        }
        out
    }
}

/// A text as a shell takes it for one word.
fn quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.,:=/+@%".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A tensor type that was not understood, before it is known where it was given.
struct UnknownType(String);

impl UnknownType {
    fn of(self, place: &str) -> Failure {
        let names: Vec<_> = encodable().map(|f| f.name).collect();
        Failure::Usage(format!(
            "{place}: unknown tensor type `{}`; available: {}",
            short(&self.0),
            names.join(", ")
        ))
    }
}

fn encodable() -> impl Iterator<Item = &'static Format> {
    registry::all().iter().copied().filter(|f| f.encode.is_some())
}

fn tensor_type(name: &str) -> std::result::Result<&'static str, UnknownType> {
    let found = encodable().find(|f| f.name.eq_ignore_ascii_case(name));
    found.map(|f| f.name).ok_or_else(|| UnknownType(name.to_owned()))
}

/// A pair `KEY=TYPE:VALUE`. Whole numbers become u32 of their absolute value, as in llama.cpp.
fn parse_pair(text: &str) -> Result<(String, Value)> {
    let bad = |what: &str| Failure::Usage(format!("--override-kv `{text}`: {what}"));
    let (name, rest) = text
        .split_once('=')
        .ok_or_else(|| bad("expected KEY=TYPE:VALUE"))?;
    let (kind, value) = rest
        .split_once(':')
        .ok_or_else(|| bad("expected KEY=TYPE:VALUE, with TYPE int, float, bool or str"))?;
    if name.is_empty() {
        return Err(bad("expected a key in front of `=`"));
    }
    if key::SPLIT.contains(&name) || name == key::PAD || name == key::ARCHITECTURE {
        return Err(bad(&format!("key `{name}` is not for overriding")));
    }
    let value = match kind {
        "int" => {
            let n: i128 = value.parse().map_err(|_| bad("expected a whole number"))?;
            let n =
                u32::try_from(n.unsigned_abs()).map_err(|_| bad("expected a number of at most 32 bits"))?;
            Value::U32(n)
        }
        "float" => match value.parse::<f32>() {
            Ok(x) if x.is_finite() => Value::F32(x),
            _ => return Err(bad("expected a finite number of 32 bits")),
        },
        "bool" => match value {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => return Err(bad("expected `true` or `false`")),
        },
        "str" if value.len() > MAX_TEXT => {
            let what = format!("expected at most {MAX_TEXT} bytes, found {}", value.len());
            return Err(bad(&what));
        }
        "str" => Value::String(value.to_owned()),
        _ => {
            return Err(bad(&format!(
                "expected type int, float, bool or str, found `{kind}`"
            )));
        }
    };
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_the_references_types() {
        let pair = |text: &str| parse_pair(text).map(|(_, v)| v).map_err(|e| e.to_string());
        assert_eq!(pair("a.b=int:7"), Ok(Value::U32(7)));
        assert_eq!(pair("a.b=int:-7"), Ok(Value::U32(7)));
        assert_eq!(pair("a.b=float:0.5"), Ok(Value::F32(0.5)));
        assert_eq!(pair("a.b=bool:true"), Ok(Value::Bool(true)));
        assert_eq!(pair("a.b=str:x=y: z"), Ok(Value::String("x=y: z".to_owned())));
        let long = format!("a=str:{}", "x".repeat(128));
        for (bad, part) in [
            ("a", "KEY=TYPE:VALUE"),
            ("a=7", "KEY=TYPE:VALUE"),
            ("=int:7", "in front of `=`"),
            ("a=int:4294967296", "32 bits"),
            ("a=int:x", "whole number"),
            ("a=float:nan", "finite"),
            ("a=float:1e99", "finite"),
            ("a=bool:1", "`true` or `false`"),
            ("a=u8:1", "found `u8`"),
            ("split.count=int:1", "not for overriding"),
            (long.as_str(), "at most 127 bytes, found 128"),
        ] {
            let text = pair(bad).unwrap_err();
            assert!(text.contains(part), "{bad}: {text}");
        }
    }

    #[test]
    fn words_for_a_shell() {
        assert_eq!(quoted("attn_v=Q8_0"), "attn_v=Q8_0");
        assert_eq!(quoted("blk\\.(0|1)=Q8_0"), "'blk\\.(0|1)=Q8_0'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
