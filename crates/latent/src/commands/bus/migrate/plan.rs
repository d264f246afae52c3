//! Which partitions are to be brought over, or why they cannot be. No I/O.

use latent_bridge::{BridgeManifest, TopicSpec};
use latent_core::Partition;

use super::super::topic::meant;
use crate::error::CliError;

/// Why nothing was begun.
pub(super) enum Unmigratable {
    /// The source has no topic of that name.
    UnknownTopic(CliError),
    /// The destination is not made for it.
    Unfit {
        /// Each reason.
        problems: Vec<String>,
    },
}

/// The partitions of the topics named, or of all of the source, in the order of their names. Every problem at once.
pub(super) fn plan(
    source: &BridgeManifest,
    destination: &BridgeManifest,
    named: &[String],
) -> Result<Vec<(String, Partition)>, Unmigratable> {
    let mut topics = chosen(source, named)?;
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    topics.dedup_by(|a, b| a.name == b.name);
    let mut problems = Vec::new();
    if source.name != destination.name {
        problems.push(format!(
            "the manifest of the source is named {:?} and that of the destination {:?}: uids of what functions publish are derived from that name, \
             so what they publish again would not be recognised",
            source.name, destination.name
        ));
    }
    for topic in &topics {
        match destination.topics.iter().find(|other| other.name == topic.name) {
            None => problems.push(format!("the destination has no topic {:?}", topic.name)),
            Some(other) if other.partitions != topic.partitions => problems.push(format!(
                "topic {:?} has {} partitions in the source and {} in the destination: keys would change their partitions, and their order with them",
                topic.name, topic.partitions, other.partitions
            )),
            Some(_) => {}
        }
    }
    if !problems.is_empty() {
        return Err(Unmigratable::Unfit { problems });
    }
    Ok(topics.into_iter().flat_map(|topic| (0..topic.partitions).map(|partition| (topic.name.clone(), Partition(partition)))).collect())
}

fn chosen<'m>(source: &'m BridgeManifest, named: &[String]) -> Result<Vec<&'m TopicSpec>, Unmigratable> {
    if named.is_empty() {
        return Ok(source.topics.iter().collect());
    }
    let find = |name: &String| {
        source.topics.iter().find(|topic| topic.name == *name).ok_or_else(|| {
            let mut declared: Vec<_> = source.topics.iter().map(|topic| topic.name.clone()).collect();
            declared.sort();
            let nearest = meant(name, &declared).map(str::to_owned);
            Unmigratable::UnknownTopic(CliError::UnknownTopic { topic: name.clone(), nearest, declared })
        })
    };
    named.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, topics: &[(&str, u32)]) -> BridgeManifest {
        let topic = |(name, partitions): &(&str, u32)| format!("  - {{ name: {name}, partitions: {partitions} }}\n");
        let topics: String = topics.iter().map(topic).collect();
        BridgeManifest::from_yaml(&format!("manifest_version: 1\nname: {name}\ntopics:\n{topics}")).unwrap()
    }

    fn problems(source: &BridgeManifest, destination: &BridgeManifest) -> Vec<String> {
        match plan(source, destination, &[]) {
            Err(Unmigratable::Unfit { problems }) => problems,
            _ => Vec::new(),
        }
    }

    #[test]
    fn topics_are_taken_in_order_with_all_their_partitions_and_once() {
        let (source, destination) = (manifest("m", &[("b", 1), ("a", 2)]), manifest("m", &[("a", 2), ("b", 1), ("c", 9)]));
        let planned = |named: &[&str]| {
            let named: Vec<_> = named.iter().map(|name| (*name).to_owned()).collect();
            let planned = plan(&source, &destination, &named).ok().unwrap();
            planned.into_iter().map(|(topic, partition)| format!("{topic}/{partition}")).collect::<Vec<_>>()
        };
        assert_eq!(planned(&[]), ["a/0", "a/1", "b/0"]);
        assert_eq!(planned(&["b", "b"]), ["b/0"]);
        let unknown = plan(&source, &destination, &["c".to_owned()]);
        assert!(matches!(unknown, Err(Unmigratable::UnknownTopic(CliError::UnknownTopic { .. }))), "the source has none");
    }

    #[test]
    fn what_does_not_fit_is_told_at_once_with_both_values() {
        let source = manifest("m", &[("a", 2), ("b", 1)]);
        let told = problems(&source, &manifest("n", &[("a", 3)]));
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("\"m\"") && told[0].contains("\"n\""), "{told:?}");
        assert!(told[1].contains("2 partitions in the source and 3 in the destination"), "{told:?}");
        assert!(told[2].contains("no topic \"b\""), "{told:?}");
    }
}
