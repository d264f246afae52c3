//! `with_broker PROGRAM ARGUMENTS…`: runs a program with the pinned broker beside it, and tells it which: `--address`, `--server-name`,
//! `--root`, `--user`, `--password-file`, `--subject`, `--stream`. For `cargo xtask bench publish` and `cargo xtask bench trigger`.
//!
//! The broker has one stream, in files below the folder for temporary ones. It ends with this process, however that ends. With `--consumers`
//! ahead of the program the stream has 258 durable consumers `bench-0` and so on, as `nats-jetstream-pull-v1` needs them, 264
//! `lane-0` and so on as `nats-jetstream-pull-v2` does, and two `peer-0` and `peer-1`, each of one subject below the one that is told.
#![allow(clippy::expect_used, clippy::print_stderr, reason = "a tool of the project: a panic is how it fails")]

use std::process::{Command, ExitCode};

use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser, LaneConsumer, PullConsumer, StreamSpec};

/// A name that leads to the broker's address, for clients that look the name up.
const SERVER_NAME: &str = "localhost";
const USER: &str = "bench";
const PASSWORD: &str = "of a broker that lives as long as one measurement";
const SUBJECT: &str = "bench.out";
const STREAM: &str = "BENCH";
/// Room for everything that one measurement publishes.
const STREAM_BYTES_MAX: i64 = 8 << 30;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let has_consumers = arguments.next_if(|word| word == "--consumers").is_some();
    let Some(program) = arguments.next() else {
        eprintln!("usage: with_broker [--consumers] PROGRAM ARGUMENTS…");
        return ExitCode::from(2);
    };
    let consumers = if has_consumers { PullConsumer::of_the_bench(STREAM, SUBJECT) } else { Vec::new() };
    let lanes = if has_consumers { LaneConsumer::of_the_bench(STREAM, SUBJECT) } else { Vec::new() };
    let names = consumers.iter().map(|consumer| &consumer.name).chain(lanes.iter().map(|lane| &lane.name));
    let mut user = BrokerUser::trigger(USER, PASSWORD, names.map(|name| (STREAM, name.as_str())));
    let filters = consumers.iter().map(|consumer| &consumer.filter).chain(lanes.iter().map(|lane| &lane.filter));
    let subjects: Vec<_> = filters.cloned().chain([SUBJECT.to_owned()]).collect();
    user.publish.extend(subjects.iter().cloned());
    let stream = StreamSpec::new(STREAM, subjects).on_disk(STREAM_BYTES_MAX);
    let broker = Broker::start(BrokerSpec { server_name: SERVER_NAME.to_owned(), ..BrokerSpec::with_users([user]).stream(stream) });
    broker.add_consumers(&consumers);
    broker.add_lanes(&lanes);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (root, password) = (folder.path().join("root.der"), folder.path().join("password"));
    std::fs::write(&root, broker.ca().root_der()).expect("a file for the root");
    std::fs::write(&password, PASSWORD).expect("a file for the password");
    let mut command = Command::new(program);
    command.args(arguments).arg("--address").arg(broker.address().to_string()).args(["--server-name", SERVER_NAME]);
    command.arg("--root").arg(&root).args(["--user", USER]).arg("--password-file").arg(&password);
    command.args(["--subject", SUBJECT, "--stream", STREAM]);
    let status = command.status().expect("the program");
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
