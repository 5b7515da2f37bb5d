//! Quantized forms that are kept: rows put into the GGUF type that holds the same values.

use gguf::Shape;
use gguf_blocks::Format;
use gguf_models::Part;
use gguf_models::file_type::{self, FileType};
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
            if misfits > 0 {
                notes.push(format!(
                    "tensor `{}` is decoded: {misfits} of its scales do not fit the F16 of {}",
                    output.name, format.name
                ));
                rest.push(output);
                continue;
            }
            let scale = factors(&output, Part::Scale, &Stored::factor, files)?;
            let input_scale = factors(&output, Part::InputScale, &Stored::input_factor, files)?;
            kept.push(Output {
                views: output.views.into_iter().map(View::repacked).collect(),
                ..output
            });
            kept.extend(scale);
            kept.extend(input_scale);
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

/// One factor for each matrix of a tensor; `None` if they change nothing.
fn factors(
    output: &Output,
    part: Part,
    of: &(dyn Fn(&Stored) -> Option<Stored> + Sync),
    files: &Files,
) -> Result<Option<Output>> {
    let value = |view: &View| of(&view.stored).map_or(Ok(1.0), |factor| factor.value(files));
    let values: Vec<f32> = output.views.par_iter().map(value).collect::<Result<_>>()?;
    if values.iter().all(|v| (v - 1.0).abs() <= NEUTRAL) {
        return Ok(None);
    }
    let n = values.len() as u64;
    let layer = gguf_models::Role::parse(&output.name).and_then(|(.., layer)| layer);
    Ok(Some(Output {
        role: output.role,
        part,
        name: output.role.part_name(part, layer.unwrap_or(0)),
        shape: Shape::new(&[n]).expect("one dimension"),
        views: vec![View::whole(Stored::computed(values))],
    }))
}
