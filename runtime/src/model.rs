//! A file bound to its architecture: every weight found, checked and ready for the forward pass.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use gguf::{GgufFile, Metadata, TensorInfo, key};
use gguf_models::arch::{self, Architecture};
use gguf_models::check::check;
use gguf_models::spec::{Ffn, Gqa, Mixer, ModelSpec, Moe, Norm};
use gguf_models::{HParams, LayerSpec, Part, Role, effects};

use crate::kernels::Weights;
use crate::{Error, Result, Tokenizer};

/// A weight in the mapped file. Becomes [`Weights`] through [`Model::weights`].
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    format: &'static gguf_blocks::Format,
    /// The file of a split set, and the bytes in it.
    part: usize,
    range: std::ops::Range<usize>,
    n_cols: usize,
    n_rows: usize,
    n_mats: usize,
}

impl Tensor {
    pub(crate) fn n_rows(&self) -> usize {
        self.n_rows
    }
}

/// A norm with its weights.
#[derive(Debug)]
pub(crate) struct NormWeights {
    pub(crate) spec: Norm,
    pub(crate) weight: Vec<f32>,
}

/// Grouped-query attention with its weights.
#[derive(Debug)]
pub(crate) struct GqaWeights {
    pub(crate) spec: Gqa,
    /// Index in the KV cache.
    pub(crate) kv_layer: usize,
    pub(crate) q: Tensor,
    pub(crate) k: Tensor,
    pub(crate) v: Tensor,
    pub(crate) output: Tensor,
    pub(crate) q_norm: Option<NormWeights>,
    pub(crate) k_norm: Option<NormWeights>,
}

#[derive(Debug)]
pub(crate) enum MixerWeights {
    Gqa(GqaWeights),
}

/// A gated network: plain weights, or stacks of them.
#[derive(Debug)]
pub(crate) struct FfnWeights {
    pub(crate) gate: Tensor,
    pub(crate) up: Tensor,
    pub(crate) down: Tensor,
    /// The router of a mixture of experts.
    pub(crate) router: Option<(Moe, Tensor)>,
}

#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) norm_in: NormWeights,
    pub(crate) mixer: MixerWeights,
    pub(crate) norm_mid: NormWeights,
    pub(crate) ffn: FfnWeights,
}

/// An opened model. Weights stay in the mapped file and are used as they are; only norms are copied.
#[derive(Debug)]
pub struct Model {
    file: GgufFile,
    arch: &'static Architecture,
    hparams: HParams,
    spec: ModelSpec,
    pub(crate) token_embd: Tensor,
    pub(crate) layers: Vec<Layer>,
    pub(crate) output_norm: NormWeights,
    pub(crate) output: Tensor,
}

impl Model {
    /// Maps a file and binds it.
    ///
    /// # Errors
    /// An unreadable or malformed file, one in big-endian order, an unknown architecture, metadata that ask for
    /// a computation that the architecture's description does not have, and, all findings in one message,
    /// tensors that are missing, unknown, of a wrong shape or of a type without a decoder.
    pub fn open(path: &Path) -> Result<Self> {
        Self::bind(GgufFile::open_mapped(path)?)
    }

    /// Binds a file that is mapped or in memory.
    pub fn bind(file: GgufFile) -> Result<Self> {
        // Below here every tensor lies inside the file.
        file.require_sound()?;
        let (arch, hparams, spec) = describe(&file.metadata).map_err(|e| e.in_file(file.path()))?;
        let mut binder = Binder::new(&file, arch, &hparams);
        let parts = binder.model(&spec);
        binder.require_all_taken();
        let findings = binder.findings;
        match parts {
            Some((token_embd, layers, output_norm, output)) if findings.is_empty() => Ok(Self {
                file,
                arch,
                hparams,
                spec,
                token_embd,
                layers,
                output_norm,
                output,
            }),
            _ => Err(Error::Misfit {
                file: file.path().to_path_buf(),
                arch: arch.name.into(),
                findings,
            }),
        }
    }

    /// The file.
    pub fn file(&self) -> &GgufFile {
        &self.file
    }

    /// The tokenizer that the file's metadata describe; errors as [`Tokenizer::from_metadata`], with the file.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        Tokenizer::from_metadata(&self.file.metadata).map_err(|e| e.in_file(self.file.path()))
    }

    /// Value of `general.architecture`.
    pub fn arch(&self) -> &'static str {
        self.arch.name
    }

    /// Hyper-parameters.
    pub fn hparams(&self) -> &HParams {
        &self.hparams
    }

    /// The forward pass.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Elements of all tensors of the file.
    pub fn n_params(&self) -> u64 {
        self.file.tensors.iter().map(|t| t.shape.n_elems()).sum()
    }

    /// Bytes of all tensors of the file.
    pub fn n_bytes(&self) -> u64 {
        self.file.tensors.iter().map(|t| t.n_bytes).sum()
    }

    pub(crate) fn weights<'a>(&'a self, t: &'a Tensor) -> Weights<'a> {
        let bytes = self.file.parts()[t.part]
            .source()
            .bytes()
            .expect("binding checked that the source is in memory");
        Weights {
            format: t.format,
            bytes: &bytes[t.range.clone()],
            n_cols: t.n_cols,
            n_rows: t.n_rows,
            n_mats: t.n_mats,
        }
    }

    /// Decodes one row of the embedding.
    pub(crate) fn embed(&self, id: u32, out: &mut [f32]) {
        let w = self.weights(&self.token_embd);
        let row_bytes = w.bytes.len() / w.n_rows;
        let decode = w
            .format
            .decode
            .expect("binding checked that the type has a decoder");
        decode(&w.bytes[id as usize * row_bytes..][..row_bytes], out);
    }
}

/// The description that the metadata name, if it holds for all they say.
fn describe(metadata: &Metadata) -> Result<(&'static Architecture, HParams, ModelSpec)> {
    let name = metadata
        .string(key::ARCHITECTURE)?
        .ok_or_else(|| missing(key::ARCHITECTURE))?;
    let arch = arch::by_name(name)?;
    let hparams = HParams::from_gguf(arch.name, metadata)?;
    if arch.forward.is_some() {
        effects::check(arch, metadata)?;
    }
    let spec = arch.model(&hparams)?;
    Ok((arch, hparams, spec))
}

fn missing(key: &str) -> gguf::Error {
    gguf::Error::Key {
        key: key.into(),
        expected: "a value".into(),
        found: "nothing".into(),
    }
}

type Parts = (Tensor, Vec<Layer>, NormWeights, Tensor);

/// Checks the architecture's expectations against the file and hands tensors out by role.
struct Binder<'a> {
    file: &'a GgufFile,
    found: HashMap<(Role, Part, Option<usize>), &'a TensorInfo>,
    /// Those that the forward pass has taken.
    taken: HashSet<(Role, Part, Option<usize>)>,
    findings: Vec<String>,
}

impl<'a> Binder<'a> {
    fn new(file: &'a GgufFile, arch: &Architecture, hparams: &HParams) -> Self {
        // A tensor that the description does not know (a bias, a scale) would change the result, so even
        // findings that are not severe for the container keep the model from running.
        let misfits = check(file, arch, hparams).into_iter();
        let mut findings: Vec<String> = misfits
            .map(|f| format!("tensor `{}`: {}", f.object, f.what))
            .collect();
        if file.parts().iter().any(|p| p.source().bytes().is_none()) {
            findings.push("the file is neither mapped nor in memory".into());
        }
        let by_name: HashMap<&str, &TensorInfo> = file.tensors.iter().map(|t| (t.name.as_str(), t)).collect();
        let mut found = HashMap::new();
        for expected in (arch.tensors)(hparams) {
            if let Some(t) = by_name.get(expected.name().as_str()).copied() {
                findings.extend(unusable_type(t));
                found.insert((expected.role, expected.part, expected.layer), t);
            }
        }
        Self {
            file,
            found,
            taken: HashSet::new(),
            findings,
        }
    }

    /// What the forward pass leaves out (a bias, factors of weights) would change the result.
    fn require_all_taken(&mut self) {
        if !self.findings.is_empty() {
            return;
        }
        let taken: HashSet<&str> = self
            .found
            .iter()
            .filter(|(key, _)| self.taken.contains(*key))
            .map(|(_, t)| t.name.as_str())
            .collect();
        let left = self
            .file
            .tensors
            .iter()
            .filter(|t| !taken.contains(t.name.as_str()));
        let what = |t: &TensorInfo| format!("tensor `{}`: this build cannot use it", t.name);
        self.findings.extend(left.map(what));
    }

    fn model(&mut self, spec: &ModelSpec) -> Option<Parts> {
        let token_embd = self.tensor(Role::TokenEmbd, None)?;
        let layers = spec
            .layers
            .iter()
            .enumerate()
            .map(|(i, l)| self.layer(i, l))
            .collect::<Option<_>>()?;
        let output_norm = self.norm(Role::OutputNorm, None, spec.norm_out)?;
        let tied = !self.found.contains_key(&(Role::Output, Part::Main, None));
        let output = if tied {
            token_embd.clone()
        } else {
            self.tensor(Role::Output, None)?
        };
        Some((token_embd, layers, output_norm, output))
    }

    fn layer(&mut self, i: usize, spec: &LayerSpec) -> Option<Layer> {
        let il = Some(i);
        let mixer = match spec.mixer {
            Mixer::Gqa(gqa) => MixerWeights::Gqa(self.gqa(i, gqa)?),
            _ => return self.no_code(i, "mixer"),
        };
        let ffn = match spec.ffn {
            Ffn::Dense(_) => FfnWeights {
                gate: self.tensor(Role::FfnGate, il)?,
                up: self.tensor(Role::FfnUp, il)?,
                down: self.tensor(Role::FfnDown, il)?,
                router: None,
            },
            Ffn::Moe(moe) => FfnWeights {
                gate: self.tensor(Role::FfnGateExps, il)?,
                up: self.tensor(Role::FfnUpExps, il)?,
                down: self.tensor(Role::FfnDownExps, il)?,
                router: Some((moe, self.tensor(Role::FfnGateInp, il)?)),
            },
        };
        Some(Layer {
            norm_in: self.norm(Role::AttnNorm, il, spec.norm_in)?,
            mixer,
            norm_mid: self.norm(Role::FfnNorm, il, spec.norm_mid)?,
            ffn,
        })
    }

    fn gqa(&mut self, i: usize, spec: Gqa) -> Option<GqaWeights> {
        let il = Some(i);
        let (q_norm, k_norm) = match spec.qk_norm {
            Some(n) => (
                Some(self.norm(Role::AttnQNorm, il, n.norm)?),
                Some(self.norm(Role::AttnKNorm, il, n.norm)?),
            ),
            None => (None, None),
        };
        Some(GqaWeights {
            spec,
            kv_layer: i,
            q: self.tensor(Role::AttnQ, il)?,
            k: self.tensor(Role::AttnK, il)?,
            v: self.tensor(Role::AttnV, il)?,
            output: self.tensor(Role::AttnOutput, il)?,
            q_norm,
            k_norm,
        })
    }

    fn no_code<T>(&mut self, layer: usize, what: &str) -> Option<T> {
        self.findings
            .push(format!("layer {layer}: this build cannot run its {what}"));
        None
    }

    /// The tensor of a role. Absence was reported if it matters; a description that does not list what its
    /// own layers use is reported here.
    fn info(&mut self, role: Role, layer: Option<usize>) -> Option<&'a TensorInfo> {
        let info = self.found.get(&(role, Part::Main, layer)).copied();
        self.taken.insert((role, Part::Main, layer));
        if info.is_none() && self.findings.is_empty() {
            let name = role.gguf_name(layer.unwrap_or(0));
            self.findings.push(format!(
                "tensor `{name}`: needed by the forward pass, found nothing"
            ));
        }
        info
    }

    fn tensor(&mut self, role: Role, layer: Option<usize>) -> Option<Tensor> {
        let info = self.info(role, layer)?;
        let range = self.file.tensor_range(info);
        Some(Tensor {
            name: info.name.clone(),
            format: info.format()?,
            part: info.part,
            range: usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?,
            n_cols: usize::try_from(info.shape.n_cols()).ok()?,
            n_rows: usize::try_from(info.shape.dim(1)).ok()?,
            n_mats: usize::try_from(info.shape.dim(2)).ok()?,
        })
    }

    fn norm(&mut self, role: Role, layer: Option<usize>, spec: Norm) -> Option<NormWeights> {
        let t = self.tensor(role, layer)?;
        let decode = t.format.decode?;
        let bytes = self.file.parts()[t.part].source().bytes()?.get(t.range.clone())?;
        if t.format.geometry.row_bytes(t.n_cols as u64) != Some(bytes.len() as u64) {
            return None;
        }
        let mut weight = vec![0.0; t.n_cols];
        decode(bytes, &mut weight);
        Some(NormWeights { spec, weight })
    }
}

/// What keeps a tensor's values from being used, if anything.
fn unusable_type(t: &TensorInfo) -> Option<String> {
    let name = &t.name;
    let Some(format) = t.format() else {
        return Some(format!(
            "tensor `{name}`: expected a known type, found `{}`",
            t.type_name()
        ));
    };
    let geometry = format.geometry;
    if !geometry.is_plain() || format.decode.is_none() || !format.holds_weights() {
        return Some(format!(
            "tensor `{name}`: expected a type of weights, found `{}`",
            format.name
        ));
    }
    let n_cols = t.shape.n_cols();
    let n_bytes = geometry
        .row_bytes(n_cols)
        .and_then(|b| b.checked_mul(t.shape.n_rows()));
    if n_bytes != Some(t.n_bytes) {
        let elems = geometry.block_elems;
        return Some(format!(
            "tensor `{name}`: expected rows of whole blocks of {elems}, found {n_cols} elements"
        ));
    }
    None
}
