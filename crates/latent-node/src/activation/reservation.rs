//! A reservation: a pinned route, a slot and input memory, held for an event that may or may not come.

use std::fmt;
use std::sync::Arc;

use latent_core::{ActivationId, ComponentDigest, RouteGeneration};

use super::LocalActivationManager;
use crate::admission::{Reserved, Slot};
use crate::{InboundTarget, Pin, StartRefused};

/// The right to one activation. [`LocalActivationManager::activate`] uses it up; dropping it returns all it holds.
#[must_use = "a reservation that is dropped is returned"]
pub struct Reservation {
    manager: Arc<LocalActivationManager>,
    /// `None` only after `into_held`, when nothing is to be returned.
    held: Option<Held>,
    activation: ActivationId,
    digest: ComponentDigest,
    generation: RouteGeneration,
}

/// What a reservation holds.
pub(super) struct Held {
    pub(super) slot: Slot<Reserved>,
    pub(super) pin: Pin,
    pub(super) target: InboundTarget,
}

impl Reservation {
    pub(super) fn new(manager: Arc<LocalActivationManager>, activation: ActivationId, held: Held) -> Self {
        let (digest, generation) = (held.pin.digest, held.pin.generation);
        Self { manager, held: Some(held), activation, digest, generation }
    }

    /// The id its activation will have; [`LocalActivationManager::cancel`] takes it.
    pub fn activation(&self) -> ActivationId {
        self.activation
    }

    /// The component that it is pinned to.
    pub fn digest(&self) -> ComponentDigest {
        self.digest
    }

    /// The generation of the route when it was pinned.
    pub fn generation(&self) -> RouteGeneration {
        self.generation
    }

    /// Whether what is pinned could start now: asked again ahead of a step that takes an event out of its source (T-012). The start
    /// itself asks once more.
    ///
    /// # Errors
    /// [`StartRefused`].
    pub fn may_start(&self) -> Result<(), StartRefused> {
        let Some(held) = &self.held else { return Ok(()) };
        self.manager.parts.catalog.start_allowed(&held.pin, &held.target.tenant)
    }

    /// Pins where the call leads now. For a reservation that was made long before its event came: what came after a change of the route is
    /// for what the route names then. Where it leads nowhere the pin stays, and the start says why not.
    pub(crate) fn follow_route(&mut self) {
        let Some(held) = &mut self.held else { return };
        if let Ok(pin) = self.manager.parts.catalog.resolve(held.target.call()) {
            (self.digest, self.generation) = (pin.digest, pin.generation);
            held.pin = pin;
        }
    }

    pub(super) fn belongs_to(&self, manager: &Arc<LocalActivationManager>) -> bool {
        Arc::ptr_eq(&self.manager, manager)
    }

    pub(super) fn into_held(mut self) -> Option<Held> {
        self.held.take()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.manager.release_unused(held.slot);
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pin = self.held.as_ref().map(|held| &held.pin);
        f.debug_struct("Reservation").field("activation", &self.activation).field("pin", &pin).finish_non_exhaustive()
    }
}
