//! Options of llama.cpp's programs that these have not, each with what to do instead.
//!
//! People type them by habit and scripts have them. Left to clap, an option of several letters behind one dash may be
//! read as another one: `-ngl 99` as `-n gl`, `-hf a/b` as `-h`. [`crate::words`] looks here for every word that is an
//! option and none of the program's own; an option that a program gets later wins, and its test ([`foreign_clashes`])
//! says that an answer here is stale. A value right behind its letter that spells a name of this list is taken for the
//! name: a file `a` must be given as `-f a`, a mask `b` as
//! `-C b`, since `-fa` and `-Cb` have another meaning to most who type them.

/// Options that have the same answer.
struct Foreign {
    /// With their dashes.
    names: &'static [&'static str],
    /// The programs that answer so; all of them if it is empty.
    programs: &'static [&'static str],
    /// Why the option is not there and what to do, as it stands behind the name and a colon.
    answer: &'static str,
}

const RUN: &[&str] = &["gguf-run"];
const IMATRIX: &[&str] = &["gguf-imatrix"];
const PERPLEXITY: &[&str] = &["gguf-perplexity"];
const CONVERT: &[&str] = &["gguf-convert"];
const INSPECT: &[&str] = &["gguf-inspect"];
/// The programs that run models.
const RUNNERS: &[&str] = &["gguf-bench", "gguf-imatrix", "gguf-perplexity", "gguf-run"];

/// The first entry with a name that is for the program counts.
const FOREIGN: &[Foreign] = &[
    Foreign {
        names: &[
            "-ngl",
            "--gpu-layers",
            "--n-gpu-layers",
            "-sm",
            "--split-mode",
            "-ts",
            "--tensor-split",
            "-mg",
            "--main-gpu",
            "-dev",
            "--device",
            "-ot",
            "--override-tensor",
            "-cmoe",
            "--cpu-moe",
            "-ncmoe",
            "--n-cpu-moe",
            "-kvo",
            "--kv-offload",
            "-nkvo",
            "--no-kv-offload",
            "--op-offload",
            "--no-op-offload",
            "-fit",
            "--fit",
        ],
        programs: &[],
        answer: "models run on the CPU here; leave it out",
    },
    Foreign {
        names: &["-fa", "--flash-attn"],
        programs: INSPECT,
        answer: "estimates are with flash attention unless `--no-flash-attn` is given; leave it out",
    },
    Foreign {
        names: &["-fa", "--flash-attn"],
        programs: &[],
        answer: "attention goes block by block here, as flash attention does; leave it out",
    },
    Foreign {
        names: HUB,
        programs: CONVERT,
        answer: "give the id of the repository as MODEL, ORG/NAME, and `--download`",
    },
    Foreign {
        names: HUB,
        programs: &[],
        answer: "models are not fetched here; download the GGUF file and give its path, or convert a checkpoint with \
                 `gguf-convert ORG/NAME --download`",
    },
    Foreign {
        names: &["--jinja", "--no-jinja"],
        programs: RUN,
        answer: "chat templates always run as Jinja; leave it out",
    },
    Foreign {
        names: &["--no-display-prompt"],
        programs: RUN,
        answer: "the prompt is never repeated; leave it out",
    },
    Foreign {
        names: &["-i", "--interactive", "-if", "--interactive-first"],
        programs: RUN,
        answer: "`--chat` converses, which is usual where no text is given",
    },
    Foreign {
        names: &["-co", "--color", "--simple-io"],
        programs: RUN,
        answer: "output is plain text; leave it out",
    },
    Foreign {
        names: &["--no-perf", "--perf"],
        programs: RUN,
        answer: "times go to stderr behind the text, unless `--quiet` is given; leave it out",
    },
    Foreign {
        names: &["--context-shift", "--no-context-shift", "--keep"],
        programs: RUN,
        answer: "a full context ends the text, nothing is dropped from it; leave it out, or raise `-c`",
    },
    Foreign {
        names: &["--warmup", "--no-warmup"],
        programs: &["gguf-imatrix", "gguf-perplexity", "gguf-run"],
        answer: "nothing is evaluated ahead here; leave it out",
    },
    Foreign {
        names: &["-mmp", "--mmap"],
        programs: RUNNERS,
        answer: "models are mapped unless `--no-mmap` is given; give that in place of 0, else leave it out",
    },
    Foreign {
        names: &["--mmproj", "-mm"],
        programs: &["gguf-convert", "gguf-run"],
        answer: "only the model of the text is looked at here; leave it out",
    },
    Foreign {
        names: &["--lora", "--lora-scaled"],
        programs: RUNNERS,
        answer: "adapters are not applied here; merge it into the checkpoint before the conversion",
    },
    Foreign {
        names: &["-md", "--model-draft", "--draft", "--draft-max", "--draft-min"],
        programs: RUNNERS,
        answer: "no other model drafts tokens here; leave it out",
    },
    Foreign {
        names: &[
            "--rope-scaling",
            "--rope-scale",
            "--rope-freq-base",
            "--rope-freq-scale",
            "--yarn-orig-ctx",
            "--yarn-ext-factor",
            "--yarn-attn-factor",
            "--yarn-beta-slow",
            "--yarn-beta-fast",
            "--override-kv",
        ],
        programs: RUNNERS,
        answer: "the metadata keys of the file decide; change them in a copy with `gguf-inspect set`",
    },
    Foreign {
        names: &[
            "-Cb",
            "--cpu-mask-batch",
            "-Crb",
            "--cpu-range-batch",
            "--cpu-strict-batch",
        ],
        programs: RUNNERS,
        answer: "prompts and generation share their processors; give `-C` or `--cpu-range` alone",
    },
    Foreign {
        names: &["-bf", "--binary-file"],
        programs: PERPLEXITY,
        answer: "give the file of the tasks with `-f`",
    },
    Foreign {
        names: &["-np", "--parallel"],
        programs: &["gguf-imatrix", "gguf-perplexity"],
        answer: "as many chunks go side by side as `-b` has room for; leave it out",
    },
    Foreign {
        names: &["-np", "--parallel"],
        programs: RUN,
        answer: "one text is written at a time; leave it out",
    },
    Foreign {
        names: &[
            "--samplers",
            "--sampler-seq",
            "--sampling-seq",
            "--mirostat",
            "--mirostat-lr",
            "--mirostat-ent",
            "--typical",
            "--typical-p",
            "--xtc-probability",
            "--xtc-threshold",
            "--dry-multiplier",
            "--dry-base",
            "--dry-allowed-length",
            "--dry-penalty-last-n",
            "--dry-sequence-breaker",
            "--dynatemp-range",
            "--dynatemp-exp",
            "--logit-bias",
            "--grammar",
            "--grammar-file",
            "--json-schema",
        ],
        programs: RUN,
        answer: "tokens are not chosen so here; `--help` lists what there is under `Sampling`",
    },
    Foreign {
        names: &["-embd", "--embeddings"],
        programs: &["gguf-bench"],
        answer: "embeddings alone are not computed here; leave it out",
    },
    Foreign {
        names: &["--ppl"],
        programs: IMATRIX,
        answer: "perplexity is computed unless `--no-ppl` is given; leave it out",
    },
    Foreign {
        names: &[
            "-cb",
            "--cont-batching",
            "-dt",
            "--defrag-thold",
            "-kvu",
            "--kv-unified",
            "-nr",
            "--repack",
            "--no-repack",
            "--poll",
            "--prio",
            "--swa-full",
        ],
        programs: RUNNERS,
        answer: "there is nothing of this kind to set here; leave it out",
    },
    Foreign {
        names: &["--no-lazy", "--use-temp-file"],
        programs: CONVERT,
        answer: "weights are computed as they are written, in bounded memory; leave it out",
    },
    Foreign {
        names: &["--bigendian"],
        programs: CONVERT,
        answer: "files are little-endian here, which all current machines read; leave it out",
    },
    Foreign {
        names: &["--remote"],
        programs: CONVERT,
        answer: "`--download` fetches what the local cache lacks of ORG/NAME",
    },
    Foreign {
        names: &["--split", "--merge"],
        programs: INSPECT,
        answer: "`gguf-inspect split` and `gguf-inspect merge` say by their name what is to be done; leave it out",
    },
    Foreign {
        names: &[
            "--log-disable",
            "--log-file",
            "--log-colors",
            "--log-prefix",
            "--log-timestamps",
            "-lv",
            "--verbosity",
            "--log-verbosity",
            "-v",
            "--verbose",
        ],
        programs: &[],
        answer: "there is no log; progress and warnings go to stderr, `--quiet` silences the former",
    },
];

/// Options that name a model on a server.
const HUB: &[&str] = &[
    "-hf",
    "-hfr",
    "--hf-repo",
    "-hff",
    "--hf-file",
    "-hft",
    "--hf-token",
    "-mu",
    "--model-url",
    "-dr",
    "--docker-repo",
];

fn of_program(program: &str) -> impl Iterator<Item = &'static Foreign> {
    let is_for = move |f: &&Foreign| f.programs.is_empty() || f.programs.contains(&program);
    FOREIGN.iter().filter(is_for)
}

/// What a program says to an option, with its dashes and without a value, that is none of its own; nothing where it is
/// not known.
pub(crate) fn answer(program: &str, option: &str) -> Option<String> {
    let found = of_program(program).find(|f| f.names.contains(&option));
    found.map(|f| format!("`{option}`: {}", f.answer))
}

/// Options that a program has and that it would answer as ones of llama.cpp that it has not, if they were not its own.
/// There must be none; each program's tests look.
#[must_use]
pub fn foreign_clashes(command: &clap::Command) -> Vec<&'static str> {
    let own = crate::words::Own::of(command);
    of_program(command.get_name())
        .flat_map(|f| f.names)
        .copied()
        .filter(|name| own.has(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{FOREIGN, answer, foreign_clashes};

    const PROGRAMS: [&str; 7] = [
        "gguf-bench",
        "gguf-convert",
        "gguf-imatrix",
        "gguf-inspect",
        "gguf-perplexity",
        "gguf-quantize",
        "gguf-run",
    ];

    #[test]
    fn entries_are_for_programs_and_options_that_there_are() {
        for f in FOREIGN {
            assert!(f.programs.iter().all(|p| PROGRAMS.contains(p)), "{:?}", f.names);
            assert!(
                !f.answer.ends_with('.') && !f.answer.contains('\n'),
                "{}",
                f.answer
            );
            for name in f.names {
                let letters = name.trim_start_matches('-');
                assert!(name.starts_with('-') && !letters.is_empty(), "{name}");
                assert!(!letters.contains(['=', '_', ' ']), "{name}");
            }
        }
        // An entry behind one with the same name must be for others, or for all.
        for (i, f) in FOREIGN.iter().enumerate() {
            for earlier in &FOREIGN[..i] {
                let again = f.names.iter().any(|n| earlier.names.contains(n));
                let is_reached =
                    !earlier.programs.is_empty() && f.programs.iter().all(|p| !earlier.programs.contains(p));
                assert!(!again || is_reached, "{:?}", f.names);
            }
        }
    }

    #[test]
    fn answers_depend_on_the_program() {
        for program in PROGRAMS {
            let text = answer(program, "-ngl").expect("for all");
            assert_eq!(text, "`-ngl`: models run on the CPU here; leave it out");
        }
        assert!(answer("gguf-convert", "-hf").is_some_and(|a| a.contains("`--download`")));
        assert!(answer("gguf-run", "-hf").is_some_and(|a| a.contains("download the GGUF file")));
        assert_eq!(answer("gguf-quantize", "--jinja"), None);
        assert_eq!(answer("gguf-run", "--no-such"), None);
    }

    #[test]
    fn options_that_a_program_has_are_told() {
        let with = |long| {
            let arg = clap::Arg::new("x").long(long).alias("ngl");
            foreign_clashes(&clap::Command::new("gguf-run").arg(arg))
        };
        assert_eq!(with("jinja"), ["-ngl", "--jinja"]);
        assert_eq!(with("other"), ["-ngl"]);
    }
}
