//! An archive and a wall clock that is a day off, after a restart, with intents waiting and with events due: nothing expires, nothing is
//! written or asked of a store, and no intent is resolved, before the clock is right again or somebody says that it is. Time is virtual.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use latent_bridge::cold::{ArchiveOptions, ColdError, ColdStore, ColdStores, Listed, PutEnd};
use latent_bridge::embedded::EngineOptions;
use latent_bridge::manifest::ColdFormat;
use latent_bridge::{BridgeManifest, EmbeddedBroker};
use latent_core::{Attributes, MediaType, NewRecord, UnixMillis};
use latent_testkit::ManualClock;

use super::*;
use crate::host::HostFiles;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
/// What the clock says when it is right.
const NOW: u64 = 1_800_000_000_000;
const KEPT_FOR_AN_HOUR: &str =
    "manifest_version: 1\nname: d\ntopics: [{ name: t, partitions: 1, retention: { hot_hours: 1, cold_uri: x } }]\n";
const EVENTS: u64 = 5;

/// A store that counts what it is asked.
#[derive(Default)]
struct Counting {
    objects: Mutex<BTreeMap<String, Bytes>>,
    calls: AtomicU64,
    takes_nothing: AtomicBool,
}

impl Counting {
    fn of_topic(&self) -> usize {
        self.objects.lock().unwrap().keys().filter(|path| path.starts_with("t/")).count()
    }
}

impl ColdStore for Counting {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.takes_nothing.load(Ordering::SeqCst) {
            return Err(ColdError::Failed { operation: "put", object: path.to_owned(), reason: "planned".to_owned() });
        }
        let mut objects = self.objects.lock().unwrap();
        if objects.contains_key(path) {
            return Ok(PutEnd::Exists);
        }
        objects.insert(path.to_owned(), bytes);
        Ok(PutEnd::Created)
    }

    fn get(&self, path: &str, _: u64) -> Result<Option<Bytes>, ColdError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(self.objects.lock().unwrap().get(path).cloned())
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let objects = self.objects.lock().unwrap();
        let fits = objects.iter().filter(|(path, _)| path.starts_with(prefix) && path.as_str() > after).take(count_max);
        Ok(fits.map(|(path, bytes)| Listed { path: path.clone(), bytes: bytes.len() as u64, stray: None }).collect())
    }
}

struct One(Arc<Counting>);

impl ColdStores for One {
    fn open(&self, _: &str) -> Result<Arc<dyn ColdStore>, BusError> {
        Ok(Arc::clone(&self.0) as _)
    }

    fn check(&self, _: &str) -> Result<(), BusError> {
        Ok(())
    }
}

/// A directory and a store, over several processes.
struct Site {
    directory: tempfile::TempDir,
    store: Arc<Counting>,
    form: ColdFormat,
}

/// One process on it.
struct Process {
    clock: Arc<ManualClock>,
    log: Arc<EmbeddedBroker>,
    watch: Arc<ClockWatch>,
    maintainer: Maintainer,
}

impl Site {
    fn options(&self, clock: &Arc<ManualClock>) -> EngineOptions {
        let archive =
            ArchiveOptions { control_keys: vec![[7; 32]], stores: Some(Arc::new(One(Arc::clone(&self.store)))), ..Default::default() };
        EngineOptions { clock: Arc::clone(clock) as _, archive, ..Default::default() }
    }

    /// Events of three hours ago. With objects some of them have an intent that waits for the store, with segments one is staged; others are
    /// due and nobody has looked at them.
    fn with_what_waits(form: ColdFormat) -> Self {
        let site = Self { directory: tempfile::tempdir().unwrap(), store: Arc::default(), form };
        let mut manifest = BridgeManifest::from_yaml(KEPT_FOR_AN_HOUR).unwrap();
        manifest.topics[0].retention.cold_format = Some(form);
        let clock = Arc::new(ManualClock::starting_at(UnixMillis(NOW - 3 * HOUR)));
        let log = EmbeddedBroker::provision_with(site.log(), &manifest, site.options(&clock)).unwrap();
        publish(&log);
        site.store.takes_nothing.store(true, Ordering::SeqCst);
        let told = log.maintain(UnixMillis(NOW)).unwrap();
        let staged = site.log().join("cold-outbox/segments/t.p0.seg").is_file();
        assert!(told.intents_pending == EVENTS || (form == ColdFormat::Segments && staged), "{told:?}");
        site.store.takes_nothing.store(false, Ordering::SeqCst);
        publish(&log);
        drop(log);
        // A process that believed the clock, and ended.
        site.start(NOW).watch.close();
        site
    }

    fn log(&self) -> &Path {
        self.directory.path()
    }

    fn start(&self, now: u64) -> Process {
        let clock = Arc::new(ManualClock::starting_at(UnixMillis(now)));
        let log = Arc::new(EmbeddedBroker::open_with(self.log(), self.options(&clock)).unwrap());
        let watch = Arc::new(ClockWatch::open(HostFiles::below(self.log()), Arc::clone(&clock) as _).unwrap());
        let maintainer = Maintainer::new(Arc::clone(&log) as _, Arc::clone(&watch));
        Process { clock, log, watch, maintainer }
    }

    fn waiting(&self) -> Vec<String> {
        let below = |folder: &str| std::fs::read_dir(self.log().join(folder)).into_iter().flatten();
        let names = below("cold-outbox").chain(below("cold-outbox/segments")).map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(".json") || name.ends_with(".seg"));
        names
    }
}

fn publish(log: &EmbeddedBroker) {
    for _ in 0..EVENTS {
        let record = NewRecord::new(None, "", MediaType::json(), Attributes::default(), "{}".into()).unwrap();
        log.submit_record("t", record).wait().unwrap();
    }
}

impl Process {
    fn hot(&self) -> u64 {
        self.log.statistics()[0].partitions.iter().map(|partition| partition.records).sum()
    }

    /// Fails unless nothing at all is done, however often it is asked.
    fn assert_held(&self, site: &Site, context: &str) {
        let (calls, hot, waiting) = (site.store.calls.load(Ordering::SeqCst), self.hot(), site.waiting());
        for _ in 0..3 {
            let held = self.maintainer.run().unwrap_err();
            assert_eq!(held.kind(), "clock-held", "{context}");
            assert!(held.to_string().contains("24 hours") || held.to_string().contains("23 hours"), "{context}: {held}");
        }
        assert!(self.watch.look().1.is_some(), "{context}: the status says so");
        assert_eq!((site.store.calls.load(Ordering::SeqCst), self.hot()), (calls, hot), "{context}");
        assert_eq!(site.waiting(), waiting, "{context}");
    }

    /// Everything that is due goes.
    fn assert_goes_on(&self, site: &Site, context: &str) {
        let expired = self.maintainer.run().unwrap();
        assert_eq!((expired.intents_pending, expired.unarchived_topics.len()), (0, 0), "{context}: {expired:?}");
        let objects = if site.form == ColdFormat::Objects { 2 * EVENTS } else { 2 };
        assert_eq!((self.hot(), site.waiting().len()), (0, 0), "{context}");
        assert_eq!(site.store.of_topic() as u64, objects, "{context}");
    }
}

const FORMS: [ColdFormat; 2] = [ColdFormat::Objects, ColdFormat::Segments];
const A_DAY_OFF: [u64; 2] = [NOW - DAY, NOW + DAY];

#[test]
fn after_a_restart_with_a_clock_that_is_a_day_off_everything_waits_and_goes_on_by_itself_when_it_is_right() {
    for (form, off) in FORMS.into_iter().flat_map(|form| A_DAY_OFF.map(|off| (form, off))) {
        let context = format!("{form:?}, {off}");
        let site = Site::with_what_waits(form);
        // The hold outlives the process that found it.
        let first = site.start(off);
        first.assert_held(&site, &context);
        first.watch.close();
        drop(first);
        let second = site.start(off);
        second.assert_held(&site, &context);
        second.clock.jump_to(UnixMillis(NOW));
        second.assert_goes_on(&site, &context);
    }
}

#[test]
fn a_clock_that_jumps_a_day_while_a_process_runs_holds_what_waits_and_what_is_due() {
    for (form, off) in FORMS.into_iter().flat_map(|form| A_DAY_OFF.map(|off| (form, off))) {
        let context = format!("{form:?}, {off}");
        let site = Site::with_what_waits(form);
        let process = site.start(NOW);
        process.clock.jump_to(UnixMillis(off));
        process.assert_held(&site, &context);
        process.clock.jump_to(UnixMillis(NOW));
        process.assert_goes_on(&site, &context);
    }
}

/// An operator's word. By a clock that is ahead more is due, and by one that is behind less; what waited before goes by either.
#[test]
fn after_a_restart_with_a_clock_that_is_a_day_off_an_operators_word_lets_it_go_on() {
    for (form, off) in FORMS.into_iter().flat_map(|form| A_DAY_OFF.map(|off| (form, off))) {
        let context = format!("{form:?}, {off}");
        let site = Site::with_what_waits(form);
        let process = site.start(off);
        process.assert_held(&site, &context);
        process.watch.confirm().unwrap();
        if off > NOW {
            process.assert_goes_on(&site, &context);
            continue;
        }
        let hot = process.hot();
        let done = process.maintainer.run().unwrap();
        assert_eq!((done.expired_records, process.hot()), (0, hot), "{context}: by this clock nothing is old");
        let (finished, objects) = if form == ColdFormat::Objects { (EVENTS, EVENTS) } else { (0, 0) };
        assert_eq!((done.intents_completed, site.store.of_topic() as u64), (finished, objects), "{context}");
        // Set right later, it is a jump again, and goes on with a word.
        process.clock.jump_to(UnixMillis(NOW));
        process.assert_held(&site, &context);
        process.watch.confirm().unwrap();
        process.assert_goes_on(&site, &context);
    }
}
