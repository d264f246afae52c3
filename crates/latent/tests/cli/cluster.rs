//! Topics on a broker: `latent bus --engine nats` for who has no node, and nodes whose `[engine]` is one. Each broker begins with TLS, and
//! who uses topics there has the least rights that it takes; streams are made by somebody else.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use latent_test_guests::PLAIN;
use latent_testkit::broker::{Admin, Broker, BrokerSpec, BrokerUser};
use latent_testkit::require_broker;

use super::*;

const OPERATOR: &str = "operator";
const USER: &str = "edge-1-bus";
const PASSWORD: &str = "MARKER-5a0f";

pub(super) const TOPICS: &str = "\
manifest_version: 1
name: demo
topics:
  - { name: in.raw, partitions: 3, retention: { hot_hours: 2 } }
  - { name: out, partitions: 1, retention: { hot_hours: 2 } }
";

/// A broker without streams, with an operator and a user that may use the topics of [`TOPICS`] and nothing else.
pub(super) fn broker(server_name: &str) -> Broker {
    let users = [BrokerUser::unlimited(OPERATOR, PASSWORD), bus_user()];
    Broker::start(BrokerSpec { server_name: server_name.to_owned(), ..BrokerSpec::with_users(users) }.disk(64 << 20))
}

fn bus_user() -> BrokerUser {
    let of_stream = |stream: &str| {
        let api = |call: &str| format!("$JS.API.{call}.{stream}");
        vec![
            api("STREAM.INFO"),
            format!("{}.>", api("CONSUMER.CREATE")),
            format!("{}.>", api("CONSUMER.MSG.NEXT")),
            format!("{}.>", api("CONSUMER.DELETE")),
            api("STREAM.MSG.GET"),
        ]
    };
    let subjects = ["in.raw.p0", "in.raw.p1", "in.raw.p2", "out.p0"].map(str::to_owned);
    let publish = ["av_in_raw", "av_out"].into_iter().flat_map(of_stream).chain(subjects);
    BrokerUser { publish: publish.collect(), ..BrokerUser::publisher(USER, PASSWORD, [""; 0]) }
}

pub(super) fn with_admin<T>(broker: &Broker, ask: impl AsyncFnOnce(Admin) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { ask(broker.admin().await).await })
}

/// A folder with the manifest, whose commands use the broker as the environment says.
pub(super) fn without_node(broker: &Broker) -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    let ca = env.write("ca.pem", broker.ca().root_pem());
    env.write("bridge.yaml", TOPICS);
    env.with_variable("AV_NATS_URL", format!("nats://{}", broker.address()))
        .with_variable("AV_NATS_CA_FILE", ca)
        .with_variable("AV_NATS_USER", USER)
        .with_variable("AV_NATS_PASSWORD", PASSWORD)
        .with_variable("AV_NATS_TLS_FIRST", "true")
}

const ON_NATS: [&str; 4] = ["--engine", "nats", "--manifest", "bridge.yaml"];

fn on_nats<'a>(words: &[&'a str]) -> Vec<&'a str> {
    words.iter().copied().chain(ON_NATS).collect()
}

fn run(env: &CliEnv, words: &[&str], status: i32) -> CliOutput {
    env.run(on_nats(words)).with_status(status)
}

/// As somebody who may make streams.
pub(super) fn as_operator(env: &CliEnv, words: &[&str]) -> Value {
    let mut command: Command = env.command(on_nats(words).iter().chain(&["--json"]));
    let output = command.env("AV_NATS_USER", OPERATOR).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn events(env: &CliEnv, words: &[&str]) -> Vec<Value> {
    documents(&run(env, &[words, &["--json"]].concat(), 0))
}

/// Of three partitions: `a` chooses the second, `g` the third, `c` the first.
const LINES: &str =
    "{\"id\":\"u1\",\"key\":\"a\"}\n{\"id\":\"u2\",\"key\":\"g\"}\n{\"id\":\"u3\",\"key\":\"a\"}\n{\"id\":\"u4\",\"key\":\"c\"}\n";
const POINTERS: [&str; 4] = ["--key-pointer", "/key", "--uid-pointer", "/id"];

fn publish_lines(env: &CliEnv, lines: &str, status: i32) -> Vec<Value> {
    let words = [&["bus", "publish", "in.raw", "--file", "-", "--json"][..], &POINTERS, &ON_NATS].concat();
    documents(&env.run_with_input(words, lines.as_bytes().to_vec()).with_status(status))
}

#[test]
fn streams_are_planned_made_and_made_again_without_a_node() {
    require_broker!();
    let broker = broker("127.0.0.1");
    let env = without_node(&broker);
    let missing = error_of(&run(&env, &["bus", "topics", "--json"], 1));
    assert_eq!(missing["kind"], json!("config"), "{missing}");
    assert!(missing.to_string().contains("av_in_raw") && missing.to_string().contains("latent broker provision"), "{missing}");
    let plan = as_operator(&env, &["bus", "provision", "--plan"]);
    assert_eq!(plan["topics"][0]["action"], json!("create"), "{plan}");
    assert_eq!(error_of(&run(&env, &["bus", "topics", "--json"], 1))["kind"], json!("config"), "a plan makes nothing");
    for _ in 0..2 {
        assert_eq!(as_operator(&env, &["bus", "provision"]), json!({ "name": "demo", "topics": 2, "partitions": 4 }));
    }
    assert_eq!(as_operator(&env, &["bus", "provision", "--plan"])["topics"][1]["action"], json!("keep"));
    // Who may only use them cannot make them.
    env.write("bridge.yaml", TOPICS.replace("name: out", "name: other"));
    assert_ne!(env.run(on_nats(&["bus", "provision"])).status, Some(0));
    // Another number of partitions is what provisioning refuses, too.
    env.write("bridge.yaml", TOPICS.replace("partitions: 3", "partitions: 2"));
    let changed = error_of(&run(&env, &["bus", "topics", "--json"], 1)).to_string();
    assert!(
        changed.contains("use 3; change the manifest, since provisioning would not") && !changed.contains("latent broker provision"),
        "{changed}"
    );
    // What would lose events is refused, and a plan that is refused is printed and fails.
    env.write("bridge.yaml", TOPICS.replace("partitions: 3", "partitions: 2"));
    let mut command = env.command(on_nats(&["bus", "provision", "--plan", "--json"]));
    let refused = command.env("AV_NATS_USER", OPERATOR).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let plan: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(plan["topics"][0]["action"], json!("refuse"), "{plan}");
}

#[test]
fn every_bus_command_works_on_a_broker_and_leaves_no_consumer() {
    require_broker!();
    let broker = broker("127.0.0.1");
    let env = without_node(&broker);
    as_operator(&env, &["bus", "provision"]);
    let stored = publish_lines(&env, LINES, 0);
    let offsets: Vec<_> = stored.iter().map(|event| event["offset"].as_u64().unwrap()).collect();
    assert_eq!(offsets, [1, 2, 3, 4], "sequences of one stream, over all partitions");
    let again = publish_lines(&env, LINES, 0);
    let duplicates: Vec<_> = again.iter().map(|event| (event["offset"].as_u64().unwrap(), event["duplicate"] == json!(true))).collect();
    assert_eq!(duplicates, [(1, true), (2, true), (3, true), (4, true)], "run again, nothing is doubled");
    let conflict = publish_lines(&env, "{\"id\":\"u1\",\"key\":\"a\",\"other\":1}\n", 1);
    assert_eq!(conflict[0]["error"]["kind"], json!("conflict"), "{conflict:?}");

    let topics = events(&env, &["bus", "topics"]);
    let counted: Vec<_> = topics.iter().map(|topic| (&topic["topic"], &topic["partitions"], &topic["events"])).collect();
    assert_eq!(counted, [(&json!("in.raw"), &json!(3), &json!(4)), (&json!("out"), &json!(1), &json!(0))]);
    let partitions: Vec<_> = stored.iter().map(|event| event["partition"].as_u64().unwrap()).collect();
    assert_eq!(partitions, [1, 2, 1, 0]);
    let of_a = "1";
    let read = events(&env, &["bus", "fetch", "in.raw", "--partition", of_a]);
    assert_eq!(read.iter().map(|event| event["uid"].as_str().unwrap()).collect::<Vec<_>>(), ["u1", "u3"]);
    assert_eq!(events(&env, &["bus", "fetch", "in.raw", "--offset", "4"]).len(), 1);
    assert_eq!(events(&env, &["bus", "fetch", "in.raw", "--max", "1"]).len(), 3, "of each partition one");
    // People are told where there is more, by what is there and not by offsets.
    let told = run(&env, &["bus", "fetch", "in.raw", "--partition", of_a, "--max", "1"], 0).stderr;
    assert!(told.contains("more from offset 3"), "{told}");
    let told = run(&env, &["bus", "fetch", "in.raw", "--partition", of_a, "--offset", "3", "--max", "1"], 0).stderr;
    assert_eq!(told, "", "nothing of this partition lies behind it");

    for key in [&["--key", "c"][..], &[]] {
        let found = events(&env, &[&["bus", "find", "in.raw", "u4"], key].concat());
        assert_eq!((&found[0]["uid"], &found[0]["offset"], &found[0]["value"]["key"]), (&json!("u4"), &json!(4), &json!("c")));
    }
    assert_eq!(error_of(&run(&env, &["bus", "find", "in.raw", "nobody", "--json"], 1))["kind"], json!("not-found"));

    // The key chooses the partition and is compared with nothing.
    assert_eq!(events(&env, &["bus", "find", "in.raw", "u4", "--key", "f"])[0]["key"], json!("c"));
    assert_eq!(error_of(&run(&env, &["bus", "find", "in.raw", "u4", "--key", "a", "--json"], 1))["kind"], json!("not-found"));

    let stats = events(&env, &["bus", "stats", "in.raw"]);
    assert_eq!(stats[0]["bytes"], Value::Null, "nobody says what a partition has: {stats:?}");
    let records: u64 = stats.iter().map(|partition| partition["records"].as_u64().unwrap()).sum();
    assert_eq!((stats.len(), records), (3, 4));
    let bounds: Vec<_> =
        stats.iter().map(|of| [&of["first"], &of["next"], &of["records"]].map(|number| number.as_u64().unwrap())).collect();
    assert_eq!(bounds, [[4, 5, 1], [1, 4, 2], [2, 3, 1]]);
    let done = &events(&env, &["bus", "maintain"])[0];
    assert_eq!((&done["expired_records"], &done["skipped_topics"]), (&json!(0), &json!([])));
    for (words, kind) in [
        (&["bus", "fetch", "nowhere", "--json"][..], "unknown-topic"),
        (&["bus", "fetch", "in.raw", "--partition", "3", "--json"], "out-of-range"),
        (&["bus", "tail", "nowhere", "--json"], "unknown-topic"),
    ] {
        assert_eq!(error_of(&run(&env, words, 1))["kind"], json!(kind), "{words:?}");
    }
    // What somebody else put into a stream is told and in nobody's way.
    with_admin(&broker, async |admin| admin.publish("in.raw.p1", b"no record").await);
    let told = env.run(on_nats(&["bus", "fetch", "in.raw", "--json"])).with_status(1);
    assert_eq!((documents(&told).len(), &error_of(&told)["kind"]), (4, &json!("unreadable")), "{}", told.stderr);
    assert_eq!(publish_lines(&env, "{\"id\":\"u5\",\"key\":\"a\"}\n", 0)[0]["offset"], json!(6));
    assert_eq!(events(&env, &["bus", "fetch", "in.raw", "--partition", of_a, "--offset", "6"]).len(), 1);
    assert_eq!(events(&env, &["bus", "find", "in.raw", "u5"])[0]["offset"], json!(6));
    let mut tail = Running::start(&env, &on_nats(&["bus", "tail", "in.raw", "--partition", of_a, "--from-start", "--json"]));
    let uids = [(); 3].map(|()| tail.document()["uid"].as_str().unwrap().to_owned());
    assert_eq!((uids, tail.stop()), (["u1", "u3", "u5"].map(str::to_owned), Some(0)), "a tail passes it");
    with_admin(&broker, async |admin| {
        wait_until("the broker forgets connections that ended", || admin.connections_of(USER) == 0);
        assert_eq!(admin.consumers(), 0, "each command deletes what it made");
    });
}

#[test]
fn a_publication_that_the_broker_did_not_answer_is_uncertain_and_the_same_file_again_stores_it_once() {
    require_broker!();
    let broker = broker("127.0.0.1");
    let env = without_node(&broker);
    as_operator(&env, &["bus", "provision"]);
    let words = [&["bus", "publish", "in.raw", "--file", "-", "--json"][..], &POINTERS, &ON_NATS].concat();
    let mut publishing = Running::start(&env, &words);
    let lines: Vec<_> = LINES.split_inclusive('\n').collect();
    publishing.write(lines[0].as_bytes());
    assert_eq!(publishing.document()["offset"], json!(1));
    broker.pause();
    publishing.write(lines[1].as_bytes());
    let error = publishing.document()["error"].clone();
    assert_eq!((&error["kind"], &error["uncertain"], &error["permanent"]), (&json!("uncertain"), &json!(true), &json!(false)));
    drop(publishing.stdin.take());
    assert_eq!(publishing.child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(3));
    broker.resume();
    publish_lines(&env, LINES, 0);
    with_admin(&broker, async |admin| assert_eq!(admin.count("av_in_raw").await, 4));
}

/// Lines of three keys, one in each partition, each with its number.
fn numbered(count: u64) -> String {
    let line = |(number, key): (u64, &&str)| format!("{{\"id\":\"n{number}\",\"key\":\"{key}\",\"n\":{number}}}\n");
    (0..count).zip(["a", "g", "c"].iter().cycle()).map(line).collect()
}

/// Numbers of the stored events of each key, in the order of its partition.
fn numbers_by_key(env: &CliEnv) -> Vec<Vec<u64>> {
    let read = |partition: &str| events(env, &["bus", "fetch", "in.raw", "--partition", partition, "--max", "1000000"]);
    ["0", "1", "2"].iter().map(|partition| read(partition).iter().map(|event| event["value"]["n"].as_u64().unwrap()).collect()).collect()
}

#[test]
fn a_publication_ends_at_an_outage_and_the_same_file_again_keeps_the_order_of_every_key() {
    require_broker!();
    // More than are published before the outage, however late that is seen.
    const LINES: u64 = 200_000;
    let broker = broker("127.0.0.1");
    let env = without_node(&broker);
    as_operator(&env, &["bus", "provision"]);
    env.write("events.jsonl", numbered(LINES));
    let words = [&["bus", "publish", "in.raw", "--file", "events.jsonl", "--json"][..], &POINTERS, &ON_NATS].concat();
    let mut publishing = env.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(publishing.stdout.take().unwrap());
    let reading =
        std::thread::spawn(move || stdout.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect::<Vec<Value>>());
    // In the middle of a batch. The client is connected again while it waits for the answers that are lost. One that waits for none at that
    // moment sees no outage, and there is another one.
    for outage in 0..20 {
        with_admin(&broker, async |admin| {
            let due = admin.count("av_in_raw").await + if outage == 0 { 1_100 } else { 10_000 };
            while admin.count("av_in_raw").await <= due && !reading.is_finished() {}
        });
        if reading.is_finished() {
            break;
        }
        broker.kill();
        broker.restart();
    }
    let told = reading.join().unwrap();
    let output = publishing.wait_with_output().unwrap();
    let error: Value = serde_json::from_str(String::from_utf8_lossy(&output.stderr).lines().last().unwrap()).unwrap();
    let uncertain = told.iter().any(|line| line["error"]["uncertain"] == json!(true));
    assert_eq!(output.status.code(), Some(if uncertain { 3 } else { 1 }), "{error}");
    let stopped = &error["error"]["stopped"];
    let (open, last) = (stopped["first_open"].as_u64().unwrap(), stopped["last_read"].as_u64().unwrap());
    let first_told = told.iter().find_map(|line| line["line"].as_u64()).unwrap();
    assert!(first_told == open && open <= last && last < LINES, "{error}");
    assert!(error["error"]["next"].as_str().unwrap().contains("publish the same file again"), "{error}");
    // The same file, or as much of it as shows the rest.
    let lines = last + 2_000;
    env.write("events.jsonl", numbered(lines));
    let again = documents(&env.run(&words).with_status(0));
    assert_eq!(again.len() as u64, lines);
    let numbers = numbers_by_key(&env);
    assert_eq!(numbers.iter().map(Vec::len).sum::<usize>() as u64, lines, "nothing is lost and nothing doubled");
    assert!(numbers.iter().all(|of_key| of_key.is_sorted()), "each key in the order of the file");
}

#[test]
fn a_long_file_is_stored_once_however_often_it_is_published() {
    require_broker!();
    let broker = broker("127.0.0.1");
    let env = without_node(&broker);
    as_operator(&env, &["bus", "provision"]);
    let lines: String = (0..3_000).map(|number| format!("{{\"number\":{number}}}\n")).collect();
    env.write("events.jsonl", &lines);
    for duplicate in [false, true] {
        let results = events(&env, &["bus", "publish", "out", "--file", "events.jsonl"]);
        assert_eq!(results.iter().filter(|event| event["duplicate"] == json!(duplicate)).count(), 3_000);
    }
    let read = events(&env, &["bus", "fetch", "out", "--max", "10000"]);
    let numbers: Vec<_> = read.iter().map(|event| event["value"]["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..3_000).collect::<Vec<_>>());
}

#[test]
fn a_tail_follows_a_broker_with_one_consumer_a_partition_and_through_its_restart() {
    require_broker!();
    let broker = broker("127.0.0.1");
    let env = without_node(&broker);
    as_operator(&env, &["bus", "provision"]);
    publish_lines(&env, LINES, 0);
    let mut tail = Running::start(&env, &on_nats(&["bus", "tail", "in.raw", "--from-start", "--json"]));
    let mut seen: Vec<_> = (0..4).map(|_| tail.document()["uid"].as_str().unwrap().to_owned()).collect();
    seen.sort();
    assert_eq!(seen, ["u1", "u2", "u3", "u4"]);
    publish_lines(&env, "{\"id\":\"u5\",\"key\":\"a\"}\n", 0);
    assert_eq!(tail.document()["uid"], json!("u5"));
    with_admin(&broker, async |admin| {
        // One for each partition, whatever was polled meanwhile; a command that just ended may still have one.
        wait_until("the tail's consumers alone", || admin.consumers() <= 3);
    });
    broker.stop();
    broker.restart();
    publish_lines(&env, "{\"id\":\"u6\",\"key\":\"a\"}\n", 0);
    assert_eq!(tail.document()["uid"], json!("u6"), "it goes on where it was");
    assert_eq!(tail.stop(), Some(0));
    with_admin(&broker, async |admin| wait_until("no consumer is left", || admin.consumers() == 0));
}

#[test]
fn a_partition_that_cannot_be_read_is_told_and_holds_up_no_other_one() {
    require_broker!();
    let broker = broker("127.0.0.1");
    let env = without_node(&broker);
    make_streams(&broker, &json!({ "max_consumers": 2 }));
    publish_lines(&env, LINES, 0);
    let words = on_nats(&["bus", "tail", "in.raw", "--from-start", "--json"]);
    let mut command = env.command(&words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tail = ChildGuard::spawn(&mut command).unwrap();
    let (mut stdout, mut stderr) = (BufReader::new(tail.take_stdout().unwrap()), BufReader::new(tail.take_stderr().unwrap()));
    let mut next = |wanted: &str| {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["uid"], json!(wanted), "{line}");
    };
    // The first partition has u4, the second one u1 and u3; the third one gets no consumer any more.
    ["u4", "u1", "u3"].into_iter().for_each(&mut next);
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let note: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&note["topic"], &note["partitions"]), (&json!("in.raw"), &json!([2])), "{note}");
    let told = note["note"].as_str().unwrap();
    assert!(told.starts_with("partition 2 of in.raw cannot be read now") && told.contains("maximum consumers limit"), "{told}");
    publish_lines(&env, "{\"id\":\"u5\",\"key\":\"a\"}\n", 0);
    next("u5");
    tail.terminate().unwrap();
    assert_eq!(tail.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(1));
    let rest: Vec<_> = stderr.lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()).collect();
    assert_eq!(rest.len(), 1, "it is told once: {rest:?}");
    let error = &rest[0]["error"];
    assert_eq!((&error["kind"], &error["partitions"]), (&json!("partitions-unread"), &json!([{ "partition": 2, "offset": 2 }])), "{error}");
    // Where no partition can ever be read, there is nothing to wait for.
    let mut first = Running::start(&env, &on_nats(&["bus", "tail", "in.raw", "--partition", "0", "--from-start", "--json"]));
    let mut second = Running::start(&env, &on_nats(&["bus", "tail", "in.raw", "--partition", "1", "--from-start", "--json"]));
    let _ = (first.document(), second.document());
    let error = error_of(&run(&env, &["bus", "tail", "in.raw", "--partition", "2", "--json"], 1));
    assert_eq!(error["kind"], json!("backend"), "{error}");
    assert_eq!((first.stop(), second.stop()), (Some(0), Some(0)));
}

#[test]
fn what_is_wrong_with_the_environment_is_named_with_the_next_step() {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    env.write("bridge.yaml", TOPICS);
    let url = ("AV_NATS_URL", "nats://127.0.0.1:1");
    env.write("empty.pem", "");
    let cases: [(&[(&str, &str)], &str); 8] = [
        (&[], "AV_NATS_URL is not set"),
        (&[("AV_NATS_URL", "")], "AV_NATS_URL is set and empty"),
        (&[("AV_NATS_URL", "nats://u:secret@127.0.0.1:1")], "credentials do not belong"),
        (&[("AV_NATS_URL", "http://127.0.0.1:1")], "cannot be dialled"),
        (&[url, ("AV_NATS_USER", "u")], "AV_NATS_USER and AV_NATS_PASSWORD must be set together"),
        (&[url, ("AV_NATS_TLS_FIRST", "yes")], "write true or false"),
        (&[url, ("AV_NATS_CA_FILE", "nowhere.pem")], "AV_NATS_CA_FILE: the file of root certificates \\\"nowhere.pem\\\" cannot be read"),
        (&[url, ("AV_NATS_CA_FILE", "empty.pem")], "has no certificate"),
    ];
    for command in [&["bus", "topics"][..], &["bus", "provision"], &["bus", "publish", "out", "--file", "bridge.yaml"]] {
        for (variables, words) in cases {
            let mut process = env.command(on_nats(command).iter().chain(&["--json"]));
            let output = process.envs(variables.iter().copied()).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{variables:?}: {told}");
            assert!(told.contains("\"environment\"") && told.contains(words) && told.contains("docs/bus.md"), "{variables:?}: {told}");
            assert!(!told.contains("secret"), "{told}");
            // Where another variable is wrong, the broker's address is not what to see to.
            let is_of_another = words.contains("CA_FILE") || words.contains("certificate") || words.contains("true or false");
            assert_eq!(told.contains("set AV_NATS_URL"), !is_of_another && !words.contains("together"), "{told}");
        }
    }
}

#[test]
fn words_of_a_broker_move_no_cursor() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let refusing = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let info = json!({ "server_id": "x", "version": "2.14.0", "max_payload": 1_048_576, "proto": 1, "headers": true });
        write!(stream, "INFO {info}\r\n").unwrap();
        let mut connect = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut connect).unwrap();
        write!(stream, "-ERR 'not \u{1b}[2J\u{1b}]0;here\u{7}'\r\n").unwrap();
    });
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent")).with_variable("AV_NATS_URL", format!("nats://{address}"));
    env.write("bridge.yaml", TOPICS);
    let told = run(&env, &["bus", "topics"], 1).stderr;
    refusing.join().unwrap();
    assert!(told.to_lowercase().contains(r"not \u{1b}[2j\u{1b}]0;here\u{7}"), "{told:?}");
    assert!(!told.contains(|c: char| c.is_control() && c != '\n'), "{told:?}");
}

/// A node on the broker: its root, a key, and the password in the store.
pub(super) fn with_node(broker: &Broker) -> CliEnv {
    let env = without_credential(broker);
    let port = broker.address().port().to_string();
    let words = ["secret", "put", USER, "--bus", "--server-name", &broker.server_name(), "--port", &port];
    let _ = env.run_with_input(words, PASSWORD.as_bytes().to_vec()).with_status(0);
    env
}

fn without_credential(broker: &Broker) -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    env.write("bridge.yaml", TOPICS);
    env.write("plain.wasm", PLAIN.component);
    env.write("ca.der", broker.ca().root_der());
    let key = env.write("secrets.key", [7; 32]);
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
    env.write("latent.toml", config(&broker.address().to_string(), &broker.server_name()));
    env
}

fn config(address: &str, server_name: &str) -> String {
    format!(
        r#"
[node]
name = "edge-1"
data_dir = "data"
[engine]
kind = "nats"
manifest = "bridge.yaml"
address = "{address}"
allow_non_public_peer = "{address}"
server_name = "{server_name}"
roots = ["ca.der"]
bus_credential = "{USER}"
[secrets]
key_file = "secrets.key"
[[topic]]
name = "in.raw"
tenant = "acme"
[[topic]]
name = "out"
tenant = "acme"
[[service]]
name = "plain"
tenant = "acme"
component = "plain.wasm"
grants = [{{ capability = "latent:events/publisher@0.2.0", topics = ["out"] }}]
"#
    )
}

/// Makes the streams of a node, as somebody else would: beside it.
pub(super) fn provision_for(broker: &Broker, env: &CliEnv) {
    let ca = env.write("ca.pem", broker.ca().root_pem());
    // The certificate is of a name that resolves to nothing here, so the streams are made through the test's own client.
    drop(ca);
    make_streams(broker, &json!({}));
}

/// The streams of [`TOPICS`], with what `more` says of each.
pub(super) fn make_streams(broker: &Broker, more: &Value) {
    with_admin(broker, async |admin| {
        for (stream, subjects) in [("av_in_raw", json!(["in.raw.p0", "in.raw.p1", "in.raw.p2"])), ("av_out", json!(["out.p0"]))] {
            let nanos = 7_200_000_000_000_u64;
            let mut stream_config = json!({
                "name": stream, "subjects": subjects, "storage": "file", "retention": "limits", "discard": "old", "max_age": nanos,
                "duplicate_window": nanos, "num_replicas": 1, "allow_direct": true,
            });
            stream_config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let reply = admin.client().request(format!("$JS.API.STREAM.CREATE.{stream}"), stream_config.to_string().into()).await.unwrap();
            assert!(!String::from_utf8_lossy(&reply.payload).contains("\"error\""), "{:?}", reply.payload);
        }
    });
}

fn invoke_publish(env: &CliEnv) -> CliOutput {
    env.run(["invoke", "plain", "demo:plain/work@1.0.0#announce", "--args", "[\"out\"]", "--json"])
}

#[test]
fn a_node_on_a_broker_publishes_what_its_functions_publish_stopped_or_running() {
    require_broker!();
    let broker = broker("broker.latent.test");
    let env = with_node(&broker);
    assert!(env.run(["check"]).with_status(0).stdout.contains("warnings: 0"));
    // A check is offline: it asks nobody. What is not there is told by who needs it.
    let refused = error_of(&invoke_publish(&env).with_status(1));
    assert_eq!(refused["kind"], json!("config"), "{refused}");
    assert!(refused.to_string().contains("av_in_raw"), "{refused}");
    provision_for(&broker, &env);

    let first = documents(&invoke_publish(&env).with_status(0)).remove(0);
    assert_eq!((&first["outcome"], &first["result"]), (&json!("success"), &json!([{ "ok": "1" }])), "{first}");
    let stopped = documents(&env.run(["bus", "topics", "--json"]).with_status(0));
    assert_eq!(stopped[1], json!({ "topic": "out", "partitions": 1, "events": 1 }), "the broker itself is asked");
    let stored = &fetched(&env, "out", 0)[0];
    let uid = stored["uid"].as_str().unwrap().to_owned();
    assert!(uid.starts_with("lsf-"), "derived by the host: {uid}");

    let node = node(&env);
    let again = documents(&invoke_publish(&env).with_status(0)).remove(0);
    assert_eq!(again["result"], json!([{ "ok": "1" }]), "the same key, so the same event");
    assert_eq!(fetched(&env, "out", 0).len(), 1);
    assert_eq!(publish(&env, &["in.raw"], b"{\"n\":1}\n", 0)[0]["offset"], json!(1), "through the node");
    let found = documents(&env.run(["bus", "find", "out", &uid, "--json"]).with_status(0));
    assert_eq!(found[0]["value"], json!({ "data_base64": "ZnJvbSBwbGFpbg==" }), "{found:?}");
    assert_eq!(documents(&env.run(["bus", "maintain", "--json"]).with_status(0))[0]["expired_records"], json!(0));
    let why = documents(&env.run(["why", "out", &uid, "--json"]).with_status(0)).remove(0);
    assert_eq!((&why["uid"], &why["triggers"]), (&json!(uid), &json!([])), "{why}");
    broker.stop();
    let away = documents(&invoke_publish(&env).with_status(1)).remove(0);
    assert!(away["result"][0]["err"].as_str().unwrap().contains("cannot take the event now"), "{away}");
    broker.restart();
    wait_until("the node's connection mends itself", || invoke_publish(&env).status == Some(0));
    let second = error_of(&env.run(["run", "--json"]).with_status(1));
    assert_eq!(second["kind"], json!("node-running"), "one node for one directory: {second}");
    assert_eq!(node.stop(), Some(0));
    with_admin(&broker, async |admin| {
        let messages = admin.messages("av_out").await;
        assert_eq!((messages.len(), messages[0].header("Nats-Msg-Id")), (1, Some(&*uid)));
        wait_until("the node's connections are closed", || admin.connections_of(USER) == 0);
        assert_eq!(admin.consumers(), 0);
    });
}

#[test]
fn dev_refuses_topics_on_a_broker_before_anything_is_dialled_or_built() {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    env.write("bridge.yaml", TOPICS);
    env.write("ca.der", latent_testkit::broker::TestCa::new().root_der());
    env.write("latent.toml", config("127.0.0.1:1", "broker.latent.test"));
    let _ = env.run(["bus", "topics"]).with_status(1);
    let error = error_of(&env.run(["dev", ".", "--json"]).with_status(2));
    assert_eq!((&error["kind"], &error["problems"][0]["kind"]), (&json!("config-invalid"), &json!("config-dev-on-nats")), "{error}");
    assert!(error["next"].as_str().unwrap().contains("kind = \"embedded\""), "{error}");
    assert!(!env.folder().join("data").exists(), "nothing was made");
}

#[test]
fn a_rotated_password_of_the_bus_holds_from_the_next_start_and_the_command_says_so() {
    require_broker!();
    const NEW: &str = "MARKER-new-71d4";
    let broker = broker("broker.latent.test");
    let env = with_node(&broker);
    provision_for(&broker, &env);
    let running = node(&env);
    let words = ["secret", "rotate", USER, "--json"];
    let rotated = env.run_with_input(words, NEW.into()).with_status(0);
    let note: Value = serde_json::from_str(rotated.stderr.lines().last().unwrap()).unwrap();
    assert_eq!((&note["secret"], &note["restart"]), (&json!(USER), &json!(true)), "{note}");
    broker.reload(|spec| {
        let changed = BrokerUser { password: NEW.to_owned(), ..bus_user() };
        spec.auth = latent_testkit::broker::BrokerAuth::Users(vec![BrokerUser::unlimited(OPERATOR, PASSWORD), changed]);
    });
    wait_until("the broker to take the old one no more", || invoke_publish(&env).status == Some(1));
    assert_eq!(running.stop(), Some(0));
    let running = node(&env);
    assert_eq!(documents(&invoke_publish(&env).with_status(0))[0]["outcome"], json!("success"));
    assert_eq!(running.stop(), Some(0));
    let revoked = env.run(["secret", "revoke", USER]).with_status(0);
    assert!(revoked.stderr.contains("a running node goes on with it until it ends"), "{}", revoked.stderr);
}

#[test]
fn a_node_starts_without_its_broker_says_so_and_finds_it_later() {
    require_broker!();
    let broker = broker("broker.latent.test");
    let env = with_node(&broker);
    provision_for(&broker, &env);
    broker.stop();
    // Without a node somebody waits for the answer, and is told at once.
    let away = error_of(&invoke_publish(&env).with_status(1));
    assert_eq!(away["kind"], json!("not-sent"), "{away}");
    let running = node(&env);
    let refused = documents(&invoke_publish(&env).with_status(1)).remove(0);
    assert!(refused["result"][0]["err"].as_str().unwrap().contains("cannot take the event now"), "{refused}");
    let topics = error_of(&env.run(["bus", "topics", "--json"]).with_status(1));
    assert_eq!(topics["kind"], json!("not-sent"), "{topics}");
    let warned = env.run(["trigger", "status"]).with_status(0).stderr;
    assert!(warned.contains("warning: the broker was not reached for "), "{warned}");
    broker.restart();
    wait_until("the node to find its broker", || invoke_publish(&env).status == Some(0));
    assert_eq!(documents(&env.run(["bus", "topics", "--json"]).with_status(0))[1]["events"], json!(1));
    assert!(!env.run(["trigger", "status"]).with_status(0).stderr.contains("was not reached"));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn an_outage_of_the_broker_is_one_line_at_its_begin_and_one_at_its_end() {
    require_broker!();
    let broker = broker("broker.latent.test");
    let env = with_node(&broker);
    provision_for(&broker, &env);
    let log = env.folder().join("node.log");
    let mut command = env.command(["run"]);
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let mut node = ChildGuard::spawn(&mut command).unwrap();
    wait_until("the node's answer on its control socket", || answers(&env.folder().join("data/control.sock")));
    let _ = invoke_publish(&env).with_status(0);
    broker.stop();
    for _ in 0..5 {
        let _ = invoke_publish(&env).with_status(1);
    }
    let lines = |words: &str| std::fs::read_to_string(&log).unwrap().lines().filter(|line| line.contains(words)).count();
    wait_until("the loss in the log", || lines("the connection to the broker is lost") > 0);
    broker.restart();
    wait_until("a publication", || invoke_publish(&env).status == Some(0));
    node.terminate().unwrap();
    assert_eq!(node.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
    let counts = ["the connection to the broker is lost", "connected to the broker again", "has a problem", "async_nats"].map(lines);
    assert_eq!(counts, [1, 1, 0, 0], "{}", std::fs::read_to_string(&log).unwrap());
}

#[test]
fn what_needs_no_topics_needs_no_broker() {
    require_broker!();
    let broker = broker("broker.latent.test");
    let env = with_node(&broker);
    broker.stop();
    let _ = env.run(["check"]).with_status(0);
    assert!(env.run(["service", "list"]).with_status(0).stdout.contains("SERVICE"));
    assert!(env.run(["clock", "status"]).with_status(0).stdout.contains("sound"));
    let _ = env.run(["trigger", "status"]).with_status(0);
    assert_eq!(error_of(&env.run(["trigger", "forget", "t", "--json"]).with_status(1))["kind"], json!("unknown-trigger"));
    assert!(env.run(["deadletter", "list"]).with_status(0).stderr.contains("no trigger of"));
    let as_node = error_of(&env.run(["bus", "provision", "--json"]).with_status(2)).to_string();
    assert!(as_node.contains("latent broker provision -c latent.toml"), "{as_node}");
}

#[test]
fn a_node_whose_broker_refuses_it_or_is_away_says_which_and_what_to_do() {
    require_broker!();
    let broker = broker("broker.latent.test");
    let env = without_credential(&broker);
    let refused = |words: &[&str]| error_of(&env.run(words).with_status(1));
    let start = ["run", "--json"];
    let no_store = refused(&start).to_string();
    assert!(no_store.contains("data/secrets does not exist") && no_store.contains("--bus"), "{no_store}");
    let put = |name: &str, port: u16, value: &str, more: &[&str]| {
        let (server, port) = (broker.server_name(), port.to_string());
        let words = [&["secret", "put", name, "--server-name", &server, "--port", &port], more].concat();
        let _ = env.run_with_input(words, value.as_bytes().to_vec()).with_status(0);
    };
    let revoke = || env.run(["secret", "revoke", USER]).with_status(0);
    let port = broker.address().port();
    // One of a provider, one for another port: neither is shown to the broker.
    put(USER, port, PASSWORD, &["--tenant", "acme", "--provider", "topics"]);
    let purpose = refused(&start);
    assert_eq!(purpose["kind"], json!("bus-credential"), "{purpose}");
    assert!(purpose.to_string().contains("its purpose is tls-provider-credential, not bus-credential"), "{purpose}");
    let _ = revoke();
    put(USER, port.wrapping_add(1).max(1), PASSWORD, &["--bus"]);
    assert!(refused(&start).to_string().contains("it is for port"));
    let _ = revoke();
    put(USER, port, "another password", &["--bus"]);
    for words in [&start[..], &["bus", "topics", "--json"]] {
        let wrong = refused(words);
        let told = wrong.to_string();
        assert!(told.contains(USER) && told.contains(&broker.address().to_string()), "{told}");
        assert!(!told.contains("another password"), "{told}");
    }
    let _ = revoke();
    put(USER, port, PASSWORD, &["--bus"]);
    broker.stop();
    assert!(!env.folder().join("data/control.sock").exists(), "nothing is served");
    let away = refused(&["bus", "topics", "--json"]).to_string();
    assert!(away.contains("see that the broker runs at"), "{away}");
    // A trigger without a user on the broker is refused before anything is dialled.
    let with_trigger = config(&broker.address().to_string(), &broker.server_name())
        + "[[trigger]]\nid = \"t\"\ntenant = \"acme\"\nservice = \"plain\"\ntopic = \"out\"\n";
    env.write("latent.toml", with_trigger);
    let problems = error_of(&env.run(["run", "--json"]).with_status(2))["problems"].clone();
    assert_eq!((&problems[0]["kind"], problems.as_array().unwrap().len()), (&json!("config-no-credential"), 1), "{problems}");
}
