//! What a node keeps of itself under `<data_dir>/host`: what was revoked, and what the clock said. The directory belongs to whoever
//! holds the log's lock.
//!
//! `checked_lines` is the form of these files, `files` replaces one as a whole, `revocations` and `clock_file` give two of them their
//! meaning, `clock_watch` is the shell around the judgement of the clock. The page `docs/formats/host-files.md` has the bytes.

mod checked_lines;
mod clock_file;
mod clock_watch;
mod files;
mod revocations;

pub(crate) use clock_watch::{ClockWatch, held_words};
pub(crate) use files::{HostFileError, HostFiles};
pub(crate) use revocations::{RevocationFile, read_revocations};
