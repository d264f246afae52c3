//! `latent bus fetch` and `latent bus tail`.

use serde_json::json;

use super::*;

#[test]
fn fetch_begins_at_the_offset_and_ends_at_the_maximum() {
    let env = provisioned();
    let lines: String = (0..300).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    assert_eq!(publish(&env, &["one"], lines.as_bytes(), 0).len(), 300);
    let cases: [(&[&str], Vec<u64>); 6] = [
        (&[], (0..100).collect()),
        (&["--max", "0"], vec![]),
        (&["--max", "3", "--offset", "298"], vec![298, 299]),
        // More than one page.
        (&["--max", "290", "--offset", "5"], (5..295).collect()),
        (&["--offset", "300"], vec![]),
        (&["--offset", "18446744073709551615"], vec![]),
    ];
    for (arguments, expected) in cases {
        let all = ["bus", "fetch", "one", "--json"].iter().chain(arguments);
        let offsets: Vec<_> = documents(&env.run(all).with_status(0)).iter().map(|event| event["offset"].as_u64().unwrap()).collect();
        assert_eq!(offsets, expected, "{arguments:?}");
    }
}

#[test]
fn people_see_one_line_for_each_event_and_no_control_characters() {
    let env = provisioned();
    let acks = publish(&env, &["one", "--key-pointer", "/k", "--uid-pointer", "/u"], b"{\"k\":\"a\\u001b[2J\",\"u\":\"uid-1\"}\n", 0);
    assert_eq!(acks.len(), 1);
    let output = env.run(["bus", "fetch", "one"]).with_status(0);
    assert!(output.stdout.starts_with("p0 0 20") && output.stdout.contains(" a\u{fffd}[2J uid-1 {"), "{}", output.stdout);
    assert!(!output.stdout.contains('\u{1b}'));
}

#[test]
fn a_damaged_record_ends_fetch_and_names_where_to_go_on() {
    let env = provisioned();
    assert_eq!(publish(&env, &["one", "--raw-lines"], b"first record\nSECOND record\nthird record\n", 0).len(), 3);
    let folder = env.folder().join("data/topics/one");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(6).position(|window| window == b"SECOND") {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let output = env.run(["bus", "fetch", "one", "--json"]).with_status(1);
    assert_eq!(documents(&output).iter().map(|event| event["offset"].clone()).collect::<Vec<_>>(), [json!(0)]);
    let error = error_of(&output);
    assert_eq!(error["kind"], json!("unreadable"));
    assert!(error["why"].as_str().unwrap().contains("one/p0/1"), "{error}");
    assert!(error["next"].as_str().unwrap().contains("--offset 2"), "{error}");
    let rest = documents(&env.run(["bus", "fetch", "one", "--offset", "2", "--json"]).with_status(0));
    assert_eq!(values(&rest), [base64("dGhpcmQgcmVjb3Jk")]);
}

#[test]
fn tail_follows_a_node_from_the_end() {
    let env = provisioned();
    assert_eq!(publish(&env, &["one"], b"{\"n\":0}\n", 0).len(), 1);
    let node = node(&env);
    let mut from_start = Running::start(&env, &["bus", "tail", "one", "--from-start", "--json"]);
    assert_eq!(from_start.document()["value"], json!({ "n": 0 }));
    assert_eq!(publish(&env, &["one"], b"{\"n\":1}\n", 0).len(), 1);
    let event = from_start.document();
    assert_eq!((&event["topic"], &event["value"], &event["offset"]), (&json!("one"), &json!({ "n": 1 }), &json!(1)));
    assert_eq!(from_start.stop(), Some(0), "being told to stop is no failure");
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn tail_waits_for_a_node_without_holding_the_directory() {
    let env = provisioned();
    assert_eq!(publish(&env, &["in", "--key", "a"], b"{\"n\":0}\n", 0).len(), 1);
    let mut tail = Running::start(&env, &["bus", "tail", "in", "--from-start", "--json"]);
    assert_eq!(tail.document()["value"], json!({ "n": 0 }));
    // The node can start although tail was there first, and tail goes on with it.
    let first = node(&env);
    assert_eq!(publish(&env, &["in", "--key", "a"], b"{}\n{\"n\":1}\n", 0).len(), 2);
    assert_eq!((tail.document()["value"].clone(), tail.document()["value"].clone()), (json!({}), json!({ "n": 1 })));
    assert_eq!(first.stop(), Some(0));
    let second = node(&env);
    assert_eq!(publish(&env, &["in", "--key", "b"], b"{\"n\":2}\n", 0).len(), 1);
    assert_eq!(tail.document()["value"], json!({ "n": 2 }));
    assert_eq!(tail.stop(), Some(0));
    assert_eq!(second.stop(), Some(0));
}
