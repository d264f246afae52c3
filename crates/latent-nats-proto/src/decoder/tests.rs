use super::*;

/// A frame that borrows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owned {
    Info(Vec<u8>),
    Message { subject: Vec<u8>, subscription: Vec<u8>, headers: Option<Vec<u8>>, payload: Vec<u8> },
    Skipped { subject: Vec<u8>, reply: Option<Vec<u8>>, header_bytes: usize, payload_bytes: usize },
    Ping,
    Pong,
    Ok,
    Error(Vec<u8>),
}

fn owned(frame: Frame<'_>) -> Owned {
    match frame {
        Frame::Info(text) => Owned::Info(text.into()),
        Frame::Message(Message { subject, subscription, headers, payload, .. }) => Owned::Message {
            subject: subject.into(),
            subscription: subscription.into(),
            headers: headers.map(Into::into),
            payload: payload.into(),
        },
        Frame::Skipped(Skipped { subject, reply, header_bytes, payload_bytes, .. }) => {
            Owned::Skipped { subject: subject.into(), reply: reply.map(Into::into), header_bytes, payload_bytes }
        }
        Frame::Ping => Owned::Ping,
        Frame::Pong => Owned::Pong,
        Frame::Ok => Owned::Ok,
        Frame::Error(text) => Owned::Error(text.into()),
    }
}

/// Every frame of the input, given in these pieces, and the error that ended them.
fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Owned>, Option<FrameError>) {
    decode_with(Decoder::for_receipts(), pieces)
}

fn decode_with<'a>(mut decoder: Decoder, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Owned>, Option<FrameError>) {
    let mut frames = Vec::new();
    for piece in pieces {
        let mut rest = piece;
        loop {
            let taken = decoder.fill(rest);
            rest = &rest[taken..];
            loop {
                match decoder.next() {
                    Ok(Some(frame)) => frames.push(owned(frame)),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
            if rest.is_empty() {
                break;
            }
            assert!(taken > 0, "a full buffer without a frame");
        }
    }
    (frames, None)
}

fn one(input: &[u8]) -> Result<Owned, FrameError> {
    match decode([input]) {
        (mut frames, None) if frames.len() == 1 => Ok(frames.remove(0)),
        (frames, Some(error)) if frames.is_empty() => Err(error),
        other => panic!("{other:?}"),
    }
}

fn plain(subject: &str, payload: &str) -> Owned {
    Owned::Message { subject: subject.into(), subscription: b"1".to_vec(), headers: None, payload: payload.into() }
}

#[test]
fn frames_of_every_kind_are_read_and_their_names_have_no_case() {
    let with_headers = Owned::Message {
        subject: b"a.b".to_vec(),
        subscription: b"1".to_vec(),
        headers: Some(b"NATS/1.0\r\n\r\n".to_vec()),
        payload: b"xy".to_vec(),
    };
    let table: &[(&[u8], Owned)] = &[
        (b"PING\r\n", Owned::Ping),
        (b"pInG \t\r\n", Owned::Ping),
        (b"PONG\r\n", Owned::Pong),
        (b"+ok\r\n", Owned::Ok),
        (b"-ERR 'x y'\r\n", Owned::Error(b"'x y'".to_vec())),
        (b"-err\r\n", Owned::Error(Vec::new())),
        (b"INFO  {} \r\n", Owned::Info(b"{}".to_vec())),
        (b"MSG a.b 1 0\r\n\r\n", plain("a.b", "")),
        (b"msg a.b 1 re.ply 2\r\nxy\r\n", plain("a.b", "xy")),
        (b"MSG\ta.b \t 1\t4\r\n\r\n\r\n\r\n", plain("a.b", "\r\n\r\n")),
        (b"HMSG a.b 1 12 14\r\nNATS/1.0\r\n\r\nxy\r\n", with_headers.clone()),
        (b"hmsg a.b 1 r 12 14\r\nNATS/1.0\r\n\r\nxy\r\n", with_headers),
    ];
    for (input, expected) in table {
        assert_eq!(one(input).as_ref(), Ok(expected), "{}", String::from_utf8_lossy(input));
    }
}

#[test]
fn what_is_no_frame_is_malformed() {
    let inputs: [&[u8]; 30] = [
        b"PINGX\r\n",
        b"PING x\r\n",
        b"PING\n",
        b"\n",
        b"\r\n",
        b" PING\r\n",
        b"PUB a 1\r\n",
        b"OK\r\n",
        b"-ERR'x'\r\n",
        b"MSG\r\n",
        b"MSG a 1\r\n",
        b"MSG a 1 r x 2\r\n",
        b"MSG a 1 -1\r\n",
        b"MSG a 1 +1\r\n",
        b"MSG a 1 01\r\n",
        b"MSG a 1 1.0\r\n",
        b"MSG a 1 0x1\r\n",
        b"MSG a 1 18446744073709551616\r\n",
        b"MSG a 1 99999999999999999999999999999999\r\n",
        b"MSG a 1 2\r\nxyz\r\n",
        b"MSG a 1 2\r\nx\r\n\r\n",
        b"MSG a 1 2\r\nxy\n\r\n",
        b"HMSG a 1 2\r\n",
        b"HMSG a 1 r 1 2 3\r\n",
        b"HMSG a 1 13 12\r\nNATS/1.0\r\n\r\n\r\n",
        b"HMSG a 1 x 12\r\n",
        b"HMSG a 1 18446744073709551615 18446744073709551614\r\n",
        b"\xff\xfe\r\n",
        b"GET / HTTP/1.1\r\n",
        b"\x15\x03\x01\x00\x02\x02\n",
    ];
    for input in inputs {
        assert_eq!(one(input), Err(FrameError::Malformed), "{}", String::from_utf8_lossy(input));
    }
}

/// A line of so many bytes before its end.
fn info_line(bytes: usize) -> Vec<u8> {
    let mut line = b"INFO ".to_vec();
    line.resize(bytes, b'x');
    line.extend(b"\r\n");
    line
}

#[test]
fn a_control_line_is_taken_at_its_bound_and_refused_one_beyond_however_it_is_cut() {
    for bytes in [1_023, 1_024, 1_025, 4_097, 8_191, 8_192, 8_193] {
        let line = info_line(bytes);
        let expected =
            if bytes <= 8_192 { (vec![Owned::Info(vec![b'x'; bytes - 5])], None) } else { (Vec::new(), Some(FrameError::LineTooLong)) };
        assert_eq!(decode([&*line]), expected, "{bytes}");
        assert_eq!(decode(line.chunks(1)), expected, "{bytes}, byte by byte");
        for cut in [bytes - 1, bytes, bytes + 1] {
            assert_eq!(decode([&line[..cut], &line[cut..]]), expected, "{bytes} cut at {cut}");
        }
    }
}

#[test]
fn a_line_without_an_end_is_refused_within_the_bound() {
    let mut decoder = Decoder::for_receipts();
    let mut sent = 0;
    let error = loop {
        sent += decoder.fill(&[b'x'; 1_000]);
        if let Err(error) = decoder.next() {
            break error;
        }
    };
    assert_eq!(error, FrameError::LineTooLong);
    assert!(sent <= 9_000, "{sent}");
}

#[test]
fn a_message_is_taken_at_its_bound_and_refused_before_its_body_one_beyond() {
    let body = "b".repeat(4_096);
    assert_eq!(one(format!("MSG a 1 4096\r\n{body}\r\n").as_bytes()), Ok(plain("a", &body)));
    for announced in ["4097", "1000000", "18446744073709551615"] {
        assert_eq!(one(format!("MSG a 1 {announced}\r\n").as_bytes()), Err(FrameError::Oversized), "{announced}");
        assert_eq!(one(format!("HMSG a 1 12 {announced}\r\n").as_bytes()), Err(FrameError::Oversized), "{announced}");
    }
}

#[test]
fn a_longest_line_and_a_largest_body_fit_together() {
    let subject = "s".repeat(8_192 - "MSG  1 4096".len());
    let body = "b".repeat(4_096);
    let input = format!("MSG {subject} 1 4096\r\n{body}\r\nPING\r\n");
    for pieces in [1, 7, 4_096, input.len()] {
        assert_eq!(decode(input.as_bytes().chunks(pieces)), (vec![plain(&subject, &body), Owned::Ping], None), "{pieces}");
    }
}

#[test]
fn any_split_makes_the_same_frames() {
    let input = b"PING\r\nMSG a.b 1 5\r\n\r\nPI\n\r\n+OK\r\nHMSG a 1 12 13\r\nNATS/1.0\r\n\r\nx\r\n-ERR 'x'\r\nPONG\r\nNO\r\nPING\r\n";
    let whole = decode([&input[..]]);
    assert_eq!((whole.0.len(), whole.1), (6, Some(FrameError::Malformed)));
    for first in 0..=input.len() {
        for second in first..=input.len() {
            assert_eq!(decode([&input[..first], &input[first..second], &input[second..]]), whole, "{first} {second}");
        }
    }
}

#[test]
fn memory_does_not_grow_and_what_is_left_ends_with_a_line_or_does_not() {
    let mut decoder = Decoder::for_receipts();
    let capacity = decoder.buffer.len();
    for _ in 0..10_000 {
        decoder.fill(b"PING\r\nPING\r\n+OK\r");
        assert!(!decoder.ends_with_line() && decoder.is_within_frame());
        decoder.fill(b"\n");
        assert!(decoder.ends_with_line());
        while let Ok(Some(_)) = decoder.next() {}
        assert!(decoder.ends_with_line() && !decoder.is_within_frame());
    }
    decoder.fill(b"MSG a 1 4\r\n");
    assert!(matches!(decoder.next(), Ok(None)) && !decoder.ends_with_line());
    assert_eq!(decoder.buffer.len(), capacity);
}

#[test]
fn numbers_have_their_digits() {
    for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
        let (digits, start) = decimal(number);
        assert_eq!(std::str::from_utf8(&digits[start..]).unwrap(), number.to_string());
    }
}

#[test]
fn a_message_that_is_too_large_is_let_go_by_when_the_decoder_is_told_to() {
    let skipped = |header_bytes: usize, payload_bytes: usize| Owned::Skipped {
        subject: b"a.b".to_vec(),
        reply: Some(b"r".to_vec()),
        header_bytes,
        payload_bytes,
    };
    for (bytes, header_bytes) in [(10, 0), (11, 0), (4_000, 0), (100_000, 0), (11, 3), (30_000, 30_000)] {
        let name = if header_bytes > 0 { format!("HMSG a.b 1 r {header_bytes}") } else { "MSG a.b 1 r".to_owned() };
        // Line ends and frames inside of what goes by are nothing.
        let body: Vec<u8> = b"\r\nPING\r\n".iter().copied().cycle().take(bytes).collect();
        let input = [b"PING\r\n", format!("{name} {bytes}\r\n").as_bytes(), &body, b"\r\nMSG c 1 2\r\nxy\r\nPONG\r\n"].concat();
        let read = if bytes > 10 {
            skipped(header_bytes, bytes - header_bytes)
        } else {
            Owned::Message { subject: b"a.b".to_vec(), subscription: b"1".to_vec(), headers: None, payload: body }
        };
        let expected = vec![Owned::Ping, read, plain("c", "xy"), Owned::Pong];
        for piece in [1, 2, 3, 1_000, 8_192, usize::MAX] {
            let (frames, error) = decode_with(Decoder::skipping(10), input.chunks(piece));
            assert_eq!((frames, error), (expected.clone(), None), "{bytes} in pieces of {piece}");
        }
    }
}

#[test]
fn what_is_let_go_by_has_its_line_end_and_a_bound() {
    let decode = |input: &[u8]| decode_with(Decoder::skipping(10), [input]).1;
    assert_eq!(decode(&[&b"MSG a 1 11\r\n"[..], &[b'x'; 13]].concat()), Some(FrameError::Malformed));
    assert_eq!(decode(&[&b"MSG a 1 11\r\n"[..], &[b'x'; 11], b"\r"].concat()), None);
    let line = |bytes: u64| format!("MSG a 1 {bytes}\r\n").into_bytes();
    assert_eq!(decode(&line(SKIPPED_MESSAGE_BYTES.max)), None);
    assert_eq!(decode(&line(SKIPPED_MESSAGE_BYTES.max + 1)), Some(FrameError::Oversized));
}
