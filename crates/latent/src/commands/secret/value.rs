//! The value of a secret on its way into the store: one buffer, wiped when it is dropped.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;
use std::path::Path;

use latent_secrets::limits::SECRET_VALUE_BYTES;
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::error::CliError;

/// A value, its line end, and one byte that shows that there is more.
const BUFFER_BYTES: usize = SECRET_VALUE_BYTES.max_usize() + 3;

/// Reads the value from `file`, or from standard input, and cuts off one line end. The store says what is too long or empty.
pub(super) fn read(file: Option<&Path>) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let Some(path) = file.filter(|path| path.as_os_str() != "-") else {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            let reason = "it is a terminal, which would show the value; send the value through a pipe, or name a file with --value-file";
            return Err(CliError::Value { option: "standard input", reason: reason.to_owned() });
        }
        return read_from(stdin).map_err(|errno| unreadable(Path::new("-"), errno.into()));
    };
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    read_from(file).map_err(|errno| unreadable(path, errno.into()))
}

fn unreadable(file: &Path, error: io::Error) -> CliError {
    CliError::Input { file: file.to_owned(), reason: error.to_string() }
}

/// Past the standard library's buffers, which nobody wipes.
fn read_from(source: impl AsFd) -> Result<Zeroizing<Vec<u8>>, Errno> {
    let mut value = Zeroizing::new(vec![0; BUFFER_BYTES]);
    let mut bytes = 0;
    while let Some(rest) = value.get_mut(bytes..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(&source, rest) {
            Ok(0) => break,
            Ok(read) => bytes += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    value.truncate(bytes);
    let cut = without_line_end(&value).len();
    value.truncate(cut);
    Ok(value)
}

fn without_line_end(value: &[u8]) -> &[u8] {
    let Some(line) = value.strip_suffix(b"\n") else { return value };
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_cut_off_and_nothing_else() {
        for (given, value) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a\r", "a\r"), (" a \n", " a "), ("\n", ""), ("", "")]
        {
            assert_eq!(without_line_end(given.as_bytes()), value.as_bytes(), "{given:?}");
        }
    }

    #[test]
    fn the_longest_value_and_its_line_end_are_read_and_what_is_longer_stays_too_long() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("value");
        let max = SECRET_VALUE_BYTES.max_usize();
        for (bytes, end, read_bytes) in [
            (max, "", max),
            (max, "\n", max),
            (max, "\r\n", max),
            (max + 1, "", max + 1),
            (max + 1, "\r\n", max + 1),
            (100_000, "", max + 3),
        ] {
            std::fs::write(&path, "x".repeat(bytes) + end).unwrap();
            let value = read(Some(&path)).unwrap();
            assert_eq!(value.len(), read_bytes, "{bytes} {end:?}");
            assert_eq!(value.len() > max, bytes > max);
        }
        assert!(read(Some(&temp.path().join("gone"))).is_err() && read(Some(temp.path())).is_err());
    }
}
