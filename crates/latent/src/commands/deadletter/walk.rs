//! Reads dead-letter topics, topic by topic and partition by partition, each from its oldest letter to where it ended at the beginning:
//! what is parked meanwhile is not met, so that replaying what fails again comes to an end.

use std::collections::VecDeque;

use latent_core::{Place, TopicName};
use serde_json::json;

use crate::access::{Access, unexpected};
use crate::commands::bus::{Cursor, ask_about, partitions_of};
use crate::control::{Answer, Request};
use crate::error::CliError;
use crate::output::Output;

use super::Letter;

/// See the module.
pub(super) struct Walk {
    lines: VecDeque<Line>,
}

/// One partition that is still to be read.
struct Line {
    topic: TopicName,
    cursor: Cursor,
    end: u64,
}

/// Letters asked for at a time.
const PAGE: u64 = 128;

impl Walk {
    /// Over `topics`, which are sorted; without what lies before `from`.
    ///
    /// # Errors
    /// [`CliError::UnknownTopic`], and what the log says.
    pub(super) fn begin(access: &mut Access, topics: &[TopicName], from: Option<&Place>) -> Result<Self, CliError> {
        let (mut lines, mut is_there) = (VecDeque::new(), from.is_none());
        for topic in topics {
            for partition in partitions_of(access, topic.as_str(), None)? {
                let here = (topic, partition);
                is_there |= from.is_some_and(|from| here == (&from.topic, from.partition.0));
                let begin = match from.map(|from| ((&from.topic, from.partition.0), from.offset.0)) {
                    Some((place, _)) if here < place => continue,
                    Some((place, offset)) if here == place => offset,
                    _ => 0,
                };
                let doing = format!("looking for the end of {topic}/p{partition}");
                let request = Request::Bounds { topic: topic.as_str().to_owned(), partition };
                let Answer::Bounds(bounds) = ask_about(access, topic.as_str(), &doing, request)? else { return Err(unexpected(&doing)) };
                let cursor = Cursor { topic: topic.as_str().to_owned(), partition, offset: begin.max(bounds.first) };
                lines.push_back(Line { topic: topic.clone(), cursor, end: bounds.next });
            }
        }
        match from.filter(|_| !is_there) {
            Some(from) => {
                let reason = format!("{from} lies in no partition of the dead-letter topics that are read");
                Err(CliError::Value { option: "--from", reason })
            }
            None => Ok(Self { lines }),
        }
    }

    /// The dead letters of the next page, which may be none; `None` at the end. A damaged record is told and passed over.
    ///
    /// # Errors
    /// What the log says.
    pub(super) fn page(&mut self, access: &mut Access, output: &Output) -> Result<Option<Vec<Letter>>, CliError> {
        let Some(line) = self.lines.front_mut() else { return Ok(None) };
        let wanted = line.end.saturating_sub(line.cursor.offset).min(PAGE);
        let page = if wanted == 0 { Ok(Vec::new()) } else { line.cursor.page(access, wanted) };
        match page {
            Ok(page) if page.is_empty() => {
                self.lines.pop_front();
                Ok(Some(Vec::new()))
            }
            Ok(page) => Ok(Some(page.into_iter().filter_map(|event| Letter::of(&line.topic, event)).collect())),
            Err(CliError::Damaged { continue_at, fault, .. }) if continue_at > line.cursor.offset => {
                output.note(&json!({ "warning": { "error": fault } }), format_args!("warning: passed over: {}", fault.message));
                line.cursor.offset = continue_at;
                Ok(Some(Vec::new()))
            }
            Err(error) => Err(error),
        }
    }
}
