//! The triggers that follow `nats-jetstream-pull-v2` as bindings of the delivery cycle: each partition has its lane as its source, and nothing is
//! remembered here, because the broker remembers.

use latent_core::{Offset, Partition};
use latent_nats::lanes::NatsLanes;
use latent_node::delivery::{BindingSpec, Intake, PartitionSpec, Remembered};
use latent_node::{InboundTarget, limits};

use super::assembly::{policy, target};
use crate::config::settings::{LaneTrigger, LanesConfig};

/// What an event has beside its payload: uid, key, media type and attributes.
const BESIDE_PAYLOAD_BYTES: u64 = 16_384;

/// One binding for each trigger.
pub(super) fn specs(config: &LanesConfig, lanes: &NatsLanes) -> Vec<BindingSpec> {
    let mut sources = (0..lanes.config().lanes().len()).map(|place| lanes.source(place));
    config.triggers.iter().map(|trigger| spec(trigger, &mut sources)).collect()
}

fn spec(lane: &LaneTrigger, sources: impl Iterator<Item = Option<Box<dyn latent_node::delivery::Source>>>) -> BindingSpec {
    let trigger = &lane.trigger;
    let partition = |(partition, source): (u32, Option<_>)| {
        Some(PartitionSpec {
            partition: Partition(partition),
            source: source?,
            intake: Intake::HandedOut,
            remembered: Remembered::default(),
            known_end: Offset(0),
        })
    };
    let input_bytes_max = lane.payload_ceiling_bytes.saturating_add(BESIDE_PAYLOAD_BYTES).min(limits::INPUT_BYTES.max);
    BindingSpec {
        id: trigger.id.clone(),
        topic: trigger.topic.clone(),
        target: InboundTarget { input_bytes_max, ..target(trigger) },
        policy: policy(trigger),
        dead_letter: trigger.dead_letter.clone(),
        partitions: (0..lane.partitions).zip(sources).filter_map(partition).collect(),
    }
}
