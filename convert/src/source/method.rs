//! How a checkpoint says that its weights are quantized.
//!
//! The settings tell the method and what tensors do not show: block sizes, bits, groups. Which weights are quantized is
//! decided by the tensors, as lists of exceptions in settings are often wrong.

use std::path::Path;

use gguf_models::hf;
use serde_json::Value as Json;

use super::files::read_json_if_there;
use crate::Result;
use crate::error::Error;

/// Where settings stand: file, key inside it (none: the whole file), and the method where they name none.
const PLACES: &[(&str, Option<&str>, Option<&str>)] = &[
    (CONFIG, Some("quantization_config"), None),
    (CONFIG, Some("text_config.quantization_config"), None),
    (CONFIG, Some("compression_config"), Some("compressed-tensors")),
    ("hf_quant_config.json", Some("quantization"), Some("modelopt")),
    ("params.json", Some("quantization"), Some("mistral")),
    ("quantize_config.json", None, Some("gptq")),
    ("quant_config.json", None, Some("awq")),
];

const CONFIG: &str = "config.json";

/// Settings of a method.
type Reader = fn(&Settings<'_>) -> Result<Form>;

/// The methods that are read.
const METHODS: &[(&str, Reader)] = &[
    ("fp8", fp8),
    ("fbgemm_fp8", fp8),
    ("mistral", mistral),
    ("compressed-tensors", compressed_tensors),
    ("mxfp4", |_| Ok(Form::Mxfp4)),
    ("modelopt", modelopt),
    ("gptq", gptq),
    ("awq", awq),
    ("bitnet", |_| Ok(Form::BitNet)),
];

/// Different schemes of one checkpoint, each of which is tried on each weight. Those in use have three.
const MAX_SCHEMES: usize = 64;

/// A method with what only its settings tell.
#[derive(Clone, Debug)]
pub(crate) struct Method {
    /// The file and key of the settings.
    pub(super) place: String,
    /// Its name.
    pub(super) name: String,
    pub(super) form: Form,
}

/// What only settings tell.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// Floats of 8 bits; with `[rows, columns]` of a block, or one scale a row or tensor.
    Fp8 { block: Option<[u64; 2]> },
    /// Schemes of which each quantized weight has one.
    Compressed(Vec<Scheme>),
    /// Blocks of 32 four-bit floats.
    Mxfp4,
    /// `ModelOpt`: four-bit floats, and 8-bit floats beside them.
    ModelOpt,
    /// Words of codes along the inputs.
    Gptq {
        bits: u32,
        /// Inputs of a group; none: all.
        group: Option<u64>,
        /// Added to stored zero points.
        zero_offset: u8,
    },
    /// Words of codes along the outputs.
    Awq {
        /// Inputs of a group; none: all.
        group: Option<u64>,
    },
    /// Ternary codes.
    BitNet,
}

/// A group of `compressed-tensors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheme {
    pub(super) bits: u32,
    pub(super) symmetric: bool,
    pub(super) strategy: Strategy,
}

/// What shares a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    Tensor,
    /// A row.
    Channel,
    /// So many elements of a row.
    Group(u64),
    /// Rows and columns.
    Block([u64; 2]),
}

/// Settings with their place, for messages.
struct Settings<'a> {
    place: String,
    json: &'a Json,
}

impl Method {
    /// The method that a checkpoint's settings name.
    ///
    /// # Errors
    /// Methods that are not read, and settings that have not the form of their method.
    pub(crate) fn find(dir: &Path, config: &Json) -> Result<Option<Self>> {
        for &(file, key, default) in PLACES {
            let other;
            let json = if file == CONFIG {
                config
            } else {
                let Some(json) = read_json_if_there::<Json>(&dir.join(file))? else {
                    continue;
                };
                other = json;
                &other
            };
            let found = key.map_or(Some(json), |key| hf::lookup(json, key));
            if let Some(json) = found {
                let place = key.map_or(format!("{file}:"), |key| format!("{file} `{key}`:"));
                return Self::of(&Settings { place, json }, default).map(Some);
            }
        }
        Ok(None)
    }

    fn of(settings: &Settings<'_>, default: Option<&str>) -> Result<Self> {
        let text = |key: &str| settings.json[key].as_str().filter(|s| !s.is_empty());
        let name = text("quant_method")
            .or(default)
            .or(text("quant_algo").map(|_| "modelopt"))
            .unwrap_or("unknown");
        // `modelopt_fp4` and its like say no more than the settings do.
        let plain = if name.starts_with("modelopt") {
            "modelopt"
        } else {
            name
        };
        let Some((_, reader)) = METHODS.iter().find(|(n, _)| n.eq_ignore_ascii_case(plain)) else {
            return Err(settings.unsupported(&format!("method `{name}`")));
        };
        let form = reader(settings)?;
        Ok(Self {
            place: settings.place.trim_end_matches(':').to_owned(),
            name: name.to_owned(),
            form,
        })
    }
}

impl Settings<'_> {
    fn unsupported(&self, what: &str) -> Error {
        let known: Vec<_> = METHODS.iter().map(|(name, _)| format!("`{name}`")).collect();
        let hint = format!(
            "take the checkpoint with unquantized weights, or one of {}",
            known.join(", ")
        );
        Error::unsupported(format!("{} {what}", self.place), hint)
    }

    fn wrong(&self, key: &str, expected: &str, found: &Json) -> Error {
        Error::mismatch(format!("{} `{key}`", self.place), expected, found)
    }

    /// A whole number above zero; `None` if it is absent.
    fn size(&self, json: &Json, key: &str) -> Result<Option<u64>> {
        let Some(value) = hf::lookup(json, key) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(n @ 1..) => Ok(Some(n)),
            _ => Err(self.wrong(key, "a whole number above 0", value)),
        }
    }

    /// The elements of a group, where -1 stands for all.
    fn group(&self, json: &Json, key: &str) -> Result<Option<u64>> {
        if json[key].as_i64() == Some(-1) {
            return Ok(None);
        }
        self.size(json, key)
    }

    /// Bits of a code.
    fn bits(&self, json: &Json, key: &str, known: &[u64]) -> Result<u32> {
        match self.size(json, key)? {
            Some(bits) if known.contains(&bits) => Ok(bits as u32),
            _ => {
                let list: Vec<_> = known.iter().map(u64::to_string).collect();
                Err(self.wrong(key, &format!("one of {}", list.join(", ")), &json[key]))
            }
        }
    }

    /// Rows and columns of a block.
    fn block(&self, json: &Json, key: &str) -> Result<Option<[u64; 2]>> {
        let Some(value) = hf::lookup(json, key) else {
            return Ok(None);
        };
        let sizes = value.as_array().map(|v| {
            v.iter()
                .map(|n| n.as_u64().filter(|n| *n > 0))
                .collect::<Vec<_>>()
        });
        match sizes.as_deref() {
            Some(&[Some(rows), Some(cols)]) => Ok(Some([rows, cols])),
            _ => Err(self.wrong(key, "two whole numbers above 0", value)),
        }
    }
}

fn fp8(settings: &Settings<'_>) -> Result<Form> {
    Ok(Form::Fp8 {
        block: settings.block(settings.json, "weight_block_size")?,
    })
}

fn mistral(settings: &Settings<'_>) -> Result<Form> {
    match settings.json["qformat_weight"].as_str() {
        Some("fp8_e4m3") => Ok(Form::Fp8 { block: None }),
        _ => Err(settings.unsupported(&format!("`qformat_weight` {}", settings.json["qformat_weight"]))),
    }
}

fn modelopt(settings: &Settings<'_>) -> Result<Form> {
    const ALGORITHMS: &[&str] = &[
        "NVFP4",
        "W4A16_NVFP4",
        "FP8",
        "FP8_PER_CHANNEL_PER_TOKEN",
        "MIXED_PRECISION",
    ];
    let algorithm = settings.json["quant_algo"].as_str().unwrap_or("unknown");
    if !ALGORITHMS.contains(&algorithm) {
        return Err(settings.unsupported(&format!("`quant_algo` `{algorithm}`")));
    }
    Ok(Form::ModelOpt)
}

fn compressed_tensors(settings: &Settings<'_>) -> Result<Form> {
    const FORMATS: &[&str] = &[
        "dense",
        "float-quantized",
        "int-quantized",
        "naive-quantized",
        "pack-quantized",
        "nvfp4-pack-quantized",
        "mixed-precision",
    ];
    let json = settings.json;
    let sparse = hf::lookup(json, "sparsity_config.format").and_then(Json::as_str);
    if let Some(sparse) = sparse.filter(|s| *s != "dense") {
        return Err(settings.unsupported(&format!("`sparsity_config` format `{sparse}`")));
    }
    let groups = json["config_groups"].as_object();
    let of_groups = groups
        .into_iter()
        .flatten()
        .filter_map(|(_, group)| group["format"].as_str());
    for format in json["format"].as_str().into_iter().chain(of_groups) {
        if !FORMATS.contains(&format) {
            return Err(settings.unsupported(&format!("`format` `{format}`")));
        }
    }
    let mut schemes: Vec<Scheme> = Vec::new();
    for (_, group) in groups.into_iter().flatten() {
        let weights = &group["weights"];
        let is_packed = [group, json].iter().any(|of| of["format"] == "pack-quantized");
        if is_packed && weights["type"] == "float" {
            return Err(settings.unsupported("`type` `float` of packed weights"));
        }
        if weights.is_object() {
            let scheme = scheme(settings, weights)?;
            if !schemes.contains(&scheme) {
                schemes.push(scheme);
            }
        }
        if schemes.len() > MAX_SCHEMES {
            let expected = format!("at most {MAX_SCHEMES} different schemes");
            let found = format!("more, in {} groups", groups.map_or(0, serde_json::Map::len));
            return Err(Error::mismatch(
                format!("{} `config_groups`", settings.place),
                expected,
                found,
            ));
        }
    }
    Ok(Form::Compressed(schemes))
}

fn scheme(settings: &Settings<'_>, weights: &Json) -> Result<Scheme> {
    let strategy = match weights["strategy"].as_str() {
        Some("channel") => Strategy::Channel,
        Some("block") => {
            let block = settings.block(weights, "block_structure")?;
            Strategy::Block(block.ok_or_else(|| {
                settings.wrong("block_structure", "rows and columns of a block", &Json::Null)
            })?)
        }
        Some("group" | "tensor_group") => group_of(settings, weights)?,
        // Older settings leave the strategy to the group size.
        None if weights["group_size"].is_u64() => group_of(settings, weights)?,
        None if weights["group_size"].as_i64() == Some(-1) => Strategy::Channel,
        Some("tensor") | None => Strategy::Tensor,
        Some(other) => return Err(settings.unsupported(&format!("`strategy` `{other}`"))),
    };
    Ok(Scheme {
        bits: settings.bits(weights, "num_bits", &[2, 4, 8])?,
        symmetric: weights["symmetric"].as_bool().unwrap_or(true),
        strategy,
    })
}

fn group_of(settings: &Settings<'_>, weights: &Json) -> Result<Strategy> {
    let size = settings.size(weights, "group_size")?;
    let size = size.ok_or_else(|| settings.wrong("group_size", "the elements of a group", &Json::Null))?;
    Ok(Strategy::Group(size))
}

fn gptq(settings: &Settings<'_>) -> Result<Form> {
    let json = settings.json;
    let zero_offset = match json["checkpoint_format"].as_str() {
        None | Some("gptq") => 1,
        Some("gptq_v2") => 0,
        Some(other) => return Err(settings.unsupported(&format!("`checkpoint_format` `{other}`"))),
    };
    Ok(Form::Gptq {
        bits: settings.bits(json, "bits", &[2, 4, 8])?,
        group: settings.group(json, "group_size")?,
        zero_offset,
    })
}

fn awq(settings: &Settings<'_>) -> Result<Form> {
    let json = settings.json;
    // Older files have other names for the same settings.
    let key = |new: &'static str, old: &'static str| if json[old].is_null() { new } else { old };
    settings.bits(json, key("bits", "w_bit"), &[4])?;
    if let Some(version) = json["version"]
        .as_str()
        .filter(|v| !v.eq_ignore_ascii_case("gemm"))
    {
        return Err(settings.unsupported(&format!("`version` `{version}`")));
    }
    Ok(Form::Awq {
        group: settings.group(json, key("group_size", "q_group_size"))?,
    })
}
