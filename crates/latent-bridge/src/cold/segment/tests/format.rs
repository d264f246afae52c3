//! What goes in comes out.

use proptest::prelude::*;

use super::*;

/// Key, uid, payload and time of a record.
type Made = (String, String, Vec<u8>, u64);

fn any_item() -> impl Strategy<Value = (u64, Option<Made>)> {
    let record = ("[!-~]{1,64}", "\\PC{0,40}", prop::collection::vec(any::<u8>(), 0..400), any::<u64>());
    (1_u64..1_000_000, prop::option::weighted(0.9, record))
}

fn made(parts: Vec<(u64, Option<Made>)>) -> Vec<Item> {
    let mut offset = 0;
    let one = |(step, record): (u64, Option<Made>)| {
        offset += step;
        match record {
            None => Item::Damaged { offset: Offset(offset) },
            Some((uid, key, payload, stored_at)) => {
                let Item::Record { offset, record } = item(offset, payload) else { unreachable!() };
                let record = Record { uid: Uid::parse(&uid).unwrap(), key, stored_at: UnixMillis(stored_at), ..record };
                Item::Record { offset, record }
            }
        }
    };
    parts.into_iter().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_goes_in_comes_out_and_the_same_gives_the_same_bytes(parts in prop::collection::vec(any_item(), 1..60), from in any::<prop::sample::Index>()) {
        let items = made(parts);
        let segment = segment_of(&items, 0, None);
        prop_assert_eq!(&segment_of(&items, 0, None), &segment);
        prop_assert_eq!(read(&segment.bytes), Ok(items.clone()));
        let opened = Segment::open(segment.bytes).unwrap();
        prop_assert_eq!((opened.header(), opened.digest()), (&segment.header, segment.digest));
        prop_assert_eq!(opened.attested(&Keys::one()), Attestation::Proven);
        let wanted = from.get(&items).offset();
        let found = opened.items_from(wanted).map(Result::unwrap).find(|item| item.offset() >= wanted);
        prop_assert_eq!(found.map(|item| item.offset()), Some(wanted));
    }
}

/// A builder is used for one segment after another, also when one of them could not be closed.
#[test]
fn a_builder_that_was_used_makes_the_same_segment_as_a_new_one() {
    let wanted = segment_of(&items(0, 40), 0, None);
    let mut builder = SegmentBuilder::new(small()).unwrap();
    for number in [0, 7] {
        items(5_000, 30).iter().for_each(|item| assert_eq!(builder.push(item), Ok(Pushed::Taken)));
        assert_eq!(builder.finish(place(), number, None, &Keys::one()).is_ok(), number == 0);
        assert_eq!((builder.items(), builder.first(), builder.last(), builder.oldest()), (0, None, None, None));
        items(0, 40).iter().for_each(|item| assert_eq!(builder.push(item), Ok(Pushed::Taken)));
        assert_eq!(builder.finish(place(), 0, None, &Keys::one()), Ok(wanted.clone()));
    }
    items(5_000, 30).iter().for_each(|item| assert_eq!(builder.push(item), Ok(Pushed::Taken)));
    builder.clear();
    items(0, 40).iter().for_each(|item| assert_eq!(builder.push(item), Ok(Pushed::Taken)));
    assert_eq!(builder.finish(place(), 0, None, &Keys::one()), Ok(wanted));
}

#[test]
fn one_record_is_read_out_of_one_block() {
    let items = items(10, 60);
    let segment = Segment::open(segment_of(&items, 0, None).bytes).unwrap();
    let behind = segment.items_from(items[40].offset()).count();
    assert!((20..40).contains(&behind), "{behind} items from the block of the 41st of 60 on");
    assert_eq!(segment.items_from(Offset(u64::MAX)).last().unwrap().unwrap(), *items.last().unwrap());
}

#[test]
fn a_segment_is_full_at_its_items_or_its_bytes_and_takes_one_item_of_any_size() {
    let mut builder = SegmentBuilder::new(SegmentSizes { items: 2, ..small() }).unwrap();
    let pushed: Vec<_> = (0..3).map(|offset| builder.push(&item(offset, "")).unwrap()).collect();
    assert_eq!(pushed, [Pushed::Taken, Pushed::Taken, Pushed::Full]);
    assert_eq!((builder.items(), builder.last()), (2, Some(Offset(1))));

    let largest = vec![9; 524_288];
    let mut builder = SegmentBuilder::new(SegmentSizes { raw_bytes: 1, ..small() }).unwrap();
    assert_eq!(builder.push(&item(0, largest.clone())), Ok(Pushed::Taken));
    assert_eq!(builder.push(&item(1, "")), Ok(Pushed::Full));
    let segment = builder.finish(place(), 0, None, &Keys::one()).unwrap();
    assert_eq!(read(&segment.bytes), Ok(vec![item(0, largest)]));
}

#[test]
fn blocks_of_the_largest_records_stay_below_what_a_reader_takes() {
    let sizes = SegmentSizes { items: 100, raw_bytes: 8_000_000, block_bytes: usize::MAX };
    let mut builder = SegmentBuilder::new(sizes).unwrap();
    let items: Vec<_> = (0..12).map(|offset| item(offset, vec![u8::try_from(offset).unwrap(); 524_288])).collect();
    items.iter().for_each(|item| assert_eq!(builder.push(item), Ok(Pushed::Taken)));
    let segment = builder.finish(place(), 0, None, &Keys::one()).unwrap();
    assert_eq!(read(&segment.bytes), Ok(items));
}

#[test]
fn what_makes_no_segment_is_refused() {
    let refused = |made: Result<FinishedSegment, SegmentError>| matches!(made, Err(SegmentError::Unwritable { .. }));
    assert!(refused(SegmentBuilder::new(small()).unwrap().finish(place(), 0, None, &Keys::one())), "nothing in it");
    let mut builder = SegmentBuilder::new(small()).unwrap();
    builder.push(&item(5, "")).unwrap();
    assert!(builder.push(&item(5, "")).is_err() && builder.push(&item(4, "")).is_err(), "offsets ascend");
    let previous = |last| Some(PreviousSegment { digest: SegmentDigest([1; 32]), last: Offset(last) });
    for (number, previous) in [(1, previous(5)), (1, None), (0, previous(4))] {
        let mut builder = SegmentBuilder::new(small()).unwrap();
        builder.push(&item(5, "")).unwrap();
        assert!(refused(builder.finish(place(), number, previous, &Keys::one())));
    }
    assert_eq!(builder.finish(place(), 0, None, &Keys(Vec::new())), Err(SegmentError::NoKey));
}

#[test]
fn an_older_key_proves_and_an_unknown_one_does_not() {
    let segment = Segment::open(segment_of(&items(0, 3), 0, None).bytes).unwrap();
    assert_eq!(segment.attested(&Keys(vec![[9; 32], [7; 32]])), Attestation::Proven);
    assert_eq!(segment.attested(&Keys(vec![[9; 32]])), Attestation::UnknownKey);
    let mut other = [7; 32];
    other[31] = 0;
    assert_eq!(segment.attested(&Keys(vec![other])), Attestation::Wrong, "the name of a key proves nothing");
    assert_eq!(segment.key_id(), "key-7");
}

#[test]
fn a_segment_names_the_hole_before_it_in_a_version_of_its_own_and_others_stay_as_they_were() {
    let (items, first) = (items(0, 4), segment_of(&items(0, 4), 0, None));
    assert_eq!((first.bytes[8], first.header.hole), (1, None));
    let (found_at, reason) = (UnixMillis(9), HoleReason::RemovedBeforeArchived);
    let one = |first, last, events| Hole { first: Offset(first), last: Offset(last), events, found_at, reason };
    let with = |hole: Hole| {
        let mut builder = SegmentBuilder::new(small()).unwrap();
        items.iter().for_each(|item| assert_eq!(builder.push(&shifted(item, 100)), Ok(Pushed::Taken)));
        builder.set_hole(Some(hole));
        let previous = PreviousSegment { digest: first.digest, last: first.header.last };
        builder.finish(place(), 1, Some(previous), &Keys::one())
    };
    let last = first.header.last.0;
    for hole in [one(last + 1, 99, 90), one(50, 50, 1), one(last + 1, 103, 0)] {
        let segment = with(hole).unwrap();
        assert_eq!((segment.bytes[8], Segment::open(segment.bytes).unwrap().header().hole), (2, Some(hole)));
    }
    for wrong in [one(last, 99, 0), one(50, 49, 0), one(50, 50, 2)] {
        assert!(matches!(with(wrong), Err(SegmentError::Unwritable { .. })), "{wrong:?}");
    }
}

fn shifted(item: &Item, by: u64) -> Item {
    let offset = Offset(item.offset().0 + by);
    item.record().map_or(Item::Damaged { offset }, |record| Item::Record { offset, record: record.clone() })
}
