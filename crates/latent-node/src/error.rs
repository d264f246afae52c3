//! What can be wrong with a node's configuration. Faults of single calls live beside what they are about: [`crate::CatalogError`],
//! [`crate::ResolveError`], [`crate::Refusal`], [`crate::ReserveRefusal`].

use latent_core::LimitError;

/// Why a node, or a part of it, cannot be set up. The operator's or the embedder's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// A number lies outside its named limit.
    #[error(transparent)]
    Limit(LimitError),
    /// There are too few slots for the cells.
    #[error("admission_slots is {slots} with {cells} cells; at least {slots_min} are needed, so that one busy tenant can fill every cell")]
    TooFewSlots {
        /// Slots given.
        slots: u32,
        /// Cells given.
        cells: u32,
        /// Slots needed.
        slots_min: u32,
    },
    /// The backend cannot run as many activations as the node is to have cells.
    #[error("cells is {cells} and the execution backend has {backend_cells}; make the backend for at least as many")]
    TooFewBackendCells {
        /// Cells of the node.
        cells: u32,
        /// Cells of the backend.
        backend_cells: usize,
    },
    /// A second listener for the ends of activations.
    #[error("somebody listens for the ends of activations already, and only one can")]
    EndListenerTaken,
}
