//! Everything that is decided before a weight is read: metadata, tensors, types, sizes, places in the sources.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gguf::source::Source;
use gguf::{Layout, Metadata, TensorSpec, Value, listed, short};
use gguf_blocks::Format;
use gguf_models::arch::{self, Architecture, Mtp};
use gguf_models::file_type::FileType;
use gguf_models::{HParams, Role, check, hf};
use serde_json::Value as Json;

use crate::Result;
use crate::error::Error;
use crate::map::{self, Mapped, Mapper, Output};
use crate::name;
use crate::outtype::{self, OutType};
use crate::overrides::Overrides;
use crate::repack::Keep;
use crate::source::{Method, Weights, read_json};
use crate::view::View;
use crate::vocab::{self, SourceTokenizer, Vocabulary};

const CONFIG: &str = "config.json";

/// What stands for the size of a file without tensors.
const VOCAB_ONLY: &str = "vocab";

/// How many findings a message lists.
const N_SHOWN: usize = 3;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Type of the matrices: `auto`, `f32`, `f16`, `bf16`, `q8_0`, `tq1_0` or `tq2_0`.
    pub outtype: String,
    /// `general.name`; by default made from the folder's name.
    pub model_name: Option<String>,
    /// `tokenizer.ggml.pre`; by default recognised.
    pub pre: Option<String>,
    /// JSON file with metadata keys to set.
    pub metadata: Option<PathBuf>,
    /// Whether layers that predict further tokens are left out.
    pub no_mtp: bool,
    /// Whether the output has metadata and a vocabulary only.
    pub vocab_only: bool,
    /// Whether all quantized forms are kept that a GGUF type holds.
    pub repack: bool,
    /// Tensors of the output, by name, that are kept in the checkpoint's type or F32.
    pub wide: Vec<String>,
}

impl Options {
    fn keep(&self) -> Keep {
        if self.repack {
            Keep::All
        } else if self.outtype.eq_ignore_ascii_case(outtype::AUTO) {
            Keep::Floats
        } else {
            Keep::Nothing
        }
    }
}

/// A tensor of the output with its data's places.
#[derive(Debug)]
pub(crate) struct PlannedTensor {
    /// Type in the output.
    pub(crate) format: &'static Format,
    /// Its matrices, in order.
    pub(crate) views: Vec<View>,
}

/// A whole conversion: what a GGUF file of a checkpoint is, to the byte. [`crate::Checkpoint`] has it opened.
#[derive(Debug)]
pub struct Plan {
    /// The output's metadata.
    pub metadata: Metadata,
    /// The output's tensors, offsets and size.
    pub layout: Layout,
    /// What the matrices become.
    pub file_type: &'static FileType,
    /// What the user should know.
    pub notes: Vec<String>,
    /// Every file that was read or will be.
    pub inputs: Vec<PathBuf>,
    /// The checkpoint's folder.
    pub(crate) dir: PathBuf,
    /// The model's name, if it has one, and its size label, for file names.
    name: Option<String>,
    size_label: String,
    /// The tokenizer that was found: its file and kind.
    pub tokenizer: String,
    source_tokenizer: SourceTokenizer,
    pub(crate) files: Vec<Arc<dyn Source>>,
    pub(crate) tensors: Vec<PlannedTensor>,
}

impl Plan {
    /// Reads a checkpoint's settings, tokenizer and headers, and checks all of it against the architecture.
    ///
    /// # Errors
    /// Everything that would make the output incomplete, wrong or unreadable.
    pub fn new(dir: &Path, options: &Options) -> Result<Self> {
        options.model_name.as_deref().map_or(Ok(()), name::check)?;
        let overrides = options.metadata.as_deref().map(Overrides::read).transpose()?;
        let overrides = overrides.unwrap_or_default();
        require_folder(dir)?;
        let config: Json = read_json(&dir.join(CONFIG))?;
        // Unknown methods are refused before anything large is read.
        Method::find(dir, &config)?;
        let arch = architecture(&config)?;
        let config = hf::text_config(&config)?;
        let vocabulary = Vocabulary::read(dir, options.pre.as_deref())?;
        let weights = if options.vocab_only {
            Weights::default()
        } else {
            Weights::open(dir, &config)?
        };
        let outtype = OutType::resolve(&options.outtype, &weights)?;
        let keep = options.keep();
        let file_type = keep.file_type(&weights).unwrap_or(outtype.file_type);
        let model = if options.vocab_only {
            Model::without_weights(arch, config, file_type.id, &vocabulary)?
        } else {
            Model::new(arch, config, &weights, file_type.id, options.no_mtp)?
        };

        let mut notes = weights.notes.clone();
        notes.extend(model.notes);
        let outputs = keep.apply(model.outputs, &weights.files, &mut notes)?;
        let mut inputs = vec![dir.join(CONFIG)];
        inputs.extend(options.metadata.clone());
        inputs.extend(vocabulary.files.iter().cloned());
        inputs.extend(weights.paths());
        let shapes: Vec<_> = outputs.iter().map(|o| (o.name.as_str(), o.shape)).collect();
        let asked = options.model_name.as_deref().or_else(|| overrides.name());
        let name = asked.map(str::to_owned).or_else(|| name::from_folder(dir));
        let size_label = if options.vocab_only {
            VOCAB_ONLY.to_owned()
        } else {
            name::size_label(shapes.into_iter(), model.hparams.n_expert)
        };

        let mut metadata = general(arch, name.clone(), size_label.clone());
        for (key, value) in model.params.iter() {
            metadata.set(key, value.clone());
        }
        metadata.set(gguf::key::QUANTIZATION_VERSION, Value::U32(2));
        let (tokenizer, source_tokenizer) = (vocabulary.describe(), vocabulary.source());
        notes.extend(vocabulary.metadata(&model.config, model.hparams.n_vocab as u64, &mut metadata)?);
        overrides.apply(&mut metadata)?;
        let (specs, tensors) = typed(outputs, outtype, &options.wide, &mut notes)?;
        let layout = Layout::plan(&metadata, specs)?;
        Ok(Self {
            metadata,
            layout,
            file_type,
            notes,
            inputs,
            dir: dir.to_owned(),
            name,
            size_label,
            tokenizer,
            source_tokenizer,
            files: weights.files,
            tensors,
        })
    }

    /// Compares the vocabulary of an output, by its metadata, with the checkpoint's own tokenizer on hard texts
    /// and on every added token. Gives what the user should know.
    ///
    /// # Errors
    /// The first text whose ids differ.
    pub fn verify_vocabulary(&self, metadata: &Metadata) -> Result<Vec<String>> {
        vocab::verify(&self.source_tokenizer, metadata)
    }

    /// The name for a file of this type where only a folder is given.
    pub fn file_name(&self, file_type: &str) -> String {
        name::file_name(self.name.as_deref(), &self.size_label, file_type)
    }
}

/// A checkpoint as its architecture sees it.
#[derive(Debug)]
pub(crate) struct Model {
    /// The settings of the text model.
    pub(crate) config: Json,
    /// The architecture's keys.
    pub(crate) params: Metadata,
    /// What they say.
    pub(crate) hparams: HParams,
    /// The output's tensors.
    pub(crate) outputs: Vec<Output>,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
}

impl Model {
    /// # Errors
    /// Settings and tensors that do not fit the architecture, or each other.
    pub(crate) fn new(
        arch: &Architecture,
        mut config: Json,
        weights: &Weights,
        file_type: u32,
        no_mtp: bool,
    ) -> Result<Self> {
        let mtp = resolve_mtp(arch, &mut config, no_mtp);
        let mut params = Metadata::new();
        hf::metadata(arch, &config, file_type, &mut params)?;
        let n_rows = embedding_rows(arch, weights)?;
        check_vocab_size(&config, n_rows)?;
        let hparams = with_vocab_size(arch, &params, n_rows)?;
        let computed = (arch.computed)(&config, &hparams)?;
        let mapper = Mapper {
            arch,
            hparams: &hparams,
            mtp,
        };
        let mapped = mapper.map(weights, computed)?;
        let mut notes: Vec<_> = mapped.notes().collect();
        notes.extend(announced_only(&hparams, weights));
        let Mapped { outputs, .. } = mapped;
        check_tied(arch, &config, &outputs)?;
        let shapes: Vec<_> = outputs.iter().map(|o| (o.name.as_str(), o.shape)).collect();
        check_shapes(arch, &hparams, &shapes)?;
        Ok(Self {
            config,
            params,
            hparams,
            outputs,
            notes,
        })
    }
}

impl Model {
    /// What the settings say, for a file without tensors. It has as many tokens as the settings say, and at least those
    /// of the tokenizer.
    ///
    /// # Errors
    /// Settings that do not fit the architecture, or each other, and far more tokens than the tokenizer's files have.
    fn without_weights(
        arch: &Architecture,
        config: Json,
        file_type: u32,
        vocabulary: &Vocabulary,
    ) -> Result<Self> {
        let mut params = Metadata::new();
        hf::metadata(arch, &config, file_type, &mut params)?;
        let of_config = hf::lookup(&config, "vocab_size").and_then(hf::whole_number);
        // No weights back the number, and each token costs memory.
        let n_listed = vocabulary.n_listed();
        let most = 2 * n_listed + MAX_HOLES;
        if let Some(n) = of_config.filter(|&n| n > most) {
            let expected = format!("at most {most} where the tokenizer has {n_listed} tokens");
            return Err(Error::mismatch(format!("{CONFIG} `vocab_size`"), expected, n));
        }
        if let Some((text, id)) = vocabulary.last().filter(|&(_, id)| id >= most) {
            let object = format!("token `{}`", short(text).escape_debug());
            let expected = format!("an id below {most} where the tokenizer has {n_listed} tokens");
            return Err(Error::mismatch(object, expected, id));
        }
        let hparams = with_vocab_size(arch, &params, of_config.unwrap_or(0).max(vocabulary.n_tokens()))?;
        Ok(Self {
            config,
            params,
            hparams,
            outputs: Vec::new(),
            notes: Vec::new(),
        })
    }
}

/// Ids without a token that a vocabulary of any size may have in a file without weights.
const MAX_HOLES: u64 = 1 << 16;

/// Where a config announces layers that predict further tokens.
const NEXTN: &str = "num_nextn_predict_layers";

/// What becomes of layers that predict further tokens. Where they are not wanted, the config says that there are none.
fn resolve_mtp(arch: &Architecture, config: &mut Json, no_mtp: bool) -> Mtp {
    match (arch.mtp)(config) {
        Mtp::Kept if no_mtp => {
            if hf::lookup(config, NEXTN).is_some() {
                config[NEXTN] = 0.into();
            }
            Mtp::Dropped
        }
        mtp => mtp,
    }
}

/// A note where the last layers are announced only.
fn announced_only(hparams: &HParams, weights: &Weights) -> Option<String> {
    let n_main = hparams.n_layer_main();
    let is_there = weights
        .tensors
        .iter()
        .any(|t| hf::layer(&t.name).is_some_and(|il| il >= n_main));
    (hparams.n_layer_nextn > 0 && !is_there).then(|| {
        let n = hparams.n_layer_nextn;
        format!("`{NEXTN}` is {n}, but the checkpoint has no tensor of such a layer: `--no-mtp` leaves it out of the count")
    })
}

fn require_folder(dir: &Path) -> Result<()> {
    match dir.metadata() {
        Err(e) => Err(Error::io("open", dir, e)),
        Ok(meta) if !meta.is_dir() => Err(Error::io("open", dir, "a checkpoint is a folder, this is a file")),
        Ok(_) => Ok(()),
    }
}

/// The architecture by the config's class name.
fn architecture(config: &Json) -> Result<&'static Architecture> {
    let class = config["architectures"]
        .get(0)
        .and_then(Json::as_str)
        .ok_or_else(|| {
            let expected = "the name of a class in a list";
            Error::mismatch(
                format!("{CONFIG} `architectures`"),
                expected,
                &config["architectures"],
            )
        })?;
    Ok(arch::by_hf_class(class)?)
}

/// Rows of the embedding: the number of tokens that the model knows.
fn embedding_rows(arch: &Architecture, weights: &Weights) -> Result<u64> {
    let embedding = map::find(arch, Role::TokenEmbd, weights);
    let rows = embedding.and_then(|t| t.shape.first().copied().filter(|_| t.shape.len() == 2));
    rows.ok_or_else(|| {
        let found = embedding.map_or("none".to_owned(), |t| format!("shape {:?}", t.shape));
        Error::mismatch(
            format!("tensor `{}`", map::hf_name(arch, Role::TokenEmbd)),
            "a matrix",
            found,
        )
    })
}

/// The config's number of tokens must be the embedding's: loaders go by one or the other.
fn check_vocab_size(config: &Json, n_rows: u64) -> Result<()> {
    match hf::lookup(config, "vocab_size") {
        Some(size) if hf::whole_number(size) != Some(n_rows) => Err(Error::mismatch(
            format!("{CONFIG} `vocab_size`"),
            format!("{n_rows}, the number of rows of the embedding"),
            size,
        )),
        _ => Ok(()),
    }
}

/// The hyper-parameters of keys that do not tell the vocabulary yet.
fn with_vocab_size(arch: &Architecture, params: &Metadata, n_rows: u64) -> Result<HParams> {
    let mut params = params.clone();
    params.set(format!("{}.vocab_size", arch.name), Value::U64(n_rows));
    let hparams = HParams::from_gguf(arch.name, &params).map_err(of_config)?;
    arch.model(&hparams).map_err(of_config)?;
    Ok(hparams)
}

/// What does not fit in the keys made of the config is the config's fault.
fn of_config(e: gguf_models::Error) -> Error {
    match e {
        gguf_models::Error::Mismatch {
            object,
            expected,
            found,
        } => Error::mismatch(format!("{CONFIG} as {object}"), expected, found),
        e => e.into(),
    }
}

/// A model whose config says that it has an output of its own must have it.
fn check_tied(arch: &Architecture, config: &Json, outputs: &[Output]) -> Result<()> {
    let has_output = outputs.iter().any(|o| o.role == Role::Output);
    let tied = hf::flag(config, "tie_word_embeddings")?;
    if has_output || tied != Some(false) {
        return Ok(());
    }
    let object = format!("tensor `{}`", map::hf_name(arch, Role::Output));
    Err(Error::mismatch(
        object,
        "one, as `tie_word_embeddings` is false",
        "none",
    ))
}

fn check_shapes(arch: &Architecture, hparams: &HParams, shapes: &[(&str, gguf::Shape)]) -> Result<()> {
    let findings: Vec<_> = check::check_shapes(shapes, arch, hparams)
        .into_iter()
        .map(|f| format!("tensor `{}`: {}", f.object, f.what))
        .collect();
    if findings.is_empty() {
        return Ok(());
    }
    let object = format!(
        "tensors of architecture `{}` with the sizes of {CONFIG}",
        arch.name
    );
    Err(Error::mismatch(
        object,
        "all of them",
        listed(&findings, N_SHOWN, "; "),
    ))
}

fn general(arch: &Architecture, name: Option<String>, size_label: String) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set(gguf::key::ARCHITECTURE, Value::String(arch.name.to_owned()));
    metadata.set("general.type", Value::String("model".to_owned()));
    if let Some(name) = name {
        metadata.set("general.name", Value::String(name));
    }
    metadata.set("general.size_label", Value::String(size_label));
    metadata
}

/// Gives every tensor its type.
fn typed(
    outputs: Vec<Output>,
    outtype: OutType,
    wide: &[String],
    notes: &mut Vec<String>,
) -> Result<(Vec<TensorSpec>, Vec<PlannedTensor>)> {
    let mut specs = Vec::with_capacity(outputs.len());
    let mut tensors = Vec::with_capacity(outputs.len());
    for output in outputs {
        let (format, note) = outtype.of(&output, wide.contains(&output.name))?;
        notes.extend(note);
        specs.push(TensorSpec::new(output.name.clone(), output.shape, format.id));
        tensors.push(PlannedTensor {
            format,
            views: output.views,
        });
    }
    Ok((specs, tensors))
}
