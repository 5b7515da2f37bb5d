//! The errors that `gguf-quantize --report` wrote.

use std::collections::HashMap;
use std::path::Path;

use gguf::{GgufFile, TensorInfo, short};
use gguf_cli::{Failure, Result, read_text};
use serde::Deserialize;

use super::model::{Cell, Grid};

/// The file, of which only what the page shows is read.
#[derive(Deserialize)]
struct Written {
    outputs: Vec<Output>,
}

#[derive(Deserialize)]
struct Output {
    file_type: String,
    tensors: Vec<Tensor>,
}

#[derive(Deserialize)]
struct Tensor {
    name: String,
    #[serde(rename = "type")]
    type_name: String,
    sampled_rows: u64,
    weighted_error: f64,
    error: f64,
}

/// What was lost in each tensor of one output.
pub(super) struct Losses(Vec<Tensor>);

impl Losses {
    /// Reads the losses of the output that `model` is: of several the one of its file type.
    pub(super) fn read(path: &Path, model: &GgufFile, file_type: Option<&str>) -> Result<Self> {
        let refuse = |what: String| Failure::Input(format!("`{}`: {what}", path.display()));
        let written: Written = serde_json::from_str(&read_text(path)?).map_err(|e| {
            refuse(format!(
                "expected what `gguf-quantize --report` writes, found something else: {e}"
            ))
        })?;
        let mut outputs = written.outputs;
        if outputs.len() > 1 {
            outputs.retain(|o| Some(o.file_type.as_str()) == file_type);
        }
        let Some(Output { tensors, .. }) = outputs.pop() else {
            return Err(refuse(format!(
                "expected errors of an output of file type `{}`, found none",
                file_type.unwrap_or("unknown")
            )));
        };
        for loss in &tensors {
            let found = model.tensor(&loss.name).map(TensorInfo::type_name);
            // It may be in a shard that is not there.
            if found.is_none() && !model.is_complete() {
                continue;
            }
            if found.as_ref() != Some(&loss.type_name) {
                return Err(refuse(format!(
                    "these are errors of another model: expected tensor `{}` of type {}, found {} in `{}`",
                    short(&loss.name),
                    short(&loss.type_name),
                    found.as_deref().unwrap_or("no such tensor"),
                    model.path().display()
                )));
            }
        }
        Ok(Self(tensors))
    }

    /// Weighted errors of the tensors inside layers, as roots: shares of the weights' root mean square.
    pub(super) fn grid(&self) -> Grid {
        let by_name: HashMap<&str, &Tensor> = self.0.iter().map(|t| (t.name.as_str(), t)).collect();
        Grid::of(self.0.iter().map(|t| t.name.as_str()), |name| {
            let t = by_name.get(name)?;
            let value = t.weighted_error.max(0.0).sqrt();
            Some(Cell {
                value,
                text: format!("{:.2} %", value * 100.0),
                title: format!(
                    "{name}: {}, {:.2} % without weights, {} rows sampled",
                    t.type_name,
                    t.error.max(0.0).sqrt() * 100.0,
                    t.sampled_rows
                ),
            })
        })
    }
}
