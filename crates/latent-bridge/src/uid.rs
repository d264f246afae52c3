//! Uids that the bus mints for events that come without one (B-010).

use latent_core::{Uid, UnixMillis};

use crate::BusError;

/// A UUIDv7 of this time.
pub(crate) fn mint(now: UnixMillis) -> Result<Uid, BusError> {
    let millis = now.0;
    let nanos = u32::try_from(millis % 1_000 * 1_000_000).unwrap_or(0);
    let uuid = uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, millis / 1_000, nanos));
    Ok(Uid::parse(&uuid.to_string())?)
}
