//! Whether two files say the same.

use gguf::{Array, GgufFile, Metadata, Outline, Value};

/// The same pairs in the same order, those of `without` left out.
pub(super) fn same_metadata(a: &Metadata, b: &Metadata, without: &[&str]) {
    let pairs = |m: &'_ Metadata| -> Vec<(String, Value)> {
        let kept = m.iter().filter(|(key, _)| !without.contains(key));
        kept.map(|(key, value)| (key.to_owned(), value.clone())).collect()
    };
    let (a, b) = (pairs(a), pairs(b));
    assert_eq!(a.len(), b.len(), "{a:?} became {b:?}");
    for (a, b) in a.iter().zip(&b) {
        assert!(a.0 == b.0 && same_value(&a.1, &b.1), "{a:?} became {b:?}");
    }
}

/// Of floats the same bits.
pub(super) fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::F32(a), Value::F32(b)) => a.to_bits() == b.to_bits(),
        (Value::F64(a), Value::F64(b)) => a.to_bits() == b.to_bits(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && begins_with(a, b),
        _ => a == b,
    }
}

/// Whether the elements of `front` are the first ones of `whole`.
fn begins_with(whole: &Array, front: &Array) -> bool {
    macro_rules! begins {
        ($a:expr, $b:expr) => {
            $a.get(..$b.len()) == Some($b)
        };
    }
    match (whole, front) {
        (Array::F32(a), Array::F32(b)) => {
            b.len() <= a.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
        }
        (Array::F64(a), Array::F64(b)) => {
            b.len() <= a.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
        }
        (Array::Array(a), Array::Array(b)) => {
            let same = |(a, b): (&Array, &Array)| a.len() == b.len() && begins_with(a, b);
            b.len() <= a.len() && a.iter().zip(b).all(same)
        }
        (Array::String(a), Array::String(b)) => {
            b.len() <= a.len() && a.iter_bytes().zip(b.iter_bytes()).all(|(a, b)| a == b)
        }
        (Array::U8(a), Array::U8(b)) => begins!(a, &b[..]),
        (Array::I8(a), Array::I8(b)) => begins!(a, &b[..]),
        (Array::U16(a), Array::U16(b)) => begins!(a, &b[..]),
        (Array::I16(a), Array::I16(b)) => begins!(a, &b[..]),
        (Array::U32(a), Array::U32(b)) => begins!(a, &b[..]),
        (Array::I32(a), Array::I32(b)) => begins!(a, &b[..]),
        (Array::U64(a), Array::U64(b)) => begins!(a, &b[..]),
        (Array::I64(a), Array::I64(b)) => begins!(a, &b[..]),
        (Array::Bool(a), Array::Bool(b)) => begins!(a, &b[..]),
        _ => false,
    }
}

/// The same tensors with the same bytes.
pub(super) fn same_tensors(a: &GgufFile, b: &GgufFile) {
    assert_eq!(a.tensors.len(), b.tensors.len());
    for (a_info, b_info) in a.tensors.iter().zip(&b.tensors) {
        let same =
            (&a_info.name, a_info.shape, a_info.type_id) == (&b_info.name, b_info.shape, b_info.type_id);
        assert!(same, "{a_info:?} became {b_info:?}");
        let (a, b) = (a.tensor_bytes(a_info), b.tensor_bytes(b_info));
        let (a, mut b) = (a.expect("sound"), b.expect("sound"));
        if a_info.format().is_none() {
            // Nothing says where its data ends, so the padding that is written behind counts as data.
            b.to_mut().truncate(a.len());
        }
        assert_eq!(a, b, "bytes of {}", a_info.name);
    }
}

/// An outline has the file's keys, values and tensors; of arrays `keep` elements at least, and how many there are.
pub(super) fn same_outline(file: &GgufFile, outline: &Outline, keep: usize) {
    let found = outline.file();
    assert_eq!(file.metadata.len(), found.metadata.len());
    for ((key, whole), (found_key, front)) in file.metadata.iter().zip(found.metadata.iter()) {
        assert_eq!(key, found_key);
        let same = match (outline.cut_len(key), whole, front) {
            (Some(n), Value::Array(whole), Value::Array(front)) => {
                whole.len() as u64 == n && front.len() >= keep.min(whole.len()) && begins_with(whole, front)
            }
            (None, whole, front) => same_value(whole, front),
            _ => false,
        };
        assert!(
            same,
            "`{key}`: {whole:?} became {front:?} of {:?}",
            outline.cut_len(key)
        );
    }
    assert_eq!(file.tensors, found.tensors);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(pairs: &[(&str, Value)]) -> Metadata {
        let mut metadata = Metadata::new();
        for (key, value) in pairs {
            metadata.set(*key, value.clone());
        }
        metadata
    }

    /// What is no number is the same as itself; a key less, another type or another element are not.
    #[test]
    fn a_writer_that_drops_something_is_noticed() {
        let a = [("a", Value::F32(f32::NAN)), ("b", vec![f64::NAN, 1.0].into())];
        same_metadata(&metadata(&a), &metadata(&a), &[]);
        same_metadata(&metadata(&a), &metadata(&a[..1]), &["b"]);
        for other in [
            metadata(&a[..1]),
            metadata(&[a[1].clone(), a[0].clone()]),
            metadata(&[a[0].clone(), ("b", vec![f64::NAN].into())]),
            metadata(&[a[0].clone(), ("b", vec![f64::NAN, 2.0].into())]),
            metadata(&[("a", Value::F64(f64::NAN)), a[1].clone()]),
        ] {
            let same = std::panic::catch_unwind(|| same_metadata(&metadata(&a), &other, &[]));
            assert!(same.is_err(), "{other:?}");
        }
    }
}
