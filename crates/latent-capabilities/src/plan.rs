//! The compiled plan: which capability of which service leads to which provider, and what is granted. Compiled whole, replaced
//! whole; whoever authorises looks at the plan that is current at that moment.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use latent_core::{KnownFailure, LogicalTopic, PublicationId, TenantId};

use crate::ProviderRef;

/// What a service may do with events: the granted topics, each with the provider that serves it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventBinding {
    /// Granted topic → provider.
    pub topics: BTreeMap<LogicalTopic, ProviderRef>,
}

/// All capabilities of one catalog publication for one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServicePlan {
    /// `latent:events/publisher@0.2.0`, if granted at all.
    pub events: Option<EventBinding>,
}

/// The plan of a node. Immutable; a change makes a new one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    services: BTreeMap<(PublicationId, TenantId), ServicePlan>,
}

impl Plan {
    /// This plan with the service in it; an earlier entry of the same service is replaced.
    pub fn with(mut self, publication: PublicationId, tenant: TenantId, service: ServicePlan) -> Self {
        self.services.insert((publication, tenant), service);
        self
    }

    /// The plan of one service.
    pub fn service(&self, publication: PublicationId, tenant: &TenantId) -> Option<&ServicePlan> {
        self.services.get(&(publication, tenant.clone()))
    }

    /// The provider for a publication to `topic`, if it is granted.
    ///
    /// # Errors
    /// [`KnownFailure::PermissionDenied`] when the service, the capability or the topic is not in the plan.
    pub fn authorise_publish(
        &self,
        publication: PublicationId,
        tenant: &TenantId,
        topic: &LogicalTopic,
    ) -> Result<&ProviderRef, KnownFailure> {
        let events = self.service(publication, tenant).and_then(|service| service.events.as_ref());
        events.and_then(|events| events.topics.get(topic)).ok_or(KnownFailure::PermissionDenied)
    }
}

/// A replacement that was based on a plan that is no longer current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the plan has generation {current}, not {expected}; read it again and repeat the change")]
pub struct PlanConflict {
    /// Generation the caller expected.
    pub expected: u64,
    /// Generation in force.
    pub current: u64,
}

/// Holds the plan in force.
#[derive(Debug, Default)]
pub struct PlanBook {
    current: RwLock<(u64, Arc<Plan>)>,
}

impl PlanBook {
    /// A book that starts with `plan`, as generation 1.
    pub fn new(plan: Plan) -> Self {
        Self { current: RwLock::new((1, Arc::new(plan))) }
    }

    /// The plan in force now.
    pub fn current(&self) -> Arc<Plan> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).1)
    }

    /// The generation in force now.
    pub fn generation(&self) -> u64 {
        self.current.read().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Puts `plan` in force if the generation is still `expected`; returns the new generation.
    ///
    /// # Errors
    /// [`PlanConflict`]; the plan in force stays.
    pub fn replace(&self, expected: u64, plan: Plan) -> Result<u64, PlanConflict> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.0 != expected {
            return Err(PlanConflict { expected, current: current.0 });
        }
        *current = (expected.saturating_add(1), Arc::new(plan));
        Ok(current.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_needs_the_generation_in_force() {
        let book = PlanBook::new(Plan::default());
        assert_eq!(book.replace(1, Plan::default()), Ok(2));
        assert_eq!(book.replace(1, Plan::default()), Err(PlanConflict { expected: 1, current: 2 }));
        assert_eq!(book.generation(), 2);
    }
}
