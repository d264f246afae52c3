//! The cache's directory: opened once as ours alone, then only used through that handle, so that whatever happens to its path later
//! changes nothing.
//!
//! Files: `key`; entries under their name; `.new-*` while one is written, locked by its writer. Invariants: an entry's name appears
//! with the whole entry behind it; a file without its writer's lock is nobody's and goes with the next opening. Names that are none of
//! these are not touched.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::CompiledCacheError;
use super::entry::{KEY_BYTES, Key, is_entry_name};
use super::eviction::{Held, Standing};

const KEY_FILE: &str = "key";
const UNFINISHED: &str = ".new-";
/// How often a key is begun at most, when others open the directory in the same moment.
const KEY_ATTEMPTS: usize = 8;
/// Permission bits that let somebody else in.
const OTHERS: u32 = 0o077;

pub(super) struct Folder {
    path: PathBuf,
    handle: File,
    /// Puts an entry's parts into its new file. A field, so that tests can let the disk fill up here.
    pub(super) write: fn(&mut File, &[&[u8]]) -> io::Result<()>,
}

impl Folder {
    /// Opens the directory, or makes it, and refuses one that somebody else can write to.
    pub(super) fn open(path: &Path) -> Result<Self, CompiledCacheError> {
        let failed = |action| move |error: io::Error| CompiledCacheError::io(action, path, &error);
        if matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound) {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("made"))?;
        }
        // A slash at the end would make the system follow a symbolic link.
        let named: PathBuf = path.components().collect();
        let handle = match rustix::fs::open(&named, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(handle) => File::from(handle),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(CompiledCacheError::NotADirectory { path: path.to_owned() }),
            Err(error) => return Err(failed("opened")(error.into())),
        };
        let metadata = handle.metadata().map_err(failed("inspected"))?;
        must_be_ours(path, metadata.uid())?;
        let mode = metadata.mode() & 0o777;
        if mode & OTHERS != 0 {
            return Err(CompiledCacheError::DirectoryOpen { path: path.to_owned(), mode });
        }
        Ok(Self { path: path.to_owned(), handle, write: |file, parts| parts.iter().try_for_each(|part| file.write_all(part)) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory's key, made when there is none.
    pub(super) fn key(&self) -> Result<Key, CompiledCacheError> {
        let path = self.path.join(KEY_FILE);
        let failed = |action| move |error: io::Error| (action, error);
        let key = || {
            let mut made = Ok(());
            // Another process's opening may take an unfinished key for a leftover; each time that happens somebody has gone on.
            for _ in 0..KEY_ATTEMPTS {
                if let Some(file) = self.existing(KEY_FILE).map_err(failed("opened"))? {
                    return Ok(file);
                }
                made = self.make_key();
            }
            made.map_err(failed("made"))?;
            self.existing(KEY_FILE).map_err(failed("opened"))?.ok_or(("opened", io::ErrorKind::NotFound.into()))
        };
        let io_failed = |(action, error): (&'static str, io::Error)| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::LOOP) => CompiledCacheError::KeyMalformed { path: path.clone(), expected: KEY_BYTES },
            _ => CompiledCacheError::io(action, &path, &error),
        };
        let mut file = key().map_err(io_failed)?;
        let metadata = file.metadata().map_err(|error| io_failed(("inspected", error)))?;
        must_be_ours(&path, metadata.uid())?;
        let mode = metadata.mode() & 0o777;
        if mode & OTHERS != 0 {
            return Err(CompiledCacheError::KeyOpen { path, mode });
        }
        if !metadata.is_file() || metadata.len() != KEY_BYTES as u64 {
            return Err(CompiledCacheError::KeyMalformed { path, expected: KEY_BYTES });
        }
        let mut bytes = [0; KEY_BYTES];
        file.read_exact(&mut bytes).map_err(|error| io_failed(("read", error)))?;
        Ok(Key::new(&bytes))
    }

    /// Makes a key that is whole and durable before it has its name. Of two processes one wins, and both use that one's.
    fn make_key(&self) -> io::Result<()> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let (temporary, mut file) = self.unfinished()?;
        let linked = file.write_all(&bytes).and_then(|()| file.sync_all()).and_then(|()| {
            match rustix::fs::linkat(&self.handle, temporary.as_str(), &self.handle, KEY_FILE, AtFlags::empty()) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(error.into()),
            }
        });
        self.remove(&temporary)?;
        linked?;
        self.handle.sync_all()
    }

    /// The whole entry, read once, or `None` when there is none. One above `bytes_max` is cut right behind that and so cannot hold.
    pub(super) fn read(&self, name: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.existing(name)? else { return Ok(None) };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Some(Vec::new()));
        }
        let bytes_max = bytes_max.saturating_add(1);
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(bytes_max)).unwrap_or(0).saturating_add(1));
        (&file).take(bytes_max).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Notes that the entry was used now.
    pub(super) fn touch(&self, name: &str) -> io::Result<()> {
        self.existing(name)?.map_or(Ok(()), |file| file.set_modified(SystemTime::now()))
    }

    /// Writes an entry under a temporary name, makes it durable and gives it its name.
    pub(super) fn put(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let (temporary, mut file) = self.unfinished()?;
        let put = (self.write)(&mut file, parts)
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(rustix::fs::renameat(&self.handle, temporary.as_str(), &self.handle, name)?));
        if put.is_err() {
            // The first error tells more than that of cleaning up, which the next opening does as well.
            let _ = self.remove(&temporary);
        }
        put
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Every entry and unfinished file. `current` is how names of the asking engine's entries end.
    pub(super) fn held(&self, current: Option<&str>) -> io::Result<Vec<Held>> {
        let mut held = Vec::new();
        for name in self.names()? {
            let standing = if name.starts_with(UNFINISHED) {
                Standing::Unfinished
            } else if !is_entry_name(&name) {
                continue;
            } else if current.is_none_or(|suffix| name.ends_with(suffix)) {
                Standing::Current
            } else {
                Standing::OtherEngine
            };
            // Another process may have removed it meanwhile.
            let Some(file) = self.existing(&name).ok().flatten() else { continue };
            let metadata = file.metadata()?;
            held.push(Held { name, bytes: metadata.len(), used: metadata.modified()?, standing });
        }
        Ok(held)
    }

    /// Removes what a killed writer left behind. A living one holds its file's lock.
    pub(super) fn remove_leftovers(&self) -> io::Result<()> {
        for name in self.names()?.into_iter().filter(|name| name.starts_with(UNFINISHED)) {
            if let Some(file) = self.existing(&name)?
                && file.try_lock().is_ok()
            {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for found in Dir::read_from(&self.handle)? {
            // What is not UTF-8 was not made here.
            if let Ok(name) = found?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Opens a file of this directory, never what a link in it points to, and without waiting for the other end of a pipe.
    fn existing(&self, name: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(File::from(file))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A new file that nobody else has, locked. Should another process's opening take the lock in between, it removes the file, and what
    /// was to become of it fails.
    fn unfinished(&self) -> io::Result<(String, File)> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name = format!("{UNFINISHED}{:016x}", u64::from_le_bytes(random));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.handle, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?);
        file.try_lock()?;
        Ok((name, file))
    }
}

fn must_be_ours(path: &Path, owner: u32) -> Result<(), CompiledCacheError> {
    let user = rustix::process::geteuid().as_raw();
    if owner == user { Ok(()) } else { Err(CompiledCacheError::Foreign { path: path.to_owned(), owner, user }) }
}
