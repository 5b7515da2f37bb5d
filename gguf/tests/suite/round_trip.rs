//! What is written is read back, and what is read is written back, byte for byte.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::{ARRAY, parse, save, shared, sound};
use gguf::atomic::AtomicFile;
use gguf::{Array, Error, GgufFile, Layout, Metadata, Outline, Shape, TensorSpec, Value, Writer, validate};
use gguf_blocks::{TypeId, registry};
use proptest::collection::vec;
use proptest::prelude::*;

fn arrays() -> impl Strategy<Value = Array> {
    let flat = prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(Array::from),
        vec(any::<i8>(), 0..9).prop_map(Array::from),
        vec(any::<u16>(), 0..9).prop_map(Array::from),
        vec(any::<i16>(), 0..9).prop_map(Array::from),
        vec(any::<u32>(), 0..9).prop_map(Array::from),
        vec(any::<i32>(), 0..9).prop_map(Array::from),
        vec(any::<f32>(), 0..9).prop_map(Array::from),
        vec(any::<bool>(), 0..9).prop_map(Array::from),
        vec(".{0,12}", 0..9).prop_map(Array::from),
        vec(any::<u64>(), 0..9).prop_map(Array::from),
        vec(any::<i64>(), 0..9).prop_map(Array::from),
        vec(any::<f64>(), 0..9).prop_map(Array::from),
    ];
    flat.prop_recursive(2, 8, 3, |inner| vec(inner, 0..3).prop_map(Array::from))
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        arrays().prop_map(Value::from),
    ]
}

fn specs() -> impl Strategy<Value = Vec<TensorSpec>> {
    let one = ("[a-z]{1,20}", 0_usize..64, 0_u64..3, vec(0_u64..4, 0..3));
    vec(one, 0..6).prop_map(|all| {
        let mut names = BTreeSet::new();
        let formats = registry::all();
        let specs = all.into_iter().map(|(name, format, blocks, mut dims)| {
            let format = formats[format % formats.len()];
            dims.insert(0, blocks * format.geometry.block_elems as u64);
            for rows in dims.iter_mut().skip(1).take(1) {
                *rows *= format.geometry.interleave as u64;
            }
            TensorSpec::new(name, Shape::new(&dims).expect("small"), format.id)
        });
        specs
            .filter(|s| s.shape.n_bytes(by_id(s.type_id)).is_some() && names.insert(s.name.clone()))
            .collect()
    })
}

fn by_id(id: TypeId) -> &'static gguf_blocks::Format {
    registry::by_id(id).expect("a type of the registry")
}

/// Writes a file of counted bytes through the writer, in pieces.
fn write(layout: &Layout, piece: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), layout).expect("memory");
    for (i, tensor) in layout.tensors.iter().enumerate() {
        let bytes: Vec<u8> = (0..tensor.n_bytes).map(|b| (b % 253) as u8).collect();
        for piece in bytes.chunks(piece) {
            assert_eq!(writer.tensor_index(), i);
            writer.write(piece).expect("memory");
        }
    }
    assert_eq!(writer.tensor_index(), layout.tensors.len());
    writer.finish().expect("complete")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn header_to_bytes_to_header(
        pairs in vec(("[a-z.]{1,30}", values()), 0..8),
        alignment in prop::option::of(3_u32..9),
        specs in specs(),
        piece in 1_usize..100,
    ) {
        let mut metadata: Metadata = pairs.into_iter().collect();
        if let Some(log2) = alignment {
            metadata.set("general.alignment", Value::U32(1 << log2));
        }
        let layout = Layout::plan(&metadata, specs).expect("a sound plan");
        let bytes = write(&layout, piece);
        prop_assert_eq!(bytes.len() as u64, layout.total_bytes);

        let file = parse(bytes).expect("what was written is read");
        prop_assert_eq!(&file.tensors, &layout.tensors);
        prop_assert_eq!(file.first().alignment, layout.alignment);
        prop_assert_eq!(file.first().data_offset, layout.head.len() as u64);
        file.require_sound().expect("what was written is sound");
        prop_assert_eq!(validate::tensors(&file).n_proved, file.tensors.len());
        let again = Layout::plan(&file.metadata, file.tensors.iter().map(TensorSpec::from).collect());
        prop_assert_eq!(again.expect("the same plan").head, layout.head);
    }
}

/// A sink whose every write fails for want of room.
struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_writer_counts_bytes() {
    let spec = |name: &str| TensorSpec::new(name, Shape::new(&[4]).expect("small"), TypeId(0));
    let layout = Layout::plan(&Metadata::new(), vec![spec("a"), spec("b")]).expect("a sound plan");
    let mut writer = Writer::new(Vec::new(), &layout).expect("memory");
    writer.write(&[0; 12]).expect("memory");
    let text = writer.write(&[0; 8]).expect_err("too many").to_string();
    assert_eq!(
        text,
        "too many bytes for tensor `a`: expected 4 more of 16, found 8"
    );
    writer.write(&[0; 4]).expect("memory");
    writer.write(&[0; 4]).expect("memory");
    let text = writer.finish().expect_err("too few").to_string();
    assert_eq!(text, "too few bytes for tensor `b`: expected 16, found 4");
    assert!(matches!(
        Writer::new(Full, &layout),
        Err(Error::Io { action: "write", .. })
    ));
}

#[test]
fn plans_that_no_reader_accepts_are_refused() {
    let plan = |name: &str, dims: &[u64], type_id| {
        let spec = TensorSpec::new(name, Shape::new(dims).expect("small"), TypeId(type_id));
        Layout::plan(&Metadata::new(), vec![spec.clone(), spec])
            .expect_err("unsound")
            .to_string()
    };
    assert!(plan("a", &[4], 0).contains("tensor `a` twice"));
    assert!(plan(&"n".repeat(64), &[4], 0).contains("64 bytes, expected 1 to 63"));
    let mut metadata = Metadata::new();
    metadata.set("general.alignment", Value::U32(48));
    let text = Layout::plan(&metadata, Vec::new())
        .expect_err("no power of two")
        .to_string();
    assert!(
        text.contains("`general.alignment`") && text.contains("found u32 48"),
        "{text}"
    );

    let one = |dims: &[u64], type_id| {
        let spec = TensorSpec::new("t", Shape::new(dims).expect("small"), TypeId(type_id));
        Layout::plan(&Metadata::new(), vec![spec])
            .expect_err("unsound")
            .to_string()
    };
    assert!(one(&[4], 4242).contains("type 4242 is not known"));
    assert!(one(&[40], 2).contains("[40] as Q4_0: expected a row length divisible by 32"));
}

#[test]
fn all_sources_read_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.gguf");
    // Longer than a chunk of the reader, with strings across its borders.
    let words: Vec<String> = (0..40_000).map(|i| format!("word number {i}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let long = "x".repeat(200_000);
    let raw = sound()
        .strings("words", &words)
        .string("long", &long)
        .strings("more", &words);
    save(&path, &raw.build());
    let (streamed, mapped) = (
        GgufFile::open(&path).expect("opens"),
        GgufFile::open_mapped(&path).expect("opens"),
    );
    assert_eq!(streamed.metadata, mapped.metadata);
    assert_eq!(streamed.tensors, mapped.tensors);
    assert_eq!(
        streamed
            .metadata
            .strings("more")
            .expect("strings")
            .expect("is there")
            .get(39_999)
            .as_deref(),
        Some("word number 39999")
    );
    for tensor in &streamed.tensors {
        let (a, b) = (streamed.tensor_bytes(tensor), mapped.tensor_bytes(tensor));
        assert_eq!(a.expect("inside"), b.expect("inside"));
    }
}

#[test]
fn an_outline_holds_all_but_long_arrays() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.gguf");
    let words: Vec<String> = (0..30_000).map(|i| format!("word number {i}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    save(&path, &sound().strings("words", &words).u32("after", 7).build());
    let (outline, whole) = (
        Outline::open(&path, 5).expect("opens"),
        GgufFile::open(&path).expect("opens"),
    );
    assert_eq!(outline.file().tensors, whole.tensors);
    assert_eq!(outline.file().metadata.uint("after").expect("u32"), Some(7));
    let front = outline
        .file()
        .metadata
        .strings("words")
        .expect("strings")
        .expect("is there");
    let all = whole.metadata.strings("words").expect("strings");
    assert_eq!(front.to_vec(), all.expect("is there").to_vec()[..5]);
    assert_eq!(outline.cut_len("words"), Some(30_000));
    assert_eq!(outline.cut_len("tokenizer.ggml.tokens"), None);
}

/// The length of an array in an array stands nowhere but in its elements, so none is left out.
#[test]
fn an_outline_holds_arrays_in_arrays_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.gguf");
    let inner = |x: u8, n: u8| [&[0; 4][..], &u64::from(n).to_le_bytes(), &vec![x; n.into()]].concat();
    let arrays = [inner(7, 17), inner(8, 3), inner(9, 5)].concat();
    let file = sound().array("nested", ARRAY, 3, &arrays);
    // Of a key that stands there twice the first one counts.
    save(
        &path,
        &file.strings("again", &["a"]).strings("again", &["b"; 9]).build(),
    );
    let outline = Outline::open(&path, 2).expect("opens");
    let front = vec![Array::from(vec![7_u8; 17]), Array::from(vec![8_u8; 3])];
    assert_eq!(outline.file().metadata.get("nested"), Some(&front.into()));
    assert_eq!(outline.cut_len("nested"), Some(3));
    assert_eq!(outline.cut_len("again"), None);
}

#[test]
fn a_mapped_file_that_shrinks_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.gguf");
    save(&path, &sound().build());
    let file = GgufFile::open_mapped(&path).expect("opens");
    let writable = std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("opens");
    writable.set_len(100).expect("shrinks");
    let text = file
        .tensor_bytes(&file.tensors[0])
        .expect_err("changed")
        .to_string();
    assert!(text.contains("changed while it was in use"), "{text}");
}

/// Reads a file and writes it again beside `folder`; both must be the same.
fn rewrite(path: &Path, folder: &Path) {
    let file = GgufFile::open_mapped(path).expect("a sound file");
    file.require_sound().expect("a sound file");
    let layout = Layout::plan(
        &file.metadata,
        file.tensors.iter().map(TensorSpec::from).collect(),
    );
    let layout = layout.expect("a plan");
    let copy = folder.join("copy.gguf");
    let out = AtomicFile::create(&copy, false, &[path], Some(layout.total_bytes)).expect("room");
    let mut writer = Writer::new(out, &layout).expect("room");
    for tensor in &file.tensors {
        for piece in file.tensor_bytes(tensor).expect("inside").chunks(100_000) {
            writer.write(piece).expect("room");
        }
    }
    writer.finish().expect("complete").commit().expect("renamed");
    let same = std::fs::read(path).expect("readable") == std::fs::read(&copy).expect("readable");
    assert!(same, "{} differs from its copy", path.display());
}

#[test]
fn a_real_file_is_written_again_byte_for_byte() {
    let Some(path) = shared("golden/quantize/qwen3moe-bf16.gguf") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    rewrite(&path, folder.path());
}

#[test]
fn real_vocabularies_plan_to_the_same_head() {
    let Some(folder) = shared("vocabs") else { return };
    let mut n = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|e| e != "gguf") {
            continue;
        }
        let file = GgufFile::open(&path).expect("a sound file");
        let bytes = std::fs::read(&path).expect("readable");
        let head = Layout::plan(&file.metadata, Vec::new()).expect("a plan").head;
        // The writer of these files does not pad where no tensor follows.
        let (same, padding) = head.split_at(bytes.len());
        assert!(
            same == bytes && padding.len() < 32 && padding.iter().all(|&b| b == 0),
            "{}",
            path.display()
        );
        n += 1;
    }
    assert!(n > 0, "no vocabulary found");
}
