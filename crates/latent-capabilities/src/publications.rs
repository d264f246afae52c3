//! What became of an activation's publications, for its report and its journal entry: where a record lies, and above all what was not
//! stored as the function meant it.
//!
//! ```text
//! admitted ─ open ─▶ entry ─ end(outcome) ─▶ noted
//!                      └────── dropped ────▶ noted: uncertain if its provider had been given the event, else cancelled
//! ```
//! Invariants:
//! - Each admitted attempt is noted exactly once, whichever way it goes. What was refused before admission is no attempt.
//! - At most `publications_noted` are kept, the others are counted; what needs attention is not left out for what does not.

use std::sync::Arc;

use latent_core::{KnownFailure, LogicalTopic, PublicationOutcome, Uid, Uncertain, UncertainCause};

use crate::limits;
use crate::session::{AttemptState, Session};

/// One attempt to publish, with its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The topic, as the function named it.
    pub topic: LogicalTopic,
    /// The uid it was published under; `None` when it ended before its provider gave it one.
    pub uid: Option<Uid>,
    /// How it ended.
    pub end: PublicationEnd,
}

/// How one attempt ended, as far as the node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicationEnd {
    /// The log has it and said where.
    Stored {
        /// The stream; on the embedded engine the topic.
        stream: Arc<str>,
        /// Sequence in the stream; on the embedded engine the offset in the partition.
        sequence: u64,
        /// The log had it already.
        duplicate: bool,
    },
    /// The uid belongs to an event with other content: this one was not stored.
    Conflict,
    /// It was not stored for another reason.
    Failed {
        /// Why, from the closed list of known failures.
        reason: &'static str,
    },
    /// It may be stored.
    Uncertain {
        /// What hid the answer.
        cause: &'static str,
    },
}

impl Publication {
    /// The name used in journal and status: `receipt`, `duplicate`, a known failure, or `uncertain`.
    pub const fn kind(&self) -> &'static str {
        match self.end {
            PublicationEnd::Stored { duplicate: false, .. } => "receipt",
            PublicationEnd::Stored { duplicate: true, .. } => "duplicate",
            PublicationEnd::Conflict => KnownFailure::Conflict.kind(),
            PublicationEnd::Failed { reason } => reason,
            PublicationEnd::Uncertain { .. } => "uncertain",
        }
    }

    /// True for what an operator should see although the function may pass over it: another content under the same uid, or an event of
    /// which nobody knows whether it is stored.
    pub const fn needs_attention(&self) -> bool {
        match self.end {
            PublicationEnd::Conflict | PublicationEnd::Uncertain { .. } => true,
            PublicationEnd::Stored { .. } | PublicationEnd::Failed { .. } => false,
        }
    }

    /// Memory it holds, for the accounts of whoever keeps it.
    pub fn bytes(&self) -> u64 {
        let uid = self.uid.as_ref().map_or(0, |uid| uid.as_str().len());
        let stream = match &self.end {
            PublicationEnd::Stored { stream, .. } => stream.len(),
            PublicationEnd::Conflict | PublicationEnd::Failed { .. } | PublicationEnd::Uncertain { .. } => 0,
        };
        limits::PUBLICATION_NOTE_BYTES.default.saturating_add((self.topic.as_str().len() + uid + stream) as u64)
    }
}

impl PublicationEnd {
    fn of(outcome: &PublicationOutcome) -> Self {
        match outcome {
            PublicationOutcome::Receipt(receipt) => {
                Self::Stored { stream: Arc::clone(&receipt.stream), sequence: receipt.sequence, duplicate: receipt.duplicate }
            }
            PublicationOutcome::KnownFailure(KnownFailure::Conflict) => Self::Conflict,
            PublicationOutcome::KnownFailure(failure) => Self::Failed { reason: failure.kind() },
            PublicationOutcome::Uncertain(uncertain) => Self::Uncertain { cause: uncertain.cause.kind() },
        }
    }

    /// Of an attempt that nobody waited for.
    const fn abandoned(started: bool) -> Self {
        if started {
            Self::Uncertain { cause: UncertainCause::Cancelled.kind() }
        } else {
            Self::Failed { reason: KnownFailure::Cancelled.kind() }
        }
    }
}

/// The publications of one activation in the order in which they ended, bounded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Publications {
    kept: Vec<Publication>,
    left_out: u64,
}

impl Publications {
    /// Of an activation that attempted none.
    pub const NONE: Self = Self { kept: Vec::new(), left_out: 0 };

    /// Those that are kept, at most `publications_noted`.
    pub fn iter(&self) -> std::slice::Iter<'_, Publication> {
        self.kept.iter()
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// True when none was attempted.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.left_out == 0
    }

    /// How many more there were.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Memory that the kept ones hold.
    pub fn bytes(&self) -> u64 {
        self.kept.iter().fold(0, |sum, publication| sum.saturating_add(publication.bytes()))
    }

    /// Adds one. Of too many, the last one that needs no attention makes room for one that does.
    pub fn note(&mut self, publication: Publication) {
        if self.kept.len() >= limits::PUBLICATIONS_NOTED.default_usize() {
            self.left_out = self.left_out.saturating_add(1);
            let displaced = self.kept.iter().rposition(|kept| !kept.needs_attention()).filter(|_| publication.needs_attention());
            let Some(displaced) = displaced else { return };
            self.kept.remove(displaced);
        }
        self.kept.push(publication);
    }

    /// Adds those of another stage of the same activation.
    pub fn append(&mut self, later: Self) {
        self.left_out = self.left_out.saturating_add(later.left_out);
        later.kept.into_iter().for_each(|publication| self.note(publication));
    }

    /// Forgets what is kept, and counts it as left out.
    pub fn drop_kept(&mut self) {
        self.left_out = self.left_out.saturating_add(self.kept.len() as u64);
        self.kept = Vec::new();
    }
}

impl<'a> IntoIterator for &'a Publications {
    type Item = &'a Publication;
    type IntoIter = std::slice::Iter<'a, Publication>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<Publication> for Publications {
    fn from_iter<I: IntoIterator<Item = Publication>>(publications: I) -> Self {
        publications.into_iter().fold(Self::NONE, |mut noted, publication| {
            noted.note(publication);
            noted
        })
    }
}

/// One admitted attempt while it is being made.
pub(crate) struct PublicationEntry {
    session: Session,
    attempt: Arc<AttemptState>,
    topic: Option<LogicalTopic>,
}

impl PublicationEntry {
    pub(crate) const fn open(session: Session, attempt: Arc<AttemptState>, topic: LogicalTopic) -> Self {
        Self { session, attempt, topic: Some(topic) }
    }

    /// Ends it as its provider said.
    pub(crate) fn end(mut self, outcome: &PublicationOutcome) {
        if let PublicationOutcome::Uncertain(Uncertain { uid: Some(uid), .. }) = outcome {
            // A provider that did not say it before says it now; the first one counts.
            let _ = self.attempt.uid.set(uid.clone());
        }
        self.note(PublicationEnd::of(outcome));
    }

    fn note(&mut self, end: PublicationEnd) {
        let Some(topic) = self.topic.take() else { return };
        self.session.note(Publication { topic, uid: self.attempt.uid.get().cloned(), end });
    }
}

impl Drop for PublicationEntry {
    fn drop(&mut self) {
        // The same gate that decides what audit says, so that the two cannot disagree.
        if self.topic.is_some() {
            self.note(PublicationEnd::abandoned(self.attempt.gate.shut()));
        }
    }
}

#[cfg(test)]
mod tests {
    use latent_core::{Receipt, UnixMillis};

    use super::*;

    fn publication(end: PublicationEnd) -> Publication {
        Publication { topic: LogicalTopic::parse("out").unwrap(), uid: None, end }
    }

    fn stored(sequence: u64) -> Publication {
        publication(PublicationEnd::Stored { stream: "out".into(), sequence, duplicate: false })
    }

    fn most() -> usize {
        limits::PUBLICATIONS_NOTED.default_usize()
    }

    #[test]
    fn publications_are_kept_up_to_their_bound_and_counted_beyond() {
        for (count, kept, left_out) in [(most() - 1, most() - 1, 0), (most(), most(), 0), (most() + 1, most(), 1)] {
            let noted: Publications = (0..count as u64).map(stored).collect();
            assert_eq!((noted.len(), noted.left_out(), noted.iter().next()), (kept, left_out, Some(&stored(0))), "{count}");
        }
    }

    #[test]
    fn what_needs_attention_displaces_what_does_not_and_never_its_like() {
        let mut noted: Publications = (0..most() as u64).map(stored).collect();
        noted.note(publication(PublicationEnd::Conflict));
        assert_eq!((noted.len(), noted.left_out()), (most(), 1));
        assert_eq!(noted.iter().last(), Some(&publication(PublicationEnd::Conflict)));
        for _ in 0..2 * most() {
            noted.note(publication(PublicationEnd::Uncertain { cause: "closed" }));
        }
        noted.note(stored(0));
        assert_eq!((noted.len(), noted.left_out()), (most(), 2 * most() as u64 + 2));
        assert!(noted.iter().all(Publication::needs_attention));
        assert_eq!(noted.iter().filter(|kept| kept.end == PublicationEnd::Conflict).count(), 1);
    }

    #[test]
    fn two_stages_of_an_activation_are_bounded_together() {
        let mut noted: Publications = (0..most() as u64 + 3).map(stored).collect();
        noted.append((0..5).map(stored).collect());
        assert_eq!((noted.len(), noted.left_out()), (most(), 8));
        noted.drop_kept();
        assert_eq!((noted.len(), noted.left_out(), noted.is_empty()), (0, most() as u64 + 8, false));
    }

    #[test]
    fn each_outcome_has_its_name() {
        let receipt =
            |duplicate| PublicationOutcome::Receipt(Receipt { stream: "out".into(), sequence: 7, duplicate, accepted_at: UnixMillis(0) });
        let uncertain = PublicationOutcome::Uncertain(Uncertain { uid: None, cause: UncertainCause::Storage });
        let table = [
            (receipt(false), "receipt", false),
            (receipt(true), "duplicate", false),
            (PublicationOutcome::KnownFailure(KnownFailure::Conflict), "conflict", true),
            (PublicationOutcome::KnownFailure(KnownFailure::PermissionDenied), "permission-denied", false),
            (uncertain, "uncertain", true),
        ];
        for (outcome, kind, needs_attention) in table {
            let publication = publication(PublicationEnd::of(&outcome));
            assert_eq!((publication.kind(), publication.needs_attention()), (kind, needs_attention));
        }
    }

    #[test]
    fn the_largest_publication_fits_what_is_accounted_for_it() {
        // With the two counts that stand before what is shared.
        assert!((size_of::<Publication>() + 2 * size_of::<usize>()) as u64 <= limits::PUBLICATION_NOTE_BYTES.default);
        let largest = Publication {
            topic: LogicalTopic::parse(&"t".repeat(128)).unwrap(),
            uid: Some(Uid::parse(&"u".repeat(256)).unwrap()),
            end: PublicationEnd::Stored {
                stream: "s".repeat(limits::RECEIPT_STREAM_BYTES.max_usize()).into(),
                sequence: u64::MAX,
                duplicate: true,
            },
        };
        assert!(largest.bytes() <= limits::publication_note_bytes_max(), "{}", largest.bytes());
    }
}
