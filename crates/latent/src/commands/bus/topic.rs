//! A topic named on the command line: its partitions, and what was probably meant when the log has none of that name.

use std::ops::Range;

use crate::access::{Access, unexpected};
use crate::config::nearest;
use crate::control::{Answer, Request, TopicInfo};
use crate::error::CliError;

/// The partitions a command is about: the one it names, else all of the topic's.
pub(crate) fn partitions(access: &mut Access, topic: &str, named: Option<u32>) -> Result<Range<u32>, CliError> {
    if let Some(partition) = named {
        return Ok(partition..partition.saturating_add(1));
    }
    let doing = format!("looking for the partitions of {topic}");
    match ask(access, topic, &doing, Request::Partitions { topic: topic.to_owned() })? {
        Answer::Partitions(partitions) => Ok(0..partitions),
        _ => Err(unexpected(&doing)),
    }
}

/// Asks about a topic. When there is none of that name, the error says which there are.
pub(crate) fn ask(access: &mut Access, topic: &str, doing: &str, request: Request) -> Result<Answer, CliError> {
    match access.ask(doing, request) {
        Err(CliError::Log { fault, .. }) if fault.is_unknown_topic() => Err(unknown(topic, declared(access, doing)?)),
        answer => answer,
    }
}

fn declared(access: &mut Access, doing: &str) -> Result<Vec<TopicInfo>, CliError> {
    let Answer::Topics(topics) = access.ask(doing, Request::Topics)? else { return Err(unexpected(doing)) };
    Ok(topics)
}

fn unknown(topic: &str, topics: Vec<TopicInfo>) -> CliError {
    let declared: Vec<_> = topics.into_iter().map(|topic| topic.topic).collect();
    CliError::UnknownTopic { topic: topic.to_owned(), nearest: meant(topic, &declared).map(str::to_owned), declared }
}

/// A mistyped name, or the first part of one.
pub(super) fn meant<'d>(topic: &str, declared: &'d [String]) -> Option<&'d str> {
    let begun = || declared.iter().find(|name| name.strip_prefix(topic).is_some_and(|rest| rest.starts_with('.')));
    nearest(topic, declared.iter().map(String::as_str)).or_else(|| begun().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_or_shortened_topic_is_recognised() {
        let declared = ["github.events", "hello.in", "hello.out"].map(str::to_owned);
        let cases = [
            ("hello.inn", Some("hello.in")),
            ("helo.out", Some("hello.out")),
            ("hello", Some("hello.in")),
            ("github", Some("github.events")),
            ("elsewhere", None),
            ("", None),
        ];
        for (topic, expected) in cases {
            assert_eq!(meant(topic, &declared), expected, "{topic:?}");
        }
    }
}
