//! Where a restoration goes, as far as manifests say it: what may not go there, and what happens to what does. Nothing is published from here.

use latent_bridge::cold::{ColdStore, is_same_place};
use serde_json::json;

use crate::commands::bus::LocationArgs;
use crate::control::Fault;
use crate::error::CliError;
use crate::output::Output;

/// A restoration before it begins.
pub(super) struct Destination<'d> {
    pub(super) location: &'d LocationArgs,
    /// As it was named.
    pub(super) archive: &'d str,
    pub(super) store: &'d dyn ColdStore,
    /// The topic of the archive, where one was named.
    pub(super) topic: Option<&'d str>,
    /// The topic that it goes to, where that is another one.
    pub(super) into: Option<&'d str>,
}

impl Destination<'_> {
    /// Refuses topics that nothing may be restored into, all of it before the archive is read, and warns of those that are archived again.
    pub(super) fn check(&self, output: &Output) -> Result<(), CliError> {
        let mut archived = Vec::new();
        for topic in self.location.manifests()?.into_iter().flat_map(|manifest| manifest.topics) {
            let Some(uri) = topic.retention.cold_uri else { continue };
            if !self.goes_to(&topic.name)? {
                continue;
            }
            if is_same_place(&uri, self.archive) && self.comes_from(&topic.name)? {
                return Err(self.own_archive(&topic.name));
            }
            self.location.refuse_archived(&topic.name)?;
            // What is in force and what a manifest says are the same, as a rule.
            let one = (topic.name, uri);
            if !archived.contains(&one) {
                archived.push(one);
            }
        }
        for (topic, uri) in archived {
            let text = format!(
                "topic {topic:?} is itself archived, at {uri}: what is restored into it is archived there again, with the same uids under new offsets"
            );
            output.note(&json!({ "warning": { "topic": topic, "cold_uri": uri, "message": text } }), format_args!("warning: {text}"));
        }
        Ok(())
    }

    fn goes_to(&self, topic: &str) -> Result<bool, CliError> {
        match self.into.or(self.topic) {
            Some(wanted) => Ok(wanted == topic),
            None => has_topic(self.store, self.archive, topic),
        }
    }

    fn comes_from(&self, topic: &str) -> Result<bool, CliError> {
        Ok(self.topic.is_none_or(|wanted| wanted == topic) && has_topic(self.store, self.archive, topic)?)
    }

    /// A topic that is archived where it comes from would give its new events the names of those that are there.
    fn own_archive(&self, topic: &str) -> CliError {
        let reason = format!(
            "topic {topic:?} is itself archived at {}, where its new events would have the names of those that are there: restore into another \
             topic with --into, or give this one another cold_uri first",
            self.archive
        );
        CliError::Value { option: "--archive", reason }
    }
}

/// Whether an archive has anything of a topic.
pub(super) fn has_topic(store: &dyn ColdStore, uri: &str, topic: &str) -> Result<bool, CliError> {
    let listed = store.list_after(&format!("{topic}/"), "", 1).map_err(|error| CliError::Log {
        doing: format!("looking into the archive {uri}"),
        fault: Fault::passing(super::Task::Restoring.kind(), error.to_string()),
    })?;
    Ok(!listed.is_empty())
}
