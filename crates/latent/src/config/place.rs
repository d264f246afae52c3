//! From byte positions to the lines and columns that people see.

use std::fmt;

/// A position in the file, both counted from 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Line.
    pub(crate) line: usize,
    /// Column.
    pub(crate) column: usize,
}

impl Place {
    /// The place of byte `at` of `text`; beyond the end it is the end.
    pub(super) fn of(text: &str, at: usize) -> Self {
        let mut at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = text.get(..at).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        Self { line: before.matches('\n').count() + 1, column }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_and_in_characters() {
        let text = "ab\nçd\r\n";
        let places = [0, 1, 2, 3, 4, 5, 7, 8, 99].map(|at| Place::of(text, at)).map(|place| (place.line, place.column));
        assert_eq!(places, [(1, 1), (1, 2), (1, 3), (2, 1), (2, 1), (2, 2), (2, 4), (3, 1), (3, 1)]);
    }
}
