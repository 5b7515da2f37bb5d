//! Qwen3-MoE computed in f64 from its definition, token after token, without a cache.

use std::collections::HashMap;

use gguf_runtime::Model;

type Vector = Vec<f64>;

/// A model's weights in f64 and what else its definition needs.
pub(crate) struct Naive {
    weights: HashMap<String, Vector>,
    n_layer: usize,
    n_embd: usize,
    n_head: usize,
    n_head_kv: usize,
    head_dim: usize,
    n_expert: usize,
    n_used: usize,
    eps: f64,
    /// Angle between two positions, for each pair of elements.
    pub(crate) frequencies: Vector,
}

fn product(w: &[f64], x: &[f64]) -> Vector {
    w.chunks(x.len())
        .map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum())
        .collect()
}

fn add(h: &mut [f64], y: &[f64], factor: f64) {
    for (h, y) in h.iter_mut().zip(y) {
        *h += y * factor;
    }
}

fn softmax(x: &[f64]) -> Vector {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = x.iter().map(|v| (v - max).exp()).sum();
    x.iter().map(|v| (v - max).exp() / sum).collect()
}

impl Naive {
    pub(crate) fn new(model: &Model) -> Self {
        let (h, file) = (model.hparams(), model.file());
        let weights = file.tensors.iter().map(|t| {
            let mut values = vec![0f32; t.shape.n_elems() as usize];
            t.format().unwrap().decode.unwrap()(&file.tensor_bytes(t).unwrap(), &mut values);
            (t.name.clone(), values.into_iter().map(f64::from).collect())
        });
        let half = h.head_dim_k / 2;
        let frequency = |i: usize| f64::from(h.rope_base).powf(-(i as f64) / half as f64);
        Self {
            weights: weights.collect(),
            n_layer: h.n_layer,
            n_embd: h.n_embd,
            n_head: h.n_head,
            n_head_kv: h.n_head_kv,
            head_dim: h.head_dim_k,
            n_expert: h.n_expert,
            n_used: h.n_expert_used,
            eps: f64::from(h.rms_eps),
            frequencies: (0..half).map(frequency).collect(),
        }
    }

    fn whole(&self, name: &str) -> &Vector {
        let tied = &self.weights["token_embd.weight"];
        self.weights.get(&format!("{name}.weight")).unwrap_or(tied)
    }

    fn weight(&self, layer: usize, name: &str) -> &Vector {
        &self.weights[&format!("blk.{layer}.{name}.weight")]
    }

    fn norm(&self, x: &[f64], w: &[f64]) -> Vector {
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        x.iter()
            .zip(w)
            .map(|(v, w)| v / (mean + self.eps).sqrt() * w)
            .collect()
    }

    fn rotate(&self, head: &mut [f64], pos: usize) {
        let half = head.len() / 2;
        for (i, frequency) in self.frequencies.iter().enumerate() {
            let (x, y, angle) = (head[i], head[i + half], pos as f64 * frequency);
            head[i] = x * angle.cos() - y * angle.sin();
            head[i + half] = x * angle.sin() + y * angle.cos();
        }
    }

    fn heads(&self, layer: usize, which: &str, x: &[f64], pos: usize) -> Vec<Vector> {
        let all = product(self.weight(layer, &format!("attn_{which}")), x);
        let prepare = |h: &[f64]| {
            let mut h = self.norm(h, self.weight(layer, &format!("attn_{which}_norm")));
            self.rotate(&mut h, pos);
            h
        };
        all.chunks(self.head_dim).map(prepare).collect()
    }

    fn attention(&self, layer: usize, rows: &[Vector]) -> Vec<Vector> {
        let inputs: Vec<Vector> = rows
            .iter()
            .map(|h| self.norm(h, self.weight(layer, "attn_norm")))
            .collect();
        let k: Vec<_> = inputs
            .iter()
            .enumerate()
            .map(|(t, x)| self.heads(layer, "k", x, t))
            .collect();
        let v: Vec<Vector> = inputs
            .iter()
            .map(|x| product(self.weight(layer, "attn_v"), x))
            .collect();
        let mixed = inputs.iter().enumerate().map(|(t, x)| {
            let mut out = Vector::new();
            for (h, q) in self.heads(layer, "q", x, t).iter().enumerate() {
                let kv = h / (self.n_head / self.n_head_kv);
                let score = |s: usize| product(&k[s][kv], q)[0] / (self.head_dim as f64).sqrt();
                let p = softmax(&(0..=t).map(score).collect::<Vec<_>>());
                let value = |d: usize| {
                    p.iter()
                        .zip(&v)
                        .map(|(p, v)| p * v[kv * self.head_dim + d])
                        .sum::<f64>()
                };
                out.extend((0..self.head_dim).map(value));
            }
            product(self.weight(layer, "attn_output"), &out)
        });
        mixed.collect()
    }

    fn experts(&self, layer: usize, h: &[f64]) -> Vector {
        let x = self.norm(h, self.weight(layer, "ffn_norm"));
        let p = softmax(&product(self.weight(layer, "ffn_gate_inp"), &x));
        let mut order: Vec<usize> = (0..self.n_expert).collect();
        order.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
        let chosen = &order[..self.n_used];
        let sum: f64 = chosen.iter().map(|&e| p[e]).sum();
        let mut out = vec![0.0; self.n_embd];
        for &e in chosen {
            let part = |name: &str| {
                let all = self.weight(layer, name);
                let n = all.len() / self.n_expert;
                &all[e * n..][..n]
            };
            let (gate, up) = (
                product(part("ffn_gate_exps"), &x),
                product(part("ffn_up_exps"), &x),
            );
            let act: Vector = gate
                .iter()
                .zip(up)
                .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
                .collect();
            add(&mut out, &product(part("ffn_down_exps"), &act), p[e] / sum);
        }
        out
    }

    /// Logits behind every token, row after row.
    pub(crate) fn logits(&self, tokens: &[u32]) -> Vec<f32> {
        let embd = self.whole("token_embd");
        let embed = |&t: &u32| embd[t as usize * self.n_embd..][..self.n_embd].to_vec();
        let mut rows: Vec<Vector> = tokens.iter().map(embed).collect();
        for layer in 0..self.n_layer {
            let mixed = self.attention(layer, &rows);
            for (h, y) in rows.iter_mut().zip(mixed) {
                add(h, &y, 1.0);
                let y = self.experts(layer, h);
                add(h, &y, 1.0);
            }
        }
        let output = |h: &Vector| product(self.whole("output"), &self.norm(h, self.whole("output_norm")));
        rows.iter().flat_map(output).map(|l| l as f32).collect()
    }
}
