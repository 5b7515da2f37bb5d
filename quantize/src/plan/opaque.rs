//! Records for types that this build does not know, by which their bytes can be copied.

use std::collections::BTreeMap;
use std::sync::Mutex;

use gguf::TensorInfo;
use gguf_blocks::{Format, Geometry, registry};

/// Number of the type, columns, bytes of a row.
type Key = (u32, usize, usize);

/// All records so far, so that each is made once, however many tensors and targets ask for it.
static KNOWN: Mutex<BTreeMap<Key, &Format>> = Mutex::new(BTreeMap::new());

/// A record for a type that this build does not know, in which a row is a block. `None` if the bytes that lie there are
/// not whole rows.
pub(super) fn opaque(tensor: &TensorInfo) -> Option<&'static Format> {
    let (n_cols, n_rows) = (tensor.shape.n_cols(), tensor.shape.n_rows());
    if n_cols == 0 || n_rows == 0 || !tensor.n_bytes.is_multiple_of(n_rows) {
        return None;
    }
    let n_cols = usize::try_from(n_cols).ok()?;
    let row_bytes = usize::try_from(tensor.n_bytes / n_rows).ok()?;
    let mut known = KNOWN.lock().expect("no thread panicked");
    let record = known
        .entry((tensor.type_id.0, n_cols, row_bytes))
        .or_insert_with(|| {
            Box::leak(Box::new(Format {
                id: tensor.type_id,
                name: Box::leak(tensor.type_name().into_boxed_str()),
                geometry: Geometry::blocks(n_cols, row_bytes),
                quantized: true,
                requires_importance: false,
                decode: None,
                encode: None,
                check: |_| None,
                ..*registry::all()[0]
            }))
        });
    Some(record)
}

#[cfg(test)]
mod tests {
    use gguf::Shape;
    use gguf_blocks::TypeId;

    use super::*;

    #[test]
    fn a_record_is_made_once() {
        let tensor = |dims: &[u64], n_bytes| TensorInfo {
            name: "x".to_owned(),
            shape: Shape::new(dims).unwrap(),
            type_id: TypeId(4242),
            offset: 0,
            n_bytes,
            part: 0,
        };
        let one = opaque(&tensor(&[64, 3], 60)).unwrap();
        assert_eq!(
            (one.geometry.block_elems, one.geometry.row_bytes(64)),
            (64, Some(20))
        );
        assert!(std::ptr::eq(one, opaque(&tensor(&[64, 5], 100)).unwrap()));
        assert!(!std::ptr::eq(one, opaque(&tensor(&[64, 3], 63)).unwrap()));
        assert!(opaque(&tensor(&[64, 3], 61)).is_none());
    }
}
