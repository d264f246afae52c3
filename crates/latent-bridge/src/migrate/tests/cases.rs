//! Scripted cases: each finding, what an earlier run knew, and what has expired.

use latent_core::Uid;

use super::super::*;
use super::world::*;
use crate::{BusError, Fence, limits};

const END: UnreadableRecords = UnreadableRecords::End;
const PASS: UnreadableRecords = UnreadableRecords::PassOver;

fn records(places: &[Place]) -> Vec<StoredRecord> {
    places.iter().filter_map(|place| if let Place::Readable(stored) = place { Some(stored.clone()) } else { None }).collect()
}

/// Copies everything from the beginning.
fn copied(source: &[Place], destination: &mut Destination, known: Option<Position>) -> Copying {
    let mut copying = Copying::new(end(source), END, known);
    copy(&mut copying, source, destination);
    copying
}

fn kind(copying: &Copying) -> Option<&'static str> {
    copying.finding().map(Finding::kind)
}

#[test]
fn what_is_there_already_is_compared_and_the_rest_is_published_behind_it() {
    let source = source(&[0, 1, 2, 5, 9]);
    for there in 0..=5 {
        let mut destination = Destination::with(records(&source).into_iter().take(there));
        let copying = copied(&source, &mut destination, None);
        assert_eq!((kind(&copying), destination.uids()), (None, uids(&source)), "{there}");
        let Copied { copied, already_there, .. } = copying.counts();
        assert_eq!((copied, already_there), (5 - there as u64, there as u64));
        let position = copying.position().unwrap();
        assert_eq!((position.first, position.source, position.destination, position.records), (Offset(0), Offset(9), Offset(5), 5));
        let same = compare(Comparing::new(end(&source), END, None), &source, &destination.places);
        assert_eq!((same.finding, same.source, same.expired), (None, same.destination, 0));
    }
}

#[test]
fn an_empty_partition_needs_nothing_and_a_foreign_one_is_refused() {
    assert_eq!(kind(&copied(&[], &mut Destination::new(0), None)), None);
    let mut other = Destination::with([stored(1, "foreign", "x")]);
    let copying = copied(&[], &mut other, None);
    assert_eq!(copying.finding(), Some(&Finding::Extra { at: Offset(1), uid: Uid::parse("foreign").unwrap() }));
    let copying = copied(&source(&[0, 1]), &mut other, None);
    assert_eq!((kind(&copying), other.uids()), (Some("different"), vec!["foreign".to_owned()]), "and nothing is published to it");
}

#[test]
fn each_part_of_a_record_is_compared() {
    let with = |change: &dyn Fn(&mut Record)| {
        let mut record = stored(0, "u0", "0").record;
        change(&mut record);
        record
    };
    use latent_core::{Attributes, MediaType, Record};
    let host = || Attributes::default().with_host(vec![("Latent-Dead-Reason".to_owned(), "x".to_owned())]).unwrap();
    let cases: [(Record, Part); 5] = [
        (with(&|record| record.uid = Uid::parse("v").unwrap()), Part::Uid),
        (with(&|record| record.key = "l".to_owned()), Part::Key),
        (with(&|record| record.media_type = MediaType::parse("text/plain").unwrap()), Part::MediaType),
        (with(&|record| record.attributes = host()), Part::Attributes),
        (with(&|record| record.payload = "1".into()), Part::Payload),
    ];
    let source = source(&[0]);
    for (record, expected) in cases {
        let digests = [&record, &records(&source)[0].record].map(RecordDigest::of);
        assert_ne!(digests[0], digests[1], "{expected}");
        let mut destination = Destination::with([StoredRecord { record, ..stored(0, "x", "x") }]);
        let copying = copied(&source, &mut destination, None);
        assert!(matches!(copying.finding(), Some(Finding::Different { part, .. }) if *part == expected), "{expected}");
        let compared = compare(Comparing::new(end(&source), END, None), &source, &destination.places);
        assert_eq!(compared.finding.as_ref().map(Finding::kind), Some("different"));
        assert_ne!(compared.source.digest, compared.destination.digest);
    }
}

#[test]
fn a_record_that_cannot_be_read_ends_its_partition_or_is_passed_over_and_told() {
    let mut source = source(&[0, 1, 3, 4]);
    source.insert(2, Place::Unreadable(Offset(2)));
    let mut destination = Destination::new(0);
    let copying = copied(&source, &mut destination, None);
    assert_eq!(copying.finding(), Some(&Finding::Unreadable { side: Side::Source, at: Offset(2) }));
    assert_eq!(destination.uids(), ["u0", "u1"], "what comes before it is copied, nothing behind it");
    let mut copying = Copying::new(end(&source), PASS, copying.position());
    copy(&mut copying, &source, &mut destination);
    assert_eq!((kind(&copying), copying.take_passed_over(), destination.uids()), (None, vec![Offset(2)], uids(&source)));
    for (unreadable, finding, passed_over) in [(END, Some("unreadable"), 0), (PASS, None, 1)] {
        let compared = compare(Comparing::new(end(&source), unreadable, None), &source, &destination.places);
        assert_eq!((compared.finding.as_ref().map(Finding::kind), compared.passed_over), (finding, passed_over));
        assert_eq!((compared.source.records, compared.source), (4, compared.destination), "what can be read is the same");
    }
    destination.places.push(Place::Unreadable(Offset(9)));
    let copying = copied(&self::source(&[0, 1, 3, 4]), &mut destination, None);
    assert_eq!(copying.finding(), Some(&Finding::Unreadable { side: Side::Destination, at: Offset(9) }), "never passed over there");
}

#[test]
fn what_an_earlier_run_knew_saves_reading_and_is_believed_only_where_it_is_true() {
    let places = source(&[0, 1, 2, 3, 4, 5]);
    let mut destination = Destination::new(0);
    let known = copied(&places[..4], &mut destination, None).position();
    let copying = copied(&places, &mut destination, known);
    assert_eq!((kind(&copying), copying.counts().already_there, copying.counts().copied), (None, 0, 2));
    assert_eq!((copying.was_disbelieved(), copying.position().unwrap().records), (false, 6));
    // Made anew, brought back from a copy, or another one altogether.
    let other = || Destination::with([stored(1, "v0", "x"), stored(2, "v1", "x"), stored(3, "v2", "x"), stored(4, "v3", "x")]);
    for (mut destination, finding, copied_again) in [(Destination::new(0), None, 6), (other(), Some("different"), 0)] {
        let copying = copied(&places, &mut destination, known);
        assert_eq!((copying.was_disbelieved(), kind(&copying), copying.counts().copied), (true, finding, copied_again));
    }
    // The source is another one.
    let changed: Vec<_> = (0..6).map(|n| Place::Readable(stored(n, &format!("w{n}"), "x"))).collect();
    let copying = copied(&changed, &mut destination, known);
    assert_eq!((copying.was_disbelieved(), kind(&copying), destination.uids().len()), (true, Some("different"), 6));
}

#[test]
fn what_expired_in_the_source_since_it_was_copied_stays_in_the_destination() {
    let places = source(&[0, 1, 2, 3, 4, 5]);
    let mut destination = Destination::new(0);
    let earlier = copied(&places[..3], &mut destination, None).position();
    // A run that was killed before it noted the next two.
    let _ = copied(&places[..5], &mut destination, earlier);
    for (left, expired) in [(&places[..], 0), (&places[4..], 1), (&places[5..], 2)] {
        let mut destination = Destination::with(records(&places[..5]));
        let copying = copied(left, &mut destination, earlier);
        assert_eq!((kind(&copying), copying.counts().expired, destination.uids()), (None, expired, uids(&places)));
        let compared = compare(Comparing::new(end(left), END, copying.position()), left, &destination.places);
        assert_eq!((compared.finding, compared.expired), (None, (6 - left.len()) as u64));
        assert_eq!(compared.source, compared.destination);
        let without = compare(Comparing::new(end(left), END, None), left, &destination.places);
        assert_eq!(without.finding.is_none(), expired == 0, "not taken for expired where nothing says that it was ever copied");
    }
    let compared = compare(Comparing::new(end(&places), END, earlier), &[], &destination.places);
    assert_eq!((compared.finding, compared.expired, compared.source.records), (None, 5, 0), "all of it");
}

#[test]
fn a_comparison_tells_the_first_difference_and_what_each_side_holds() {
    let places = source(&[0, 1, 2, 3]);
    let cases: [(&[usize], &str); 4] = [(&[0, 1], "missing"), (&[0, 1, 2, 3, 0], "extra"), (&[0, 2, 1, 3], "different"), (&[], "missing")];
    for (order, expected) in cases {
        let all = records(&places);
        let destination = Destination::with(order.iter().map(|at| all[*at].clone()));
        let compared = compare(Comparing::new(end(&places), END, None), &places, &destination.places);
        assert_eq!(compared.finding.map(|finding| finding.kind()), Some(expected), "{order:?}");
        assert_eq!((compared.source.records, compared.destination.records), (4, order.len() as u64));
    }
}

/// Answers the first publication of a partition with one result for each record.
fn answered(source: &[Place], answer: impl Fn(usize, &NewRecord) -> crate::PublishResult) -> Copying {
    let mut copying = Copying::new(end(source), END, None);
    loop {
        match copying.step() {
            Step::Fence => copying.fenced(Fence(0)),
            Step::ReadSource(from) => copying.read(Side::Source, page(source, from, 10)),
            Step::ReadDestination(_) => copying.read(Side::Destination, Page::End),
            Step::Publish { records, .. } => copying.published(records.iter().enumerate().map(|(n, record)| answer(n, record)).collect()),
            Step::Pause { .. } => {}
            Step::Done => return copying,
        }
    }
}

fn ack(number: usize, duplicate: bool) -> crate::PublishResult {
    let offset = number as u64 + 1;
    Ok(crate::PublishAck { topic: "t".to_owned(), partition: 2, offset, uid: "u".to_owned(), duplicate })
}

#[test]
fn what_the_destination_never_takes_ends_the_partition_there() {
    let rejected = |permanent| BusError::Rejected { rule: "schema".to_owned(), permanent };
    let copying = answered(&source(&[0, 1, 2]), |number, _| if number == 0 { ack(0, false) } else { Err(rejected(true)) });
    assert!(matches!(copying.finding(), Some(Finding::Refused { at: Offset(1), .. })), "{:?}", copying.finding());
    assert_eq!(copying.position().unwrap().source, Offset(0));
    let copying = answered(&source(&[0]), |_, _| Err(rejected(false)));
    assert!(matches!(copying.finding(), Some(Finding::GaveUp { side: Side::Destination, .. })), "tried again, and not for ever");
    assert!(!copying.finding().unwrap().is_uncertain());
}

#[test]
fn a_uid_that_is_twice_in_the_source_is_told() {
    let copying = answered(&source(&[0]), |_, _| ack(6, true));
    let uid = Uid::parse("u0").unwrap();
    assert_eq!(copying.finding(), Some(&Finding::Doubled { at: Offset(0), uid, partition: 2, first: Offset(7) }));
}

#[test]
fn a_failure_that_may_pass_is_waited_out_so_often_and_one_that_lasts_is_not() {
    let failures = |error: &BusError| {
        let mut copying = Copying::new(Offset(1), END, None);
        let mut pauses = Vec::new();
        loop {
            match copying.step() {
                Step::Pause { millis } => pauses.push(millis),
                Step::Done => return (pauses, copying),
                _ => copying.failed(Side::Source, error.clone()),
            }
        }
    };
    let (pauses, copying) = failures(&BusError::NotSent { reason: String::new() });
    assert_eq!(pauses.len() as u64, limits::MIGRATE_ATTEMPTS.default - 1);
    assert_eq!((pauses[0], pauses[1], *pauses.last().unwrap(), kind(&copying)), (50, 100, 5_000, Some("gave-up")));
    for lasting in [
        BusError::HistoryChanged { topic: String::new(), problem: String::new() },
        BusError::Poisoned { log: String::new() },
        BusError::UnknownTopic { topic: String::new() },
    ] {
        assert_eq!(failures(&lasting).0, [0; 0], "{lasting}");
    }
    let uncertain = BusError::Uncertain { uid: Uid::parse("u").unwrap(), cause: latent_core::UncertainCause::Deadline };
    assert!(failures(&uncertain).1.finding().unwrap().is_uncertain());
}

#[test]
fn a_batch_has_so_many_records_and_no_more() {
    let max = limits::MIGRATE_BATCH_RECORDS.default;
    for (count, expected) in [(max - 1, max - 1), (max, max), (max + 1, max)] {
        let offsets: Vec<_> = (0..count).collect();
        let source = source(&offsets);
        let mut copying = Copying::new(end(&source), END, None);
        let published = loop {
            match copying.step() {
                Step::Fence => copying.fenced(Fence(0)),
                Step::ReadSource(from) => copying.read(Side::Source, page(&source, from, usize::MAX)),
                Step::ReadDestination(_) => copying.read(Side::Destination, Page::End),
                Step::Publish { records, .. } => break records.len(),
                step => panic!("{step:?}"),
            }
        };
        assert_eq!(published as u64, expected);
    }
}

#[test]
fn a_side_that_answers_out_of_order_is_not_used() {
    for side in [Side::Source, Side::Destination] {
        let mut copying = Copying::new(Offset(10), END, None);
        copying.read(side, Page::Records(vec![stored(5, "a", "a"), stored(4, "b", "b")]));
        assert!(matches!(copying.finding(), Some(Finding::GaveUp { error: BusError::Disordered { .. }, .. })), "{side}");
    }
}

#[test]
fn progress_is_read_back_and_any_changed_byte_of_it_is_noticed() {
    let position = Position {
        first: Offset(0),
        source: Offset(7),
        destination: Offset(9),
        records: 8,
        last: RecordDigest::of(&stored(7, "u", "x").record),
    };
    let positions = [(("a.b".to_owned(), 3), position), (("c".to_owned(), 0), position)].into();
    let progress =
        Progress { source: "embedded:/data".to_owned(), destination: "nats:x".to_owned(), positions, at_work: Some(("c".to_owned(), 0)) };
    let text = progress.encode().unwrap();
    assert_eq!(Progress::decode(&text), Ok(progress.clone()));
    assert!(progress.is_between("embedded:/data", "nats:x") && !progress.is_between("nats:x", "embedded:/data"));
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1;
        if let Ok(changed) = String::from_utf8(bytes) {
            assert!(Progress::decode(&changed).is_err(), "{at}");
        }
        assert!(Progress::decode(&text[..at]).is_err(), "cut at {at}");
    }
    assert_eq!(Progress::decode("latent-migrate-progress 2 x\n{}\n"), Err(ProgressError::Foreign));
    assert_eq!(Progress::decode(""), Err(ProgressError::Foreign));
}

/// Pinned, since people compare them with what they computed themselves.
#[test]
fn the_digest_of_a_record_is_pinned() {
    let digest = RecordDigest::of(&stored(3, "u", "{}").record);
    assert_eq!(RecordDigest::parse(&digest.to_string()), Some(digest));
    assert_eq!(RecordDigest::parse(&digest.to_string().to_uppercase()), None);
    assert_eq!(RecordDigest::parse("00"), None);
    assert_eq!(digest.to_string(), "60ab805085d259f661d0657eb8ae7f83ad2a823ca15d8d9d01436ca59782705d");
}
