//! Each call fails while a log with damaged derived files and a torn end is opened, and while it is read: it opens or says what failed,
//! and the next opening finds everything.

use std::path::Path;

use latent_bridge::{BusError, EmbeddedBroker, EventBus};
use latent_core::{Offset, Partition};

use crate::support::fixtures::{copy_directory, data_end, manifest, options, quick, record, scratch, segments};
use crate::support::history::{Kept, TOPICS, check_complete, check_directory, files, keep, past, records, tiny};
use crate::support::storage::{Fault, Op, TestStorage};

/// A directory whose opening has the most to do: no derived files, a torn end, leftovers.
fn neglected() -> (tempfile::TempDir, Vec<Kept>) {
    let (directory, kept) = past(30);
    files(directory.path(), "a", &[".idx", ".uids", "watermark"]).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let last = segments(directory.path(), "a").pop().unwrap();
    let mut content = std::fs::read(&last).unwrap();
    content.truncate(data_end(&content));
    content.extend_from_slice(b"LTR1 and then nothing");
    std::fs::write(&last, content).unwrap();
    std::fs::write(directory.path().join("topics/a/next.zeros"), [0; 2_048]).unwrap();
    (directory, kept)
}

#[test]
fn a_failing_call_while_everything_derived_is_made_again_costs_nothing() {
    let (directory, kept) = neglected();
    let calls: [(Op, &[&'static str]); 8] = [
        (Op::Open, &[".seg", ".uids"]),
        (Op::Create, &[".idx.tmp", ".uids.tmp", "watermark.tmp"]),
        (Op::Read, &[".seg", ".idx", ".uids"]),
        (Op::Write, &[".seg", ".idx.tmp", ".uids.tmp", "watermark.tmp"]),
        (Op::Resize, &[".seg"]),
        (Op::Sync, &[".seg", ".idx.tmp", ".uids.tmp", "watermark.tmp"]),
        (Op::Rename, &[".idx", ".uids", "watermark"]),
        (Op::SyncDirectory, &[""]),
    ];
    let (mut opened, mut refused) = (0, 0);
    for (op, endings) in calls {
        for ending in endings {
            for number in 0.. {
                let context = format!("{op:?} number {number} of {ending}");
                let (copy, storage) = (copy_directory(directory.path()), TestStorage::without_syncs());
                storage.inject(&[Fault { written: 9, ..Fault::once(op, ending, number) }]);
                let opening = EmbeddedBroker::open_with(copy.path(), options(&storage, tiny()));
                let missed = storage.failed() == 0;
                storage.inject(&[]);
                match opening {
                    Ok(broker) => {
                        check_complete(&broker, &kept, &context);
                        opened += 1;
                    }
                    Err(error @ BusError::Io { .. }) => {
                        assert!(error.to_string().contains("injected"), "{context}: {error}");
                        refused += 1;
                    }
                    Err(error) => panic!("{context}: {error}"),
                }
                check_directory(copy.path(), &kept, &context);
                if missed {
                    break;
                }
            }
        }
    }
    assert!(opened > 20 && refused > 20, "{opened} opened, {refused} refused");
}

#[test]
fn a_failing_read_is_said_and_never_answered_with_absent_or_another_record() {
    let (directory, kept) = past(30);
    let mut said = 0;
    for ending in [".seg", ".idx", ".uids"] {
        for number in 0..40 {
            let (copy, storage) = (copy_directory(directory.path()), TestStorage::without_syncs());
            let broker = EmbeddedBroker::open_with(copy.path(), options(&storage, tiny())).unwrap();
            storage.inject(&[Fault::once(Op::Read, ending, number)]);
            let context = format!("read {number} of {ending}");
            for Kept { record, ack } in &kept {
                match broker.find_event_by_uid(&ack.topic, "", &ack.uid) {
                    Ok(found) => assert_eq!(found.as_ref(), Some(ack), "{context}"),
                    Err(error) => said += said_so(&error, &context),
                }
                match broker.submit_fetch(&ack.topic, Partition(ack.partition), Offset(ack.offset), 1).wait() {
                    Ok(read) => assert_eq!((read.len(), read[0].record.uid.as_str()), (1, &*ack.uid), "{context}"),
                    Err(error) => said += said_so(&error, &context),
                }
                match broker.publish_record(&ack.topic, record) {
                    Ok(again) => assert!(again.duplicate && again.offset == ack.offset, "{context}: {again:?}"),
                    Err(error) => said += said_so(&error, &context),
                }
            }
            storage.inject(&[]);
            check_complete(&broker, &kept, &context);
        }
    }
    assert!(said > 20, "{said}");
}

fn said_so(error: &BusError, context: &str) -> u32 {
    assert!(matches!(error, BusError::Io { .. }) && error.to_string().contains("injected"), "{context}: {error}");
    1
}

fn reopen_and_check(directory: &Path, kept: &[Kept], context: &str) {
    let broker = EmbeddedBroker::open_with(directory, quick(tiny())).unwrap();
    assert_eq!(broker.recovered_torn_records(), 0, "{context}");
    check_complete(&broker, kept, context);
}

#[test]
fn an_append_that_fails_at_any_byte_of_its_record_leaves_nothing_of_it() {
    // A frame of 100 and some bytes; the last of them fails after all of it is written.
    for written in 0..180 {
        let (directory, storage) = (scratch(), TestStorage::without_syncs());
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), options(&storage, tiny())).unwrap();
        let mut kept = keep(&broker, "a", records("before", 2));
        storage.inject(&[Fault { written, ..Fault::full_from(Op::Write, ".seg", 0) }]);
        let lost = record("lost", "key", "lost and never found");
        let refused = broker.publish_record("a", &lost);
        assert!(matches!(refused, Err(BusError::NotSent { .. })), "{written}: {refused:?}");
        storage.inject(&[]);
        kept.extend(keep(&broker, "a", records("after", 3)));
        assert_eq!(broker.find_event_by_uid("a", "key", "lost"), Ok(None), "{written}");
        drop(broker);
        let context = format!("failed after {written} bytes");
        reopen_and_check(directory.path(), &kept, &context);
        let broker = EmbeddedBroker::open_with(directory.path(), quick(tiny())).unwrap();
        assert_eq!(broker.find_event_by_uid("a", "key", "lost"), Ok(None), "{written}: it showed up later");
    }
}

#[test]
fn an_append_that_cannot_be_taken_back_poisons_its_topic_alone_and_leaves_no_half_record() {
    for written in 0..180 {
        let context = format!("failed after {written} bytes");
        let (directory, storage) = (scratch(), TestStorage::without_syncs());
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), options(&storage, tiny())).unwrap();
        let mut kept = keep(&broker, "a", records("before", 2));
        storage.inject(&[Fault { written, ..Fault::full_from(Op::Write, ".seg", 0) }, Fault::full_from(Op::Resize, ".seg", 0)]);
        let perhaps = record("perhaps", "key", "perhaps there");
        assert!(broker.publish_record("a", &perhaps).unwrap_err().is_uncertain(), "{context}");
        storage.inject(&[]);
        let refused = broker.publish_record("a", &record("other", "key", "x"));
        assert!(matches!(refused, Err(BusError::Poisoned { .. })), "{context}: {refused:?}");
        kept.extend(keep(&broker, "b", records("of-b", 3)));
        let report = broker.maintain(latent_core::UnixMillis(u64::MAX)).unwrap();
        assert_eq!((report.skipped_topics, report.expired_records), (vec!["a".to_owned()], 3), "{context}: retention leaves it alone");
        kept.retain(|kept| kept.ack.topic == "a");
        drop(broker);
        let broker = EmbeddedBroker::open_with(directory.path(), quick(tiny())).unwrap();
        check_complete(&broker, &kept, &context);
        let found = broker.find_event_by_uid("a", "key", "perhaps").unwrap();
        let again = broker.publish_record("a", &perhaps).unwrap();
        assert_eq!((again.duplicate, again.offset), (found.is_some(), found.map_or(again.offset, |found| found.offset)), "{context}");
        kept.push(Kept { record: perhaps, ack: latent_bridge::PublishAck { duplicate: false, ..again } });
        kept.extend(keep(&broker, "a", records("after", 3)));
        drop(broker);
        reopen_and_check(directory.path(), &kept, &context);
    }
}
