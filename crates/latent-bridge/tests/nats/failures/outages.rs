//! The broker is away while the bus publishes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use latent_bridge::limits::CONNECTOR_OPERATION_MILLIS;
use latent_bridge::nats_bus::{NatsOptions, NatsRoots};
use latent_bridge::{BusError, EventBus, NatsBus, PublishAck};
use latent_testkit::broker::{Broker, TestCa};
use latent_testkit::{ChildGuard, require_broker, wait_until};

use crate::live::{manifest, options_at, record, spec, stored, with_clock, with_topic};

/// Set in a child to the server and the root's file.
const CHILD: &str = "LATENT_BRIDGE_TEST_EXITING_CHILD";
const PARTITIONS: u32 = 4;

/// What one thread of many has seen.
#[derive(Default)]
struct Seen {
    /// Calls that began.
    begun: AtomicUsize,
    /// Calls that ended, one way or the other.
    ended: AtomicUsize,
    acknowledged: AtomicUsize,
    not_sent: AtomicUsize,
    uncertain: AtomicUsize,
}

/// Publishes one uid after the other, each until it is acknowledged. Only what was not acknowledged is published again, and only what may have
/// been stored is a duplicate then.
fn publish(bus: &NatsBus, thread: usize, seen: &Seen, stop: &AtomicBool) -> Vec<PublishAck> {
    let mut acks: Vec<PublishAck> = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::SeqCst) {
            return acks;
        }
        let (uid, mut was_uncertain) = (format!("{thread}-{n}"), false);
        wait_until("it is acknowledged", || {
            seen.begun.fetch_add(1, Ordering::SeqCst);
            let result = bus.publish_record("t", &record(&uid, &uid, uid.clone()));
            seen.ended.fetch_add(1, Ordering::SeqCst);
            let counted = match result {
                Ok(ack) => {
                    assert!(was_uncertain || !ack.duplicate, "{uid} was stored by a call that said it was not");
                    acks.push(ack);
                    &seen.acknowledged
                }
                Err(BusError::NotSent { .. }) => &seen.not_sent,
                Err(BusError::Uncertain { uid: uncertain, .. }) => {
                    assert_eq!(uncertain.as_str(), uid);
                    was_uncertain = true;
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

/// BUG-45. The broker ends and comes back with its store, ends as in a power cut, and stands still: every acknowledged record is there once.
/// What is not acknowledged says whether it was handed over, and retries by uid double nothing. Only the test moves the bus's clock, so an
/// outage is as long as it says: one of 5 s ends no call, one of 20 s ends every call that was under way, none of which took longer than
/// an operation may (10 s).
#[test]
fn bug_45_only_what_the_stream_acknowledged_is_acknowledged_and_retries_double_nothing() {
    require_broker!();
    const LIMIT: u64 = CONNECTOR_OPERATION_MILLIS.default;
    let (broker, bus, clock) = with_clock(spec(), PARTITIONS);
    let (stop, seen, acks) = (AtomicBool::new(false), [(); 8].map(|()| Seen::default()), Mutex::new(Vec::new()));
    let now = |of: fn(&Seen) -> &AtomicUsize| seen.iter().map(|seen| of(seen).load(Ordering::SeqCst)).collect::<Vec<_>>();
    let all_above = |of: fn(&Seen) -> &AtomicUsize, before: &[usize]| now(of).iter().zip(before).all(|(now, before)| now > before);
    std::thread::scope(|scope| {
        for (thread, seen) in seen.iter().enumerate() {
            let (bus, stop, acks) = (&bus, &stop, &acks);
            scope.spawn(move || {
                let own = publish(bus, thread, seen, stop);
                acks.lock().unwrap().extend(own);
            });
        }
        let goes_on = |what: &str| {
            let before: Vec<_> = now(|seen| &seen.acknowledged).into_iter().map(|count| count + 20).collect();
            wait_until(what, || all_above(|seen| &seen.acknowledged, &before));
        };
        // Each thread has one call at a time: when so many have ended, each that had begun has.
        let calls_end = |what: &str, begun: &[usize]| {
            wait_until(what, || {
                // A call that had begun may have looked at the clock only after it was moved.
                clock.advance_millis(LIMIT);
                now(|seen| &seen.ended).iter().zip(begun).all(|(ended, begun)| ended >= begun)
            });
        };
        goes_on("every thread publishes");
        for (end, millis) in [(Broker::stop as fn(&Broker), 5_000), (Broker::kill, 20_000)] {
            let before = now(|seen| &seen.not_sent);
            end(&broker);
            let begun = now(|seen| &seen.begun);
            clock.advance_millis(millis);
            if millis < LIMIT {
                // What was under way when the broker ended is answered by nobody.
                clock.advance_millis(LIMIT - millis);
            }
            calls_end("every call that was under way ends", &begun);
            wait_until("every thread is told that nothing is sent", || all_above(|seen| &seen.not_sent, &before));
            broker.restart();
            goes_on("every thread publishes again");
        }
        let (before, acknowledged) = (now(|seen| &seen.uncertain), now(|seen| &seen.acknowledged));
        broker.pause();
        clock.advance_millis(5_000);
        broker.resume();
        goes_on("every thread publishes after a standstill of 5 s");
        assert_eq!(now(|seen| &seen.uncertain), before, "which ended no call");
        assert!(all_above(|seen| &seen.acknowledged, &acknowledged));

        broker.pause();
        let begun = now(|seen| &seen.begun);
        clock.advance_millis(20_000);
        calls_end("every call ends within the time of an operation", &begun);
        wait_until("every thread is told that its event may be stored", || {
            // Some thread's call may have begun after the clock was moved.
            clock.advance_millis(LIMIT);
            all_above(|seen| &seen.uncertain, &before)
        });
        broker.resume();
        goes_on("every thread publishes after a standstill of 20 s");
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
