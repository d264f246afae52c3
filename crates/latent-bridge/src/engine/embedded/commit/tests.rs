//! The machine on its own: scripted cases, and many random groups against a model.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::engine::embedded::frame::{FOOTER_BYTES, HEADER_BYTES};

const NOW: UnixMillis = UnixMillis(5);

fn machine(partitions: usize) -> GroupCommit<u32> {
    GroupCommit::new([("t".to_owned(), Numbers { sequence: 0, offsets: vec![0; partitions] })])
}

/// One event of a submission: uid, partition, content.
type Wanted<'w> = (&'w str, u16, &'w str);

fn submission(ticket: u32, wanted: &[Wanted<'_>]) -> Submission<u32> {
    let mut events = Events::default();
    for (uid, partition, content) in wanted {
        let body = format!("{uid} {content}");
        events.frames.extend_from_slice(&[0; HEADER_BYTES]);
        events.frames.extend_from_slice(body.as_bytes());
        events.frames.extend_from_slice(&[0; FOOTER_BYTES]);
        let body = BodySummary { body_len: u32::try_from(body.len()).unwrap(), body_crc: crc32fast::hash(body.as_bytes()), head_crc: 0 };
        events.events.push(Event { uid: Uid::parse(uid).unwrap(), uid_hash: UidHash(0), partition: *partition, body });
    }
    Submission { topic: 0, events, behind: None, ticket }
}

fn absent(_: &Event, _: &[u8]) -> Known {
    Known::Absent
}

fn not_stored() -> WriteOutcome {
    WriteOutcome::NotStored { reason: "full".to_owned() }
}

/// Ticket and short names of the answers.
fn short(answers: &[Answer<u32>]) -> Vec<(u32, String)> {
    let name = |result: &PublishResult| match result {
        Ok(ack) => format!("{}/{}{}", ack.partition, ack.offset, if ack.duplicate { " again" } else { "" }),
        Err(error) => error.kind().to_owned(),
    };
    let names = |answer: &Answer<u32>| answer.results.iter().map(name).collect::<Vec<_>>().join(", ");
    answers.iter().map(|answer| (answer.ticket, names(answer))).collect()
}

fn expected(answers: &[(u32, &str)]) -> Vec<(u32, String)> {
    answers.iter().map(|(ticket, answer)| (*ticket, (*answer).to_owned())).collect()
}

/// A group of one uid three times, the last time with other content, and of another uid.
fn group_of_four(machine: &mut GroupCommit<u32>) {
    for (ticket, uid, content) in [(1, "a", "x"), (2, "a", "x"), (3, "a", "y"), (4, "b", "x")] {
        assert_eq!(machine.admit(NOW, submission(ticket, &[(uid, 0, content)]), absent), None);
    }
}

#[test]
fn a_submission_behind_others_is_taken_in_its_place_up_to_the_first_event_that_is_not_new() {
    let known = |event: &Event, _: &[u8]| match event.uid.as_str() {
        "same" => Known::SameContent(Located { partition: 0, offset: 7 }),
        "other" => Known::OtherContent,
        _ => Known::Absent,
    };
    let cases: [(u64, &[Wanted<'_>], &str); 6] = [
        (0, &[("a", 0, "x"), ("b", 1, "x"), ("c", 0, "x")], "0/0, 1/0, 0/1"),
        (0, &[("a", 0, "x"), ("same", 0, "x"), ("b", 0, "x")], "0/0, 0/7 again, not-sent"),
        (0, &[("a", 0, "x"), ("other", 0, "x"), ("b", 0, "x")], "0/0, conflict, not-sent"),
        // The same uid twice in one submission.
        (0, &[("a", 0, "x"), ("a", 0, "x"), ("b", 0, "x")], "0/0, 0/0 again, not-sent"),
        (0, &[("a", 0, "x"), ("a", 0, "y"), ("b", 0, "x")], "0/0, conflict, not-sent"),
        (1, &[("a", 0, "x"), ("b", 0, "x")], "not-sent, not-sent"),
    ];
    for (behind, wanted, expected_answer) in cases {
        let mut machine = machine(2);
        let at_once = machine.admit(NOW, Submission { behind: Some(behind), ..submission(1, wanted) }, known);
        let answers = at_once.map_or_else(|| machine.settle(0, &WriteOutcome::Durable), |answer| vec![answer]);
        assert_eq!(short(&answers), expected(&[(1, expected_answer)]), "{wanted:?}");
    }
    // Behind what the group at hand has, and not what was there before it.
    let mut machine = machine(1);
    assert_eq!(machine.admit(NOW, submission(1, &[("a", 0, "x")]), absent), None);
    assert_eq!(machine.admit(NOW, Submission { behind: Some(1), ..submission(2, &[("b", 0, "x")]) }, absent), None);
    let passed = machine.admit(NOW, Submission { behind: Some(1), ..submission(3, &[("c", 0, "x")]) }, absent).unwrap();
    assert_eq!(short(&[passed]), expected(&[(3, "not-sent")]));
}

#[test]
fn every_fate_of_a_group_gives_each_ticket_its_answer() {
    let cases = [
        (WriteOutcome::Durable, ["0/0", "0/0 again", "conflict", "0/1"]),
        (not_stored(), ["not-sent", "not-sent", "not-sent", "not-sent"]),
        (WriteOutcome::Unknown, ["uncertain", "uncertain", "not-sent", "uncertain"]),
    ];
    for (outcome, answers) in cases {
        let mut machine = machine(1);
        group_of_four(&mut machine);
        assert_eq!((machine.touched(), machine.planned(0).count()), (vec![0], 2));
        let expected: Vec<_> = (1..).zip(answers.map(str::to_owned)).collect();
        assert_eq!(short(&machine.settle(0, &outcome)), expected, "{outcome:?}");
        assert!(machine.touched().is_empty());
    }
}

#[test]
fn numbers_taken_back_are_given_again_and_a_poisoned_topic_takes_nothing() {
    let mut machine = machine(2);
    group_of_four(&mut machine);
    machine.settle(0, &not_stored());
    assert_eq!(machine.next_numbers(0), Some(&Numbers { sequence: 0, offsets: vec![0, 0] }));
    machine.admit(NOW, submission(5, &[("c", 1, "x")]), absent);
    assert_eq!(machine.next_numbers(0), None, "not while a group is open");
    assert_eq!(short(&machine.settle(0, &WriteOutcome::Durable)), expected(&[(5, "1/0")]));
    machine.admit(NOW, submission(6, &[("d", 1, "x")]), absent);
    machine.settle(0, &WriteOutcome::Unknown);
    let at = Located { partition: 1, offset: 0 };
    for known in [Known::Absent, Known::SameContent(at), Known::OtherContent] {
        let mut known = Some(known);
        let answer = machine.admit(NOW, submission(7, &[("c", 1, "x")]), |_, _| known.take().unwrap()).unwrap();
        assert_eq!(short(&[answer]), expected(&[(7, "poisoned")]));
    }
    assert_eq!(machine.next_numbers(0), None, "its watermark must not be written");
}

#[test]
fn what_the_log_knows_is_answered_at_once() {
    let mut machine = machine(1);
    let at = Located { partition: 0, offset: 9 };
    let failed = BusError::Unreadable { topic: "t".to_owned(), partition: 0, offset: 9 };
    let cases = [(Known::SameContent(at), "0/9 again"), (Known::OtherContent, "conflict"), (Known::Failed(failed), "unreadable")];
    for (known, answer) in cases {
        let mut known = Some(known);
        let answered = machine.admit(NOW, submission(1, &[("a", 0, "x")]), |_, _| known.take().unwrap()).unwrap();
        assert_eq!(short(&[answered]), expected(&[(1, answer)]));
    }
    assert!(machine.touched().is_empty());
}

#[test]
fn frames_carry_the_numbers_and_the_time_of_the_group() {
    let (mut machine, salt) = (machine(2), Salt::of(&[0; 16], "t"));
    for (ticket, uid, partition) in [(1, "a", 1), (2, "b", 0), (3, "c", 1)] {
        machine.admit(NOW, submission(ticket, &[(uid, partition, "x")]), absent);
    }
    let mut bytes = Vec::new();
    machine.encode(0, salt, &mut bytes);
    let mut at = 0;
    for (group_index, partition, offset) in [(0, 1, 0), (1, 0, 0), (2, 1, 1)] {
        let header = Header::decode(salt, &bytes[at..], 100).unwrap();
        let identity = Identity { sequence: group_index.into(), partition, offset };
        assert_eq!((header.identity, header.group_index, header.stored_at), (identity, group_index, NOW.0));
        at += usize::try_from(header.frame_bytes()).unwrap();
    }
    assert_eq!(at, bytes.len());
}

#[test]
fn a_topic_or_partition_that_does_not_exist_is_an_answer_and_not_a_panic() {
    let mut machine = machine(1);
    let foreign = Submission { topic: 7, ..submission(1, &[("a", 0, "x")]) };
    assert_eq!(short(&[machine.admit(NOW, foreign, absent).unwrap()]), expected(&[(1, "unknown-topic")]));
    let answer = machine.admit(NOW, submission(2, &[("a", 9, "x")]), absent).unwrap();
    assert_eq!(short(&[answer]), expected(&[(2, "out-of-range")]));
    assert!(machine.settle(3, &WriteOutcome::Durable).is_empty());
}

#[test]
fn a_submission_of_many_gets_one_answer_for_each_in_order_and_only_the_new_ones_are_written() {
    let mut machine = machine(2);
    assert_eq!(machine.admit(NOW, submission(1, &[("a", 0, "x"), ("b", 1, "x"), ("a", 0, "x"), ("b", 1, "y")]), absent), None);
    let known = |event: &Event, _: &[u8]| match event.uid.as_str() {
        "old" => Known::SameContent(Located { partition: 1, offset: 7 }),
        "taken" => Known::OtherContent,
        _ => Known::Absent,
    };
    assert_eq!(machine.admit(NOW, submission(2, &[("old", 1, "x"), ("c", 1, "x"), ("taken", 0, "x"), ("a", 0, "x")]), known), None);
    let all_known = machine.admit(NOW, submission(3, &[("taken", 0, "x"), ("old", 1, "x")]), known).unwrap();
    assert_eq!(short(&[all_known]), expected(&[(3, "conflict, 1/7 again")]));
    let mut bytes = Vec::new();
    machine.encode(0, Salt::of(&[0; 16], "t"), &mut bytes);
    let planned: Vec<_> = machine.planned(0).collect();
    assert_eq!(planned.iter().map(|record| record.header.frame_bytes()).sum::<u64>(), bytes.len() as u64);
    let answers = short(&machine.settle(0, &WriteOutcome::Durable));
    assert_eq!(answers, expected(&[(1, "0/0, 1/0, 0/0 again, conflict"), (2, "1/7 again, 1/1, conflict, 0/0 again")]));
}

/// What must hold whatever happens: the model is the set of durable uids with their places.
fn random_groups(seed: u64) {
    let mut state = seed;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let mut machine = machine(3);
    let mut durable: BTreeMap<String, (Located, String)> = BTreeMap::new();
    let (mut asked, mut answered) = (0, BTreeSet::new());
    for _ in 0..6 {
        let mut answers = Vec::new();
        let mut group = BTreeMap::new();
        for _ in 0..below(6) {
            asked += 1;
            let wanted: Vec<(String, u16, &str)> = (0..=below(3))
                .map(|_| (format!("u{}", below(6)), u16::try_from(below(3)).unwrap(), if below(4) == 0 { "y" } else { "x" }))
                .collect();
            let wanted_text: Vec<Wanted<'_>> =
                wanted.iter().map(|(uid, partition, content)| (uid.as_str(), *partition, *content)).collect();
            let known = |event: &Event, body: &[u8]| match durable.get(event.uid.as_str()) {
                None => Known::Absent,
                Some((at, stored)) if stored.as_bytes() == body => Known::SameContent(*at),
                Some(_) => Known::OtherContent,
            };
            answers.extend(machine.admit(NOW, submission(asked, &wanted_text), known));
            group.insert(asked, wanted);
        }
        let outcome = match below(10) {
            0 => WriteOutcome::Unknown,
            1 | 2 => not_stored(),
            _ => WriteOutcome::Durable,
        };
        answers.extend(machine.settle(0, &outcome));
        machine.drop_empty();
        for answer in answers {
            assert!(answered.insert(answer.ticket), "seed {seed}: ticket {} answered twice", answer.ticket);
            let wanted = &group[&answer.ticket];
            assert_eq!(answer.results.len(), wanted.len(), "seed {seed}");
            for (result, (uid, _, content)) in answer.results.into_iter().zip(wanted) {
                let Ok(ack) = result else { continue };
                assert_eq!(ack.uid, *uid, "seed {seed}: answers are out of order");
                let at = Located { partition: u16::try_from(ack.partition).unwrap(), offset: ack.offset };
                let body = format!("{uid} {content}");
                let stored = durable.entry(ack.uid).or_insert((at, body.clone()));
                assert_eq!(*stored, (at, body), "seed {seed}: an acknowledgement names another event");
            }
        }
    }
    assert_eq!(answered.len(), usize::try_from(asked).unwrap(), "seed {seed}: a submission was left unanswered");
    let mut offsets: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    durable.values().for_each(|(at, _)| offsets.entry(at.partition).or_default().push(at.offset));
    for offsets in offsets.values_mut() {
        offsets.sort_unstable();
        assert!(offsets.iter().copied().eq(0..offsets.len() as u64), "seed {seed}: durable offsets are not dense: {offsets:?}");
    }
}

#[test]
fn ten_thousand_random_histories_keep_every_promise() {
    (0..10_000).for_each(random_groups);
}
