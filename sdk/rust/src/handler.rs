//! The macro that makes a function the component's handler.

use crate::__private::{DeliveredEvent, HandlerError};
use crate::bindings::exports::latent::events::handler::RetryHint;
use crate::{Event, Failure, Handled};

/// Exports `fn(Event) -> Handled` as the component's handler. To be used once in a crate.
///
/// Only a build for WebAssembly exports anything. On the host the function's type is checked and that is all, so that `cargo build`
/// and `cargo test` work there too.
///
/// ```
/// use latent_sdk::{Event, Handled};
///
/// fn handle(_event: Event) -> Handled {
///     Ok(())
/// }
///
/// latent_sdk::handler!(handle);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! handler {
    ($handle:path) => {
        // A component's exports have names that linkers of the host refuse.
        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            impl $crate::__private::Guest for Component {
                fn handle(event: $crate::__private::DeliveredEvent) -> ::core::result::Result<(), $crate::__private::HandlerError> {
                    $crate::__private::run(event, $handle)
                }
            }

    $crate::__private::export!(Component with_types_in $crate::__private::bindings);
        };

        #[cfg(not(target_family = "wasm"))]
        const _: fn($crate::Event) -> $crate::Handled = $handle;
    };
}

#[doc(hidden)]
pub fn run(event: DeliveredEvent, handle: impl FnOnce(Event) -> Handled) -> Result<(), HandlerError> {
    handle(Event::from(event)).map_err(|failure| match failure {
        Failure::Reject { reason } => HandlerError::Reject(reason),
        Failure::Retry { reason, delay_millis } => HandlerError::Retry(RetryHint { reason, delay_millis }),
    })
}

#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    use super::*;

    fn handle(_event: Event) -> Handled {
        Ok(())
    }

    // Two handlers in one program: the same symbol twice, were it exported here, would not compile.
    crate::handler!(handle);
    crate::handler!(handle);

    #[test]
    fn on_the_host_a_handler_exports_nothing() {
        assert_eq!(handle(Event::default()), Ok(()));
    }
}
