//! Every rule of a manifest, in one place (B-011, B-015 to B-021, D-04, D-20).

use std::collections::BTreeMap;
use std::path::{Component, Path};

use latent_core::{Limit, TopicName};

use super::place::{Field, Place};
use super::{BridgeManifest, MANIFEST_VERSION, ManifestError, RetentionSpec, TopicSpec};
use crate::limits;

/// A rule that is broken, and where.
pub(super) struct Broken {
    pub(super) place: Place,
    pub(super) problem: String,
}

impl BridgeManifest {
    /// Checks every rule. What passes here can be written as YAML and read again as the same value.
    ///
    /// # Errors
    /// [`ManifestError::Version`] or [`ManifestError::Invalid`] naming the first field that breaks a rule.
    pub fn validate(&self) -> Result<(), ManifestError> {
        self.check(|_| None)
    }

    /// [`BridgeManifest::validate`] with the help of somebody who knows where a field stands.
    pub(super) fn check(&self, locate: impl FnOnce(Place) -> Option<(u64, u64)>) -> Result<(), ManifestError> {
        if self.manifest_version != MANIFEST_VERSION {
            return Err(ManifestError::Version(self.manifest_version.into()));
        }
        self.check_fields().map_err(|broken| self.told(broken, locate))?;
        self.check_size()
    }

    fn check_fields(&self) -> Result<(), Broken> {
        let at = |field| Place { topic: None, field };
        if self.name.is_empty() {
            return Err(broken(at(Field::Name), "it is empty; give the deployment a name".to_owned()));
        }
        check_text(at(Field::Name), &self.name)?;
        check_limit(at(Field::ReplicationFactor), limits::REPLICATION_FACTOR, self.replication_factor)?;
        if self.topics.is_empty() {
            return Err(broken(at(Field::Topics), "there is none; declare at least one".to_owned()));
        }
        self.topics.iter().enumerate().try_for_each(|(at, topic)| check_topic(at, topic))?;
        check_names(&self.topics)
    }

    fn told(&self, broken: Broken, locate: impl FnOnce(Place) -> Option<(u64, u64)>) -> ManifestError {
        let Broken { place, problem } = broken;
        let (line, column) = locate(place).unzip();
        let name = place.field.name();
        let field = match place.topic.and_then(|at| self.topics.get(at).map(|topic| (at, topic))) {
            None => name.to_owned(),
            Some((at, _)) if place.field == Field::Name => format!("topic {}: name", at + 1),
            Some((_, topic)) => format!("topic {:?}: {name}", topic.name),
        };
        ManifestError::Invalid { field, problem, line, column }
    }

    /// A value that needs more text than may be read could be written once and never opened again.
    fn check_size(&self) -> Result<(), ManifestError> {
        let bytes = super::yaml::render(self)?.len() as u64;
        let told = |error| {
            let place = Place { topic: None, field: Field::Topics };
            self.told(broken(place, format!("written out in full, {error}; split the bridge")), |_| None)
        };
        limits::MANIFEST_BYTES.check(bytes).map(drop).map_err(told)
    }
}

fn broken(place: Place, problem: String) -> Broken {
    Broken { place, problem }
}

fn check_topic(at: usize, topic: &TopicSpec) -> Result<(), Broken> {
    let at = |field| Place { topic: Some(at), field };
    TopicName::parse(&topic.name).map_err(|error| broken(at(Field::Name), error.to_string()))?;
    check_limit(at(Field::Partitions), limits::PARTITIONS, topic.partitions)?;
    check_retention(&topic.retention, at)?;
    topic.schema_ref.as_deref().map_or(Ok(()), |path| check_schema_ref(at(Field::SchemaRef), path))
}

fn check_retention(retention: &RetentionSpec, at: impl Fn(Field) -> Place) -> Result<(), Broken> {
    check_limit(at(Field::HotHours), limits::HOT_HOURS, retention.hot_hours)?;
    if let Some(hours) = retention.dedup_hours.filter(|hours| *hours == 0 || *hours > retention.hot_hours) {
        let problem =
            format!("{hours} is outside 1 to hot_hours ({}); a uid is never remembered longer than its event", retention.hot_hours);
        return Err(broken(at(Field::DedupHours), problem));
    }
    retention.cold_uri.as_deref().map_or(Ok(()), |uri| check_cold_uri(at(Field::ColdUri), uri))
}

fn check_limit(place: Place, limit: Limit, value: u32) -> Result<(), Broken> {
    let outside = |_| broken(place, format!("{value} is outside {} to {}; choose a value in that range", limit.min, limit.max));
    limit.check(value.into()).map(drop).map_err(outside)
}

/// Anchors and aliases are refused before the text is parsed, so no value may look like one.
fn check_text(place: Place, text: &str) -> Result<(), Broken> {
    match text.chars().find(|c| matches!(c, '&' | '*')) {
        Some(mark) => Err(broken(place, format!("{text:?} contains `{mark}`, which a manifest keeps for nothing; leave it out"))),
        None => Ok(()),
    }
}

fn check_schema_ref(place: Place, path: &str) -> Result<(), Broken> {
    check_text(place, path)?;
    // `components` drops inner `.`, so the parts are looked at as written, too.
    let normal = !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
        && path.split('/').all(|part| part != ".");
    if !normal {
        return Err(broken(place, format!("{path:?} must be a relative path without `.` and `..`")));
    }
    Ok(())
}

fn check_cold_uri(place: Place, uri: &str) -> Result<(), Broken> {
    check_text(place, uri)?;
    if uri.is_empty() {
        return Err(broken(place, "it is empty; name a folder or leave it out".to_owned()));
    }
    if !uri.contains("://") && Path::new(uri).components().any(|part| part == Component::ParentDir) {
        return Err(broken(place, format!("{uri:?} must not contain `..`")));
    }
    Ok(())
}

/// Names must differ as names, as streams (`.` becomes `_`) and as subjects (`<topic>.p<N>`), whatever the partition counts are.
fn check_names(topics: &[TopicSpec]) -> Result<(), Broken> {
    let refused = |at: usize, problem: String| broken(Place { topic: Some(at), field: Field::Name }, problem);
    let (mut streams, mut names) = (BTreeMap::new(), BTreeMap::new());
    for (at, topic) in topics.iter().enumerate() {
        if let Some(other) = streams.insert(topic.name.replace('.', "_"), &topic.name) {
            let problem = if *other == topic.name {
                format!("{other:?} is declared twice; keep one")
            } else {
                format!("{other:?} and {:?} would be the same stream; rename one", topic.name)
            };
            return Err(refused(at, problem));
        }
        names.insert(topic.name.as_str(), at);
    }
    for (name, at) in &names {
        if let Some(base) = subject_base(name).filter(|base| names.contains_key(base)) {
            let problem = format!("{name:?} would be a subject of a partition of {base:?}; rename one");
            return Err(refused(*at, problem));
        }
    }
    Ok(())
}

/// `a` of `a.p12`.
fn subject_base(name: &str) -> Option<&str> {
    let (base, last) = name.rsplit_once('.')?;
    let number = last.strip_prefix('p')?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(base)
}
