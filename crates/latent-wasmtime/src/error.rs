//! What can be wrong with an engine's options or a component. How an activation ends is an outcome, not an error of this list.

use latent_core::LimitError;

/// Why an engine could not be made or a component not be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WasmError {
    /// A number lies outside its named limit: an option, or a component's size.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The machine could not give what the options ask for.
    #[error(
        "the engine for {cells} cells could not be made: {detail}; ask for fewer cells or raise the address space limit of the process"
    )]
    EngineUnavailable {
        /// Cells asked for.
        cells: u64,
        /// What the engine said.
        detail: String,
    },
    /// The thread that watches deadlines could not be started.
    #[error("the thread that watches deadlines could not be started: {detail}; raise the thread limit of the process")]
    NoThread {
        /// What the system said.
        detail: String,
    },
    /// The bytes are no WebAssembly at all.
    #[error("this is not WebAssembly: it does not start with the WebAssembly magic number; give the path of a component")]
    NotWasm,
    /// The bytes are a core module.
    #[error("this is a core WebAssembly module, not a component; build it for `wasm32-wasip2`, or wrap it with `wasm-tools component new`")]
    CoreModule,
    /// The bytes claim to be a component and do not hold.
    #[error("the component is not acceptable: {detail}; build it again with a current toolchain")]
    Invalid {
        /// What validation said, bounded.
        detail: String,
    },
    /// The component imports something that the host does not offer.
    #[error("the component imports `{name}`: {refusal}")]
    ImportRefused {
        /// The import's full name.
        name: String,
        /// Why it is refused.
        refusal: ImportRefusal,
    },
    /// An exported function has a parameter or result that values cannot carry.
    #[error("the exported `{export}` cannot be called: {detail}; functions take and give values, not resources, streams or futures")]
    UnsupportedType {
        /// Interface and function.
        export: String,
        /// Where in its type, and what.
        detail: String,
    },
    /// An import or the handler export has a type other than its interface's.
    #[error("the component does not fit the interfaces of this host: {detail}; build it against this version's `wit` folder")]
    InterfaceMismatch {
        /// Which item, and how it differs, bounded.
        detail: String,
    },
}

/// Why one import is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImportRefusal {
    /// `wasi:http`: functions reach nothing but their topics.
    #[error("functions have no HTTP client or server; publish an event instead")]
    Http,
    /// An interface offered in another version.
    #[error("this host offers version {offered}; build against that version")]
    Version {
        /// The version on offer.
        offered: &'static str,
    },
    /// Nothing of that name is offered.
    #[error("this host offers `latent:events/publisher`, `latent:log/log`, `latent:context/context` and `wasi:cli/imports` only")]
    Unknown,
}
