use std::sync::{Arc, Mutex};

use latent_core::{Attributes, MediaType, Partition, TopicName, UnixMillis};

use super::*;
use crate::delivery::lane::{Inspected, LaneOptions, PinId, PullEnd, ReplyId};
use crate::delivery::source::{Arrival, HeadContent, KeyId};
use crate::delivery::{Head, TerminationReason};

const NOW: MonoTime = MonoTime::ZERO;

fn event() -> DeliveredEvent {
    DeliveredEvent {
        topic: TopicName::parse("t").unwrap(),
        partition: Partition(0),
        offset: Offset(7),
        uid: None,
        key: "k".to_owned(),
        media_type: MediaType::octet_stream(),
        attributes: Attributes::default(),
        payload: bytes::Bytes::new(),
        delivery: 0,
        stored_at: UnixMillis(0),
    }
}

type News = Arc<Mutex<Vec<SourceNews>>>;

/// A desk to which message 7 was handed, what was reported, and the ticket of its pull.
fn handed(record: Option<DeliveredEvent>) -> (Desk, News, Ticket<Answer<Listing>>) {
    let mut desk = Desk::new(Lane::new(LaneOptions::of_ack_wait(10_000)));
    let news = News::default();
    let told = Arc::clone(&news);
    desk.report_to(Arc::new(move |one| told.lock().unwrap().push(one)));
    let pulled = desk.pull(1);
    while desk.poll(NOW).is_some() {}
    let content = HeadContent::Event(KeyId(1));
    let delivery = Delivery { sequence: 7, deliveries: 1, order: 1, reply: ReplyId(1), content, pin: PinId(1) };
    desk.handle_message(NOW, delivery, record);
    desk.lane.handle_pull_ended(NOW, PullEnd::Over);
    desk.lane.handle_inspected(NOW, 1, None);
    assert_eq!(desk.poll(MonoTime::from_millis(2_000)), Some(LaneCommand::Inspect { question: 2 }));
    let seen = Inspected { pending: 0, unacknowledged: 1, deliveries: 1, settled_up_to: 0, pin: Some(PinId(1)) };
    desk.lane.handle_inspected(NOW, 2, Some(seen));
    assert_eq!(desk.poll(NOW), None);
    let head = Head { offset: Offset(7), content };
    assert_eq!(*news.lock().unwrap(), [SourceNews::Handed(Arrival { head, deliveries: 1 })]);
    (desk, news, pulled)
}

#[test]
fn a_message_is_reported_begins_with_its_record_and_its_settlement_is_answered_by_the_broker() {
    let (mut desk, _, pulled) = handed(Some(event()));
    assert_eq!(pulled.wait(), Ok(Listing::default()));
    assert_eq!(desk.begin(NOW, Offset(7), 3).wait().map(|event| (event.offset, event.delivery)), Ok((Offset(7), 3)));
    desk.ended(Offset(7));
    let settled = desk.settle(Offset(7), Settlement::Acknowledged);
    assert!(matches!(desk.poll(NOW), Some(LaneCommand::Settle { sequence: 7, .. })));
    assert!(desk.record(Offset(7)).is_some());
    desk.lane.handle_settled(NOW, 7, Confirmation::Confirmed);
    assert_eq!((desk.poll(NOW), settled.wait(), desk.record(Offset(7))), (None, Ok(()), None));
}

#[test]
fn what_cannot_be_read_does_not_begin_and_is_terminated() {
    let (mut desk, _, _pulled) = handed(None);
    assert_eq!(desk.begin(NOW, Offset(7), 1).wait(), Err(SourceError::Undecodable));
    let _settled = desk.settle(Offset(7), Settlement::Terminated(TerminationReason::Undecodable));
    assert!(matches!(desk.poll(NOW), Some(LaneCommand::Settle { sequence: 7, .. })));
}

#[test]
fn a_desk_that_stops_leaves_no_ticket_open_and_no_record_behind() {
    let (mut desk, news, _pulled) = handed(Some(event()));
    let pulled = desk.pull(1);
    desk.stop();
    assert_eq!(desk.poll(NOW), None);
    assert_eq!((pulled.wait(), desk.record(Offset(7))), (Ok(Listing::default()), None));
    assert_eq!(news.lock().unwrap().last(), Some(&SourceNews::Over(Offset(7))));
    // What ends after that is refused, not forgotten.
    let settled = desk.settle(Offset(7), Settlement::Acknowledged);
    assert_eq!((desk.poll(NOW), settled.wait().is_err()), (None, true));
}
