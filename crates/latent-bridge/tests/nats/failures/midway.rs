//! Something changes in the middle of a read, or a bound is reached.

use std::sync::atomic::Ordering;

use latent_bridge::limits::{BROKER_READS, KEPT_READERS, MESSAGE_BYTES};
use latent_bridge::{BusError, EventBus, HeadContent};
use latent_core::{Offset, Partition, StoredRecord, Ticket};
use latent_testkit::broker::BrokerSpec;
use latent_testkit::{require_broker, wait_until};

use super::scripted::{Script, ScriptedJetStream};
use crate::live::{record, spec, with_topic};
use crate::raw::Raw;

const P0: Partition = Partition(0);

fn script(count: u64) -> Script {
    Script { uids: (1..=count).map(|n| format!("u{n}")).collect(), page: 2, ..Script::default() }
}

fn fetch(scripted: &ScriptedJetStream, from: u64, max: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>> {
    scripted.bus.submit_fetch("t", P0, Offset(from), max)
}

fn offsets(page: Result<Vec<StoredRecord>, BusError>) -> Vec<u64> {
    page.unwrap().into_iter().map(|stored| stored.offset.0).collect()
}

fn asked(of: &std::sync::atomic::AtomicUsize) -> u64 {
    of.load(Ordering::SeqCst) as u64
}

/// A slow link: what has come is a page when its time is over, and the next one goes on behind it.
#[test]
fn a_page_that_comes_slowly_ends_with_what_it_has() {
    require_broker!();
    let scripted = ScriptedJetStream::start(Script { is_falling_silent: true, ..script(5) });
    assert_eq!(offsets(fetch(&scripted, 0, 100).wait()), [1, 2], "the pull is never ended, and the page is");
    assert_eq!(offsets(fetch(&scripted, 3, 2).wait()), [3, 4]);
    assert_eq!(asked(&scripted.asked.created), 1, "by the same consumer");
}

/// A consumer that goes after a part of the page: another one goes on. When there is none to be had, the part is a page and the trouble comes
/// with the next one.
#[test]
fn what_was_read_before_a_consumer_failed_is_kept() {
    require_broker!();
    let scripted = ScriptedJetStream::start(Script { is_deleting: true, ..script(5) });
    assert_eq!(offsets(fetch(&scripted, 0, 100).wait()), [1, 2, 3, 4, 5]);
    assert_eq!(asked(&scripted.asked.created), 3, "each gave one pull");

    scripted.now.holds_pulls.store(true, Ordering::SeqCst);
    let page = fetch(&scripted, 1, 4);
    wait_until("a page is asked for", || asked(&scripted.asked.pulls) == 4);
    scripted.now.refuses_consumers.store(true, Ordering::SeqCst);
    scripted.now.release();
    assert_eq!(offsets(page.wait()), [1, 2]);
    let refused = fetch(&scripted, 3, 4).wait().unwrap_err();
    assert!(matches!(&refused, BusError::Backend(words) if words.contains("temporarily unavailable")), "{refused:?}");
    scripted.now.refuses_consumers.store(false, Ordering::SeqCst);
    assert_eq!(offsets(fetch(&scripted, 3, 4).wait()), [3, 4, 5]);
}

/// A stream that was made anew while a page was read, as somebody else noticed: no page is of both.
#[test]
fn a_page_is_of_one_history() {
    require_broker!();
    for somebody_noticed in [true, false] {
        let scripted = ScriptedJetStream::start(Script { is_deleting: true, ..script(5) });
        scripted.now.holds_pulls.store(true, Ordering::SeqCst);
        let page = fetch(&scripted, 0, 100);
        wait_until("a page is asked for", || asked(&scripted.asked.pulls) == 1);
        scripted.now.remade.store(true, Ordering::SeqCst);
        if somebody_noticed {
            let told = scripted.bus.find_event_by_uid("t", "k", "u1").unwrap_err();
            assert!(matches!(told, BusError::HistoryChanged { .. }), "{told:?}");
        }
        scripted.now.release();
        let told = page.wait().unwrap_err();
        assert!(matches!(told, BusError::HistoryChanged { .. }), "{told:?}");
        assert_eq!(offsets(fetch(&scripted, 0, 100).wait()), [1, 2, 3, 4, 5], "it begins anew");
    }
}

/// `kept_readers`: so many consumers wait for who reads on, and the one kept longest goes first.
#[test]
fn as_many_readers_are_kept_as_the_limit_says() {
    require_broker!();
    let scripted = ScriptedJetStream::start(script(KEPT_READERS.default + 10));
    let read = |from: u64| assert_eq!(offsets(fetch(&scripted, from, 1).wait()), [from]);
    (1..=KEPT_READERS.default).rev().for_each(read);
    assert_eq!((asked(&scripted.asked.created), asked(&scripted.asked.deleted)), (KEPT_READERS.default, 0));
    // One more. The first, which stands behind the last one read, is gone.
    read(KEPT_READERS.default + 2);
    wait_until("its consumer is deleted", || asked(&scripted.asked.deleted) == 1);
    read(2);
    assert_eq!(asked(&scripted.asked.created), KEPT_READERS.default + 1, "who reads on has the one that was kept");
    read(KEPT_READERS.default + 1);
    assert_eq!(asked(&scripted.asked.created), KEPT_READERS.default + 2, "and who lost his has another one");
}

/// `broker_reads`: so many run at once, and one more waits for one of them to end.
#[test]
fn as_many_reads_run_at_once_as_the_limit_says() {
    require_broker!();
    let scripted = ScriptedJetStream::start(script(BROKER_READS.default + 10));
    scripted.now.holds_pulls.store(true, Ordering::SeqCst);
    let pages: Vec<_> = (1..=BROKER_READS.default + 1).map(|from| (from, fetch(&scripted, from, 1))).collect();
    wait_until("as many as may run ask for a page", || asked(&scripted.asked.pulls) == BROKER_READS.default);
    // What needs no place among the reads goes on, and is answered behind whatever the reads have asked.
    scripted.bus.bounds("t", P0).unwrap();
    assert_eq!(asked(&scripted.asked.created), BROKER_READS.default);
    scripted.now.release();
    for (from, page) in pages {
        assert_eq!(offsets(page.wait()), [from]);
    }
    assert_eq!(asked(&scripted.asked.created), BROKER_READS.default + 1);
}

/// A message that was stored when the broker took larger ones than it takes now, and larger than any page (`message_bytes`).
#[test]
fn a_message_larger_than_the_broker_takes_today_is_read_all_the_same() {
    require_broker!();
    const BEFORE: u32 = 12 << 20;
    let (broker, bus) = with_topic(BrokerSpec { max_payload: Some(BEFORE), ..spec() }, 1);
    bus.publish_record("t", &record("first", "k", "x")).unwrap();
    let large = vec![b'x'; BEFORE as usize - 1_000];
    let planted = Raw::connect(&broker).plant("t.p0", b"NATS/1.0\r\nNats-Msg-Id: large\r\n\r\n", &large);
    bus.publish_record("t", &record("last", "k", "x")).unwrap();
    drop(bus);
    broker.reload(|spec| spec.max_payload = Some(4_096));
    let bus = latent_bridge::NatsBus::open_with(crate::live::options(&broker), &crate::live::manifest(1)).unwrap();
    let too_large = bus.publish_record("t", &record("no", "k", vec![0; 8_192])).unwrap_err();
    assert!(matches!(too_large, BusError::Rejected { .. }), "the limit of now holds: {too_large:?}");
    let heads = bus.submit_heads("t", P0, Offset(0), 100).wait().unwrap();
    assert!(heads.iter().map(|head| head.offset.0).eq([1, planted, 3]) && heads[1].content == HeadContent::Damaged, "{heads:?}");
    assert_eq!(bus.submit_remains("t", P0, Offset(planted)).wait().unwrap().len(), large.len());
    assert_eq!(bus.find_event_by_uid("t", "k", "large").unwrap().map(|found| found.offset), Some(planted));
    let page = |from: u64| bus.submit_fetch("t", P0, Offset(from), 100).wait();
    assert_eq!((offsets(page(0)), offsets(page(planted + 1))), (vec![1], vec![3]));
    assert!(matches!(page(planted), Err(BusError::Unreadable { offset, .. }) if offset == planted));
    const { assert!(MESSAGE_BYTES.default >= 2 * (64 << 20), "more than a broker may be told to take") }
}
