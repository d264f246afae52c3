//! Where in a document, or in a type, something is: `$[0].payload[3]`.

use std::fmt::{self, Write as _};

use crate::activation_log::harmless;
use crate::limits;

/// A place, as it is shown in errors. Made from the inside out while an error is handed up, so that success costs nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path {
    /// Innermost first.
    steps: Vec<Step>,
    /// The parameter that the outermost step leads to, bounded and harmless.
    parameter: Option<Box<str>>,
}

/// One step inwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// An element of an array or tuple.
    Index(usize),
    /// Any element of a list type.
    Element,
    /// A key, field or case, bounded and harmless.
    Name(String),
}

impl Step {
    pub(super) fn name(name: &str) -> Self {
        Self::Name(shown(name))
    }
}

/// A name of a document or component as it may be shown.
pub(super) fn shown(name: &str) -> String {
    let (mut text, cut) = harmless(name, limits::VALUES_SHOWN_BYTES.max_usize());
    if cut > 0 {
        text.push('…');
    }
    text
}

impl Path {
    /// The same place seen from one level further out.
    pub(super) fn push_outer(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Says which parameter the place lies in. `name` gives the name of the parameter at an index.
    pub(super) fn name_parameter<'a>(&mut self, name: impl FnOnce(usize) -> Option<&'a str>) {
        if let Some(Step::Index(index)) = self.steps.last() {
            self.parameter = name(*index).map(|name| shown(name).into());
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('$')?;
        let mut room = limits::VALUES_PATH_BYTES.max_usize() - 1;
        for step in self.steps.iter().rev() {
            let text = step.to_string();
            let Some(left) = room.checked_sub(text.len()) else {
                f.write_char('…')?;
                break;
            };
            room = left;
            f.write_str(&text)?;
        }
        self.parameter.iter().try_for_each(|name| write!(f, " (parameter `{name}`)"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Element => f.write_str("[]"),
            Self::Name(name) => write!(f, ".{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(outermost_first: impl IntoIterator<Item = Step>) -> Path {
        let mut steps: Vec<_> = outermost_first.into_iter().collect();
        steps.reverse();
        Path { steps, parameter: None }
    }

    #[test]
    fn a_path_reads_from_the_outside_in() {
        assert_eq!(path([]).to_string(), "$");
        assert_eq!(path([Step::Index(0), Step::name("payload"), Step::Index(3), Step::Element]).to_string(), "$[0].payload[3][]");
    }

    #[test]
    fn names_are_cut_at_their_edge_and_made_harmless() {
        for (bytes, expected) in [(63, "x".repeat(63)), (64, "x".repeat(64)), (65, "x".repeat(64) + "…"), (9_000, "x".repeat(64) + "…")]
        {
            assert_eq!(shown(&"x".repeat(bytes)), expected, "{bytes}");
        }
        assert_eq!(shown("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
    }

    #[test]
    fn a_path_is_cut_at_its_edge_between_two_steps() {
        // `$` and 127 steps of four bytes are 509 bytes.
        let with_last = |last: &str| path((0..127).map(|_| Step::name("abc")).chain([Step::name(last)])).to_string();
        assert_eq!(with_last("xy").len(), 512);
        assert!(with_last("xyz").ends_with("abc…"));
        assert_eq!(path((0..9_000).map(Step::Index)).to_string().chars().last(), Some('…'));
    }
}
