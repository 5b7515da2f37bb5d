//! A line of text that is put together without the allocator: in a signal handler, and where there is no memory left.

/// Up to `N` bytes. What does not fit is left out.
#[derive(Debug)]
pub struct Line<const N: usize> {
    bytes: [u8; N],
    used: usize,
}

impl<const N: usize> Default for Line<N> {
    fn default() -> Self {
        Self {
            bytes: [0; N],
            used: 0,
        }
    }
}

impl<const N: usize> Line<N> {
    /// Adds text. Safe in a signal handler.
    pub fn push(&mut self, text: &[u8]) {
        let room = self.bytes.get_mut(self.used..).unwrap_or_default();
        for (to, &byte) in room.iter_mut().zip(text) {
            *to = byte;
            self.used += 1;
        }
    }

    /// Adds a number in decimal digits. Safe in a signal handler.
    pub fn number(&mut self, n: usize) {
        let mut power = 1;
        while n / power >= 10 {
            power *= 10;
        }
        while power > 0 {
            // A digit.
            self.push(&[b'0' + u8::try_from(n / power % 10).unwrap_or(0)]);
            power /= 10;
        }
    }

    /// What there is so far.
    pub fn text(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }
}

impl<const N: usize> std::fmt::Write for Line<N> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn numbers_are_whole_and_the_rest_is_left_out() {
        for n in [0, 9, 10, 1_234_567, usize::MAX] {
            let mut line = Line::<32>::default();
            line.number(n);
            assert_eq!(line.text(), n.to_string().as_bytes());
        }
        let mut line = Line::<32>::default();
        for _ in 0..7 {
            write!(line, "much more").expect("it is cut");
        }
        assert_eq!(line.text(), b"much moremuch moremuch moremuch ");
    }
}
