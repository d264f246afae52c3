//! Every rule of a manifest, in one place (B-011, B-015 to B-021, D-04, D-20).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use latent_core::{Limit, TopicName};

use super::{BridgeManifest, MANIFEST_VERSION, ManifestError, RetentionSpec, TopicSpec};
use crate::limits;

impl BridgeManifest {
    /// Checks every rule. What passes here can be written as YAML and read again as the same value.
    ///
    /// # Errors
    /// [`ManifestError::Version`] or [`ManifestError::Invalid`] naming the first field that breaks a rule.
    pub fn validate(&self) -> Result<(), ManifestError> {
        if self.manifest_version != MANIFEST_VERSION {
            return Err(ManifestError::Version(self.manifest_version.into()));
        }
        if self.name.is_empty() {
            return Err(invalid("name", "it is empty; give the deployment a name".to_owned()));
        }
        check_text("name", &self.name)?;
        check_limit("replication_factor", limits::REPLICATION_FACTOR, self.replication_factor)?;
        if self.topics.is_empty() {
            return Err(invalid("topics", "there is none; declare at least one".to_owned()));
        }
        self.topics.iter().try_for_each(check_topic)?;
        check_names(&self.topics)?;
        self.check_size()
    }

    /// A value that needs more text than may be read could be written once and never opened again.
    fn check_size(&self) -> Result<(), ManifestError> {
        let bytes = super::yaml::render(self)?.len() as u64;
        limits::MANIFEST_BYTES.check(bytes).map_err(|error| invalid("topics", format!("written out in full, {error}")))?;
        Ok(())
    }
}

fn invalid(field: &str, problem: String) -> ManifestError {
    ManifestError::Invalid { field: field.to_owned(), problem }
}

fn check_topic(topic: &TopicSpec) -> Result<(), ManifestError> {
    TopicName::parse(&topic.name).map_err(|error| invalid("topics.name", error.to_string()))?;
    let field = |name: &str| format!("topic {:?}: {name}", topic.name);
    check_limit(&field("partitions"), limits::PARTITIONS, topic.partitions)?;
    check_retention(&topic.retention, field)?;
    topic.schema_ref.as_deref().map_or(Ok(()), |path| check_schema_ref(&field("schema_ref"), path))
}

fn check_retention(retention: &RetentionSpec, field: impl Fn(&str) -> String) -> Result<(), ManifestError> {
    check_limit(&field("retention.hot_hours"), limits::HOT_HOURS, retention.hot_hours)?;
    if let Some(hours) = retention.dedup_hours.filter(|hours| *hours == 0 || *hours > retention.hot_hours) {
        let problem =
            format!("{hours} is outside 1 to hot_hours ({}); a uid is never remembered longer than its event", retention.hot_hours);
        return Err(invalid(&field("retention.dedup_hours"), problem));
    }
    retention.cold_uri.as_deref().map_or(Ok(()), |uri| check_cold_uri(&field("retention.cold_uri"), uri))
}

fn check_limit(field: &str, limit: Limit, value: u32) -> Result<(), ManifestError> {
    limit.check(value.into()).map(drop).map_err(|error| invalid(field, error.to_string()))
}

/// Anchors and aliases are refused before the text is parsed, so no value may look like one.
fn check_text(field: &str, text: &str) -> Result<(), ManifestError> {
    match text.chars().find(|c| matches!(c, '&' | '*')) {
        Some(mark) => Err(invalid(field, format!("{text:?} contains `{mark}`, which a manifest keeps for nothing; leave it out"))),
        None => Ok(()),
    }
}

fn check_schema_ref(field: &str, path: &str) -> Result<(), ManifestError> {
    check_text(field, path)?;
    // `components` drops inner `.`, so the parts are looked at as written, too.
    let normal = !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
        && path.split('/').all(|part| part != ".");
    if !normal {
        return Err(invalid(field, format!("{path:?} must be a relative path without `.` and `..`")));
    }
    Ok(())
}

fn check_cold_uri(field: &str, uri: &str) -> Result<(), ManifestError> {
    check_text(field, uri)?;
    if uri.is_empty() {
        return Err(invalid(field, "it is empty; name a folder or leave it out".to_owned()));
    }
    if !uri.contains("://") && Path::new(uri).components().any(|part| part == Component::ParentDir) {
        return Err(invalid(field, format!("{uri:?} must not contain `..`")));
    }
    Ok(())
}

/// Names must differ as names, as streams (`.` becomes `_`) and as subjects (`<topic>.p<N>`), whatever the partition counts are.
fn check_names(topics: &[TopicSpec]) -> Result<(), ManifestError> {
    let mut streams = BTreeMap::new();
    for topic in topics {
        if let Some(other) = streams.insert(topic.name.replace('.', "_"), &topic.name) {
            let problem = if *other == topic.name {
                format!("{other:?} is declared twice; keep one")
            } else {
                format!("{other:?} and {:?} would be the same stream; rename one", topic.name)
            };
            return Err(invalid("topics.name", problem));
        }
    }
    let names: BTreeSet<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
    for name in &names {
        if let Some(base) = subject_base(name).filter(|base| names.contains(base)) {
            let problem = format!("{name:?} would be a subject of a partition of {base:?}; rename one");
            return Err(invalid("topics.name", problem));
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
