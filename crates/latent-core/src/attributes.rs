//! Attributes of an event: a short, ordered list of names and values (D-03, P-022), and after them those that the host alone writes.

use crate::{CoreError, TextProblem, limits};

/// Attribute names with this prefix (compared without case) are written by the host alone.
pub const RESERVED_ATTRIBUTE_PREFIX: &str = "Latent-Dead-";

/// Bytes counted for each attribute on top of its name and value: room for a header's prefix and punctuation (D-03).
const OVERHEAD_BYTES: usize = 20;

/// Validated attributes, in the order given; those of the host come last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes(Vec<(String, String)>);

impl Attributes {
    /// Checks count, names, values, sum and uniqueness of attributes that a guest, a client or an operator gave.
    ///
    /// Names are letters, digits and `-`. Values are printable ASCII, may be empty and may hold inner spaces; a space at either
    /// end is refused rather than trimmed, so that what is read equals what was written on every engine.
    ///
    /// # Errors
    /// [`CoreError`] naming the attribute and the rule.
    pub fn parse(pairs: Vec<(String, String)>) -> Result<Self, CoreError> {
        limits::ATTRIBUTES.check(pairs.len() as u64)?;
        let mut bytes = 0;
        for (at, (name, value)) in pairs.iter().enumerate() {
            check_name(name)?;
            check_value(value)?;
            bytes += name.len() + value.len() + OVERHEAD_BYTES;
            if pairs[..at].iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
                return Err(CoreError::DuplicateAttribute { name: name.clone() });
            }
        }
        limits::ATTRIBUTES_BYTES.check(bytes as u64)?;
        Ok(Self(pairs))
    }

    /// Checks attributes that an engine stored: those that a client may give as [`Attributes::parse`] does, then those of the host.
    ///
    /// # Errors
    /// [`CoreError`] naming the attribute and the rule.
    pub fn stored(mut pairs: Vec<(String, String)>) -> Result<Self, CoreError> {
        let client_count = pairs.iter().take_while(|(name, _)| !is_reserved(name)).count();
        let host = pairs.split_off(client_count);
        Self::parse(pairs)?.with_host(host)
    }

    /// Headers of a message that is no record, in order, as its event's attributes: any names and values, also several of one name, but none
    /// that only the host may write, and no more together than the header block of a parked record.
    ///
    /// # Errors
    /// [`CoreError`] when they are more.
    pub fn delivered(mut pairs: Vec<(String, String)>) -> Result<Self, CoreError> {
        pairs.retain(|(name, _)| !is_reserved(name));
        let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        limits::PARKED_ATTRIBUTES_BYTES.check(bytes as u64)?;
        Ok(Self(pairs))
    }

    /// Those of these attributes that keep every rule of [`Attributes::parse`], as many as fit, in order.
    #[must_use]
    pub fn fitting(&self) -> Self {
        self.client().fold(Self::default(), |kept, (name, value)| {
            let more = kept.iter().chain([(name, value)]).map(|(name, value)| (name.to_owned(), value.to_owned()));
            Self::parse(more.collect()).unwrap_or(kept)
        })
    }

    /// These attributes of a client with `host` as those of the host, in the place of any that were there. They are outside the limits
    /// of a client; all together fit the header block of a parked record.
    ///
    /// # Errors
    /// [`CoreError`] naming the attribute and the rule.
    pub fn with_host(mut self, host: Vec<(String, String)>) -> Result<Self, CoreError> {
        self.0.retain(|(name, _)| !is_reserved(name));
        for (at, (name, value)) in host.iter().enumerate() {
            if !is_reserved(name) {
                let problem = TextProblem::Shape { expected: "a name that begins with `Latent-Dead-`" };
                return Err(CoreError::text("host attribute", name, problem));
            }
            check_name_text(name)?;
            check_value_text(value, limits::HOST_ATTRIBUTE_VALUE_BYTES.max_usize())?;
            if host[..at].iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
                return Err(CoreError::DuplicateAttribute { name: name.clone() });
            }
        }
        self.0.extend(host);
        let bytes: usize = self.0.iter().map(|(name, value)| name.len() + value.len() + OVERHEAD_BYTES).sum();
        limits::PARKED_ATTRIBUTES_BYTES.check(bytes as u64)?;
        Ok(self)
    }

    /// Those that a client gave, in order.
    pub fn client(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(|(name, _)| !is_reserved(name))
    }

    /// The value of the host's attribute `name`.
    pub fn host(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| is_reserved(known) && known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The names and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether only the host may write an attribute of this name.
fn is_reserved(name: &str) -> bool {
    name.get(..RESERVED_ATTRIBUTE_PREFIX.len()).is_some_and(|head| head.eq_ignore_ascii_case(RESERVED_ATTRIBUTE_PREFIX))
}

fn check_name(name: &str) -> Result<(), CoreError> {
    check_name_text(name)?;
    if is_reserved(name) { Err(CoreError::ReservedAttribute { name: name.to_owned() }) } else { Ok(()) }
}

fn check_name_text(name: &str) -> Result<(), CoreError> {
    let bytes_max = limits::ATTRIBUTE_NAME_BYTES.max_usize();
    let problem = if name.is_empty() {
        TextProblem::Empty
    } else if name.len() > bytes_max {
        TextProblem::TooLong { bytes: name.len(), bytes_max }
    } else if let Some((at, found)) = name.char_indices().find(|(_, c)| !c.is_ascii_alphanumeric() && *c != '-') {
        TextProblem::Character { found, at, allowed: "letters, digits and `-`" }
    } else {
        return Ok(());
    };
    Err(CoreError::text("attribute name", name, problem))
}

fn check_value(value: &str) -> Result<(), CoreError> {
    check_value_text(value, limits::ATTRIBUTE_VALUE_BYTES.max_usize())
}

fn check_value_text(value: &str, bytes_max: usize) -> Result<(), CoreError> {
    let problem = if value.len() > bytes_max {
        TextProblem::TooLong { bytes: value.len(), bytes_max }
    } else if let Some((at, found)) = value.char_indices().find(|(_, c)| !('\x20'..='\x7e').contains(c)) {
        TextProblem::Character { found, at, allowed: "printable ASCII and inner spaces" }
    } else if value.starts_with(' ') || value.ends_with(' ') {
        TextProblem::Shape { expected: "without a space at either end" }
    } else {
        return Ok(());
    };
    Err(CoreError::text("attribute value", value, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_others_are_taken_as_they_are_and_kept_only_where_they_fit() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let pairs = vec![pair("X_under", "1"), pair("a", "1"), pair("A", "2"), pair("latent-dead-reason", "x"), pair("b", " x")];
        let given = Attributes::delivered(pairs).unwrap();
        assert_eq!(given.iter().count(), 4);
        assert_eq!(given.fitting().iter().collect::<Vec<_>>(), [("a", "1")]);
        let large = |bytes: usize| Attributes::delivered(vec![pair("n", &"v".repeat(bytes - 1))]).is_ok();
        let most = limits::PARKED_ATTRIBUTES_BYTES.max_usize();
        assert!(large(most) && !large(most + 1));
    }

    fn one(name: &str, value: &str) -> Result<Attributes, CoreError> {
        Attributes::parse(vec![(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn names_and_values_are_checked_at_their_edges() {
        for (name, value) in [("a", ""), ("X-Trace-1", "a b:c"), (&*"n".repeat(64), &*"v".repeat(256))] {
            assert!(one(name, value).is_ok(), "{name:?} {value:?}");
        }
        for name in ["", "a:b", "a b", "$x_y", "é", "latent-dead-Reason", &"n".repeat(65)] {
            assert!(one(name, "v").is_err(), "{name:?}");
        }
        for value in [" v", "v ", "a\rb", "a\nb", "a\r\nNats-Msg-Id: x", "a\0", "é", &"v".repeat(257)] {
            assert!(one("n", value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn sixteen_attributes_fit_and_seventeen_do_not() {
        let many = |count: usize| Attributes::parse((0..count).map(|n| (format!("n{n}"), String::new())).collect());
        assert!(many(16).is_ok() && many(17).is_err());
    }

    #[test]
    fn the_sum_counts_twenty_bytes_for_each_attribute() {
        // Twelve attributes of 3 + 233 + 20 bytes are exactly 3,072.
        let list = |last: usize| {
            let value = |n: usize| "v".repeat(if n == 11 { last } else { 233 });
            Attributes::parse((0..12).map(|n| (format!("a{n:02}"), value(n))).collect())
        };
        assert!(list(233).is_ok() && list(234).is_err());
    }

    #[test]
    fn names_that_differ_in_case_alone_are_refused() {
        let pairs = vec![("a".to_owned(), String::new()), ("A".to_owned(), String::new())];
        assert_eq!(Attributes::parse(pairs), Err(CoreError::DuplicateAttribute { name: "A".to_owned() }));
    }

    fn host(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_host_s_attributes_come_after_a_client_s_and_replace_earlier_ones() {
        let first = one("a", "1").unwrap().with_host(host(&[("Latent-Dead-Reason", "rejected")])).unwrap();
        let second = first.clone().with_host(host(&[("Latent-Dead-Offset", "7")])).unwrap();
        assert_eq!(second.iter().collect::<Vec<_>>(), [("a", "1"), ("Latent-Dead-Offset", "7")]);
        assert_eq!((second.host("latent-dead-offset"), second.host("a"), second.host("Latent-Dead-Reason")), (Some("7"), None, None));
        assert_eq!(second.client().collect::<Vec<_>>(), [("a", "1")]);
        let stored = second.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert_eq!(Attributes::stored(stored), Ok(second));
    }

    #[test]
    fn the_host_s_attributes_are_checked_at_their_edges() {
        let with = |pairs: &[(&str, &str)]| Attributes::default().with_host(host(pairs));
        assert!(with(&[("Latent-Dead-Detail", &"v".repeat(1_024))]).is_ok());
        for (name, value) in
            [("Latent-Dead-Detail", &*"v".repeat(1_025)), ("Detail", "v"), ("Latent-Dead-a:b", "v"), ("Latent-Dead-A", "a\nb")]
        {
            assert!(with(&[(name, value)]).is_err(), "{name:?}");
        }
        assert!(with(&[("Latent-Dead-A", ""), ("latent-dead-a", "")]).is_err());
        // Eight of 15 + 989 + 20 bytes are exactly 8,192.
        let block = |last: usize| {
            let value = |n: usize| "v".repeat(if n == 7 { last } else { 989 });
            let pairs = (0..8).map(|n| (format!("Latent-Dead-{n:03}"), value(n))).collect();
            Attributes::default().with_host(pairs)
        };
        assert!(block(989).is_ok() && block(990).is_err());
    }

    #[test]
    fn a_client_s_attribute_after_the_host_s_is_refused_in_what_was_stored() {
        assert!(Attributes::stored(host(&[("Latent-Dead-A", ""), ("a", "")])).is_err());
    }
}
