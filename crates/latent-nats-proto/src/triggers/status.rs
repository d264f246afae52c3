//! What a pull is answered with instead of a message (D-11).

/// A status of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullStatus {
    /// Nothing is there (404).
    Empty,
    /// Nothing came until the request expired (408).
    Expired,
    /// As many requests wait, or messages are unacknowledged, as may (409).
    AtCapacity,
    /// The request has had what it may have (409).
    BatchCompleted,
    /// The consumer has another leader (409).
    LeadershipChange,
    /// The server stops (409).
    ServerShutdown,
    /// The consumer is gone (409).
    ConsumerDeleted,
    /// The consumer pushes (409).
    PushBased,
    /// The request asks for more than the consumer gives (409).
    RequestTooLarge,
    /// The next message is larger than the request takes (409).
    MessageTooLarge,
    /// A precondition (412).
    Precondition,
    /// The consumer's pin was lost (423).
    PinLost,
    /// Too many requests (429).
    TooManyRequests,
    /// There is no such consumer (503).
    NoResponders,
    /// Any other.
    Unknown(u16),
}

impl PullStatus {
    /// Whether it ends a pull without anything being wrong.
    pub const fn is_quiet(self) -> bool {
        matches!(self, Self::Empty | Self::Expired | Self::AtCapacity | Self::BatchCompleted)
    }

    /// Whether the connection is in step after it: only what is not known closes it.
    pub const fn keeps_connection(self) -> bool {
        !matches!(self, Self::Unknown(_))
    }
}

/// Descriptions of 409 and what they begin with.
const CONFLICTS: &[(&str, PullStatus)] = &[
    ("batch completed", PullStatus::BatchCompleted),
    ("exceeded maxwaiting", PullStatus::AtCapacity),
    ("exceeded maxackpending", PullStatus::AtCapacity),
    ("leadership change", PullStatus::LeadershipChange),
    ("server shutdown", PullStatus::ServerShutdown),
    ("consumer deleted", PullStatus::ConsumerDeleted),
    ("consumer is push based", PullStatus::PushBased),
    ("exceeded maxrequest", PullStatus::RequestTooLarge),
    ("message size exceeds maxbytes", PullStatus::MessageTooLarge),
];

/// Reads a status and its block.
pub(crate) fn read(code: u16, block: &[u8]) -> PullStatus {
    match code {
        404 => PullStatus::Empty,
        408 => PullStatus::Expired,
        409 => conflict(block),
        412 => PullStatus::Precondition,
        423 => PullStatus::PinLost,
        429 => PullStatus::TooManyRequests,
        503 => PullStatus::NoResponders,
        code => PullStatus::Unknown(code),
    }
}

fn conflict(block: &[u8]) -> PullStatus {
    let description = block.strip_prefix(b"NATS/1.0 409 ").unwrap_or_default();
    let begins = |text: &str| description.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text.as_bytes()));
    CONFLICTS.iter().find(|(text, _)| begins(text)).map_or(PullStatus::Unknown(409), |(_, status)| *status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_meaning() {
        let table = [
            ("404 No Messages", PullStatus::Empty, true),
            ("408 Request Timeout", PullStatus::Expired, true),
            ("409 Batch Completed", PullStatus::BatchCompleted, true),
            ("409 Exceeded MaxWaiting", PullStatus::AtCapacity, true),
            ("409 Exceeded MaxAckPending", PullStatus::AtCapacity, true),
            ("409 Leadership Change", PullStatus::LeadershipChange, false),
            ("409 Server Shutdown", PullStatus::ServerShutdown, false),
            ("409 Consumer Deleted", PullStatus::ConsumerDeleted, false),
            ("409 Consumer is push based", PullStatus::PushBased, false),
            ("409 Exceeded MaxRequestBatch of 1", PullStatus::RequestTooLarge, false),
            ("409 Exceeded MaxRequestExpires of 100ms", PullStatus::RequestTooLarge, false),
            ("409 Exceeded MaxRequestMaxBytes of 10240", PullStatus::RequestTooLarge, false),
            ("409 Message Size Exceeds MaxBytes", PullStatus::MessageTooLarge, false),
            ("409 Something Else", PullStatus::Unknown(409), false),
            ("409", PullStatus::Unknown(409), false),
            ("412 x", PullStatus::Precondition, false),
            ("423 Nats-Pin-Id mismatch", PullStatus::PinLost, false),
            ("429 x", PullStatus::TooManyRequests, false),
            ("503", PullStatus::NoResponders, false),
            ("400 Bad Request", PullStatus::Unknown(400), false),
        ];
        for (line, expected, is_quiet) in table {
            let status = read(line[..3].parse().unwrap(), format!("NATS/1.0 {line}\r\n\r\n").as_bytes());
            assert_eq!((status, status.is_quiet()), (expected, is_quiet), "{line}");
            assert_eq!(status.keeps_connection(), !matches!(expected, PullStatus::Unknown(_)), "{line}");
        }
    }
}
