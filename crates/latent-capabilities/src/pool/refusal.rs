//! Why the pools say no. Every refusal comes before anything could have been sent.

use latent_core::{Epoch, KnownFailure, ProviderId};

/// A registration that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationRefused {
    /// A bound of the node's pools.
    #[error("provider {provider} needs {needed} {limit} and {left} are left; raise {limit} or remove a provider")]
    Limit {
        /// The provider.
        provider: ProviderId,
        /// The bound's name.
        limit: &'static str,
        /// What it asked for.
        needed: u64,
        /// What was left.
        left: u64,
    },
    /// An input of this size would never be taken.
    #[error(
        "provider {provider} allows {needed} bytes an event and {limit} is {bound}; raise {limit} or lower the provider's payload ceiling"
    )]
    Chunk {
        /// The provider.
        provider: ProviderId,
        /// The bound's name.
        limit: &'static str,
        /// What one call may need.
        needed: u64,
        /// The bound.
        bound: u64,
    },
    /// A registration of the same or a later epoch exists already.
    #[error("provider {provider} has clients of epoch {}, which is not below {}; install it with a higher epoch", .current.0, .epoch.0)]
    Epoch {
        /// The provider.
        provider: ProviderId,
        /// The epoch asked for.
        epoch: Epoch,
        /// The epoch in force.
        current: Epoch,
    },
}

/// A call that the pools refuse. Nothing was dialled for it and nothing of it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PoolRefusal {
    /// A bound of the pools is reached.
    #[error("{limit} is reached; try again later, or raise it")]
    Limit {
        /// The bound's name.
        limit: &'static str,
    },
    /// The last attempts to connect failed; the next one is not made before the backoff is over.
    #[error("the last attempts to connect failed; no further one is made for {millis} ms")]
    Backoff {
        /// What is left of the backoff.
        millis: u64,
    },
    /// The provider was replaced or removed.
    #[error("the provider was replaced")]
    Retired,
}

impl From<PoolRefusal> for KnownFailure {
    fn from(refusal: PoolRefusal) -> Self {
        Self::Unavailable { reason: refusal.to_string() }
    }
}
