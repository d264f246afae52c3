//! The durable consumers that a configuration's triggers need. No I/O.

use latent_bridge::nats_bus::{Beginning, Durable, Least};
use latent_nats::triggers::TriggerBinding;
use serde_json::json;

use super::users::Site;
use crate::config::Config;
use crate::config::settings::{LaneConsumer, LaneInput, LaneTrigger, StartPosition};

/// What must not be set of any consumer (T-039), and what would lose its position.
const ABSENT: &[&str] =
    &["deliver_subject", "deliver_group", "headers_only", "flow_control", "filter_subjects", "backoff", "inactive_threshold"];
/// Of the first profile besides: nobody is pinned.
const ABSENT_OF_V1: &[&str] = &[
    "deliver_subject",
    "deliver_group",
    "headers_only",
    "flow_control",
    "filter_subjects",
    "backoff",
    "inactive_threshold",
    "priority_groups",
];

/// The priority group of the second profile.
const GROUP: &str = "latent";
/// What the broker may deliver beyond the runs of a trigger (T-101).
const DELIVERIES_SPARE: u64 = 8;
/// Pulls of all nodes that may wait at once, and those that nodes left behind which ended.
const WAITING: u64 = 8;
/// What an event takes beside itself in base64, and a raw message beside its payload (T-108).
const EVENT_OVERHEAD_BYTES: u64 = 16_384;
const RAW_OVERHEAD_BYTES: u64 = 9_216;

/// The consumers at `site`, and a word on triggers elsewhere.
pub(super) fn expected(config: &Config, site: &Site) -> (Vec<Durable>, Vec<String>) {
    let (mut durables, mut elsewhere) = (Vec::new(), Vec::new());
    let mut told = |address| {
        let line = format!("the triggers of streams are on another broker, {address}: not looked at");
        if !elsewhere.contains(&line) {
            elsewhere.push(line);
        }
    };
    if let Some(streams) = &config.streams {
        let address = streams.triggers.peer().address();
        if address == site.address { durables.extend(streams.triggers.bindings().iter().map(durable)) } else { told(address) }
    }
    for lanes in &config.lanes {
        let address = lanes.peer.address();
        let of_lanes = lanes.triggers.iter().flat_map(|lane| lane.consumers.iter().map(|consumer| pinned(lane, consumer)));
        if address == site.address { durables.extend(of_lanes) } else { told(address) }
    }
    (durables, elsewhere)
}

/// T-037 and T-038 as the broker writes them.
fn durable(binding: &TriggerBinding) -> Durable {
    let profile = binding.profile();
    let settings = json!({
        "durable_name": profile.consumer,
        "filter_subject": profile.filter_subject,
        "ack_policy": "explicit",
        "replay_policy": "instant",
        "deliver_policy": "all",
        "max_waiting": 1,
        "max_ack_pending": 1,
        "max_batch": 1,
        "max_expires": 100_000_000,
        "max_bytes": profile.request_bytes_max(),
        "ack_wait": profile.ack_wait_nanos,
        "max_deliver": profile.max_deliver,
    });
    Durable {
        stream: profile.stream.to_owned(),
        consumer: profile.consumer.to_owned(),
        settings: settings.as_object().cloned().unwrap_or_default(),
        least: Vec::new(),
        beginning: None,
        absent: ABSENT_OF_V1,
    }
}

/// T-101 as the broker writes it.
fn pinned(lane: &LaneTrigger, consumer: &LaneConsumer) -> Durable {
    let trigger = &lane.trigger;
    let settings = json!({
        "durable_name": consumer.consumer,
        "filter_subject": consumer.filter,
        "ack_policy": "explicit",
        "replay_policy": "instant",
        "max_ack_pending": trigger.max_in_flight,
        "ack_wait": lane.ack_wait_millis.saturating_mul(1_000_000),
        "priority_groups": [GROUP],
        "priority_policy": "pinned_client",
    });
    let least = |field, value, or_unbounded| Least { field, value, or_unbounded };
    Durable {
        stream: consumer.stream.clone(),
        consumer: consumer.consumer.clone(),
        settings: settings.as_object().cloned().unwrap_or_default(),
        least: vec![
            least("max_deliver", u64::from(trigger.max_deliveries) + DELIVERIES_SPARE, true),
            least("max_waiting", WAITING, false),
            least("max_batch", u64::from(trigger.max_in_flight), true),
            least("max_expires", pull_expires_millis(lane).saturating_mul(1_000_000), true),
            least("max_bytes", u64::from(trigger.max_in_flight).saturating_mul(message_bytes(lane)), true),
            least("priority_timeout", priority_timeout_millis(lane).saturating_mul(1_000_000), false),
        ],
        beginning: Some(match trigger.start {
            StartPosition::Earliest => Beginning::Earliest,
            StartPosition::Latest => Beginning::Latest,
        }),
        absent: ABSENT,
    }
}

/// A pull ends after a third of `ack_wait`, so that what it brings is younger than its lease (docs/design/triggers-v2.md).
const fn pull_expires_millis(lane: &LaneTrigger) -> u64 {
    lane.ack_wait_millis.div_ceil(3)
}

/// Most bytes of one message on the wire.
const fn message_bytes(lane: &LaneTrigger) -> u64 {
    match lane.input {
        LaneInput::Event => (lane.payload_ceiling_bytes * 4).div_ceil(3) + EVENT_OVERHEAD_BYTES,
        LaneInput::Raw => lane.payload_ceiling_bytes + RAW_OVERHEAD_BYTES,
    }
}

/// How long a node keeps a partition without asking for more. While all its places are taken by runs it does not ask, so this is longer than
/// the longest run, by the time of a pull and more.
const fn priority_timeout_millis(lane: &LaneTrigger) -> u64 {
    lane.trigger.operation_timeout_millis.saturating_add(lane.ack_wait_millis)
}
