//! The command line.

use std::iter;
use std::path::PathBuf;

use gguf_cli::{OutputArgs, TalkArgs};

use crate::SamplerSettings;
use crate::options::{ExactnessArgs, LoadArgs, PoolArgs, UbatchArgs};

/// Continues a text, or answers in a conversation
///
/// `-p` and `-f` give a text that goes to the model as it is. With --chat, or a system prompt or template, or
/// neither text nor --no-chat, messages go through the file's chat template. What the model writes goes to
/// stdout, all else to stderr.
#[derive(clap::Parser, Debug)]
#[command(name = "gguf-run", version)]
pub(super) struct Args {
    /// Model
    #[arg(short, long, value_name = "GGUF")]
    pub(super) model: PathBuf,
    #[command(flatten)]
    pub(super) input: InputArgs,
    #[command(flatten)]
    pub(super) chat: ChatArgs,
    #[command(flatten)]
    pub(super) length: LengthArgs,
    #[command(flatten)]
    pub(super) sampling: SamplingArgs,
    #[command(flatten)]
    pub(super) cache: CacheArgs,
    #[command(flatten)]
    pub(super) logits: LogitsArgs,
    #[command(flatten)]
    pub(super) size: SizeArgs,
    #[command(flatten)]
    pub(super) exactness: ExactnessArgs,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) threads: PoolArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Print the run as one JSON object, at its end
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) talk: TalkArgs,
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Text")]
pub(super) struct InputArgs {
    /// Text to continue; with --chat, the first message
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) prompt: Option<String>,
    /// The text from a file, or - for stdin; a newline at its end is left out
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    pub(super) file: Option<PathBuf>,
    /// Take \n, \t, \\, \', \", \xHH and the like in texts of options for what they stand for
    #[arg(short, long)]
    pub(super) escape: bool,
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Chat")]
pub(super) struct ChatArgs {
    /// Converse, by the file's chat template (short: -cnv)
    #[arg(long, visible_alias = "conversation", alias = "cnv")]
    pub(super) chat: bool,
    /// The text as it is, whatever the file has (short: -no-cnv)
    #[arg(
        long,
        visible_alias = "no-conversation",
        alias = "no-cnv",
        conflicts_with_all = ["chat", "system_prompt", "chat_template", "chat_template_file", "chat_template_kwargs"]
    )]
    pub(super) no_chat: bool,
    /// Message in front of the conversation (short: -sys)
    #[arg(long, alias = "sys", value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) system_prompt: Option<String>,
    /// Template: a name that the file has, `chatml`, or the text of one
    #[arg(long, value_name = "TEMPLATE")]
    pub(super) chat_template: Option<String>,
    /// Template: a file
    #[arg(long, value_name = "FILE", conflicts_with = "chat_template")]
    pub(super) chat_template_file: Option<PathBuf>,
    /// Further values for the template: a JSON object such as `{"enable_thinking":false}`
    #[arg(long, value_name = "JSON", value_parser = parse_object)]
    pub(super) chat_template_kwargs: Option<serde_json::Map<String, serde_json::Value>>,
    /// End behind the first answer (short: -st)
    #[arg(long, alias = "st")]
    pub(super) single_turn: bool,
}

impl Args {
    /// All files that are read, the model or the first of its files among them.
    pub(super) fn inputs(&self) -> impl Iterator<Item = PathBuf> {
        let options = [&self.input.file, &self.chat.chat_template_file, &self.logits.ids];
        iter::once(&self.model)
            .chain(options.into_iter().flatten())
            .cloned()
    }
}

impl ChatArgs {
    /// Whether messages are to go through a template.
    pub(super) fn wanted(&self, text_given: bool) -> bool {
        let asked = self.chat
            || self.system_prompt.is_some()
            || self.chat_template.is_some()
            || self.chat_template_file.is_some()
            || self.chat_template_kwargs.is_some();
        asked || !(text_given || self.no_chat)
    }
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Length")]
pub(super) struct LengthArgs {
    /// Tokens to generate at most, for each answer; -1: until the model ends or the context is full
    #[arg(short = 'n', long, alias = "n-predict", value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    pub(super) predict: i64,
    /// Go on behind tokens that end a text or a turn: they are never chosen
    #[arg(long)]
    pub(super) ignore_eos: bool,
    /// End in front of this text, which is left out; may be given several times
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) reverse_prompt: Vec<String>,
    /// Print control tokens, too (short: -sp)
    #[arg(long, alias = "sp")]
    pub(super) special: bool,
}

/// How tokens are chosen. The defaults are those of llama.cpp, but for the seed.
#[derive(clap::Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Sampling")]
pub(super) struct SamplingArgs {
    /// Temperature; 0 always takes the likeliest token
    #[arg(
        long,
        alias = "temperature",
        value_name = "T",
        default_value_t = 0.8,
        allow_negative_numbers = true
    )]
    temp: f32,
    /// Only the K likeliest tokens; 0: all
    #[arg(long, value_name = "K", default_value_t = 40)]
    top_k: usize,
    /// Only the likeliest tokens with this sum of probabilities; 1: all
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    top_p: f32,
    /// Only tokens with this share of the likeliest one's probability; 0: all
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    min_p: f32,
    /// Penalty on tokens seen lately; 1: none
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repeat_penalty: f32,
    /// Penalty on tokens for each time seen lately; 0: none
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Penalty on tokens seen lately at all; 0: none
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Tokens that the penalties look back; -1: the whole context
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true)]
    repeat_last_n: i64,
    /// Start of the random numbers: the same seed gives the same text; -1 takes one from the clock
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    seed: i64,
}

impl SamplingArgs {
    /// The settings; a seed that is to come from the clock is taken now.
    pub(super) fn settings(self, n_ctx: usize, banned: &[u32]) -> SamplerSettings {
        let clock = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            // 32 bits, so that it can be given again and typed.
            now.map_or(0, |d| (d.as_nanos() ^ (d.as_nanos() >> 32)) as u32)
                .into()
        };
        SamplerSettings {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            repeat_last_n: usize::try_from(self.repeat_last_n).unwrap_or(n_ctx).min(n_ctx),
            seed: u64::try_from(self.seed).unwrap_or_else(|_| clock()),
            banned: banned.to_vec(),
        }
    }
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Prompt cache")]
pub(super) struct CacheArgs {
    /// State of the prompt: read if it is there, such that only what differs is evaluated, and written
    #[arg(id = "prompt_cache", long = "prompt-cache", value_name = "FILE")]
    pub(super) path: Option<PathBuf>,
    /// Write the state of what was generated, too
    #[arg(id = "prompt_cache_all", long = "prompt-cache-all", requires = "prompt_cache")]
    pub(super) all: bool,
    /// Only read the state
    #[arg(
        id = "prompt_cache_ro",
        long = "prompt-cache-ro",
        requires = "prompt_cache",
        conflicts_with = "prompt_cache_all"
    )]
    pub(super) read_only: bool,
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Logits")]
pub(super) struct LogitsArgs {
    /// Evaluate these tokens in place of a text: a JSON array of ids, taken as they are
    #[arg(
        long,
        value_name = "JSON",
        requires = "logits_out",
        conflicts_with_all = ["prompt", "file", "chat", "system_prompt", "chat_template", "chat_template_file", "prompt_cache"]
    )]
    pub(super) ids: Option<PathBuf>,
    /// Safetensors file with `logits` of shape [T, V] in F32, one row a token, and `input_ids`
    #[arg(long, value_name = "FILE", requires = "ids")]
    pub(super) logits_out: Option<PathBuf>,
}

#[derive(clap::Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Computation")]
pub(super) struct SizeArgs {
    /// Positions that there is room for; 0: as many as the model was trained with [default: 4096, or fewer if it
    /// was trained with fewer; with --ids, their number]
    #[arg(short, long, value_name = "N")]
    pub(super) ctx_size: Option<usize>,
    /// Tokens of the prompt that are evaluated between two reports of progress
    #[arg(short, long, value_name = "N", default_value_t = 2048)]
    pub(super) batch_size: usize,
    #[command(flatten)]
    pub(super) ubatch: UbatchArgs,
}

/// Positions where none are given.
const N_CTX: usize = 4096;

impl SizeArgs {
    /// Positions for a model that was trained with so many.
    pub(super) fn n_ctx(self, n_ctx_train: usize) -> usize {
        match self.ctx_size {
            None => N_CTX.min(n_ctx_train),
            Some(0) => n_ctx_train,
            Some(n) => n,
        }
    }
}

fn parse_object(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    serde_json::from_str(text).map_err(|e| format!("expected a JSON object: {e}"))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[test]
    fn a_text_is_raw_unless_chat_is_asked_for() {
        Args::command().debug_assert();
        assert_eq!(gguf_cli::foreign_clashes(&Args::command()), [""; 0]);
        let wanted = |line: &str| {
            let args = Args::try_parse_from(["x", "-m", "m"].into_iter().chain(line.split_whitespace()));
            let args = args.unwrap();
            args.chat.wanted(args.input.prompt.is_some())
        };
        for (line, chat) in [
            ("", true),
            ("-p hi", false),
            ("--no-chat", false),
            ("-p hi --chat", true),
            ("-p hi --cnv", true),
            ("-p hi --sys be", true),
            ("-p hi --chat-template chatml", true),
        ] {
            assert_eq!(wanted(line), chat, "{line}");
        }
    }

    #[test]
    fn numbers_below_zero_mean_without_end() {
        let line = "x -m m -p -x -n -1 -s -1 --repeat-last-n -1 -t -1 --tb -1";
        let args = Args::try_parse_from(line.split(' ')).unwrap();
        assert_eq!((args.threads.threads, args.threads.threads_batch), (0, 0));
        assert_eq!(args.length.predict, -1);
        assert_eq!(args.input.prompt.as_deref(), Some("-x"));
        let settings = args.sampling.settings(77, &[]);
        assert_eq!(settings.repeat_last_n, 77);
        assert!(u32::try_from(settings.seed).is_ok());
        let usual = Args::try_parse_from(["x", "-m", "m"]).unwrap();
        let usual = usual.sampling.settings(4096, &[]);
        assert_eq!(usual, SamplerSettings::default());
    }
}
