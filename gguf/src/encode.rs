//! Writes headers, strings and values the way the parser reads them: little-endian.

use crate::{Array, Value};

/// Something that has one form in the file.
trait Encode {
    fn encode(&self, out: &mut Vec<u8>);
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Encode for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
number!(u8, i8, u16, i16, u32, i32, f32, u64, i64, f64);

impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Encode for &[u8] {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u64).encode(out);
        out.extend_from_slice(self);
    }
}

impl Encode for Array {
    fn encode(&self, out: &mut Vec<u8>) {
        self.element_type().id().encode(out);
        (self.len() as u64).encode(out);
        match self {
            Self::U8(v) => out.extend_from_slice(v),
            Self::I8(v) => all(v, out),
            Self::U16(v) => all(v, out),
            Self::I16(v) => all(v, out),
            Self::U32(v) => all(v, out),
            Self::I32(v) => all(v, out),
            Self::F32(v) => all(v, out),
            Self::Bool(v) => all(v, out),
            Self::String(v) => v.iter_bytes().for_each(|x| x.encode(out)),
            Self::Array(v) => all(v, out),
            Self::U64(v) => all(v, out),
            Self::I64(v) => all(v, out),
            Self::F64(v) => all(v, out),
        }
    }
}

fn all<T: Encode>(elements: &[T], out: &mut Vec<u8>) {
    for x in elements {
        x.encode(out);
    }
}

/// Appends a length and the bytes.
pub(crate) fn string(out: &mut Vec<u8>, s: &str) {
    s.as_bytes().encode(out);
}

/// Appends a 32-bit number.
pub(crate) fn u32(out: &mut Vec<u8>, x: u32) {
    x.encode(out);
}

/// Appends a 64-bit number.
pub(crate) fn u64(out: &mut Vec<u8>, x: u64) {
    x.encode(out);
}

/// Appends a value's type and the value.
pub(crate) fn value(out: &mut Vec<u8>, value: &Value) {
    value.value_type().id().encode(out);
    match value {
        Value::U8(x) => x.encode(out),
        Value::I8(x) => x.encode(out),
        Value::U16(x) => x.encode(out),
        Value::I16(x) => x.encode(out),
        Value::U32(x) => x.encode(out),
        Value::I32(x) => x.encode(out),
        Value::F32(x) => x.encode(out),
        Value::Bool(x) => x.encode(out),
        Value::String(x) => string(out, x),
        Value::Array(x) => x.encode(out),
        Value::U64(x) => x.encode(out),
        Value::I64(x) => x.encode(out),
        Value::F64(x) => x.encode(out),
    }
}
