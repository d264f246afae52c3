//! The little of the NATS protocol that scripts need to answer what they got. Not a parser: scripts know what their client sends.

/// The first line of the pinned broker, shortened to what clients read.
pub const INFO: &str = "INFO {\"server_id\":\"FAKE\",\"version\":\"2.14.6\",\"proto\":1,\"host\":\"127.0.0.1\",\"port\":4222,\"headers\":true,\
                        \"auth_required\":true,\"tls_required\":true,\"max_payload\":1048576,\"jetstream\":true,\"client_id\":5}\r\n";

/// The reply inbox of the last `PUB` or `HPUB` that has one.
pub fn reply_inbox(received: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(received);
    let with_reply = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["HPUB", _, reply, _, _] | ["PUB", _, reply, _] => Some((*reply).to_owned()),
            _ => None,
        }
    };
    text.split("\r\n").filter_map(with_reply).last()
}

/// The id of the last subscription.
pub fn subscription_id(received: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(received);
    let subscriptions = text.split("\r\n").filter_map(|line| line.strip_prefix("SUB "));
    subscriptions.filter_map(|words| words.rsplit(' ').next()).last().map(str::to_owned)
}

/// A `MSG` with this payload to the last reply inbox on the last subscription.
///
/// # Panics
/// When there was no subscription or no publication with a reply inbox.
#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
pub fn message_for(received: &[u8], payload: &[u8]) -> Vec<u8> {
    let inbox = reply_inbox(received).expect("a publication with a reply inbox");
    let sid = subscription_id(received).expect("a subscription");
    let mut frame = format!("MSG {inbox} {sid} {}\r\n", payload.len()).into_bytes();
    frame.extend_from_slice(payload);
    frame.extend_from_slice(b"\r\n");
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_to_the_last_inbox_on_the_last_subscription() {
        let received = b"CONNECT {}\r\nSUB _INBOX.LSF.a.b.* 7\r\nPING\r\nHPUB s _INBOX.LSF.a.b.1 12 14\r\nNATS/1.0\r\n\r\nxx\r\n\
                         HPUB s _INBOX.LSF.a.b.2 12 14\r\nNATS/1.0\r\n\r\nxx\r\n";
        assert_eq!(message_for(received, b"{}"), b"MSG _INBOX.LSF.a.b.2 7 2\r\n{}\r\n");
        assert_eq!(reply_inbox(b"PUB s 2\r\nxx\r\n"), None);
    }
}
