//! `latent bus publish`: every mistake of a file, and files published again.

use serde_json::json;

use super::*;

/// `offset`, `duplicate`, or line and kind of what was refused.
fn outcomes(documents: &[Value]) -> Vec<String> {
    let outcome = |document: &Value| match document.get("error") {
        Some(error) => format!(
            "line {}: {} permanent={} uncertain={}",
            document["line"],
            error["kind"].as_str().unwrap_or_default(),
            error["permanent"],
            error["uncertain"]
        ),
        None => format!("{} duplicate={}", document["offset"], document["duplicate"]),
    };
    documents.iter().map(outcome).collect()
}

fn every_mistake() -> Vec<u8> {
    let mut file = b"{\"k\":\"a\"}\n\n  \n{\"k\":1}\nnot json\n{\"k\":\"a\"\n{\"k\":null}\n{}\n\"\xff\"\n".to_vec();
    file.extend_from_slice(format!("{{\"k\":\"{}\"}}\n", "x".repeat(1_025)).as_bytes());
    file.extend_from_slice(format!("{{\"k\":\"long\",\"p\":\"{}\"}}\n", "x".repeat(600_000)).as_bytes());
    file.extend_from_slice(b"{\"k\":\"last\"}");
    file
}

#[test]
fn every_mistake_of_a_file_is_told_with_its_line() {
    let env = provisioned();
    let documents = publish(&env, &["one", "--key-pointer", "/k"], &every_mistake(), 1);
    let refused = |line: u64, kind: &str| format!("line {line}: {kind} permanent=true uncertain=false");
    let expected = [
        "0 duplicate=false".to_owned(),
        "1 duplicate=false".to_owned(),
        refused(5, "line-not-json"),
        refused(6, "line-not-json"),
        refused(7, "line-wrong-type"),
        refused(8, "line-missing-value"),
        refused(9, "line-not-json"),
        refused(10, "rejected"),
        refused(11, "line-too-long"),
        "2 duplicate=false".to_owned(),
    ];
    assert_eq!(outcomes(&documents), expected);
    let error = &documents[2]["error"];
    let fields: Vec<_> = error.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["kind", "message", "permanent", "uncertain"]);
    let keys: Vec<_> = fetched(&env, "one", 0).iter().map(|event| event["key"].clone()).collect();
    assert_eq!(keys, [json!("a"), json!("1"), json!("last")]);
}

#[test]
fn skipped_lines_are_told_and_do_not_count() {
    let env = provisioned();
    let arguments = ["bus", "publish", "one", "--file", "-", "--key-pointer", "/k", "--skip-invalid"];
    let machine = env.run_with_input(arguments.iter().chain(&["--json"]), every_mistake()).with_status(0);
    assert_eq!(documents(&machine).len(), 3);
    let mut skipped: Vec<Value> = machine.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts = skipped.pop().unwrap();
    assert_eq!((&counts["counts"]["stored"], &counts["counts"]["skipped"]), (&json!(3), &json!(7)), "{counts}");
    let lines: Vec<_> = skipped.iter().map(|skip| (skip["line"].as_u64().unwrap(), skip["skipped"]["kind"].as_str().unwrap())).collect();
    assert_eq!(
        lines,
        [
            (5, "line-not-json"),
            (6, "line-not-json"),
            (7, "line-wrong-type"),
            (8, "line-missing-value"),
            (9, "line-not-json"),
            (10, "rejected"),
            (11, "line-too-long")
        ]
    );
    let human = env.run_with_input(arguments, every_mistake()).with_status(0);
    let (summary, advice) = human.stdout.split_once('\n').unwrap();
    assert_eq!(summary, "one: 0 stored, 3 already there, 0 refused, 0 uncertain, 7 skipped");
    assert!(advice.contains("stored before and does not run again") && advice.contains("--fresh-uids"), "{advice}");
}

#[test]
fn raw_lines_are_published_whatever_they_hold() {
    let env = provisioned();
    let file = b"{\"k\":\"a\"}\n\n\xff\x00\r\n{\"k\":{}}\nlast without a break";
    let documents = publish(&env, &["one", "--raw-lines", "--key-pointer", "/k"], file, 0);
    assert_eq!(documents.len(), 5);
    let events = fetched(&env, "one", 0);
    let keys: Vec<_> = events.iter().map(|event| event["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["a", "", "", "", ""]);
    // The bytes, `\r` included, without the line break.
    assert_eq!(values(&events)[1..3], [base64(""), base64("/wAN")]);
    assert_eq!(values(&events)[4], base64("bGFzdCB3aXRob3V0IGEgYnJlYWs="));
}

#[test]
fn raw_lines_can_be_called_json() {
    let env = provisioned();
    let documents = publish(&env, &["one", "--raw-lines", "--media-type", "application/json"], b"{\"b\":1.50,\"a\":2}\nbroken\n", 0);
    assert_eq!(documents.len(), 2);
    let output = env.run(["bus", "fetch", "one", "--json"]).with_status(0);
    assert!(output.stdout.contains("\"value\":{\"b\":1.50,\"a\":2},"), "verbatim: {}", output.stdout);
    assert_eq!(values(&super::documents(&output))[1], base64("YnJva2Vu"));
}

#[test]
fn a_line_of_exactly_the_largest_size_is_an_event_and_one_byte_more_is_not() {
    let env = provisioned();
    let mut file = Vec::new();
    for bytes in [524_287, 524_288, 524_289] {
        file.extend(std::iter::repeat_n(b'x', bytes));
        file.push(b'\n');
    }
    let documents = publish(&env, &["one", "--raw-lines"], &file, 1);
    let seen = outcomes(&documents);
    assert_eq!(seen, ["0 duplicate=false", "1 duplicate=false", "line 3: line-too-long permanent=true uncertain=false"]);
}

#[test]
fn publishing_a_file_again_doubles_nothing() {
    let env = provisioned();
    let file = b"{\"n\":1}\n{\"n\":1}\n{\"n\":2}\n";
    let first = publish(&env, &["in", "--key-pointer", "/n"], file, 0);
    let second = publish(&env, &["in", "--key-pointer", "/n"], file, 0);
    assert!(first.iter().all(|ack| ack["duplicate"] == json!(false)), "equal lines at two places are two events");
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(second["duplicate"], json!(true));
        assert_eq!((&first["uid"], &first["partition"], &first["offset"]), (&second["uid"], &second["partition"], &second["offset"]));
    }
}

#[test]
fn a_corrected_file_doubles_nothing_as_long_as_its_lines_stay_where_they_are() {
    let refused = b"{\"n\":1}\nx\n{\"n\":3}\n";
    // What the file is made into, and how many events there are after it was published again.
    let cases: [(&str, &[u8], usize); 4] = [
        ("corrected in place", b"{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n", 3),
        ("left blank", b"{\"n\":1}\n\n{\"n\":3}\n", 2),
        ("taken out: the line behind it moved and is a new event", b"{\"n\":1}\n{\"n\":3}\n", 3),
        ("a line put before it: both moved", b"{\"n\":0}\n{\"n\":1}\n\n{\"n\":3}\n", 5),
    ];
    for (correction, corrected, events) in cases {
        let env = provisioned();
        let first = env.run_with_input(["bus", "publish", "one", "--file", "-"], refused.to_vec()).with_status(1);
        let next = first.stderr.lines().last().unwrap();
        assert!(next.contains("in place or leave them blank") && next.contains("a line that moved is a new event"), "{next}");
        let _ = publish(&env, &["one"], corrected, 0);
        assert_eq!(fetched(&env, "one", 0).len(), events, "{correction}");
    }
}

#[test]
fn equal_lines_at_one_number_of_two_files_are_one_event_unless_new_uids_are_asked_for() {
    let env = provisioned();
    env.write("monday.jsonl", "{\"n\":1}\n{\"n\":2}\n");
    env.write("tuesday.jsonl", "{\"n\":1}\n{\"n\":3}\n");
    let publish = |file: &str, further: &[&str]| {
        documents(&env.run(["bus", "publish", "one", "--json", "--file", file].iter().chain(further)).with_status(0))
    };
    let duplicates = |acks: &[Value]| acks.iter().map(|ack| ack["duplicate"] == json!(true)).collect::<Vec<_>>();
    assert_eq!(duplicates(&publish("monday.jsonl", &[])), [false, false]);
    assert_eq!(duplicates(&publish("tuesday.jsonl", &[])), [true, false]);
    assert_eq!(duplicates(&publish("tuesday.jsonl", &["--fresh-uids"])), [false, false]);
}

#[test]
fn with_fresh_uids_a_file_is_published_anew() {
    let env = provisioned();
    let file = b"{\"n\":1}\n{\"n\":2}\n";
    let first = publish(&env, &["one"], file, 0);
    for _ in 0..2 {
        let again = publish(&env, &["one", "--fresh-uids"], file, 0);
        assert!(again.iter().all(|ack| ack["duplicate"] == json!(false) && first.iter().all(|first| first["uid"] != ack["uid"])));
    }
    assert_eq!(values(&fetched(&env, "one", 0)), [1, 2, 1, 2, 1, 2].map(|n| json!({ "n": n })));
    let human = env.run_with_input(["bus", "publish", "one", "--file", "-", "--fresh-uids"], file.to_vec()).with_status(0);
    assert_eq!(human.stdout, "one: 2 stored, 0 already there, 0 refused, 0 uncertain, 0 skipped\n");
}

#[test]
fn a_line_published_with_another_key_is_told_what_happened_before() {
    let env = provisioned();
    let file = b"{\"n\":1}\n";
    assert_eq!(publish(&env, &["one", "--key", "a"], file, 0).len(), 1);
    let human = env.run_with_input(["bus", "publish", "one", "--file", "-", "--key", "b"], file.to_vec()).with_status(1);
    let told = human.stderr.lines().find(|line| line.starts_with("line 1")).unwrap();
    assert!(told.starts_with("line 1 conflict: the same line was published before") && !told.contains("line-"), "{told}");
    assert!(told.contains("--key-pointer") && told.contains("--fresh-uids"), "{told}");
    // A uid that somebody chose is named, with one prefix.
    let chosen = b"{\"u\":\"a\",\"n\":1}\n{\"u\":\"a\",\"n\":2}\n".to_vec();
    let human = env.run_with_input(["bus", "publish", "one", "--file", "-", "--uid-pointer", "/u"], chosen).with_status(1);
    assert!(human.stderr.contains("line 2 conflict: uid a of topic"), "{}", human.stderr);
    assert_eq!(human.stdout, "one: 1 stored, 0 already there, 1 refused (1 in conflict), 0 uncertain, 0 skipped\n");
}

#[test]
fn an_incomplete_publication_says_how_much_of_it_is_stored() {
    let env = provisioned();
    let arguments = ["bus", "publish", "one", "--file", "-", "--json"];
    assert_eq!(publish(&env, &["one"], b"{\"n\":1}\n", 0).len(), 1);
    let output = env.run_with_input(arguments, b"{\"n\":1}\nx\n{\"n\":2}\n{\"n\":3}\n".to_vec()).with_status(1);
    let counts = json!({ "stored": 2, "already_there": 1, "refused": 1, "conflicts": 0, "uncertain": 0, "skipped": 0 });
    assert_eq!(error_of(&output)["counts"], counts);
}

#[test]
fn people_are_told_when_no_node_runs_what_they_publish() {
    let env = provisioned();
    let human = ["bus", "publish", "one", "--file", "-"];
    let told = env.run_with_input(human, b"{}\n".to_vec()).with_status(0).stderr;
    assert!(told.starts_with("no node is running"), "{told}");
    let machine = env.run_with_input(human.iter().chain(&["--json"]), b"{}\n".to_vec()).with_status(0);
    assert_eq!(machine.stderr, "");
    let node = node(&env);
    assert_eq!(env.run_with_input(human, b"{}\n".to_vec()).with_status(0).stderr, "");
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn the_same_uid_with_other_content_is_a_conflict() {
    let env = provisioned();
    let documents = publish(&env, &["one", "--uid-pointer", "/u"], b"{\"u\":\"a\",\"n\":1}\n{\"u\":\"a\",\"n\":2}\n", 1);
    assert_eq!(outcomes(&documents), ["0 duplicate=false", "line 2: conflict permanent=true uncertain=false"]);
}

#[test]
fn events_of_one_key_keep_the_order_of_the_file() {
    let env = provisioned();
    let lines: String = (0..1_500).map(|n| format!("{{\"k\":\"k{}\",\"n\":{n}}}\n", n % 7)).collect();
    let acks = publish(&env, &["in", "--key-pointer", "/k"], lines.as_bytes(), 0);
    assert_eq!(acks.len(), 1_500);
    for partition in 0..3 {
        let numbers: Vec<_> = values(&fetched(&env, "in", partition)).iter().map(|value| value["n"].as_u64().unwrap()).collect();
        assert!(numbers.is_sorted(), "partition {partition}");
    }
}

#[test]
fn a_pipe_that_pauses_holds_nothing_back() {
    let env = provisioned();
    let mut live = Running::start(&env, &["bus", "publish", "one", "--file", "-", "--json"]);
    for offset in 0..3 {
        live.write(format!("{{\"n\":{offset}}}\n").as_bytes());
        // The input is still open, and the line is acknowledged.
        assert_eq!(live.document()["offset"], json!(offset));
    }
    drop(live.stdin.take());
    assert_eq!(live.child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
}

#[test]
fn people_get_one_line() {
    let env = provisioned();
    let output = env.run_with_input(["bus", "publish", "one", "--file", "-"], b"{}\nx\n{}\n".to_vec()).with_status(1);
    assert_eq!(output.stdout, "one: 2 stored, 0 already there, 1 refused, 0 uncertain, 0 skipped\n");
    assert!(output.stderr.contains("\nline 2 line-not-json: the line is not JSON"), "{}", output.stderr);
    assert!(output.stderr.contains("--raw-lines"), "{}", output.stderr);
    assert!(output.stderr.contains("error: 1 of 3 events were refused and 0 are uncertain"), "{}", output.stderr);
}
