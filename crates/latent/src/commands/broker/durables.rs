//! The durable consumers that a configuration's triggers need. No I/O.

use latent_bridge::nats_bus::{Beginning, Durable, Least};
use latent_nats::lanes::LaneBinding;
use latent_nats::triggers::TriggerBinding;
use serde_json::json;

use super::users::Site;
use crate::config::Config;
use crate::config::settings::{LaneTrigger, StartPosition};

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

/// Pulls that may wait at once: those of all nodes, and those that nodes left behind which ended. As it cannot be changed later, it is made
/// for many nodes.
const WAITING: u64 = 8;
const WAITING_MADE: u64 = 64;

/// How long, in nanoseconds, a node keeps a partition without being heard of, at least and as it is made: another one waits as long when it has
/// stopped. What runs long keeps its pin by pulls that bring nothing, so no run has to be shorter.
const PRIORITY_TIMEOUT: u64 = 3_000_000_000;
const PRIORITY_TIMEOUT_MADE: u64 = 6_000_000_000;

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
        let address = lanes.installed.peer().address();
        let of_lanes = lanes.lanes().map(|(trigger, lane)| pinned(trigger, lane));
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
fn pinned(LaneTrigger { trigger, .. }: &LaneTrigger, lane: &LaneBinding) -> Durable {
    let profile = lane.consumer().profile();
    let settings = json!({
        "durable_name": profile.consumer,
        "filter_subject": profile.filter_subject,
        "ack_policy": "explicit",
        "replay_policy": "instant",
        "max_ack_pending": profile.max_in_flight,
        "ack_wait": profile.ack_wait_nanos,
        "priority_groups": profile.group.iter().collect::<Vec<_>>(),
        "priority_policy": "pinned_client",
    });
    let least = |field, value, or_unbounded| Least { field, value, made: value, or_unbounded };
    Durable {
        stream: profile.stream.clone(),
        consumer: profile.consumer.clone(),
        settings: settings.as_object().cloned().unwrap_or_default(),
        least: vec![
            least("max_deliver", lane.consumer().max_deliver_min(), true),
            Least { made: WAITING_MADE, ..least("max_waiting", WAITING, false) },
            least("max_batch", u64::from(profile.batch_max), true),
            least("max_expires", profile.expires_nanos_max, true),
            least("max_bytes", profile.request_bytes_max, true),
            Least { made: PRIORITY_TIMEOUT_MADE, ..least("priority_timeout", PRIORITY_TIMEOUT, false) },
        ],
        beginning: Some(match trigger.start {
            StartPosition::Earliest => Beginning::Earliest,
            StartPosition::Latest => Beginning::Latest,
        }),
        absent: ABSENT,
    }
}
