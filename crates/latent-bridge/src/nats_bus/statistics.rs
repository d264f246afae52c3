//! Numbers of topics and where their partitions begin and end, as the broker tells them.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use latent_core::{Offset, Partition, UnixMillis};
use serde::Deserialize;
use serde_json::json;

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

/// Partitions whose numbers are asked for together.
const PARTITIONS_AT_ONCE: usize = 16;

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
    let counted: Counted = shared.api.read(&format!("STREAM.INFO.{}", topic.source.stream), &question).await?;
    let of_subject = |subject: &async_nats::Subject| counted.state.subjects.get(subject.as_str()).copied().unwrap_or_default();
    let numbered: Vec<_> = (0..topic.partitions).zip(topic.subjects.iter().map(of_subject)).collect();
    let mut all = Vec::with_capacity(numbered.len());
    for some in numbered.chunks(PARTITIONS_AT_ONCE) {
        let asked = some.iter().map(|(number, records)| of_partition(shared, topic, Partition(*number), *records));
        all.extend(try_join_all(asked).await?);
    }
    let oldest = all.iter().filter_map(|(_, oldest)| *oldest).min();
    let partitions = all.into_iter().map(|(numbers, _)| numbers).collect();
    Ok(TopicStatistics { topic: topic.name.clone(), oldest, partitions, ..TopicStatistics::default() })
}

/// One partition with so many records, and when its first one was stored.
async fn of_partition(
    shared: &Shared,
    topic: &Topic,
    partition: Partition,
    records: u64,
) -> Result<(PartitionStatistics, Option<UnixMillis>), BusError> {
    let (first, next) = bounds(shared, topic, partition).await?;
    let numbers = PartitionStatistics { first, next, records, bytes: 0, damaged: 0 };
    if records == 0 {
        return Ok((numbers, None));
    }
    let found = topic.source.get(&shared.api, Which::At(first.0)).await?;
    let record = found.and_then(|found| found.record().ok());
    Ok((numbers, record.map(|record| record.stored_at)))
}
