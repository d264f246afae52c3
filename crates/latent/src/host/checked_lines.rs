//! The form of the node's own files: text whose lines each carry a checksum, so that a changed or lost one is noticed and a whole one
//! can be taken out by hand.
//!
//! ```text
//! latent-<kind> <version>
//! <CRC-32 of what follows the space, 8 hexadecimal digits> <line>
//! …
//! end
//! ```

/// Which file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// First word of its first line.
    pub(super) kind: &'static str,
    /// The one version that is read and written.
    pub(super) version: u32,
}

/// Why a text is not of its form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    /// Not text.
    #[error("it is not UTF-8")]
    NotText,
    /// Another file, or another version of it.
    #[error("its first line is {found:?} and not {expected:?}")]
    Head {
        /// What stands there, cut.
        found: String,
        /// What should.
        expected: String,
    },
    /// A line whose checksum is not its own.
    #[error("line {number} was changed: its checksum is another one")]
    Changed {
        /// Counted from 1.
        number: usize,
    },
    /// The end is missing, or something follows it.
    #[error("it does not end with the line `end`")]
    Cut,
}

/// Characters of a foreign first line that are repeated.
const HEAD_CHARS: usize = 60;

impl Form {
    fn head(self) -> String {
        format!("{} {}", self.kind, self.version)
    }

    /// The text of `lines`, none of which may hold a line break.
    pub(super) fn encode<L: AsRef<str>>(self, lines: impl IntoIterator<Item = L>) -> Vec<u8> {
        let mut text = self.head();
        for line in lines {
            let line = line.as_ref();
            text.push_str(&format!("\n{:08x} {line}", crc32fast::hash(line.as_bytes())));
        }
        text.push_str("\nend\n");
        text.into_bytes()
    }

    /// The lines of a text, each with its number.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(super) fn decode(self, bytes: &[u8]) -> Result<Vec<(usize, &str)>, Malformed> {
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed::NotText)?;
        let (head, rest) = text.split_once('\n').unwrap_or((text, ""));
        if head != self.head() {
            return Err(Malformed::Head { found: head.chars().take(HEAD_CHARS).collect(), expected: self.head() });
        }
        let body = rest.strip_suffix("end\n").filter(|body| body.is_empty() || body.ends_with('\n')).ok_or(Malformed::Cut)?;
        body.split_terminator('\n').enumerate().map(|(index, line)| Ok((index + 2, checked(index + 2, line)?))).collect()
    }
}

/// A line without its checksum.
fn checked(number: usize, line: &str) -> Result<&str, Malformed> {
    let (check, content) = line.split_once(' ').ok_or(Malformed::Changed { number })?;
    let own = format!("{:08x}", crc32fast::hash(content.as_bytes()));
    if check == own { Ok(content) } else { Err(Malformed::Changed { number }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Form = Form { kind: "latent-demo", version: 3 };

    #[test]
    fn what_is_written_is_read() {
        for lines in [&[][..], &["a"], &["a b", "", "ü"]] {
            let numbered: Vec<_> = lines.iter().enumerate().map(|(index, line)| (index + 2, *line)).collect();
            assert_eq!(FORM.decode(&FORM.encode(lines)), Ok(numbered));
        }
        assert_eq!(FORM.encode(["a"]), b"latent-demo 3\ne8b7be43 a\nend\n");
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let whole = FORM.encode(["first line", "second line"]);
        for at in 0..whole.len() {
            assert!(FORM.decode(&whole[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                assert!(FORM.decode(&changed).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_whole_line_may_be_taken_out() {
        let text = String::from_utf8(FORM.encode(["one", "two", "three"])).unwrap();
        let without: String = text.split_inclusive('\n').filter(|line| !line.contains("two")).collect();
        assert_eq!(FORM.decode(without.as_bytes()), Ok(vec![(2, "one"), (3, "three")]));
    }

    #[test]
    fn each_fault_has_its_words() {
        let cases: [(&[u8], &str); 5] = [
            (b"\xff", "it is not UTF-8"),
            (b"latent-demo 4\nend\n", "its first line is \"latent-demo 4\" and not \"latent-demo 3\""),
            (b"latent-demo 3\n00000000 a\nend\n", "line 2 was changed: its checksum is another one"),
            (b"latent-demo 3\ne8b7be43 a\n", "it does not end with the line `end`"),
            (b"latent-demo 3\nend\nend", "it does not end with the line `end`"),
        ];
        for (text, words) in cases {
            assert_eq!(FORM.decode(text).unwrap_err().to_string(), words);
        }
    }
}
