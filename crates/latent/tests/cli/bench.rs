//! `latent bench`: that every row is measured and told. How fast it is, is no matter of tests.

use std::io::Read as _;

use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser, LaneConsumer, PullConsumer, StreamSpec};
use serde_json::json;

use super::*;

/// As little as can be, wherever the folder of the test lies.
const QUICK: &[&str] = &["bench", "bus", "--quick", "--allow-memory", "--dir", "disk"];

/// The program beside an empty folder `disk`.
fn with_disk() -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    std::fs::create_dir(env.folder().join("disk")).unwrap();
    env
}

/// What is in that folder now.
fn entries(env: &CliEnv) -> usize {
    std::fs::read_dir(env.folder().join("disk")).unwrap().count()
}

#[test]
fn every_row_is_one_valid_line_that_is_not_judged_when_quick() {
    let env = with_disk();
    let output = env.run(QUICK.iter().copied().chain(["--json"])).with_status(0);
    let rows = documents(&output);
    let named: Vec<_> = rows.iter().map(|row| (row["id"].as_str().unwrap(), row["case"].as_str().unwrap())).collect();
    let expected = [
        ("Q-03", "16 publishers"),
        ("Q-03", "batches of 256"),
        ("Q-04", "one at a time"),
        ("Q-05", "300 B, one partition"),
        ("Q-05", "300 B, eight partitions"),
        ("Q-05", "7 KB, one partition"),
        ("Q-31", "find by uid, warm"),
        ("Q-32", "segments"),
        ("Q-32", "publication beside it"),
        ("Q-33", "recovery after a kill"),
        ("Q-40", "Q-03 batches of 256"),
        ("Q-40", "Q-04 one at a time"),
        ("Q-40", "Q-05 pages of 1,000"),
        ("Q-40", "Q-31 find by uid"),
    ];
    assert_eq!(named, expected);
    for row in &rows {
        for number in ["ours", "reference", "ratio", "target", "floor_micros"] {
            assert!(row[number].as_f64().is_some_and(|number| number > 0.0), "{number} of {row}");
        }
        assert!(row["reference_name"].as_str().is_some_and(|name| !name.is_empty()), "{row}");
        assert_eq!((&row["pass"], &row["runs"]), (&json!(null), &json!(2)), "{row}");
    }
    assert_eq!(entries(&env), 0, "the measured folder is gone");
}

#[test]
fn people_get_the_floor_the_wanted_rows_and_where_the_other_comparison_is() {
    let env = with_disk();
    let output = env.run(QUICK.iter().copied().chain(["--rows", "q-04"])).with_status(0).stdout;
    assert!(output.lines().next().unwrap().contains("4 KiB written and synced: p50"), "{output}");
    assert!(output.contains("\nQ-04  one at a time") && !output.contains("\nQ-03"), "{output}");
    assert!(output.contains("each call: p50") && output.contains("benches/storage-engines"), "{output}");
    assert_eq!(entries(&env), 0, "the folder that was named stays, empty");
}

#[test]
fn a_folder_in_memory_is_refused_unless_it_is_allowed() {
    let memory = Path::new("/dev/shm");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if !mounts.lines().any(|line| line.split(' ').nth(1) == Some("/dev/shm") && line.split(' ').nth(2) == Some("tmpfs")) {
        // The rule itself has its unit test; this is for systems that have such a folder.
        return;
    }
    let env = with_disk();
    let arguments = ["bench", "bus", "--quick", "--rows", "Q-04", "--dir", memory.to_str().unwrap(), "--json"];
    let error = error_of(&env.run(arguments).with_status(2));
    assert_eq!(error["kind"], json!("value"));
    let why = error["why"].as_str().unwrap();
    assert!(why.contains("tmpfs") && why.contains("--allow-memory"), "{why}");
    let _ = env.run(arguments.iter().copied().chain(["--allow-memory"])).with_status(0);
}

#[test]
fn an_interrupted_run_removes_its_folder_and_says_so() {
    let env = with_disk();
    let mut command = env.command(["bench", "bus", "--allow-memory", "--dir", "disk", "--json"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ChildGuard::spawn(&mut command).unwrap();
    let (mut stdout, mut stderr) = (BufReader::new(child.take_stdout().unwrap()), child.take_stderr().unwrap());
    // With the first row it is in the middle of its work.
    stdout.read_line(&mut String::new()).unwrap();
    assert_eq!(entries(&env), 1);
    child.terminate().unwrap();
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(1));
    let mut error = String::new();
    stderr.read_to_string(&mut error).unwrap();
    assert!(error.contains("\"interrupted\""), "{error}");
    assert_eq!(entries(&env), 0);
}

#[test]
fn activations_are_measured_and_every_line_has_the_stable_fields() {
    let env = with_disk();
    let arguments = ["bench", "activation", "--quick", "--rows", "Q-01,Q-02,Q-07,Q-08", "--dir", "disk", "--json"];
    let rows = documents(&env.run(arguments).with_status(0));
    let named: Vec<_> = rows.iter().map(|row| (row["id"].as_str().unwrap(), row["case"].as_str().unwrap())).collect();
    let expected = [
        ("Q-01", "median"),
        ("Q-01", "99th percentile"),
        ("Q-02", "two threads to one"),
        ("Q-02", "two threads"),
        ("Q-07", "bytes of each of 20,000"),
        ("Q-08", "100 kept components"),
    ];
    assert_eq!(named, expected);
    for row in &rows {
        assert!(row["ours"].is_f64() && row["ratio"].is_f64() && row["reference"].as_f64().is_some_and(|number| number > 0.0), "{row}");
        assert_eq!((&row["pass"], &row["runs"]), (&json!(null), &json!(2)), "{row}");
    }
    assert_eq!(entries(&env), 0, "the measured folder is gone");
}

#[test]
fn events_are_sent_through_a_node_and_every_line_has_the_stable_fields() {
    let env = with_disk();
    let arguments = ["bench", "trigger", "--quick", "--allow-memory", "--dir", "disk", "--json"];
    let rows = documents(&env.run(arguments).with_status(0));
    let named: Vec<_> = rows.iter().map(|row| (row["id"].as_str().unwrap(), row["case"].as_str().unwrap())).collect();
    let expected = [
        ("Q-06", "many, default cells"),
        ("Q-06", "many, 32 cells"),
        ("Q-06", "one, until it is out"),
        ("Q-06", "one, until it is settled"),
        ("Q-07", "bytes of each of 20,000"),
        ("Q-22", "append to first act"),
    ];
    assert_eq!(named, expected);
    for row in &rows {
        assert!(row["ours"].is_f64() && row["ratio"].is_f64() && row["reference"].as_f64().is_some_and(|number| number > 0.0), "{row}");
        assert_eq!((&row["pass"], &row["runs"]), (&json!(null), &json!(2)), "{row}");
    }
    assert_eq!(entries(&env), 0, "the measured folder is gone");
}

#[test]
fn without_a_broker_it_is_said_who_starts_one() {
    let env = with_disk();
    let error = error_of(&env.run(["bench", "publish", "--json"]).with_status(2));
    assert_eq!(error["kind"], json!("value"));
    assert!(error["why"].as_str().unwrap().contains("cargo xtask bench publish"), "{error}");
}

#[test]
fn publications_are_measured_on_a_broker_and_every_line_has_the_stable_fields() {
    latent_testkit::require_broker!();
    let env = with_disk();
    let user = BrokerUser::publisher("bench", "a password", ["bench.out"]);
    let stream = StreamSpec::new("BENCH", ["bench.out"]).max_msgs(-1);
    let spec = BrokerSpec { server_name: "localhost".to_owned(), ..BrokerSpec::with_users([user]).stream(stream) };
    let broker = Broker::start(spec);
    std::fs::write(env.folder().join("root.der"), broker.ca().root_der()).unwrap();
    std::fs::write(env.folder().join("password"), "a password\n").unwrap();
    let address = broker.address().to_string();
    let target = ["--address", &address, "--server-name", "localhost", "--root", "root.der", "--user", "bench"];
    let place = ["--password-file", "password", "--subject", "bench.out", "--stream", "BENCH", "--dir", "disk"];
    let arguments = [&["bench", "publish", "--quick", "--json"][..], &target, &place].concat();
    let rows = documents(&env.run(arguments).with_status(0));
    let named: Vec<_> = rows.iter().map(|row| (row["id"].as_str().unwrap(), row["case"].as_str().unwrap())).collect();
    // The comparison with the client that people use is in builds for measurements.
    let named: Vec<_> = named.into_iter().filter(|(_, case)| !case.contains("async-nats")).collect();
    let expected = [
        ("Q-13", "16 mappings, idle"),
        ("Q-10", "256 B"),
        ("Q-10", "256 B, 99th percentile"),
        ("Q-10", "8 KiB"),
        ("Q-10", "8 KiB, 99th percentile"),
        ("Q-11", "64 at once, 256 B"),
    ];
    assert_eq!(named, expected);
    for row in &rows {
        assert!(row["ours"].is_f64() && row["ratio"].is_f64() && row["reference"].as_f64().is_some_and(|number| number > 0.0), "{row}");
        assert_eq!((&row["pass"], &row["runs"]), (&json!(null), &json!(2)), "{row}");
    }
    assert_eq!(entries(&env), 0, "the folder of the secrets is gone");
}

#[test]
fn messages_of_a_broker_are_measured_and_every_line_has_the_stable_fields() {
    latent_testkit::require_broker!();
    let env = with_disk();
    let (consumers, lanes) = (PullConsumer::of_the_bench("BENCH", "bench.in"), LaneConsumer::of_the_bench("BENCH", "bench.in"));
    let names = consumers.iter().map(|consumer| &consumer.name).chain(lanes.iter().map(|lane| &lane.name));
    let mut user = BrokerUser::trigger("bench", "a password", names.map(|name| ("BENCH", name.as_str())));
    let filters = consumers.iter().map(|consumer| &consumer.filter).chain(lanes.iter().map(|lane| &lane.filter));
    let subjects: Vec<_> = filters.cloned().collect();
    user.publish.extend(subjects.clone());
    let stream = StreamSpec::new("BENCH", subjects);
    let broker = Broker::start(BrokerSpec { server_name: "localhost".to_owned(), ..BrokerSpec::with_users([user]).stream(stream) });
    broker.add_consumers(&consumers);
    broker.add_lanes(&lanes);
    std::fs::write(env.folder().join("root.der"), broker.ca().root_der()).unwrap();
    std::fs::write(env.folder().join("password"), "a password\n").unwrap();
    let address = broker.address().to_string();
    let target = ["--address", &address, "--server-name", "localhost", "--root", "root.der", "--user", "bench"];
    let place = ["--password-file", "password", "--subject", "bench.in", "--stream", "BENCH", "--dir", "disk"];
    let rows = documents(&env.run([&["bench", "trigger", "--quick", "--json"][..], &target, &place].concat()).with_status(0));
    let named = rows.iter().map(|row| (row["id"].as_str().unwrap(), row["case"].as_str().unwrap()));
    // Q-21 compares with a client that is not in every build.
    let named: Vec<_> = named.filter(|(id, _)| *id != "Q-21").collect();
    let expected = [
        ("Q-20", "v1, one binding"),
        ("Q-24", "v2, processor time"),
        ("Q-24", "v2, to an activation"),
        ("Q-23", "bytes of each of 256"),
        ("Q-23", "sockets"),
        ("Q-23", "tasks"),
        ("Q-23", "CPU, rests of 100 ms"),
        ("Q-23", "a round, rests of 100 ms"),
        ("Q-23", "CPU, rests of 1 s"),
        ("Q-23", "v2, bytes of each of 256"),
        ("Q-23", "v2, sockets"),
        ("Q-23", "v2, tasks"),
        ("Q-23", "v2, CPU"),
        ("Q-22", "v1, one binding"),
        ("Q-22", "v1, 256 bindings"),
        ("Q-22", "v2, active"),
        ("Q-22", "v2, the first, longest"),
    ];
    assert_eq!(named, expected);
    for row in &rows {
        assert!(row["ours"].is_f64() && row["ratio"].is_f64() && row["reference"].as_f64().is_some_and(|number| number > 0.0), "{row}");
        assert_eq!((&row["pass"], &row["runs"]), (&json!(null), &json!(2)), "{row}");
    }
    assert_eq!(entries(&env), 0, "the folder of the secrets is gone");
}

#[test]
fn rows_of_a_broker_need_one_and_it_is_said_who_starts_it() {
    let env = with_disk();
    let error = error_of(&env.run(["bench", "trigger", "--rows", "Q-20", "--json"]).with_status(2));
    assert!(error["why"].as_str().unwrap().contains("cargo xtask bench trigger"), "{error}");
}
