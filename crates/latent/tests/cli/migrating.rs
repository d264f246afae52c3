//! `latent bus migrate` between two directories: what it keeps, what it refuses, and what a node that has the source has to do with it.

mod archived;
mod broker;
mod often;

use super::*;

/// `migrate` with these words, as machines read it.
pub(super) fn migrated(env: &CliEnv, words: &[&str], status: i32) -> (Vec<Value>, CliOutput) {
    let output = env.run([&["bus", "migrate"], words, &["--json"]].concat()).with_status(status);
    (documents(&output), output)
}

/// The counts, which are the last line.
pub(super) fn counts(documents: &[Value]) -> Value {
    documents.last().unwrap()["counts"].clone()
}

const BOTH: [&str; 4] = ["--from", "embedded:data", "--to", "embedded:other"];

/// As [`provisioned`], with a second directory for the same topics.
fn two() -> CliEnv {
    let env = provisioned();
    provision(&env, "other");
    env
}

fn provision(env: &CliEnv, directory: &str) {
    let engine = format!("embedded:{directory}");
    let _ = env.run(["bus", "provision", "--engine", &engine, "--manifest", "bridge.yaml"]).with_status(0);
}

/// Everything that is in a partition, but for where and when it was stored.
pub(super) fn content(env: &CliEnv, place: &[&str], topic: &str, partition: u32) -> Vec<Value> {
    let partition = partition.to_string();
    let words = [&["bus", "fetch", topic, "--partition", &partition, "--max", "1000000", "--json"], place].concat();
    let mut events = documents(&env.run(words).with_status(0));
    for event in &mut events {
        let event = event.as_object_mut().unwrap();
        event.remove("offset");
        event.remove("stored_at");
    }
    events
}

fn of_directory(env: &CliEnv, directory: &str) -> Vec<Vec<Value>> {
    let engine = format!("embedded:{directory}");
    (0..3).map(|partition| content(env, &["--engine", &engine], "in", partition)).collect()
}

/// Thirty events of keys in every partition, bytes that are no text, and a line as long as may be.
fn fill(env: &CliEnv) {
    let lines: String = (0..30).map(|n| format!("{{\"key\":\"k{n}\",\"n\":{n}, \"x\": [1.50]}}\n")).collect();
    publish(env, &["in", "--key-pointer", "/key"], lines.as_bytes(), 0);
    publish(env, &["one", "--raw-lines", "--key", "a\u{7}\u{e9}"], b"\xff\xfe\0\n\n \t\n", 0);
    publish(env, &["one", "--raw-lines", "--media-type", "text/plain"], &vec![b'x'; 500_000], 0);
}

#[test]
fn every_event_keeps_its_place_uid_key_media_type_and_bytes() {
    let env = two();
    fill(&env);
    let (told, _) = migrated(&env, &BOTH, 0);
    assert_eq!(told.len(), 5, "four partitions and the sum");
    for of_partition in &told[..4] {
        assert_eq!((&of_partition["same"], &of_partition["grown"]), (&json!(true), &json!(false)), "{of_partition}");
        assert_eq!(of_partition["source"], of_partition["destination"], "records and digest");
        assert_eq!(of_partition["source"]["sha256"].as_str().unwrap().len(), 64);
    }
    assert_eq!(
        counts(&told),
        json!({ "partitions": 4, "same": 4, "copied": 34, "already_there": 0, "expired": 0, "passed_over": 0, "grown": 0 })
    );
    assert_eq!(of_directory(&env, "data"), of_directory(&env, "other"));
    let one = |directory| content(&env, &["--engine", directory], "one", 0);
    assert_eq!(one("embedded:data"), one("embedded:other"));
    assert_eq!(one("embedded:other")[0]["value"], base64("//4A"));
    // Again, also without what was noted: nothing is copied twice. More is copied behind it.
    let (again, _) = migrated(&env, &BOTH, 0);
    assert_eq!(counts(&again)["copied"], json!(0));
    let progress = std::fs::read_dir(env.folder()).unwrap().map(|entry| entry.unwrap().path());
    let progress = progress.into_iter().find(|path| path.extension().is_some_and(|end| end == "progress")).unwrap();
    std::fs::remove_file(&progress).unwrap();
    publish(&env, &["one"], b"{\"more\":1}\n", 0);
    let (again, _) = migrated(&env, &BOTH, 0);
    assert_eq!((&counts(&again)["copied"], &counts(&again)["already_there"]), (&json!(1), &json!(34)));
    // And one topic alone, to a file of its own.
    provision(&env, "third");
    let (told, output) = migrated(&env, &["one", "--from", "embedded:data", "--to", "embedded:third", "--progress", "p"], 0);
    assert_eq!((told.len(), output.stderr.as_str()), (2, ""));
    assert!(env.folder().join("p").is_file());
    let people = env.run([&["bus", "migrate", "--verify-only"], &BOTH[..]].concat()).with_status(0);
    assert!(people.stdout.contains("4 of 4 partitions are the same on both sides"), "{}", people.stdout);
    assert!(people.stdout.contains("destination 5 events, SHA-256 "), "{}", people.stdout);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_opened() {
    let env = two();
    env.write(
        "others.yaml",
        MANIFEST.replace("partitions: 3", "partitions: 2").replace("  - { name: one, partitions: 1 }\n", "").replace("demo", "next"),
    );
    let _ = env.run(["bus", "provision", "--engine", "embedded:others", "--manifest", "others.yaml"]).with_status(0);
    let refused = error_of(&migrated(&env, &["--from", "embedded:data", "--to", "embedded:others"], 2).1);
    assert_eq!(refused["kind"], json!("migration-unfit"));
    let why = refused["why"].as_str().unwrap();
    for part in ["\"demo\"", "\"next\"", "3 partitions in the source and 2 in the destination", "no topic \"one\""] {
        assert!(why.contains(part), "{part}: {why}");
    }
    std::os::unix::fs::symlink("data", env.folder().join("link")).unwrap();
    for (words, kind, status) in [
        (&["--from", "embedded:data", "--to", "embedded:link"][..], "value", 2),
        (&["nowhere", "--from", "embedded:data", "--to", "embedded:other"], "unknown-topic", 1),
        (&["--from", "embedded:data", "--to", "embedded:new"], "not-provisioned", 1),
        (&["--from", "embedded:data", "--to", "embedded:other", "--manifest", "bridge.yaml"], "value", 2),
        (&["--from", "embedded:data", "--to", "nats"], "value", 2),
        (&["--from", "embedded:data", "--to", "nats", "--manifest", "bridge.yaml"], "environment", 2),
        (&["--from", "config:nowhere.toml", "--to", "embedded:other"], "config-invalid", 2),
        (&["--from", "embedded:data", "--to", "embedded:other", "--progress", "bridge.yaml"], "value", 2),
        (&["--from", "embedded:data", "--to", "embedded:other", "--progress", "nowhere/p"], "migration-progress", 1),
    ] {
        assert_eq!(error_of(&migrated(&env, words, status).1)["kind"], json!(kind), "{words:?}");
    }
    assert_eq!(std::fs::read_to_string(env.folder().join("bridge.yaml")).unwrap(), MANIFEST, "not written over");
}

#[test]
fn nothing_is_published_behind_what_is_not_of_the_source() {
    let env = two();
    fill(&env);
    publish(&env, &["one", "--engine", "embedded:other"], b"{\"foreign\":1}\n", 0);
    let (told, output) = migrated(&env, &BOTH, 1);
    let error = error_of(&output);
    assert_eq!((&error["kind"], &error["findings"][0]["kind"]), (&json!("migration-incomplete"), &json!("different")), "{error}");
    assert!(error["why"].as_str().unwrap().contains("source offset 0"), "{error}");
    assert_eq!((&counts(&told)["same"], &counts(&told)["copied"]), (&json!(3), &json!(30)), "the other partitions are copied");
    let one = told.iter().find(|document| document["topic"] == json!("one")).unwrap();
    assert_eq!((&one["source"]["records"], &one["destination"]["records"]), (&json!(4), &json!(1)), "{one}");
    // What is behind everything of the source is told as well.
    let env = two();
    publish(&env, &["one", "--engine", "embedded:other"], b"{\"foreign\":1}\n", 0);
    assert_eq!(error_of(&migrated(&env, &BOTH, 1).1)["findings"][0]["kind"], json!("extra"));
    // A comparison alone copies nothing.
    let env = two();
    fill(&env);
    let (told, output) = migrated(&env, &[&BOTH[..], &["--verify-only"]].concat(), 1);
    assert_eq!((&error_of(&output)["findings"][0]["kind"], &counts(&told)["copied"]), (&json!("missing"), &json!(0)));
    assert!(error_of(&output)["next"].as_str().unwrap().contains("without --verify-only"));
    assert_eq!(content(&env, &["--engine", "embedded:other"], "one", 0).len(), 0);
}

#[test]
fn a_damaged_event_ends_its_partition_or_is_passed_over_and_named() {
    let env = two();
    publish(&env, &["one"], b"{\"n\":0}\n{\"marker\":1}\n{\"n\":2}\n", 0);
    damage(&env, "one", b"marker");
    let (_, output) = migrated(&env, &BOTH, 1);
    let error = error_of(&output);
    assert_eq!(
        error["findings"][0],
        json!({
            "topic": "one", "partition": 0, "kind": "unreadable", "message": "what lies at source offset 1 cannot be read as an event"
        })
    );
    assert_eq!(content(&env, &["--engine", "embedded:other"], "one", 0).len(), 1, "nothing behind it");
    let (told, output) = migrated(&env, &[&BOTH[..], &["--skip-unreadable"]].concat(), 0);
    assert!(output.stderr.contains(r#"{"offset":1,"partition":0,"skipped":"unreadable","topic":"one"}"#), "{}", output.stderr);
    assert_eq!(output.stderr.matches("skipped").count(), 1, "told once");
    assert_eq!((&counts(&told)["passed_over"], &counts(&told)["same"]), (&json!(1), &json!(4)));
    assert_eq!(content(&env, &["--engine", "embedded:other"], "one", 0).len(), 2);
    let (_, output) = migrated(&env, &[&BOTH[..], &["--skip-unreadable", "--verify-only"]].concat(), 0);
    assert!(output.stderr.contains("skipped"), "{}", output.stderr);
}

#[test]
fn an_event_that_the_destination_refuses_ends_its_partition() {
    let env = provisioned();
    env.write("s.json", r#"{ "type": "object", "required": ["n"] }"#);
    env.write("strict.yaml", MANIFEST.replace("name: one, partitions: 1", "name: one, partitions: 1, schema_ref: s.json"));
    let _ = env.run(["bus", "provision", "--engine", "embedded:strict", "--manifest", "strict.yaml"]).with_status(0);
    publish(&env, &["one"], b"{\"n\":0}\n{\"m\":1}\n{\"n\":2}\n", 0);
    let error = error_of(&migrated(&env, &["--from", "embedded:data", "--to", "embedded:strict"], 1).1);
    assert_eq!(error["findings"][0]["kind"], json!("refused"), "{error}");
    assert!(error["why"].as_str().unwrap().contains("source offset 1") && error["why"].as_str().unwrap().contains("schema"), "{error}");
    assert_eq!(content(&env, &["--engine", "embedded:strict"], "one", 0).len(), 1);
}

#[test]
fn the_source_may_be_in_use_and_the_destination_may_not() {
    let env = two();
    fill(&env);
    let node = node(&env);
    let (told, _) = migrated(&env, &BOTH, 0);
    assert_eq!(counts(&told)["copied"], json!(34));
    let refused = error_of(&migrated(&env, &["--from", "embedded:other", "--to", "config:latent.toml"], 1).1);
    assert_eq!(refused["kind"], json!("node-running"));
    publish(&env, &["one"], b"{\"late\":1}\n", 0);
    assert_eq!(node.stop(), Some(0));
    let (told, _) = migrated(&env, &["--from", "config:latent.toml", "--to", "embedded:other"], 0);
    assert_eq!((&counts(&told)["copied"], &counts(&told)["already_there"]), (&json!(1), &json!(0)), "the same log by another name");
    assert_eq!(of_directory(&env, "data"), of_directory(&env, "other"));
}

#[test]
fn two_runs_with_one_file_are_one_too_many() {
    let env = two();
    fill(&env);
    let lock = std::fs::File::create(env.folder().join("p.lock")).unwrap();
    lock.lock().unwrap();
    let words = [&BOTH[..], &["--progress", "p"]].concat();
    let refused = error_of(&migrated(&env, &words, 2).1);
    assert!(refused["why"].as_str().unwrap().contains("another process migrates"), "{refused}");
    drop(lock);
    let _ = migrated(&env, &words, 0);
    // A file that is not whole is told, and costs reading.
    let text = std::fs::read_to_string(env.folder().join("p")).unwrap();
    env.write("p", &text[..text.len() - 5]);
    let people = env.run([&["bus", "migrate"], &words[..]].concat()).with_status(0);
    assert!(people.stderr.contains("p: it is damaged"), "{}", people.stderr);
    assert!(people.stdout.contains("0 events copied, 34 already there"), "{}", people.stdout);
}
