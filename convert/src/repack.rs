//! Quantized forms that are kept: rows put into the GGUF type that holds the same values.

use gguf::Shape;
use gguf_blocks::Format;
use gguf_models::file_type::{self, FileType};
use gguf_models::{Component, Part};
use rayon::prelude::*;

use crate::Result;
use crate::map::Output;
use crate::source::{Stored, Weights};
use crate::view::{Files, View};

/// Which forms are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// None: everything is decoded.
    Nothing,
    /// Those of floating point, whose types hold every value: MXFP4 and NVFP4.
    Floats,
    /// All, integers too where the type holds their scales.
    All,
}

/// Types that are file types of their own when a checkpoint is kept in them, and those.
const FLOATS: [(&str, &str); 2] = [("MXFP4", "MXFP4_MOE"), ("NVFP4", "NVFP4")];

/// The largest distance from 1 of a factor that changes nothing, as the reference has it.
const NEUTRAL: f32 = 1e-6;

/// What gives a factor of a stored matrix.
type FactorOf = fn(&Stored) -> Option<Stored>;

/// Factors that blocks do not hold.
const FACTORS: [(Part, FactorOf); 2] = [
    (Part::Scale, Stored::factor),
    (Part::InputScale, Stored::input_factor),
];

impl Keep {
    fn takes(self, format: &Format) -> bool {
        match self {
            Self::Nothing => false,
            Self::Floats => FLOATS.iter().any(|(name, _)| *name == format.name),
            Self::All => true,
        }
    }

    /// The file type of a checkpoint in a form of floating point that is kept.
    pub(crate) fn file_type(self, weights: &Weights) -> Option<&'static FileType> {
        let formats = weights.tensors.iter().filter_map(|t| t.matrix(0).repack());
        let mut names = formats.filter(|f| self.takes(f)).map(|f| f.name);
        names.find_map(|name| {
            let (_, of_file) = FLOATS.iter().find(|(n, _)| *n == name)?;
            file_type::by_name(of_file)
        })
    }

    /// The tensors of the output, those in front that stay in a quantized form, each with its factors behind it.
    ///
    /// # Errors
    /// A failed read of scales.
    pub(crate) fn apply(
        self,
        outputs: Vec<Output>,
        files: &Files,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Output>> {
        if self == Self::Nothing {
            return Ok(outputs);
        }
        let (mut kept, mut rest) = (Vec::new(), Vec::new());
        for output in outputs {
            let format = repack(&output).filter(|f| self.takes(f));
            let Some(format) = format else {
                rest.push(output);
                continue;
            };
            let misfits = misfits(&output, files)?;
            let mut parts = Vec::new();
            for (part, of) in FACTORS {
                parts.push(factors(&output, part, of, files)?);
            }
            let reason = if misfits > 0 {
                Some(format!(
                    "{misfits} of its scales do not fit the F16 of {}",
                    format.name
                ))
            } else if parts.iter().any(Option::is_none) {
                Some(format!(
                    "its parts have scales of their own, {} has one for all",
                    format.name
                ))
            } else {
                None
            };
            if let Some(reason) = reason {
                notes.push(format!("tensor `{}` is decoded: {reason}", output.name));
                rest.push(output);
                continue;
            }
            kept.push(Output {
                views: output.views.into_iter().map(View::repacked).collect(),
                ..output
            });
            kept.extend(parts.into_iter().flatten().flatten());
        }
        kept.extend(rest);
        Ok(kept)
    }
}

/// The type that all rows of a tensor can be put into without a change of any value.
fn repack(output: &Output) -> Option<&'static Format> {
    let mut formats = output.views.iter().map(View::repack);
    let first = formats.next()??;
    let alike = formats.all(|f| f.is_some_and(|f| f.id == first.id));
    (alike && !output.stays_f32()).then_some(first)
}

fn misfits(output: &Output, files: &Files) -> Result<u64> {
    let of = |view: &View| view.stored.misfits(files);
    output.views.par_iter().map(of).sum()
}

/// The factors of a tensor, one number or one for each expert: no tensor if they change nothing, `None` if the parts
/// that one number is for differ.
fn factors(output: &Output, part: Part, of: FactorOf, files: &Files) -> Result<Option<Vec<Output>>> {
    let value = |view: &View| of(&view.stored).map_or(Ok(1.0), |factor| factor.value(files));
    let values: Vec<f32> = output.views.par_iter().map(value).collect::<Result<_>>()?;
    if values.iter().all(|v| (v - 1.0).abs() <= NEUTRAL) {
        return Ok(Some(Vec::new()));
    }
    let n = match Component::of(&output.name) {
        Component::Experts => output.shape.dim(2),
        _ => 1,
    };
    // A matrix may be made of several views.
    let of_each = values.chunks((values.len() as u64 / n.max(1)).max(1) as usize);
    let same = |values: &[f32]| values.iter().all(|v| *v == values[0]).then_some(values[0]);
    let Some(values) = of_each.map(same).collect::<Option<Vec<f32>>>() else {
        return Ok(None);
    };
    let layer = gguf_models::Role::parse(&output.name).and_then(|(.., layer)| layer);
    Ok(Some(vec![Output {
        role: output.role,
        part,
        name: output.role.part_name(part, layer.unwrap_or(0)),
        shape: Shape::new(&[values.len() as u64]).expect("one dimension"),
        views: vec![View::whole(Stored::computed(values))],
    }]))
}
