//! A sample of the crash matrix of the archive on a real broker: the process ends at every change of a file of its outbox.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use latent_bridge::embedded::{OpenAs, OsStorage, PathKind, Storage, StorageFile};
use latent_bridge::{EventBus, NatsBus};
use latent_core::UnixMillis;
use latent_testkit::require_broker;

use crate::cold::{LATER, Site, archived, in_a_while};
use crate::live::record;

/// A file system that makes so many changes and then none: the process has ended.
#[derive(Clone)]
struct Ending(Arc<AtomicU64>);

impl Ending {
    fn change(&self) -> io::Result<()> {
        let took = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        took.map(drop).map_err(|_| io::Error::other("the process has ended"))
    }
}

struct EndingFile(Arc<dyn StorageFile>, Ending);

impl Storage for Ending {
    fn open(&self, path: &Path, how: OpenAs) -> io::Result<Arc<dyn StorageFile>> {
        if how != OpenAs::Existing {
            self.change()?;
        }
        Ok(Arc::new(EndingFile(OsStorage.open(path, how)?, self.clone())))
    }

    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        OsStorage.kind(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        OsStorage.list(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.change().and_then(|()| OsStorage.create_directory(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change().and_then(|()| OsStorage.rename(from, to))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change().and_then(|()| OsStorage.hard_link(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change().and_then(|()| OsStorage.remove_file(path))
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        self.change()
    }
}

impl StorageFile for EndingFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.1.change().and_then(|()| self.0.write_at(bytes, at))
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        self.1.change().and_then(|()| self.0.resize(bytes))
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn sync(&self) -> io::Result<()> {
        self.1.change()
    }
}

#[test]
fn the_process_ends_at_every_change_of_its_outbox_and_each_event_is_stored_and_archived_once_or_not_at_all() {
    require_broker!();
    let site = Site::start();
    drop(site.bus());
    let (mut ends, mut whole) = (0, false);
    let (mut events, mut uncertain) = (0, 0);
    while !whole {
        assert!(ends < 100);
        let ending = Ending(Arc::new(AtomicU64::new(u64::MAX)));
        let mut options = site.options();
        options.archive.as_mut().unwrap().storage = Arc::new(ending.clone());
        let bus = NatsBus::open_with(options, &archived(2)).unwrap();
        ending.0.store(ends, Ordering::SeqCst);
        let uid = format!("u{ends}");
        let published = bus.publish_record("t", &record(&uid, "k", "x"));
        if published.is_ok() {
            // What follows an acknowledgement ends there, too, or comes to its end.
            latent_testkit::wait_until("the upload ends", || site.intents() == 0 || ending.0.load(Ordering::SeqCst) == 0);
        }
        whole = ending.0.load(Ordering::SeqCst) > 0;
        drop(bus);
        let is_staged = site.intents() > 0;
        let bus = site.bus();
        let report = bus.maintain(in_a_while()).unwrap();
        let again = bus.maintain(UnixMillis(in_a_while().0 + LATER)).unwrap();
        assert_eq!((again.intents_pending, again.intents_failed), (0, 0), "{ends}: {report:?}");
        events += u64::from(is_staged || published.is_ok());
        uncertain += u64::from(published.as_ref().is_err_and(latent_bridge::BusError::is_uncertain));
        let context = format!("{ends} changes: {published:?}, staged: {is_staged}");
        assert_eq!((site.messages(), site.objects() as u64, site.intents()), (events, events, 0), "{context}");
        let found = bus.find_event_by_uid("t", "k", &uid).unwrap();
        assert_eq!(found.is_some(), is_staged || published.is_ok(), "{context}");
        ends += 1;
    }
    assert!(ends > 8 && uncertain > 3, "{ends} ends, {uncertain} uncertain");
}
