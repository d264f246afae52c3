//! What a `-ERR` says, as a closed set. Its text goes no further than here.

/// A `-ERR` of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokerError {
    Authorisation,
    AuthenticationTimeout,
    ConnectionLimit,
    MaximumPayload,
    /// A subscription was refused.
    Subscription,
    /// Any other refusal of a permission.
    Permission,
    Other,
}

/// Whole texts, compared without case: their spelling changed between versions.
const TEXTS: &[(&[u8], BrokerError)] = &[
    (b"authorization violation", BrokerError::Authorisation),
    (b"user authentication expired", BrokerError::Authorisation),
    (b"user authentication revoked", BrokerError::Authorisation),
    (b"account authentication expired", BrokerError::Authorisation),
    (b"authentication timeout", BrokerError::AuthenticationTimeout),
    (b"maximum connections exceeded", BrokerError::ConnectionLimit),
    (b"maximum account active connections exceeded", BrokerError::ConnectionLimit),
    (b"maximum payload violation", BrokerError::MaximumPayload),
];
const SUBSCRIPTION: &[u8] = b"Permissions Violation for Subscription to ";
const PERMISSION: &[u8] = b"Permissions Violation";

/// Reads what stands behind `-ERR`.
pub(crate) fn read(text: &[u8]) -> BrokerError {
    let Some(text) = unquoted(text) else { return BrokerError::Other };
    let begins_with = |prefix: &[u8]| text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    if begins_with(SUBSCRIPTION) {
        return BrokerError::Subscription;
    }
    if begins_with(PERMISSION) {
        return BrokerError::Permission;
    }
    TEXTS.iter().find(|(known, _)| text.eq_ignore_ascii_case(known)).map_or(BrokerError::Other, |(_, error)| *error)
}

/// Whether the text is exactly the refusal to publish to `subject` (P-049).
pub(crate) fn refuses_publication_to(text: &[u8], subject: &str) -> bool {
    refused_subject(text) == Some(subject.as_bytes())
}

/// The subject, if the text is the refusal to publish to one.
pub(crate) fn refused_subject(text: &[u8]) -> Option<&[u8]> {
    let named = unquoted(text).and_then(|text| text.strip_prefix(b"Permissions Violation for Publish to \""));
    named.and_then(|named| named.strip_suffix(b"\""))
}

fn unquoted(text: &[u8]) -> Option<&[u8]> {
    text.strip_prefix(b"'")?.strip_suffix(b"'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_apart_and_anything_else_is_other() {
        let table: [(&[u8], BrokerError); 13] = [
            (b"'Authorization Violation'", BrokerError::Authorisation),
            (b"'authorization violation'", BrokerError::Authorisation),
            (b"'User Authentication Expired'", BrokerError::Authorisation),
            (b"'Authentication Timeout'", BrokerError::AuthenticationTimeout),
            (b"'maximum connections exceeded'", BrokerError::ConnectionLimit),
            (b"'Maximum Payload Violation'", BrokerError::MaximumPayload),
            (b"'Permissions Violation for Subscription to \"_INBOX.LSF.x.1.*\"'", BrokerError::Subscription),
            (b"'Permissions Violation for Publish to \"a\"'", BrokerError::Permission),
            (b"'Permissions Violation for Publish with Reply of \"a\"'", BrokerError::Permission),
            (b"'Stale Connection'", BrokerError::Other),
            (b"'Authorization Violation", BrokerError::Other),
            (b"'Authorization Violation, really'", BrokerError::Other),
            (b"", BrokerError::Other),
        ];
        for (text, expected) in table {
            assert_eq!(read(text), expected, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn only_the_exact_refusal_of_the_subject_is_one() {
        let subject = "orders.new";
        assert!(refuses_publication_to(b"'Permissions Violation for Publish to \"orders.new\"'", subject));
        let others: [&[u8]; 10] = [
            b"'Permissions Violation for Publish to \"orders.old\"'",
            b"'Permissions Violation for Publish to \"orders.new.x\"'",
            b"'Permissions Violation for Publish to \"orders\"'",
            b"'permissions violation for publish to \"orders.new\"'",
            b"'Permissions Violation for Publish to \"orders.new\" using queue \"q\"'",
            b"'Permissions Violation for Publish to \"orders.new\"' 1",
            b"Permissions Violation for Publish to \"orders.new\"",
            b"'Permissions Violation for Publish with Reply of \"orders.new\"'",
            b"'Permissions Violation for Publish to \"ORDERS.NEW\"'",
            b"'Permissions Violation for Publish to  \"orders.new\"'",
        ];
        for text in others {
            assert!(!refuses_publication_to(text, subject), "{}", String::from_utf8_lossy(text));
        }
    }
}
