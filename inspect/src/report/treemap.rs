//! A squarified treemap (Bruls, Huizing, van Wijk 2000): areas in proportion to sizes, sides as equal as can be.

/// A rectangle; x to the right, y down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) w: f64,
    pub(super) h: f64,
}

/// Places for sizes, which are in falling order, inside `area`: one rectangle each, in the same order. A size of 0 gets
/// an empty one.
pub(super) fn layout(sizes: &[u64], area: Rect) -> Vec<Rect> {
    let total: f64 = sizes.iter().map(|&s| s as f64).sum();
    let mut left = area;
    let mut rects = Vec::with_capacity(sizes.len());
    let scale = if total > 0.0 { area.w * area.h / total } else { 0.0 };
    let mut rest = sizes;
    while !rest.is_empty() {
        let n = row_len(rest, scale, left.w.min(left.h));
        let (row, behind) = rest.split_at(n);
        place_row(row, scale, &mut left, &mut rects);
        rest = behind;
    }
    rects
}

/// How many sizes make up the next row along a side of length `side`: one more as long as the worst ratio of sides
/// gets better.
fn row_len(sizes: &[u64], scale: f64, side: f64) -> usize {
    let mut sum = 0.0;
    let mut best = f64::INFINITY;
    for (i, &size) in sizes.iter().enumerate() {
        sum += size as f64 * scale;
        let largest = sizes[0] as f64 * scale;
        let smallest = size as f64 * scale;
        let worst = (side * side * largest / (sum * sum)).max(sum * sum / (side * side * smallest));
        // Not a number where an area is 0: the rest goes into one row.
        if worst > best {
            return i;
        }
        best = worst;
    }
    sizes.len()
}

/// Puts a row along the shorter side of what is left.
fn place_row(row: &[u64], scale: f64, left: &mut Rect, rects: &mut Vec<Rect>) {
    let sum: f64 = row.iter().map(|&s| s as f64 * scale).sum();
    let wide = left.w >= left.h;
    let side = if wide { left.h } else { left.w };
    let thick = if side > 0.0 { sum / side } else { 0.0 };
    let mut at = 0.0;
    for &size in row {
        let long = if sum > 0.0 {
            side * (size as f64 * scale) / sum
        } else {
            0.0
        };
        rects.push(if wide {
            Rect {
                x: left.x,
                y: left.y + at,
                w: thick,
                h: long,
            }
        } else {
            Rect {
                x: left.x + at,
                y: left.y,
                w: long,
                h: thick,
            }
        });
        at += long;
    }
    if wide {
        left.x += thick;
        left.w = (left.w - thick).max(0.0);
    } else {
        left.y += thick;
        left.h = (left.h - thick).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::{Rect, layout};

    const AREA: Rect = Rect {
        x: 0.0,
        y: 0.0,
        w: 60.0,
        h: 40.0,
    };

    #[test]
    fn areas_are_in_proportion_and_inside() {
        let sizes = [600, 600, 400, 300, 200, 200, 100];
        let rects = layout(&sizes, AREA);
        assert_eq!(rects.len(), sizes.len());
        for (r, &size) in rects.iter().zip(&sizes) {
            assert!((r.w * r.h - size as f64).abs() < 1e-6, "{r:?} for {size}");
            assert!(
                r.x >= -1e-9 && r.y >= -1e-9 && r.x + r.w < 60.0 + 1e-6 && r.y + r.h < 40.0 + 1e-6,
                "{r:?}"
            );
            let ratio = r.w.max(r.h) / r.w.min(r.h);
            assert!(ratio < 4.0, "{r:?}");
        }
        let apart = |a: &Rect, b: &Rect| {
            a.x + a.w <= b.x + 1e-6
                || b.x + b.w <= a.x + 1e-6
                || a.y + a.h <= b.y + 1e-6
                || b.y + b.h <= a.y + 1e-6
        };
        for (i, a) in rects.iter().enumerate() {
            assert!(rects[i + 1..].iter().all(|b| apart(a, b)));
        }
    }

    #[test]
    fn nothing_and_zeros_are_no_trouble() {
        assert!(layout(&[], AREA).is_empty());
        let rects = layout(&[5, 0, 0], AREA);
        assert_eq!(rects.len(), 3);
        assert!(rects.iter().all(|r| r.w.is_finite() && r.h.is_finite()));
        assert_eq!(layout(&[0, 0], AREA).len(), 2);
    }
}
