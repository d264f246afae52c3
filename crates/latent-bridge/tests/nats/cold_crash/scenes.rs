//! What is going on when the process ends, and what must be so after another one has maintained the archive past the grace.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use latent_bridge::cold::segment::{Segment, SegmentSizes};
use latent_bridge::cold::verify::{Known, Verification};
use latent_bridge::cold::{ArchiveOptions, ColdStore, ControlKeys};
use latent_bridge::manifest::ColdFormat;
use latent_bridge::nats_bus::NatsOptions;
use latent_bridge::{BridgeManifest, EventBus, NatsBus, PublishResult};
use latent_core::{Partition, UnixMillis};
use latent_testkit::proxy::{Direction, FaultProxy};
use latent_testkit::wait_until;

use crate::cold::{KEY, LATER, Site, archived, in_a_while};
use crate::cold_segments::due;
use crate::live::{options_at, record, stored};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scene {
    /// One event is published: staged, stored, committed, exported.
    Publishing,
    /// Both events of which nobody knows what became are published once more, by their publisher.
    Retrying,
    /// Maintenance finds one event that the broker has, and publishes another one that it does not have.
    Maintaining,
    /// Maintenance puts twelve events into segments of four.
    Segments,
}

/// Events of a scene of segments.
const EVENTS: usize = 12;

impl Scene {
    pub(super) const ALL: [Self; 4] = [Self::Publishing, Self::Retrying, Self::Maintaining, Self::Segments];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Publishing => "publishing",
            Self::Retrying => "retrying",
            Self::Maintaining => "maintaining",
            Self::Segments => "segments",
        }
    }

    /// The topic `t`, archived at `uri`.
    pub(super) fn manifest(self, uri: &str) -> BridgeManifest {
        let mut manifest = archived(2);
        manifest.topics[0].retention.cold_uri = Some(uri.to_owned());
        if self == Self::Segments {
            manifest.topics[0].retention.cold_format = Some(ColdFormat::Segments);
        }
        manifest
    }

    /// One upload at a time, so that calls come in one order.
    pub(super) fn options(self, options: NatsOptions) -> NatsOptions {
        let segment_sizes = SegmentSizes { items: 4, ..SegmentSizes::default() };
        let archive = options.archive.map(|archive| ArchiveOptions { segment_sizes, uploads: 1, probes_at_start: false, ..archive });
        NatsOptions { archive, ..options }
    }

    /// A name for the events of the next time that it is played.
    pub(super) fn tag(self) -> String {
        static PLAYED: AtomicU64 = AtomicU64::new(0);
        format!("{}-{}", self.word(), PLAYED.fetch_add(1, Ordering::SeqCst))
    }

    /// The uids that this scene is about, when it is played with this name.
    fn uids(self, tag: &str) -> Vec<String> {
        let count = match self {
            Self::Publishing => 1,
            Self::Retrying | Self::Maintaining => 2,
            Self::Segments => EVENTS,
        };
        (0..count).map(|n| format!("{tag}-{n}")).collect()
    }

    /// What there is before.
    pub(super) fn prepare(self, site: &Site, uri: &str, tag: &str) {
        let uids = self.uids(tag);
        match self {
            Self::Publishing => {}
            Self::Retrying | Self::Maintaining => stage(site, &self.manifest(uri), &uids[0], &uids[1]),
            Self::Segments => {
                let bus = NatsBus::open_with(self.options(site.options()), &self.manifest(uri)).unwrap();
                let records: Vec<_> = uids.iter().enumerate().map(|(n, uid)| record(uid, &format!("key-{}", n % 5), "x")).collect();
                bus.publish_batch("t", &records).into_iter().for_each(|ack| drop(ack.unwrap()));
            }
        }
    }

    /// What goes on. The result of the last publication, where there is one.
    pub(super) fn play(self, bus: &NatsBus, tag: &str) -> Option<PublishResult> {
        match self {
            Self::Publishing => Some(bus.publish_record("t", &record(&self.uids(tag)[0], "k", "x"))),
            Self::Retrying => {
                let published: Vec<_> = self.uids(tag).iter().map(|uid| bus.publish_record("t", &record(uid, "k", "x"))).collect();
                published.into_iter().next_back()
            }
            Self::Maintaining => {
                drop(bus.maintain(in_a_while()));
                None
            }
            Self::Segments => {
                drop(bus.maintain(due()));
                None
            }
        }
    }

    /// Another process maintains the archive; then everything is there once. `is_there`: it was staged or acknowledged, so that the event
    /// must be there; otherwise it must not be.
    pub(super) fn settle(self, site: &Site, uri: &str, store: &dyn ColdStore, (tag, is_there): (&str, bool), context: &str) {
        let bus = NatsBus::open_with(self.options(site.options()), &self.manifest(uri)).unwrap();
        let now = if self == Self::Segments { due() } else { in_a_while() };
        let first = bus.maintain(now).unwrap();
        let report = bus.maintain(UnixMillis(now.0 + LATER)).unwrap();
        let left = (report.intents_pending, report.intents_failed, report.unarchived_topics.len());
        assert_eq!((left, site.intents()), ((0, 0, 0), 0), "{context}: {first:?}, {report:?}");
        assert_eq!((first.archive_holes, report.archive_holes), (0, 0), "{context}");
        let mut hot = BTreeMap::<String, usize>::new();
        stored(&bus).into_iter().for_each(|stored| *hot.entry(stored.record.uid.as_str().to_owned()).or_default() += 1);
        let cold = copies(store);
        for uid in self.uids(tag) {
            let copies = (hot.get(&uid).copied().unwrap_or_default(), cold.get(&uid).copied().unwrap_or_default());
            assert_eq!(copies, if is_there { (1, 1) } else { (0, 0) }, "{context}: {uid} on the broker and in the archive");
        }
        assert!(hot.values().chain(cold.values()).all(|copies| *copies == 1), "{context}");
        if self == Self::Segments {
            let heads: Vec<_> = (0..2).filter_map(|partition| bus.archive_head("t", Partition(partition)).unwrap()).collect();
            let heads: Vec<_> = heads.into_iter().map(|attested| attested.head).collect();
            let (keys, log) = (ControlKeys::new(&[KEY]).unwrap(), Some(&bus as &dyn EventBus));
            let verification = Verification {
                store,
                topic: None,
                partition: None,
                keys: Some(&keys),
                heads: &heads,
                log,
                dense: false,
                known: Known::default(),
            };
            let seen = verification.run(&mut |_| {}).unwrap();
            assert_eq!((seen.findings.kept(), seen.unattested_ends), (&[][..], 0), "{context}");
        }
    }
}

/// By uid, how many copies of an event are in an archive.
fn copies(store: &dyn ColdStore) -> BTreeMap<String, usize> {
    let (mut copies, mut after) = (BTreeMap::<String, usize>::new(), String::new());
    while let Some(listed) = store.list_after("t/", &after, 1).unwrap().pop() {
        let object = store.get(&listed.path, u64::MAX >> 1).unwrap().unwrap();
        let uids: Vec<String> = if listed.path.ends_with(".seg") {
            let segment = Segment::open(object).unwrap();
            segment.items().map(|item| item.unwrap().record().unwrap().uid.as_str().to_owned()).collect()
        } else {
            let object: serde_json::Value = serde_json::from_slice(&object).unwrap();
            vec![object["uid"].as_str().unwrap().to_owned()]
        };
        uids.into_iter().for_each(|uid| *copies.entry(uid).or_default() += 1);
        after = listed.path;
    }
    copies
}

/// Two intents without an offset: the broker has the event of the first, and never saw that of the second.
pub(crate) fn stage(site: &Site, manifest: &BridgeManifest, kept: &str, absent: &str) {
    let proxy = FaultProxy::start(&site.broker);
    let mut options = options_at(&[proxy.address()], site.broker.ca());
    options.archive = site.options().archive;
    let bus = NatsBus::open_with(options, manifest).unwrap();
    let (messages, intents) = (site.messages(), site.intents());
    proxy.withhold(Direction::ToClient);
    let first = bus.submit_record("t", record(kept, "k", "x"));
    wait_until("the broker has the first one", || site.messages() == messages + 1);
    proxy.withhold(Direction::ToBroker);
    let second = bus.submit_record("t", record(absent, "k", "x"));
    wait_until("the second one is staged", || site.intents() == intents + 2);
    drop(bus);
    drop(proxy);
    for lost in [first, second] {
        lost.wait().unwrap_err();
    }
    assert_eq!((site.messages(), site.intents()), (messages + 1, intents + 2));
}
