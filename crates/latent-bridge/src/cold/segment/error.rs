//! What is wrong with a segment.

use super::SegmentDigest;

/// Why bytes are no segment, or a segment cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// Not one that this program writes, or one whose beginning or end is gone.
    #[error("it is no segment, or not a whole one: {problem}")]
    NotWhole {
        /// What is not there.
        problem: &'static str,
    },
    /// Another version of the format.
    #[error("it is of format version {version}; this program reads versions 1 and 2, use a newer one")]
    Version {
        /// The version it names.
        version: u32,
    },
    /// Larger than any segment may be.
    #[error("{what} is {bytes} bytes, and {max} is the most that is read")]
    TooLarge {
        /// What is.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The bound.
        max: u64,
    },
    /// Its bytes are not those it was written with.
    #[error("its bytes have changed: it says their SHA-256 is {said}, and it is {found}")]
    Changed {
        /// What its trailer says.
        said: SegmentDigest,
        /// What its bytes have.
        found: SegmentDigest,
    },
    /// Its digest is right and its parts do not agree: it was not made by this program.
    #[error("its parts do not agree: {problem}")]
    Inconsistent {
        /// Which ones.
        problem: &'static str,
    },
    /// A block cannot be read.
    #[error("block {block} of it cannot be read: {problem}")]
    Block {
        /// Which, counted from 0.
        block: usize,
        /// Why.
        problem: &'static str,
    },
    /// Something that cannot be put in.
    #[error("{what} cannot be put into a segment: {problem}")]
    Unwritable {
        /// What.
        what: String,
        /// Why.
        problem: &'static str,
    },
    /// There is no key to prove it with.
    #[error("there is no control key that protects anything; name one in `[archive] control_key_files`")]
    NoKey,
}
