//! What is run: the lists of the command line multiplied out.

use std::path::{Path, PathBuf};

use gguf_cli::{Failure, Result};

use super::args::Args;
use super::list;
use crate::{Compute, KvType, Settings};

/// Tests that one call runs at most.
const MAX_RUNS: u64 = 2000;
/// Tokens that a sweep goes up to where it is not said.
const SWEEP_CTX: usize = 4096;

/// Usual values of the lists. Columns with other ones are shown.
pub(super) const N_PROMPT: usize = 512;
pub(super) const N_GEN: usize = 128;
pub(super) const N_BATCH: usize = 2048;
pub(super) const N_UBATCH: usize = 512;

/// One test.
#[expect(clippy::struct_field_names, reason = "the names that scripts see")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    /// Tokens evaluated together; 0 for none.
    pub(super) n_prompt: usize,
    /// Tokens evaluated one after another behind them; 0 for none.
    pub(super) n_gen: usize,
    /// Tokens in the context before the clock starts.
    pub(super) n_depth: usize,
}

impl Test {
    /// `pp512`, `tg128`, `pp512+tg128`.
    pub(super) fn kind(&self) -> String {
        match (self.n_prompt, self.n_gen) {
            (p, 0) => format!("pp{p}"),
            (0, n) => format!("tg{n}"),
            (p, n) => format!("pp{p}+tg{n}"),
        }
    }

    /// The kind, and the depth where there is one: `tg128 @ d1024`.
    pub(super) fn name(&self) -> String {
        match self.n_depth {
            0 => self.kind(),
            d => format!("{} @ d{d}", self.kind()),
        }
    }

    /// Tokens that are timed.
    pub(super) fn n_tokens(&self) -> usize {
        self.n_prompt + self.n_gen
    }

    /// Positions that are needed.
    pub(super) fn n_ctx(&self) -> usize {
        self.n_depth + self.n_tokens()
    }
}

/// Under which settings tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) n_threads: usize,
    pub(super) n_batch: usize,
    pub(super) n_ubatch: usize,
    pub(super) type_k: KvType,
    pub(super) type_v: KvType,
}

/// The whole run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) models: Vec<PathBuf>,
    /// Numbers of threads as given; 0 is the machine's.
    pub(super) threads: Vec<usize>,
    /// Batches and ubatches.
    pub(super) batches: Vec<(usize, usize)>,
    /// Types of keys and values.
    pub(super) caches: Vec<(KvType, KvType)>,
    /// The tests for each of the above, in their order: by rising depth in a sweep.
    pub(super) tests: Vec<Test>,
    /// Positions that a session has.
    pub(super) n_ctx: usize,
    pub(super) compute: Compute,
    pub(super) repetitions: u32,
    pub(super) warmup: bool,
    /// Whether a repetition waits for a line.
    pub(super) in_turn: bool,
    /// The step of a sweep.
    pub(super) sweep: Option<usize>,
}

impl Plan {
    pub(super) fn of(args: &Args) -> Result<Self> {
        let ubatches = list::all(&args.ubatch_size, &[N_UBATCH]);
        let (tests, sweep) = if args.sweep {
            let (tests, step) = sweep(args, ubatches[0])?;
            (tests, Some(step))
        } else {
            (tests(args), None)
        };
        if tests.is_empty() {
            return Err(Failure::Usage(
                "nothing to measure: `-p` and `-n` are both 0".into(),
            ));
        }
        let needed = tests.iter().map(Test::n_ctx).max().unwrap_or(0);
        if needed > i32::MAX as usize {
            let name = largest(&tests).name();
            return Err(Failure::Usage(format!(
                "`{name}` needs a context of {needed} tokens, more than {} that there can be",
                i32::MAX
            )));
        }
        if let Some(n_ctx) = args.ctx_size.filter(|&c| (c as usize) < needed) {
            let name = largest(&tests).name();
            return Err(Failure::Usage(format!(
                "`{name}` needs a context of {needed} tokens, `-c` allows {n_ctx}; make the prompt, the depth or what is \
                 generated smaller, or `-c` larger"
            )));
        }
        let plan = Self {
            models: models(args),
            threads: list::all(&args.threads, &[0]),
            batches: pairs(&list::all(&args.batch_size, &[N_BATCH]), &ubatches),
            caches: pairs(
                &list::all(&args.cache_type_k, &[KvType::F16]),
                &list::all(&args.cache_type_v, &[KvType::F16]),
            ),
            n_ctx: needed,
            tests,
            compute: args.compute,
            repetitions: args.repetitions(),
            warmup: !args.no_warmup,
            in_turn: args.in_turn,
            sweep,
        };
        plan.check_size()?;
        Ok(plan)
    }

    /// Tests of the whole run.
    pub(super) fn n_runs(&self) -> u64 {
        [
            self.models.len(),
            self.threads.len(),
            self.batches.len(),
            self.caches.len(),
            self.tests.len(),
        ]
        .into_iter()
        .fold(1, |product, n| product.saturating_mul(n as u64))
    }

    fn check_size(&self) -> Result<()> {
        let n = self.n_runs();
        if n > MAX_RUNS {
            return Err(Failure::Usage(format!(
                "the lists give {n} runs, expected at most {MAX_RUNS}; leave some values out"
            )));
        }
        Ok(())
    }

    /// What a session for these has.
    pub(super) fn settings(&self, batch: (usize, usize), cache: (KvType, KvType)) -> Settings {
        let longest = self.tests.iter().map(|t| t.n_prompt.max(t.n_depth)).max();
        Settings {
            // One more for the token behind the first prompt.
            n_ctx: self.n_ctx + 1,
            // Scratch memory is taken for a whole ubatch, however short the prompts are.
            n_ubatch: batch.1.min(batch.0).min(longest.unwrap_or(0).max(1)),
            type_k: cache.0,
            type_v: cache.1,
            compute: self.compute,
            ..Settings::default()
        }
    }
}

fn largest(tests: &[Test]) -> Test {
    let by_need = tests.iter().max_by_key(|t| t.n_ctx());
    by_need.copied().unwrap_or(Test {
        n_prompt: 0,
        n_gen: 0,
        n_depth: 0,
    })
}

fn pairs<A: Copy, B: Copy>(a: &[A], b: &[B]) -> Vec<(A, B)> {
    a.iter().flat_map(|&a| b.iter().map(move |&b| (a, b))).collect()
}

/// A path is taken whole if there is such a file, else its parts between commas.
fn models(args: &Args) -> Vec<PathBuf> {
    let split = |text: &String| -> Vec<PathBuf> {
        if Path::new(text).exists() {
            return vec![text.into()];
        }
        text.split(',').map(PathBuf::from).collect()
    };
    args.model.iter().flat_map(split).collect()
}

/// Of each depth the prompts, what is generated, and the pairs.
fn tests(args: &Args) -> Vec<Test> {
    let prompts = list::all(&args.n_prompt, &[N_PROMPT]).into_iter().map(|p| (p, 0));
    let gens = list::all(&args.n_gen, &[N_GEN]).into_iter().map(|n| (0, n));
    let all = prompts.chain(gens).chain(args.prompt_gen.iter().copied());
    let all: Vec<_> = all.filter(|&(p, n)| p + n > 0).collect();
    let depths = list::all(&args.n_depth, &[0]);
    let tests = pairs(&depths, &all).into_iter();
    tests
        .map(|(n_depth, (n_prompt, n_gen))| Test {
            n_prompt,
            n_gen,
            n_depth,
        })
        .collect()
}

/// The tests of a sweep and its step. A prompt comes last at its depth: it leaves the context as the next depth wants
/// it.
fn sweep(args: &Args, n_ubatch: usize) -> Result<(Vec<Test>, usize)> {
    let one = |name: &str, given: &[list::List<usize>], usual: usize| match list::all(given, &[usual])[..] {
        [n] if n > 0 => Ok(n),
        _ => Err(Failure::Usage(format!(
            "`--sweep` takes one number above 0 for `{name}`"
        ))),
    };
    if args.ubatch_size.iter().map(|l| l.0.len()).sum::<usize>() > 1 && args.n_prompt.is_empty() {
        return Err(Failure::Usage(
            "`--sweep` with several values of `-ub`: give the step with `-p`".into(),
        ));
    }
    let step = one("-p", &args.n_prompt, n_ubatch)?;
    let n_gen = one("-n", &args.n_gen, (step / 4).max(1))?;
    let n_ctx = args.ctx_size.map_or(SWEEP_CTX, |c| c as usize);
    let fits = |depth: &usize| depth + step.max(n_gen) <= n_ctx;
    // No more than are refused.
    let depths = (0..n_ctx).step_by(step).take_while(fits).take(MAX_RUNS as usize);
    let at = |n_depth| {
        let of = |n_prompt, n_gen| Test {
            n_prompt,
            n_gen,
            n_depth,
        };
        [of(0, n_gen), of(step, 0)]
    };
    let tests: Vec<Test> = depths.flat_map(at).collect();
    if tests.is_empty() {
        return Err(Failure::Usage(format!(
            "`--sweep`: a context of {n_ctx} tokens has no room for `-p {step}` and `-n {n_gen}`; give a larger `-c`"
        )));
    }
    Ok((tests, step))
}

#[cfg(test)]
mod tests_of_plans {
    use clap::Parser;

    use super::*;

    fn plan(line: &str) -> std::result::Result<Plan, String> {
        let line = format!("gguf-bench -m a.gguf {line}");
        let args = Args::try_parse_from(line.split_whitespace()).map_err(|e| e.to_string())?;
        Plan::of(&args).map_err(|e| e.to_string())
    }

    fn names(plan: &Plan) -> Vec<String> {
        plan.tests.iter().map(Test::name).collect()
    }

    #[test]
    fn lists_are_multiplied_out() {
        assert_eq!(names(&plan("").unwrap()), ["pp512", "tg128"]);
        let p = plan("-p 64,128 -n 0 --prompt-gen 32,8 -d 0,1024 -t 1-3 --batch-size 8,16 --ctk f16,q8_0")
            .unwrap();
        assert_eq!(
            names(&p),
            [
                "pp64",
                "pp128",
                "pp32+tg8",
                "pp64 @ d1024",
                "pp128 @ d1024",
                "pp32+tg8 @ d1024"
            ]
        );
        assert_eq!((p.n_runs(), p.n_ctx), (6 * 3 * 2 * 2, 1024 + 128));
        assert_eq!(plan("-m b.gguf,c.gguf").unwrap().models.len(), 3);
    }

    #[test]
    fn sweeps_go_up_to_the_context() {
        let p = plan("--sweep -c 1500 --ub 256 -p 512 -n 500").unwrap();
        assert_eq!(names(&p), ["tg500", "pp512", "tg500 @ d512", "pp512 @ d512"]);
        let p = plan("--sweep --ub 2048").unwrap();
        assert_eq!(names(&p), ["tg512", "pp2048", "tg512 @ d2048", "pp2048 @ d2048"]);
        assert_eq!(p.repetitions, 3);
        for (line, part) in [
            ("--sweep -c 100", "no room"),
            ("--sweep -p 1,2", "one number"),
            ("--sweep -p 0", "one number"),
            ("--sweep --ub 8,16", "several values"),
            ("--sweep -d 1", "cannot be used"),
            ("--sweep -p 1 -c 2000000000", "4000 runs"),
        ] {
            let e = plan(line).unwrap_err();
            assert!(e.contains(part), "{line}: {e}");
        }
    }

    #[test]
    fn absurd_command_lines_are_refused() {
        for (line, part) in [
            ("-p 0 -n 0", "nothing to measure"),
            ("-p 1-1000 -t 1-1000", "1001000 runs"),
            ("-p 100 -d 100 -c 150", "context of 228 tokens, `-c` allows 150"),
            ("-p 2147483647 -d 1", "2147483648 tokens"),
            ("-d x", "expected a number"),
            ("-r 0", "0 is not in"),
            ("--ctv q5_9", "expected f32"),
            ("--batch-size 0", "above 0"),
        ] {
            let e = plan(line).unwrap_err();
            assert!(e.contains(part), "{line}: {e}");
        }
    }
}
