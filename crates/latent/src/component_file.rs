//! Reading a component's file, as the configuration names it.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::Path;

use latent_wasmtime::limits::COMPONENT_BYTES;

/// Opens the file. What is no file is refused before it is opened, because opening a pipe waits for its other end.
///
/// # Errors
/// The system's, or that it is not a file.
pub(crate) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let refused = || io::Error::other("it is not a file");
    // Before it is opened: a pipe would wait for its other end.
    if !path.metadata()?.is_file() {
        return Err(refused());
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(refused()) }
}

/// The content. One byte more than a component may have is enough to be refused later, with the limit's name.
///
/// # Errors
/// The system's.
pub(crate) fn read_opened(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(COMPONENT_BYTES.max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens and reads it.
///
/// # Errors
/// As [`open`].
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_opened(&open(path)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused_without_waiting_for_it() {
        let temp = tempfile::tempdir().unwrap();
        let pipe = temp.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        for path in [pipe.as_path(), temp.path()] {
            assert_eq!(read(path).unwrap_err().to_string(), "it is not a file", "{}", path.display());
        }
        assert_eq!(read(&temp.path().join("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(temp.path().join("file"), "content").unwrap();
        assert_eq!(read(&temp.path().join("file")).unwrap(), b"content");
    }
}
