//! The line about publications that a function may pass over and its operator must not: another content under a derived key, which is
//! not stored, and ends of which nobody knows. One line for each activation, however many there are.

use latent_capabilities::{Publication, PublicationEnd, Publications};
use latent_core::Uid;

use super::Work;

/// Writes the line, if there is something to say.
pub(super) fn warn(work: &Work, publications: &Publications) {
    let Some(first) = first(publications) else { return };
    let Publication { topic, uid, .. } = first;
    let (activation, service, kind) = (work.activation, work.target.service.as_str(), first.kind());
    // A direct call has an origin for its keys, and no binding.
    let binding = work.delivery.as_ref().and(work.origin.as_ref()).map(|origin| origin.binding.as_str());
    let uid = uid.as_ref().map(Uid::as_str);
    let (conflicts, uncertain) = (conflicts(publications), uncertain(publications));
    tracing::warn!(%activation, binding, service, %topic, uid, kind, conflicts, uncertain, "{}", sentence(first));
}

/// What to name: a conflict rather than an uncertain end, which may still turn out well.
fn first(publications: &Publications) -> Option<&Publication> {
    let conflict = publications.iter().find(|publication| publication.end == PublicationEnd::Conflict);
    conflict.or_else(|| publications.iter().find(|publication| publication.needs_attention()))
}

fn conflicts(publications: &Publications) -> usize {
    publications.iter().filter(|publication| publication.end == PublicationEnd::Conflict).count()
}

fn uncertain(publications: &Publications) -> usize {
    publications.iter().filter(|publication| matches!(publication.end, PublicationEnd::Uncertain { .. })).count()
}

fn sentence(first: &Publication) -> &'static str {
    if first.end == PublicationEnd::Conflict {
        "publication not stored: its uid belongs to an event with other content"
    } else {
        "publication uncertain: it may be stored"
    }
}

#[cfg(test)]
mod tests {
    use latent_core::LogicalTopic;

    use super::*;

    fn publications<const N: usize>(ends: [PublicationEnd; N]) -> Publications {
        ends.into_iter().map(|end| Publication { topic: LogicalTopic::parse("out").unwrap(), uid: None, end }).collect()
    }

    #[test]
    fn a_conflict_is_named_before_an_uncertain_end_and_nothing_else_is() {
        let stored = || PublicationEnd::Stored { stream: "out".into(), sequence: 0, duplicate: true };
        let (failed, uncertain) = (PublicationEnd::Failed { reason: "unavailable" }, || PublicationEnd::Uncertain { cause: "closed" });
        let kind = |publications: &Publications| first(publications).map(Publication::kind);
        assert_eq!(kind(&publications([stored(), failed.clone()])), None);
        assert_eq!(kind(&publications([stored(), failed, uncertain()])), Some("uncertain"));
        let all = publications([uncertain(), PublicationEnd::Conflict, stored(), PublicationEnd::Conflict]);
        assert_eq!((kind(&all), conflicts(&all), super::uncertain(&all)), (Some("conflict"), 2, 1));
    }
}
