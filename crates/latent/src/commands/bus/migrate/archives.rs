//! What a migration would do to archives. It looks at the two manifests and where their folders lead; no store is opened.

use latent_bridge::BridgeManifest;
use latent_bridge::cold::is_same_place;

use super::super::location::is_archived_at_once;
use crate::error::CliError;

/// Whether who publishes to the destination has a control key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlKey {
    /// The node's, or none is needed to publish.
    AtHand,
    /// An environment names none.
    Missing,
}

const ANOTHER_PLACE: &str =
    "give the topic another cold_uri at the destination; docs/migrate.md says how, and what becomes of the archive that there is";
const WITH_CONFIGURATION: &str = "name the node's configuration, which has the control key: --to config:FILE";
const BOTH: &str = "give the topic another cold_uri at the destination, and name its node's configuration, which has the control key: \
                    --to config:FILE; docs/migrate.md says how";

/// Refuses topics whose new events would lie among the old ones in an archive, under offsets that mean something else there, and those whose
/// events nobody could archive. Every problem at once.
pub(super) fn refuse<'t>(
    source: &BridgeManifest,
    destination: &BridgeManifest,
    topics: impl IntoIterator<Item = &'t str>,
    key: ControlKey,
) -> Result<(), CliError> {
    let of = |manifest: &BridgeManifest, name: &str| manifest.topics.iter().find(|topic| topic.name == name).cloned();
    let (mut shared, mut keyless) = (Vec::new(), Vec::new());
    for name in topics {
        let Some(to) = of(destination, name) else { continue };
        let from = of(source, name).and_then(|topic| topic.retention.cold_uri);
        if let (Some(from), Some(uri)) = (&from, &to.retention.cold_uri)
            && is_same_place(from, uri)
        {
            shared.push(format!(
                "topic {name:?} is archived at {from} by the source and at {uri} by the destination, which is one place: offsets begin anew at \
                 the destination, so its events would lie there among those of the source, under the same names"
            ));
        }
        if key == ControlKey::Missing && is_archived_at_once(&to) {
            keyless.push(format!(
                "topic {name:?} of the destination has a cold_uri, and `nats` has no control key to archive its events with"
            ));
        }
    }
    let next = match (shared.is_empty(), keyless.is_empty()) {
        (true, true) => return Ok(()),
        (false, true) => ANOTHER_PLACE,
        (true, false) => WITH_CONFIGURATION,
        (false, false) => BOTH,
    };
    shared.append(&mut keyless);
    Err(CliError::Unmigratable { problems: shared, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(topics: &[(&str, &str)]) -> BridgeManifest {
        let topic = |(name, retention): &(&str, &str)| format!("  - {{ name: {name}, partitions: 1, retention: {{ {retention} }} }}\n");
        let topics: String = topics.iter().map(topic).collect();
        BridgeManifest::from_yaml(&format!("manifest_version: 1\nname: m\ntopics:\n{topics}")).unwrap()
    }

    fn refused(source: &str, destination: &str, key: ControlKey) -> Option<(Vec<String>, &'static str)> {
        let (source, destination) =
            (manifest(&[("a", source), ("b", "hot_hours: 1")]), manifest(&[("a", destination), ("b", "hot_hours: 1")]));
        match refuse(&source, &destination, ["a", "b"], key) {
            Err(CliError::Unmigratable { problems, next }) => Some((problems, next)),
            refused => refused.map(|()| None).unwrap(),
        }
    }

    #[test]
    fn an_archive_of_both_sides_is_refused_with_both_places_however_they_are_written() {
        let segments = "hot_hours: 1, cold_format: segments, cold_uri: /mnt/./a/";
        for (to, is_refused) in [(segments, true), ("hot_hours: 1, cold_uri: /mnt/b", false), ("hot_hours: 1", false)] {
            let told = refused("hot_hours: 1, cold_uri: /mnt/a", to, ControlKey::AtHand);
            assert_eq!(told.is_some(), is_refused, "{to}: {told:?}");
        }
        let (problems, next) =
            refused("hot_hours: 1, cold_uri: s3://b/x", "hot_hours: 1, cold_uri: s3://b/x/", ControlKey::AtHand).unwrap();
        assert!(problems.len() == 1 && problems[0].contains("at s3://b/x by the source and at s3://b/x/ by"), "{problems:?}");
        assert!(next.starts_with("give the topic another cold_uri at the destination"), "{next}");
    }

    #[test]
    fn a_topic_that_is_archived_at_once_needs_a_key_and_one_of_segments_does_not() {
        let to = "hot_hours: 1, cold_uri: /mnt/b";
        let (problems, next) = refused("hot_hours: 1", to, ControlKey::Missing).unwrap();
        assert!(problems[0].contains("\"a\"") && next.contains("--to config:FILE"), "{problems:?}: {next}");
        assert_eq!(refused("hot_hours: 1", to, ControlKey::AtHand), None);
        assert_eq!(refused("hot_hours: 1", &format!("{to}, cold_format: segments"), ControlKey::Missing), None);
        let (problems, next) = refused(to, to, ControlKey::Missing).unwrap();
        assert!(problems.len() == 2 && next.contains("another cold_uri") && next.contains("--to config:FILE"), "{problems:?}: {next}");
    }
}
