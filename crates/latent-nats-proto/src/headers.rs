//! The header block of a reply: its status and nothing else. Fields are tolerated whatever they hold.

const VERSION: &[u8] = b"NATS/1.0";
const END: &[u8] = b"\r\n\r\n";

/// A block that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoHeaders;

/// The status of a block, if it has one.
pub(crate) fn status(block: &[u8]) -> Result<Option<u16>, NoHeaders> {
    let rest = block.strip_prefix(VERSION).filter(|rest| rest.ends_with(END)).ok_or(NoHeaders)?;
    let line_end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or(NoHeaders)?;
    let line = rest.get(..line_end).ok_or(NoHeaders)?;
    if line.is_empty() {
        return Ok(None);
    }
    let [b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', description @ ..] = line else { return Err(NoHeaders) };
    if description.first().is_some_and(|byte| *byte != b' ') || description.iter().any(u8::is_ascii_control) {
        return Err(NoHeaders);
    }
    Ok(Some([a, b, c].into_iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_a_status_or_none_or_is_no_block() {
        type Case = (&'static [u8], Result<Option<u16>, NoHeaders>);
        let table: &[Case] = &[
            (b"NATS/1.0 503\r\n\r\n", Ok(Some(503))),
            (b"NATS/1.0 503\r\nNats-Subject: t.x\r\n\r\n", Ok(Some(503))),
            (b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 1\r\n\r\n", Ok(Some(408))),
            (b"NATS/1.0 503 \r\n\r\n", Ok(Some(503))),
            (b"NATS/1.0\r\n\r\n", Ok(None)),
            (b"NATS/1.0\r\nA: 1\r\nA: 2\r\nB: \xff\r\x00\r\n\r\n", Ok(None)),
            (b"NATS/1.0503\r\n\r\n", Err(NoHeaders)),
            (b"NATS/1.0 50\r\n\r\n", Err(NoHeaders)),
            (b"NATS/1.0 5033\r\n\r\n", Err(NoHeaders)),
            (b"NATS/1.0 +03\r\n\r\n", Err(NoHeaders)),
            (b"NATS/1.0 003\r\n\r\n", Err(NoHeaders)),
            (b"NATS/1.0  503\r\n\r\n", Err(NoHeaders)),
            (b"NATS/1.0 503 \nA: b\r\n\r\n", Err(NoHeaders)),
            (b"NATS/1.0 503\r\n", Err(NoHeaders)),
            (b"NATS/1.0 503\n\n", Err(NoHeaders)),
            (b"NATS/2.0 503\r\n\r\n", Err(NoHeaders)),
            (b"nats/1.0 503\r\n\r\n", Err(NoHeaders)),
            (b"", Err(NoHeaders)),
        ];
        for (block, expected) in table {
            assert_eq!(status(block), *expected, "{:?}", String::from_utf8_lossy(block));
        }
    }
}
