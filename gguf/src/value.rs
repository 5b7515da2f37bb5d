//! Typed metadata values.

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
    String(Vec<String>),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Array {
    /// Elements in the array.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
