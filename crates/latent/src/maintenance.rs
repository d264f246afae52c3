//! Runs the log's maintenance, one at a time, and not by a clock that jumped. When it runs is decided elsewhere: by a command, or by
//! the node's timer.

use std::sync::{Arc, Mutex, PoisonError};

use latent_bridge::{BusError, EventBus, MaintenanceReport};
use latent_node::Hold;

use crate::host::{ClockWatch, HostFileError, held_words};

/// Why nothing was maintained, or not everything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MaintainError {
    /// The log could not.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The wall clock is not believed, and what is old is told by it.
    #[error("retention is held: {}", held_words(.0))]
    Held(Hold),
    /// What the clock said before cannot be looked at.
    #[error(transparent)]
    Host(#[from] HostFileError),
}

impl MaintainError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Bus(error) => error.kind(),
            Self::Held(_) => "clock-held",
            Self::Host(error) => error.kind(),
        }
    }
}

/// A log and the clock its maintenance goes by.
pub(crate) struct Maintainer {
    bus: Arc<dyn EventBus>,
    watch: Arc<ClockWatch>,
    /// Held while one runs. Whoever comes meanwhile waits and then runs another, which finds little to do.
    running: Mutex<()>,
}

impl Maintainer {
    /// Maintenance of `bus`.
    pub(crate) fn new(bus: Arc<dyn EventBus>, watch: Arc<ClockWatch>) -> Self {
        Self { bus, watch, running: Mutex::new(()) }
    }

    /// Runs it now. Blocks for as long as it takes, so never call it on an executor's thread.
    ///
    /// # Errors
    /// The bus's, and [`MaintainError::Held`]: nothing was done then.
    pub(crate) fn run(&self) -> Result<MaintenanceReport, MaintainError> {
        let _alone = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.watch.believed_now().map_err(MaintainError::Held)?;
        Ok(self.bus.maintain(now)?)
    }

    /// The last words of a process that stops.
    pub(crate) fn close(&self) {
        self.watch.close();
    }
}

#[cfg(test)]
mod held_archive;

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use latent_bridge::nats_bus::{NatsCredentials, NatsOptions, NatsRoots};
    use latent_bridge::{BridgeManifest, EmbeddedBroker, NatsBus};
    use latent_core::{Attributes, Clock as _, MediaType, NewRecord, Offset, Partition, SystemClock, UnixMillis};
    use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser};
    use latent_testkit::proxy::{Direction, FaultProxy};
    use latent_testkit::{ManualClock, require_broker, wait_until};

    use super::*;
    use crate::host::HostFiles;

    const MANIFEST: &str = "manifest_version: 1\nname: d\ntopics: [{ name: t, partitions: 1, retention: { hot_hours: 1 } }]\n";

    #[test]
    fn nothing_expires_by_a_clock_that_jumped_before_somebody_says_that_it_is_right() {
        let temp = tempfile::tempdir().unwrap();
        let log = Arc::new(EmbeddedBroker::provision(temp.path(), &BridgeManifest::from_yaml(MANIFEST).unwrap()).unwrap());
        let record = NewRecord::new(None, "", MediaType::json(), Attributes::default(), "{}".into()).unwrap();
        log.submit_record("t", record).wait().unwrap();
        let now = SystemClock::start().unix();
        let clock = Arc::new(ManualClock::starting_at(now));
        let watch = Arc::new(ClockWatch::open(HostFiles::below(temp.path()), Arc::clone(&clock) as _).unwrap());
        let maintainer = Maintainer::new(Arc::clone(&log) as _, Arc::clone(&watch));
        assert_eq!(maintainer.run().unwrap().expired_records, 0);
        clock.jump_to(UnixMillis(now.0 + 48 * 3_600_000));
        for _ in 0..2 {
            assert_eq!(maintainer.run().unwrap_err().kind(), "clock-held");
        }
        assert_eq!(log.bounds("t", Partition(0)).unwrap().0, Offset(0));
        watch.confirm().unwrap();
        assert_eq!(maintainer.run().unwrap().expired_records, 1);
    }

    /// The archive goes by the same clock: what expires, the grace of intents, and what is published again.
    #[test]
    fn nothing_is_archived_by_a_clock_that_jumped_and_it_goes_on_when_that_is_confirmed() {
        let (temp, cold) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut manifest = BridgeManifest::from_yaml(MANIFEST).unwrap();
        manifest.topics[0].retention.cold_uri = Some(cold.path().join("cold").to_str().unwrap().to_owned());
        let now = UnixMillis(1_800_000_000_000);
        let clock = Arc::new(ManualClock::starting_at(now));
        let archive = latent_bridge::cold::ArchiveOptions { control_keys: vec![[7; 32]], ..Default::default() };
        let options = latent_bridge::embedded::EngineOptions { clock: Arc::clone(&clock) as _, archive, ..Default::default() };
        let log = Arc::new(EmbeddedBroker::provision_with(temp.path(), &manifest, options).unwrap());
        let record = NewRecord::new(None, "", MediaType::json(), Attributes::default(), "{}".into()).unwrap();
        log.submit_record("t", record).wait().unwrap();
        let watch = Arc::new(ClockWatch::open(HostFiles::below(temp.path()), Arc::clone(&clock) as _).unwrap());
        let maintainer = Maintainer::new(log, Arc::clone(&watch));
        let object = cold.path().join("cold/t/p0/00000000000000000000.json");
        let day = 24 * 3_600_000;
        for held in [now.0 + day, now.0 - day] {
            clock.jump_to(UnixMillis(held));
            assert_eq!(maintainer.run().unwrap_err().kind(), "clock-held");
            assert!(!object.exists());
            clock.jump_to(now);
            assert_eq!(maintainer.run().unwrap().archived_records, 0, "it goes on by itself when the clock is right again");
        }
        clock.jump_to(UnixMillis(now.0 + day));
        maintainer.run().unwrap_err();
        watch.confirm().unwrap();
        let report = maintainer.run().unwrap();
        assert_eq!((report.archived_records, report.intents_completed, report.expired_records), (1, 1, 1));
        assert!(object.is_file());
    }

    /// On a broker it is the republication of what was staged and never sent that a clock could bring about too early.
    #[test]
    fn nothing_is_published_again_by_a_clock_that_jumped() {
        require_broker!();
        let broker = Broker::start(BrokerSpec::with_users([BrokerUser::unlimited("bus", "of one test")]).disk(64 << 20));
        let temp = tempfile::tempdir().unwrap();
        let now = UnixMillis(1_800_000_000_000);
        let clock = Arc::new(ManualClock::starting_at(now));
        let mut manifest = BridgeManifest::from_yaml(MANIFEST).unwrap();
        manifest.topics[0].retention.cold_uri = Some(temp.path().join("cold").to_str().unwrap().to_owned());
        let options = |address: SocketAddrV4| {
            let outbox = Some(temp.path().join("outbox"));
            let archive = latent_bridge::cold::ArchiveOptions { control_keys: vec![[7; 32]], outbox, ..Default::default() };
            let credentials = NatsCredentials::UserPassword { user: "bus".to_owned(), password: "of one test".to_owned() };
            NatsOptions {
                credentials: Some(credentials),
                roots: NatsRoots::Der(vec![broker.ca().root_der()]),
                server_name: Some(broker.server_name()),
                tls_first: true,
                clock: Arc::clone(&clock) as _,
                archive: Some(archive),
                ..NatsOptions::new(&format!("tls://{address}"))
            }
        };
        drop(NatsBus::provision_with(options(broker.address()), &manifest).unwrap());
        let proxy = FaultProxy::start(&broker);
        let bus = NatsBus::open_with(options(proxy.address()), &manifest).unwrap();
        proxy.withhold(Direction::ToBroker);
        let record = NewRecord::new(None, "", MediaType::json(), Attributes::default(), "{}".into()).unwrap();
        let lost = bus.submit_record("t", record);
        wait_until("it is staged", || bus.archive_statistics().unwrap().intents == 1);
        drop((bus, proxy));
        lost.wait().unwrap_err();

        let bus = Arc::new(NatsBus::open_with(options(broker.address()), &manifest).unwrap());
        let watch = Arc::new(ClockWatch::open(HostFiles::below(temp.path()), Arc::clone(&clock) as _).unwrap());
        let maintainer = Maintainer::new(Arc::clone(&bus) as _, Arc::clone(&watch));
        let stored = || bus.submit_fetch("t", Partition(0), Offset(0), 10).wait().unwrap();
        let day = 24 * 3_600_000;
        for (held, words) in [(now.0 + day, "hours ahead of"), (now.0 - day, "hours behind")] {
            clock.jump_to(UnixMillis(held));
            let refused = maintainer.run().unwrap_err();
            assert_eq!(refused.kind(), "clock-held");
            let told = refused.to_string();
            assert!(told.starts_with("retention is held: the wall clock is ") && told.contains(words), "{told}");
            assert!(stored().is_empty());
            clock.jump_to(now);
            assert_eq!(maintainer.run().unwrap().intents_pending, 1, "it goes on, and the intent is left to its publisher");
        }
        clock.jump_to(UnixMillis(now.0 + day));
        maintainer.run().unwrap_err();
        watch.confirm().unwrap();
        assert_eq!(maintainer.run().unwrap().intents_completed, 1);
        let stored = stored();
        assert_eq!((stored.len(), stored[0].record.stored_at), (1, now), "with the time at which it was staged");
    }

    #[test]
    fn a_clock_that_is_set_back_to_where_it_was_lets_maintenance_go_on_by_itself() {
        let temp = tempfile::tempdir().unwrap();
        let log = Arc::new(EmbeddedBroker::provision(temp.path(), &BridgeManifest::from_yaml(MANIFEST).unwrap()).unwrap());
        let clock = Arc::new(ManualClock::starting_at(UnixMillis(1_800_000_000_000)));
        let watch = Arc::new(ClockWatch::open(HostFiles::below(temp.path()), Arc::clone(&clock) as _).unwrap());
        let maintainer = Maintainer::new(log, watch);
        for (unix, held) in [(1_800_000_000_000, false), (1_700_000_000_000, true), (1_800_000_000_000, false)] {
            clock.jump_to(UnixMillis(unix));
            assert_eq!(maintainer.run().is_err(), held, "{unix}");
        }
    }
}
