use super::*;
use crate::testing::{self, MESSAGE_ID, STREAM, SUBJECT, publication};

fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    Attributes::parse(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()).unwrap()
}

fn head(publication: &Publication<'_>) -> String {
    let mut out = Vec::new();
    publication.encode_head(b"_INBOX.LSF.i.1.2", &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_publication_is_one_hpub_with_the_expected_stream_and_the_id() {
    let headers = format!("NATS/1.0\r\nNats-Expected-Stream: {STREAM}\r\nNats-Msg-Id: {MESSAGE_ID}\r\n\r\n");
    let expected = format!("HPUB {SUBJECT} _INBOX.LSF.i.1.2 {} {}\r\n{headers}", headers.len(), headers.len() + 5);
    assert_eq!(head(&publication(b"12345")), expected);
}

#[test]
fn media_type_key_and_attributes_have_headers_and_none_can_stand_for_a_reserved_one() {
    let pairs = [("Nats-Msg-Id", "forged"), ("nats-expected-stream", "forged"), ("Lsf-Event-Key", "forged"), ("a", ""), ("b", "x: y")];
    let attributes = attributes(&pairs);
    let publication = Publication { content_type: Some("application/json"), key: Some("k-1"), attributes: &attributes, ..publication(b"") };
    let head = head(&publication);
    let (line, block) = head.split_once("\r\n").unwrap();
    let expected = format!(
        "NATS/1.0\r\nNats-Expected-Stream: {STREAM}\r\nNats-Msg-Id: {MESSAGE_ID}\r\nContent-Type: application/json\r\nLsf-Event-Key: k-1\r\n\
         Lsf-Attr-Nats-Msg-Id: forged\r\nLsf-Attr-nats-expected-stream: forged\r\nLsf-Attr-Lsf-Event-Key: forged\r\nLsf-Attr-a: \r\n\
         Lsf-Attr-b: x: y\r\n\r\n"
    );
    assert_eq!(block, expected);
    assert_eq!(header_block_bytes(&publication), block.len());
    assert!(line.ends_with(&format!(" {0} {0}", block.len())));
    let names: Vec<String> = block.lines().filter_map(|line| Some(line.split_once(": ")?.0.to_ascii_lowercase())).collect();
    for reserved in ["nats-msg-id", "nats-expected-stream", "lsf-event-key"] {
        assert_eq!(names.iter().filter(|name| *name == reserved).count(), 1, "{reserved}");
    }
}

/// A publication whose header block has so many bytes.
fn with_header_block<'a>(bytes: usize, key: &'a mut String) -> Publication<'a> {
    let empty = header_block_bytes(&Publication { key: Some(""), ..publication(b"") });
    *key = "k".repeat(bytes - empty);
    Publication { key: Some(key), ..publication(b"") }
}

#[test]
fn a_header_block_is_taken_at_its_bound_and_refused_one_beyond() {
    let mut key = String::new();
    assert_eq!(with_header_block(4_096, &mut key).check(), Ok(()));
    let mut key = String::new();
    let refused = with_header_block(4_097, &mut key).check();
    assert_eq!(refused, Err(PublishRefused::HeaderBlock { bytes: 4_097, bytes_max: 4_096 }));
}

#[test]
fn a_payload_is_taken_at_its_bound_and_refused_one_beyond() {
    assert_eq!(publication(&[0; 262_144]).check(), Ok(()));
    let refused = publication(&[0; 262_145]).check();
    assert_eq!(refused, Err(PublishRefused::Payload { bytes: 262_145, bytes_max: 262_144 }));
}

#[test]
fn the_largest_head_fits_what_is_allocated_once() {
    let (subject, stream, mut key) = ("s".repeat(128), "t".repeat(128), String::new());
    let mut link = testing::established();
    link.inbox.skip_to(u64::MAX);
    let capacity = link.head.capacity();
    let empty = header_block_bytes(&Publication { key: Some(""), expected_stream: &stream, ..publication(b"") });
    key.push_str(&"k".repeat(4_096 - empty));
    let payload = vec![0; 262_144];
    let largest = Publication { subject: &subject, expected_stream: &stream, key: Some(&key), ..publication(&payload) };
    // Eight PINGs that wait there are answered ahead of it.
    link.decoder.fill(&b"PING\r\n".repeat(8));
    assert!(crate::Publish::begin(&mut link, &largest).is_ok());
    assert_eq!(link.head.capacity(), capacity);
}

#[test]
fn nothing_that_could_shift_a_field_or_begin_a_line_is_sent() {
    let wrong_subjects = [
        "",
        "a b",
        "a\t",
        "a\n",
        "a\r\nPUB x 0\r\n\r\n",
        "a..b",
        ".a",
        "a.",
        "a.*",
        "*",
        ">",
        "a.>",
        "$JS.x",
        "_INBOX.x",
        "_inbox.x",
        "a\0",
        "é",
        "a\u{a0}b",
        "a:b",
        &"s".repeat(129),
    ];
    for subject in wrong_subjects {
        let refused = Publication { subject, ..publication(b"") }.check();
        assert_eq!(refused, Err(PublishRefused::Text { field: "subject" }), "{subject:?}");
    }
    for text in ["", "a b", "a\tb", "a\nb", "a\r\nNats-Msg-Id: x", "a\rb", "a\0b", "é", " a", "a "] {
        let fields = [
            ("expected stream", Publication { expected_stream: text, ..publication(b"") }),
            ("message id", Publication { message_id: text, ..publication(b"") }),
            ("content type", Publication { content_type: Some(text), ..publication(b"") }),
            ("key", Publication { key: Some(text), ..publication(b"") }),
        ];
        for (field, publication) in fields {
            assert_eq!(publication.check(), Err(PublishRefused::Text { field }), "{text:?}");
        }
    }
    let stream = "s".repeat(129);
    let too_long = Publication { expected_stream: &stream, ..publication(b"") };
    assert_eq!(too_long.check(), Err(PublishRefused::Text { field: "expected stream" }));
    let (subject, stream) = ("s".repeat(128), "s".repeat(128));
    assert_eq!(Publication { subject: &subject, expected_stream: &stream, ..publication(b"") }.check(), Ok(()));
}

#[test]
fn a_payload_that_looks_like_the_protocol_is_only_counted() {
    let payload = b"\r\nPUB x 0\r\n\r\nNATS/1.0\r\n\r\n";
    assert!(head(&publication(payload)).lines().next().unwrap().ends_with(&format!(" {}", head_bytes() + payload.len())));
}

fn head_bytes() -> usize {
    header_block_bytes(&publication(b""))
}
