use super::*;

const STREAM: &str = "ORD";

fn stored(sequence: u64, duplicate: bool) -> Evidence {
    Evidence::Stored { sequence, duplicate }
}

fn rejected(code: u64, err_code: u64) -> Evidence {
    Evidence::Rejected { code: Some(code), err_code: Some(err_code) }
}

fn check(table: &[(&str, Evidence)]) {
    for (body, expected) in table {
        assert_eq!(read(body.as_bytes(), STREAM), *expected, "{body}");
    }
}

#[test]
fn the_answers_of_the_pinned_broker_are_read() {
    check(&[
        (r#"{"stream":"ORD","seq":1}"#, stored(1, false)),
        (r#"{"stream":"ORD","seq":1,"duplicate": true}"#, stored(1, true)),
        (r#"{"stream":"ORD","seq":18446744073709551615}"#, stored(u64::MAX, false)),
        (r#"{"stream":"ORD","domain":"hub","seq":2,"duplicate":false}"#, stored(2, false)),
        (
            r#"{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},"stream":"ORD","seq":0}"#,
            rejected(400, 10_060),
        ),
        (r#"{"error":{"code":400,"err_code":10054,"description":"message size exceeds"},"stream":"ORD","seq":0}"#, rejected(400, 10_054)),
        (
            r#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"ORD","seq":0}"#,
            rejected(503, 10_077),
        ),
        (r#"{"error":{"code":400,"err_code":10060}}"#, rejected(400, 10_060)),
    ]);
}

#[test]
fn a_receipt_needs_the_stream_and_a_positive_integer_sequence() {
    use Evidence::{MalformedReceipt as Malformed, WrongStream};
    check(&[
        (r#"{"stream":"ORD","seq":0}"#, Malformed),
        (r#"{"stream":"ORD","seq":0,"duplicate":true}"#, Malformed),
        (r#"{"stream":"ORD"}"#, Malformed),
        (r#"{"seq":1}"#, Malformed),
        (r#"{}"#, Malformed),
        (r#"{"stream":"ORD","seq":-1}"#, Malformed),
        (r#"{"stream":"ORD","seq":1.0}"#, Malformed),
        (r#"{"stream":"ORD","seq":1e0}"#, Malformed),
        (r#"{"stream":"ORD","seq":01}"#, Malformed),
        (r#"{"stream":"ORD","seq":+1}"#, Malformed),
        (r#"{"stream":"ORD","seq":"1"}"#, Malformed),
        (r#"{"stream":"ORD","seq":true}"#, Malformed),
        (r#"{"stream":"ORD","seq":null}"#, Malformed),
        (r#"{"stream":"ORD","seq":[1]}"#, Malformed),
        (r#"{"stream":"ORD","seq":18446744073709551616}"#, Malformed),
        (r#"{"stream":"ORD","Seq":1}"#, Malformed),
        (r#"{"stream":7,"seq":1}"#, Malformed),
        (r#"{"stream":null,"seq":1}"#, Malformed),
        (r#"{"stream":"OR","seq":1}"#, WrongStream),
        (r#"{"stream":"ORD2","seq":1}"#, WrongStream),
        (r#"{"stream":"ord","seq":1}"#, WrongStream),
        (r#"{"stream":"","seq":1}"#, WrongStream),
        (r#"{"stream":"ORD\u0000","seq":1}"#, WrongStream),
        (r#"{"stream":"\u004fRD","seq":1}"#, stored(1, false)),
        (r#"{"stream":"ORD","seq":1,"duplicate":1}"#, Malformed),
        (r#"{"stream":"ORD","seq":1,"duplicate":"true"}"#, Malformed),
        (r#"{"stream":"ORD","seq":1,"duplicate":null}"#, Malformed),
        (r#"{"stream":"ORD","seq":1,"domain":7}"#, Malformed),
    ]);
}

#[test]
fn an_error_beside_a_stored_sequence_or_another_stream_is_no_refusal() {
    use Evidence::{MalformedReceipt as Malformed, WrongStream};
    let error = r#""error":{"code":400,"err_code":10060}"#;
    let text = |rest: &str| format!("{{{error}{rest}}}");
    let cases = [
        (text(""), rejected(400, 10_060)),
        (text(r#","seq":0"#), rejected(400, 10_060)),
        (text(r#","seq":0,"duplicate":false"#), rejected(400, 10_060)),
        (text(r#","seq":1"#), Malformed),
        (text(r#","stream":"ORD","seq":1"#), Malformed),
        (text(r#","seq":0,"duplicate":true"#), Malformed),
        // The stream that refuses names itself.
        (text(r#","stream":"OTHER","seq":0"#), rejected(400, 10_060)),
        (text(r#","stream":"OTHER","seq":1"#), Malformed),
        (r#"{"error":{"code":400,"err_code":10054},"stream":"OTHER","seq":0}"#.to_owned(), WrongStream),
        (r#"{"error":{"code":503,"err_code":10077},"stream":"OTHER","seq":0}"#.to_owned(), WrongStream),
        (r#"{"error":{"code":401,"err_code":10060},"stream":"OTHER","seq":0}"#.to_owned(), WrongStream),
        (r#"{"error":{"err_code":10060},"stream":"OTHER","seq":0}"#.to_owned(), WrongStream),
        (text(r#","error":{"code":400,"err_code":10060}"#), Malformed),
        (r#"{"error":null,"stream":"ORD","seq":1}"#.to_owned(), Malformed),
        (r#"{"error":"no","stream":"ORD","seq":0}"#.to_owned(), Malformed),
        (r#"{"error":[],"stream":"ORD","seq":0}"#.to_owned(), Malformed),
        (r#"{"error":{"code":"400","err_code":10060}}"#.to_owned(), Malformed),
        (r#"{"error":{"code":400.0,"err_code":10060}}"#.to_owned(), Malformed),
        (r#"{"error":{"code":400,"err_code":10060,"description":7}}"#.to_owned(), Malformed),
        (r#"{"error":{"code":400,"code":400,"err_code":10060}}"#.to_owned(), Malformed),
        (r#"{"error":{}}"#.to_owned(), Evidence::Rejected { code: None, err_code: None }),
        (r#"{"error":{"code":400}}"#.to_owned(), Evidence::Rejected { code: Some(400), err_code: None }),
        (r#"{"error":{"err_code":10060}}"#.to_owned(), Evidence::Rejected { code: None, err_code: Some(10_060) }),
    ];
    for (body, expected) in cases {
        assert_eq!(read(body.as_bytes(), STREAM), expected, "{body}");
    }
}

#[test]
fn names_that_repeat_and_bytes_that_trail_are_refused() {
    let refused = [
        r#"{"stream":"ORD","seq":1,"seq":1}"#,
        r#"{"stream":"ORD","seq":1,"s\u0065q":1}"#,
        r#"{"stream":"ORD","seq":1,"x":1,"x":2}"#,
        r#"{"stream":"ORD","seq":1,"\u0078":1,"x":2}"#,
        r#"{"stream":"ORD","seq":1,"\ud83d\ude00":1,"😀":2}"#,
        r#"{"stream":"ORD","seq":1,"a\/b":1,"a/b":2}"#,
        r#"{"stream":"ORD","seq":1,"x":{"a":1,"a":1}}"#,
        r#"{"stream":"ORD","seq":1,"x":[{"b":{"a":1,"\u0061":1}}]}"#,
        r#"{"stream":"ORD","seq":1}{}"#,
        r#"{"stream":"ORD","seq":1} x"#,
        "{\"stream\":\"ORD\",\"seq\":1}\0",
        r#"{"stream":"ORD","seq":1}}"#,
        r#"{"stream":"ORD","seq":1,}"#,
        r#"{"stream":"ORD","seq":1"#,
        r#"{"stream":"ORD" "seq":1}"#,
        r#"{"stream":"ORD","seq":1,"x":tru}"#,
        r#"{"stream":"ORD","seq":1,"x":.5}"#,
        r#"{"stream":"ORD","seq":1,"x":1.}"#,
        r#"{"stream":"ORD","seq":1,"x":1e}"#,
        r#"{"stream":"ORD","seq":1,"x":-}"#,
        r#"{"stream":"ORD","seq":1,"x":[1,]}"#,
        r#"{"stream":"ORD","seq":1,"x":[}]}"#,
        r#"{"stream":"ORD","seq":1,"x":"\x"}"#,
        r#"{"stream":"ORD","seq":1,"x":"\ud800"}"#,
        r#"{"stream":"ORD","seq":1,"x":"\udc00\ud800"}"#,
        r#"{"stream":"ORD","seq":1,"x":"\u12g4"}"#,
        "{\"stream\":\"ORD\",\"seq\":1,\"x\":\"a\nb\"}",
        r#"[{"stream":"ORD","seq":1}]"#,
        r#""ORD""#,
        "",
        " ",
        "+OK",
        "\u{feff}{\"stream\":\"ORD\",\"seq\":1}",
    ];
    for body in refused {
        assert_eq!(read(body.as_bytes(), STREAM), Evidence::MalformedReceipt, "{body}");
    }
    assert_eq!(read(b"{\"stream\":\"ORD\",\"seq\":1,\"x\":\"\xff\"}", STREAM), Evidence::MalformedReceipt);
}

#[test]
fn fields_that_are_not_known_are_tolerated() {
    check(&[
        (r#" { "seq" : 7 , "stream" : "ORD" , "val" : "12" , "batch" : {"id":"a","n":[1,-2.5e+3,null]} } "#, stored(7, false)),
        (r#"{"type":"io.nats.jetstream.api.v1.pub_ack_response","stream":"ORD","seq":7,"x":{},"y":[]}"#, stored(7, false)),
        (r#"{"x":{"stream":"OTHER","seq":9,"error":{}},"stream":"ORD","seq":7}"#, stored(7, false)),
    ]);
}

#[test]
fn eight_levels_are_read_and_nine_are_not() {
    for (levels, expected) in [(8, stored(1, false)), (9, Evidence::MalformedReceipt)] {
        let inner = levels - 1;
        let arrays = format!(r#"{{"stream":"ORD","seq":1,"x":{}{}}}"#, "[".repeat(inner), "]".repeat(inner));
        let objects = format!(r#"{{"stream":"ORD","seq":1,"x":{}1{}}}"#, r#"{"a":"#.repeat(inner), "}".repeat(inner));
        for body in [arrays, objects] {
            assert_eq!(read(body.as_bytes(), STREAM), expected, "{body}");
        }
    }
    let deep = format!(r#"{{"stream":"ORD","seq":1,"x":{}"#, "[".repeat(4_000));
    assert_eq!(read(deep.as_bytes(), STREAM), Evidence::MalformedReceipt);
}

#[test]
fn sixty_four_fields_are_read_and_sixty_five_are_not() {
    for (fields, expected) in [(64, stored(1, false)), (65, Evidence::MalformedReceipt)] {
        let more: String = (2..fields).map(|n| format!(r#","f{n}":{n}"#)).collect();
        assert_eq!(read(format!(r#"{{"stream":"ORD","seq":1{more}}}"#).as_bytes(), STREAM), expected, "{fields}");
        let nested: String = (1..fields).map(|n| format!(r#","f{n}":{n}"#)).collect();
        let body = format!(r#"{{"stream":"ORD","seq":1,"x":{{"f0":0{nested}}}}}"#);
        assert_eq!(read(body.as_bytes(), STREAM), expected, "{fields} nested");
    }
}
