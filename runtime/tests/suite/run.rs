//! `gguf-run` as a user runs it, on a small random model.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use gguf::Value;
use serde_json::Value as Json;

use crate::cli::{error, ok};
use crate::common::{N_EMBD, Tiny, shared, write};

const RUN: &str = env!("CARGO_BIN_EXE_gguf-run");
const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}{% if \
                        add_generation_prompt %}[assistant]{% endif %}";

struct Work {
    folder: tempfile::TempDir,
}

impl Work {
    fn new(tiny: &Tiny) -> Self {
        let work = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        tiny.write(&work.path("tiny.gguf"));
        work
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        write(&self.path(name), text.as_bytes());
    }

    fn with_input(&self, args: &[&str], input: &str) -> Output {
        let mut child = Command::new(RUN)
            .args(["-m", "tiny.gguf"])
            .args(if args.contains(&"-t") {
                &[][..]
            } else {
                &["-t", "2"]
            })
            .args(args)
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that stops at its command line reads nothing.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        child.wait_with_output().unwrap()
    }

    fn run(&self, args: &[&str]) -> Output {
        self.with_input(args, "")
    }

    fn json(&self, args: &[&str]) -> Json {
        let output = self.run(&[args, &["--json"]].concat());
        serde_json::from_str(&ok(&output)).unwrap()
    }

    fn wrong(&self, args: &[&str], code: i32, words: &str) {
        let line = error(&self.run(args), code);
        assert!(line.contains(words), "{args:?}: {line}");
    }
}

/// A model with a template.
fn chatty() -> Tiny {
    let mut tiny = Tiny::new();
    tiny.metadata
        .set(gguf::key::CHAT_TEMPLATE, Value::String(TEMPLATE.into()));
    tiny
}

fn ids(json: &Json, key: &str) -> Vec<u32> {
    let list = json[key].as_array().unwrap();
    list.iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn text_of(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Tensors of a safetensors file: `input_ids`, and the rows of `logits`.
fn logits(work: &Work, name: &str) -> (Vec<i64>, Vec<Vec<f32>>) {
    let bytes = std::fs::read(work.path(name)).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let (ids, rows) = (file.tensor("input_ids").unwrap(), file.tensor("logits").unwrap());
    let ids = ids.data().as_chunks().0.iter().map(|&b| i64::from_le_bytes(b));
    let values: Vec<f32> = rows
        .data()
        .as_chunks()
        .0
        .iter()
        .map(|&b| f32::from_le_bytes(b))
        .collect();
    assert_eq!(rows.shape().len(), 2);
    (
        ids.collect(),
        values.chunks(rows.shape()[1]).map(<[f32]>::to_vec).collect(),
    )
}

#[test]
fn greedy_text_is_the_likeliest_by_the_logits_of_its_ids() {
    let work = Work::new(&Tiny::new());
    let args = ["-p", "the inn", "-n", "24", "--temp", "0", "--ignore-eos"];
    let json = work.json(&args);
    let (prompt, chosen) = (ids(&json, "prompt_ids"), ids(&json, "generated_ids"));
    assert_eq!((chosen.len(), json["stop"].as_str()), (24, Some("limit")));
    let all: Vec<u32> = prompt.iter().chain(&chosen).copied().collect();
    work.put("ids.json", &serde_json::to_string(&all).unwrap());
    let out = ok(&work.run(&["--ids", "ids.json", "--logits-out", "a.st", "-q"]));
    assert_eq!(out, "");
    let (given, rows) = logits(&work, "a.st");
    assert!(given.iter().zip(&all).all(|(&a, &b)| a == i64::from(b)));
    assert_eq!((rows.len(), rows[0].len()), (all.len(), Tiny::new().n_vocab()));
    let banned = Tiny::new().n_vocab() - 2;
    for (row, &id) in rows[prompt.len() - 1..].iter().zip(&chosen) {
        let mut row = row.clone();
        row[banned] = f32::NEG_INFINITY;
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(row[id as usize], max);
    }
    // What streams is the text of the object, for any number of threads and any cut of the prompt.
    for more in [&["-q"][..], &["-q", "-t", "1", "-b", "3", "-ub", "2"]] {
        let text = ok(&work.run(&[&args, more].concat()));
        assert_eq!(text, format!("{}\n", json["text"].as_str().unwrap()));
    }
    let talk = text_of(&work.run(&args));
    assert!(talk.contains("generated: 24 tokens, "), "{talk}");
}

#[test]
fn an_error_behind_text_begins_a_line() {
    let work = Work::new(&Tiny::new());
    let args = ["-p", "the inn", "-n", "24", "--temp", "0", "--ignore-eos"];
    let json = work.json(&args);
    let (prompt, chosen) = (ids(&json, "prompt_ids"), ids(&json, "generated_ids"));
    // The first token that was not there before, from the third on, is one that the model cannot read.
    let mut new = (2..24).filter(|&i| !chosen[..i].contains(&chosen[i]) && !prompt.contains(&chosen[i]));
    let at = new.next().unwrap();
    let mut tiny = Tiny::new();
    let row = chosen[at] as usize * N_EMBD;
    tiny.tensor_mut("token_embd.weight").2[row..row + N_EMBD].fill(f32::NAN);
    let output = Work::new(&tiny).run(&[&args[..], &["-q"]].concat());
    let line = error(&output, 1);
    assert!(line.contains("NaN"), "{line}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.len() > 1 && out.ends_with('\n'), "{out:?}");
}

#[test]
fn seeds_decide_about_drawn_text() {
    let work = Work::new(&Tiny::new());
    let draw = |seed| {
        let line = [
            "-p", "in", "-n", "16", "--temp", "1.5", "--top-k", "0", "-s", seed,
        ];
        work.json(&line)
    };
    let (one, two) = (draw("1"), draw("2"));
    assert_eq!(one["generated_ids"], draw("1")["generated_ids"]);
    assert_ne!(one["generated_ids"], two["generated_ids"]);
    assert_eq!(one["seed"], 1);
    let free = draw("-1");
    let again = draw(&free["seed"].to_string());
    assert_eq!(free["generated_ids"], again["generated_ids"]);
    work.wrong(
        &["-p", "in", "--top-p", "2"],
        2,
        "top-p: expected 0 to 1, found 2",
    );
}

#[test]
fn texts_end_for_many_reasons() {
    let work = Work::new(&Tiny::new());
    let line = ["-p", "the inn", "--temp", "0", "-n", "30"];
    let json = work.json(&line);
    let chosen = ids(&json, "generated_ids");
    // The first token that was not there before becomes the end of texts.
    let at = (2..30).find(|&i| !chosen[..i].contains(&chosen[i])).unwrap();
    let mut tiny = Tiny::new();
    let eos = "tokenizer.ggml.eos_token_id";
    tiny.metadata.set(eos, Value::U32(chosen[at]));
    let ending = Work::new(&tiny);
    let ended = ending.json(&line);
    assert_eq!(
        (ended["stop"].as_str(), &ended["stop_id"]),
        (Some("eos"), &Json::from(chosen[at]))
    );
    assert_eq!(ids(&ended, "generated_ids"), chosen[..at]);
    let on = ending.json(&[&line[..], &["--ignore-eos"]].concat());
    assert!(!ids(&on, "generated_ids").contains(&chosen[at]));
    assert_eq!(ids(&on, "generated_ids").len(), 30);

    let text = json["text"].as_str().unwrap();
    let (at, c) = text.char_indices().find(|(_, c)| c.is_ascii_graphic()).unwrap();
    let stopped = work.json(&[&line[..], &["-r", "never", "-r", &c.to_string()]].concat());
    assert_eq!(stopped["stop"], "word");
    assert_eq!(stopped["stop_text"], c.to_string());
    assert_eq!(stopped["text"], text[..at]);

    let full = work.run(&["-p", "the inn", "--temp", "0", "-c", "9"]);
    assert!(ok(&full).len() > 1);
    let talk = text_of(&full);
    assert!(
        talk.contains("stopped: all 9 positions of the context are taken"),
        "{talk}"
    );
    let none = work.json(&["-p", "the inn", "-n", "0"]);
    assert_eq!(
        (none["text"].as_str(), none["n_generated"].as_u64()),
        (Some(""), Some(0))
    );
    work.wrong(&["-p", "the inn", "-c", "2"], 1, "the context only 2 positions");
    work.wrong(&["-p", "", "-n", "1"], 1, "the prompt has no tokens");
}

#[test]
fn texts_come_from_options_files_and_stdin() {
    let work = Work::new(&Tiny::new());
    work.put("text.txt", "the\tinn\r\n");
    work.put("bad.txt", "the \u{e4}");
    let prompt = |args: &[&str]| work.json(&[args, &["-n", "0"]].concat())["prompt"].clone();
    assert_eq!(prompt(&["-f", "text.txt"]), "the\tinn");
    assert_eq!(prompt(&["-p", r"the\tinn"]), r"the\tinn");
    assert_eq!(prompt(&["-e", "-p", r"the\tinn\xC3\xA4"]), "the\tinnä");
    let piped = work.with_input(&["-f", "-", "-n", "0", "--json"], "the inn\n\n");
    let piped: Json = serde_json::from_str(&ok(&piped)).unwrap();
    assert_eq!(piped["prompt"], "the inn\n");
    // Texts of control tokens are the tokens.
    let json = work.json(&["-p", "a<|eos|>b", "-n", "0"]);
    assert_eq!(ids(&json, "prompt_ids")[1] as usize, Tiny::new().n_vocab() - 2);
    work.wrong(&["--no-chat"], 2, "a text is needed");
    work.wrong(&["-f", "absent.txt"], 2, "absent.txt");
    work.wrong(&["-p", "a", "-f", "text.txt"], 2, "cannot be used with");
    work.wrong(&["-e", "-p", r"\xff"], 2, "expected UTF-8");
}

#[test]
fn conversations_go_through_the_template() {
    let work = Work::new(&chatty());
    let line = ["-p", "hi", "-sys", "Be", "-n", "4", "--temp", "0", "--ignore-eos"];
    let json = work.json(&line);
    assert_eq!(json["prompt"], "[system]Be<|eos|>[user]hi<|eos|>[assistant]");
    let eos = Tiny::new().n_vocab() as u32 - 2;
    let n_eos = ids(&json, "prompt_ids").iter().filter(|&&id| id == eos).count();
    assert_eq!(n_eos, 2);
    let raw = work.json(&["-p", "hi", "-n", "0"]);
    assert_eq!(raw["prompt"], "hi");

    // Lines of stdin are messages; what was said before is not evaluated again.
    let talk = work.with_input(&["-n", "4", "--temp", "0", "--ignore-eos"], "hi\n\nin the inn\n");
    assert_eq!(
        ok(&talk).matches('\n').count() - ok(&talk).matches("\n\n").count(),
        2
    );
    let told = text_of(&talk);
    assert!(told.contains("of them were there"), "{told}");
    let one = work.with_input(&["-n", "4", "-st", "--ignore-eos"], "hi\nho\n");
    assert_eq!(text_of(&one).matches("generated:").count(), 1);

    work.put("refuses.jinja", "{{ raise_exception('no users here') }}");
    work.put("broken.jinja", "{% if %}");
    let file = |name| ["-p", "hi", "-n", "1", "--chat-template-file", name];
    work.wrong(&file("refuses.jinja"), 1, "chat template, line 1: no users here");
    work.wrong(
        &file("broken.jinja"),
        1,
        "`broken.jinja`: chat template, line 1: ",
    );
    work.wrong(
        &["-p", "hi", "--chat-template", "tools"],
        2,
        "the names `default`, `chatml`",
    );
    let with = [
        "--chat-template",
        "{{ messages[0].content + x }}",
        "--chat-template-kwargs",
        r#"{"x":"!"}"#,
    ];
    let json = work.json(&[&["-p", "hi", "-n", "0"], &with[..]].concat());
    assert_eq!(json["prompt"], "hi!");
    work.wrong(&[], 2, "no message");
    let bare = Work::new(&Tiny::new());
    bare.wrong(
        &["--chat", "-p", "hi"],
        1,
        "has no chat template; give one with `--chat-template-file FILE`",
    );
    let json = bare.json(&["--chat-template", "chatml", "-p", "hi", "-n", "0"]);
    assert_eq!(
        json["prompt"],
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn what_a_hostile_template_takes_ends_its_own_process_alone() {
    let work = Work::new(&chatty());
    let twice =
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    for (template, words) in [
        (
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".to_owned(),
            "values without end",
        ),
        (
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns|tojson }}".to_owned(),
            "values without end",
        ),
        // Of time or of memory, whichever is used up first.
        (
            format!("{twice}{{{{ ns.x }}}}"),
            "chat template: it takes more than ",
        ),
        (format!("{twice}{{{{ ns.x|tojson }}}}"), "more steps or memory"),
    ] {
        let args = ["--chat-template", &template, "-p", "hi", "-n", "0"];
        work.wrong(&args, 1, words);
    }
    let loud = "{{ raise_exception('no' * 100000) }}";
    let refused = work.run(&["--chat-template", loud, "-p", "hi", "-n", "0"]);
    assert!(error(&refused, 1).len() < 2000);
    // A fault of the interpreter, where its arithmetic is checked.
    let args = [
        "--chat-template",
        "{{ [1][::-9223372036854775808] }}",
        "-p",
        "hi",
        "-n",
        "0",
    ];
    assert!(matches!(work.run(&args).status.code(), Some(0 | 1)));
}

#[test]
fn templates_tell_the_time_that_the_environment_gives() {
    let work = Work::new(&chatty());
    let year = Command::new(RUN)
        .args(["-m", "tiny.gguf", "--json", "-p", "hi", "-n", "0"])
        .args(["--chat-template", "{{ strftime_now('%Y-%m-%d') }}"])
        .env("SOURCE_DATE_EPOCH", "86400")
        .current_dir(work.folder.path())
        .output()
        .unwrap();
    assert!(ok(&year).contains("1970-01-02"), "{}", ok(&year));
}

#[test]
fn a_text_in_front_comes_once() {
    let mut tiny = chatty();
    tiny.metadata
        .set("tokenizer.ggml.add_bos_token", Value::Bool(true));
    let work = Work::new(&tiny);
    let bos = tiny.n_vocab() as u32 - 3;
    for prompt in ["hi", "<|bos|>hi"] {
        let json = work.json(&["-p", prompt, "-n", "0"]);
        let found = ids(&json, "prompt_ids");
        assert_eq!((found[0], found[1] == bos), (bos, false));
    }
}

#[test]
fn logits_of_bad_ids_and_models_are_refused() {
    let work = Work::new(&Tiny::new());
    work.put("good.json", "[1, 2, 3]");
    work.put("many.json", "[1, 2, 3, 4]");
    work.put("large.json", "[1, 999]");
    work.put("object.json", "{\"ids\": [1]}");
    let line = |name| ["--ids", name, "--logits-out", "out.st", "-c", "3"];
    work.wrong(&line("many.json"), 1, "4 ids are more than the 3 positions");
    work.wrong(
        &line("large.json"),
        1,
        "element 1: expected an id below the 263 of the vocabulary, found 999",
    );
    work.wrong(&line("object.json"), 1, "expected a JSON array of token ids");
    work.wrong(&["--ids", "good.json"], 2, "--logits-out");
    assert!(!work.path("out.st").exists());
    ok(&work.run(&line("good.json")));
    work.wrong(&line("good.json"), 2, "`--force`");
    let exact = [
        "--force",
        "--ubatch",
        "2",
        "-ctk",
        "f32",
        "-ctv",
        "f32",
        "--compute",
        "f32",
    ];
    ok(&work.run(&[&line("good.json"), &exact[..]].concat()));
    assert_eq!(logits(&work, "out.st").0, [1, 2, 3]);
    work.wrong(
        &[&line("good.json"), &["-p", "x"][..]].concat(),
        2,
        "cannot be used with",
    );
    let as_output = ["--ids", "good.json", "--logits-out", "tiny.gguf", "--force"];
    work.wrong(&as_output, 2, "tiny.gguf");

    let mut tiny = Tiny::new();
    tiny.tensor_mut("output.weight").2[0] = f32::NAN;
    let damaged = Work::new(&tiny);
    damaged.put("good.json", "[1, 2, 3]");
    damaged.wrong(&["-p", "in", "-n", "3"], 1, "the logit of token 0 is NaN");
    damaged.wrong(&line("good.json"), 1, "position 0: the logit of token 0 is NaN");
    assert!(!damaged.path("out.st").exists());
}

const QWEN: &str = "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n\
                    <|im_start|>assistant\n";

#[test]
fn templates_of_real_vocabularies_render() {
    let Some(vocabs) = shared("vocabs") else { return };
    let expected = [
        ("phi-3", "<s><|user|>\nhi<|end|>\n<|assistant|>\n"),
        ("qwen2", QWEN),
        ("qwen35", QWEN),
    ];
    for (name, text) in expected {
        let file = gguf::GgufFile::open(&vocabs.join(format!("ggml-vocab-{name}.gguf"))).unwrap();
        let tokenizer = gguf_runtime::Tokenizer::from_metadata(&file.metadata).unwrap();
        let template = gguf_runtime::ChatTemplate::from_metadata(
            &file.metadata,
            None,
            &tokenizer,
            gguf_runtime::Interpreter::Here,
        );
        let messages = [gguf_runtime::Message::new("user", "hi")];
        let found = template
            .unwrap()
            .unwrap()
            .render(&messages, true, &serde_json::Map::new());
        assert_eq!(found.unwrap(), text, "{name}");
        assert!(!tokenizer.ends().is_empty());
    }
}

/// Prompts that begin alike.
const SHORT: &str = "the inn in the";
const LONG: &str = "the inn in the tin was in the thin mist";
const OTHER: &str = "the inn in a thin place";

#[test]
fn a_prompt_cache_changes_nothing_but_the_work() {
    let work = Work::new(&Tiny::new());
    let plain = |text| work.json(&["-p", text, "-n", "12", "-s", "3", "--ignore-eos"]);
    let cached = |text, more: &[&str]| {
        let line = [
            "-p",
            text,
            "-n",
            "12",
            "-s",
            "3",
            "--ignore-eos",
            "--prompt-cache",
            "c.bin",
        ];
        work.json(&[&line, more].concat())
    };
    let n_cached = |json: &Json| json["n_cached"].as_u64().unwrap();
    let same = |found: &Json, expected: &Json| {
        for key in ["prompt_ids", "generated_ids", "text"] {
            assert_eq!(found[key], expected[key], "{key}");
        }
    };
    let (short, long, other) = (plain(SHORT), plain(LONG), plain(OTHER));
    let n = ids(&short, "prompt_ids").len() as u64;
    // Written, then taken as a whole, as the front of a longer prompt, and in part.
    let first = cached(SHORT, &[]);
    same(&first, &short);
    assert_eq!(n_cached(&first), 0);
    let again = cached(SHORT, &["--prompt-cache-ro"]);
    same(&again, &short);
    assert_eq!((n_cached(&again), again["n_evaluated"].as_u64()), (n, Some(0)));
    let longer = cached(LONG, &["-ub", "3"]);
    same(&longer, &long);
    assert_eq!(n_cached(&longer), n);
    let parted = cached(OTHER, &["--prompt-cache-ro"]);
    same(&parted, &other);
    let all = [ids(&long, "prompt_ids"), ids(&other, "prompt_ids")];
    let common = all[0].iter().zip(&all[1]).take_while(|(a, b)| a == b).count() as u64;
    assert_eq!(n_cached(&parted), common);
    same(&cached(SHORT, &[]), &short);
    assert_eq!(
        n_cached(&cached(LONG, &[])),
        ids(&long, "prompt_ids").len() as u64
    );
    // With what was generated: the text can go on.
    cached(SHORT, &["--prompt-cache-all"]);
    let text = format!("{SHORT}{}", short["text"].as_str().unwrap());
    let on = cached(&text, &["--prompt-cache-ro"]);
    same(&on, &plain(&text));
    assert!(n_cached(&on) >= n);
    same(&cached("other", &["--prompt-cache-ro"]), &plain("other"));
}

#[test]
fn prompt_caches_that_do_not_fit_are_refused() {
    let work = Work::new(&Tiny::new());
    let line = ["-p", LONG, "-n", "2", "--prompt-cache", "c.bin"];
    let with = |more: &[&'static str]| [&line[..], more].concat();
    ok(&work.run(&line));
    let bytes = std::fs::read(work.path("c.bin")).unwrap();
    assert!(!bytes.windows(9).any(|w| w == b"tiny.gguf"));
    work.wrong(&with(&["-ctk", "f32"]), 1, "-ctk f16");
    work.wrong(&with(&["--compute", "f32"]), 1, "--compute fast");
    work.wrong(
        &["-p", "the", "-c", "4", "--prompt-cache", "c.bin"],
        1,
        "more than the 4 positions",
    );
    let mut tiny = Tiny::new();
    tiny.tensor_mut("blk.1.attn_q.weight").2.fill(0.25);
    tiny.write(&work.path("tiny.gguf"));
    work.wrong(
        &line,
        1,
        "`c.bin`: it is of another model; give another name, or `--force`",
    );
    assert_eq!(std::fs::read(work.path("c.bin")).unwrap(), bytes);
    ok(&work.run(&with(&["--force"])));
    assert_ne!(std::fs::read(work.path("c.bin")).unwrap(), bytes);

    let bytes = std::fs::read(work.path("c.bin")).unwrap();
    for at in [60, 120, bytes.len() / 2, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        write(&work.path("c.bin"), &damaged);
        error(&work.run(&line), 1);
        write(&work.path("c.bin"), &bytes[..at]);
        error(&work.run(&line), 1);
    }
    work.put("c.bin", "a letter");
    work.wrong(&line, 1, "expected a prompt cache");
    assert_eq!(std::fs::read(work.path("c.bin")).unwrap(), b"a letter");
    work.wrong(&["-p", "x", "--prompt-cache", "."], 2, "`.`");
    work.wrong(&["-p", "x", "--prompt-cache", "no/c.bin"], 2, "no/c.bin");
    work.wrong(&["-p", "x", "--prompt-cache-ro"], 2, "--prompt-cache");
}
