//! The node's own maintenance: when it is due and what is said of it ([`Schedule`], no I/O), and the one task that does it.
//!
//! One timer for the whole node, whatever it serves. The pause is counted from the end of a run, so that runs never overlap and a slow
//! one does not make the next come at once.
//!
//! ```text
//! waiting ──due──▶ running ──finished──▶ waiting
//! ```

use std::sync::Arc;

use latent_bridge::MaintenanceReport;
use latent_core::{Clock, MonoTime};
use tokio::sync::watch;

use crate::control::Maintained;
use crate::error::incomplete_maintenance;
use crate::maintenance::{MaintainError, Maintainer};

/// How long after the start the first one begins: what expired while the node was away goes soon, and the start itself is not slowed.
const FIRST_AFTER_MILLIS: u64 = 1_000;

/// How a run ended.
pub(super) type Outcome = Result<MaintenanceReport, MaintenanceFault>;

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum MaintenanceFault {
    /// The log could not, or must not.
    #[error(transparent)]
    Maintain(#[from] MaintainError),
    /// A bug: the thread that ran it panicked.
    #[error("it panicked; the log above says where")]
    Panicked,
}

impl MaintenanceFault {
    const fn name(&self) -> &'static str {
        match self {
            Self::Maintain(error) => error.kind(),
            Self::Panicked => "panicked",
        }
    }
}

/// When the next run is due, and what the last one was like.
#[derive(Debug)]
pub(super) struct Schedule {
    interval_millis: u64,
    due: MonoTime,
    condition: Condition,
}

/// What changes between runs are told about. Two runs with the same one are told once.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Sound,
    /// These topics were skipped, files stay, or the archive is held up.
    Incomplete {
        skipped_topics: Vec<String>,
        files: Leftovers,
        unarchived_topics: Vec<String>,
        unreachable_topics: Vec<String>,
        quarantined: Leftovers,
    },
    /// By its kind: the words may differ each time.
    Failing(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leftovers {
    None,
    Some,
}

/// What is worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// It does not work as it should any more, and why.
    Trouble(String),
    /// It works again.
    Recovered,
}

impl Schedule {
    /// The first run comes shortly after `now`.
    pub(super) fn begin(now: MonoTime, interval_seconds: u64) -> Self {
        let interval_millis = interval_seconds.saturating_mul(1_000);
        let first = FIRST_AFTER_MILLIS.min(interval_millis);
        Self { interval_millis, due: now.plus_millis(first), condition: Condition::Sound }
    }

    /// When the next run begins.
    pub(super) const fn next_deadline(&self) -> MonoTime {
        self.due
    }

    /// A run ended at `now`. What is to be said of it, if it changes anything.
    pub(super) fn handle_finished(&mut self, now: MonoTime, outcome: Outcome) -> Option<Notice> {
        self.due = now.plus_millis(self.interval_millis);
        let (condition, trouble) = match outcome {
            Ok(report) => told(report.into()),
            Err(fault) => (Condition::Failing(fault.name()), Some(failure_words(&fault))),
        };
        if condition == self.condition {
            return None;
        }
        self.condition = condition;
        Some(trouble.map_or(Notice::Recovered, Notice::Trouble))
    }
}

fn failure_words(fault: &MaintenanceFault) -> String {
    match fault {
        MaintenanceFault::Maintain(held @ MaintainError::Held(_)) => {
            format!("{held}; it goes on when the clock is set right, or when `latent clock confirm` says that it is")
        }
        MaintenanceFault::Maintain(_) | MaintenanceFault::Panicked => format!("maintenance failed: {fault}"),
    }
}

fn told(done: Maintained) -> (Condition, Option<String>) {
    if done.is_complete() {
        return (Condition::Sound, None);
    }
    let words = format!("maintenance is incomplete: {}", incomplete_maintenance(&done).replace('\n', "; "));
    let left = |count| if count == 0 { Leftovers::None } else { Leftovers::Some };
    let condition = Condition::Incomplete {
        files: left(done.unremoved_files),
        quarantined: left(done.intents_quarantined),
        skipped_topics: done.skipped_topics,
        unarchived_topics: done.unarchived_topics,
        unreachable_topics: done.unreachable_topics,
    };
    (condition, Some(words))
}

/// Maintains until `stop` becomes true. A run that has begun is waited for.
pub(super) async fn maintain_until(
    mut stop: watch::Receiver<bool>,
    maintainer: Arc<Maintainer>,
    clock: Arc<dyn Clock>,
    mut schedule: Schedule,
) {
    loop {
        let stopping = tokio::select! {
            () = tokio::time::sleep(schedule.next_deadline().since(clock.mono())) => false,
            // An error means that the sender is gone, which is a stop as well.
            _ = stop.wait_for(|stop| *stop) => true,
        };
        if stopping {
            // A runtime that is going away leaves the record of the last run.
            let _ = tokio::task::spawn_blocking(move || maintainer.close()).await;
            return;
        }
        let running = Arc::clone(&maintainer);
        let outcome = match tokio::task::spawn_blocking(move || running.run()).await {
            Ok(outcome) => outcome.map_err(MaintenanceFault::from),
            Err(error) if error.is_panic() => Err(MaintenanceFault::Panicked),
            // The runtime is going away.
            Err(_) => return,
        };
        tell_of_expired(&outcome);
        match schedule.handle_finished(clock.mono(), outcome) {
            Some(Notice::Trouble(words)) => tracing::warn!("{words}"),
            Some(Notice::Recovered) => tracing::info!("maintenance works again"),
            None => {}
        }
    }
}

fn tell_of_expired(outcome: &Outcome) {
    if let Ok(MaintenanceReport { expired_records, expired_segments, .. }) = outcome
        && *expired_records > 0
    {
        tracing::info!(records = expired_records, segments = expired_segments, "retention removed what had expired");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker};
    use latent_core::{SystemClock, UnixMillis};
    use latent_node::{Hold, HoldCause};

    use super::*;
    use crate::host::{ClockWatch, HostFiles};
    use crate::limits::MAINTENANCE_INTERVAL_SECONDS;

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_millis(millis)
    }

    fn left(topics: &[&str], unremoved_files: u64) -> Outcome {
        let mut report = MaintenanceReport::default();
        report.skipped_topics = topics.iter().map(|&topic| topic.to_owned()).collect();
        report.unremoved_files = unremoved_files;
        Ok(report)
    }

    fn failed(reason: &str) -> Outcome {
        Err(MaintenanceFault::Maintain(BusError::NotSent { reason: reason.to_owned() }.into()))
    }

    fn held(millis: i64) -> Outcome {
        let hold = Hold { since: UnixMillis(0), cause: HoldCause::Jump { millis } };
        Err(MaintenanceFault::Maintain(MaintainError::Held(hold)))
    }

    #[test]
    fn the_first_run_comes_soon_and_each_further_one_an_interval_after_the_last_ended() {
        let mut schedule = Schedule::begin(at(5_000), 60);
        assert_eq!(schedule.next_deadline(), at(6_000));
        // It took five seconds, another five minutes.
        for (ended, next) in [(11_000, 71_000), (371_000, 431_000)] {
            schedule.handle_finished(at(ended), left(&[], 0));
            assert_eq!(schedule.next_deadline(), at(next));
        }
    }

    #[test]
    fn the_interval_is_kept_at_both_ends_of_its_range() {
        for (seconds, first, next) in
            [(MAINTENANCE_INTERVAL_SECONDS.min, 1_000, 2_000), (MAINTENANCE_INTERVAL_SECONDS.max, 1_000, 86_401_000)]
        {
            let mut schedule = Schedule::begin(at(0), seconds);
            assert_eq!(schedule.next_deadline(), at(first));
            schedule.handle_finished(at(first), left(&[], 0));
            assert_eq!(schedule.next_deadline(), at(next));
        }
        // Never wraps around, whatever it is given.
        let mut schedule = Schedule::begin(MonoTime::from_micros(u64::MAX), u64::MAX);
        schedule.handle_finished(MonoTime::from_micros(u64::MAX), left(&[], 0));
        assert_eq!(schedule.next_deadline(), MonoTime::from_micros(u64::MAX));
    }

    #[test]
    fn trouble_is_told_when_it_begins_changes_or_ends_and_not_each_time() {
        let mut schedule = Schedule::begin(at(0), 60);
        let runs = [
            (left(&[], 0), None),
            (failed("a"), Some("maintenance failed: not sent: a")),
            (failed("b"), None),
            (Err(MaintenanceFault::Panicked), Some("maintenance failed: it panicked; the log above says where")),
            (left(&["in"], 0), Some("maintenance is incomplete: topic \"in\" refuses writes since one of them failed")),
            (left(&["in"], 0), None),
            (
                left(&["in"], 2),
                Some("maintenance is incomplete: topic \"in\" refuses writes since one of them failed; 2 files could not be removed"),
            ),
            (left(&["in"], 1), None),
            (
                held(-600_000),
                Some(
                    "retention is held: the wall clock is 10 minutes behind what was expected, since 1970-01-01T00:00:00Z; it goes on when \
                     the clock is set right, or when `latent clock confirm` says that it is",
                ),
            ),
            (held(-540_000), None),
            (left(&[], 0), Some("works again")),
            (left(&[], 0), None),
        ];
        for (number, (outcome, expected)) in runs.into_iter().enumerate() {
            let told = schedule.handle_finished(at(number as u64), outcome).map(|notice| match notice {
                Notice::Trouble(words) => words,
                Notice::Recovered => "works again".to_owned(),
            });
            assert_eq!(told.as_deref(), expected, "run {number}");
        }
    }

    /// A clock whose wall time says how often it was asked: at the beginning, and once for each maintenance.
    struct Counting {
        asked: AtomicU64,
        monotonic: SystemClock,
        tell: Mutex<tokio::sync::mpsc::UnboundedSender<u64>>,
    }

    impl Clock for Counting {
        fn mono(&self) -> MonoTime {
            self.monotonic.mono()
        }

        fn unix(&self) -> latent_core::UnixMillis {
            let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            let _ = self.tell.lock().unwrap().send(asked);
            latent_core::UnixMillis(asked)
        }
    }

    #[tokio::test]
    async fn the_task_runs_again_and_again_and_ends_when_it_is_told_to() {
        let temp = tempfile::tempdir().unwrap();
        let manifest = BridgeManifest::from_yaml("manifest_version: 1\nname: d\ntopics: [{ name: t, partitions: 1 }]\n").unwrap();
        let log = Arc::new(EmbeddedBroker::provision(temp.path(), &manifest).unwrap());
        let (tell, mut runs) = tokio::sync::mpsc::unbounded_channel();
        let clock = Arc::new(Counting { asked: AtomicU64::new(0), monotonic: SystemClock::start(), tell: Mutex::new(tell) });
        let watch = ClockWatch::open(HostFiles::below(temp.path()), Arc::clone(&clock) as _).unwrap();
        let maintainer = Arc::new(Maintainer::new(log, Arc::new(watch)));
        let (stop, stopped) = watch::channel(false);
        let mut schedule = Schedule::begin(MonoTime::ZERO, 1);
        (schedule.interval_millis, schedule.due) = (1, MonoTime::ZERO);
        let task = tokio::spawn(maintain_until(stopped, maintainer, clock, schedule));
        for expected in 1..=4 {
            assert_eq!(runs.recv().await, Some(expected));
        }
        stop.send(true).unwrap();
        task.await.unwrap();
        // Its clock is gone with it, so nothing can run any more.
        while runs.recv().await.is_some() {}
    }

    #[tokio::test]
    async fn a_task_that_waits_for_its_time_ends_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let manifest = BridgeManifest::from_yaml("manifest_version: 1\nname: d\ntopics: [{ name: t, partitions: 1 }]\n").unwrap();
        let log = Arc::new(EmbeddedBroker::provision(temp.path(), &manifest).unwrap());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let (stop, stopped) = watch::channel(false);
        let mut schedule = Schedule::begin(clock.mono(), MAINTENANCE_INTERVAL_SECONDS.max);
        schedule.handle_finished(clock.mono(), left(&[], 0));
        let watch = Arc::new(ClockWatch::open(HostFiles::below(temp.path()), Arc::clone(&clock)).unwrap());
        let task = tokio::spawn(maintain_until(stopped, Arc::new(Maintainer::new(log, watch)), clock, schedule));
        drop(stop);
        // A day away otherwise.
        task.await.unwrap();
    }
}
