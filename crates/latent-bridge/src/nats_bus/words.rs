//! What a broker says, fit for errors and logs: bounded, and without what could move a terminal's cursor or turn its text around. Pure.

use std::fmt::{self, Write as _};

/// Characters of one text of the broker's that are shown.
const CHARS_MAX: usize = 300;

/// Shows a text of the broker's; what is too long is cut, and says so.
pub(super) struct Told<'t>(pub(super) &'t str);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        for c in chars.by_ref().take(CHARS_MAX) {
            if is_unfit(c) { write!(f, "{}", c.escape_unicode())? } else { f.write_char(c)? }
        }
        if chars.next().is_some() { f.write_char('…') } else { Ok(()) }
    }
}

/// Control characters, and marks of direction.
fn is_unfit(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// [`Told`] as a text, of whatever shows itself.
pub(super) fn told(words: impl fmt::Display) -> String {
    Told(&words.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_is_shown_by_its_number() {
        let table = [
            ("maximum messages exceeded", "maximum messages exceeded"),
            ("grün 😀", "grün 😀"),
            ("a\x1b[2Jb\r\n\0", "a\\u{1b}[2Jb\\u{d}\\u{a}\\u{0}"),
            ("\u{9b}31m\u{202e}x", "\\u{9b}31m\\u{202e}x"),
        ];
        for (text, shown) in table {
            assert_eq!(told(text), shown);
        }
    }

    #[test]
    fn a_long_text_is_cut_at_three_hundred_characters() {
        for (chars, is_cut) in [(300, false), (301, true), (1_000_000, true)] {
            let shown = told("ü".repeat(chars));
            assert_eq!((shown.chars().count(), shown.ends_with('…')), (300 + usize::from(is_cut), is_cut));
        }
    }
}
