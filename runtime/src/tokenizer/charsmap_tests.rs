//! Tables made here, and damaged ones.

use super::*;

/// A blob for a few replacements. Children of each node get a stretch of 256 units of their own.
pub(in crate::tokenizer) fn blob(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut strings = Vec::new();
    let mut units = vec![0u32; 512];
    // Node by node: its unit, the prefix that leads there, and where its children lie.
    let mut nodes = vec![(0usize, Vec::new(), 256usize)];
    let mut n = 0;
    while n < nodes.len() {
        let (unit, prefix, below) = nodes[n].clone();
        units[unit] |= ((unit ^ below) as u32) << 10;
        for (key, value) in pairs {
            let Some(rest) = key.as_bytes().strip_prefix(&prefix[..]) else {
                continue;
            };
            let Some(&byte) = rest.first() else {
                units[unit] |= 1 << 8;
                units[below] = strings.len() as u32 | 1 << 31;
                strings.extend(value.bytes().chain([0]));
                continue;
            };
            let child = below ^ usize::from(byte);
            if units[child] == 0 {
                units[child] = byte.into();
                let longer = [&prefix[..], &[byte]].concat();
                nodes.push((child, longer, units.len()));
                units.resize(units.len() + 256, 0);
            }
        }
        n += 1;
    }
    let n_bytes = units.len() as u32 * 4;
    let units = units.iter().flat_map(|u| u.to_le_bytes());
    n_bytes
        .to_le_bytes()
        .into_iter()
        .chain(units)
        .chain(strings)
        .collect()
}

#[test]
fn the_longest_string_is_replaced() {
    let pairs = [
        ("ﬁ", "fi"),
        ("\t", " "),
        ("e\u{301}", "é"),
        ("e", "E"),
        ("\u{200b}", ""),
    ];
    let map = Charsmap::parse(&blob(&pairs)).unwrap();
    assert_eq!(map.replace("ﬁx").unwrap(), Some((3, "fi")));
    assert_eq!(map.replace("e\u{301}").unwrap(), Some((3, "é")));
    assert_eq!(map.replace("ex").unwrap(), Some((1, "E")));
    assert_eq!(map.replace("\u{200b}a").unwrap(), Some((3, "")));
    for other in ["a", "", "ﬀ", "\u{301}", "日"] {
        assert_eq!(map.replace(other).unwrap(), None, "{other}");
    }
}

#[test]
fn damaged_tables_are_errors() {
    let good = blob(&[("ab", "c"), ("é", "e")]);
    for n in [0, 3, 4, 7] {
        assert!(Charsmap::parse(&good[..n]).is_err(), "{n} bytes");
    }
    for size in [0u32, 6, u32::MAX] {
        let bad = [&size.to_le_bytes(), &good[4..]].concat();
        let e = Charsmap::parse(&bad).unwrap_err().to_string();
        assert!(e.contains(KEY) && e.ends_with(&size.to_string()), "{e}");
    }
    let mut unended = good.clone();
    *unended.last_mut().unwrap() = b'x';
    assert!(Charsmap::parse(&unended).is_err());
    // A key whose value lies past the end of the replacements.
    let cut = [&good[..good.len() - 4], &[0]].concat();
    let e = Charsmap::parse(&cut)
        .unwrap()
        .replace("é")
        .unwrap_err()
        .to_string();
    assert!(e.contains(KEY) && e.contains("none at byte"), "{e}");
}

#[test]
fn no_table_makes_a_panic() {
    let good = blob(&[("ab", "c"), ("é", "e"), ("e", "f"), ("日本", "x")]);
    let mut state = 1u32;
    let mut n_errors = 0;
    for round in 0..4000 {
        let mut bad = good.clone();
        for _ in 0..=round % 40 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = 4 + (state >> 8) as usize % (bad.len() - 5);
            bad[at] = (state >> 3) as u8;
        }
        let map = Charsmap::parse(&bad).unwrap();
        for text in ["ab", "é", "e", "日本", "\u{10FFFF}", "\0\0\0"] {
            n_errors += usize::from(map.replace(text).is_err());
        }
    }
    assert!(n_errors > 0);
}
