//! Looks up the weights of a forward pass in a file.

use std::collections::{HashMap, HashSet};

use gguf::{GgufFile, TensorInfo};
use gguf_models::arch::Architecture;
use gguf_models::check::check;
use gguf_models::component::layer_of;
use gguf_models::spec::{
    DeltaNet, Dense, Ffn, Gqa, Mixer, Mla, ModelSpec, Moe, Norm, NormOver, QkNorm, QkNormWeights,
};
use gguf_models::{HParams, LayerSpec, Part, Role};

use crate::model::{
    DeltaNetWeights, DenseWeights, FfnWeights, GqaWeights, Layer, MixerWeights, MlaKvWeights,
    MlaQueryWeights, MlaWeights, MoeWeights, NormWeights, Parts, QkNormTensors, QkvWeights,
    RopeFactorTensors, SharedWeights, Tensor,
};

/// The weights, or all that keeps the file from being used.
pub(crate) fn bind(
    file: &GgufFile,
    arch: &Architecture,
    hparams: &HParams,
    spec: &ModelSpec,
) -> Result<Parts, Vec<String>> {
    let (n_layers, n_tensors) = (spec.layers.len(), file.tensors.len());
    // To name all that a layer lacks would take time and memory for layers of which the file has nothing.
    if n_layers > n_tensors {
        return Err(vec![format!(
            "{n_layers} layers: expected a tensor for each at least, found {n_tensors} in all"
        )]);
    }
    let mut binder = Binder::new(file, arch, hparams);
    let parts = binder.model(spec);
    binder.require_all_taken(spec.layers.len());
    match parts {
        Some(parts) if binder.findings.is_empty() => Ok(parts),
        _ => Err(binder.findings),
    }
}

/// Checks the architecture's expectations against the file and hands tensors out by role.
struct Binder<'a> {
    file: &'a GgufFile,
    by_name: HashMap<&'a str, &'a TensorInfo>,
    /// Names of those that the forward pass has taken.
    taken: HashSet<&'a str>,
    n_attention: usize,
    n_latent: usize,
    n_recurrent: usize,
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
        findings.extend(file.tensors.iter().filter_map(unusable_type));
        Self {
            file,
            by_name: file.tensors.iter().map(|t| (t.name.as_str(), t)).collect(),
            taken: HashSet::new(),
            n_attention: 0,
            n_latent: 0,
            n_recurrent: 0,
            findings,
        }
    }

    /// What the forward pass leaves out (a bias, factors of weights) would change the result, but for layers behind
    /// the last, which predict further tokens.
    fn require_all_taken(&mut self, n_layer: usize) {
        if !self.findings.is_empty() {
            return;
        }
        let is_behind = |name: &str| layer_of(name).is_some_and(|l| l >= n_layer);
        let left = self
            .file
            .tensors
            .iter()
            .filter(|t| !self.taken.contains(t.name.as_str()) && !is_behind(&t.name));
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
        let tied = self.info(Role::Output, Part::Main, None).is_none();
        let output = if tied {
            token_embd.clone()
        } else {
            self.tensor(Role::Output, None)?
        };
        Some(Parts {
            token_embd,
            rope_factors: RopeFactorTensors {
                freqs: self.maybe_vector(Role::RopeFreqs, Part::Main, None)?,
                short: self.maybe_vector(Role::RopeFactorsShort, Part::Main, None)?,
                long: self.maybe_vector(Role::RopeFactorsLong, Part::Main, None)?,
            },
            layers,
            output_norm,
            output,
        })
    }

    fn layer(&mut self, i: usize, spec: &LayerSpec) -> Option<Layer> {
        let il = Some(i);
        Some(Layer {
            norm_in: self.norm(Role::AttnNorm, il, spec.norm_in)?,
            mixer: match spec.mixer {
                Mixer::Gqa(gqa) => MixerWeights::Gqa(self.gqa(il, gqa)?),
                Mixer::Mla(mla) => MixerWeights::Mla(self.mla(il, mla)?),
                Mixer::DeltaNet(net) => MixerWeights::DeltaNet(self.delta_net(il, net)?),
            },
            norm_mixed: self.maybe_norm(Role::PostAttnNorm, il, spec.norm_mixed)?,
            norm_mid: self.norm(spec.norm_mid_role, il, spec.norm_mid)?,
            ffn: match spec.ffn {
                Ffn::Dense(dense) => FfnWeights::Dense(self.dense(il, dense)?),
                Ffn::Moe(moe) => FfnWeights::Moe(self.moe(il, moe)?),
            },
            norm_out: self.maybe_norm(Role::PostFfnNorm, il, spec.norm_out)?,
        })
    }

    fn gqa(&mut self, il: Option<usize>, spec: Gqa) -> Option<GqaWeights> {
        let qkv = if spec.fused {
            QkvWeights::Fused(self.tensor(Role::AttnQkv, il)?)
        } else {
            QkvWeights::Apart {
                q: self.tensor(Role::AttnQ, il)?,
                k: self.tensor(Role::AttnK, il)?,
                v: self.tensor(Role::AttnV, il)?,
            }
        };
        let qk_norm = match spec.qk_norm {
            None => None,
            Some(norm) => self.qk_norm(il, spec, norm)?,
        };
        let sinks = if spec.sinks {
            Some(self.vector(Role::AttnSinks, il)?)
        } else {
            None
        };
        Some(GqaWeights {
            spec,
            kv_layer: self.next_attention(),
            qkv,
            output: self.tensor(Role::AttnOutput, il)?,
            qk_norm,
            sinks,
        })
    }

    #[expect(clippy::option_option, reason = "nothing found is not nothing wanted")]
    fn qk_norm(&mut self, il: Option<usize>, spec: Gqa, norm: QkNorm) -> Option<Option<QkNormTensors>> {
        let ones = |n_head: usize| NormWeights {
            eps: norm.norm.eps,
            weight: match norm.over {
                NormOver::Head => vec![1.0; spec.head_dim_k],
                NormOver::Heads => vec![1.0; n_head * spec.head_dim_k],
            },
        };
        let (q, k) = match norm.weights {
            QkNormWeights::Ones => (ones(spec.n_head), ones(spec.n_head_kv)),
            QkNormWeights::IfPresent
                if [Role::AttnQNorm, Role::AttnKNorm]
                    .iter()
                    .all(|role| self.info(*role, Part::Main, il).is_none()) =>
            {
                return Some(None);
            }
            QkNormWeights::IfPresent | QkNormWeights::Present => (
                self.norm(Role::AttnQNorm, il, norm.norm)?,
                self.norm(Role::AttnKNorm, il, norm.norm)?,
            ),
        };
        Some(Some(QkNormTensors {
            after_rope: norm.after_rope,
            q,
            k,
        }))
    }

    fn mla(&mut self, il: Option<usize>, spec: Mla) -> Option<MlaWeights> {
        let q = match spec.q_lora_rank {
            None => MlaQueryWeights::Direct(self.tensor(Role::AttnQ, il)?),
            Some(_) => MlaQueryWeights::Latent {
                a: self.tensor(Role::AttnQA, il)?,
                norm: self.norm(Role::AttnQANorm, il, spec.norm)?,
                b: self.tensor(Role::AttnQB, il)?,
            },
        };
        let name = |role: Role| role.gguf_name(il.unwrap_or(0));
        self.n_latent += 1;
        let kv = if spec.absorbed {
            // Some files have the same numbers in the other form too.
            let _ = self.info(Role::AttnKvB, Part::Main, il);
            MlaKvWeights::Absorbed {
                k_b: self.tensor(Role::AttnKB, il)?,
                v_b: self.tensor(Role::AttnVB, il)?,
                kv_b: name(Role::AttnKvB),
            }
        } else {
            MlaKvWeights::Expanded {
                kv_b: self.tensor(Role::AttnKvB, il)?,
                k_b: name(Role::AttnKB),
                v_b: name(Role::AttnVB),
            }
        };
        Some(MlaWeights {
            spec,
            kv_layer: self.next_attention(),
            latent_layer: self.n_latent - 1,
            q,
            kv_a: self.tensor(Role::AttnKvAMqa, il)?,
            kv_norm: self.norm(Role::AttnKvANorm, il, spec.norm)?,
            kv,
            output: self.tensor(Role::AttnOutput, il)?,
        })
    }

    fn delta_net(&mut self, il: Option<usize>, spec: DeltaNet) -> Option<DeltaNetWeights> {
        self.n_recurrent += 1;
        Some(DeltaNetWeights {
            spec,
            state_layer: self.n_recurrent - 1,
            qkv: self.tensor(Role::AttnQkv, il)?,
            gate: self.tensor(Role::AttnGate, il)?,
            beta_alpha: self.tensor(Role::SsmBetaAlpha, il)?,
            conv: self.vector(Role::SsmConv1d, il)?,
            a: self.vector(Role::SsmA, il)?,
            dt: self.vector(Role::SsmDt, il)?,
            norm: self.norm(Role::SsmNorm, il, spec.norm)?,
            output: self.tensor(Role::SsmOut, il)?,
        })
    }

    fn next_attention(&mut self) -> usize {
        self.n_attention += 1;
        self.n_attention - 1
    }

    fn dense(&mut self, il: Option<usize>, spec: Dense) -> Option<DenseWeights> {
        let gate = if spec.fused {
            None
        } else {
            Some(self.tensor(Role::FfnGate, il)?)
        };
        Some(DenseWeights {
            activation: spec.activation,
            n_ff: spec.n_ff,
            gate,
            up: self.tensor(Role::FfnUp, il)?,
            down: self.tensor(Role::FfnDown, il)?,
        })
    }

    fn moe(&mut self, il: Option<usize>, spec: Moe) -> Option<MoeWeights> {
        let shared = match spec.shared {
            None => None,
            Some(shared) => Some(SharedWeights {
                net: DenseWeights {
                    activation: spec.activation,
                    n_ff: shared.n_ff,
                    gate: Some(self.tensor(Role::FfnGateShexp, il)?),
                    up: self.tensor(Role::FfnUpShexp, il)?,
                    down: self.tensor(Role::FfnDownShexp, il)?,
                },
                gate: if shared.gated {
                    Some(self.tensor(Role::FfnGateInpShexp, il)?)
                } else {
                    None
                },
            }),
        };
        let selection_bias = self.maybe_vector(Role::ExpProbsB, Part::Main, il)?;
        Some(MoeWeights {
            spec,
            router: self.tensor(Role::FfnGateInp, il)?,
            selection_bias: (!selection_bias.is_empty()).then_some(selection_bias),
            gate: self.tensor(Role::FfnGateExps, il)?,
            up: self.tensor(Role::FfnUpExps, il)?,
            down: self.tensor(Role::FfnDownExps, il)?,
            shared,
        })
    }

    /// The tensor of a role, if the file has it.
    fn info(&mut self, role: Role, part: Part, layer: Option<usize>) -> Option<&'a TensorInfo> {
        let name = role.part_name(part, layer.unwrap_or(0));
        let info = *self.by_name.get(name.as_str())?;
        self.taken.insert(&info.name);
        Some(info)
    }

    /// A matrix or stack of these with what goes with it. Absence was reported if it matters; a description that
    /// does not list what its own layers use is reported here.
    fn tensor(&mut self, role: Role, layer: Option<usize>) -> Option<Tensor> {
        let Some(info) = self.info(role, Part::Main, layer) else {
            return self.absent(role, layer);
        };
        let range = self.file.tensor_range(info);
        let mut tensor = Tensor {
            name: info.name.clone(),
            format: info.format()?,
            part: info.part,
            range: usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?,
            n_cols: usize::try_from(info.shape.n_cols()).ok()?,
            n_rows: usize::try_from(info.shape.dim(1)).ok()?,
            n_mats: usize::try_from(info.shape.dim(2)).ok()?,
            factors: self.maybe_vector(role, Part::Scale, layer)?,
            bias: self.maybe_vector(role, Part::Bias, layer)?,
        };
        // It scales inputs of 4 bits, which are not used here.
        let _ = self.info(role, Part::InputScale, layer);
        if tensor.factors.len() == 1 {
            tensor.factors = vec![tensor.factors[0]; tensor.n_mats];
        }
        let expect = |found: usize, expected: usize, part: Part| {
            (found != 0 && found != expected).then(|| {
                let name = role.part_name(part, layer.unwrap_or(0));
                format!("tensor `{name}`: expected {expected} elements, found {found}")
            })
        };
        let findings = [
            expect(tensor.factors.len(), tensor.n_mats, Part::Scale),
            expect(
                tensor.bias.len(),
                tensor.n_mats.saturating_mul(tensor.n_rows),
                Part::Bias,
            ),
        ];
        let before = self.findings.len();
        self.findings.extend(findings.into_iter().flatten());
        (self.findings.len() == before).then_some(tensor)
    }

    fn absent<T>(&mut self, role: Role, layer: Option<usize>) -> Option<T> {
        if self.findings.is_empty() {
            let name = role.gguf_name(layer.unwrap_or(0));
            self.findings.push(format!(
                "tensor `{name}`: needed by the forward pass, found nothing"
            ));
        }
        None
    }

    fn norm(&mut self, role: Role, layer: Option<usize>, spec: Norm) -> Option<NormWeights> {
        let weight = self.vector(role, layer)?;
        Some(NormWeights {
            eps: spec.eps,
            weight,
        })
    }

    #[expect(clippy::option_option, reason = "nothing found is not nothing wanted")]
    fn maybe_norm(
        &mut self,
        role: Role,
        layer: Option<usize>,
        spec: Option<Norm>,
    ) -> Option<Option<NormWeights>> {
        match spec {
            None => Some(None),
            Some(spec) => self.norm(role, layer, spec).map(Some),
        }
    }

    /// All values of a small tensor that must be there.
    fn vector(&mut self, role: Role, layer: Option<usize>) -> Option<Vec<f32>> {
        let values = self.maybe_vector(role, Part::Main, layer)?;
        if values.is_empty() {
            return self.absent(role, layer);
        }
        Some(values)
    }

    /// All values of a small tensor; none where the file has no such tensor.
    fn maybe_vector(&mut self, role: Role, part: Part, layer: Option<usize>) -> Option<Vec<f32>> {
        // Roles that are no weights have no other parts.
        if part != Part::Main && role.part_name(part, 0) == role.gguf_name(0) {
            return Some(Vec::new());
        }
        let Some(info) = self.info(role, part, layer) else {
            return Some(Vec::new());
        };
        let n_elems = usize::try_from(info.shape.n_elems()).ok()?;
        let n_cols = usize::try_from(info.shape.n_cols()).ok()?;
        if !self.findings.is_empty() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(info.n_bytes).ok()?];
        if let Err(e) = self.file.read_tensor(info, 0, &mut bytes) {
            self.findings.push(format!("tensor `{}`: {e}", info.name));
            return None;
        }
        let mut values = vec![0.0; n_elems];
        info.format()?.decode_rows(n_cols, &bytes, &mut values)?;
        Some(values)
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
    if format.decode.is_none() || !format.holds_weights() {
        return Some(format!(
            "tensor `{name}`: expected a type of weights, found `{}`",
            format.name
        ));
    }
    let (n_cols, n_rows) = (t.shape.n_cols(), t.shape.n_rows());
    if format.geometry.tensor_bytes(n_cols, n_rows) != Some(t.n_bytes) {
        let (elems, rows) = (format.geometry.block_elems, format.geometry.interleave);
        return Some(format!(
            "tensor `{name}`: expected rows of whole blocks of {elems} in groups of {rows}, found {n_rows} rows of \
             {n_cols} elements"
        ));
    }
    None
}
