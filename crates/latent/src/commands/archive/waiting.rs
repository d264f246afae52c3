//! How long the oldest event that is in no segment stays on a broker: there it leaves by its age alone.

use latent_bridge::{BusError, EventBus};
use latent_core::{Offset, Partition, UnixMillis};

use super::status::ArchivedTopic;

const HOUR_MILLIS: u64 = 3_600_000;

/// What waits of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing, or nothing leaves before it is archived.
    Nothing,
    /// The broker keeps the oldest of it for so long.
    Millis(u64),
    /// It could not be read.
    Unknown,
}

impl Left {
    /// Of a partition whose archive goes up to `end`, on a log that removes by age.
    pub(super) fn of(bus: &dyn EventBus, topic: &ArchivedTopic, partition: Partition, end: Option<Offset>, now: UnixMillis) -> Self {
        let from = end.map_or(Offset(0), |end| Offset(end.0.saturating_add(1)));
        match bus.submit_fetch(&topic.name, partition, from, 1).wait() {
            Ok(page) => page.first().map_or(Self::Nothing, |oldest| Self::Millis(until(oldest.record.stored_at, topic.hot_hours, now))),
            Err(BusError::UnknownTopic { .. }) => Self::Nothing,
            Err(_) => Self::Unknown,
        }
    }

    /// For machines.
    pub(super) fn seconds(self) -> Option<u64> {
        if let Self::Millis(millis) = self { Some(millis / 1_000) } else { None }
    }

    /// For people.
    pub(super) fn words(self) -> String {
        match self {
            Self::Nothing => "-".to_owned(),
            Self::Unknown => "unknown".to_owned(),
            Self::Millis(0) => "none".to_owned(),
            Self::Millis(millis) => format!("{}h{:02}m", millis / HOUR_MILLIS, millis % HOUR_MILLIS / 60_000),
        }
    }
}

const fn until(stored_at: UnixMillis, hot_hours: u32, now: UnixMillis) -> u64 {
    stored_at.0.saturating_add((hot_hours as u64).saturating_mul(HOUR_MILLIS)).saturating_sub(now.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_kept_for_the_hours_of_its_topic_from_when_it_was_stored() {
        let stored_at = UnixMillis(1_000_000);
        let left = |now: u64| Left::Millis(until(stored_at, 2, UnixMillis(1_000_000 + now)));
        assert_eq!([0, 90 * 60_000, 7_200_000, u64::MAX / 2].map(|now| left(now).words()), ["2h00m", "0h30m", "none", "none"]);
        assert_eq!([left(1_000).seconds(), Left::Unknown.seconds()], [Some(7_199), None]);
        assert_eq!([Left::Nothing.words(), Left::Unknown.words()], ["-", "unknown"]);
        assert_eq!(until(UnixMillis(u64::MAX), u32::MAX, UnixMillis(0)), u64::MAX);
    }
}
