//! Computes every offset of a file before a byte of it is written.

use std::collections::HashSet;

use gguf_blocks::TypeId;

use crate::pairs::Pairs;
use crate::{Error, Metadata, Result, Shape, TensorInfo, Value, encode, key, limits};

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name, at most 63 bytes.
    pub name: String,
    /// Dimensions, row length first.
    pub shape: Shape,
    /// Type number.
    pub type_id: TypeId,
    /// Bytes of data, needed only of a type that this build does not know: such a tensor can be copied.
    pub n_bytes: Option<u64>,
}

impl TensorSpec {
    /// A tensor of a type this build knows.
    pub fn new(name: impl Into<String>, shape: Shape, type_id: TypeId) -> Self {
        Self {
            name: name.into(),
            shape,
            type_id,
            n_bytes: None,
        }
    }
}

/// A whole file's plan: version 3, little-endian.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Everything up to the data section: header, metadata, tensor list, padding.
    pub head: Vec<u8>,
    /// The tensors with offsets and sizes.
    pub tensors: Vec<TensorInfo>,
    /// Alignment of tensor data in bytes.
    pub alignment: u64,
    /// Bytes of the whole file.
    pub total_bytes: u64,
}

impl Layout {
    /// Lays a file out. Refuses duplicate or overlong names, types of unknown size and rows that are not whole
    /// blocks. The alignment is the metadata's `general.alignment`, else 32.
    pub fn plan(metadata: &Metadata, tensors: Vec<TensorSpec>) -> Result<Self> {
        let alignment = alignment(metadata)?;
        Self::with_pairs(&Pairs::encode(metadata), alignment, tensors)
    }

    /// As [`Layout::plan`], with pairs that are encoded already and an alignment that is known to be sound.
    pub(crate) fn with_pairs(pairs: &Pairs, alignment: u64, tensors: Vec<TensorSpec>) -> Result<Self> {
        pairs.check_keys()?;
        let (tensors, data_bytes) = place(tensors, alignment)?;
        let mut list = Vec::new();
        for tensor in &tensors {
            encode_tensor(&mut list, tensor);
        }
        let mut head = pairs.head(3, tensors.len() as u64, &list, alignment);
        let padded = usize::try_from(alignment).expect("at most MAX_ALIGNMENT");
        head.resize(head.len().next_multiple_of(padded), 0);
        let total_bytes = data_bytes
            .checked_add(head.len() as u64)
            .ok_or_else(|| refuse("the file's size overflows: expected below 2^64 bytes"))?;
        Ok(Self {
            head,
            tensors,
            alignment,
            total_bytes,
        })
    }

    /// Bytes of padding behind `tensor`'s data.
    pub fn padding(&self, tensor: &TensorInfo) -> u64 {
        tensor.n_bytes.next_multiple_of(self.alignment) - tensor.n_bytes
    }
}

fn refuse(what: impl Into<Box<str>>) -> Error {
    Error::Output(what.into())
}

pub(crate) fn alignment(metadata: &Metadata) -> Result<u64> {
    let Some(value) = metadata.get(key::ALIGNMENT) else {
        return Ok(limits::DEFAULT_ALIGNMENT);
    };
    match *value {
        Value::U32(n) if n.is_power_of_two() && u64::from(n) <= limits::MAX_ALIGNMENT => Ok(n.into()),
        _ => Err(Error::Key {
            key: key::ALIGNMENT.into(),
            expected: format!("a power of two up to {} as u32", limits::MAX_ALIGNMENT).into(),
            found: value
                .to_uint()
                .map_or_else(|| value.type_name(), |n| format!("{} {n}", value.type_name()))
                .into(),
        }),
    }
}

/// Gives each tensor its offset: the sum of the padded sizes before it. Returns also that sum for all.
fn place(specs: Vec<TensorSpec>, alignment: u64) -> Result<(Vec<TensorInfo>, u64)> {
    let mut names = HashSet::new();
    for spec in &specs {
        if spec.name.is_empty() || spec.name.len() > limits::NAME_BYTES {
            return Err(refuse(format!(
                "cannot write tensor `{}`: its name has {} bytes, expected 1 to {}",
                spec.name,
                spec.name.len(),
                limits::NAME_BYTES
            )));
        }
        if !names.insert(spec.name.as_str()) {
            return Err(refuse(format!(
                "cannot write tensor `{}` twice: expected each name once",
                spec.name
            )));
        }
    }
    drop(names);
    let mut tensors = Vec::with_capacity(specs.len());
    let mut offset = 0_u64;
    for spec in specs {
        let n_bytes = n_bytes(&spec)?;
        let TensorSpec {
            name, shape, type_id, ..
        } = spec;
        let end = n_bytes
            .checked_next_multiple_of(alignment)
            .and_then(|n| n.checked_add(offset));
        let Some(end) = end else {
            return Err(refuse(format!("cannot write tensor `{name}`: its end overflows")));
        };
        tensors.push(TensorInfo {
            name,
            shape,
            type_id,
            offset,
            n_bytes,
            part: 0,
        });
        offset = end;
    }
    Ok((tensors, offset))
}

fn n_bytes(spec: &TensorSpec) -> Result<u64> {
    let TensorSpec {
        name, shape, type_id, ..
    } = spec;
    let Some(format) = gguf_blocks::registry::by_id(*type_id) else {
        return spec.n_bytes.ok_or_else(|| {
            refuse(format!(
                "cannot write tensor `{name}`: type {} is not known to this build",
                type_id.0
            ))
        });
    };
    shape.n_bytes(format).ok_or_else(|| {
        let geometry = &format.geometry;
        refuse(format!(
            "cannot write tensor `{name}` of shape {shape} as {}: expected a row length divisible by {} and rows \
             divisible by {}",
            format.name, geometry.block_elems, geometry.interleave
        ))
    })
}

/// Appends an entry of the tensor list.
fn encode_tensor(out: &mut Vec<u8>, tensor: &TensorInfo) {
    encode::string(out, &tensor.name);
    let dims = tensor.shape.dims();
    encode::u32(out, u32::try_from(dims.len()).expect("at most four dimensions"));
    for &dim in dims {
        encode::u64(out, dim);
    }
    encode::u32(out, tensor.type_id.0);
    encode::u64(out, tensor.offset);
}

impl From<&TensorInfo> for TensorSpec {
    fn from(t: &TensorInfo) -> Self {
        Self {
            name: t.name.clone(),
            shape: t.shape,
            type_id: t.type_id,
            n_bytes: Some(t.n_bytes),
        }
    }
}
