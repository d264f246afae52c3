//! The compiled plan: which topics a service may publish to, and through which installed provider. Compiled whole from explicit
//! bindings, replaced whole; whoever authorises looks at the plan that is in force at that moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use latent_core::{Epoch, KnownFailure, LimitError, LogicalTopic, PublicationId, TenantId};

use crate::limits;
use crate::provider::{EVENT_PUBLISHER, ProviderMismatch, ProviderRef, Providers};

/// One explicit binding: the provider that serves `latent:events/publisher@0.2.0` for one catalog publication and tenant, and the
/// topics granted through it. A service has as many as it has providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBinding {
    /// The catalog publication.
    pub publication: PublicationId,
    /// The tenant it runs for.
    pub tenant: TenantId,
    /// The provider, named exactly.
    pub provider: ProviderRef,
    /// The topics granted.
    pub topics: BTreeSet<LogicalTopic>,
}

/// Why bindings make no plan. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindingError {
    /// A binding grants nothing.
    #[error("the binding of publication {} for tenant {tenant} to provider {} names no topic; name at least one or leave it out", .publication.0, .provider.logical_id)]
    NoTopics {
        /// The catalog publication.
        publication: PublicationId,
        /// The tenant.
        tenant: TenantId,
        /// The provider.
        provider: Box<ProviderRef>,
    },
    /// Two bindings of one service serve the same topic.
    #[error("topic {topic} of publication {} for tenant {tenant} is bound twice; choose one provider for it", .publication.0)]
    AmbiguousTopic {
        /// The catalog publication.
        publication: PublicationId,
        /// The tenant.
        tenant: TenantId,
        /// The topic.
        topic: LogicalTopic,
    },
    /// The provider named offers another interface than the one that is bound.
    #[error("provider {} offers {}, which is not {EVENT_PUBLISHER}; bind a provider of that interface and version", .0.logical_id, .0.capability)]
    OtherCapability(Box<ProviderRef>),
    /// The provider named is not the one installed.
    #[error(transparent)]
    Provider(#[from] ProviderMismatch),
    /// More topics are granted than a plan holds.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

/// Granted topic → provider.
type Grants = BTreeMap<LogicalTopic, ProviderRef>;

/// The plan of a node. Immutable; a change makes a new one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    services: BTreeMap<(PublicationId, TenantId), Grants>,
}

impl Plan {
    fn compile(bindings: impl IntoIterator<Item = EventBinding>, providers: &Providers) -> Result<Self, BindingError> {
        let mut plan = Self::default();
        let mut grants_count = 0_u64;
        for binding in bindings {
            grants_count = grants_count.saturating_add(binding.topics.len() as u64);
            limits::EVENT_GRANTS.check(grants_count)?;
            plan.add(binding, providers)?;
        }
        Ok(plan)
    }

    fn add(&mut self, binding: EventBinding, providers: &Providers) -> Result<(), BindingError> {
        let EventBinding { publication, tenant, provider, topics } = binding;
        if topics.is_empty() {
            return Err(BindingError::NoTopics { publication, tenant, provider: Box::new(provider) });
        }
        if provider.capability.as_str() != EVENT_PUBLISHER {
            return Err(BindingError::OtherCapability(Box::new(provider)));
        }
        providers.verify(&provider)?;
        let grants = self.services.entry((publication, tenant.clone())).or_default();
        for topic in topics {
            if grants.contains_key(&topic) {
                return Err(BindingError::AmbiguousTopic { publication, tenant, topic });
            }
            grants.insert(topic, provider.clone());
        }
        Ok(())
    }

    /// The provider for a publication to `topic`, if it is granted.
    ///
    /// # Errors
    /// [`KnownFailure::PermissionDenied`] when the service or the topic is not in the plan.
    pub(crate) fn authorise_publish(
        &self,
        publication: PublicationId,
        tenant: &TenantId,
        topic: &LogicalTopic,
    ) -> Result<&ProviderRef, KnownFailure> {
        let grants = self.services.get(&(publication, tenant.clone()));
        grants.and_then(|grants| grants.get(topic)).ok_or(KnownFailure::PermissionDenied)
    }

    /// The granted topic of this name.
    pub(crate) fn topic_named(&self, publication: PublicationId, tenant: &TenantId, name: &str) -> Option<&LogicalTopic> {
        let grants = self.services.get(&(publication, tenant.clone()))?;
        grants.get_key_value(name).map(|(topic, _)| topic)
    }

    fn providers(&self) -> BTreeSet<&ProviderRef> {
        self.services.values().flat_map(BTreeMap::values).collect()
    }
}

/// Bindings that were checked against the installed providers, and the epoch of the plan that they are to replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledEventBindings {
    plan: Plan,
    replaces: Epoch,
}

impl CompiledEventBindings {
    pub(crate) fn compile(
        bindings: impl IntoIterator<Item = EventBinding>,
        providers: &Providers,
        replaces: Epoch,
    ) -> Result<Self, BindingError> {
        Ok(Self { plan: Plan::compile(bindings, providers)?, replaces })
    }

    /// Epoch of the plan that was in force when they were compiled.
    pub const fn replaces(&self) -> Epoch {
        self.replaces
    }

    /// Topics granted, over all services.
    pub fn grants_count(&self) -> usize {
        self.plan.services.values().map(BTreeMap::len).sum()
    }
}

/// Why compiled bindings were not put in force. The plan in force stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstallRefused {
    /// The plan was replaced after they were compiled.
    #[error("the plan has epoch {}, and these bindings replace epoch {}; compile them again", .current.0, .expected.0)]
    PlanReplaced {
        /// Epoch they replace.
        expected: Epoch,
        /// Epoch in force.
        current: Epoch,
    },
    /// A provider was replaced after they were compiled.
    #[error(transparent)]
    Provider(#[from] ProviderMismatch),
}

/// Holds the plan in force. The first one is empty and has epoch 0.
#[derive(Debug, Default)]
pub(crate) struct PlanBook {
    current: RwLock<(Epoch, Arc<Plan>)>,
}

impl PlanBook {
    /// The plan in force now.
    pub(crate) fn current(&self) -> Arc<Plan> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).1)
    }

    /// The epoch of the plan in force now.
    pub(crate) fn epoch(&self) -> Epoch {
        self.current.read().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Puts bindings in force if the plan they replace is still the current one; returns the new epoch.
    pub(crate) fn install(&self, bindings: CompiledEventBindings, providers: &Providers) -> Result<Epoch, InstallRefused> {
        let CompiledEventBindings { plan, replaces } = bindings;
        plan.providers().into_iter().try_for_each(|provider| providers.verify(provider))?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.0 != replaces {
            return Err(InstallRefused::PlanReplaced { expected: replaces, current: current.0 });
        }
        *current = (Epoch(replaces.0.saturating_add(1)), Arc::new(plan));
        Ok(current.0)
    }
}

#[cfg(test)]
mod tests;
