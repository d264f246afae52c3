//! What a broker removed before it was archived in segments is a hole that is told: in the report, in head and chain, and when the archive is
//! verified; and archiving goes on.

use async_nats::jetstream::stream::Stream;
use latent_bridge::cold::ControlKeys;
use latent_bridge::cold::export::{ArchiveHead, Holes};
use latent_bridge::cold::verify::{FindingKind, Known, Verification, VerifyReport};
use latent_bridge::{EventBus, NatsBus};
use latent_core::Partition;
use latent_testkit::require_broker;

use crate::cold::{KEY, Site, in_a_while};
use crate::cold_segments::{bus, due, heads, publish, verified};
use crate::live::{STREAM, beside};

/// Removes messages as an operator would.
fn with_stream<T>(site: &Site, work: impl AsyncFnOnce(Stream) -> T) -> T {
    beside(&site.broker, async |admin| work(admin.jetstream().get_stream(STREAM).await.unwrap()).await)
}

fn purge(site: &Site) {
    beside(&site.broker, async |admin| admin.purge_stream(STREAM).await);
}

/// Of each hole its offsets and how many events are lost for certain.
fn holes(bus: &NatsBus) -> Vec<(u64, u64, u64)> {
    let of = |head: &ArchiveHead| head.holes.kept().iter().map(|kept| (kept.hole.first.0, kept.hole.last.0, kept.hole.events)).collect();
    heads(bus).iter().flat_map(|head| -> Vec<_> { of(head) }).collect()
}

/// Only holes are wrong. How many, and how many of them a segment names.
fn found(report: &VerifyReport) -> (usize, usize) {
    let findings = report.findings.kept();
    assert!(findings.iter().all(|finding| finding.kind == FindingKind::Hole), "{findings:?}");
    (findings.len(), findings.iter().filter(|finding| finding.object.is_some()).count())
}

/// With nothing but the archive and the keys, as of a copy of it.
fn of_a_copy(site: &Site) -> (usize, usize) {
    let keys = ControlKeys::new(&[KEY]).unwrap();
    let verification = Verification {
        store: &*site.store,
        topic: None,
        partition: None,
        keys: Some(&keys),
        heads: &[],
        log: None,
        dense: false,
        known: Known::default(),
    };
    found(&verification.run(&mut |_| {}).unwrap())
}

#[test]
fn a_purge_before_the_archive_had_it_is_told_once_through_restarts_and_later_events_are_archived() {
    require_broker!();
    let site = Site::start();
    let first = bus(&site);
    publish(&first, "a", 40);
    first.maintain(due()).unwrap();
    // Ten that maintenance saw, ten that it did not.
    publish(&first, "b", 10);
    first.maintain(in_a_while()).unwrap();
    publish(&first, "c", 10);
    purge(&site);
    drop(first);
    let second = bus(&site);
    let report = second.maintain(in_a_while()).unwrap();
    assert_eq!((report.archive_holes, report.archived_records, report.unarchived_topics.len()), (2, 0, 0), "{report:?}");
    let told = holes(&second);
    assert_eq!((told.len(), told.iter().map(|(.., events)| events).sum::<u64>()), (2, 10), "{told:?}");
    assert!(told.iter().all(|(first, last, _)| (41..=50).contains(first) && *last == 60), "{told:?}");
    assert_eq!((found(&verified(&site, &second)), of_a_copy(&site)), ((2, 0), (0, 0)));
    assert_eq!(second.maintain(due()).unwrap().archive_holes, 0);
    drop(second);
    let third = bus(&site);
    publish(&third, "d", 20);
    let report = third.maintain(due()).unwrap();
    assert_eq!((report.archive_holes, report.archived_records), (0, 20), "{report:?}");
    let seen = verified(&site, &third);
    assert_eq!((found(&seen), of_a_copy(&site), seen.records, holes(&third)), ((2, 2), (2, 2), 60, told));
    // What is archived may go.
    purge(&site);
    assert_eq!((third.maintain(due()).unwrap().archive_holes, found(&verified(&site, &third))), (0, (2, 2)));
}

#[test]
fn what_the_brokers_age_limit_takes_while_no_node_runs_and_a_single_deletion_are_told() {
    require_broker!();
    let site = Site::start();
    let first = bus(&site);
    publish(&first, "a", 12);
    first.maintain(in_a_while()).unwrap();
    let offsets: Vec<_> = crate::live::stored(&first).iter().map(|stored| stored.offset.0).collect();
    with_stream(&site, async |stream| assert!(stream.delete_message(offsets[1]).await.unwrap()));
    let report = first.maintain(due()).unwrap();
    assert_eq!((report.archive_holes, report.archived_records, holes(&first).iter().map(|hole| hole.2).sum::<u64>()), (1, 11, 1));
    publish(&first, "b", 12);
    drop(first);
    beside(&site.broker, async |admin| {
        let mut stream = admin.jetstream().get_stream(STREAM).await.unwrap();
        let config = stream.info().await.unwrap().config.clone();
        let short = async_nats::jetstream::stream::Config {
            max_age: std::time::Duration::from_millis(100),
            duplicate_window: std::time::Duration::from_millis(100),
            ..config.clone()
        };
        admin.jetstream().update_stream(short).await.unwrap();
        while stream.info().await.unwrap().state.messages > 0 {}
        admin.jetstream().update_stream(config).await.unwrap();
    });
    let second = bus(&site);
    assert_eq!(second.maintain(due()).unwrap().archive_holes, 2);
    assert_eq!(found(&verified(&site, &second)).0, 3);
}

#[test]
fn an_old_head_is_read_and_what_is_lost_after_that_is_told() {
    require_broker!();
    let site = Site::start();
    let first = bus(&site);
    publish(&first, "a", 40);
    first.maintain(due()).unwrap();
    let keys = ControlKeys::new(&[KEY]).unwrap();
    for head in heads(&first) {
        let file = site.folder.path().join(format!("outbox/segments/t.p{}.head", head.place.partition));
        let old = ArchiveHead { lookout: None, holes: Holes::default(), ..head };
        std::fs::write(file, old.to_json(&keys).unwrap()).unwrap();
    }
    drop(first);
    let second = bus(&site);
    assert!(heads(&second).iter().all(|head| head.lookout.is_none() && head.segments > 0));
    publish(&second, "b", 10);
    let report = second.maintain(due()).unwrap();
    assert_eq!((report.archive_holes, report.archived_records), (0, 10));
    publish(&second, "c", 10);
    purge(&site);
    assert_eq!(second.maintain(due()).unwrap().archive_holes, 2);
    assert!((0..2).all(|partition| second.archive_head("t", Partition(partition)).unwrap().unwrap().head.holes.total() == 1));
}
