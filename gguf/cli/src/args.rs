//! Options that several programs have.

use clap::Args;
use gguf::key;
use gguf::limits::MAX_HEAD_BYTES;

use crate::{human_bytes, thread_pool};

/// `-t`, `--threads`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ThreadArgs {
    /// Threads to compute with; 0, or -1, takes as many as the machine offers
    #[arg(short, long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = parse_threads, allow_negative_numbers = true)]
    pub threads: usize,
}

/// A number of threads, 0 for the usual number, which in llama.cpp is -1.
///
/// # Errors
/// Everything else, in words for a clap parser.
pub fn parse_threads(text: &str) -> Result<usize, String> {
    match text {
        "-1" => Ok(0),
        _ => text
            .parse()
            .map_err(|_| "expected a number of threads, or 0 or -1 for the usual number".to_owned()),
    }
}

impl ThreadArgs {
    /// The pool for this number of threads.
    pub fn pool(self) -> crate::Result<rayon::ThreadPool> {
        thread_pool(self.threads)
    }
}

/// `--force`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct OutputArgs {
    /// Replace the output if it exists
    #[arg(long)]
    pub force: bool,
}

/// `--reserve-metadata`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ReserveArgs {
    /// Room for later edits of the metadata: writes a key `gguf.pad` with an array of that many bytes behind all
    /// others, so that keys can change in place, without moving the data. 4096, 64K, 1M
    #[arg(long, value_name = "SIZE", value_parser = parse_reserve)]
    pub reserve_metadata: Option<usize>,
}

impl ReserveArgs {
    /// Puts the room, if asked for, behind all other keys; room that was there before goes.
    pub fn add_to(self, metadata: &mut gguf::Metadata) {
        metadata.remove(key::PAD);
        if let Some(n) = self.reserve_metadata.filter(|&n| n > 0) {
            metadata.set(key::PAD, vec![0_u8; n].into());
        }
    }
}

/// Readers take heads of [`MAX_HEAD_BYTES`], of which the room may be half.
const MAX_RESERVE: u64 = MAX_HEAD_BYTES / 2;

fn parse_reserve(text: &str) -> Result<usize, String> {
    let n = parse_size(text)?;
    usize::try_from(n)
        .ok()
        .filter(|_| n <= MAX_RESERVE)
        .ok_or_else(|| {
            format!(
                "expected at most {}, found {}",
                human_bytes(MAX_RESERVE),
                human_bytes(n)
            )
        })
}

/// A number of bytes as people give it: a whole number with `K`, `M`, `G` or `T` behind it for KiB, MiB, GiB or
/// TiB, or with nothing for bytes. Letters of either case.
///
/// # Errors
/// Everything else, and more than 64 bits hold, in words for a clap parser.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size such as 4096, 64K, 20M or 5G".to_owned();
    let (digits, shift) = match text.char_indices().next_back().ok_or_else(wrong)? {
        (_, '0'..='9') => (text, 0),
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        (at, 't' | 'T') => (&text[..at], 40),
        _ => return Err(wrong()),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| "expected a size of at most 64 bits".to_owned())
}

/// A number of bytes, not 0, with `K`, `M`, `G` or `T` behind it in decimal units (`2G` is 2,000,000,000 bytes), as
/// llama.cpp's splitter takes it and upload limits are given. Letters of either case.
///
/// # Errors
/// Everything else, and more than 64 bits hold, in words for a clap parser.
pub fn parse_decimal_size(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size such as 500M or 2G".to_owned();
    let (digits, unit) = match text.char_indices().next_back().ok_or_else(wrong)? {
        (_, '0'..='9') => (text, 1),
        (at, 'k' | 'K') => (&text[..at], 1_000),
        (at, 'm' | 'M') => (&text[..at], 1_000_000),
        (at, 'g' | 'G') => (&text[..at], 1_000_000_000),
        (at, 't' | 'T') => (&text[..at], 1_000_000_000_000),
        _ => return Err(wrong()),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let n = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    match n {
        Some(0) => Err("expected more than 0 bytes".to_owned()),
        Some(n) => Ok(n),
        None => Err("expected a size of at most 64 bits".to_owned()),
    }
}

/// `-q`, `--quiet`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct TalkArgs {
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

#[cfg(test)]
mod tests {
    use gguf::{Metadata, Value, key};

    use super::{ReserveArgs, parse_decimal_size, parse_reserve, parse_size, parse_threads};

    #[test]
    fn sizes_have_binary_units() {
        for (text, n) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65_536),
            ("1m", 1 << 20),
            ("3G", 3 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(n), "{text}");
        }
        for text in [
            "",
            "K",
            "-1",
            "+1",
            "1.5M",
            "64KB",
            " 1",
            "1ä",
            "99999999999999999999",
            "99999999T",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert!(parse_reserve("1G").is_err_and(|e| e.contains("at most")));
    }

    #[test]
    fn sizes_of_shards_have_decimal_units() {
        assert_eq!(parse_decimal_size("4M"), Ok(4_000_000));
        assert_eq!(parse_decimal_size("2g"), Ok(2_000_000_000));
        assert_eq!(parse_decimal_size("123"), Ok(123));
        for wrong in ["", "M", "-4M", "4.5M", "4X", "0", "99999999999T", "4 M"] {
            assert!(parse_decimal_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_of_threads_are_those_of_llama_cpp() {
        for (text, n) in [("-1", 0), ("0", 0), ("12", 12)] {
            assert_eq!(parse_threads(text), Ok(n), "{text}");
        }
        for text in ["-2", "", "two", "1.5"] {
            assert!(
                parse_threads(text).is_err_and(|e| e.contains("0 or -1")),
                "{text}"
            );
        }
    }

    #[test]
    fn room_lies_behind_all_keys_and_replaces_what_was_there() {
        let mut metadata: Metadata = [(key::PAD, Value::from(vec![0_u8; 9])), ("a", Value::U8(1))]
            .into_iter()
            .collect();
        let reserve = |n| ReserveArgs { reserve_metadata: n };
        reserve(Some(4)).add_to(&mut metadata);
        let pairs: Vec<_> = metadata.iter().collect();
        assert_eq!(
            pairs,
            [("a", &Value::U8(1)), (key::PAD, &Value::from(vec![0_u8; 4]))]
        );
        for none in [None, Some(0)] {
            reserve(none).add_to(&mut metadata);
            assert!(!metadata.contains(key::PAD));
        }
    }
}
