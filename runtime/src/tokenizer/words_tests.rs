//! Every pre-tokenizer against an engine that backtracks, and long runs.

use super::*;
use gguf_models::vocab;
use tokenizers::utils::SysRegex;

/// Pieces of texts in which patterns differ, a text from a number.
fn text(seed: u64) -> String {
    const PARTS: &[&str] = &[
        " ",
        "  ",
        "   ",
        "\n",
        "\r\n",
        "\t",
        "a",
        "Bc",
        "É",
        "e\u{301}",
        "日本",
        "🦙",
        "12",
        "3456",
        "٣",
        "½",
        "'s",
        "'LL",
        "don't",
        "!",
        "...",
        "$",
        "^_",
        "/",
        "x/\n",
        "\u{a0}",
        "\u{3000}",
        "\u{85}",
        "Dž",
        "ʰ",
        "한국",
        "ひら",
        "ㄅ",
        "：",
        "。",
        "1,000",
        "7x",
        "<sentinel:3>",
        "IMGIMGABZ",
        "ก",
        "\u{0}",
    ];
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % n
    };
    let n = 1 + next(14);
    let mut text = String::new();
    for _ in 0..n {
        let part = PARTS[next(PARTS.len())];
        let times = if next(8) == 0 { 1 + next(40) } else { 1 };
        text.push_str(&part.repeat(times));
    }
    text
}

/// The same with an engine that backtracks and knows look-ahead.
fn cut_by_backtracking(patterns: &[SysRegex], text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<_> = std::iter::once(0..text.len()).collect();
    for pattern in patterns {
        let mut finer = Vec::new();
        for range in words {
            let mut pieces = Pieces {
                out: &mut finer,
                offset: range.start,
                end: 0,
            };
            for (from, to) in pattern.find_iter(&text[range.clone()]) {
                pieces.cut_at(from);
                pieces.cut_at(to);
            }
            pieces.cut_at(range.len());
        }
        words = finer;
    }
    words
}

#[test]
fn every_pre_tokenizer_cuts_as_its_patterns_say() {
    for pre in vocab::all() {
        let words = Words::new(pre).unwrap();
        let patterns: Vec<_> = pre.patterns.iter().map(|p| SysRegex::new(p).unwrap()).collect();
        for seed in 0..150 {
            let text = text(seed);
            let found = words.cut(&text);
            let expected = cut_by_backtracking(&patterns, &text);
            assert_eq!(found, expected, "{}: {text:?}", pre.name());
        }
    }
}

#[test]
fn long_runs_are_cut_in_linear_time() {
    let runs = [" ", "a", "7", "\n", "!", " x", "\u{3000}", "語"].map(|part| part.repeat(100_000));
    for pre in vocab::all() {
        let words = Words::new(pre).unwrap();
        for run in &runs {
            let cut = words.cut(run);
            let joined = cut.windows(2).all(|w| w[0].end == w[1].start);
            let ends = (cut.first().map(|r| r.start), cut.last().map(|r| r.end));
            assert!(joined && ends == (Some(0), Some(run.len())), "{}", pre.name());
        }
    }
}
