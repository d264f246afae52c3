//! Nothing is printed twice or lost when the reader goes away.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use latent_testkit::ChildGuard;

use super::*;

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let env = provisioned();
    // More than a pipe holds, so that the command must meet the closed end.
    let line = format!("{{\"text\":\"{}\"}}\n", "x".repeat(1_000));
    let acks = publish(&env, &["one"], line.repeat(1_000).as_bytes(), 0);
    assert_eq!(acks.len(), 1_000);
    let mut command = env.command(["bus", "fetch", "one", "--max", "1000", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ChildGuard::spawn(&mut command).unwrap();
    let mut reader = BufReader::new(child.take_stdout().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    assert!(first.contains("\"offset\":0,"));
    drop(reader);
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
    let mut words = String::new();
    std::io::Read::read_to_string(&mut child.take_stderr().unwrap(), &mut words).unwrap();
    assert_eq!(words, "");
}

#[test]
fn a_publication_goes_on_when_nobody_reads_its_results() {
    let env = provisioned();
    let lines = "{\"n\":1}\n".repeat(3_000);
    env.write("events.jsonl", &lines);
    let mut command = env.command(["bus", "publish", "one", "--file", "events.jsonl", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = ChildGuard::spawn(&mut command).unwrap();
    drop(child.take_stdout());
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
    assert_eq!(fetched(&env, "one", 0).len(), 3_000);
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let env = provisioned();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = env.command(["bus", "topics", "--json"]);
    command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["kind"], serde_json::json!("output"), "{error}");
}
