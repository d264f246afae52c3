//! Properties: the same bytes make the same events however they are split, and in whatever order answers come each operation ends once.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::testing::message;
use crate::triggers::SettleAnswer;

/// splitmix64.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap()
    }
}

/// What each operation is told until it ends.
type Frames = VecDeque<(OperationId, Vec<Vec<u8>>)>;

/// Operations of every kind, written, and the frames that answer each.
fn begun(seeded: &mut Seeded) -> (Session, Frames) {
    let mut session = session();
    let mut frames = Frames::new();
    for number in 0..4 {
        let consumer = partition(number);
        if seeded.below(2) == 0 {
            let operation = session.begin_inspect(&consumer).unwrap();
            frames.push_back((operation, vec![message(operation.0, "{}")]));
        }
        let batch = 1 + seeded.below(3);
        let pull = session.begin_pull(&consumer, &pull_of(u32::try_from(batch).unwrap())).unwrap();
        let mut told: Vec<_> = (1..=batch).map(|sequence| delivery(number, sequence as u64, "", "payload")).collect();
        told.insert(seeded.below(batch), status(pull, "100 Idle Heartbeat"));
        match seeded.below(3) {
            0 => told.push(status(pull, "409 Batch Completed")),
            1 => {
                told.truncate(1 + seeded.below(batch));
                told.push(status(pull, "408 Request Timeout"));
            }
            _ => (),
        }
        frames.push_back((pull, told));
        let settlement = [SessionSettlement::Acknowledge, SessionSettlement::InProgress][seeded.below(2)];
        let settle = session.begin_settle(&settled_elsewhere(number, 90), settlement).unwrap();
        frames.push_back((settle, vec![confirmation(settle)]));
    }
    write(&mut session);
    (session, frames)
}

/// All frames, those of one operation in their order.
fn interleaved(mut frames: Frames, seeded: &mut Seeded) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while !frames.is_empty() {
        let at = seeded.below(frames.len());
        let (_, told) = &mut frames[at];
        all.push(told.remove(0));
        if told.is_empty() {
            frames.remove(at);
        }
        if seeded.below(8) == 0 {
            all.push(b"PING\r\n".to_vec());
        }
    }
    all
}

fn ends(events: &[Event]) -> BTreeMap<OperationId, usize> {
    let mut ends = BTreeMap::new();
    for event in events {
        if let Event::Inspected { operation, .. } | Event::PullEnded { operation, .. } | Event::Settled { operation, .. } = event {
            *ends.entry(*operation).or_default() += 1;
        }
    }
    ends
}

#[test]
fn whatever_the_order_of_the_answers_each_operation_ends_once() {
    for seed in 0..2_000 {
        let mut seeded = Seeded(seed);
        let (mut session, frames) = begun(&mut seeded);
        let operations: Vec<_> = frames.iter().map(|(operation, _)| *operation).collect();
        let mut seen = Vec::new();
        for frame in interleaved(frames, &mut seeded) {
            session.received(&frame);
            if seeded.below(3) == 0 {
                seen.extend(events(&mut session));
            }
            write(&mut session);
        }
        assert_eq!((session.closed(), session.under_way()), (None, 0), "{seed}");
        seen.extend(events(&mut session));
        let expected = operations.iter().map(|operation| (*operation, 1)).collect();
        assert_eq!(ends(&seen), expected, "{seed}");
        let confirmed = seen.iter().filter(|event| matches!(event, Event::Settled { answer: SettleAnswer::Confirmed, .. })).count();
        assert_eq!(confirmed, 4, "{seed}");
        session.ended(Ended::PeerClosed);
        let closed = Evidence::ConnectionLost { within_reply: false };
        assert_eq!(events(&mut session), [Event::Closed(closed)]);
        assert_eq!(session.operations.reserved(), (0, 0), "{seed}");
    }
}

#[test]
fn wherever_the_connection_is_lost_each_operation_ends_once() {
    for seed in 0..2_000 {
        let mut seeded = Seeded(seed);
        let (mut session, frames) = begun(&mut seeded);
        let mut operations: Vec<_> = frames.iter().map(|(operation, _)| *operation).collect();
        operations.push(session.begin_settle(&settled_elsewhere(0, 91), SessionSettlement::Acknowledge).unwrap());
        let bytes = interleaved(frames, &mut seeded).concat();
        session.received(&bytes[..seeded.below(bytes.len())]);
        session.ended(Ended::TransportFailed);
        let seen = events(&mut session);
        assert_eq!(ends(&seen), operations.iter().map(|operation| (*operation, 1)).collect(), "{seed}");
        assert!(matches!(seen.last(), Some(Event::Closed(_))));
        let last = operations.last().copied().unwrap();
        let is_not_sent =
            |event: &Event| matches!(event, Event::Settled { operation, answer: SettleAnswer::NotSent(_) } if *operation == last);
        assert!(seen.iter().any(is_not_sent), "{seed}");
    }
}

#[test]
fn the_same_bytes_make_the_same_events_however_they_are_split() {
    for seed in 0..300 {
        let (_, frames) = begun(&mut Seeded(seed));
        let bytes = interleaved(frames, &mut Seeded(seed)).concat();
        // Nothing is taken meanwhile, which would tell a heartbeat again, and few enough PINGs come that no piece is a flood.
        let run = |pieces: &mut dyn FnMut(&mut Session)| {
            let (mut session, _) = begun(&mut Seeded(seed));
            pieces(&mut session);
            session.ended(Ended::PeerClosed);
            events(&mut session)
        };
        let in_pieces = |bytes_max: usize| {
            let mut seeded = Seeded(seed ^ 0xff);
            run(&mut |session| {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (piece, behind) = rest.split_at(1 + seeded.below(rest.len().min(bytes_max)));
                    session.received(piece);
                    write(session);
                    rest = behind;
                }
            })
        };
        let single = in_pieces(1);
        assert!(!single.contains(&Event::Closed(Evidence::ControlFlood)), "{seed}");
        for bytes_max in [2, 17, 300, 600] {
            assert_eq!(in_pieces(bytes_max), single, "{seed} {bytes_max}");
        }
    }
}
