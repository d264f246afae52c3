//! The data directory: names, control files, and who may use it. Other files in it belong to others and are left alone.
//!
//! A control file is replaced as a whole: temporary file, sync, rename, sync of the directory.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::frame::Salt;
use super::storage::{OpenAs, PathKind, Storage};
use crate::error::base_name;
use crate::{BusError, limits};

/// First line of the format file, without the version.
const FORMAT_NAME: &str = "latent-embedded-log";
/// The one version of the format.
pub(super) const FORMAT_VERSION: u32 = 2;

/// Names in a data directory.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn manifest(&self) -> PathBuf {
        self.root.join("manifest.yaml")
    }

    pub(super) fn format(&self) -> PathBuf {
        self.root.join("format")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(super) fn topics(&self) -> PathBuf {
        self.root.join("topics")
    }

    pub(super) fn topic(&self, name: &str) -> PathBuf {
        self.topics().join(name)
    }

    pub(super) fn schemas(&self) -> PathBuf {
        self.root.join("schemas")
    }

    pub(super) fn cold_outbox(&self) -> PathBuf {
        self.root.join("cold-outbox")
    }

    pub(super) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    pub(super) fn state_log(&self, name: &str) -> PathBuf {
        self.state().join(format!("{name}.log"))
    }
}

/// Name of the segment whose first record has this sequence.
pub(super) fn segment_name(first_sequence: u64) -> String {
    format!("{first_sequence:020}.seg")
}

/// The first sequence of a segment with this name, or `None` when it is no segment's name.
pub(super) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg").filter(|digits| digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

/// As [`parse_segment_name`], of the file that a path names.
pub(super) fn first_sequence_named(path: &Path) -> Option<u64> {
    parse_segment_name(path.file_name()?.to_str()?)
}

/// The name under which a control file is prepared.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    path.with_file_name(name)
}

/// Reads a control file whole. `None` when it is missing.
pub(crate) fn read_control(storage: &dyn Storage, path: &Path) -> Result<Option<Vec<u8>>, BusError> {
    let failed = |error: std::io::Error| BusError::io("read", path, &error);
    match storage.kind(path).map_err(failed)? {
        PathKind::Missing => return Ok(None),
        PathKind::File => {}
        PathKind::Directory | PathKind::Unusual => {
            let problem = format!("{} is not a regular file; put the file itself there", base_name(path));
            return Err(BusError::Config { problem });
        }
    }
    let file = storage.open(path, OpenAs::Existing).map_err(failed)?;
    let bytes = file.bytes().map_err(failed)?;
    let length = limits::CONTROL_FILE_BYTES.check(bytes.max(limits::CONTROL_FILE_BYTES.min)).map(|_| bytes);
    let length = length.map_err(|_| too_large(path, bytes))?;
    let mut content = vec![0; usize::try_from(length).unwrap_or_default()];
    let read = file.read_at(&mut content, 0).map_err(failed)?;
    content.truncate(read);
    Ok(Some(content))
}

fn too_large(path: &Path, bytes: u64) -> BusError {
    let max = limits::CONTROL_FILE_BYTES.max;
    let problem = format!("{} has {bytes} bytes and at most {max} are read; it is not a file of this engine", base_name(path));
    BusError::Config { problem }
}

/// Writes a file under its temporary name, durably.
pub(crate) fn write_temporary(storage: &dyn Storage, path: &Path, content: &[u8]) -> Result<PathBuf, BusError> {
    let prepared = temporary(path);
    let write = || {
        let file = storage.open(&prepared, OpenAs::Empty)?;
        file.write_at(content, 0)?;
        file.sync()
    };
    match write() {
        Ok(()) => Ok(prepared),
        Err(error) => {
            discard(storage, &prepared);
            Err(BusError::io("write", path, &error))
        }
    }
}

/// Replaces a control file as a whole, durably.
pub(crate) fn write_control(storage: &dyn Storage, path: &Path, content: &[u8]) -> Result<(), BusError> {
    let prepared = write_temporary(storage, path, content)?;
    if let Err(error) = storage.rename(&prepared, path) {
        discard(storage, &prepared);
        return Err(BusError::io("rename", path, &error));
    }
    sync_parent(storage, path)
}

/// Moves a file out of the way under a name that says that it is damaged, durably. Nothing earlier is replaced.
pub(super) fn set_aside(storage: &dyn Storage, path: &Path) -> Result<PathBuf, BusError> {
    let failed = |error: std::io::Error| BusError::io("rename", path, &error);
    for number in 1..=SET_ASIDE_MAX {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".damaged-{number}"));
        let aside = path.with_file_name(name);
        if storage.kind(&aside).map_err(failed)? == PathKind::Missing {
            storage.rename(path, &aside).map_err(failed)?;
            sync_parent(storage, path)?;
            return Ok(aside);
        }
    }
    let problem = format!("{} and {SET_ASIDE_MAX} files set aside before it are damaged; move them away", base_name(path));
    Err(BusError::Config { problem })
}

/// Damaged files of one name that are kept.
const SET_ASIDE_MAX: u32 = 100;

/// Makes the name of `path` durable.
pub(crate) fn sync_parent(storage: &dyn Storage, path: &Path) -> Result<(), BusError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    storage.sync_directory(parent).map_err(|error| BusError::io("sync", parent, &error))
}

/// Removes a temporary file. When that fails it stays, and the next writer of the same name empties it.
pub(crate) fn discard(storage: &dyn Storage, prepared: &Path) {
    if let Err(error) = storage.remove_file(prepared)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(file = base_name(prepared), %error, "a temporary file could not be removed");
    }
}

/// Creates a directory and the missing ones above it, durably.
pub(crate) fn create_directories(storage: &dyn Storage, path: &Path) -> Result<(), BusError> {
    let mut missing = Vec::new();
    for ancestor in path.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()) {
        // Asked without following links would call a link to a directory unusual; a trailing dot follows it.
        match storage.kind(&ancestor.join(".")) {
            Ok(PathKind::Directory) => break,
            _ => missing.push(ancestor),
        }
    }
    for directory in missing.into_iter().rev() {
        storage.create_directory(directory).map_err(|error| BusError::io("create", directory, &error))?;
        sync_parent(storage, directory)?;
    }
    Ok(())
}

/// Identity of a data directory, from which the salts of its logs are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoreId(pub(super) [u8; 16]);

impl StoreId {
    pub(super) fn salt(&self, log: &str) -> Salt {
        Salt::of(&self.0, log)
    }

    /// As it is written in control files.
    pub(super) fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A key of this store for one purpose: the first 16 bytes of SHA-256(store id, purpose).
    pub(super) fn derived(&self, purpose: &str) -> [u8; 16] {
        let digest = Sha256::new().chain_update(self.0).chain_update(purpose.as_bytes()).finalize();
        let mut key = [0; 16];
        key.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        key
    }
}

/// Begins the last line of a control file of text. YAML takes it for a comment.
const CHECK_PREFIX: &str = "# check ";

/// `text` with a last line that tells whether it is still what was written.
pub(crate) fn with_check(text: &str) -> String {
    format!("{text}{CHECK_PREFIX}{:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// The text of a control file, if it is what was written.
pub(crate) fn checked_text<'c>(file: &str, content: &'c [u8]) -> Result<&'c str, BusError> {
    let text = std::str::from_utf8(content).ok().and_then(|content| {
        let (text, check) = content.strip_suffix('\n')?.rsplit_once('\n').map(|(text, check)| (&content[..text.len() + 1], check))?;
        let expected = format!("{CHECK_PREFIX}{:08x}", crc32fast::hash(text.as_bytes()));
        (check == expected).then_some(text)
    });
    text.ok_or_else(|| {
        let problem =
            format!("{file} is not what was written: its checksum does not fit; nothing was touched, restore the file from a copy");
        BusError::Config { problem }
    })
}

/// Text of a format file.
pub(super) fn render_format(store: StoreId) -> String {
    with_check(&format!("{FORMAT_NAME} {FORMAT_VERSION}\nstore {}\n", store.hex()))
}

/// Reads a format file. Anything but the one known version is refused.
pub(super) fn parse_format(content: &[u8]) -> Result<StoreId, BusError> {
    let text = String::from_utf8_lossy(content);
    let mut lines = text.lines();
    let version = lines.next().and_then(|line| line.strip_prefix(FORMAT_NAME)).map(str::trim);
    if version != Some(&*FORMAT_VERSION.to_string()) {
        let found = version.map_or_else(|| "no version".to_owned(), |version| format!("version {:.20}", version));
        let problem = format!(
            "format says {found} and this program reads version {FORMAT_VERSION}; nothing was touched, use the program that wrote it"
        );
        return Err(BusError::Config { problem });
    }
    checked_text("format", content)?;
    let id = lines.next().and_then(|line| line.strip_prefix("store ")).and_then(parse_hex);
    id.map(StoreId).ok_or_else(|| BusError::Config { problem: "format has no valid store id; restore the file from a copy".to_owned() })
}

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_reads_back_and_another_version_is_refused() {
        let store = StoreId([0xab; 16]);
        let text = render_format(store);
        assert_eq!(parse_format(text.as_bytes()), Ok(store));
        let checked = with_check("latent-embedded-log 1\nstore zz\n");
        for bad in ["", "latent-embedded-log 2\nstore 00\n", "latent-embedded-log 1\n", &checked, "\0\0\0"] {
            assert!(matches!(parse_format(bad.as_bytes()), Err(BusError::Config { .. })), "{bad:?}");
        }
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(parse_format(&flipped), Err(BusError::Config { .. })), "bit {bit}");
        }
    }

    #[test]
    fn segment_names_are_exact() {
        assert_eq!(parse_segment_name(&segment_name(42)), Some(42));
        assert_eq!(parse_segment_name(&segment_name(u64::MAX)), Some(u64::MAX));
        for bad in ["42.seg", "00000000000000000042.seg.tmp", "99999999999999999999.seg", "0000000000000000004x.seg"] {
            assert_eq!(parse_segment_name(bad), None, "{bad}");
        }
    }
}
