//! The broker is away while the bus publishes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use latent_bridge::nats_bus::{NatsOptions, NatsRoots};
use latent_bridge::{BusError, EventBus, NatsBus, PublishAck};
use latent_testkit::broker::{Broker, TestCa};
use latent_testkit::{ChildGuard, require_broker, wait_until};

use crate::live::{manifest, options_at, record, spec, stored, with_topic};

/// Set in a child to the server and the root's file.
const CHILD: &str = "LATENT_BRIDGE_TEST_EXITING_CHILD";
const PARTITIONS: u32 = 4;

/// What one thread of many has seen.
#[derive(Default)]
struct Seen {
    acknowledged: AtomicUsize,
    not_sent: AtomicUsize,
    uncertain: AtomicUsize,
}

/// Publishes one uid after the other, each until it is acknowledged.
fn publish(bus: &NatsBus, thread: usize, seen: &Seen, stop: &AtomicBool) -> Vec<PublishAck> {
    let mut acks = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::SeqCst) {
            return acks;
        }
        let uid = format!("{thread}-{n}");
        wait_until("it is acknowledged", || {
            let counted = match bus.publish_record("t", &record(&uid, &uid, uid.clone())) {
                Ok(ack) => {
                    acks.push(ack);
                    &seen.acknowledged
                }
                Err(BusError::NotSent { .. }) => &seen.not_sent,
                Err(BusError::Uncertain { uid: uncertain, .. }) => {
                    assert_eq!(uncertain.as_str(), uid);
                    &seen.uncertain
                }
                // The stream has no leader for a moment.
                Err(BusError::Rejected { permanent: false, .. }) => return false,
                Err(error) => panic!("{error}"),
            };
            counted.fetch_add(1, Ordering::SeqCst);
            acks.last().is_some_and(|ack| ack.uid == uid)
        });
    }
    acks
}

/// Every acknowledged record is there once, where the acknowledgement says, and nothing else is.
fn check(bus: &NatsBus, acks: &[PublishAck]) {
    let mut places = BTreeMap::new();
    for stored in stored(bus) {
        let uid = stored.record.uid.as_str().to_owned();
        assert_eq!(stored.record.payload, uid, "whole");
        assert_eq!(places.insert(uid.clone(), (stored.partition.0, stored.offset.0)), None, "{uid} is stored twice");
    }
    let acknowledged: BTreeMap<_, _> = acks.iter().map(|ack| (ack.uid.clone(), (ack.partition, ack.offset))).collect();
    assert_eq!(acknowledged, places);
}

/// BUG-45. The broker ends and comes back with its store, ends as in a power cut, and stands still for longer than an operation may take:
/// every acknowledged record is there once. What is not acknowledged says whether it was handed over, and retries by uid double nothing.
#[test]
fn bug_45_only_what_the_stream_acknowledged_is_acknowledged_and_retries_double_nothing() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), PARTITIONS);
    let (stop, seen, acks) = (AtomicBool::new(false), [(); 8].map(|()| Seen::default()), Mutex::new(Vec::new()));
    let all = |of: fn(&Seen) -> &AtomicUsize, at_least: &[usize]| {
        seen.iter().zip(at_least).all(|(seen, at_least)| of(seen).load(Ordering::SeqCst) > *at_least)
    };
    let now =
        |of: fn(&Seen) -> &AtomicUsize, more: usize| seen.iter().map(|seen| of(seen).load(Ordering::SeqCst) + more).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for (thread, seen) in seen.iter().enumerate() {
            let (bus, stop, acks) = (&bus, &stop, &acks);
            scope.spawn(move || {
                let own = publish(bus, thread, seen, stop);
                acks.lock().unwrap().extend(own);
            });
        }
        let goes_on = |what: &str| {
            let before = now(|seen| &seen.acknowledged, 20);
            wait_until(what, || all(|seen| &seen.acknowledged, &before));
        };
        goes_on("every thread publishes");
        for end in [Broker::stop, Broker::kill] {
            let before = now(|seen| &seen.not_sent, 0);
            end(&broker);
            wait_until("every thread is told that nothing is sent", || all(|seen| &seen.not_sent, &before));
            broker.restart();
            goes_on("every thread publishes again");
        }
        let before = now(|seen| &seen.uncertain, 0);
        broker.pause();
        wait_until("every thread is told that its event may be stored", || all(|seen| &seen.uncertain, &before));
        broker.resume();
        goes_on("every thread publishes after the standstill");
        stop.store(true, Ordering::SeqCst);
    });
    check(&bus, &acks.into_inner().unwrap());
}

/// Not a test of its own: without the variable it has nothing to do.
#[test]
fn child_exits_right_after_its_last_acknowledgement() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (server, ca_file) = told.split_once(' ').unwrap();
    let roots = NatsRoots::Pem(PathBuf::from(ca_file));
    let bus = NatsBus::open_with(
        NatsOptions { servers: vec![server.to_owned()], roots, ..options_at(&[], &TestCa::new()) },
        &manifest(PARTITIONS),
    );
    let bus = bus.unwrap();
    for n in 0..50 {
        let uid = format!("{}-{n}", std::process::id());
        let ack = bus.publish_record("t", &record(&uid, &uid, uid.clone())).unwrap();
        println!("\nacknowledged {} {} {}", ack.uid, ack.partition, ack.offset);
    }
    std::process::exit(0);
}

/// BUG-45, the process that goes: what it was told is stored is stored, however soon it ends.
#[test]
fn bug_45_a_process_may_end_right_after_its_last_acknowledgement() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), PARTITIONS);
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, broker.ca().root_pem()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["failures::outages::child_exits_right_after_its_last_acknowledgement", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, format!("tls://{} {}", broker.address(), ca_file.display()));
    let mut child = ChildGuard::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped())).unwrap();
    let lines = BufReader::new(child.take_stdout().unwrap()).lines().map_while(Result::ok);
    let told: BTreeSet<_> = lines.filter_map(|line| line.strip_prefix("acknowledged ").map(str::to_owned)).collect();
    broker.kill();
    broker.restart();
    let acks: Vec<_> = told.iter().map(|line| acknowledgement(line)).collect();
    let last = record("last", "last", "last");
    let last = crate::live::acknowledged(&bus, &last);
    assert_eq!(acks.len(), 50);
    check(&bus, &acks.into_iter().chain([last]).collect::<Vec<_>>());
}

fn acknowledgement(line: &str) -> PublishAck {
    let fields: Vec<_> = line.split(' ').collect();
    PublishAck {
        topic: "t".to_owned(),
        uid: fields[0].to_owned(),
        partition: fields[1].parse().unwrap(),
        offset: fields[2].parse().unwrap(),
        duplicate: false,
    }
}
