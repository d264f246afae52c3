//! The archive of one bus: its outbox, the stores of its topics, and the way of an intent to its end. It knows no engine; what only an
//! engine knows it asks a [`Resolver`].
//!
//! ```text
//! stage ── (the engine publishes, or has it already) ── commit ── upload ── remove
//!    \________________ maintenance finishes what a crash or an outage left anywhere on this way
//! ```

mod segments;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use latent_core::{StoredRecord, UnixMillis};

use super::export::{HEADS, SegmentExporter};
use super::fault::Fault;
use super::intent::Intent;
use super::keys::{KeyRing, no_key_to_archive_with};
use super::options::{ArchiveOptions, ArchiveStatistics};
use super::outbox::{Committed, Outbox, Staged};
use super::target::Target;
use super::trouble::is_past_grace;
use crate::embedded::Storage;
use crate::manifest::ColdFormat;
use crate::{BridgeManifest, BusError, MaintenanceReport, TopicSpec, limits};

pub(crate) use super::pass::Pass;

/// What an engine knows of an event whose intent does not say where it is stored.
pub(crate) trait Resolver {
    /// The intent as the event is stored: with its offset, and with the record that lies there.
    ///
    /// # Errors
    /// When that is not known; the intent is kept.
    fn resolve(&self, intent: &Intent) -> Result<Intent, BusError>;
}

/// See the module.
pub(crate) struct Archive {
    pub(crate) outbox: Outbox,
    /// By topic.
    targets: BTreeMap<String, Arc<Target>>,
    /// Topics that are archived in segments, and how many partitions each has.
    segmented: BTreeMap<String, u32>,
    exporter: SegmentExporter,
    uploads: usize,
    intents_max: u64,
    /// Intents that somebody is finishing.
    claimed: Mutex<HashSet<String>>,
}

/// How the finishing of one intent ended.
#[derive(Debug)]
pub(crate) enum Finished {
    /// Its object lies in the store.
    Done,
    /// Its store is left alone for now, or somebody else is at it.
    Later,
    /// It failed, and may not the next time.
    Passing,
    /// It failed, and somebody has to look.
    Quarantined(String),
}

/// What went wrong, and with which event, where its intent could be read.
#[derive(Clone, Copy)]
struct About<'a> {
    intent: Option<&'a Intent>,
    fault: &'a Fault,
}

/// An intent that nobody else finishes meanwhile.
struct Claim<'a> {
    archive: &'a Archive,
    name: String,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.archive.claimed.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

impl Archive {
    /// The archive that a manifest asks for; none when no topic has a `cold_uri`.
    ///
    /// # Errors
    /// [`BusError::Config`] for a store that must not be used, keys that protect nothing and an outbox that belongs to somebody else;
    /// [`BusError::OutboxInUse`], [`BusError::Io`].
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        manifest: &BridgeManifest,
        options: &ArchiveOptions,
        outbox: &Path,
        owner: &str,
    ) -> Result<Option<Self>, BusError> {
        if manifest.topics.iter().all(|topic| topic.retention.cold_uri.is_none()) {
            return Ok(None);
        }
        let config = |error: latent_core::LimitError| BusError::Config { problem: error.to_string() };
        let intents_max = limits::COLD_INTENTS.check(options.intents_max).map_err(config)?;
        let uploads = limits::COLD_UPLOADS.check(options.uploads).map_err(config)?;
        let keys = KeyRing::new(&options.control_keys)?;
        let exporter = SegmentExporter::new(Arc::clone(storage), outbox.join(HEADS), &manifest.name, options.segment_sizes);
        let outbox = Outbox::open(Arc::clone(storage), outbox, owner, keys, intents_max)?;
        let mut by_uri: BTreeMap<&str, Arc<Target>> = BTreeMap::new();
        let mut targets = BTreeMap::new();
        for topic in &manifest.topics {
            let Some(uri) = topic.retention.cold_uri.as_deref() else { continue };
            let target = match by_uri.get(uri) {
                Some(known) => Arc::clone(known),
                None => {
                    let opened = Arc::new(Target::open(uri, storage, options, outbox.id())?);
                    by_uri.insert(uri, Arc::clone(&opened));
                    opened
                }
            };
            targets.insert(topic.name.clone(), target);
        }
        let uploads = usize::try_from(uploads).unwrap_or(1);
        let in_segments = |topic: &&TopicSpec| topic.retention.cold_format == Some(ColdFormat::Segments);
        let segmented = manifest.topics.iter().filter(in_segments).map(|topic| (topic.name.clone(), topic.partitions)).collect();
        let archive = Self { outbox, targets, segmented, exporter, uploads, intents_max, claimed: Mutex::default() };
        archive.reseal();
        Ok(Some(archive))
    }

    /// How many objects are written at once.
    #[cfg(feature = "nats")]
    pub(crate) const fn uploads(&self) -> usize {
        self.uploads
    }

    /// Whether a topic is archived.
    pub(crate) fn has(&self, topic: &str) -> bool {
        self.targets.contains_key(topic)
    }

    /// Puts another ring of keys in force, the newest first.
    pub(crate) fn set_keys(&self, newest_first: &[[u8; 32]]) -> Result<(), BusError> {
        self.outbox.set_keys(KeyRing::new(newest_first)?);
        self.reseal();
        Ok(())
    }

    /// Adds a key, which signs from now on.
    pub(crate) fn add_key(&self, key: &[u8; 32]) -> Result<(), BusError> {
        self.outbox.set_keys(self.outbox.keys().with_newest(key)?);
        self.reseal();
        Ok(())
    }

    /// Numbers of the outbox.
    pub(crate) fn statistics(&self) -> ArchiveStatistics {
        let (intents, intents_quarantined) = self.outbox.counts();
        ArchiveStatistics { intents, intents_quarantined, intents_max: self.intents_max }
    }

    /// Writes what a pass did, and what it left, into a report.
    pub(crate) fn tell(&self, pass: &Pass, report: &mut MaintenanceReport) {
        let (intents, quarantined) = self.outbox.counts();
        report.intents_completed = pass.completed();
        report.intents_failed = pass.failed();
        report.intents_pending = intents;
        report.intents_quarantined = quarantined;
        report.unreachable_topics = pass.unreachable();
        let mut problems = self.outbox.problems();
        for problem in pass.problems() {
            if problems.len() < limits::ARCHIVE_PROBLEMS.default_usize() && !problems.contains(&problem) {
                problems.push(problem);
            }
        }
        report.archive_problems = problems;
    }

    /// Whoever has no key leaves everything as it is, with one reason for all of it.
    fn refuse_without_key(&self) -> Result<(), BusError> {
        if self.outbox.keys().is_empty() { Err(no_key_to_archive_with()) } else { Ok(()) }
    }

    /// Archives records of a topic that have their offsets (B-080): each has its object, or a durable intent, when this returns.
    ///
    /// # Errors
    /// When one of them has neither, or another object lies in the place of its own.
    pub(crate) fn export(&self, pass: &Pass, topic: &str, records: Vec<StoredRecord>, now: UnixMillis) -> Result<(), BusError> {
        self.refuse_without_key()?;
        let intent = |stored: StoredRecord| Intent {
            topic: topic.to_owned(),
            partition: stored.partition,
            record: stored.record,
            offset: Some(stored.offset),
        };
        let intents: Vec<_> = records.into_iter().map(intent).collect();
        let staged = self.outbox.stage(&intents).into_iter().collect::<Result<Vec<Staged>, _>>()?;
        let ready: Vec<_> = staged.into_iter().filter_map(|staged| Some((self.claim(&staged.intent.name())?, staged.intent))).collect();
        for finished in self.finish_all(pass, &ready, now) {
            if let Finished::Quarantined(problem) = finished {
                return Err(BusError::Backend(problem));
            }
        }
        Ok(())
    }

    /// Finishes what waits and is due at `now` (B-067, B-078).
    ///
    /// # Errors
    /// [`BusError::Io`] when the outbox cannot be listed. What concerns one intent is counted in `pass`.
    pub(crate) fn drain(&self, pass: &Pass, now: UnixMillis, resolver: &dyn Resolver) -> Result<(), BusError> {
        let names = self.outbox.names()?;
        if let Err(error) = self.refuse_without_key() {
            if !names.is_empty() {
                pass.tell("exports that wait", &error);
            }
            return Ok(());
        }
        let mut tried = 0;
        let (mut ready, mut bytes) = (Vec::new(), 0);
        for name in names {
            if tried >= limits::COLD_PASS_INTENTS.default {
                break;
            }
            if self.outbox.is_resting(&name, now) {
                continue;
            }
            tried += 1;
            let Some(claim) = self.claim(&name) else { continue };
            match self.make_ready(pass, &name, now, resolver) {
                Ok(Some(intent)) => {
                    bytes += intent.record.payload.len() as u64;
                    ready.push((claim, intent));
                }
                Ok(None) => {}
                Err(fault) => drop(self.note_fault(pass, &name, now, About { intent: None, fault: &fault })),
            }
            if ready.len() >= limits::COLD_BATCH_RECORDS.default_usize() || bytes >= limits::COLD_BATCH_BYTES.default {
                self.finish_all(pass, &ready, now);
                ready.clear();
                bytes = 0;
            }
        }
        self.finish_all(pass, &ready, now);
        Ok(())
    }

    /// Finishes one intent that has its offset.
    #[cfg(feature = "nats")]
    pub(crate) fn finish(&self, pass: &Pass, name: &str, now: UnixMillis) -> Finished {
        let Some(claim) = self.claim(name) else { return Finished::Later };
        match self.outbox.read(name) {
            Ok(Some(intent)) if intent.offset.is_some() => self.finish_all(pass, &[(claim, intent)], now).pop().unwrap_or(Finished::Later),
            Ok(_) => Finished::Later,
            Err(error) => self.note_fault(pass, name, now, About { intent: None, fault: &error.into() }),
        }
    }

    /// An intent with its offset; none when it is left to its publisher, or gone.
    fn make_ready(&self, pass: &Pass, name: &str, now: UnixMillis, resolver: &dyn Resolver) -> Result<Option<Intent>, Fault> {
        let Some(intent) = self.outbox.read(name)? else { return Ok(None) };
        if intent.offset.is_some() {
            return Ok(Some(intent));
        }
        let given_up = u64::from(pass.resolver_failures.load(Ordering::Relaxed)) >= limits::COLD_STORE_FAILURES.default;
        if given_up || !is_past_grace(intent.record.stored_at, now) {
            return Ok(None);
        }
        if !self.has(&intent.topic) {
            return Err(Fault::NoTarget { topic: intent.topic });
        }
        let stored = resolver.resolve(&intent).map_err(Fault::from).inspect_err(|fault| {
            let failures = if fault.is_passing() { pass.resolver_failures.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
            pass.resolver_failures.store(failures, Ordering::Relaxed);
        })?;
        pass.resolver_failures.store(0, Ordering::Relaxed);
        if (&stored.topic, stored.partition, &stored.record.uid) != (&intent.topic, intent.partition, &intent.record.uid) {
            let problem = "what the log says of an archive intent is about another topic, partition or uid; the intent is kept";
            return Err(BusError::Backend(problem.to_owned()).into());
        }
        match self.outbox.commit(std::slice::from_ref(&stored)).pop() {
            Some(Ok(Committed::Offset)) => Ok(Some(stored)),
            Some(Ok(Committed::Gone)) | None => Ok(None),
            // A commit that came first has the last word.
            Some(Err(error)) => match self.outbox.read(name)? {
                Some(intent) if intent.offset.is_some() => Ok(Some(intent)),
                _ => Err(error.into()),
            },
        }
    }

    fn claim(&self, name: &str) -> Option<Claim<'_>> {
        let is_free = self.claimed.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        is_free.then(|| Claim { archive: self, name: name.to_owned() })
    }

    /// Uploads, several at once, and removes what is done.
    fn finish_all(&self, pass: &Pass, ready: &[(Claim<'_>, Intent)], now: UnixMillis) -> Vec<Finished> {
        let workers = self.uploads.min(ready.len());
        if workers <= 1 {
            return ready.iter().map(|(claim, intent)| self.finish_one(pass, &claim.name, intent, now)).collect();
        }
        let next = AtomicUsize::new(0);
        let work = || {
            let mut finished = Vec::new();
            while let Some((claim, intent)) = ready.get(next.fetch_add(1, Ordering::Relaxed)) {
                finished.push(self.finish_one(pass, &claim.name, intent, now));
            }
            finished
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
            let mut finished = work();
            // A thread that panicked finished what it did not tell of, or did not: its intents are still there.
            finished.extend(threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()));
            finished
        })
    }

    fn finish_one(&self, pass: &Pass, name: &str, intent: &Intent, now: UnixMillis) -> Finished {
        let Some(target) = self.targets.get(&intent.topic) else {
            let fault = Fault::NoTarget { topic: intent.topic.clone() };
            return self.note_fault(pass, name, now, About { intent: Some(intent), fault: &fault });
        };
        if pass.is_given_up(target) {
            pass.unreachable.lock().unwrap_or_else(PoisonError::into_inner).insert(intent.topic.clone());
            return Finished::Later;
        }
        let uploaded = target.upload(intent);
        pass.note(target, &uploaded);
        if matches!(&uploaded, Err(Fault::Put(fault)) if fault.is_of_store()) {
            pass.unreachable.lock().unwrap_or_else(PoisonError::into_inner).insert(intent.topic.clone());
        }
        match uploaded.and_then(|()| Ok(self.outbox.remove(name)?)) {
            Ok(()) => {
                pass.completed.fetch_add(1, Ordering::Relaxed);
                Finished::Done
            }
            Err(fault) => self.note_fault(pass, name, now, About { intent: Some(intent), fault: &fault }),
        }
    }

    /// Which event, where to, and why: for whoever has to look.
    fn words(&self, name: &str, About { intent, fault }: About<'_>) -> String {
        let Some(intent) = intent else { return format!("intent {name} in the outbox: {fault}") };
        let place = self.targets.get(&intent.topic).map_or_else(String::new, |target| format!(" on its way to {}", target.uri));
        format!("uid {} of topic {:?}{place} (intent {name}): {fault}", intent.record.uid.as_str(), intent.topic)
    }

    fn note_fault(&self, pass: &Pass, name: &str, now: UnixMillis, about: About<'_>) -> Finished {
        let About { intent, fault } = about;
        let is_passing = fault.is_passing();
        let problem = self.words(name, about);
        let uid = intent.map(|intent| intent.record.uid.as_str());
        tracing::warn!(intent = name, uid, quarantined = !is_passing, %fault, "an archive intent was not finished");
        self.outbox.note_trouble(name, now, (!is_passing).then_some(&*problem));
        pass.keep_problem(problem);
        pass.failed.fetch_add(1, Ordering::Relaxed);
        if is_passing { Finished::Passing } else { Finished::Quarantined(fault.to_string()) }
    }
}
