//! Three brokers keep one topic while the leader of its stream is killed again and again, and four processes publish to it. A child is
//! this test binary run again with an environment variable.
//!
//! `LATENT_CLUSTER_RECORDS` makes the run long (`cargo xtask campaign cluster`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use latent_bridge::nats_bus::NatsRoots;
use latent_bridge::{BridgeManifest, EventBus, NatsBus, PublishAck};
use latent_core::{NewRecord, Offset, Partition, StoredRecord};
use latent_testkit::broker::Cluster;
use latent_testkit::{ChildGuard, require_broker, wait_until};

use crate::live::{STREAM, manifest, options_at, record, spec};

/// How many different uids are published in all.
const RECORDS_VAR: &str = "LATENT_CLUSTER_RECORDS";
const RECORDS: usize = 12_000;
const PROCESSES: usize = 4;
/// Of ten uids, one is published by every process.
const SHARED_OF: usize = 10;
/// For so many records there is one kill, so that a long run is one of many.
const RECORDS_PER_KILL: usize = 5_000;
const KILLS_MIN: usize = 2;
/// What a child hands over at a time, and then publishes again if it must.
const BATCH: usize = 100;

/// Set in a child: its number, the count of records, the root's file, and then the servers, separated by spaces.
const CHILD: &str = "LATENT_BRIDGE_TEST_CLUSTER_CHILD";

fn three_replicas() -> BridgeManifest {
    // The duplicate window is as long as the retention: 30 days outlive the run.
    BridgeManifest { replication_factor: 3, ..manifest(8) }
}

/// The uids that a process publishes: those that all publish, and its own.
fn uids_of(process: usize, records: usize) -> impl Iterator<Item = String> {
    (0..records).filter_map(move |n| match n % SHARED_OF {
        0 => Some(format!("shared-{n}")),
        _ if n % PROCESSES == process => Some(format!("own-{n}")),
        _ => None,
    })
}

fn record_of(uid: &str) -> NewRecord {
    record(uid, &format!("key of {uid}"), format!("payload of {uid}"))
}

/// Not a test of its own: without the variable it has nothing to do. Publishes by uid until everything is acknowledged.
#[test]
fn child_publishes_until_everything_is_acknowledged() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let mut told = told.split(' ');
    let mut next = || told.next().unwrap();
    let (process, records, ca_file): (usize, usize, _) = (next().parse().unwrap(), next().parse().unwrap(), PathBuf::from(next()));
    let options = latent_bridge::nats_bus::NatsOptions {
        servers: told.map(str::to_owned).collect(),
        roots: NatsRoots::Pem(ca_file),
        ..options_at(&[], &latent_testkit::broker::TestCa::new())
    };
    let bus = NatsBus::open_with(options, &three_replicas()).unwrap();
    let all: Vec<_> = uids_of(process, records).map(|uid| record_of(&uid)).collect();
    for batch in all.chunks(BATCH) {
        let mut left = batch.to_vec();
        while !left.is_empty() {
            left = publish(&bus, left);
        }
    }
}

/// Publishes once; what was not acknowledged is left.
fn publish(bus: &NatsBus, records: Vec<NewRecord>) -> Vec<NewRecord> {
    let results = bus.publish_batch("t", &records);
    let handed_over = records.len();
    let left: Vec<_> = records
        .into_iter()
        .zip(results)
        .filter_map(|(record, result)| match result {
            Ok(PublishAck { uid, partition, offset, duplicate, .. }) => {
                println!("\nacknowledged {uid} {partition} {offset} {duplicate}");
                None
            }
            Err(error) => {
                assert!(!error.is_permanent(), "{error}");
                println!("\nerror {}", error.kind());
                Some(record)
            }
        })
        .collect();
    if left.len() == handed_over {
        wait_until("the stream answers again", || bus.bounds("t", Partition(0)).is_ok());
    }
    left
}

/// Every record, read as a patient reader does: an answer may be lost while the members find their leaders.
fn read_in_the_end(bus: &NatsBus) -> Vec<StoredRecord> {
    let mut records: Vec<StoredRecord> = Vec::new();
    for partition in (0..bus.partitions("t").unwrap()).map(Partition) {
        let mut next = Offset(0);
        loop {
            let mut page = Vec::new();
            wait_until("the partition is read", || bus.submit_fetch("t", partition, next, 1_000).wait().map(|read| page = read).is_ok());
            let Some(last) = page.last() else { break };
            next = Offset(last.offset.0 + 1);
            records.extend(page);
        }
    }
    records
}

/// What the children have said so far.
#[derive(Default)]
struct Told {
    /// By uid: partition and offset.
    places: Mutex<BTreeMap<String, BTreeSet<(u32, u64)>>>,
    errors: Mutex<BTreeMap<String, usize>>,
    acknowledged: AtomicUsize,
    duplicates: AtomicUsize,
}

impl Told {
    fn line(&self, line: &str) {
        let fields: Vec<_> = line.split(' ').collect();
        match fields[..] {
            ["acknowledged", uid, partition, offset, duplicate] => {
                let place = (partition.parse().unwrap(), offset.parse().unwrap());
                self.places.lock().unwrap().entry(uid.to_owned()).or_default().insert(place);
                self.acknowledged.fetch_add(1, Ordering::SeqCst);
                self.duplicates.fetch_add(usize::from(duplicate == "true"), Ordering::SeqCst);
            }
            ["error", kind] => *self.errors.lock().unwrap().entry(kind.to_owned()).or_default() += 1,
            _ => {}
        }
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }
}

fn spawn_child(process: usize, records: usize, ca_file: &Path, cluster: &Cluster) -> ChildGuard {
    let servers: Vec<_> = cluster.addresses().into_iter().map(|address| format!("tls://{address}")).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["cluster::child_publishes_until_everything_is_acknowledged", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, format!("{process} {records} {} {}", ca_file.display(), servers.join(" ")));
    ChildGuard::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped())).unwrap()
}

/// Kills the leader of the stream each time that so many more were acknowledged, and starts it again with what it stored.
fn kill_leaders(cluster: &Cluster, told: &Told, acknowledgements: usize, kills: usize) -> Vec<usize> {
    let mut killed = Vec::new();
    for kill in 1..=kills {
        let due = acknowledgements * kill / (kills + 1);
        wait_until("so many are acknowledged", || told.acknowledged() >= due);
        let leader = cluster.leader_of(STREAM);
        cluster.kill(leader);
        killed.push(leader);
        // Publishing goes on without it before it comes back, unless this was the end.
        let more = acknowledgements.min(told.acknowledged() + BATCH);
        wait_until("the others acknowledge", || told.acknowledged() >= more);
        cluster.restart(leader);
    }
    killed
}

#[test]
fn nothing_acknowledged_is_missing_and_nothing_is_stored_twice_when_leaders_are_killed() {
    require_broker!();
    let records = std::env::var(RECORDS_VAR).map_or(RECORDS, |text| text.parse().unwrap());
    let kills = (records / RECORDS_PER_KILL).max(KILLS_MIN);
    let cluster = Cluster::start(&spec());
    let options = options_at(&cluster.addresses(), cluster.ca());
    let bus = NatsBus::provision_with(options, &three_replicas()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, cluster.ca().root_pem()).unwrap();

    let told = Told::default();
    let acknowledgements = (0..PROCESSES).map(|process| uids_of(process, records).count()).sum();
    let killed = std::thread::scope(|scope| {
        for process in 0..PROCESSES {
            let mut child = spawn_child(process, records, &ca_file, &cluster);
            let lines = BufReader::new(child.take_stdout().unwrap()).lines();
            let told = &told;
            scope.spawn(move || {
                lines.map_while(Result::ok).for_each(|line| told.line(&line));
                let ended = child.wait_at_most(std::time::Duration::from_secs(60)).unwrap();
                assert!(ended.is_ok_and(|status| status.success()), "process {process} failed");
            });
        }
        kill_leaders(&cluster, &told, acknowledgements, kills)
    });

    let expected: BTreeSet<_> = (0..PROCESSES).flat_map(|process| uids_of(process, records)).collect();
    let mut places = BTreeMap::new();
    for stored in read_in_the_end(&bus) {
        let uid = stored.record.uid.as_str().to_owned();
        assert!(stored.record.same_content(&record_of(&uid)), "{uid} has other content");
        let place = (stored.partition.0, stored.offset.0);
        assert_eq!(places.insert(uid.clone(), BTreeSet::from([place])), None, "{uid} is stored twice");
    }
    assert!(places.keys().eq(&expected), "stored is what was published and nothing else");
    assert_eq!(*told.places.lock().unwrap(), places, "acknowledged is what is stored, where it is stored");
    assert_eq!(told.acknowledged(), acknowledgements);
    let members: BTreeSet<_> = killed.iter().collect();
    println!(
        "{} records published by {PROCESSES} processes, {} of them by each, through {} kills of the leader (of {} members): \
         {acknowledgements} acknowledgements, {} of them duplicates; retried after {:?}; missing 0, stored twice 0, foreign 0",
        expected.len(),
        uids_of(0, records).filter(|uid| uid.starts_with("shared")).count(),
        killed.len(),
        members.len(),
        told.duplicates.load(Ordering::SeqCst),
        told.errors.lock().unwrap(),
    );
}
