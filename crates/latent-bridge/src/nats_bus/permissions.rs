//! What users of a broker must be allowed to do, and no more: the one list beside the requests that need it. No I/O.
//!
//! | asked for in | on |
//! |---|---|
//! | `publishing` | `<topic>.p<N>` |
//! | `streams`, `reading`, `statistics` | `$JS.API.STREAM.INFO.<stream>` |
//! | `consumer` | `$JS.API.CONSUMER.CREATE.<stream>.<name>.<subject>`, `.CONSUMER.MSG.NEXT.<stream>.<name>`, `.CONSUMER.DELETE.<stream>.<name>` |
//! | `record` | `$JS.API.STREAM.MSG.GET.<stream>` |
//! | `durables` (provisioning) | `$JS.API.CONSUMER.INFO.<stream>.<consumer>`, `.CONSUMER.CREATE.<stream>.<consumer>.<subject>` |
//! | triggers of streams | `$JS.API.CONSUMER.INFO.<stream>.<consumer>`, `.CONSUMER.MSG.NEXT.<stream>.<consumer>`, `$JS.ACK.<stream>.<consumer>.>` |
//! | `streams` (provisioning) | `$JS.API.STREAM.CREATE.<stream>`, `.STREAM.UPDATE.<stream>`, `.STREAM.NAMES`, `.STREAM.INFO.*` |
//!
//! Each partition is named: `<topic>.*` would also cover subjects that are no partition, whoever listens there. A consumer's name is made
//! anew each time, and a broker knows no wildcard for a part of a token, so its place is `*`.

use serde::Serialize;

use super::streams::{stream_name, subject};
use crate::BridgeManifest;

/// Below it every connection has its own inboxes; `connect` makes them.
const INBOXES: &str = "_INBOX.LSF.>";

/// Everything that one user may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Permissions {
    /// What it may publish to, requests to the broker included.
    pub publish: Vec<Permission>,
    /// What it may subscribe to.
    pub subscribe: Vec<Permission>,
}

/// A subject, or subjects by wildcards, with what is done there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Permission {
    /// As the broker's configuration has it.
    pub subject: String,
    /// What for.
    pub purpose: &'static str,
}

fn permission(subject: String, purpose: &'static str) -> Permission {
    Permission { subject, purpose }
}

fn api(call: &str, purpose: &'static str) -> Permission {
    permission(format!("$JS.API.{call}"), purpose)
}

impl Permissions {
    /// Of who uses the topics of `manifest`: `NatsBus::open` and everything that an opened bus does.
    pub fn of_bus(manifest: &BridgeManifest) -> Self {
        let mut publish = Vec::new();
        for topic in &manifest.topics {
            let stream = stream_name(&topic.name);
            let subjects: Vec<_> = (0..topic.partitions).map(|partition| subject(&topic.name, partition)).collect();
            publish.extend(subjects.iter().map(|subject| permission(subject.clone(), "publishing events")));
            publish.push(api(&format!("STREAM.INFO.{stream}"), "checking the stream, numbers"));
            publish.extend(subjects.iter().map(|subject| api(&format!("CONSUMER.CREATE.{stream}.*.{subject}"), "reading this partition")));
            publish.push(api(&format!("CONSUMER.MSG.NEXT.{stream}.*"), "the next page"));
            publish.push(api(&format!("CONSUMER.DELETE.{stream}.*"), "leaving no reader behind"));
            publish.push(api(&format!("STREAM.MSG.GET.{stream}"), "single events: duplicates, ends"));
        }
        Self { publish, subscribe: vec![inboxes()] }
    }

    /// Of who publishes to `subjects` and learns what became of it, as the publisher of raw subjects does.
    pub fn of_publisher<'s>(subjects: impl IntoIterator<Item = &'s str>) -> Self {
        let publish = subjects.into_iter().map(|subject| permission(subject.to_owned(), "publishing events")).collect();
        Self { publish, subscribe: vec![inboxes()] }
    }

    /// Of who is woken by durable consumers, each given with its stream: it looks at them, pulls from them and settles what they deliver.
    pub fn of_trigger<'c>(consumers: impl IntoIterator<Item = (&'c str, &'c str)>) -> Self {
        let publish = consumers.into_iter().flat_map(|(stream, consumer)| {
            [
                api(&format!("CONSUMER.INFO.{stream}.{consumer}"), "looking at the consumer"),
                api(&format!("CONSUMER.MSG.NEXT.{stream}.{consumer}"), "asking for one message"),
                permission(format!("$JS.ACK.{stream}.{consumer}.>"), "settling it"),
                permission(format!("$JS.ACK._.*.{stream}.{consumer}.>"), "the same, as later servers name it"),
            ]
        });
        Self { publish: publish.collect(), subscribe: vec![inboxes()] }
    }

    /// Of who makes and changes the durable consumers of triggers, each given with its stream and its one subject.
    pub fn of_durables<'c>(consumers: impl IntoIterator<Item = (&'c str, &'c str, &'c str)>) -> Self {
        let publish = consumers.into_iter().flat_map(|(stream, consumer, filter)| {
            [
                api(&format!("CONSUMER.INFO.{stream}.{consumer}"), "comparing the consumer"),
                api(&format!("CONSUMER.CREATE.{stream}.{consumer}.{filter}"), "making it and changing its settings"),
            ]
        });
        Self { publish: publish.collect(), subscribe: Vec::new() }
    }

    /// Of who looks at streams and makes those of `manifest`. It can remove no stream, no event and no consumer by itself; a shorter retention
    /// does remove events.
    pub fn of_operator(manifest: Option<&BridgeManifest>) -> Self {
        let mut publish = vec![
            api("STREAM.NAMES", "finding streams that stand in the way"),
            api("STREAM.INFO.*", "comparing them, and reading back what was written"),
        ];
        for topic in manifest.into_iter().flat_map(|manifest| &manifest.topics) {
            let stream = stream_name(&topic.name);
            publish.push(api(&format!("STREAM.CREATE.{stream}"), "making the stream"));
            publish.push(api(&format!("STREAM.UPDATE.{stream}"), "bringing it to the manifest"));
        }
        Self { publish, subscribe: vec![inboxes()] }
    }

    /// These and `others`, each once.
    pub fn extend(&mut self, others: Self) {
        for (own, more) in [(&mut self.publish, others.publish), (&mut self.subscribe, others.subscribe)] {
            for permission in more {
                if !own.iter().any(|known| known.subject == permission.subject) {
                    own.push(permission);
                }
            }
        }
    }
}

fn inboxes() -> Permission {
    permission(INBOXES.to_owned(), "the broker's answers")
}

/// Whether everything that fits `subject` fits `pattern`, too, as a broker compares them.
pub fn covers(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (None, None) | (Some(">"), Some(_)) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(a), Some(b)) if a == b => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(replication_factor: u32) -> BridgeManifest {
        let text = format!(
            "manifest_version: 1\nname: x\nreplication_factor: {replication_factor}\ntopics:\n- {{ name: a.b, partitions: 2 }}\n- {{ name: c, partitions: 1 }}\n"
        );
        BridgeManifest::from_yaml(&text).unwrap()
    }

    fn subjects(permissions: &[Permission]) -> Vec<&str> {
        permissions.iter().map(|permission| permission.subject.as_str()).collect()
    }

    #[test]
    fn a_bus_may_use_its_topics_and_nothing_else() {
        let permissions = Permissions::of_bus(&manifest(1));
        let of_a_b = [
            "a.b.p0",
            "a.b.p1",
            "$JS.API.STREAM.INFO.av_a_b",
            "$JS.API.CONSUMER.CREATE.av_a_b.*.a.b.p0",
            "$JS.API.CONSUMER.CREATE.av_a_b.*.a.b.p1",
            "$JS.API.CONSUMER.MSG.NEXT.av_a_b.*",
            "$JS.API.CONSUMER.DELETE.av_a_b.*",
            "$JS.API.STREAM.MSG.GET.av_a_b",
        ];
        let of_c = [
            "c.p0",
            "$JS.API.STREAM.INFO.av_c",
            "$JS.API.CONSUMER.CREATE.av_c.*.c.p0",
            "$JS.API.CONSUMER.MSG.NEXT.av_c.*",
            "$JS.API.CONSUMER.DELETE.av_c.*",
            "$JS.API.STREAM.MSG.GET.av_c",
        ];
        assert_eq!(subjects(&permissions.publish), [&of_a_b[..], &of_c].concat());
        assert_eq!(subjects(&permissions.subscribe), ["_INBOX.LSF.>"]);
        assert_eq!(Permissions::of_bus(&manifest(3)), permissions, "replicas make no difference");
    }

    #[test]
    fn an_operator_makes_and_changes_streams_and_deletes_nothing() {
        let permissions = Permissions::of_operator(Some(&manifest(1)));
        let expected = [
            "$JS.API.STREAM.NAMES",
            "$JS.API.STREAM.INFO.*",
            "$JS.API.STREAM.CREATE.av_a_b",
            "$JS.API.STREAM.UPDATE.av_a_b",
            "$JS.API.STREAM.CREATE.av_c",
            "$JS.API.STREAM.UPDATE.av_c",
        ];
        assert_eq!(subjects(&permissions.publish), expected);
    }

    #[test]
    fn what_two_purposes_need_is_there_once() {
        let mut both = Permissions::of_publisher(["c.p0", "orders"]);
        both.extend(Permissions::of_bus(&manifest(1)));
        assert_eq!(both.publish.iter().filter(|of| of.subject == "c.p0").count(), 1);
        assert_eq!((both.subscribe.len(), both.publish[1].subject.as_str()), (1, "orders"));
    }

    #[test]
    fn a_pattern_covers_what_a_broker_would_take() {
        let table = [
            ("a.b", "a.b", true),
            ("a.*", "a.b", true),
            ("a.*", "a.b.c", false),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            ("*", ">", false),
            (">", ">", true),
            ("a.*", "a.>", false),
            ("a.b", "a.*", false),
            ("*.x", "a.x", true),
        ];
        for (pattern, subject, expected) in table {
            assert_eq!(covers(pattern, subject), expected, "{pattern} {subject}");
        }
    }
}
