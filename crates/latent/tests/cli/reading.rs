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
fn fetch_reads_every_partition_unless_one_is_named() {
    let env = provisioned();
    let lines: String = (0..30).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    assert_eq!(publish(&env, &["in", "--key-pointer", "/n"], lines.as_bytes(), 0).len(), 30);
    let fetch = |arguments: &[&str]| documents(&env.run(["bus", "fetch", "in", "--json"].iter().chain(arguments)).with_status(0));
    let by_partition: Vec<_> = (0..3).map(|partition| fetched(&env, "in", partition)).collect();
    assert!(by_partition.iter().all(|events| events.len() > 2), "each partition has some");
    assert_eq!(fetch(&[]), by_partition.concat());
    let second_of_each: Vec<_> = by_partition.iter().map(|events| events[1].clone()).collect();
    assert_eq!(fetch(&["--offset", "1", "--max", "1"]), second_of_each);
    assert_eq!(fetch(&["--partition", "2"]), by_partition[2]);
}

#[test]
fn people_see_text_as_text_and_machines_as_before() {
    let env = provisioned();
    assert_eq!(publish(&env, &["one", "--raw-lines", "--media-type", "text/plain"], b"gr\xc3\xbcn\n", 0).len(), 1);
    assert!(env.run(["bus", "fetch", "one"]).with_status(0).stdout.ends_with(" gr\u{fc}n\n"));
    assert_eq!(values(&fetched(&env, "one", 0)), [base64("Z3LDvG4=")]);
}

#[test]
fn people_see_one_line_for_each_event_and_no_control_characters() {
    let env = provisioned();
    let acks = publish(&env, &["one", "--key-pointer", "/k", "--uid-pointer", "/u"], b"{\"k\":\"a\\u001b[2J\",\"u\":\"uid-1\"}\n", 0);
    assert_eq!(acks.len(), 1);
    let output = env.run(["bus", "fetch", "one"]).with_status(0);
    let cells: Vec<_> = output.stdout.split_whitespace().collect();
    assert!(cells[..2] == ["p0", "0"] && cells[2].starts_with("20") && cells[3..5] == ["a\u{fffd}[2J", "uid-1"], "{cells:?}");
    assert!(cells[5].starts_with('{') && output.stdout.lines().count() == 1, "no headings without a terminal: {}", output.stdout);
    assert!(!output.stdout.contains('\u{1b}'));
}

#[test]
fn people_are_told_where_fetch_goes_on_and_machines_are_not() {
    let env = provisioned();
    let lines: String = (0..101).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    assert_eq!(publish(&env, &["one"], lines.as_bytes(), 0).len(), 101);
    let cases: [(&[&str], &str); 4] = [
        (&[], "more from offset 100: --partition 0 --offset 100, or a larger --max than 100\n"),
        (&["--offset", "1"], ""),
        (&["--max", "101"], ""),
        (&["--json"], ""),
    ];
    for (arguments, told) in cases {
        let output = env.run(["bus", "fetch", "one"].iter().chain(arguments)).with_status(0);
        assert_eq!(output.stderr, told, "{arguments:?}");
    }
}

#[test]
fn a_damaged_record_ends_its_partition_alone() {
    let env = provisioned();
    let lines: String = (0..30).map(|n| format!("{{\"n\":{n},\"marker\":\"line-{n}.\"}}\n")).collect();
    assert_eq!(publish(&env, &["in", "--key-pointer", "/n"], lines.as_bytes(), 0).len(), 30);
    let by_partition: Vec<_> = (0..3).map(|partition| fetched(&env, "in", partition)).collect();
    for partition in [0, 1] {
        let marker = by_partition[partition][1]["value"]["marker"].as_str().unwrap();
        damage(&env, "in", marker.as_bytes());
    }
    let output = env.run(["bus", "fetch", "in", "--json"]).with_status(1);
    let expected = [&by_partition[0][..1], &by_partition[1][..1], &by_partition[2][..]].concat();
    assert_eq!(documents(&output), expected);
    let errors: Vec<Value> = output.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["error"].clone()).collect();
    assert_eq!(errors.len(), 2, "one for each damaged place");
    for (partition, error) in errors.iter().enumerate() {
        assert_eq!(error["kind"], json!("unreadable"));
        assert!(error["next"].as_str().unwrap().contains(&format!("--partition {partition} --offset 2")), "{error}");
    }
}

#[test]
fn a_damaged_record_ends_fetch_and_names_where_to_go_on() {
    let env = provisioned();
    assert_eq!(publish(&env, &["one", "--raw-lines"], b"first record\nSECOND record\nthird record\n", 0).len(), 3);
    damage(&env, "one", b"SECOND");
    let output = env.run(["bus", "fetch", "one", "--json"]).with_status(1);
    assert_eq!(documents(&output).iter().map(|event| event["offset"].clone()).collect::<Vec<_>>(), [json!(0)]);
    let error = error_of(&output);
    assert_eq!(error["kind"], json!("unreadable"));
    assert!(error["why"].as_str().unwrap().contains("one/p0/1"), "{error}");
    assert!(error["next"].as_str().unwrap().contains("--partition 0 --offset 2"), "{error}");
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
fn tail_without_stored_events_says_so_to_people_alone() {
    let env = provisioned();
    let node = node(&env);
    let mut command = env.command(["bus", "tail", "one"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut tail = ChildGuard::spawn(&mut command).unwrap();
    let mut told = String::new();
    BufReader::new(tail.take_stderr().unwrap()).read_line(&mut told).unwrap();
    assert!(told.starts_with("waiting for new events of one") && told.contains("--from-start"), "{told}");
    tail.terminate().unwrap();
    assert_eq!(tail.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
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

/// As [`Running::start`], with standard error to be read.
fn tail(env: &CliEnv, arguments: &[&str]) -> (ChildGuard, BufReader<std::process::ChildStdout>, BufReader<std::process::ChildStderr>) {
    let mut command = env.command([&["bus", "tail"], arguments].concat());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ChildGuard::spawn(&mut command).unwrap();
    let (stdout, stderr) = (child.take_stdout().unwrap(), child.take_stderr().unwrap());
    (child, BufReader::new(stdout), BufReader::new(stderr))
}

fn next_document(reader: &mut impl std::io::BufRead) -> Value {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
}

#[test]
fn tail_tells_of_a_damaged_record_and_goes_on_after_it() {
    let env = provisioned();
    assert_eq!(publish(&env, &["one", "--raw-lines"], b"first record\nSECOND record\nthird record\n", 0).len(), 3);
    damage(&env, "one", b"SECOND");
    let node = node(&env);
    let (mut child, mut stdout, mut stderr) = tail(&env, &["one", "--from", "0", "--json"]);
    assert_eq!(next_document(&mut stdout)["offset"], json!(0));
    let error = next_document(&mut stderr)["error"].clone();
    assert_eq!((&error["kind"], &error["continue_at"]), (&json!("unreadable"), &json!(2)), "{error}");
    assert_eq!(next_document(&mut stdout)["offset"], json!(2));
    assert_eq!(publish(&env, &["one"], b"{}\n", 0).len(), 1);
    assert_eq!(next_document(&mut stdout)["offset"], json!(3));
    child.terminate().unwrap();
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn tail_begins_at_the_offset_it_is_given_in_each_partition() {
    let env = provisioned();
    let lines: String = (0..30).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    assert_eq!(publish(&env, &["in", "--key-pointer", "/n"], lines.as_bytes(), 0).len(), 30);
    let expected: usize = (0..3).map(|partition| fetched(&env, "in", partition).len() - 2).sum();
    let (mut child, mut stdout, _stderr) = tail(&env, &["in", "--from", "2", "--json"]);
    for _ in 0..expected {
        assert!(next_document(&mut stdout)["offset"].as_u64().unwrap() >= 2);
    }
    child.terminate().unwrap();
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
    let both = env.run(["bus", "tail", "in", "--from", "2", "--from-start", "--json"]).with_status(2);
    assert_eq!(error_of(&both)["kind"], json!("usage"));
}

#[test]
fn an_interrupt_ends_tail_in_order() {
    let env = provisioned();
    let node = node(&env);
    let (mut child, _stdout, mut stderr) = tail(&env, &["one"]);
    let mut told = String::new();
    stderr.read_line(&mut told).unwrap();
    assert!(told.starts_with("waiting for new events"), "{told}");
    let interrupted = std::process::Command::new("kill").args(["-INT", &child.pid().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn tail_ends_when_its_reader_goes_away_although_nothing_comes() {
    let env = provisioned();
    let node = node(&env);
    let (mut child, stdout, mut stderr) = tail(&env, &["one"]);
    stderr.read_line(&mut String::new()).unwrap();
    drop(stdout);
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn a_reader_that_does_not_read_keeps_nobody_from_ending_tail() {
    let env = provisioned();
    let lines: String = (0..40).map(|n| format!("{{\"n\":{n},\"text\":\"{}\"}}\n", "x".repeat(10_000))).collect();
    assert_eq!(publish(&env, &["one"], lines.as_bytes(), 0).len(), 40);
    let node = node(&env);
    // More than a pipe holds.
    let (mut child, mut stdout, _stderr) = tail(&env, &["one", "--from-start", "--json"]);
    assert_eq!(next_document(&mut stdout)["offset"], json!(0));
    child.terminate().unwrap();
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn tail_passes_what_retention_took_and_says_so() {
    let env = provisioned();
    let event = |offset: u64| {
        json!({
            "partition": 0, "offset": offset, "uid": format!("u{offset}"), "key": "", "media_type": "application/json", "attributes": [],
            "payload": "e30=", "stored_at": 1,
        })
    };
    // Its first offset is 4 when tail looks, and moves from 5 to 8 while it reads.
    scripted_node(&env, move |request| {
        let offset = request["fetch"]["offset"].as_u64();
        Some(match (request, offset) {
            (_, Some(0)) => {
                let message = "record one/p0/0 is damaged and kept as evidence; continue at offset 1 to read on";
                json!({ "fault": { "kind": "unreadable", "permanent": false, "uncertain": false, "message": message, "continue_at": 1 } })
            }
            (_, Some(4)) => json!({ "events": [event(4)] }),
            (_, Some(5)) => json!({ "events": [event(8)] }),
            (_, Some(_)) => json!({ "events": [] }),
            (request, None) if request.get("bounds").is_some() => json!({ "bounds": { "first": 4, "next": 9 } }),
            _ => json!({ "partitions": 1 }),
        })
    });
    let (mut child, mut stdout, mut stderr) = tail(&env, &["one", "--from", "0", "--json"]);
    let gap = |note: &Value| (note["topic"].clone(), note["partition"].clone(), note["gone_from"].clone(), note["next"].clone());
    assert_eq!(gap(&next_document(&mut stderr)), (json!("one"), json!(0), json!(0), json!(4)));
    assert_eq!(next_document(&mut stdout)["offset"], json!(4));
    assert_eq!(gap(&next_document(&mut stderr)), (json!("one"), json!(0), json!(5), json!(8)));
    assert_eq!(next_document(&mut stdout)["offset"], json!(8));
    child.terminate().unwrap();
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
}
