//! Providers: what implements a capability, installed under a logical id with an epoch.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use latent_core::{Epoch, ProviderId, PublicationOutcome};

use crate::PublishRequest;

/// Names one installed configuration of a provider. A plan refers to exactly this one; a newer epoch is another provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderRef {
    /// The id operators know it by.
    pub logical_id: ProviderId,
    /// The set of rules it follows, such as `latent-topic-publish-v1`.
    pub profile: Arc<str>,
    /// Grows with each replacement.
    pub epoch: Epoch,
    /// Digest of its configuration, without secrets.
    pub digest: [u8; 32],
}

/// The future of one publication.
pub type PublishFuture = Pin<Box<dyn Future<Output = PublicationOutcome> + Send>>;

/// The capability behind `latent:events/publisher@0.2.0`.
///
/// One call is at most one publication and is never repeated by the provider. The provider calls
/// [`PublishRequest::authorise_now`] after its own queue and immediately before it acts, honours the request's deadline, and ends
/// in exactly one outcome. Dropping the future cancels local work only; it cannot take back what may be written.
pub trait EventPublisher: Send + Sync {
    /// Starts one publication.
    fn publish(&self, request: PublishRequest) -> PublishFuture;
}

/// An installation that expected another epoch than the one in force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("provider {logical_id} has epoch {current:?}, not {expected:?}; read it again and repeat the change")]
pub struct EpochConflict {
    /// The provider.
    pub logical_id: ProviderId,
    /// Epoch the caller expected, `None` for "not installed".
    pub expected: Option<Epoch>,
    /// Epoch in force.
    pub current: Option<Epoch>,
}

type Installed = BTreeMap<ProviderId, (ProviderRef, Arc<dyn EventPublisher>)>;

/// The installed event providers of a node.
#[derive(Default)]
pub struct Providers {
    installed: RwLock<Installed>,
}

impl Providers {
    /// Installs a provider if the epoch in force is `expected` (`None`: not installed yet) and the new epoch is above it.
    ///
    /// # Errors
    /// [`EpochConflict`]; what was installed stays in force.
    pub fn install(
        &self,
        reference: ProviderRef,
        expected: Option<Epoch>,
        publisher: Arc<dyn EventPublisher>,
    ) -> Result<(), EpochConflict> {
        let mut installed = self.installed.write().unwrap_or_else(PoisonError::into_inner);
        let current = installed.get(&reference.logical_id).map(|(current, _)| current.epoch);
        if current != expected || current.is_some_and(|current| reference.epoch <= current) {
            return Err(EpochConflict { logical_id: reference.logical_id, expected, current });
        }
        installed.insert(reference.logical_id.clone(), (reference, publisher));
        Ok(())
    }

    /// The provider a plan refers to, if exactly that one is still installed.
    pub fn resolve(&self, reference: &ProviderRef) -> Option<Arc<dyn EventPublisher>> {
        let installed = self.installed.read().unwrap_or_else(PoisonError::into_inner);
        installed.get(&reference.logical_id).filter(|(current, _)| current == reference).map(|(_, publisher)| Arc::clone(publisher))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Never;
    impl EventPublisher for Never {
        fn publish(&self, _request: PublishRequest) -> PublishFuture {
            Box::pin(std::future::pending())
        }
    }

    fn reference(epoch: u64) -> ProviderRef {
        ProviderRef { logical_id: ProviderId::parse("topics").unwrap(), profile: "p".into(), epoch: Epoch(epoch), digest: [0; 32] }
    }

    #[test]
    fn an_installation_needs_the_epoch_in_force_and_a_higher_one() {
        let providers = Providers::default();
        let install = |epoch, expected: Option<u64>| providers.install(reference(epoch), expected.map(Epoch), Arc::new(Never)).is_ok();
        assert!(!install(1, Some(1)));
        assert!(install(1, None));
        assert!(!install(2, None) && !install(1, Some(1)) && !install(3, Some(2)));
        assert!(install(2, Some(1)));
        assert!(providers.resolve(&reference(1)).is_none() && providers.resolve(&reference(2)).is_some());
    }
}
