//! What the connection tells beside its answers: subjects that the broker refuses, and that the connection was lost. Said by the client's
//! events, heard by whoever waits for an answer that cannot come any more. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Event, ServerError};
use tokio::sync::{broadcast, watch};

/// Refusals that who waits may be behind with.
const REFUSALS_KEPT: usize = 256;
/// What ends with the client is noticed by several tasks in turn.
const SETTLING: Duration = Duration::from_millis(200);

/// See the module. Clones are of the same connection.
#[derive(Debug, Clone)]
pub(super) struct Signals {
    refusals: broadcast::Sender<Arc<str>>,
    losses: Arc<watch::Sender<u64>>,
}

impl Default for Signals {
    fn default() -> Self {
        Self { refusals: broadcast::channel(REFUSALS_KEPT).0, losses: Arc::new(watch::Sender::new(0)) }
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
            Event::ServerError(ServerError::Other(words)) => {
                let subject = refused_subject(words)?;
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
    pub(super) fn refusals(&self) -> broadcast::Receiver<Arc<str>> {
        self.refusals.subscribe()
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

/// Comes back when `subject` is refused. Who was not told of all of them waits for its own time.
pub(super) async fn refused(mut refusals: broadcast::Receiver<Arc<str>>, subject: &str) {
    loop {
        match refusals.recv().await {
            Ok(refused) if &*refused == subject => return,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The subject of `Permissions Violation for Publish to "subject"`.
fn refused_subject(words: &str) -> Option<&str> {
    const REFUSAL: &str = "permissions violation for publish to \"";
    let at = words.to_ascii_lowercase().find(REFUSAL)?;
    let subject = words.get(at + REFUSAL.len()..)?;
    subject.split_once('"').map(|(subject, _)| subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_a_refused_permission_is_read_from_its_words() {
        assert_eq!(refused_subject("Permissions Violation for Publish to \"t.p0\""), Some("t.p0"));
        assert_eq!(refused_subject("'permissions violation for publish to \"t.p0\"'"), Some("t.p0"));
        for other in ["Permissions Violation for Subscription to \"t.p0\"", "Permissions Violation for Publish to \"t.p0", "x", ""] {
            assert_eq!(refused_subject(other), None, "{other}");
        }
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
