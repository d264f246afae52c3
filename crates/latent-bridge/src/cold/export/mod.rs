//! Segments on their way into the archive. What leaves hot storage is in a segment first; a crash anywhere leaves exactly one.
//!
//! ```text
//! build from the log behind the head ── stage (file, synced) ── put, create only ── head (file, synced, proven) ── staged file gone
//!                                          │                        │
//!                 taken up after a crash, ─┘                        └─ "exists": read it; ours, or one of the same chain by
//!                 byte for byte                                        another exporter, which becomes the head; else refused
//! ```
//!
//! A partition has one head. Everything at or below it is in the archive, and only that may leave hot storage: what leaves because of a head
//! that was written earlier is looked for in the store first, which may have been set back since. No lock of an engine is held
//! while a store is asked; of one partition, one export runs at a time.

mod chain;
mod error;
mod files;
mod head;
mod head_document;
mod in_store;
mod looking;
mod lookout;
mod path;
mod source;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use latent_core::{Offset, Partition, UnixMillis};

use super::segment::{Attest, FinishedSegment, Item, Pushed, Segment, SegmentBuilder, SegmentPlace, SegmentSizes};
use super::store::{ColdError, ColdStore, PutEnd};
use crate::embedded::Storage;
use crate::limits;
use chain::{Filled, Step, Waiting};
use files::HeadFiles;
use looking::Looking;
use lookout::Tally;

pub use chain::Goal;
pub use error::{ExportError, NO_SUCH_KEY};
pub(crate) use files::{HEADS, set_heads_aside};
pub use head::{ArchiveHead, AttestedHead};
pub use lookout::{Holes, KeptHole, LogSpan, Lookout, Seen};
pub(crate) use path::{ArchivedName, partition_prefix, segment_path};
pub use source::{BusItems, ItemSource};

/// What an export did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exported {
    /// Segments that are in the store now and were not known to be before.
    pub segments: u64,
    /// Items in them.
    pub items: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Up to where the partition is in the archive.
    pub cold_up_to: Option<Offset>,
    /// Holes that were found.
    pub holes: u64,
}

/// Of each topic and partition, what is known; one export of a partition at a time holds it.
type Partitions = BTreeMap<(String, u32), Arc<Mutex<Known>>>;

/// See the module.
pub struct SegmentExporter {
    files: HeadFiles,
    bus: String,
    sizes: SegmentSizes,
    partitions: Mutex<Partitions>,
    /// Holes that were found and not told of.
    holes: AtomicU64,
}

/// What is known of a partition's archive.
#[derive(Default)]
struct Known {
    /// The outer `None`: not looked at yet.
    head: Option<Option<ArchiveHead>>,
    /// What nothing was due of the last time.
    waiting: Option<Waiting>,
    /// The same, as it is written down.
    seen: Option<Seen>,
}

impl Known {
    fn head(&self) -> Option<&ArchiveHead> {
        self.head.as_ref().and_then(Option::as_ref)
    }

    fn end(&self) -> Option<Offset> {
        self.head().and_then(ArchiveHead::end)
    }
}

/// Where segments go, and what proves them.
#[derive(Clone, Copy)]
pub struct ExportTo<'e> {
    /// The store.
    pub store: &'e dyn ColdStore,
    /// The control keys in force.
    pub keys: &'e dyn Attest,
}

/// One partition on its way.
struct Export<'e> {
    exporter: &'e SegmentExporter,
    place: SegmentPlace,
    to: ExportTo<'e>,
    done: Exported,
    /// What the last segment was built in.
    spare: Option<SegmentBuilder>,
}

impl SegmentExporter {
    /// An exporter of the bus of this name. Heads and staged segments lie in `directory`, below the outbox, which its owner has locked.
    pub fn new(storage: Arc<dyn Storage>, directory: PathBuf, bus: &str, sizes: SegmentSizes) -> Self {
        Self {
            files: HeadFiles::new(storage, directory),
            bus: bus.to_owned(),
            sizes,
            partitions: Mutex::default(),
            holes: AtomicU64::new(0),
        }
    }

    /// Brings what is due of a partition into the store: full segments, what has waited for `archive_segment_age_millis`, and in any case all
    /// up to `goal.must`. When this returns, everything of the source at or below `goal.must` is in the archive.
    ///
    /// # Errors
    /// [`ExportError`]. What was done before it stays done; the next call goes on there.
    pub fn export(
        &self,
        topic: &str,
        partition: Partition,
        to: ExportTo<'_>,
        source: &dyn ItemSource,
        goal: Goal,
    ) -> Result<Exported, ExportError> {
        let known = self.known(topic, partition);
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let place = SegmentPlace { bus: self.bus.clone(), topic: topic.to_owned(), partition };
        let mut export = Export { exporter: self, place, to, done: Exported::default(), spare: None };
        let mut is_compared = export.take_up(&mut known, source, goal)?;
        let looking = Looking { source, span: source.span()?, now: goal.now };
        export.look(&mut known, looking)?;
        let (_, next) = source.bounds()?;
        let step = u64::from(self.sizes.items / 8).max(1);
        let is_read = !known.waiting.is_some_and(|waiting| waiting.goes_on(next, goal, step));
        if is_read {
            known.head().map_or(Ok(()), |head| head.check_history(source))?;
            while !goal.is_met(known.end()) {
                let Some(finished) = export.build(&mut known, looking, goal)? else { break };
                if !std::mem::replace(&mut is_compared, true) && export.look_again(&mut known)? {
                    continue;
                }
                self.files.stage(&finished)?;
                export.deliver(&mut known, finished)?;
            }
        }
        export.settle(&mut known, looking, is_read)?;
        export.done.cold_up_to = known.end();
        Ok(export.done)
    }

    /// Proves the head of a partition with the newest key, so that the older one that proves it now can leave the ring.
    ///
    /// # Errors
    /// [`ExportError`] for a head that cannot be read or written, or is not proven by any key.
    pub fn reseal(&self, topic: &str, partition: Partition, keys: &dyn Attest) -> Result<(), ExportError> {
        let known = self.known(topic, partition);
        let _alone = known.lock().unwrap_or_else(PoisonError::into_inner);
        self.files.reseal(&SegmentPlace { bus: self.bus.clone(), topic: topic.to_owned(), partition }, keys)
    }

    /// How many holes were found since this was asked, whether the exports that found them came to their end or not.
    pub fn take_holes(&self) -> u64 {
        self.holes.swap(0, Ordering::SeqCst)
    }

    /// Up to where a partition is in the archive, as far as that was written down here. Asks no store.
    ///
    /// # Errors
    /// [`ExportError`] for a head that cannot be read or is not proven.
    pub fn head(&self, topic: &str, partition: Partition, keys: &dyn Attest) -> Result<Option<ArchiveHead>, ExportError> {
        let place = SegmentPlace { bus: self.bus.clone(), topic: topic.to_owned(), partition };
        self.files.head(&place, keys)
    }

    fn known(&self, topic: &str, partition: Partition) -> Arc<Mutex<Known>> {
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(partitions.entry((topic.to_owned(), partition.0)).or_default())
    }
}

impl Export<'_> {
    /// Makes sure of the head, and finishes what a crash left. Whether the store was looked at.
    fn take_up(&mut self, known: &mut Known, source: &dyn ItemSource, goal: Goal) -> Result<bool, ExportError> {
        let exporter = self.exporter;
        let is_first = known.head.is_none();
        if is_first {
            known.head = Some(match exporter.files.head(&self.place, self.to.keys)? {
                Some(head) => Some(self.compare_with_store(head)?),
                None => self.find_in_store(source)?,
            });
        }
        let is_relied_on = known.end().is_some_and(|end| goal.must.is_some_and(|must| must <= end));
        if !is_first && is_relied_on {
            self.look_again(known)?;
        }
        if let Some(staged) = exporter.files.staged(&self.place, self.to.keys)? {
            let is_behind = known.end().is_some_and(|last| last >= staged.header.last);
            if is_behind {
                exporter.files.unstage(&self.place)?;
            } else {
                self.deliver(known, staged)?;
            }
        }
        Ok(is_first || is_relied_on)
    }

    /// The next segment behind `head`, when one is due.
    fn build(&mut self, known: &mut Known, looking: Looking<'_>, goal: Goal) -> Result<Option<FinishedSegment>, ExportError> {
        (known.waiting, known.seen) = (None, None);
        let (_, end) = looking.source.bounds()?;
        let mut builder = match self.spare.take() {
            Some(builder) => builder,
            None => SegmentBuilder::new(self.exporter.sizes)?,
        };
        let Some(from) = known.end().map_or(Some(Offset(0)), Offset::next) else { return Ok(None) };
        let (filled, tally) = fill(&mut builder, looking.source, (from, known.expected()), goal)?;
        self.account(known, looking, tally)?;
        if chain::step(filled, goal) == Step::Wait {
            known.waiting = Some(Waiting { oldest: filled.oldest, first: filled.first, next: end });
            let offsets = builder.first().zip(builder.last());
            known.seen = offsets.map(|(first, last)| Seen { first, last, events: builder.items().into() });
            return Ok(None);
        }
        let head = known.head();
        let (number, previous) = (head.map_or(0, |head| head.segments), head.and_then(ArchiveHead::as_previous));
        builder.set_hole(head.and_then(|head| head.holes.before(number)));
        let finished = builder.finish(self.place.clone(), number, previous, self.to.keys)?;
        self.spare = Some(builder);
        Ok(Some(finished))
    }

    /// From a staged segment to the head. A crash anywhere in here is finished by [`Export::take_up`].
    fn deliver(&mut self, known: &mut Known, finished: FinishedSegment) -> Result<(), ExportError> {
        let exporter = self.exporter;
        let path = segment_path(&self.place.topic, self.place.partition, finished.header.first);
        let (head, items) = match self.to.store.put_new(&path, finished.bytes.clone())? {
            PutEnd::Created => (ArchiveHead::of_finished(&finished)?, finished.header.items),
            PutEnd::Exists => self.compare(&path, &finished)?,
        };
        let head = head.behind(known.head(), items.into());
        self.done.segments += 1;
        self.done.items += u64::from(finished.header.items);
        self.done.bytes += finished.bytes.len() as u64;
        self.keep(known, head)?;
        exporter.files.unstage(&self.place)
    }

    /// What lies there already: ours, or one that another exporter made of the same records with another end.
    fn compare(&self, path: &str, ours: &FinishedSegment) -> Result<(ArchiveHead, u32), ExportError> {
        let different = |problem: String| ExportError::Different { object: path.to_owned(), problem };
        let max = limits::ARCHIVE_SEGMENT_OBJECT_BYTES.default;
        match self.to.store.get(path, max) {
            Ok(Some(there)) if there == ours.bytes => return Ok((ArchiveHead::of_finished(ours)?, ours.header.items)),
            Ok(None) => return Err(ExportError::Absent { object: path.to_owned() }),
            Err(ColdError::TooLarge { bytes, .. }) => return Err(different(format!("it has {bytes} bytes"))),
            Err(error) => return Err(error.into()),
            Ok(Some(_)) => {}
        }
        let theirs = self.read(path).map_err(|error| match error {
            ExportError::Foreign { problem, .. } => different(problem),
            other => other,
        })?;
        let header = theirs.header();
        if (header.number, header.previous, header.first) != (ours.header.number, ours.header.previous, ours.header.first) {
            return Err(different("it follows another segment than the one that is to be written".to_owned()));
        }
        let mine = Segment::open(ours.bytes.clone())?;
        for (one, other) in mine.items().zip(theirs.items()) {
            let (one, other): (Item, Item) = (one?, other.map_err(|error| different(error.to_string()))?);
            if one != other {
                return Err(different(format!("it has another record at offset {}", other.offset())));
            }
        }
        Ok((ArchiveHead::of_segment(&theirs)?, theirs.header().items))
    }
}

/// Puts what the log has from an offset on into a segment, until it is full, or there is no more. Counts what had been seen before.
fn fill(
    builder: &mut SegmentBuilder,
    source: &dyn ItemSource,
    (mut from, seen): (Offset, Option<Seen>),
    goal: Goal,
) -> Result<(Filled, Tally), ExportError> {
    let (mut is_full, mut has_ended) = (false, false);
    let mut tally = Tally::default();
    loop {
        let filled = Filled { oldest: builder.oldest(), first: builder.first(), is_full, has_ended };
        if chain::step(filled, goal) != Step::Read {
            tally.is_past |= has_ended;
            return Ok((filled, tally));
        }
        let page = source.page(from)?;
        has_ended = page.is_empty();
        for item in page {
            if item.offset() < from {
                return Err(ExportError::Disordered { asked: from, answered: item.offset() });
            }
            tally.pass(item.offset(), seen);
            if builder.push(&item)? == Pushed::Full {
                is_full = true;
                break;
            }
            match item.offset().next() {
                Some(next) => from = next,
                None => has_ended = true,
            }
        }
    }
}

impl From<UnixMillis> for Goal {
    /// Nothing has to go; what is full or old does.
    fn from(now: UnixMillis) -> Self {
        Self { must: None, ahead: true, age_millis: limits::ARCHIVE_SEGMENT_AGE_MILLIS.default, now }
    }
}
