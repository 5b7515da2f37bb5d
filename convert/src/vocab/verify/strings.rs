//! Texts on which tokenizers differ that are not the same.

/// The texts, simple ones first, so that the first that differs says most.
pub(super) const HARD: &[&str] = &[
    "",
    "Hello world",
    " leading blank",
    "trailing blank ",
    "two  blanks   three    four",
    "                                        forty",
    " ",
    "  ",
    "tab\ttab\t\ttab\n\n\nlines\n \n end\n",
    "\r\nCRLF\r\n\r\n",
    "0 12 345 6789 01234 1234567890 3.14159 1,000,000 ½ ² ٣٤٥ Ⅷ",
    "I'm you're they've WE'LL she'd HE'S it's I'M don'T rock'n'roll 'twas",
    "CamelCase snake_case SCREAMING_CASE kebab-case mIxEd iPhone XMLHttpRequest ALLCAPSthen",
    "café naïve Ångström Straße ÉCOLE İstanbul ǅ ﬁn",
    "cafe\u{301} o\u{308} n\u{303}o q\u{323}\u{307} a\u{301}\u{327}",
    "😀 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️",
    "中文字符 日本語のテキスト カタカナ 한국어 텍스트 漢字と仮名",
    "中文English混合123文本",
    "Привет, мир! Ελληνικά שלום مرحبا नमस्ते สวัสดี ქართული",
    "fn main() { let x = vec![1, 2]; println!(\"{x:?}\"); } // done",
    "def f(x):\n    if x != 0:\n\t\treturn x**2  # square\n    return None\n",
    "<html><p class=\"a\">&amp;</p></html> https://example.org/a?b=c&d=e#f me@example.org",
    "!!! ??? ... --- ___ *** ### $$$ %%% ^^^ ~~~ ``` ;;; :-) (a) [b] {c}",
    "“quotes” ‘single’ «guillemets» – — … · • ©®™ €£¥",
    "zero\u{200b}width\u{200d}joiner\u{feff}bom\u{a0}nbsp\u{3000}ideographic\u{2028}line",
    "\u{0}\u{1}\u{7f}\u{85}control",
    "\u{fffd}\u{10ffff}\u{e000}private",
    "a\u{2581}b",
    "x",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "The quick brown fox jumps over the lazy dog, THE QUICK BROWN FOX; 42 times/day\n/path/to/file\n",
];

/// Texts with an added token: alone, and where it stands for itself inside of others.
pub(super) fn around(token: &str) -> [String; 2] {
    [token.to_owned(), format!("a{token}b 1{token}{token}. c")]
}
