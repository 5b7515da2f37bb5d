//! Tables and numbers as people read them.

use std::time::Duration;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use crate::screen::printable;

/// Columns apart by blanks, a rule under the header.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('-').junction('-'));

/// A plain-text table for people: headers, rows, the named columns right-aligned. Each row is one line, controls in
/// its cells are escaped.
pub fn table(headers: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_header(headers.to_vec())
        .add_rows(rows.iter().map(|row| row.iter().map(|cell| printable(cell))));
    for (i, column) in table.column_iter_mut().enumerate() {
        // One more blank comes from the style.
        column.set_padding((0, 1));
        if right.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// A byte count as people write it: `1.07 GiB`.
pub fn human_bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    // 999.5 is where three digits round to four.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value < 9.995 {
        2
    } else {
        usize::from(value < 99.95)
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// The first `n` of many lines, and one that counts the others: `and 3 more`, with `what` behind.
pub fn shortened(lines: &[String], n: usize, what: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(n);
    let last = (more > 0).then(|| format!("and {more} more{what}"));
    lines.iter().take(n).cloned().chain(last).collect()
}

/// A number of things in words: `1 chunk`, `3 chunks`. `one` is the singular; words in `-y`, `-ix`
/// and those with a plural in `-es` get the right ending.
pub fn count(n: u64, one: &str) -> String {
    if n == 1 {
        return format!("1 {one}");
    }
    let consonant_y = one
        .strip_suffix('y')
        .filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']));
    if let Some(stem) = consonant_y {
        return format!("{n} {stem}ies");
    }
    if let Some(stem) = one.strip_suffix("ix") {
        return format!("{n} {stem}ices");
    }
    let es = ["s", "x", "ch", "sh"].iter().any(|end| one.ends_with(end));
    format!("{n} {one}{}", if es { "es" } else { "s" })
}

/// A span of time as people say it: `3 min 5 s`.
pub fn human_time(time: Duration) -> String {
    let s = time.as_secs();
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, _) if s < 10 => format!("{:.1} s", time.as_secs_f64()),
        (0, 0, s) => format!("{s} s"),
        (0, min, s) => format!("{min} min {s} s"),
        (h, min, _) => format!("{h} h {min} min"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{count, human_bytes, human_time, shortened, table};

    #[test]
    fn many_lines_are_cut_and_counted() {
        let lines = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(shortened(&lines, 3, ""), lines);
        assert_eq!(shortened(&lines, 1, " letters"), ["a", "and 2 more letters"]);
        assert!(shortened(&[], 1, "").is_empty());
    }

    #[test]
    fn bytes_have_three_digits() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1 << 20, "1.00 MiB"),
            (10_230, "9.99 KiB"),
            (10_235, "10.0 KiB"),
            (1_023_500, "0.98 MiB"),
            (1_150_000_000, "1.07 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(human_bytes(n), text, "{n}");
        }
    }

    #[test]
    fn numbers_agree_with_their_words() {
        for (n, one, text) in [
            (0, "chunk", "0 chunks"),
            (1, "chunk", "1 chunk"),
            (2, "entry", "2 entries"),
            (1, "entry", "1 entry"),
            (3, "key", "3 keys"),
            (4, "matrix", "4 matrices"),
            (2, "batch", "2 batches"),
            (5, "finding", "5 findings"),
        ] {
            assert_eq!(count(n, one), text);
        }
    }

    #[test]
    fn times_have_two_units() {
        for (ms, text) in [
            (1_240, "1.2 s"),
            (59_900, "59 s"),
            (185_000, "3 min 5 s"),
            (7_500_000, "2 h 5 min"),
        ] {
            assert_eq!(human_time(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".to_owned(), "1".to_owned()],
            vec!["longer".to_owned(), "100".to_owned()],
        ];
        let text = table(&["name", "n"], &rows, &[1]);
        assert_eq!(text, "name      n\n------------\na         1\nlonger  100");
    }
}
