//! What readers leave on the broker.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use async_nats::jetstream::consumer::pull;
use latent_bridge::limits::KEPT_READERS;
use latent_bridge::nats_bus::{NatsOptions, NatsRoots};
use latent_bridge::{BusError, EventBus, NatsBus};
use latent_core::{Offset, Partition};
use latent_testkit::broker::{Broker, BrokerSpec, TestCa};
use latent_testkit::{ChildGuard, require_broker, wait_until};

use crate::live::{STREAM, beside, manifest, options, options_as, options_at, record, restricted, spec, spec_with, with_topic};

/// Set in a child to the server and the root's file.
const CHILD: &str = "LATENT_BRIDGE_TEST_READING_CHILD";
const RECORDS: usize = 3_000;
/// A user that may read and publish, but delete no consumer.
const CLUMSY: &str = "clumsy";

fn fill(bus: &NatsBus) {
    let records: Vec<_> = (0..RECORDS).map(|n| record(&format!("u{n}"), "k", "x")).collect();
    assert!(bus.publish_batch("t", &records).iter().all(Result::is_ok));
}

/// Not a test of its own: without the variable it has nothing to do. Reads and looks up until it is killed.
#[test]
fn child_reads_until_it_is_killed() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (server, ca_file) = told.split_once(' ').unwrap();
    let roots = NatsRoots::Pem(PathBuf::from(ca_file));
    let options = NatsOptions { servers: vec![server.to_owned()], roots, ..options_at(&[], &TestCa::new()) };
    for n in 0.. {
        // Each bus begins without knowing anything, so that every lookup has a consumer.
        let bus = NatsBus::open_with(options.clone(), &manifest(1)).unwrap();
        assert!(bus.submit_fetch("t", Partition(0), Offset(n % 100), 10).wait().unwrap().len() == 10);
        println!("\nreading");
        assert_eq!(bus.find_event_by_uid("t", "k", "nowhere"), Ok(None));
    }
}

/// Kills a process that reads, twenty times, each time within a read.
fn kill_readers(broker: &Broker) {
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, broker.ca().root_pem()).unwrap();
    for n in 0..20 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["failures::consumers::child_reads_until_it_is_killed", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(CHILD, format!("tls://{} {}", broker.address(), ca_file.display()));
        let mut child = ChildGuard::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped())).unwrap();
        let lines = BufReader::new(child.take_stdout().unwrap()).lines().map_while(Result::ok);
        assert_eq!(lines.filter(|line| line == "reading").take(1 + n % 3).count(), 1 + n % 3);
        child.kill().unwrap();
    }
}

/// BUG-51. Consumers of readers are few while they read and gone afterwards: at once where they may be deleted, else when the broker finds
/// them idle. Neither a kill nor a missing permission leaves one for longer. B-059, B-065.
#[test]
fn bug_51_consumers_of_readers_do_not_pile_up_whatever_becomes_of_the_readers() {
    require_broker!();
    const RIGHTS: [&str; 5] =
        ["$JS.API.STREAM.INFO.>", "$JS.API.STREAM.MSG.GET.>", "$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.MSG.NEXT.>", "t.>"];
    let (broker, bus) = with_topic(spec_with(restricted(CLUMSY, &RIGHTS)), 1);
    fill(&bus);
    let consumers = || beside(&broker, async |admin| admin.consumers());
    assert_eq!(consumers(), 0);
    kill_readers(&broker);
    let left_by_kills = consumers();
    // A process had one bus at a time, with one reader and one lookup, which may change its consumer.
    assert!(left_by_kills <= 20 * 3, "{left_by_kills}");

    let clumsy = NatsBus::open_with(options_as(&broker, CLUMSY), &manifest(1)).unwrap();
    for n in 0..20 {
        assert_eq!(clumsy.fetch("t", 0, n * 100, 5).unwrap().len(), 5, "a refused deletion is no failure");
    }
    assert!(clumsy.find_event_by_uid("t", "k", "u2999").unwrap().is_some());
    let messages = beside(&broker, async |admin| admin.connections().into_iter().find(|connection| connection.user == CLUMSY).unwrap());
    assert!(messages.messages_in < 400, "no storm of repeated deletions: {} messages", messages.messages_in);
    let left_by_refusals = consumers() - left_by_kills.min(consumers());
    assert!(left_by_refusals <= KEPT_READERS.default, "{left_by_refusals}");
    drop(clumsy);

    // Who reads on has one consumer for all of it, and a lookup one of its own while it lasts.
    let before = consumers();
    let mut next = 0;
    for n in 0..250_u64 {
        let page = bus.fetch("t", 0, next, 13).unwrap();
        next = page.last().map_or(next, |last| last.offset + 1);
        assert!(consumers() <= before + 1, "one reader has {} consumers", consumers() - before);
        if n % 25 == 0 {
            assert!(bus.find_event_by_uid("t", "k", &format!("u{n}")).unwrap().is_some());
            wait_until("what the lookup used is gone", || consumers() <= before + 1);
        }
    }
    assert_eq!(next, RECORDS as u64 + 1, "and at the end it tails");

    let before = consumers();
    for n in 0..500_u64 {
        // A tail: from where the last one ended, mostly with nothing new.
        assert_eq!(bus.fetch("t", 0, RECORDS as u64 - 2 + n % 4, 10).unwrap().len(), 3_usize.saturating_sub((n % 4) as usize));
        if n % 25 == 0 {
            assert!(bus.find_event_by_uid("t", "k", &format!("u{n}")).unwrap().is_some());
            let now = consumers();
            // Those that are kept for who reads on, and one for the lookup.
            assert!(now <= before + KEPT_READERS.default + 1, "{now} consumers where {before} were");
        }
    }
    beside(&broker, async |admin| {
        let stream = admin.jetstream().get_stream(STREAM).await.unwrap();
        let consumers: Vec<_> = futures_util::TryStreamExt::try_collect(stream.consumers()).await.unwrap();
        assert!(consumers.iter().all(|consumer: &async_nats::jetstream::consumer::Info| consumer.config.durable_name.is_none()));
    });
    drop(bus);
    wait_until("the broker has no consumer any more", || consumers() == 0);
}

/// BUG-51, the broker's own limit: a reader that finds no room says so, and reads again once there is.
#[test]
fn bug_51_a_full_broker_is_a_clear_error_that_clears_itself() {
    require_broker!();
    const MAX: u32 = 50;
    let (broker, bus) = with_topic(BrokerSpec { consumers_max: Some(MAX), ..spec() }, 1);
    bus.publish_record("t", &record("u", "k", "x")).unwrap();
    let name = |n: u32| format!("theirs-{n}");
    beside(&broker, async |admin| {
        let stream = admin.jetstream().get_stream(STREAM).await.unwrap();
        let mut created = 0;
        // The bus may keep one of its own.
        for n in 0..MAX {
            let config = pull::Config { durable_name: Some(name(n)), ..pull::Config::default() };
            created += u32::from(stream.create_consumer(config).await.is_ok());
        }
        assert!(created + 2 >= MAX, "{created}");
    });
    let refused = NatsBus::open_with(options(&broker), &manifest(1)).unwrap().fetch("t", 0, 0, 10).unwrap_err();
    assert!(!refused.is_permanent() && !matches!(refused, BusError::Timeout { .. }), "{refused:?}");
    assert!(refused.to_string().contains("maximum consumers limit"), "{refused}");
    beside(&broker, async |admin| {
        admin.jetstream().get_stream(STREAM).await.unwrap().delete_consumer(&name(0)).await.unwrap();
    });
    let again = NatsBus::open_with(options(&broker), &manifest(1)).unwrap();
    assert_eq!(again.fetch("t", 0, 0, 10).unwrap().len(), 1);
}
