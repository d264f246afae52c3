//! The durable consumers that a configuration's triggers on streams need. No I/O.

use latent_bridge::nats_bus::Durable;
use latent_nats::triggers::TriggerBinding;
use serde_json::json;

use super::users::Site;
use crate::config::settings::StreamsConfig;

/// What must not be set of a consumer (T-039), and what would lose its position.
const ABSENT: &[&str] = &[
    "deliver_subject",
    "deliver_group",
    "headers_only",
    "flow_control",
    "filter_subjects",
    "backoff",
    "inactive_threshold",
    "priority_groups",
];

/// The consumers at `site`, and a word on triggers elsewhere.
pub(super) fn expected(streams: Option<&StreamsConfig>, site: &Site) -> (Vec<Durable>, Vec<String>) {
    let Some(streams) = streams else { return Default::default() };
    let address = streams.triggers.peer().address();
    if address == site.address {
        return (streams.triggers.bindings().iter().map(durable).collect(), Vec::new());
    }
    (Vec::new(), vec![format!("the triggers of streams are on another broker, {address}: not looked at")])
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
        absent: ABSENT,
    }
}
