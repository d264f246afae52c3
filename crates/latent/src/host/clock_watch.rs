//! The shell around [`ClockGuard`]: reads the clocks, keeps the record, says once when it cannot.

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use latent_core::{Clock, MonoTime, UnixMillis};
use latent_node::{BootId, ClockGuard, Hold, HoldCause, Observation};

use super::clock_file;
use super::files::{HostFileError, HostFiles};
use crate::timestamp::timestamp_seconds;

/// The clocks of this machine and what was seen of them in this data directory. Blocks for as long as a disk takes.
pub(crate) struct ClockWatch {
    files: HostFiles,
    clock: Arc<dyn Clock>,
    boot: Option<BootId>,
    state: Mutex<State>,
}

struct State {
    guard: ClockGuard,
    /// The record could not be kept the last time.
    failing: bool,
}

impl ClockWatch {
    /// Judges the clock by what an earlier process left.
    ///
    /// # Errors
    /// [`HostFileError::Io`]; what is damaged is a hold, and a line in the log.
    pub(crate) fn open(files: HostFiles, clock: Arc<dyn Clock>) -> Result<Self, HostFileError> {
        let (remembered, damage) = clock_file::read(&files)?;
        if let Some(damage) = damage {
            tracing::warn!("{damage}; whether the wall clock jumped cannot be told");
        }
        let boot = boot_id();
        let guard = ClockGuard::begin(remembered, observe(boot, &*clock));
        Ok(Self { files, clock, boot, state: Mutex::new(State { guard, failing: false }) })
    }

    /// The time now, unless it is held to be wrong.
    ///
    /// # Errors
    /// The hold.
    pub(crate) fn believed_now(&self) -> Result<UnixMillis, Hold> {
        let (now, hold) = self.look();
        hold.map_or(Ok(now.unix), Err)
    }

    /// Looks at the clocks, and keeps the record if it is due.
    pub(crate) fn look(&self) -> (Observation, Option<Hold>) {
        let mut state = self.lock();
        let now = observe(self.boot, &*self.clock);
        let hold = state.guard.observe(now);
        if state.guard.is_record_due() {
            self.keep(&mut state);
        }
        (now, hold)
    }

    /// Keeps the record for the next process, due or not.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.guard.observe(observe(self.boot, &*self.clock));
        self.keep(&mut state);
    }

    /// Takes an operator's word that the clock is right.
    ///
    /// # Errors
    /// [`HostFileError`]: it is taken for right, and the next process may not know.
    pub(crate) fn confirm(&self) -> Result<Observation, HostFileError> {
        let mut state = self.lock();
        let now = observe(self.boot, &*self.clock);
        state.guard.confirm(now);
        self.write(&mut state).map(|()| now)
    }

    fn keep(&self, state: &mut State) {
        match self.write(state) {
            Ok(()) => state.failing = false,
            Err(error) if !state.failing => {
                tracing::warn!(%error, "what the clock says could not be written down; a jump before the next start may not be noticed");
                state.failing = true;
            }
            Err(_) => {}
        }
    }

    fn write(&self, state: &mut State) -> Result<(), HostFileError> {
        if let Some(record) = state.guard.record() {
            clock_file::write(&self.files, &record)?;
            state.guard.handle_recorded();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time since the machine started, sleep included, where the system tells; else the process's own.
fn observe(boot: Option<BootId>, clock: &dyn Clock) -> Observation {
    let unix = clock.unix();
    match boot.and_then(|boot| Some((boot, since_boot()?))) {
        Some((boot, steady)) => Observation { unix, steady, boot: Some(boot) },
        None => Observation { unix, steady: clock.mono(), boot: None },
    }
}

fn boot_id() -> Option<BootId> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    uuid::Uuid::parse_str(text.trim()).ok().map(|uuid| BootId(uuid.as_u128()))
}

#[cfg(target_os = "linux")]
fn since_boot() -> Option<MonoTime> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let millis = u64::try_from(time.tv_sec).ok()?.checked_mul(1_000)?.checked_add(u64::try_from(time.tv_nsec).ok()? / 1_000_000)?;
    Some(MonoTime::from_millis(millis))
}

/// Other systems have no such clock, or none that names its boot.
#[cfg(not(target_os = "linux"))]
const fn since_boot() -> Option<MonoTime> {
    None
}

/// Why things are held, in words.
pub(crate) fn held_words(hold: &Hold) -> String {
    let since = timestamp_seconds(hold.since.0);
    match hold.cause {
        HoldCause::Jump { millis } => {
            let direction = if millis < 0 { "behind" } else { "ahead of" };
            format!("the wall clock is {} {direction} what was expected, since {since}", length(millis.unsigned_abs()))
        }
        HoldCause::Unknown => format!("what earlier processes knew of the clock is lost, since {since}"),
    }
}

fn length(millis: u64) -> String {
    let count = |number: u64, unit: &str| if number == 1 { format!("1 {unit}") } else { format!("{number} {unit}s") };
    match millis / 60_000 {
        minutes @ 0..=119 => count(minutes, "minute"),
        minutes @ 120..=2_879 => count(minutes / 60, "hour"),
        minutes => count(minutes / 1_440, "day"),
    }
}

#[cfg(test)]
mod tests {
    use latent_testkit::ManualClock;

    use super::super::files::faults::Faulty;
    use super::*;

    const DAY: u64 = 86_400_000;
    const START: UnixMillis = UnixMillis(20_000 * DAY);

    fn watch(root: &std::path::Path, clock: &Arc<ManualClock>) -> ClockWatch {
        // A machine whose boots cannot be told apart: its time is the manual clock's alone.
        let mut watch = ClockWatch::open(HostFiles::below(root), Arc::clone(clock) as _).unwrap();
        watch.boot = None;
        watch.state = Mutex::new(State {
            guard: ClockGuard::begin(clock_file::read(&watch.files).unwrap().0, observe(None, &**clock)),
            failing: false,
        });
        watch
    }

    #[test]
    fn a_hold_and_a_confirmation_outlive_the_process() {
        let temp = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::starting_at(START));
        let first = watch(temp.path(), &clock);
        assert_eq!(first.believed_now(), Ok(START));
        clock.jump_to(UnixMillis(START.0 + DAY));
        assert!(first.believed_now().is_err());
        let second = watch(temp.path(), &clock);
        assert_eq!(
            held_words(&second.believed_now().unwrap_err()),
            "the wall clock is 24 hours ahead of what was expected, since 2024-10-04T00:00:00Z"
        );
        second.confirm().unwrap();
        assert!(second.believed_now().is_ok() && watch(temp.path(), &clock).believed_now().is_ok());
    }

    #[test]
    fn a_clock_set_back_while_no_process_ran_is_noticed_by_the_next() {
        let temp = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::starting_at(START));
        watch(temp.path(), &clock).close();
        clock.jump_to(UnixMillis(START.0 - 3 * DAY));
        let held = watch(temp.path(), &clock).believed_now().unwrap_err();
        assert_eq!(held_words(&held), "the wall clock is 3 days behind what was expected, since 2024-10-04T00:00:00Z");
    }

    #[test]
    fn a_record_that_cannot_be_written_stops_nothing_and_a_confirmation_says_so() {
        let temp = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::starting_at(START));
        // Reading succeeds, nothing after it.
        let files = HostFiles::with_storage(temp.path(), Faulty::after(1));
        let watch = ClockWatch::open(files, Arc::clone(&clock) as _).unwrap();
        assert!(watch.believed_now().is_ok() && watch.believed_now().is_ok());
        assert_eq!(watch.confirm().unwrap_err().kind(), "host-file-io");
        assert!(watch.believed_now().is_ok());
    }

    #[test]
    fn a_damaged_record_holds_until_it_is_confirmed() {
        let temp = tempfile::tempdir().unwrap();
        HostFiles::below(temp.path()).replace("clock", b"nonsense").unwrap();
        let clock = Arc::new(ManualClock::starting_at(START));
        let watched = watch(temp.path(), &clock);
        watched.close();
        let held = watch(temp.path(), &clock).believed_now().unwrap_err();
        assert_eq!(held_words(&held), "what earlier processes knew of the clock is lost, since 2024-10-04T00:00:00Z");
        watched.confirm().unwrap();
        assert!(watch(temp.path(), &clock).believed_now().is_ok());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_steady_time_of_a_named_boot_is_the_system_s_uptime() {
        // Hundredths of a second, cut.
        let uptime = || {
            let text = fs::read_to_string("/proc/uptime").unwrap();
            let hundredths: u64 = text.split(' ').next().unwrap().replace('.', "").parse().unwrap();
            MonoTime::from_millis(hundredths * 10)
        };
        let before = uptime();
        let seen = observe(boot_id(), &latent_core::SystemClock::start());
        assert!(before <= seen.steady && seen.steady < uptime().plus_millis(10), "{seen:?}");
        assert!(seen.boot.is_some() && seen.boot == boot_id());
    }

    #[test]
    fn lengths_are_told_in_the_unit_that_suits_them() {
        let minute = 60_000;
        let cases = [
            (6 * minute, "6 minutes"),
            (119 * minute, "119 minutes"),
            (120 * minute, "2 hours"),
            (47 * 60 * minute, "47 hours"),
            (2 * DAY, "2 days"),
        ];
        for (millis, words) in cases {
            assert_eq!(length(millis), words);
        }
    }
}
