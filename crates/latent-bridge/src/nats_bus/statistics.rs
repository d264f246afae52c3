//! Numbers of topics and where their partitions begin and end, as the broker tells them.

use std::collections::BTreeMap;

use latent_core::{Offset, Partition, UnixMillis};
use serde::Deserialize;
use serde_json::json;

use super::body;
use super::reading::look;
use super::record::Which;
use super::shared::{Shared, Topic};
use crate::{BusError, PartitionStatistics, TopicStatistics};

/// The first offset of a partition and the one after its last. Of one without records both are the next one of its stream.
pub(super) async fn bounds(shared: &Shared, topic: &Topic, partition: Partition) -> Result<(Offset, Offset), BusError> {
    let subject = topic.subject(partition)?.to_string();
    // The end of the stream is asked for between two looks: what comes after it is not below it.
    let mut end_of_stream = None;
    loop {
        let (first, last) = tokio::join!(
            topic.source.get(&shared.api, Which::NextOf(&subject, 1)),
            topic.source.get(&shared.api, Which::LastOf(&subject)),
        );
        match (first?, last?, end_of_stream) {
            (Some(first), Some(last), _) => {
                return Ok((Offset(first.sequence), Offset(last.sequence.max(first.sequence).saturating_add(1))));
            }
            (_, _, Some(next)) => return Ok((Offset(next), Offset(next))),
            (_, _, None) => end_of_stream = Some(look(shared, topic).await?.state.last_seq.saturating_add(1)),
        }
    }
}

/// All topics.
pub(super) async fn of_all(shared: &Shared) -> Result<Vec<TopicStatistics>, BusError> {
    let mut all = Vec::with_capacity(shared.topics.len());
    for topic in &shared.topics {
        all.push(of_topic(shared, topic).await?);
    }
    Ok(all)
}

#[derive(Deserialize)]
struct Counted {
    state: State,
}

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    subjects: BTreeMap<String, u64>,
}

async fn of_topic(shared: &Shared, topic: &Topic) -> Result<TopicStatistics, BusError> {
    let question = json!({ "subjects_filter": format!("{}.>", topic.name) });
    let counted: Counted = shared.api.ask(&format!("STREAM.INFO.{}", topic.source.stream), &question).await?;
    let (mut partitions, mut oldest) = (Vec::new(), None::<u64>);
    for (number, subject) in (0..topic.partitions).zip(&topic.subjects) {
        let records = counted.state.subjects.get(subject.as_str()).copied().unwrap_or_default();
        let (first, next) = bounds(shared, topic, Partition(number)).await?;
        if records > 0
            && let Some(found) = topic.source.get(&shared.api, Which::At(first.0)).await?
            && let Ok(record) = body::decode_parts(Some(&found.headers), &found.body)
        {
            oldest = Some(oldest.map_or(record.stored_at.0, |oldest| oldest.min(record.stored_at.0)));
        }
        partitions.push(PartitionStatistics { first, next, records, bytes: 0, damaged: 0 });
    }
    Ok(TopicStatistics { topic: topic.name.clone(), oldest: oldest.map(UnixMillis), partitions, ..TopicStatistics::default() })
}
