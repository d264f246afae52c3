//! `latent:context`: what an activation may know about itself.
//!
//! Linked function by function, because what is left of the fuel can only be read from the store itself.

use latent_capabilities::DeriveError;
use latent_core::{ActivationId, TraceId};
use wasmtime::StoreContextMut;
use wasmtime::component::Linker;

use crate::bindings::latent::context::context::{DeriveError as GuestDeriveError, RemainingBudget};
use crate::store::StoreData;

type Caller<'a> = StoreContextMut<'a, StoreData>;

pub(crate) fn add_to_linker(linker: &mut Linker<StoreData>) -> wasmtime::Result<()> {
    let mut context = linker.instance("latent:context/context@0.1.0")?;
    context.func_wrap("activation-id", |caller: Caller<'_>, (): ()| Ok((caller.data().session.spec().activation.to_string(),)))?;
    context.func_wrap("trace", |caller: Caller<'_>, (): ()| Ok((traceparent(caller.data()),)))?;
    context.func_wrap("tenant", |caller: Caller<'_>, (): ()| Ok((caller.data().session.spec().tenant.to_string(),)))?;
    context.func_wrap("remaining", |caller: Caller<'_>, (): ()| Ok((remaining(&caller)?,)))?;
    context.func_wrap("derive", |caller: Caller<'_>, (): ()| Ok((caller.data().session.derive().map_err(for_guest),)))?;
    context.func_wrap("derive-label", |caller: Caller<'_>, (label,): (String,)| {
        Ok((caller.data().session.derive_label(&label).map_err(for_guest),))
    })
}

fn remaining(caller: &Caller<'_>) -> wasmtime::Result<RemainingBudget> {
    let data = caller.data();
    let left = data.deadline.at().since(data.session.spec().clock.mono());
    Ok(RemainingBudget {
        cpu_fuel: caller.get_fuel()?,
        wall_time_millis: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        outbound_requests: data.session.requests_left(),
        log_bytes: data.log.lock().bytes_left() as u64,
    })
}

fn for_guest(error: DeriveError) -> GuestDeriveError {
    match error {
        DeriveError::NoOrigin => GuestDeriveError::NoOrigin,
        DeriveError::InvalidLabel => GuestDeriveError::InvalidLabel,
    }
}

fn traceparent(data: &StoreData) -> String {
    traceparent_of(data.trace, data.session.spec().activation)
}

/// A W3C `traceparent` whose parent is the activation: the first half of its id, always sampled.
fn traceparent_of(trace: TraceId, activation: ActivationId) -> String {
    format!("00-{trace}-{:.16}-01", activation.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_names_the_trace_and_the_activation() {
        let text = traceparent_of(TraceId::from_random([0xab; 16]), ActivationId::from_random([0xcd; 16]));
        assert_eq!(text, format!("00-{}-{}-01", "ab".repeat(16), "cd".repeat(8)));
    }
}
