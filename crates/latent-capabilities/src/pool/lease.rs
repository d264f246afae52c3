//! One call: while it waits, and while it holds a connection. Whichever way it goes, what it holds goes back.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use latent_core::MonoTime;

use super::machine::{Answer, CallIndex, ClientIndex, Grant};
use super::{PoolRefusal, ProviderPools};

/// A call that waits for a connection. Dropping it takes it out of the queue (P-057).
#[must_use = "a call that nobody waits for only takes a place"]
pub struct PendingCall<C> {
    place: Option<Place<C>>,
}

struct Place<C> {
    pools: ProviderPools<C>,
    client: ClientIndex,
    call: CallIndex,
}

impl<C> PendingCall<C> {
    pub(super) fn new(pools: ProviderPools<C>, client: ClientIndex, call: CallIndex) -> Self {
        Self { place: Some(Place { pools, client, call }) }
    }
}

impl<C> Future for PendingCall<C> {
    type Output = Result<Lease<C>, PoolRefusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(place) = &self.place else { return Poll::Ready(Err(PoolRefusal::Retired)) };
        let answer = place.pools.0.lock().collect(place.call, context.waker());
        match answer {
            Answer::Waiting => Poll::Pending,
            // The place stays, so that the drop gives it back.
            Answer::Refused(refusal) => Poll::Ready(Err(refusal)),
            Answer::Granted(grant) => {
                let connection = match grant {
                    Grant::Parked(connection) => Some(connection),
                    Grant::Dial => None,
                };
                let since = place.pools.0.clock.mono();
                Poll::Ready(Ok(Lease { connection, place: self.place.take(), since }))
            }
        }
    }
}

impl<C> Drop for PendingCall<C> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.pools.0.lock().leave(place.call, place.pools.0.clock.mono());
            place.pools.0.advance();
        }
    }
}

// A place is plain data; nothing of it is pinned.
impl<C> Unpin for PendingCall<C> {}

/// A running call: a place for one connection, charged for it, with or without the connection itself.
///
/// Dropping it drops the connection first and gives back the charges afterwards.
#[must_use = "dropping a lease closes its connection"]
pub struct Lease<C> {
    connection: Option<C>,
    /// `None` once the call has ended.
    place: Option<Place<C>>,
    /// Before any dial of it.
    since: MonoTime,
}

impl<C> Lease<C> {
    /// The connection; `None` when one is to be dialled.
    pub fn connection(&mut self) -> Option<&mut C> {
        self.connection.as_mut()
    }

    /// True when it has one: it was parked before, or the lease was filled.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Notes that a connection was made, and keeps it.
    pub fn fill(&mut self, connection: C) {
        self.connection = Some(connection);
        if let Some(place) = &self.place {
            place.pools.0.lock().dialled(place.client);
        }
    }

    /// Drops the connection and keeps the place, so that another one can be dialled.
    pub fn discard(&mut self) {
        self.connection = None;
    }

    /// Notes that no connection could be made: the client's backoff begins or grows, once for all dials that were under way together.
    /// `jitter` is any random number.
    pub fn dial_failed(&self, jitter: u16) {
        if let Some(place) = &self.place {
            let shared = &place.pools.0;
            shared.lock().dial_failed(place.client, self.since, shared.clock.mono(), jitter);
        }
    }

    /// Ends the call and leaves its connection for the next one of the same client.
    pub fn park(mut self) {
        // Without a connection the drop ends the call.
        let Some(connection) = self.connection.take() else { return };
        let Some(place) = self.place.take() else { return };
        let shared = &place.pools.0;
        shared.lock().park(place.call, connection, shared.clock.mono());
        shared.advance();
    }
}

impl<C> Drop for Lease<C> {
    fn drop(&mut self) {
        self.connection = None;
        if let Some(place) = self.place.take() {
            place.pools.0.lock().end(place.call);
            place.pools.0.advance();
        }
    }
}
