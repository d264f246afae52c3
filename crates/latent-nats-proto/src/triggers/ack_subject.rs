//! The subject that settles a message, by its closed grammar (T-042). Nothing is ever published to another.

/// What an acknowledgement subject says of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckNumbers {
    /// How often it was delivered, this time included; positive.
    pub deliveries: u64,
    /// Its sequence in the stream; positive.
    pub stream_sequence: u64,
    /// Its sequence for the consumer; positive.
    pub consumer_sequence: u64,
    /// When the stream stored it, in nanoseconds of Unix time.
    pub stored_unix_nanos: u64,
    /// Messages behind it.
    pub pending: u64,
}

/// A reply subject that settles nothing of this consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message's reply subject is not an acknowledgement of this consumer")]
pub struct MalformedAckSubject;

/// Tokens of the short form; the long one has two more, and further ones may trail.
const SHORT_TOKENS: usize = 9;

/// Reads `$JS.ACK.<stream>.<consumer>.<five numbers>`, or the form with `_` for no domain and a hash of the account before the stream,
/// behind which more may trail. How many tokens there are says which it is, as it does for the broker: a stream may be called `_`.
pub(crate) fn read(subject: &[u8], stream: &str, consumer: &str) -> Result<AckNumbers, MalformedAckSubject> {
    match parse(subject)? {
        Parsed { stream: of, consumer: by, numbers } if of == stream && by == consumer => Ok(numbers),
        _ => Err(MalformedAckSubject),
    }
}

/// An acknowledgement subject of whatever consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parsed<'a> {
    pub(crate) stream: &'a str,
    pub(crate) consumer: &'a str,
    pub(crate) numbers: AckNumbers,
}

/// The same without knowing whose it is.
pub(crate) fn parse(subject: &[u8]) -> Result<Parsed<'_>, MalformedAckSubject> {
    let subject = std::str::from_utf8(subject).map_err(|_| MalformedAckSubject)?;
    let mut tokens = subject.split('.');
    if subject.bytes().any(|byte| !byte.is_ascii_graphic()) || tokens.clone().any(str::is_empty) {
        return Err(MalformedAckSubject);
    }
    let count = tokens.clone().count();
    let mut next = || tokens.next().ok_or(MalformedAckSubject);
    if (next()?, next()?) != ("$JS", "ACK") {
        return Err(MalformedAckSubject);
    }
    match count {
        SHORT_TOKENS => (),
        // No domain, whatever account.
        count if count >= SHORT_TOKENS + 2 && next()? == "_" => drop(next()?),
        _ => return Err(MalformedAckSubject),
    }
    let (stream, consumer) = (next()?, next()?);
    let mut number = || next().and_then(plain_number);
    let (deliveries, stream_sequence, consumer_sequence) = (number()?, number()?, number()?);
    let (stored_unix_nanos, pending) = (number()?, number()?);
    if deliveries == 0 || stream_sequence == 0 || consumer_sequence == 0 {
        return Err(MalformedAckSubject);
    }
    Ok(Parsed { stream, consumer, numbers: AckNumbers { deliveries, stream_sequence, consumer_sequence, stored_unix_nanos, pending } })
}

fn plain_number(digits: &str) -> Result<u64, MalformedAckSubject> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits.len() == 1 || !digits.starts_with('0'));
    if is_plain { digits.parse().map_err(|_| MalformedAckSubject) } else { Err(MalformedAckSubject) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_nothing_else_is() {
        let numbers = AckNumbers {
            deliveries: 1,
            stream_sequence: 22,
            consumer_sequence: 3,
            stored_unix_nanos: 1_700_000_000_000_000_000,
            pending: 0,
        };
        let tail = "1.22.3.1700000000000000000.0";
        let good =
            [format!("$JS.ACK.ORD.c1.{tail}"), format!("$JS.ACK._.Ab3.ORD.c1.{tail}"), format!("$JS.ACK._.Ab3.ORD.c1.{tail}.xyz.more")];
        for subject in good {
            assert_eq!(read(subject.as_bytes(), "ORD", "c1"), Ok(numbers), "{subject}");
        }
        let wrong = [
            format!("$JS.ACK.ORD.c1.{tail}.more"),
            format!("$JS.ACK.hub.Ab3.ORD.c1.{tail}"),
            format!("$JS.ACK.OTHER.c1.{tail}"),
            format!("$JS.ACK.ORD.c2.{tail}"),
            format!("$JS.ACK._.ORD.c1.{tail}"),
            format!("$JS.ACK.ORD.ORD.c1.{tail}"),
            "$JS.ACK._.Ab3.ORD.c1.1.22.3.1".to_owned(),
            format!("$JS.FC.ORD.c1.{tail}"),
            format!("$JS.ACK..ORD.c1.{tail}"),
            format!("$js.ack.ORD.c1.{tail}"),
            format!("$JS.ACK.ORD.c1.{tail} "),
            "$JS.ACK.ORD.c1.0.22.3.1.0".to_owned(),
            "$JS.ACK.ORD.c1.1.0.3.1.0".to_owned(),
            "$JS.ACK.ORD.c1.1.22.0.1.0".to_owned(),
            "$JS.ACK.ORD.c1.01.22.3.1.0".to_owned(),
            "$JS.ACK.ORD.c1.-1.22.3.1.0".to_owned(),
            "$JS.ACK.ORD.c1.1.18446744073709551616.3.1.0".to_owned(),
            "$JS.ACK.ORD.c1.1.22.3.1".to_owned(),
            "$JS.ACK.ORD.c1.1.22.3.1.".to_owned(),
            "_INBOX.x".to_owned(),
            "orders.new".to_owned(),
            String::new(),
        ];
        for subject in wrong {
            assert_eq!(read(subject.as_bytes(), "ORD", "c1"), Err(MalformedAckSubject), "{subject}");
        }
        assert_eq!(read(b"$JS.ACK.ORD.c1.1.1.1.1.\xff", "ORD", "c1"), Err(MalformedAckSubject));
        // BUG-42: names are names, also where they look like the mark of the long form.
        for subject in [format!("$JS.ACK._.c1.{tail}"), format!("$JS.ACK._.hash._.c1.{tail}.x")] {
            assert_eq!(read(subject.as_bytes(), "_", "c1"), Ok(numbers), "{subject}");
        }
        assert_eq!(read(format!("$JS.ACK._._.{tail}").as_bytes(), "_", "_"), Ok(numbers));
    }
}
