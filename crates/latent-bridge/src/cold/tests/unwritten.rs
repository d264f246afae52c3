//! Who archives nothing leaves nothing in a store, and who archives something has proven the store before.

use super::*;
use crate::cold::doubles::Fault;
use crate::cold::export::{Goal, ItemSource};
use crate::cold::probe::PROBE_OBJECT;
use crate::cold::segment::Item;
use crate::manifest::ColdFormat;

/// A partition with so many events.
struct Events(u64);

impl ItemSource for Events {
    fn bounds(&self) -> Result<(Offset, Offset), BusError> {
        Ok((Offset(0), Offset(self.0)))
    }

    fn page(&self, from: Offset) -> Result<Vec<Item>, BusError> {
        let item = |offset: u64| Item::Record { offset: Offset(offset), record: intent(&format!("u{offset}"), 0, Some(offset)).record };
        Ok((from.0..self.0).map(item).collect())
    }
}

fn export(archive: &Archive, events: u64, now: u64) -> Result<u64, BusError> {
    let exported = archive.export_segments(&Pass::default(), "t", Partition(0), &Events(events), Goal::from(UnixMillis(now)))?;
    Ok(exported.items)
}

fn as_a_command(directory: &Path, store: &Arc<MemoryStore>) -> Archive {
    let mut manifest = manifest();
    manifest.topics[0].retention.cold_format = Some(ColdFormat::Segments);
    let options = ArchiveOptions { probes_at_start: false, ..options(Arc::clone(store) as _) };
    let storage: Arc<dyn Storage> = Arc::new(OsStorage);
    Archive::open(&storage, &manifest, &options, directory, "tests").unwrap().unwrap()
}

#[test]
fn a_pass_with_nothing_to_archive_writes_no_probe_and_the_first_object_comes_behind_one() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let archive = as_a_command(directory.path(), &store);
    assert_eq!((export(&archive, 0, 0), export(&archive, 3, 1)), (Ok(0), Ok(0)), "nothing is there, and then nothing is due");
    assert_eq!(store.objects().len(), 0);
    assert_eq!(export(&archive, 3, limits::ARCHIVE_SEGMENT_AGE_MILLIS.default), Ok(3));
    let objects: Vec<_> = store.objects().into_keys().collect();
    assert!(objects.len() == 2 && objects.contains(&PROBE_OBJECT.to_owned()), "{objects:?}");
}

#[test]
fn a_store_that_overwrites_or_cannot_be_asked_is_told_as_such_when_there_is_something_to_archive() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let archive = as_a_command(directory.path(), &store);
    let late = limits::ARCHIVE_SEGMENT_AGE_MILLIS.default;
    store.every_put(Some(Fault::Fail));
    assert!(matches!(export(&archive, 3, late), Err(BusError::NotSent { .. })), "it may be asked another time");
    store.every_put(None);
    store.set_overwrites(true);
    let refused = export(&archive, 3, late).unwrap_err().to_string();
    assert!(refused.contains("must not be used") && !store.objects().keys().any(|path| path.starts_with("t/")), "{refused}");
}
