//! What trusted composition makes once for a node: everything that all sessions share.

use std::sync::Arc;

use latent_core::Epoch;

use crate::completion::CompletionAccount;
use crate::plan::{BindingError, CompiledEventBindings, EventBinding, InstallRefused, PlanBook};
use crate::{AuditSink, Providers};

/// The capabilities of a node: the plan in force, the installed providers, the account of completion memory and audit.
///
/// A fresh one grants nothing. Install providers, [`compile_events`](Self::compile_events) explicit bindings to them, then
/// [`install_events`](Self::install_events). A guest that imports the publisher without a binding is linked, and each of its calls is
/// answered with *permission denied*.
pub struct ActivationCapabilityRuntime {
    plans: PlanBook,
    providers: Providers,
    completions: CompletionAccount,
    audit: Arc<dyn AuditSink>,
}

impl ActivationCapabilityRuntime {
    /// Capabilities without a provider and without a grant.
    pub fn new(completions: CompletionAccount, audit: Arc<dyn AuditSink>) -> Self {
        Self { plans: PlanBook::default(), providers: Providers::default(), completions, audit }
    }

    /// The installed providers.
    pub const fn providers(&self) -> &Providers {
        &self.providers
    }

    /// The account of completion memory.
    pub const fn completions(&self) -> &CompletionAccount {
        &self.completions
    }

    /// Epoch of the plan in force; 0 before any was installed.
    pub fn plan_epoch(&self) -> Epoch {
        self.plans.epoch()
    }

    /// Checks bindings against the installed providers. Changes nothing.
    ///
    /// # Errors
    /// [`BindingError`] naming what is missing or doubled.
    pub fn compile_events(&self, bindings: impl IntoIterator<Item = EventBinding>) -> Result<CompiledEventBindings, BindingError> {
        // The epoch first: a plan that is installed while this compiles makes it stale.
        let replaces = self.plans.epoch();
        CompiledEventBindings::compile(bindings, &self.providers, replaces)
    }

    /// Puts bindings in force, all of them and nothing else, if no other plan came into force since they were compiled; returns the
    /// new plan's epoch.
    ///
    /// Calls authorised by the old plan that no provider has started yet are asked again and stopped where the new one does not grant
    /// them; those that have started keep their outcome.
    ///
    /// # Errors
    /// [`InstallRefused`]; the plan in force stays.
    pub fn install_events(&self, bindings: CompiledEventBindings) -> Result<Epoch, InstallRefused> {
        self.plans.install(bindings, &self.providers)
    }

    pub(crate) const fn plans(&self) -> &PlanBook {
        &self.plans
    }

    pub(crate) const fn audit(&self) -> &Arc<dyn AuditSink> {
        &self.audit
    }
}
