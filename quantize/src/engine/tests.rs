//! Stops in the middle of the work: at any row a run can be resumed from what it noted.

#![expect(
    clippy::disallowed_methods,
    reason = "an input of the test, no output of the program"
)]

use std::path::{Path, PathBuf};

use clap::Parser;
use gguf::digest::Digest;
use gguf::resumable::{Request, Start};
use gguf::{Layout, Metadata, Shape, TensorSpec, Writer};
use gguf_blocks::registry;

use super::*;
use crate::args::Args;
use crate::guide::Guide;
use crate::job::{Arrangement, Job};
use crate::plan::{Coverage, Plan};
use crate::shards::{Division, Shards};

/// Rows of each tensor: matrices, rows, columns.
const SHAPES: &[(&str, &[u64])] = &[
    ("token_embd.weight", &[64, 300]),
    ("blk.0.attn_norm.weight", &[64]),
    ("blk.0.ffn_up_exps.weight", &[64, 70, 5]),
    ("blk.1.ffn_down.weight", &[256, 41]),
];

fn model(folder: &Path) -> PathBuf {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama".into());
    metadata.set("llama.block_count", 2_u32.into());
    let f32_type = registry::by_name("F32").unwrap().id;
    let spec = |(name, dims): &(&str, &[u64])| TensorSpec::new(*name, Shape::new(dims).unwrap(), f32_type);
    let layout = Layout::plan(&metadata, SHAPES.iter().map(spec).collect()).unwrap();
    let mut writer = Writer::new(Vec::new(), &layout).unwrap();
    for (_, dims) in SHAPES {
        for i in 0..dims.iter().product() {
            let value = ((i * 7919 % 1009) as f32 - 504.0) / 777.0;
            writer.write(&value.to_le_bytes()).unwrap();
        }
    }
    let path = folder.join("in.gguf");
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

/// More rows than a task has, in the memory that the tests give: little, so that a matrix has several tasks.
const ROWS_PER_TASK: u64 = 16;

/// Two targets of one file each.
struct Setting {
    /// Kept for as long as the files in it.
    _folder: tempfile::TempDir,
    file: GgufFile,
    plans: Vec<(Plan, Shards)>,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let input = model(folder.path());
        let command = "gguf-quantize --pure --no-source-hash -o"
            .split(' ')
            .map(PathBuf::from);
        let positional = [
            folder.path().to_owned(),
            input.clone(),
            "Q8_0".into(),
            "Q4_0".into(),
        ];
        let args = Args::try_parse_from(command.chain(positional)).unwrap();
        let file = GgufFile::open(&input).unwrap();
        let job = Job {
            file: &file,
            input: &input,
            source_name: String::new(),
            targets: args.positional().unwrap().targets,
            recipe: &args.recipe,
            work: &args.work,
            arrangement: Arrangement::ByLayer,
            threads: 0,
            title: "",
        };
        let request = crate::request::Request::new(&job).unwrap();
        let mut plans = Vec::new();
        for target in &job.targets {
            let mut plan = Plan::new(&job, &request, target, None).unwrap();
            // Every encoded tensor asks for importance, which is where the tests stop the work.
            let encoded = plan.steps.iter_mut().filter(|s| !s.is_copy());
            encoded.for_each(|s| s.coverage = Coverage::Neutral);
            let (specs, costs) = (plan.specs(), vec![1; SHAPES.len()]);
            let shards = Shards::new(
                &plan.metadata,
                specs,
                &costs,
                &Division::Whole,
                &target.output,
                None,
            );
            plans.push((plan, shards.unwrap()));
        }
        Self {
            _folder: folder,
            file,
            plans,
        }
    }

    fn targets(&self) -> Vec<Target<'_>> {
        let mut targets = Vec::new();
        for (output, (plan, shards)) in self.plans.iter().enumerate() {
            let places = shards.places().into_iter();
            targets.push(Target {
                steps: &plan.steps,
                places: places.map(|p| p.map(|(_, at)| (output, at))).collect(),
            });
        }
        targets
    }

    fn outputs(&self) -> (Outputs, Start) {
        let outputs: Vec<_> = self
            .plans
            .iter()
            .flat_map(|(_, shards)| shards.outputs())
            .collect();
        Outputs::start(&Request {
            outputs: &outputs,
            derived: false,
            inputs: &[],
            force: true,
            resume: true,
            plan: Digest::of(b"plan"),
        })
        .unwrap()
    }

    /// Runs until a task asks for the importance of a matrix that `stops` names; returns the bytes of the source that
    /// were read.
    fn run(
        &self,
        outputs: &Outputs,
        done: u64,
        stops: &(dyn Fn(&Step, usize) -> bool + Sync),
        n_threads: usize,
    ) -> Result<u64> {
        let read = AtomicU64::new(0);
        let targets = self.targets();
        let work = Work {
            file: &self.file,
            targets: &targets,
            outputs,
            importances: &|step, matrix| {
                if stops(step, matrix) {
                    Err(Failure::Input("stopped".to_owned()))
                } else {
                    Ok(Vec::new())
                }
            },
            max_memory: ROWS_PER_TASK * 256 * n_threads as u64,
            first_checkpoint: Duration::ZERO,
            progress: &|n| {
                read.fetch_add(n, Ordering::Relaxed);
            },
        };
        let pool = gguf_cli::thread_pool(n_threads).unwrap();
        work.run(done, &pool).map(|()| read.into_inner())
    }

    /// The outputs' bytes, of which the heads are not the engine's.
    fn results(&self) -> Vec<Vec<u8>> {
        let paths = self.plans.iter().flat_map(|(_, shards)| shards.paths());
        paths.map(|p| std::fs::read(p).unwrap()).collect()
    }
}

/// Tensors and matrices of [`SHAPES`] where a run is stopped, and the rows that lie before them.
const STOPS: &[(&str, usize, u64)] = &[
    ("token_embd.weight", 0, 0),
    ("blk.0.ffn_up_exps.weight", 0, 301),
    ("blk.0.ffn_up_exps.weight", 3, 301 + 3 * 70),
    ("blk.1.ffn_down.weight", 0, 301 + 5 * 70),
];

#[test]
fn a_run_stopped_anywhere_continues_and_gives_the_same_bytes() {
    let setting = Setting::new();
    let (outputs, _) = setting.outputs();
    let all = setting.run(&outputs, 0, &|_, _| false, 2).unwrap();
    assert_eq!(all, setting.file.tensors.iter().map(|t| t.n_bytes).sum::<u64>());
    outputs.publish().unwrap();
    let whole = setting.results();

    for n_threads in [1, 3] {
        for &(name, matrix, before) in STOPS {
            let (outputs, start) = setting.outputs();
            let done = if let Start::At(n) = start { n } else { 0 };
            let stops = |step: &Step, at| step.name == name && at == matrix;
            assert!(setting.run(&outputs, done, &stops, n_threads).is_err());
            drop(outputs);

            let (_, start) = setting.outputs();
            let done = if let Start::At(n) = start { n } else { 0 };
            assert!(
                done <= before && before - done < ROWS_PER_TASK,
                "{n_threads} threads, `{name}`: {done} of {before} rows: all tasks before the one that failed are done"
            );
        }
        let (outputs, start) = setting.outputs();
        let Start::At(done) = start else {
            panic!("{start:?}: work is left and some is done");
        };
        let read = setting.run(&outputs, done, &|_, _| false, n_threads).unwrap();
        assert_eq!(
            read,
            source_bytes(&setting.targets(), done),
            "what was done is not read again"
        );
        drop(outputs);

        // What comes behind the rows may fail, too.
        let (outputs, start) = setting.outputs();
        assert_eq!(start, Start::At(301 + 5 * 70 + 41));
        outputs.publish().unwrap();
        assert!(setting.results() == whole, "{n_threads} threads");
    }
}

/// What all matrices of a tensor share: the mean of heads in an entry of the importance matrix.
fn shared_importance() -> Coverage {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m");
    let entry = gguf_imatrix_format::Entry {
        sums: vec![1.0; 64 * 3],
        means: vec![],
        counts: vec![1],
    };
    let matrix = gguf_imatrix_format::Imatrix {
        entries: [("blk.0.attn_v_b.weight".to_owned(), entry)].into(),
        datasets: vec![],
        chunk_count: 1,
        chunk_size: 1,
        origin: None,
    };
    matrix.write_gguf(&path, false, &[]).unwrap();
    let shape = Shape::new(&[64, 70, 5]).unwrap();
    let guide = Guide::load(&path, &[], &[]).unwrap();
    Coverage::Found(guide.find("blk.0.attn_kv_b.weight", &shape).unwrap().unwrap())
}

#[test]
fn importance_that_matrices_share_is_asked_for_once() {
    let mut setting = Setting::new();
    for (is_shared, asked) in [(false, 2 * (1 + 5 + 1)), (true, 2 * (1 + 1 + 1))] {
        if is_shared {
            for (plan, _) in &mut setting.plans {
                let mut steps = plan.steps.iter_mut();
                let experts = steps.find(|s| s.name == "blk.0.ffn_up_exps.weight").unwrap();
                experts.coverage = shared_importance();
            }
        }
        let (outputs, _) = setting.outputs();
        let in_run = AtomicU64::new(0);
        let count = |_: &Step, _| {
            in_run.fetch_add(1, Ordering::Relaxed);
            false
        };
        setting.run(&outputs, 0, &count, 1).unwrap();
        assert_eq!(in_run.into_inner(), asked);
        let in_check = AtomicU64::new(0);
        let (pool, targets) = (gguf_cli::thread_pool(1).unwrap(), setting.targets());
        let losses = pool.install(|| {
            crate::verify::verify(&setting.file, &targets, &outputs, &|_, _| {
                in_check.fetch_add(1, Ordering::Relaxed);
                Ok(Vec::new())
            })
        });
        assert_eq!(losses.unwrap().len(), 2);
        assert_eq!(in_check.into_inner(), asked);
        outputs.publish().unwrap();
    }
}

#[test]
fn memory_and_work_are_known_before() {
    let setting = Setting::new();
    let targets = setting.targets();
    let all = setting.file.tensors.iter().map(|t| t.n_bytes).sum::<u64>();
    assert_eq!(source_bytes(&targets, 0), all);
    // Behind the embeddings and the norm.
    assert_eq!(source_bytes(&targets, 301), all - 301 * 64 * 4);
    assert_eq!(source_bytes(&targets, u64::MAX), 0);
    // A row of 256 in F32, as numbers, and in both types with the importance for each.
    let encoded = 1024 + 1024 + 8 * 34 + 8 * 18;
    assert_eq!(least_memory(&setting.file, &targets).unwrap(), encoded + 2 * 1024);
}
