//! What tests and fuzz bodies share: an INFO, a publication, links in a known state, and ways to move bytes.

use std::sync::LazyLock;

use latent_core::Attributes;

use crate::{Credential, InstanceInbox, Link, Publication};

#[cfg(test)]
mod links;
#[cfg(test)]
pub(crate) use links::{established, established_for, established_with, take};

/// As the pinned broker says it, shortened.
pub(crate) const INFO: &[u8] = b"INFO {\"server_id\":\"X\",\"version\":\"2.14.6\",\"proto\":1,\"headers\":true,\"auth_required\":true,\
\"max_payload\":1048576,\"jetstream\":true,\"api_lvl\":4,\"connect_urls\":[\"10.0.0.1:4222\"]}\r\n";
pub(crate) const SUBJECT: &str = "orders.new";
pub(crate) const STREAM: &str = "ORD";
pub(crate) const MESSAGE_ID: &str = "lsf-49706168b71b15ada4e29f126e6b9482d4210d4a265012e5d5b846dd439388f7";
pub(crate) const PASSWORD: Credential<'static> = Credential::Password { user: "publisher", password: b"marker-secret" };

static NO_ATTRIBUTES: LazyLock<Attributes> = LazyLock::new(Attributes::default);

pub(crate) fn publication(payload: &[u8]) -> Publication<'_> {
    Publication {
        subject: SUBJECT,
        expected_stream: STREAM,
        message_id: MESSAGE_ID,
        content_type: None,
        key: None,
        attributes: &NO_ATTRIBUTES,
        payload,
    }
}

pub(crate) fn instance() -> InstanceInbox {
    InstanceInbox::new([0x5a; 16])
}

pub(crate) fn fresh() -> Link {
    Link::new(&instance(), 3)
}

/// The inbox of this operation of the link.
pub(crate) fn inbox(operation: u64) -> String {
    format!("_INBOX.LSF.{}.3.{operation}", "5a".repeat(16))
}

/// A reply on the inbox of this operation.
pub(crate) fn message(operation: u64, body: &str) -> Vec<u8> {
    format!("MSG {} 1 {}\r\n{body}\r\n", inbox(operation), body.len()).into()
}

/// The same with a header block.
pub(crate) fn message_with_headers(operation: u64, block: &str, body: &str) -> Vec<u8> {
    format!("HMSG {} 1 {} {}\r\n{block}{body}\r\n", inbox(operation), block.len(), block.len() + body.len()).into()
}
