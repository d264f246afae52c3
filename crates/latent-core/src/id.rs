//! Ids and positions that the system gives, as distinct types so that one cannot stand in for another.

use std::fmt;
use std::sync::Arc;

use crate::{CoreError, limits, name::check_printable};

macro_rules! number_type {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_type!(
    /// A partition of a topic, counted from 0.
    Partition(u32)
);
number_type!(
    /// A position in a partition. Embedded engine: dense from 0. JetStream: the stream sequence.
    Offset(u64)
);
number_type!(
    /// Grows each time a route's target changes.
    RouteGeneration(u64)
);
number_type!(
    /// Grows each time an installed provider's configuration is replaced.
    Epoch(u64)
);
number_type!(
    /// A catalog publication: what makes a component callable.
    PublicationId(u64)
);

impl Offset {
    /// The next position, or `None` at the end of the number range.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Wraps 16 random bytes; where they come from is the caller's business.
            pub const fn from_random(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// Reads the form that it is printed in: 32 lower-case hexadecimal digits.
            pub fn parse(text: &str) -> Option<Self> {
                let plain = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
                let number = u128::from_str_radix(text, 16).ok().filter(|_| plain)?;
                Some(Self(number.to_be_bytes()))
            }

            /// The 16 bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

random_id!(
    /// One run of one function in one fresh store. Printed as 32 hex digits.
    ActivationId
);
random_id!(
    /// A W3C trace id. Printed as 32 hex digits.
    TraceId
);

/// The stable identity of an event on the bridge: D-04 text of at most 256 bytes, unique per topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Arc<str>);

impl Uid {
    /// Checks and keeps the text.
    ///
    /// # Errors
    /// [`CoreError::Text`] when it is empty, longer than 256 bytes or not printable ASCII.
    pub fn parse(text: &str) -> Result<Self, CoreError> {
        check_printable("uid", text, limits::UID_BYTES.max_usize())?;
        Ok(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_printable_text_of_at_most_256_bytes() {
        assert!(Uid::parse(&"u".repeat(256)).is_ok());
        for bad in ["", &"u".repeat(257), "a b", "a\r\nb", "a\0", "😀"] {
            assert!(Uid::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ids_print_as_hex() {
        let id = ActivationId::from_random([0xab; 16]);
        assert_eq!(id.to_string(), "ab".repeat(16));
        assert_eq!(ActivationId::parse(&id.to_string()), Some(id));
        for bad in ["", &"ab".repeat(15), &"ab".repeat(17), &"AB".repeat(16), &"+a".repeat(16)] {
            assert_eq!(ActivationId::parse(bad), None, "{bad}");
        }
    }
}
