//! The machine on its own: scripted cases, and many random groups against a model.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::*;

const NOW: UnixMillis = UnixMillis(5);

fn machine(partitions: usize) -> GroupCommit<u32> {
    GroupCommit::new([("t".to_owned(), NextNumbers { sequence: 0, offsets: vec![0; partitions] })])
}

fn submission(ticket: u32, uid: &str, partition: u32, content: &str) -> Submission<u32> {
    let bytes = Bytes::from(format!("{uid} {content}"));
    let body = EncodedBody { body_crc: 0, head_crc: 0, bytes };
    Submission { topic: 0, partition, uid: Uid::parse(uid).unwrap(), uid_hash: UidHash::of(uid), body, ticket }
}

fn not_stored() -> WriteOutcome {
    WriteOutcome::NotStored { reason: "full".to_owned() }
}

/// Ticket and a short name of the answer.
fn short(answers: &[Answer<u32>]) -> Vec<(u32, String)> {
    let name = |result: &PublishResult| match result {
        Ok(ack) => format!("{}/{}{}", ack.partition, ack.offset, if ack.duplicate { " again" } else { "" }),
        Err(error) => error.kind().to_owned(),
    };
    answers.iter().map(|answer| (answer.ticket, name(&answer.result))).collect()
}

fn expected(answers: &[(u32, &str)]) -> Vec<(u32, String)> {
    answers.iter().map(|(ticket, answer)| (*ticket, (*answer).to_owned())).collect()
}

/// A group of one uid three times, the last time with other content, and of another uid.
fn group_of_four(machine: &mut GroupCommit<u32>) {
    for (ticket, uid, content) in [(1, "a", "x"), (2, "a", "x"), (3, "a", "y"), (4, "b", "x")] {
        assert_eq!(machine.admit(NOW, submission(ticket, uid, 0, content), Known::Absent), None);
    }
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
    assert_eq!(machine.next_numbers(0), Some(&NextNumbers { sequence: 0, offsets: vec![0, 0] }));
    machine.admit(NOW, submission(5, "c", 1, "x"), Known::Absent);
    assert_eq!(machine.next_numbers(0), None, "not while a group is open");
    assert_eq!(short(&machine.settle(0, &WriteOutcome::Durable)), expected(&[(5, "1/0")]));
    machine.admit(NOW, submission(6, "d", 1, "x"), Known::Absent);
    machine.settle(0, &WriteOutcome::Unknown);
    let at = Located { partition: 1, offset: 0 };
    for known in [Known::Absent, Known::SameContent(at), Known::OtherContent] {
        let answer = machine.admit(NOW, submission(7, "c", 1, "x"), known).unwrap();
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
        let answered = machine.admit(NOW, submission(1, "a", 0, "x"), known).unwrap();
        assert_eq!(short(&[answered]), expected(&[(1, answer)]));
    }
    assert!(machine.touched().is_empty());
}

#[test]
fn frames_carry_the_numbers_and_the_time_of_the_group() {
    let (mut machine, salt) = (machine(2), Salt::of(&[0; 16], "t"));
    for (ticket, uid, partition) in [(1, "a", 1), (2, "b", 0), (3, "c", 1)] {
        machine.admit(NOW, submission(ticket, uid, partition, "x"), Known::Absent);
    }
    let mut bytes = Vec::new();
    assert_eq!(machine.encode(0, salt, &mut bytes), Some(0));
    let mut at = 0;
    for (sequence, partition, offset) in [(0, 1, 0), (1, 0, 0), (2, 1, 1)] {
        let header = Header::decode(salt, &bytes[at..], 100).unwrap();
        assert_eq!((header.identity, header.stored_at), (Identity { sequence, partition, offset }, NOW.0));
        at += usize::try_from(header.frame_bytes()).unwrap();
    }
    assert_eq!(at, bytes.len());
}

#[test]
fn a_topic_or_partition_that_does_not_exist_is_an_answer_and_not_a_panic() {
    let mut machine = machine(1);
    let foreign = Submission { topic: 7, ..submission(1, "a", 0, "x") };
    assert_eq!(short(&[machine.admit(NOW, foreign, Known::Absent).unwrap()]), expected(&[(1, "unknown-topic")]));
    let answer = machine.admit(NOW, submission(2, "a", 9, "x"), Known::Absent).unwrap();
    assert_eq!(short(&[answer]), expected(&[(2, "out-of-range")]));
    assert!(machine.settle(3, &WriteOutcome::Durable).is_empty());
}

/// What must hold whatever happens: the model is the set of durable uids with their places.
fn random_groups(seed: u64) {
    let mut state = seed;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let mut machine = machine(3);
    let mut durable: BTreeMap<String, (Located, Bytes)> = BTreeMap::new();
    let (mut asked, mut answered) = (0, BTreeSet::new());
    for _ in 0..6 {
        let mut answers = Vec::new();
        let mut group = Vec::new();
        for _ in 0..below(8) {
            asked += 1;
            let uid = format!("u{}", below(6));
            let submission = submission(asked, &uid, u32::try_from(below(3)).unwrap(), if below(4) == 0 { "y" } else { "x" });
            let known = match durable.get(&uid) {
                None => Known::Absent,
                Some((at, body)) if *body == submission.body.bytes => Known::SameContent(*at),
                Some(_) => Known::OtherContent,
            };
            group.push((asked, uid, submission.body.bytes.clone()));
            answers.extend(machine.admit(NOW, submission, known));
        }
        let outcome = match below(10) {
            0 => WriteOutcome::Unknown,
            1 | 2 => not_stored(),
            _ => WriteOutcome::Durable,
        };
        answers.extend(machine.settle(0, &outcome));
        for answer in answers {
            assert!(answered.insert(answer.ticket), "seed {seed}: ticket {} answered twice", answer.ticket);
            let Ok(ack) = answer.result else { continue };
            let body = group.iter().find(|(ticket, ..)| *ticket == answer.ticket).unwrap().2.clone();
            let at = Located { partition: ack.partition, offset: ack.offset };
            let stored = durable.entry(ack.uid).or_insert((at, body.clone()));
            assert_eq!(*stored, (at, body), "seed {seed}: an acknowledgement names another event");
        }
    }
    assert_eq!(answered.len(), usize::try_from(asked).unwrap(), "seed {seed}: a ticket was left unanswered");
    let mut offsets: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
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
