//! Typed metadata values.

use crate::Strings;

/// The number of a value type in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ValueType {
    /// 0
    U8 = 0,
    /// 1
    I8 = 1,
    /// 2
    U16 = 2,
    /// 3
    I16 = 3,
    /// 4
    U32 = 4,
    /// 5
    I32 = 5,
    /// 6
    F32 = 6,
    /// 7
    Bool = 7,
    /// 8
    String = 8,
    /// 9
    Array = 9,
    /// 10
    U64 = 10,
    /// 11
    I64 = 11,
    /// 12
    F64 = 12,
}

impl ValueType {
    /// All types, in order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The type with this number.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// The number in the file.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The name for messages and reports: `u32`, `string`, `array`.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    /// Fewest bytes an element of this type takes in the file: a string at least its length, an array its
    /// element type and length.
    pub(crate) fn min_bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
            Self::Array => 12,
        }
    }
}

impl std::fmt::Display for ValueType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are the format's types")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array of one element type.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are the format's types")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Strings),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Array {
    /// Elements in the array.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
            Self::Array(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as unsigned integers; `None` if they are no integers or one is negative.
    pub fn to_uints(&self) -> Option<Vec<u64>> {
        match self {
            Self::U8(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Self::U16(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Self::U32(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Self::U64(v) => Some(v.clone()),
            Self::I8(v) => v.iter().map(|&x| x.try_into().ok()).collect(),
            Self::I16(v) => v.iter().map(|&x| x.try_into().ok()).collect(),
            Self::I32(v) => v.iter().map(|&x| x.try_into().ok()).collect(),
            Self::I64(v) => v.iter().map(|&x| x.try_into().ok()).collect(),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) => None,
        }
    }
}

impl Value {
    /// The value as an unsigned integer; `None` if it is no integer or negative.
    pub fn to_uint(&self) -> Option<u64> {
        match *self {
            Self::U8(x) => Some(x.into()),
            Self::U16(x) => Some(x.into()),
            Self::U32(x) => Some(x.into()),
            Self::U64(x) => Some(x),
            Self::I8(x) => x.try_into().ok(),
            Self::I16(x) => x.try_into().ok(),
            Self::I32(x) => x.try_into().ok(),
            Self::I64(x) => x.try_into().ok(),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) => None,
        }
    }

    /// The bytes of the value in a little-endian file of version 3: the number of its type, then the value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        crate::encode::value(&mut out, self);
        out
    }

    /// The type in words, for messages: `u32`, `array of string`.
    pub fn type_name(&self) -> String {
        match self {
            Self::Array(a) => format!("array of {}", a.element_type()),
            _ => self.value_type().name().to_owned(),
        }
    }
}

/// Ties each scalar variant to its Rust type: `value_type`, `element_type` and the conversions.
macro_rules! variants {
    ($($variant:ident: $t:ty),*) => {
        impl Value {
            /// The value's type.
            pub fn value_type(&self) -> ValueType {
                match self {
                    $(Self::$variant(_) => ValueType::$variant,)*
                }
            }
        }

        impl Array {
            /// The type of the elements.
            pub fn element_type(&self) -> ValueType {
                match self {
                    $(Self::$variant(_) => ValueType::$variant,)*
                }
            }
        }

        $(
            impl From<$t> for Value {
                fn from(x: $t) -> Self {
                    Self::$variant(x)
                }
            }

            impl From<Vec<$t>> for Array {
                fn from(v: Vec<$t>) -> Self {
                    Self::$variant(v.into())
                }
            }

            impl From<Vec<$t>> for Value {
                fn from(v: Vec<$t>) -> Self {
                    Self::Array(v.into())
                }
            }
        )*
    };
}
variants!(
    U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, F32: f32, Bool: bool, String: String, Array: Array,
    U64: u64, I64: i64, F64: f64
);

impl From<&str> for Value {
    fn from(s: &str) -> Self {
        Self::String(s.to_owned())
    }
}
