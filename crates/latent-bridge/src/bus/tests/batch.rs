//! `publish_batch` hands over ahead of the answers, within its bounds, and gives the answers in order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use latent_core::{Attributes, Completer, MediaType, NewRecord, Ticket};

use super::Scripted;
use crate::{BusError, EventBus as _, PublishAck, PublishResult};

/// How long a test waits for what must come. Only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Publishes records of these sizes on a bus that answers the first one only when `held` of them are unanswered, or all were handed
/// over. Returns the most that ever were unanswered.
fn most_in_flight(sizes: &[usize], held: usize) -> usize {
    let (handed_over, completers) = mpsc::channel();
    let (in_flight, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let bus = Scripted {
        publish: Box::new({
            let (in_flight, most) = (Arc::clone(&in_flight), Arc::clone(&most));
            move |_| {
                most.fetch_max(in_flight.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let (ticket, completer) = Ticket::pair(Err(BusError::NotSent { reason: "the test gave up".to_owned() }));
                // Nobody is there any more when the test has failed; the ticket then says so.
                _ = handed_over.send(completer);
                ticket
            }
        }),
        ..Scripted::holding([], &[], 1)
    };
    let payload = Bytes::from(vec![0; sizes.iter().copied().max().unwrap_or(0)]);
    let records: Vec<_> = sizes.iter().map(|bytes| record(payload.slice(..*bytes))).collect();
    std::thread::scope(|scope| {
        // Owned by the closure, so that failing here gives up what waits, and the batch ends.
        let completers = completers;
        let publishing = scope.spawn(|| bus.publish_batch("t", &records));
        let mut waiting: VecDeque<(usize, Completer<PublishResult>)> = VecDeque::new();
        let answer = |(number, completer): (usize, Completer<_>)| {
            in_flight.fetch_sub(1, Ordering::SeqCst);
            completer.complete(Ok(numbered(number)));
        };
        for number in 0..records.len() {
            waiting.push_back((number, completers.recv_timeout(PATIENCE).unwrap()));
            if waiting.len() == held && number + 1 < records.len() {
                answer(waiting.pop_front().unwrap());
            }
        }
        // Answers may come in any order; results keep that of the records.
        waiting.into_iter().rev().for_each(answer);
        let results = publishing.join().unwrap();
        assert!(results.into_iter().eq((0..records.len()).map(|number| Ok(numbered(number)))));
    });
    most.load(Ordering::SeqCst)
}

fn record(payload: Bytes) -> NewRecord {
    NewRecord::new(None, "k", MediaType::octet_stream(), Attributes::default(), payload).unwrap()
}

fn numbered(number: usize) -> PublishAck {
    PublishAck { topic: "t".to_owned(), partition: 0, offset: number as u64, uid: number.to_string(), duplicate: false }
}

#[test]
fn at_most_1024_records_are_unanswered_at_a_time() {
    for (count, most) in [(0, 0), (1, 1), (1_023, 1_023), (1_024, 1_024), (1_025, 1_024), (3_000, 1_024)] {
        assert_eq!(most_in_flight(&vec![1; count], most), most, "{count}");
    }
}

#[test]
fn at_most_8_mebibytes_are_unanswered_at_a_time() {
    let whole = 524_288;
    let fifteen_and = |last: &[usize]| [&[whole; 15], last].concat();
    let cases = [
        (fifteen_and(&[whole]), 16),
        (fifteen_and(&[whole - 1, 1]), 17),
        (fifteen_and(&[whole - 1, 2]), 16),
        (fifteen_and(&[whole, 0]), 17),
        (fifteen_and(&[whole, 1]), 16),
        (vec![whole; 40], 16),
    ];
    for (sizes, most) in cases {
        assert_eq!(most_in_flight(&sizes, most), most, "{:?}", &sizes[15..]);
    }
}

#[test]
fn a_failure_that_may_pass_stops_a_batch_and_one_of_the_event_does_not() {
    let not_sent = || BusError::NotSent { reason: "full".to_owned() };
    let busy = || BusError::Busy { limit: "queue" };
    let unreadable = || BusError::Unreadable { topic: "t".to_owned(), partition: 0, offset: 1 };
    let rejected = || BusError::Rejected { rule: "x".to_owned(), permanent: true };
    // What the second of four answers, how many are offered, and what becomes of the third.
    let cases: [(BusError, usize, Result<(), &str>); 4] =
        [(not_sent(), 2, Err("not-sent")), (busy(), 2, Err("busy")), (unreadable(), 4, Ok(())), (rejected(), 4, Ok(()))];
    for (failure, offered, third) in cases {
        let count = Arc::new(AtomicUsize::new(0));
        let bus = Scripted {
            publish: Box::new({
                let (count, failure) = (Arc::clone(&count), failure.clone());
                move |_| match count.fetch_add(1, Ordering::SeqCst) {
                    1 => Ticket::ready(Err(failure.clone())),
                    number => Ticket::ready(Ok(numbered(number))),
                }
            }),
            ..Scripted::holding([], &[], 1)
        };
        let results = bus.publish_batch("t", &vec![record(Bytes::new()); 4]);
        assert_eq!((results.len(), count.load(Ordering::SeqCst)), (4, offered), "{failure:?}");
        assert_eq!(results[1].as_ref().unwrap_err(), &failure);
        assert_eq!(results[2].as_ref().map(drop).map_err(BusError::kind), third, "{failure:?}");
    }
}
