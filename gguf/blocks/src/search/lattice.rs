//! The points of a lattice as a search sees them: which codes are a point, and which points are near the others.
//!
//! Codes are packed as in [`crate::grids`]: the code of element `i` at bit `log2(C) · i`. A code `c` stands for the
//! coordinate `2 · c + 1`, so distances are compared between codes just as well.

use std::ops::Range;

use super::odd_code;

/// Scales that are tried side by side.
pub(crate) const WIDTH: usize = 8;
/// A number for each of them.
pub(crate) type Lane = [f32; WIDTH];

/// Packed codes of eight points.
pub(crate) type Eight = [u16; WIDTH];

/// What each code of each element adds to the distance of a point that has it.
pub(crate) type Terms<const N: usize, const C: usize> = [[f32; C]; N];

/// Set in an entry of the map whose codes are no point.
const OFF: u32 = 1 << 31;
/// Where such an entry has the length of its list, in points; below stands where the list begins.
const LENGTH: u32 = 20;

/// A lattice of `N` elements with codes below `C`.
#[derive(Debug)]
pub(crate) struct Lattice<const N: usize, const C: usize> {
    /// For each packed codes the number of the point, or [`OFF`] and the place of the list, in eights.
    map: Vec<u32>,
    /// The points near codes that are none, nearest first and then by number; the last is repeated to fill an eight.
    lists: Vec<Eight>,
}

/// Points near some codes, nearest first and then by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<'a> {
    eights: &'a [Eight],
    length: usize,
}

impl<'a> List<'a> {
    /// Packed codes of the points, the last one repeated to fill an eight.
    #[inline(always)]
    pub(crate) fn eights(self) -> &'a [Eight] {
        self.eights
    }

    /// Packed codes of the points.
    #[inline(always)]
    pub(crate) fn points(self) -> &'a [u16] {
        &self.eights.as_flattened()[..self.length]
    }
}

/// What a lattice has for some codes.
pub(crate) enum Place<'a> {
    /// They are a point.
    Point,
    /// They are not; these are near.
    Near(List<'a>),
}

impl<const N: usize, const C: usize> Lattice<N, C> {
    /// Bits of a code.
    pub(crate) const BITS: usize = C.trailing_zeros() as usize;
    /// Codes that points have: of two bits the last stands for nothing.
    pub(crate) const LEVELS: usize = if C == 4 { 3 } else { C };

    /// The lattice of `points`, packed and ascending. Codes that are no point get all the points of the
    /// `distances` smallest distances.
    pub(crate) fn new(points: &[u16], distances: usize) -> Self {
        let code = |packed: usize, i: usize| packed >> (Self::BITS * i) & (C - 1);
        let largest = Self::LEVELS - 1;
        // The square of the distance in one element, for each code there, of every point.
        let squares: Vec<Vec<u8>> = (0..N * C)
            .map(|row| {
                let (i, c) = (row / C, row % C);
                let square = |&p: &u16| (code(usize::from(p), i).abs_diff(c) as u8).pow(2);
                points.iter().map(square).collect()
            })
            .collect();
        let all_largest = (0..N).fold(0, |packed, i| packed | largest << (Self::BITS * i));
        let mut lattice = Self {
            map: vec![0; all_largest + 1],
            lists: Vec::new(),
        };
        let mut near = Near::new(points.len());
        let mut last = usize::MAX;
        for packed in 0..=all_largest {
            if (0..N).any(|i| code(packed, i) > largest) {
                continue;
            }
            let rows = |elements: Range<usize>| elements.map(|i| &squares[i * C + code(packed, i)][..]);
            // Ascending codes have the upper half of the elements in common most of the time.
            let upper = packed >> (Self::BITS * N / 2);
            if upper != last {
                near.set_upper(rows(N / 2..N));
                last = upper;
            }
            near.find(rows(0..N / 2), distances);
            lattice.map[packed] = match near.found[..] {
                [(0, number), ..] => u32::from(number),
                _ => lattice.add_list(near.found.iter().map(|&(_, number)| points[usize::from(number)])),
            };
        }
        lattice
    }

    /// Adds a list and returns its entry of the map.
    fn add_list(&mut self, points: impl Iterator<Item = u16>) -> u32 {
        let first = self.lists.len();
        let mut length = 0;
        for point in points {
            if length % WIDTH == 0 {
                self.lists.push([point; WIDTH]);
            } else if let Some(last) = self.lists.last_mut() {
                last[length % WIDTH..].fill(point);
            }
            length += 1;
        }
        OFF | (length as u32) << LENGTH | first as u32
    }

    /// Whether `packed` is a point, or else what is near.
    #[inline(always)]
    pub(crate) fn place(&self, packed: u32) -> Place<'_> {
        let entry = self.map[packed as usize];
        if entry & OFF == 0 {
            return Place::Point;
        }
        let first = (entry & ((1 << LENGTH) - 1)) as usize;
        let length = (entry >> LENGTH & 0x7ff) as usize;
        Place::Near(List {
            eights: &self.lists[first..first + length.div_ceil(WIDTH)],
            length,
        })
    }

    /// The number of the point with these codes.
    pub(crate) fn number(&self, packed: u32) -> u16 {
        self.map[packed as usize] as u16
    }

    /// The coordinate of element `i` of packed codes.
    #[inline(always)]
    pub(crate) fn coordinate(packed: u32, i: usize) -> f32 {
        let code = packed >> (Self::BITS * i) & (C as u32 - 1);
        (2 * code + 1) as i32 as f32
    }

    /// The code of element `i` of packed codes.
    #[inline(always)]
    pub(crate) fn code(packed: u32, i: usize) -> usize {
        (packed >> (Self::BITS * i)) as usize & (C - 1)
    }
}

/// The search for the points near some codes.
struct Near {
    /// Square distances of the points in the upper half of the elements, and in all of them; those too large to be
    /// near are limited. Filled up to whole words with the largest.
    upper: Vec<u8>,
    all: Vec<u8>,
    /// Distance and number of the points that were found, nearest first and then by number.
    found: Vec<(u8, u16)>,
    unsorted: Vec<(u8, u16)>,
}

impl Near {
    /// The largest distance that is told from larger ones.
    const LIMIT: u8 = 127;
    /// The same byte in a whole word.
    const EACH: u64 = u64::from_le_bytes([1; 8]);

    fn new(n_points: usize) -> Self {
        let distances = vec![Self::LIMIT; n_points.next_multiple_of(8)];
        Self {
            upper: distances.clone(),
            all: distances,
            found: Vec::new(),
            unsorted: Vec::new(),
        }
    }

    /// Sums up what the upper elements add to the distance of each point.
    fn set_upper<'a>(&mut self, rows: impl Iterator<Item = &'a [u8]>) {
        self.upper.fill(0);
        for row in rows {
            for (d, square) in self.upper.iter_mut().zip(row) {
                *d += square;
            }
        }
    }

    /// Finds the points of the smallest distances, as many different ones as asked for.
    fn find<'a>(&mut self, rows: impl Iterator<Item = &'a [u8]>, distances: usize) {
        let mut n_points = self.all.len();
        self.all.copy_from_slice(&self.upper);
        for row in rows {
            n_points = row.len();
            for (d, square) in self.all.iter_mut().zip(row) {
                *d += square;
            }
        }
        self.all[n_points..].fill(Self::LIMIT);
        for d in &mut self.all {
            *d = (*d).min(Self::LIMIT);
        }
        let mut limit = self.all.iter().copied().fold(Self::LIMIT, u8::min);
        for _ in 1..distances {
            if limit == 0 {
                break;
            }
            let above = |least: u8, &d: &u8| least.min(if d > limit { d } else { Self::LIMIT });
            limit = self.all.iter().fold(Self::LIMIT, above);
        }
        self.collect(limit);
    }

    /// Fills `found` with the points up to a distance.
    fn collect(&mut self, limit: u8) {
        self.unsorted.clear();
        for (eight, first) in self.all.as_chunks::<8>().0.iter().zip((0u16..).step_by(8)) {
            // The top bit of each byte stays unless its distance is within the limit.
            let word = u64::from_le_bytes(*eight) | Self::EACH << 7;
            let mut within = !(word - (u64::from(limit) + 1) * Self::EACH) & Self::EACH << 7;
            while within != 0 {
                let i = within.trailing_zeros() / 8;
                within &= within - 1;
                self.unsorted.push((eight[i as usize], first + i as u16));
            }
        }
        self.found.clear();
        for distance in 0..=limit {
            self.found
                .extend(self.unsorted.iter().filter(|(d, _)| *d == distance));
        }
    }
}

/// The packed codes of the first point of `list` with the smallest sum of terms, added in the order of the elements;
/// the first of the list if no sum is a number.
pub(crate) fn nearest<const N: usize, const C: usize>(terms: &Terms<N, C>, list: &[Eight]) -> u16 {
    let mut best = f32::MAX;
    let mut nearest = list[0][0];
    for &point in list.as_flattened() {
        let mut sum = 0.0;
        for (i, terms) in terms.iter().enumerate() {
            sum += terms[Lattice::<N, C>::code(u32::from(point), i)];
        }
        if sum < best {
            best = sum;
            nearest = point;
        }
    }
    nearest
}

/// Values that become one point, with what is needed to choose it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group<'a, const N: usize, const C: usize> {
    /// The lattice.
    pub(crate) lattice: &'a Lattice<N, C>,
    /// The values, to be approached by `scale · coordinate`.
    pub(crate) x: &'a [f32; N],
    /// Their weights.
    pub(crate) w: &'a [f32; N],
    /// Square roots of the weights, by which distances are weighted.
    pub(crate) root: &'a [f32; N],
}

/// Points of one group for eight scales side by side.
#[derive(Clone, Debug)]
pub(crate) struct Tries<const N: usize, const C: usize> {
    /// From values to coordinates.
    pub(crate) factor: Lane,
    /// From coordinates to values.
    pub(crate) scale: Lane,
    /// The lanes that are in use, a bit each.
    pub(crate) live: u32,
    /// Packed codes of the chosen points in these lanes, to be filled in.
    pub(crate) points: [u32; WIDTH],
    /// The lanes where the nearest codes are no point, to be filled in.
    pub(crate) off: u32,
    /// Scratch.
    pub(crate) terms: [[Lane; C]; N],
}

impl<const N: usize, const C: usize> Tries<N, C> {
    /// No lane in use.
    pub(crate) const NONE: Self = Self {
        factor: [0.0; WIDTH],
        scale: [0.0; WIDTH],
        live: 0,
        points: [0; WIDTH],
        off: 0,
        terms: [[[0.0; WIDTH]; C]; N],
    };
}

impl<const N: usize, const C: usize> Group<'_, N, C> {
    /// The nearest codes for a factor, packed.
    #[inline(always)]
    pub(crate) fn codes(&self, factor: f32) -> u32 {
        let most = (Lattice::<N, C>::LEVELS - 1) as f32;
        let mut packed = 0;
        for (i, x) in self.x.iter().enumerate() {
            let code = odd_code(factor * x, most) as u32;
            packed |= code << (Lattice::<N, C>::BITS * i);
        }
        packed
    }

    /// What each code of each element adds to the distance at a scale.
    #[inline(always)]
    pub(crate) fn terms(&self, scale: f32) -> Terms<N, C> {
        let mut coordinates = [0.0; C];
        for (c, coordinate) in coordinates.iter_mut().enumerate() {
            *coordinate = scale * (2 * c + 1) as f32;
        }
        let mut terms = [[0.0; C]; N];
        for (terms, (x, root)) in terms.iter_mut().zip(self.x.iter().zip(self.root)) {
            for (term, coordinate) in terms.iter_mut().zip(coordinates) {
                let diff = coordinate - x;
                *term = root * diff * diff;
            }
        }
        terms
    }

    /// Chooses points: the nearest codes if they are one, or the nearest of their neighbours.
    pub(crate) fn plain_points(&self, tries: &mut Tries<N, C>) {
        tries.off = 0;
        for j in (0..WIDTH).filter(|j| tries.live >> j & 1 == 1) {
            tries.points[j] = self.codes(tries.factor[j]);
            if let Place::Near(list) = self.lattice.place(tries.points[j]) {
                tries.points[j] = u32::from(nearest(&self.terms(tries.scale[j]), list.eights()));
                tries.off |= 1 << j;
            }
        }
    }

    /// Adds `w · x · q` and `w · q · q` of the coordinates of points, side by side, to sums.
    pub(crate) fn plain_sums(&self, points: &[u32; WIDTH], sums: &mut [Lane; 2]) {
        for i in 0..N {
            for j in 0..WIDTH {
                let q = Lattice::<N, C>::coordinate(points[j], i);
                sums[0][j] += self.w[i] * self.x[i] * q;
                sums[1][j] += self.w[i] * q * q;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grids::points;

    /// Every list against a plain sort.
    fn check_lists<const N: usize, const C: usize>(points: &[u16], distances: usize) {
        let lattice = Lattice::<N, C>::new(points, distances);
        let square = |a: u16, b: u16| {
            (0..N)
                .map(|i| {
                    let code = |p: u16| Lattice::<N, C>::code(u32::from(p), i);
                    code(a).abs_diff(code(b)).pow(2)
                })
                .sum::<usize>()
        };
        let mut number = 0;
        for packed in 0..lattice.map.len() as u16 {
            if (0..N).any(|i| Lattice::<N, C>::code(u32::from(packed), i) >= Lattice::<N, C>::LEVELS) {
                continue;
            }
            match lattice.place(u32::from(packed)) {
                Place::Point => {
                    assert_eq!(lattice.number(u32::from(packed)), number);
                    assert_eq!(points[usize::from(number)], packed);
                    number += 1;
                }
                // The plain sort is slow: a part of the lists says enough.
                Place::Near(list) if packed % 13 == 0 => {
                    let mut all: Vec<_> = points.iter().map(|&p| (square(p, packed), p)).collect();
                    all.sort_unstable();
                    let mut found: Vec<_> = all.iter().map(|&(d, _)| d).collect();
                    found.dedup();
                    all.retain(|&(d, _)| d <= found[distances - 1]);
                    assert!(list.points().iter().eq(all.iter().map(|(_, p)| p)), "{packed}");
                }
                Place::Near(_) => {}
            }
        }
        assert_eq!(usize::from(number), points.len());
    }

    #[test]
    fn codes_off_the_lattice_have_their_neighbours() {
        check_lists::<8, 4>(&points::PAIRS_256, 2);
        check_lists::<8, 4>(&points::PAIRS_1024, 1);
        check_lists::<8, 4>(&points::TERNARY_2048, 3);
        check_lists::<4, 8>(&points::TRIPLES_256, 2);
        check_lists::<4, 8>(&points::TRIPLES_512, 3);
    }
}
