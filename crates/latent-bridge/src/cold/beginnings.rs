//! From which offset on a topic's events are archived at its place: what whoever verifies may expect to find there. What was stored before
//! the topic had a `cold_uri` was promised to nobody. One file beside the outbox's intents; a topic that is archived elsewhere, or no longer,
//! begins anew, its heads with it.

use std::collections::BTreeMap;
use std::path::Path;

use latent_core::{Offset, Partition};
use serde::{Deserialize, Serialize};

use super::export::set_heads_aside;
use crate::embedded::Storage;
use crate::engine::embedded::directory::{checked_text, read_control, with_check, write_control};
use crate::{BridgeManifest, BusError, TopicSpec};

/// The file. It does not end as an intent does.
const FILE: &str = "beginnings";

/// See the module. By topic.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Beginnings(BTreeMap<String, Beginning>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Beginning {
    /// The `cold_uri`.
    place: String,
    /// By partition.
    offsets: Vec<u64>,
}

/// A topic that is archived.
pub(crate) struct Archived {
    pub(crate) topic: String,
    /// Its `cold_uri`.
    pub(crate) place: String,
    pub(crate) partitions: u32,
}

/// Where a partition would begin now; none when that cannot be told, and then nothing is written down of its topic.
pub(crate) type Now<'n> = &'n dyn Fn(&str, Partition) -> Option<Offset>;

impl Beginnings {
    /// What was written down in `directory`, brought to what is archived now, durably.
    ///
    /// # Errors
    /// [`BusError::Io`].
    pub(crate) fn keep(storage: &dyn Storage, directory: &Path, archived: &[Archived], now: Now<'_>) -> Result<Self, BusError> {
        let path = directory.join(FILE);
        let known = read_control(storage, &path)?;
        if archived.is_empty() && known.is_none() {
            return Ok(Self::default());
        }
        let known = known.map_or_else(Self::default, |content| {
            Self::parse(&content).unwrap_or_else(|| {
                tracing::warn!(file = FILE, "cannot be read: what was archived before now is not known to be expected in the archive");
                Self::default()
            })
        });
        for (Archived { topic, partitions, .. }, was) in archived.iter().filter_map(|one| Some((one, known.moved(one)?))) {
            let partitions = (*partitions).max(u32::try_from(was.offsets.len()).unwrap_or(u32::MAX));
            set_heads_aside(storage, directory, topic, (partitions, &was.place))?;
        }
        let brought = known.brought_to(archived, now);
        if brought != known {
            let text = serde_json::to_string(&brought.0).map_err(|error| BusError::Serde { problem: error.to_string() })?;
            write_control(storage, &path, with_check(&format!("{text}\n")).as_bytes())?;
        }
        Ok(brought)
    }

    /// From where on a partition's events are in its archive.
    pub(crate) fn since(&self, topic: &str, partition: Partition) -> Option<Offset> {
        self.0.get(topic)?.offsets.get(partition.0 as usize).copied().map(Offset)
    }

    /// What was written down of a topic that was archived at another place.
    fn moved(&self, archived: &Archived) -> Option<&Beginning> {
        self.0.get(&archived.topic).filter(|known| known.place != archived.place)
    }

    fn parse(content: &[u8]) -> Option<Self> {
        serde_json::from_str(checked_text(FILE, content).ok()?).ok().map(Self)
    }

    fn brought_to(&self, archived: &[Archived], now: Now<'_>) -> Self {
        let one = |Archived { topic, place, partitions }: &Archived| {
            let known = self.0.get(topic).filter(|known| known.place == *place);
            let kept = |partition: u32| known.and_then(|known| known.offsets.get(partition as usize)).copied();
            let offset = |partition| kept(partition).or_else(|| now(topic, Partition(partition)).map(|offset| offset.0));
            let offsets = (0..*partitions).map(offset).collect::<Option<_>>()?;
            Some((topic.clone(), Beginning { place: place.clone(), offsets }))
        };
        Self(archived.iter().filter_map(one).collect())
    }
}

/// The topics of a manifest that are archived.
pub(crate) fn archived(manifest: &BridgeManifest) -> Vec<Archived> {
    let one = |topic: &TopicSpec| {
        let place = topic.retention.cold_uri.clone()?;
        Some(Archived { topic: topic.name.clone(), place, partitions: topic.partitions })
    };
    manifest.topics.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::OsStorage;

    fn keep(directory: &Path, archived: &[(&str, &str, &[u64])]) -> Beginnings {
        let now = |topic: &str, partition: Partition| {
            let offsets = archived.iter().find(|(name, ..)| *name == topic)?.2;
            offsets.get(partition.0 as usize).copied().filter(|offset| *offset < u64::MAX).map(Offset)
        };
        let one = |(topic, place, offsets): &(&str, &str, &[u64])| Archived {
            topic: (*topic).to_owned(),
            place: (*place).to_owned(),
            partitions: u32::try_from(offsets.len()).unwrap(),
        };
        let archived: Vec<_> = archived.iter().map(one).collect();
        Beginnings::keep(&OsStorage, directory, &archived, &now).unwrap()
    }

    fn since(beginnings: &Beginnings, topic: &str) -> Vec<u64> {
        (0..4).map_while(|partition| beginnings.since(topic, Partition(partition))).map(|offset| offset.0).collect()
    }

    #[test]
    fn a_topic_begins_once_at_each_place_and_a_new_partition_with_itself() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(keep(directory.path(), &[]), Beginnings::default());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is written for nothing");
        assert_eq!(since(&keep(directory.path(), &[("t", "a", &[5, 6])]), "t"), [5, 6]);
        assert_eq!(since(&keep(directory.path(), &[("t", "a", &[50, 60, 0])]), "t"), [5, 6, 0]);
        assert_eq!(since(&keep(directory.path(), &[("t", "b", &[50, 60, 70])]), "t"), [50, 60, 70], "another place");
        assert_eq!(since(&keep(directory.path(), &[]), "t"), [0; 0], "no longer archived");
        assert_eq!(since(&keep(directory.path(), &[("t", "b", &[80, u64::MAX])]), "t"), [0; 0], "it could not be told");
        assert_eq!(since(&keep(directory.path(), &[("t", "b", &[80, 90, 99])]), "t"), [80, 90, 99]);
    }

    #[test]
    fn what_is_damaged_is_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        keep(directory.path(), &[("t", "a", &[5])]);
        let file = directory.path().join(FILE);
        let content = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, content.replace("[5]", "[0]")).unwrap();
        assert_eq!(since(&keep(directory.path(), &[("t", "a", &[7])]), "t"), [7]);
    }
}
