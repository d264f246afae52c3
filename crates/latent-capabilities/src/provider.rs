//! Providers: what implements a capability, installed under a logical id with an epoch.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use latent_core::{ContractName, Epoch, ProviderId, PublicationOutcome};

use crate::PublishRequest;

/// The capability that event providers offer: interface and version, compared as a whole.
pub const EVENT_PUBLISHER: &str = "latent:events/publisher@0.2.0";

/// Names one installed configuration of a provider. A plan refers to exactly this one; a newer epoch is another provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderRef {
    /// The id operators know it by.
    pub logical_id: ProviderId,
    /// The interface it offers to guests, such as [`EVENT_PUBLISHER`].
    pub capability: ContractName,
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

    /// Another epoch was installed in its place: it gets nothing new and gives up what it keeps for later calls. What runs goes on.
    fn retire(&self) {}
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

/// A reference that is not what is installed under its id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderMismatch {
    /// Nothing is installed under that id.
    #[error("no provider {logical_id} is installed; install it first")]
    NotInstalled {
        /// The id asked for.
        logical_id: ProviderId,
    },
    /// Another interface is.
    #[error("provider {logical_id} offers {installed}, not {expected}")]
    Capability {
        /// The provider.
        logical_id: ProviderId,
        /// The interface asked for.
        expected: ContractName,
        /// The interface installed.
        installed: ContractName,
    },
    /// Another set of rules is.
    #[error("provider {logical_id} follows {installed}, not {expected}")]
    Profile {
        /// The provider.
        logical_id: ProviderId,
        /// The profile asked for.
        expected: Arc<str>,
        /// The profile installed.
        installed: Arc<str>,
    },
    /// An earlier or later configuration is.
    #[error("provider {logical_id} has epoch {}, not {}; bind the one in force", .installed.0, .expected.0)]
    Epoch {
        /// The provider.
        logical_id: ProviderId,
        /// The epoch asked for.
        expected: Epoch,
        /// The epoch installed.
        installed: Epoch,
    },
    /// The same epoch with another configuration is.
    #[error("provider {logical_id} has another configuration than the one that is bound, under the same epoch; bind the one in force")]
    Digest {
        /// The provider.
        logical_id: ProviderId,
    },
}

/// What is installed under an id and offers nothing to guests, such as the triggers of a broker.
pub trait Retire: Send + Sync {
    /// Another epoch was installed in its place: it begins nothing new. What runs goes on.
    fn retire(&self);
}

/// What an id stands for.
enum Provider {
    Publisher(Arc<dyn EventPublisher>),
    Other(Arc<dyn Retire>),
}

impl Provider {
    fn retire(&self) {
        match self {
            Self::Publisher(publisher) => publisher.retire(),
            Self::Other(other) => other.retire(),
        }
    }
}

type Installed = BTreeMap<ProviderId, (ProviderRef, Provider)>;

/// What is installed on a node under logical ids, epoch by epoch.
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
        self.install_any(reference, expected, Provider::Publisher(publisher))
    }

    /// The same for what offers nothing to guests. No plan can bind it.
    ///
    /// # Errors
    /// [`EpochConflict`]; what was installed stays in force.
    pub fn install_unbound(&self, reference: ProviderRef, expected: Option<Epoch>, other: Arc<dyn Retire>) -> Result<(), EpochConflict> {
        self.install_any(reference, expected, Provider::Other(other))
    }

    fn install_any(&self, reference: ProviderRef, expected: Option<Epoch>, provider: Provider) -> Result<(), EpochConflict> {
        let mut installed = self.installed.write().unwrap_or_else(PoisonError::into_inner);
        let current = installed.get(&reference.logical_id).map(|(current, _)| current.epoch);
        if current != expected || current.is_some_and(|current| reference.epoch <= current) {
            return Err(EpochConflict { logical_id: reference.logical_id, expected, current });
        }
        let replaced = installed.insert(reference.logical_id.clone(), (reference, provider));
        drop(installed);
        if let Some((_, replaced)) = replaced {
            replaced.retire();
        }
        Ok(())
    }

    /// Checks that exactly this provider is installed.
    ///
    /// # Errors
    /// [`ProviderMismatch`] naming the first part that is missing or different.
    pub fn verify(&self, reference: &ProviderRef) -> Result<(), ProviderMismatch> {
        let logical_id = reference.logical_id.clone();
        let installed = self.installed.read().unwrap_or_else(PoisonError::into_inner);
        let Some((found, _)) = installed.get(&logical_id) else { return Err(ProviderMismatch::NotInstalled { logical_id }) };
        let ProviderRef { capability, profile, epoch, digest, .. } = reference.clone();
        if found.capability != capability {
            return Err(ProviderMismatch::Capability { logical_id, expected: capability, installed: found.capability.clone() });
        }
        if found.profile != profile {
            return Err(ProviderMismatch::Profile { logical_id, expected: profile, installed: Arc::clone(&found.profile) });
        }
        if found.epoch != epoch {
            return Err(ProviderMismatch::Epoch { logical_id, expected: epoch, installed: found.epoch });
        }
        if found.digest != digest {
            return Err(ProviderMismatch::Digest { logical_id });
        }
        Ok(())
    }

    /// The provider a plan refers to, if exactly that one is still installed.
    pub fn resolve(&self, reference: &ProviderRef) -> Option<Arc<dyn EventPublisher>> {
        let installed = self.installed.read().unwrap_or_else(PoisonError::into_inner);
        let (_, found) = installed.get(&reference.logical_id).filter(|(current, _)| current == reference)?;
        if let Provider::Publisher(publisher) = found { Some(Arc::clone(publisher)) } else { None }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) struct Never;
    impl EventPublisher for Never {
        fn publish(&self, _request: PublishRequest) -> PublishFuture {
            Box::pin(std::future::pending())
        }
    }

    pub(crate) fn reference(epoch: u64) -> ProviderRef {
        ProviderRef {
            logical_id: ProviderId::parse("topics").unwrap(),
            capability: ContractName::parse(EVENT_PUBLISHER).unwrap(),
            profile: "p".into(),
            epoch: Epoch(epoch),
            digest: [0; 32],
        }
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

    #[test]
    fn what_offers_nothing_shares_ids_and_epochs_and_is_never_bound() {
        struct Counts(std::sync::atomic::AtomicU64);
        impl Retire for Counts {
            fn retire(&self) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let (providers, other) = (Providers::default(), Arc::new(Counts(0.into())));
        providers.install_unbound(reference(1), None, Arc::clone(&other) as _).unwrap();
        assert!(providers.resolve(&reference(1)).is_none());
        assert!(providers.install_unbound(reference(3), Some(Epoch(2)), Arc::clone(&other) as _).is_err());
        assert_eq!(other.0.load(std::sync::atomic::Ordering::SeqCst), 0);
        providers.install(reference(2), Some(Epoch(1)), Arc::new(Never)).unwrap();
        assert_eq!(other.0.load(std::sync::atomic::Ordering::SeqCst), 1);
    }

    #[test]
    fn a_reference_is_checked_part_by_part_and_the_part_is_named() {
        let providers = Providers::default();
        let logical_id = reference(1).logical_id;
        assert_eq!(providers.verify(&reference(1)), Err(ProviderMismatch::NotInstalled { logical_id: logical_id.clone() }));
        providers.install(reference(1), None, Arc::new(Never)).unwrap();
        assert_eq!(providers.verify(&reference(1)), Ok(()));
        let other = ContractName::parse("latent:events/publisher@0.1.0").unwrap();
        let installed = reference(1).capability;
        assert_eq!(
            providers.verify(&ProviderRef { capability: other.clone(), ..reference(1) }),
            Err(ProviderMismatch::Capability { logical_id: logical_id.clone(), expected: other, installed })
        );
        assert_eq!(
            providers.verify(&ProviderRef { profile: "q".into(), ..reference(1) }),
            Err(ProviderMismatch::Profile { logical_id: logical_id.clone(), expected: "q".into(), installed: "p".into() })
        );
        assert_eq!(
            providers.verify(&reference(2)),
            Err(ProviderMismatch::Epoch { logical_id: logical_id.clone(), expected: Epoch(2), installed: Epoch(1) })
        );
        assert_eq!(providers.verify(&ProviderRef { digest: [1; 32], ..reference(1) }), Err(ProviderMismatch::Digest { logical_id }));
    }
}
