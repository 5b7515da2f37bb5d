//! A file bound to its architecture: every weight found, checked and ready for the forward pass.

use std::path::Path;
use std::sync::Arc;

use gguf::{GgufFile, Metadata, key};
use gguf_models::arch::{self, Architecture};
use gguf_models::spec::{Activation, DeltaNet, Gqa, Mla, ModelSpec, Moe, RopeFactors};
use gguf_models::{HParams, effects};
use sha2::{Digest as _, Sha256};

use crate::bind::bind;
use crate::forward::ropes;
use crate::kernels::Weights;
use crate::kernels::rows::decode_row;
use crate::load::{self, LoadOptions, LoadWatch, Prefetch, Prefetcher};
use crate::{Compute, Error, Result, Tokenizer};

/// A weight in the mapped file. Becomes [`Weights`] through [`Model::weights`].
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) format: &'static gguf_blocks::Format,
    /// The file of a split set, and the bytes in it.
    pub(crate) part: usize,
    pub(crate) range: std::ops::Range<usize>,
    pub(crate) n_cols: usize,
    pub(crate) n_rows: usize,
    pub(crate) n_mats: usize,
    /// Factor of the product, one for each matrix; empty for none.
    pub(crate) factors: Vec<f32>,
    /// Added to the product, `n_rows` elements for each matrix; empty for none.
    pub(crate) bias: Vec<f32>,
}

impl Tensor {
    pub(crate) fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Ready for products, with its bytes in memory.
    pub(crate) fn with_bytes<'a>(&'a self, bytes: &'a [u8]) -> Weights<'a> {
        Weights {
            format: self.format,
            bytes,
            n_cols: self.n_cols,
            n_rows: self.n_rows,
            n_mats: self.n_mats,
            compute: Compute::Fast,
        }
    }
}

/// A norm with its weights, which are ones where the file has none.
#[derive(Debug)]
pub(crate) struct NormWeights {
    pub(crate) eps: f32,
    pub(crate) weight: Vec<f32>,
}

/// Norms of queries and keys.
#[derive(Debug)]
pub(crate) struct QkNormTensors {
    pub(crate) after_rope: bool,
    pub(crate) q: NormWeights,
    pub(crate) k: NormWeights,
}

/// The matrices in front of grouped-query attention.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
pub(crate) enum QkvWeights {
    /// One for each.
    Apart { q: Tensor, k: Tensor, v: Tensor },
    /// One with the rows of all.
    Fused(Tensor),
}

/// Grouped-query attention with its weights.
#[derive(Debug)]
pub(crate) struct GqaWeights {
    pub(crate) spec: Gqa,
    /// Index in the KV cache.
    pub(crate) kv_layer: usize,
    pub(crate) qkv: QkvWeights,
    pub(crate) output: Tensor,
    pub(crate) qk_norm: Option<QkNormTensors>,
    pub(crate) sinks: Option<Vec<f32>>,
}

/// The matrices in front of queries of latent attention.
#[derive(Debug)]
pub(crate) enum MlaQueryWeights {
    /// One.
    Direct(Tensor),
    /// Two with a norm between.
    Latent { a: Tensor, norm: NormWeights, b: Tensor },
}

/// How latent vectors meet queries.
#[derive(Debug)]
pub(crate) enum MlaKvWeights {
    /// Queries become latent, results become values.
    Absorbed {
        k_b: Tensor,
        v_b: Tensor,
        /// Name of the same numbers in the other layout.
        kv_b: String,
    },
    /// Keys and values are made.
    Expanded {
        kv_b: Tensor,
        /// Names of the same numbers in the other layout.
        k_b: String,
        v_b: String,
    },
}

/// Latent attention with its weights.
#[derive(Debug)]
pub(crate) struct MlaWeights {
    pub(crate) spec: Mla,
    /// Index in the KV cache.
    pub(crate) kv_layer: usize,
    /// Index among the layers of latent attention.
    pub(crate) latent_layer: usize,
    pub(crate) q: MlaQueryWeights,
    pub(crate) kv_a: Tensor,
    pub(crate) kv_norm: NormWeights,
    pub(crate) kv: MlaKvWeights,
    pub(crate) output: Tensor,
}

/// A gated delta net with its weights.
#[derive(Debug)]
pub(crate) struct DeltaNetWeights {
    pub(crate) spec: DeltaNet,
    /// Index among the layers with recurrent state.
    pub(crate) state_layer: usize,
    pub(crate) qkv: Tensor,
    pub(crate) gate: Tensor,
    pub(crate) beta_alpha: Tensor,
    /// `n_conv` weights for each channel.
    pub(crate) conv: Vec<f32>,
    /// Decay of each value head.
    pub(crate) a: Vec<f32>,
    /// Bias of the steps of each value head.
    pub(crate) dt: Vec<f32>,
    pub(crate) norm: NormWeights,
    pub(crate) output: Tensor,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
pub(crate) enum MixerWeights {
    Gqa(GqaWeights),
    Mla(MlaWeights),
    DeltaNet(DeltaNetWeights),
}

/// A gated network.
#[derive(Debug)]
pub(crate) struct DenseWeights {
    pub(crate) activation: Activation,
    pub(crate) n_ff: usize,
    /// Absent where `up` has its rows in front of its own.
    pub(crate) gate: Option<Tensor>,
    pub(crate) up: Tensor,
    pub(crate) down: Tensor,
}

/// The experts that every token passes.
#[derive(Debug)]
pub(crate) struct SharedWeights {
    pub(crate) net: DenseWeights,
    pub(crate) gate: Option<Tensor>,
}

/// Stacks of experts and their router.
#[derive(Debug)]
pub(crate) struct MoeWeights {
    pub(crate) spec: Moe,
    pub(crate) router: Tensor,
    /// Added to probabilities where experts are chosen.
    pub(crate) selection_bias: Option<Vec<f32>>,
    pub(crate) gate: Tensor,
    pub(crate) up: Tensor,
    pub(crate) down: Tensor,
    pub(crate) shared: Option<SharedWeights>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
pub(crate) enum FfnWeights {
    Dense(DenseWeights),
    Moe(MoeWeights),
}

#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) norm_in: NormWeights,
    pub(crate) mixer: MixerWeights,
    pub(crate) norm_mixed: Option<NormWeights>,
    pub(crate) norm_mid: NormWeights,
    pub(crate) ffn: FfnWeights,
    pub(crate) norm_out: Option<NormWeights>,
}

impl Layer {
    /// The matrices that the layer multiplies with.
    pub(crate) fn matrices(&self) -> Vec<&Tensor> {
        let mut all = match &self.mixer {
            MixerWeights::Gqa(w) => match &w.qkv {
                QkvWeights::Apart { q, k, v } => vec![q, k, v, &w.output],
                QkvWeights::Fused(qkv) => vec![qkv, &w.output],
            },
            MixerWeights::Mla(w) => {
                let mut all = match &w.q {
                    MlaQueryWeights::Direct(q) => vec![q],
                    MlaQueryWeights::Latent { a, b, .. } => vec![a, b],
                };
                all.push(&w.kv_a);
                all.extend(w.kv.matrices());
                all.push(&w.output);
                all
            }
            MixerWeights::DeltaNet(w) => vec![&w.qkv, &w.gate, &w.beta_alpha, &w.output],
        };
        match &self.ffn {
            FfnWeights::Dense(w) => all.extend(w.matrices()),
            FfnWeights::Moe(w) => {
                all.extend([&w.router, &w.gate, &w.up, &w.down]);
                if let Some(shared) = &w.shared {
                    all.extend(shared.net.matrices());
                    all.extend(&shared.gate);
                }
            }
        }
        all
    }
}

impl MlaKvWeights {
    /// The matrices that the file has.
    pub(crate) fn matrices(&self) -> Vec<&Tensor> {
        match self {
            Self::Absorbed { k_b, v_b, .. } => vec![k_b, v_b],
            Self::Expanded { kv_b, .. } => vec![kv_b],
        }
    }
}

impl DenseWeights {
    fn matrices(&self) -> impl Iterator<Item = &Tensor> {
        self.gate.iter().chain([&self.up, &self.down])
    }
}

/// Factors of rotations.
#[derive(Debug, Default)]
pub(crate) struct RopeFactorTensors {
    pub(crate) freqs: Vec<f32>,
    pub(crate) short: Vec<f32>,
    pub(crate) long: Vec<f32>,
}

/// The weights by their place in the forward pass.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) token_embd: Tensor,
    pub(crate) rope_factors: RopeFactorTensors,
    pub(crate) layers: Vec<Layer>,
    pub(crate) output_norm: NormWeights,
    pub(crate) output: Tensor,
}

/// An opened model. Weights stay in the mapped file and are used as they are; only norms are copied.
pub struct Model {
    file: GgufFile,
    arch: &'static Architecture,
    hparams: HParams,
    spec: ModelSpec,
    pub(crate) parts: Parts,
    /// Reads the file ahead while it lives.
    prefetcher: Option<Prefetcher>,
}

impl std::fmt::Debug for Model {
    /// The name alone: all else is long.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("file", &self.file.path())
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Maps a file and binds it.
    ///
    /// # Errors
    /// An unreadable or malformed file, one in big-endian order, an unknown architecture, metadata that ask for
    /// a computation that the architecture's description does not have, and, all findings in one message,
    /// tensors that are missing, unknown, of a wrong shape or of a type without a decoder.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, LoadOptions::default())
    }

    /// Opens a file as `options` say and binds it.
    ///
    /// # Errors
    /// As [`Model::open`]; memory that cannot be had or locked.
    pub fn open_with(path: &Path, options: LoadOptions) -> Result<Self> {
        Self::open_watched(path, options, Arc::new(|_| ()))
    }

    /// As [`Model::open_with`]; `watch` is told of every piece that is read into memory or read ahead, the latter
    /// from a thread of its own also when the model is open.
    pub fn open_watched(path: &Path, options: LoadOptions, watch: LoadWatch) -> Result<Self> {
        let mut model = Self::bind(load::open(path, options, &watch)?)?;
        if options.mmap && options.prefetch == Prefetch::Background {
            model.prefetcher = Some(Prefetcher::start(&model.file, watch));
        }
        Ok(model)
    }

    /// Binds a file whose weights stay where they are: for evaluation layer by layer, which reads them as they are
    /// needed ([`crate::Layered`]). No [`crate::Session`] takes it.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_streamed(path: &Path) -> Result<Self> {
        Self::bind(GgufFile::open(path)?)
    }

    /// Reads a file from wherever its bytes come, a checkpoint that is converted on the way for instance, into memory
    /// and binds it. `watch` is told of every piece.
    ///
    /// # Errors
    /// As [`Model::open`]; memory that cannot be had.
    pub fn read(file: &GgufFile, watch: &LoadWatch) -> Result<Self> {
        Self::bind(load::read(file, watch)?)
    }

    /// Whether all weights are mapped or in memory.
    pub fn is_resident(&self) -> bool {
        self.file.parts().iter().all(|p| p.source().bytes().is_some())
    }

    /// Binds a file. Without its bytes mapped or in memory it is as [`Model::open_streamed`] has it.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn bind(file: GgufFile) -> Result<Self> {
        // Below here every tensor lies inside the file.
        file.require_sound()?;
        let (arch, hparams, spec) = describe(&file.metadata).map_err(|e| e.in_file(file.path()))?;
        match bind(&file, arch, &hparams, &spec) {
            Ok(parts) => Ok(Self {
                file,
                arch,
                hparams,
                spec,
                parts,
                prefetcher: None,
            }),
            Err(findings) => Err(Error::Misfit {
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

    /// Tells this model from others, wherever its file lies: SHA-256 of the heads of its files, a sample of each tensor,
    /// and the factors of rotations in contexts of `n_ctx` positions, on which these may depend.
    ///
    /// # Errors
    /// What reading meets.
    pub fn fingerprint(&self, n_ctx: usize) -> Result<[u8; 32]> {
        /// Bytes of the beginning and of the middle of each tensor.
        const SAMPLE: usize = 64;
        let mut hash = Sha256::new();
        for part in self.file.parts() {
            let n = part.data_offset.min(part.source().len());
            let head = part.source().slice(0, usize::try_from(n).unwrap_or(usize::MAX))?;
            hash.update(head);
        }
        for tensor in &self.file.tensors {
            let mut sample = [0; SAMPLE];
            let n = tensor.n_bytes.min(SAMPLE as u64);
            let sample = &mut sample[..n as usize];
            for at in [0, (tensor.n_bytes - n) / 2] {
                self.file.read_tensor(tensor, at, sample)?;
                hash.update(&*sample);
            }
        }
        for rope in ropes(&self.spec) {
            for factor in self.rope_factors(rope.factors, n_ctx) {
                hash.update(factor.to_le_bytes());
            }
        }
        Ok(hash.finalize().into())
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

    /// A tensor of a resident model, ready for products.
    pub(crate) fn weights<'a>(&'a self, t: &'a Tensor) -> Weights<'a> {
        let bytes = self.file.parts()[t.part].source().bytes();
        let bytes = bytes.expect("sessions take resident models alone");
        t.with_bytes(&bytes[t.range.clone()])
    }

    /// What the angles of a rotation are divided by in contexts of `n_ctx` positions.
    pub(crate) fn rope_factors(&self, factors: RopeFactors, n_ctx: usize) -> &[f32] {
        let tensors = &self.parts.rope_factors;
        match factors {
            RopeFactors::One => &[],
            RopeFactors::Freqs => &tensors.freqs,
            RopeFactors::ShortLong { n_ctx_orig } if n_ctx > n_ctx_orig => &tensors.long,
            RopeFactors::ShortLong { .. } => &tensors.short,
        }
    }

    /// Decodes one row of the embedding.
    pub(crate) fn embed(&self, id: u32, out: &mut [f32]) {
        let w = self.weights(&self.parts.token_embd);
        decode_row(&w, id as usize, out);
    }

    /// The same for a model that is not resident: reads what the row needs.
    pub(crate) fn read_embedding(&self, id: u32, bytes: &mut Vec<u8>, out: &mut [f32]) -> Result<()> {
        let t = &self.parts.token_embd;
        let (id, geometry) = (id as usize, t.format.geometry);
        let row_bytes = geometry.row_bytes(t.n_cols as u64);
        let row_bytes = row_bytes.expect("binding checked that rows are whole blocks") as usize;
        // Rows that are interleaved come together; what stands behind the last row belongs to all.
        let first = id / geometry.interleave * geometry.interleave;
        let (group, rows) = (geometry.interleave * row_bytes, t.n_rows * row_bytes);
        let behind = t.range.len() - rows;
        bytes.resize(group + behind, 0);
        let source = self.file.parts()[t.part].source();
        source.read_at((t.range.start + first * row_bytes) as u64, &mut bytes[..group])?;
        source.read_at((t.range.start + rows) as u64, &mut bytes[group..])?;
        let w = Weights {
            n_rows: geometry.interleave,
            ..t.with_bytes(bytes)
        };
        decode_row(&w, id - first, out);
        Ok(())
    }
}

/// The description that the metadata name, if it holds for all they say.
fn describe(metadata: &Metadata) -> Result<(&'static Architecture, HParams, ModelSpec)> {
    let name = metadata
        .string(key::ARCHITECTURE)?
        .ok_or_else(|| missing(key::ARCHITECTURE))?;
    let arch = arch::by_name(name)?;
    let hparams = HParams::from_gguf(arch.name, metadata)?;
    effects::check(arch, metadata)?;
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
