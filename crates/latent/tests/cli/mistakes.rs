//! `latent bus publish`: what each mistake in a file is called, in words to act on.

use std::io::Read as _;
use std::process::Command;

use serde_json::json;

use super::*;

/// A line, further arguments, the kind of its fault (none: it is an event), and words that the message must have.
type Case<'c> = (&'c [u8], &'c [&'c str], Option<&'c str>, &'c [&'c str]);

#[test]
fn each_mistake_of_a_line_is_named_with_what_to_do() {
    let env = provisioned();
    let key = &["--key-pointer", "/a/k"][..];
    let uid = &["--uid-pointer", "/u"][..];
    let long_uid = format!("{{\"u\":\"{}\"}}", "x".repeat(257)).into_bytes();
    let largest_uid = format!("{{\"u\":\"{}\"}}", "x".repeat(256)).into_bytes();
    let long_key = format!("{{\"a\":{{\"k\":\"{}\"}}}}", "x".repeat(1_025)).into_bytes();
    let long_line = format!("{{\"p\":\"{}\"}}", "x".repeat(524_288)).into_bytes();
    let deep = "[".repeat(200).into_bytes();
    let cases: &[Case<'_>] = &[
        (b"{\"a\":1,}", &[], Some("line-not-json"), &["column 8", "not JSON"]),
        (b"{\"a\":1", &[], Some("line-not-json"), &["column 6", "one document a line"]),
        (b"{} {}", &[], Some("line-not-json"), &["trailing characters", "column 4"]),
        (b"plain text", &[], Some("line-not-json"), &["--raw-lines"]),
        (&deep, &[], Some("line-not-json"), &["recursion limit"]),
        (b"\xef\xbb\xbf{}", &[], Some("line-not-json"), &["byte order mark", "UTF-8 without one"]),
        (b"\xff\xfe{\0}\0", &[], Some("line-not-json"), &["NUL bytes", "UTF-16"]),
        (b"{\"a\":\"\0\"}", &[], Some("line-not-json"), &["NUL bytes", "column"]),
        (b"{\"a\":\"gr\xfcn\"}", &[], Some("line-not-json"), &["not UTF-8", "convert"]),
        (&long_line, &[], Some("line-too-long"), &["524296 bytes", "at most 524288"]),
        (b"{\"a\":{}}", key, Some("line-missing-value"), &["nothing at /a/k", "key"]),
        (b"{\"a\":[]}", key, Some("line-missing-value"), &["nothing at /a/k"]),
        (b"{\"a\":{\"k\":null}}", key, Some("line-wrong-type"), &["the key at /a/k is null", "text or a number"]),
        (b"{\"a\":{\"k\":true}}", key, Some("line-wrong-type"), &["is true or false"]),
        (b"{\"a\":{\"k\":[1]}}", key, Some("line-wrong-type"), &["is an array"]),
        (b"{\"a\":{\"k\":{}}}", key, Some("line-wrong-type"), &["is an object"]),
        (&long_key, key, Some("rejected"), &["key", "1025", "1024"]),
        (b"{\"n\":1}", uid, Some("line-missing-value"), &["nothing at /u", "uid"]),
        (b"{\"u\":[]}", uid, Some("line-wrong-type"), &["the uid at /u is an array"]),
        (&long_uid, uid, Some("rejected"), &["uid", "257", "256"]),
        (b"{\"u\":\"\"}", uid, Some("rejected"), &["uid", "is empty"]),
        (b"{\"u\":\"with space\"}", uid, Some("rejected"), &["uid", "with space"]),
        (b"{\"u\":\"gr\xc3\xbcn\"}", uid, Some("rejected"), &["uid"]),
        (b"{\"u\":\"a\\nb\"}", uid, Some("rejected"), &["uid"]),
        // No mistakes.
        (b"{\"a\":1}\r", &[], None, &[]),
        (b" \t\r", &[], None, &[]),
        (b"{\"a\":{\"k\":\"\"}}", key, None, &[]),
        (b"{\"a\":{\"k\":-1.5}}", key, None, &[]),
        (&largest_uid, uid, None, &[]),
        (b"\xef\xbb\xbf\0\xff", &["--raw-lines"], None, &[]),
    ];
    for (number, (line, arguments, kind, words)) in cases.iter().enumerate() {
        let shown = String::from_utf8_lossy(line.get(..40).unwrap_or(line)).into_owned();
        // The mistake is in the second line, and the last one has no line break.
        let sound = |name: &str| format!("{{\"a\":{{\"k\":{number}}},\"u\":\"{name}-{number}\"}}").into_bytes();
        let file = [&*sound("first"), b"\n", line, b"\n", &*sound("last")].concat();
        let documents = publish(&env, &[&["one"], *arguments].concat(), &file, i32::from(kind.is_some()));
        let faults: Vec<_> = documents.iter().filter(|document| document.get("error").is_some()).collect();
        let Some(kind) = kind else {
            assert_eq!(faults, Vec::<&Value>::new(), "{shown}");
            continue;
        };
        let [fault] = faults[..] else { panic!("{shown}: {documents:?}") };
        assert_eq!((&fault["line"], &fault["error"]["kind"]), (&json!(2), &json!(kind)), "{shown}: {fault}");
        assert_eq!(documents.len(), 3, "the lines around it are events: {shown}");
        let message = fault["error"]["message"].as_str().unwrap();
        for word in *words {
            assert!(message.contains(word), "{shown}: {word:?} is not in {message:?}");
        }
    }
}

#[test]
fn an_empty_file_is_published_and_people_are_told() {
    let env = provisioned();
    for file in [&b""[..], b"\n", b"\n \r\n"] {
        env.write("events.jsonl", file);
        let human = env.run(["bus", "publish", "one", "--file", "events.jsonl"]).with_status(0);
        assert!(human.stderr.ends_with("the file holds no events\n"), "{}", human.stderr);
        let machine = env.run(["bus", "publish", "one", "--file", "events.jsonl", "--json"]).with_status(0);
        assert_eq!((&*machine.stdout, &*machine.stderr), ("", ""));
    }
}

#[test]
fn what_is_no_file_is_told_before_anything_is_sent() {
    let env = provisioned();
    for (file, words) in [("data", "it is a directory"), ("nowhere.jsonl", "No such file")] {
        let error = error_of(&env.run(["bus", "publish", "one", "--file", file, "--json"]).with_status(1));
        assert_eq!(error["kind"], json!("input"));
        assert!(error["why"].as_str().unwrap().contains(words), "{error}");
    }
}

#[test]
fn a_named_pipe_is_read_like_any_other() {
    let env = provisioned();
    let pipe = env.folder().join("events.fifo");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut reading = Running::start(&env, &["bus", "publish", "one", "--file", "events.fifo", "--json"]);
    // Waits until the other side has opened it.
    let mut writer = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    writer.write_all(b"{\"n\":1}\n{\"n\":2}").unwrap();
    assert_eq!(reading.document()["offset"], json!(0));
    drop(writer);
    assert_eq!(reading.document()["offset"], json!(1));
    assert_eq!(reading.child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
}

#[test]
fn a_file_that_changes_while_it_is_read_is_told_and_its_last_half_line_is_not_sent() {
    let env = provisioned();
    let path = env.write("events.log", "line\n".repeat(3_000) + "thi");
    let mut command = env.command(["bus", "publish", "one", "--file", "events.log", "--raw-lines", "--json"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ChildGuard::spawn(&mut command).unwrap();
    let (mut stdout, mut stderr) = (BufReader::new(child.take_stdout().unwrap()), child.take_stderr().unwrap());
    // The results of the first batch are more than a pipe holds, so it waits for a reader before it reads on.
    stdout.read_line(&mut String::new()).unwrap();
    let mut writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    writer.write_all(b"rd\nhal").unwrap();
    let (mut rest, mut error) = (String::new(), String::new());
    stdout.read_to_string(&mut rest).unwrap();
    stderr.read_to_string(&mut error).unwrap();
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(1));
    assert_eq!(rest.lines().count(), 3_000, "every whole line is stored");
    let error = serde_json::from_str::<Value>(&error).unwrap()["error"].clone();
    assert_eq!((&error["kind"], &error["what"]), (&json!("incomplete"), &json!("the publication stopped after 3001 events")));
    let why = error["why"].as_str().unwrap();
    assert!(why.contains("after line 3001") && why.contains("it had 15003 bytes and has 15009"), "{why}");

    writer.write_all(b"f\n").unwrap();
    let again = documents(&env.run(["bus", "publish", "one", "--file", "events.log", "--raw-lines", "--json"]).with_status(0));
    let fresh: Vec<_> = again.iter().filter(|ack| ack["duplicate"] == json!(false)).collect();
    assert_eq!((again.len(), fresh.len(), &fresh[0]["offset"]), (3_002, 1, &json!(3_001)));
}
