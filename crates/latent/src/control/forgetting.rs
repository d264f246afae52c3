//! The words about triggers that are not configured any more and whose state is kept.

use serde::{Deserialize, Serialize};

use super::protocol::Fault;
use crate::limits;

/// A trigger that the node does not have and remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemovedTrigger {
    /// Its id.
    pub(crate) id: String,
    /// The topic it read.
    pub(crate) topic: String,
}

/// What was forgotten: also the document that `latent trigger forget --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Forgotten {
    /// The trigger.
    pub(crate) id: String,
    /// The topic it read.
    pub(crate) topic: String,
    /// Partitions of which something was remembered.
    pub(crate) partitions: u64,
}

/// Why a trigger is not forgotten. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForgetRefused {
    /// Nothing is remembered of a trigger of this id.
    #[error("nothing is remembered of a trigger {id:?}")]
    Unknown {
        /// The id.
        id: String,
    },
    /// The trigger is in force.
    #[error("trigger {id} is configured; {next}")]
    Configured {
        /// The id.
        id: String,
        /// What to do first.
        next: &'static str,
    },
    /// Triggers are being changed at this moment.
    #[error("a reload or another forgetting is under way; wait for its end")]
    Busy,
}

impl ForgetRefused {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown-trigger",
            Self::Configured { .. } => "trigger-configured",
            Self::Busy => "busy",
        }
    }
}

impl From<ForgetRefused> for Fault {
    fn from(refused: ForgetRefused) -> Self {
        let permanent = !matches!(refused, ForgetRefused::Busy);
        Self { permanent, ..Self::refused(refused.kind(), refused.to_string()) }
    }
}

impl Fault {
    /// True when nothing is remembered of the trigger.
    pub(crate) fn is_unknown_trigger(&self) -> bool {
        self.kind == ForgetRefused::Unknown { id: String::new() }.kind()
    }
}

/// A page in the order of ids, and whether there are more.
pub(super) fn page_of_removed(mut triggers: Vec<RemovedTrigger>, after: Option<&str>) -> (Vec<RemovedTrigger>, bool) {
    triggers.sort_by(|one, other| one.id.cmp(&other.id));
    triggers.retain(|trigger| after.is_none_or(|after| *trigger.id > *after));
    let page = limits::STATUS_PAGE.max_usize();
    let more = triggers.len() > page;
    triggers.truncate(page);
    (triggers, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_in_the_order_of_ids_and_end_with_the_last() {
        let all: Vec<_> = (0..1_025).rev().map(|n| RemovedTrigger { id: format!("t{n:04}"), topic: "in".to_owned() }).collect();
        let (mut seen, mut after) = (Vec::new(), None::<String>);
        for more in [true, true, false] {
            let (page, told) = page_of_removed(all.clone(), after.as_deref());
            assert_eq!(told, more);
            after = page.last().map(|trigger| trigger.id.clone());
            seen.extend(page);
        }
        assert_eq!(seen, all.into_iter().rev().collect::<Vec<_>>());
    }
}
