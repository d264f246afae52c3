//! Reply inboxes: `_INBOX.LSF.<instance>.<connection>.<operation>` (P-009). Whoever knows one may not learn it from a log.

use std::fmt;

use crate::decoder::decimal;

const PREFIX: &[u8] = b"_INBOX.LSF.";
const INSTANCE_BYTES: usize = 32;
/// Prefix, instance, a dot, a connection of at most twenty digits, a dot.
const CONNECTION_BYTES_MAX: usize = PREFIX.len() + INSTANCE_BYTES + 1 + 20 + 1;
/// The same with an operation of at most twenty digits.
pub(crate) const INBOX_BYTES_MAX: usize = CONNECTION_BYTES_MAX + 20;

/// The random namespace of one provider instance.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InstanceInbox([u8; INSTANCE_BYTES]);

impl InstanceInbox {
    /// The namespace of these random bytes. The caller draws them, from a source that nobody can guess.
    pub fn new(random: [u8; 16]) -> Self {
        let mut token = [0; INSTANCE_BYTES];
        for (pair, byte) in token.chunks_exact_mut(2).zip(random) {
            let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + (nibble - 10) };
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        Self(token)
    }
}

impl fmt::Debug for InstanceInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InstanceInbox(..)")
    }
}

/// The inboxes of one connection and the one that is waited on.
pub(crate) struct Inbox {
    text: [u8; INBOX_BYTES_MAX],
    connection_bytes: usize,
    bytes: usize,
    /// The operation that comes next; `None` when they are used up.
    next: Option<u64>,
}

impl Inbox {
    /// One that is used up.
    pub(crate) const fn spent() -> Self {
        Self { text: [0; INBOX_BYTES_MAX], connection_bytes: 0, bytes: 0, next: None }
    }

    pub(crate) fn new(instance: &InstanceInbox, connection: u64) -> Self {
        let mut inbox = Self { text: [0; INBOX_BYTES_MAX], connection_bytes: 0, bytes: 0, next: Some(1) };
        inbox.push(PREFIX);
        inbox.push(&instance.0);
        inbox.push(b".");
        let (digits, start) = decimal(connection);
        inbox.push(digits.get(start..).unwrap_or_default());
        inbox.push(b".");
        inbox.connection_bytes = inbox.bytes;
        inbox
    }

    fn push(&mut self, part: &[u8]) {
        if let Some(place) = self.text.get_mut(self.bytes..self.bytes + part.len()) {
            place.copy_from_slice(part);
            self.bytes += part.len();
        }
    }

    /// What comes before the operation, the last dot included.
    pub(crate) fn connection(&self) -> &[u8] {
        self.text.get(..self.connection_bytes).unwrap_or_default()
    }

    /// The inbox of the operation under way.
    pub(crate) fn current(&self) -> &[u8] {
        self.text.get(..self.bytes).unwrap_or_default()
    }

    /// Goes on to an inbox that was never used, and says which operation it is.
    pub(crate) fn take_next(&mut self) -> Option<u64> {
        let operation = self.next?;
        self.advance().then_some(operation)
    }

    /// The operation whose inbox this subject is, used or not.
    pub(crate) fn operation_of(&self, subject: &[u8]) -> Option<u64> {
        let digits = std::str::from_utf8(subject.strip_prefix(self.connection())?).ok()?;
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
        is_plain.then(|| digits.parse().ok())?
    }

    pub(crate) fn current_copy(&self) -> InboxText {
        InboxText { text: self.text, connection_bytes: self.connection_bytes, bytes: self.bytes }
    }

    /// Goes on to an inbox that was never used. False when there is none.
    pub(crate) fn advance(&mut self) -> bool {
        let Some(operation) = self.next else { return false };
        self.next = operation.checked_add(1);
        self.bytes = self.connection_bytes;
        let (digits, start) = decimal(operation);
        self.push(digits.get(start..).unwrap_or_default());
        true
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, operation: u64) {
        self.next = Some(operation);
    }
}

/// A copy of one inbox.
pub(crate) struct InboxText {
    text: [u8; INBOX_BYTES_MAX],
    connection_bytes: usize,
    bytes: usize,
}

impl InboxText {
    pub(crate) fn connection(&self) -> &[u8] {
        self.text.get(..self.connection_bytes).unwrap_or_default()
    }

    pub(crate) fn get(&self) -> &[u8] {
        self.text.get(..self.bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(inbox: &Inbox) -> &str {
        std::str::from_utf8(inbox.current()).unwrap()
    }

    #[test]
    fn instances_connections_and_operations_never_share_an_inbox() {
        let instances = [InstanceInbox::new([0; 16]), InstanceInbox::new([0xfe; 16])];
        let mut seen = std::collections::BTreeSet::new();
        for instance in &instances {
            for connection in [0, 1, 11, u64::MAX] {
                let mut inbox = Inbox::new(instance, connection);
                for operation in 1..=12 {
                    assert!(inbox.advance() && seen.insert(text(&inbox).to_owned()));
                    assert!(text(&inbox).ends_with(&format!(".{connection}.{operation}")));
                    assert!(inbox.current().starts_with(inbox.connection()));
                }
            }
        }
        assert!(seen.iter().all(|inbox| inbox.starts_with("_INBOX.LSF.") && inbox.split('.').all(|token| !token.is_empty())));
    }

    #[test]
    fn operations_end_and_are_never_used_again() {
        let mut inbox = Inbox::new(&InstanceInbox::new([7; 16]), u64::MAX);
        inbox.skip_to(u64::MAX);
        assert!(inbox.advance());
        assert!(text(&inbox).ends_with(&u64::MAX.to_string()) && inbox.current().len() == INBOX_BYTES_MAX);
        assert!(!inbox.advance() && !inbox.advance());
    }

    #[test]
    fn a_subject_is_an_operation_s_inbox_in_one_spelling_only() {
        let mut inbox = Inbox::new(&InstanceInbox::new([7; 16]), 12);
        for operation in [1, 2, 3] {
            assert_eq!(inbox.take_next(), Some(operation));
            assert_eq!(inbox.operation_of(inbox.current()), Some(operation));
        }
        let own = String::from_utf8(inbox.connection().to_vec()).unwrap();
        for tail in ["", "0", "03", "+3", "3 ", "3.4", "x", "18446744073709551616", "\u{663}"] {
            assert_eq!(inbox.operation_of(format!("{own}{tail}").as_bytes()), None, "{tail:?}");
        }
        assert_eq!(inbox.operation_of(b"_INBOX.LSF.other.12.3"), None);
        assert_eq!(inbox.operation_of(format!("{own}18446744073709551615").as_bytes()), Some(u64::MAX));
    }

    #[test]
    fn an_instance_does_not_show_itself() {
        assert_eq!(format!("{:?}", InstanceInbox::new([0xab; 16])), "InstanceInbox(..)");
    }
}
