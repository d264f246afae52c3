//! Whole numbers of a manifest, read so that a wrong one is told with its range.
//!
//! Text is not a number even when it looks like one, and `2.0` is the whole number it stands for: as JSON Schema has it.

use std::fmt;

use latent_core::Limit;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

use crate::limits;

macro_rules! number_of {
    ($($(#[$doc:meta])* $field:ident: $limit:expr;)*) => {
        $($(#[$doc])*
        pub(super) fn $field<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
            deserializer.deserialize_any(Whole($limit))
        })*
    };
}

number_of! {
    /// The version: any number, since another one has an error of its own.
    manifest_version: Limit { name: "manifest_version", unit: "count", default: 1, min: 1, max: 1, bounds: "version of the form" };
    /// See [`limits::REPLICATION_FACTOR`].
    replication_factor: limits::REPLICATION_FACTOR;
    /// See [`limits::PARTITIONS`].
    partitions: limits::PARTITIONS;
    /// See [`limits::HOT_HOURS`].
    hot_hours: limits::HOT_HOURS;
}

/// Hours, or nothing.
pub(super) fn optional_hours<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    struct Hours(u32);

    impl<'de> Deserialize<'de> for Hours {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            hot_hours(deserializer).map(Self)
        }
    }

    Ok(Option::<Hours>::deserialize(deserializer)?.map(|hours| hours.0))
}

/// Takes whatever fits the field's type; `validate` knows the rules. What does not fit is told with the limit's range.
struct Whole(Limit);

impl Visitor<'_> for Whole {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.min, self.0.max) {
            (min, max) if min == max => write!(f, "the number {min}"),
            (min, max) => write!(f, "a whole number from {min} to {max}"),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<u32, E> {
        Err(E::invalid_type(Unexpected::Other("nothing"), &self))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u32, E> {
        u32::try_from(value).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u32, E> {
        u32::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in the range of u32 by then")]
    fn visit_f64<E: Error>(self, value: f64) -> Result<u32, E> {
        let fits = value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value);
        if fits { Ok(value as u32) } else { Err(E::invalid_value(Unexpected::Float(value), &self)) }
    }
}
