//! What must be in the archive of a topic, as the log of a configuration knows it.

use latent_bridge::cold::verify::Expectation;
use latent_bridge::manifest::ColdFormat;
use latent_core::{Offset, Partition};

use super::status::{ArchivedLog, ArchivedTopic};
use crate::control::Fault;
use crate::engine::Engine;
use crate::error::CliError;

/// What must be there, and how many events may be on their way.
pub(super) struct Expected {
    pub(super) partitions: Vec<Expectation>,
    pub(super) waiting: u64,
}

/// Asks the log, partition by partition, and then how many intents wait: what ended before that is in the archive by now, or still counted.
pub(super) fn of(archived: &ArchivedLog, topic: &ArchivedTopic) -> Result<Expected, CliError> {
    let bus = archived.bus.bus();
    let mut partitions = Vec::new();
    for partition in (0..topic.partitions).map(Partition) {
        let failed = |error| {
            let doing = format!("asking the log what of {}/p{partition} must be in the archive", topic.name);
            CliError::Log { doing, fault: Fault::from(&error) }
        };
        let Some(since) = bus.archived_since(&topic.name, partition).map_err(failed)? else { continue };
        let bounds = bus.bounds(&topic.name, partition).map_err(failed)?;
        let until = until(archived.engine, topic.format, bounds).max(since);
        partitions.push(Expectation { topic: topic.name.clone(), partition, since, until });
    }
    let waiting = bus.archive_statistics().map_or(0, |statistics| statistics.intents);
    Ok(Expected { partitions, waiting })
}

/// Everything before it must be in the archive, or on its way.
const fn until(engine: Engine, format: ColdFormat, (first, next): (Offset, Offset)) -> Offset {
    match (engine, format) {
        // What has left the log went there first.
        (Engine::Embedded, _) => first,
        // What is acknowledged has at least its intent.
        (Engine::Nats, ColdFormat::Objects) => next,
        // Segments take their time, which heads tell.
        (Engine::Nats, ColdFormat::Segments) => Offset(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_a_log_of_ours_is_expected_and_of_a_broker_what_is_acknowledged() {
        let bounds = (Offset(5), Offset(9));
        let cases = [
            (Engine::Embedded, ColdFormat::Objects, 5),
            (Engine::Embedded, ColdFormat::Segments, 5),
            (Engine::Nats, ColdFormat::Objects, 9),
            (Engine::Nats, ColdFormat::Segments, 0),
        ];
        for (engine, format, expected) in cases {
            assert_eq!(until(engine, format, bounds), Offset(expected), "{engine:?} {format:?}");
        }
    }
}
