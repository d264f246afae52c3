//! What the connection tells beside its answers: subjects that the broker refuses, its inbox among them, and that the connection was lost. Said by the client's
//! events, heard by whoever waits for an answer that cannot come any more. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Event, ServerError};
use tokio::sync::{broadcast, watch};

use super::connect::INBOX_PREFIX;

/// Refusals that who waits may be behind with.
const REFUSALS_KEPT: usize = 256;
/// What ends with the client is noticed by several tasks in turn.
const SETTLING: Duration = Duration::from_millis(200);

/// See the module. Clones are of the same connection.
#[derive(Debug, Clone)]
pub(super) struct Signals {
    refusals: broadcast::Sender<Arc<str>>,
    losses: Arc<watch::Sender<u64>>,
    /// The inbox that the broker refuses: no answer is ever heard.
    refused_inbox: Arc<watch::Sender<Option<Arc<str>>>>,
}

impl Default for Signals {
    fn default() -> Self {
        Self { refusals: broadcast::channel(REFUSALS_KEPT).0, losses: Arc::default(), refused_inbox: Arc::default() }
    }
}

impl Signals {
    /// Takes an event of the connection; the subject, if it is a refusal to publish there.
    pub(super) fn hear<'e>(&self, event: &'e Event) -> Option<&'e str> {
        match event {
            Event::Disconnected => {
                self.lost();
                None
            }
            // It is subscribed to anew, and perhaps refused anew.
            Event::Connected => {
                self.refused_inbox.send_replace(None);
                None
            }
            Event::ServerError(ServerError::Other(words)) => {
                if let Some(inbox) = refused_subject("subscription", words).filter(|subject| subject.starts_with(INBOX_PREFIX)) {
                    self.refused_inbox.send_replace(Some(inbox.into()));
                    return None;
                }
                let subject = refused_subject("publish", words)?;
                // Nobody may be waiting.
                let _ = self.refusals.send(subject.into());
                Some(subject)
            }
            _ => None,
        }
    }

    /// The connection was lost: what was asked on it is answered no more.
    pub(super) fn lost(&self) {
        self.losses.send_modify(|losses| *losses = losses.wrapping_add(1));
    }

    /// Tells of losses from now on.
    pub(super) fn losses(&self) -> Losses {
        Losses(self.losses.subscribe())
    }

    /// Tells of refusals from now on.
    pub(super) fn refusals(&self) -> Refusals {
        Refusals { told: self.refusals.subscribe(), inbox: self.refused_inbox.subscribe() }
    }

    /// The inbox, where the broker refuses it.
    pub(super) fn refused_inbox(&self) -> Option<Arc<str>> {
        self.refused_inbox.borrow().clone()
    }
}

/// See [`Signals::losses`].
#[derive(Debug)]
pub(super) struct Losses(watch::Receiver<u64>);

impl Losses {
    /// After what only a client says whose task has ended: comes back when that is known to all, or after a moment.
    pub(super) async fn settled(&mut self) {
        let _ = tokio::time::timeout(SETTLING, self.next()).await;
    }

    /// Comes back when the connection was lost since this was made, or since it came back last.
    pub(super) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// See [`Signals::refusals`].
#[derive(Debug)]
pub(super) struct Refusals {
    told: broadcast::Receiver<Arc<str>>,
    inbox: watch::Receiver<Option<Arc<str>>>,
}

impl Refusals {
    /// Comes back when nothing will ever be heard of `subject`: it is refused, or the inbox is, which is given. Who was not told of all of
    /// them waits for its own time.
    pub(super) async fn of(&mut self, subject: &str) -> Option<Arc<str>> {
        let Self { told, inbox } = self;
        tokio::select! {
            () = is_told(told, subject) => None,
            inbox = is_deaf(inbox) => Some(inbox),
        }
    }
}

async fn is_deaf(inbox: &mut watch::Receiver<Option<Arc<str>>>) -> Arc<str> {
    loop {
        let refused = inbox.borrow_and_update().clone();
        match refused {
            Some(refused) => return refused,
            None if inbox.changed().await.is_err() => std::future::pending().await,
            None => {}
        }
    }
}

async fn is_told(refusals: &mut broadcast::Receiver<Arc<str>>, subject: &str) {
    loop {
        match refusals.recv().await {
            Ok(refused) if &*refused == subject => return,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The subject of `Permissions Violation for Publish to "subject"`, or `for Subscription to`.
fn refused_subject<'w>(action: &str, words: &'w str) -> Option<&'w str> {
    let refusal = format!("permissions violation for {action} to \"");
    let at = words.to_ascii_lowercase().find(&refusal)?;
    let subject = words.get(at + refusal.len()..)?;
    subject.split_once('"').map(|(subject, _)| subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_a_refused_permission_is_read_from_its_words() {
        assert_eq!(refused_subject("publish", "Permissions Violation for Publish to \"t.p0\""), Some("t.p0"));
        assert_eq!(refused_subject("publish", "'permissions violation for publish to \"t.p0\"'"), Some("t.p0"));
        let subscription = "Permissions Violation for Subscription to \"t.p0\"";
        assert_eq!(refused_subject("subscription", subscription), Some("t.p0"));
        for other in [subscription, "Permissions Violation for Publish to \"t.p0", "x", ""] {
            assert_eq!(refused_subject("publish", other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn a_refused_inbox_ends_every_wait_until_there_is_another_connection() {
        let signals = Signals::default();
        let violation =
            |subject: &str| Event::ServerError(ServerError::Other(format!("Permissions Violation for Subscription to \"{subject}\"")));
        signals.hear(&violation("elsewhere"));
        assert_eq!(signals.refused_inbox(), None);
        signals.hear(&violation("_INBOX.LSF.x.*"));
        assert_eq!(signals.refusals().of("any").await.as_deref(), Some("_INBOX.LSF.x.*"));
        signals.hear(&Event::Connected);
        assert_eq!(signals.refused_inbox(), None);
    }

    #[tokio::test]
    async fn a_loss_is_told_to_who_waited_before_it_and_to_nobody_after() {
        let signals = Signals::default();
        let mut before = signals.losses();
        assert_eq!(signals.hear(&Event::Disconnected), None);
        before.next().await;
        let mut after = signals.losses();
        tokio::select! {
            biased;
            () = after.next() => panic!("told of a loss of before"),
            () = std::future::ready(()) => {}
        }
    }
}
