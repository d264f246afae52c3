//! Whatever is changed of a proven archive is found by whoever has the key, and nothing of it is published.

use super::*;
use crate::cold::export::{Holes, segment_path};

/// Every byte changed in two ways, and every cut.
fn changed(bytes: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> {
    let flipped = (0..bytes.len()).flat_map(|at| {
        [0x01, 0xff].map(|mask| {
            let mut changed = bytes.to_vec();
            changed[at] ^= mask;
            (format!("byte {at} with {mask:#04x}"), changed)
        })
    });
    let cut = (0..bytes.len()).map(|length| (format!("cut at {length}"), bytes[..length].to_vec()));
    flipped.chain(cut)
}

#[test]
fn no_changed_byte_and_no_cut_of_a_segment_passes_with_a_key_or_is_restored() {
    let items: Vec<_> = (0..6).map(|offset| Item::from(stored(offset))).collect();
    let finished = segment_of(&items, 0, None);
    let path = segment_path("orders.placed", Partition(3), Offset(0));
    let keys = Keys::one();
    let directory = tempfile::tempdir().unwrap();
    let manifest = "{manifest_version: 1, name: x, topics: [{name: orders.placed, partitions: 1}]}";
    let broker = EmbeddedBroker::provision(directory.path(), &BridgeManifest::from_yaml(manifest).unwrap()).unwrap();
    for (how, bytes) in changed(&finished.bytes) {
        let store = MemoryStore::new();
        store.plant(&path, bytes);
        let archive = Verification { keys: Some(&keys), ..verification(&store) };
        let report = archive.run(&mut |_| {}).unwrap();
        assert!(report.findings.total() > 0 && report.segments == 0, "{how}: {report:?}");
        let restoration = Restoration { archive, bus: &broker, key_by_key: false, into: None };
        assert!(restoration.run(Progress::of(""), &mut |_| Ok(()), &mut |_| {}).is_err(), "{how}");
    }
    assert_eq!(crate::EventBus::bounds(&broker, "orders.placed", Partition(0)), Ok((Offset(0), Offset(0))));
}

#[test]
fn no_changed_byte_and_no_cut_of_a_head_is_believed() {
    let items: Vec<_> = (0..6).map(|offset| Item::from(stored(offset))).collect();
    let finished = segment_of(&items, 0, None);
    let head = ArchiveHead {
        place: finished.header.place.clone(),
        segments: 1,
        last: finished.header.last,
        last_uid: Some("uid-5".to_owned()),
        digest: finished.digest,
        lookout: None,
        holes: Holes::default(),
    };
    let keys = Keys::one();
    let document = head.to_json(&keys).unwrap();
    assert_eq!(ArchiveHead::from_json(&document, &keys), Ok(head));
    for (how, bytes) in changed(document.as_bytes()) {
        let Ok(document) = String::from_utf8(bytes) else { continue };
        assert!(ArchiveHead::from_json(&document, &keys).is_err(), "{how}");
    }
}
