//! Straight to a file type: the bytes are those of a conversion and a quantization of what it wrote.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use gguf::GgufFile;
use gguf_quantize::{Arrangement, Job, Kind, RecipeArgs, Target, WorkArgs, parse_file_type};

use crate::checkpoint::Checkpoint;
use crate::{carried, convert, convert_ok, shared, stderr, text};

/// Options of the quantizer.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    recipe: RecipeArgs,
    #[command(flatten)]
    work: WorkArgs,
}

/// Quantizes a file as gguf-quantize does.
fn quantize(source: &Path, out: &Path, kind: &str, options: &[&str]) {
    let options = Options::parse_from([&["quantize", "--quiet"], options].concat());
    let file = GgufFile::open(source).expect("readable");
    let file_type = parse_file_type(kind).expect("a file type");
    let job = Job {
        source_name: gguf_cli::file_name(source).into_owned(),
        file: &file,
        input: source,
        targets: vec![Target {
            type_name: file_type.name,
            kind: Kind::FileType(file_type),
            output: out.to_owned(),
            is_named: true,
        }],
        recipe: &options.recipe,
        work: &options.work,
        arrangement: Arrangement::ByLayer,
        threads: 0,
        title: "quantize",
    };
    gguf_quantize::run(&job, &|_, _| Ok(())).expect("a quantized file");
}

/// The only file of a folder.
fn only(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder).expect("a folder");
    files.next().expect("a file").expect("readable").path()
}

/// Compares one pass with two.
fn same(model: &Path, kind: &str, via: &str, options: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let between = folder.path().join("between");
    fs::create_dir(&between).expect("a folder");
    convert_ok(model, &between, &["--outtype", via]);
    let (one, two) = (folder.path().join("one.gguf"), folder.path().join("two.gguf"));
    quantize(&only(&between), &two, kind, options);
    let direct = ["--outtype", kind, "--via", via];
    convert_ok(model, &one, &[&direct, options].concat());
    assert!(
        fs::read(&one).expect("there") == fs::read(&two).expect("there"),
        "{} {kind} via {via} {options:?}: the files differ",
        model.display()
    );
}

#[test]
fn one_pass_gives_the_bytes_of_two() {
    same(
        &carried(),
        "q4_k_m",
        "bf16",
        &["--tensor-type", "attn_v=q5_1", "--pure"],
    );
    same(
        &carried(),
        "Q4_0",
        "f16",
        &["--no-source-hash", "--reserve-metadata", "4K"],
    );
    if let Some(imatrix) = shared("golden/imatrix/qwen3moe.imatrix.gguf") {
        let options = ["--imatrix", text(&imatrix)];
        same(&carried(), "IQ2_XXS", "bf16", &options);
        same(&carried(), "Q4_K_M", "bf16", &options);
    }
}

#[test]
fn file_types_name_the_output_and_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
    let report = |more: &[&str]| {
        let run = convert(&[&[text(&dir), "-o", text(folder.path()), "--json"], more].concat());
        assert!(run.status.success(), "{}", stderr(&run));
        serde_json::from_slice::<serde_json::Value>(&run.stdout).expect("JSON")
    };
    let plan = report(&["--outtype", "q8_0", "--dry-run"]);
    assert!(plan["quantize"].is_null() && plan["written"] == false);
    let done = report(&["--outtype", "Q5_0"]);
    let path = PathBuf::from(done["output"].as_str().expect("a path"));
    assert!(path.ends_with("Tiny-3x8.7K-Q5_0.gguf"), "{done}");
    assert_eq!(fs::metadata(&path).expect("written").len(), done["bytes"]);
    assert_eq!(done["quantize"]["file_type"], "Q5_0");
    let file = GgufFile::open(&path).expect("readable");
    let source = file.metadata.string("quantize.source.file").expect("a string");
    assert_eq!(source, Some("Tiny-3x8.7K-BF16.gguf"));
    assert_eq!(
        done["tensors"].as_array().expect("tensors").len(),
        file.tensors.len()
    );
}
