//! Links in a known state, for tests.

use super::{INFO, PASSWORD, fresh};
use crate::{Exchange, Handshake, Link, Want};

/// Takes everything that waits to be written.
pub(crate) fn take(exchange: &mut impl Exchange) -> Vec<u8> {
    let mut out = Vec::new();
    while exchange.want() == Want::Write {
        exchange.offering();
        let bytes = exchange.outgoing().concat();
        exchange.wrote(bytes.len());
        out.extend(bytes);
    }
    out
}

/// A link after a handshake whose INFO is this.
pub(crate) fn established_with(info: &[u8]) -> Link {
    opened(fresh(), info)
}

/// The same of another link.
pub(crate) fn established_for(link: Link) -> Link {
    opened(link, INFO)
}

fn opened(mut link: Link, info: &[u8]) -> Link {
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    handshake.received(info);
    take(&mut handshake);
    handshake.received(b"PONG\r\n");
    assert_eq!(handshake.finish(), Ok(()));
    link
}

pub(crate) fn established() -> Link {
    established_with(INFO)
}
