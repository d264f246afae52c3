//! `latent bus stats`.

use clap::Args;

use super::location::LocationArgs;
use super::topic;
use crate::access::{Access, unexpected};
use crate::control::{Answer, PartitionInfo, Request};
use crate::error::CliError;
use crate::output::{Form, Output};
use crate::table::Table;

/// Arguments of `latent bus stats`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bus stats
  latent bus stats github.events --json

FIRST and NEXT are offsets: the oldest event that is kept, and the one that the next event gets. DAMAGED offsets lie between them and \
cannot be read. The partitions of a topic share its segment files. A poisoned topic takes nothing until the node is started again. On a \
broker offsets are sequences of the topic's stream, which its partitions share; there are no segment files, and what BYTES a partition has is \
not known: both are `-`.")]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// Only this topic
    topic: Option<String>,
}

/// Prints the partitions in the order of topic and number.
pub(super) fn stats(args: &StatsArgs, output: &mut Output) -> Result<(), CliError> {
    let mut access = args.location.access_to_read("latent bus stats")?;
    let partitions = every_partition(&mut access, args.topic.as_deref())?;
    if output.form() == Form::Json {
        return partitions.iter().try_for_each(|partition| output.json(partition));
    }
    table(&partitions).lines().try_for_each(|line| output.text(line))?;
    for topic in by_topic(&partitions).iter().filter(|topic| topic.poisoned) {
        output.hint(format_args!(
            "topic {} is poisoned: a write or sync of it failed; look at the disk and start the node again",
            topic.name
        ));
    }
    Ok(())
}

fn every_partition(access: &mut Access, named: Option<&str>) -> Result<Vec<PartitionInfo>, CliError> {
    const DOING: &str = "asking for the log's statistics";
    let mut all: Vec<PartitionInfo> = Vec::new();
    loop {
        let after = all.last().map(PartitionInfo::place);
        let request = Request::Statistics { topic: named.map(str::to_owned), after: after.clone() };
        let answer = match named {
            Some(named) => topic::ask(access, named, DOING, request)?,
            None => access.ask(DOING, request)?,
        };
        let Answer::Statistics { partitions, more } = answer else { return Err(unexpected(DOING)) };
        // Each page must lie after the one before it, or this would never end.
        let advances = partitions.last().is_some_and(|last| after.is_none_or(|after| last.place() > after));
        if more && !advances {
            return Err(unexpected(DOING));
        }
        all.extend(partitions);
        if !more {
            return Ok(all);
        }
    }
}

/// The partitions of one topic, or of all, together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Sum<'p> {
    name: &'p str,
    partitions: u64,
    records: u64,
    damaged: u64,
    /// None when a part of it is not known.
    bytes: Option<u64>,
    segments: u64,
    poisoned: bool,
}

/// Bytes together; not known when those of one are not.
fn bytes_of(mut parts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    parts.try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
}

/// A number that a broker does not tell.
fn told(number: Option<u64>) -> String {
    number.map_or_else(|| NOTHING.to_owned(), |number| number.to_string())
}

fn by_topic(partitions: &[PartitionInfo]) -> Vec<Sum<'_>> {
    partitions.chunk_by(|one, next| one.topic == next.topic).map(Sum::of_topic).collect()
}

impl<'p> Sum<'p> {
    fn of_topic(partitions: &'p [PartitionInfo]) -> Self {
        let sum = |number: fn(&PartitionInfo) -> u64| partitions.iter().map(number).fold(0, u64::saturating_add);
        let first = partitions.first();
        Self {
            name: first.map_or("", |partition| &partition.topic),
            partitions: partitions.len() as u64,
            records: sum(|partition| partition.records),
            damaged: sum(|partition| partition.damaged),
            bytes: bytes_of(partitions.iter().map(|partition| partition.bytes)),
            // Of the topic, whichever partition says it.
            segments: first.map_or(0, |partition| partition.topic_segments),
            poisoned: first.is_some_and(|partition| partition.poisoned),
        }
    }

    fn of_all(topics: &[Self]) -> Self {
        let sum = |number: fn(&Self) -> u64| topics.iter().map(number).fold(0, u64::saturating_add);
        Self {
            name: "TOTAL",
            partitions: sum(|topic| topic.partitions),
            records: sum(|topic| topic.records),
            damaged: sum(|topic| topic.damaged),
            bytes: bytes_of(topics.iter().map(|topic| topic.bytes)),
            segments: sum(|topic| topic.segments),
            poisoned: topics.iter().any(|topic| topic.poisoned),
        }
    }
}

/// One column: what a partition's row has in it, and the row of a sum.
struct Column {
    heading: &'static str,
    partition: fn(&PartitionInfo) -> String,
    sum: fn(&Sum<'_>) -> String,
}

const NOTHING: &str = "-";

const COLUMNS: &[Column] = &[
    Column { heading: "TOPIC", partition: |row| row.topic.clone(), sum: |sum| sum.name.to_owned() },
    Column { heading: "PARTITION", partition: |row| row.partition.to_string(), sum: |sum| format!("all {}", sum.partitions) },
    Column { heading: "FIRST", partition: |row| row.first.to_string(), sum: |_| NOTHING.to_owned() },
    Column { heading: "NEXT", partition: |row| row.next.to_string(), sum: |_| NOTHING.to_owned() },
    Column { heading: "RECORDS", partition: |row| row.records.to_string(), sum: |sum| sum.records.to_string() },
    Column { heading: "DAMAGED", partition: |row| row.damaged.to_string(), sum: |sum| sum.damaged.to_string() },
    Column { heading: "BYTES", partition: |row| told(row.bytes), sum: |sum| told(sum.bytes) },
    Column { heading: "SEGMENTS", partition: |_| NOTHING.to_owned(), sum: |sum| told(sum.bytes.map(|_| sum.segments)) },
    Column { heading: "STATE", partition: |row| state(row.poisoned).to_owned(), sum: |sum| state(sum.poisoned).to_owned() },
];

const fn state(poisoned: bool) -> &'static str {
    if poisoned { "poisoned" } else { "ok" }
}

/// Each topic's partitions and their sum, and below several topics the sum of them all.
fn table(partitions: &[PartitionInfo]) -> String {
    let headings: Vec<_> = COLUMNS.iter().map(|column| column.heading).collect();
    let mut table = Table::new(&headings);
    let topics = by_topic(partitions);
    let row_of = |sum: &Sum<'_>| COLUMNS.iter().map(|column| (column.sum)(sum)).collect();
    for (rows, sum) in partitions.chunk_by(|one, next| one.topic == next.topic).zip(&topics) {
        for row in rows {
            table.push(COLUMNS.iter().map(|column| (column.partition)(row)).collect());
        }
        table.push(row_of(sum));
    }
    if topics.len() > 1 {
        table.push(row_of(&Sum::of_all(&topics)));
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(topic: &str, partition: u32, poisoned: bool) -> PartitionInfo {
        PartitionInfo {
            topic: topic.to_owned(),
            partition,
            first: 5,
            next: 15,
            records: 9,
            damaged: 1,
            bytes: Some(100),
            poisoned,
            topic_segments: 2,
            topic_uid_runs: 1,
            topic_oldest: None,
        }
    }

    #[test]
    fn partitions_are_followed_by_their_sums() {
        let rows = [partition("a", 0, false), partition("a", 1, false), partition("b", 0, true)];
        let expected = "\
TOPIC  PARTITION  FIRST  NEXT  RECORDS  DAMAGED  BYTES  SEGMENTS  STATE
a      0          5      15    9        1        100    -         ok
a      1          5      15    9        1        100    -         ok
a      all 2      -      -     18       2        200    2         ok
b      0          5      15    9        1        100    -         poisoned
b      all 1      -      -     9        1        100    2         poisoned
TOTAL  all 3      -      -     27       3        300    4         poisoned
";
        assert_eq!(table(&rows), expected);
    }

    #[test]
    fn what_a_broker_does_not_tell_is_no_number() {
        let rows = [0, 1].map(|number| PartitionInfo { bytes: None, topic_segments: 0, ..partition("a", number, false) });
        let expected = "\
TOPIC  PARTITION  FIRST  NEXT  RECORDS  DAMAGED  BYTES  SEGMENTS  STATE
a      0          5      15    9        1        -      -         ok
a      1          5      15    9        1        -      -         ok
a      all 2      -      -     18       2        -      -         ok
";
        assert_eq!(table(&rows), expected);
    }

    #[test]
    fn one_topic_needs_no_total() {
        assert!(!table(&[partition("a", 0, false)]).contains("TOTAL"));
    }
}
