//! The corpus replayed on a stable compiler, and seeded mutations of it (D-32).
//!
//! `LATENT_FUZZ_SECONDS` mutates for so long instead of a fixed number of times; `cargo xtask fuzz` sets it. A failure names target, input
//! and seed, which make the same bytes again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{TARGETS, Target};
use crate::testing::{INFO, message, message_with_headers};

const SECONDS_VAR: &str = "LATENT_FUZZ_SECONDS";
const BLESS_VAR: &str = "LATENT_BLESS_CORPUS";
/// Mutations of each input when no time is given.
const MUTATIONS: u64 = 2_000;

/// splitmix64: its whole state is the seed that a failure names.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap()
    }
}

struct Input {
    target: &'static Target,
    name: String,
    content: Vec<u8>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz-corpus")
}

fn committed() -> Vec<Input> {
    let mut inputs = Vec::new();
    for target in TARGETS {
        let mut paths: Vec<_> = std::fs::read_dir(folder().join(target.name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        inputs.extend(paths.into_iter().map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            Input { target, name, content: std::fs::read(path).unwrap() }
        }));
    }
    inputs
}

const STORED: &str = r#"{"stream":"ORD","seq":1,"duplicate": true,"domain":"hub"}"#;
const REFUSED: &str = r#"{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},"stream":"ORD","seq":0}"#;
const NESTED: &str = r#"{"x":[{"a":[[{"b":1,"\u0062c":-1.5e+7}]]},null,"\ud83d\ude00"],"stream":"ORD","seq":18446744073709551615}"#;
const NO_RESPONDERS: &str = "NATS/1.0 503\r\nNats-Subject: orders.new\r\n\r\n";

const CONSUMER: &str = r#"{"stream_name":"ORD","name":"c1","config":{"durable_name":"c1","deliver_policy":"all","ack_policy":"explicit",
"ack_wait":11000000000,"max_deliver":5,"filter_subject":"orders.new","replay_policy":"instant","max_waiting":1,"max_ack_pending":1,
"max_batch":1,"max_expires":100000000,"max_bytes":9280},"delivered":{"consumer_seq":3,"stream_seq":22},
"ack_floor":{"consumer_seq":2,"stream_seq":21},"num_ack_pending":1,"num_redelivered":0,"num_waiting":0,"num_pending":7}"#;

const PULL_CONSUMER: &str = r#"{"stream_name":"ORD","name":"c1","config":{"durable_name":"c1","deliver_policy":"all","ack_policy":"explicit",
"ack_wait":30000000000,"max_deliver":13,"filter_subject":"orders.p1","replay_policy":"instant","max_waiting":512,"max_ack_pending":8,
"priority_groups":["latent"],"priority_policy":"pinned_client","priority_timeout":60000000000},"delivered":{"consumer_seq":3,"stream_seq":22},
"ack_floor":{"consumer_seq":2,"stream_seq":21},"num_ack_pending":1,"num_redelivered":0,"num_waiting":0,"num_pending":7,
"priority_groups":[{"group":"latent","pinned_client_id":"qKMu3Z5zuV1P5eEzYG80QW","pinned_ts":"2026-11-30T15:33:31Z"}]}"#;

/// Everything of the corpus that our own code makes.
fn made() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let stream = |piece: u8, frames: &[&[u8]]| [&[piece], &*frames.concat()].concat();
    let reply = message(1, STORED);
    let control: &[&[u8]] = &[b"PING\r\n", b"+OK\r\n", INFO, b"PONG\r\n", b"-ERR 'Stale Connection'\r\n"];
    let session: &[u8] = &[0, 0, 0, 0, 1, 0];
    let script = |rest: &[u8]| [session, rest].concat();
    vec![
        ("nats_frames", "control", stream(3, control)),
        ("nats_frames", "reply", stream(7, &[&reply, b"msg a.b 1 r 0\r\n\r\n"])),
        ("nats_frames", "no-responders", stream(1, &[&message_with_headers(1, NO_RESPONDERS, "")])),
        ("nats_frames", "long-line", stream(255, &[b"INFO ", &[b'x'; 8_187], b"\r\nPING\r\n"])),
        ("nats_frames", "large-body", stream(200, &[b"MSG a 1 4096\r\n", &[b'x'; 4_096], b"\r\nPING\r\n"])),
        ("nats_headers", "no-responders", NO_RESPONDERS.into()),
        ("nats_headers", "described", b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 1\r\n\r\n".to_vec()),
        ("nats_headers", "none", b"NATS/1.0\r\nA: b\r\n\r\n".to_vec()),
        ("nats_info", "pinned", INFO[5..INFO.len() - 2].to_vec()),
        ("nats_info", "deep", format!(r#"{{"headers":true,"x":{}{},"max_payload":9}}"#, "[".repeat(200), "]".repeat(200)).into()),
        ("nats_receipt", "stored", STORED.into()),
        ("nats_receipt", "refused", REFUSED.into()),
        ("nats_receipt", "nested", NESTED.into()),
        ("nats_triggers", "cycle", script(&[1, 0, 0, 14, 0, 2, 0, 0, 13, 0, 3, 0, 0, 15, 0, 1, 0])),
        ("nats_triggers", "late-status", script(&[1, 0, 0, 14, 0, 2, 0, 0, 15, 0, 13, 0, 1, 1, 9, 0, 0, 15, 0])),
        ("nats_triggers", "ended", script(&[1, 0, 0, 14, 0, 2, 1, 3, 9, 2])),
        ("nats_triggers", "inspected", script(&[&[0, 0, 0, 12, 120], &*message(1, r#"{"error":{"code":404,"err_code":10014}}"#)].concat())),
        ("nats_ack_subject", "classic", b"$JS.ACK.ORD.c1.1.22.3.1700000000000000000.0".to_vec()),
        ("nats_ack_subject", "with-account", b"$JS.ACK._.Ab3.ORD.c1.1.22.3.1700000000000000000.0.x".to_vec()),
        ("nats_consumer", "as-needed", CONSUMER.into()),
        ("nats_pull_consumer", "pinned", PULL_CONSUMER.into()),
        ("nats_sessions", "batch", vec![1, 1, 3, 0, 13, 1, 10, 1, 13, 4, 11, 1, 5, 0, 2, 0, 2, 1, 3, 0, 7, 3, 7, 2, 5, 0]),
        ("nats_sessions", "partly-written", vec![1, 3, 4, 20, 0, 1, 4, 30, 6, 0, 9, 1, 3, 0, 8, 2]),
        ("nats_sessions", "too-large", vec![1, 2, 3, 0, 14, 2, 14, 200, 14, 5, 5, 0, 2, 0, 3, 0, 7, 2]),
        ("nats_sessions", "refused", vec![0, 0, 1, 1, 1, 2, 3, 0, 16, 1, 16, 2, 12, 1, 5, 0]),
        ("nats_sessions", "given-up", vec![1, 0, 3, 0, 13, 0, 5, 0, 2, 0, 2, 0, 2, 0, 6, 1, 3, 0, 6, 0, 6, 0, 7, 2, 15, 9, 17, 255]),
        ("nats_sessions", "full", [[0, 0].repeat(9), vec![3, 0, 8, 1, 8, 2, 5, 0, 1, 0, 1, 1, 3, 0, 13, 0, 9, 10]].concat()),
        ("nats_exchanges", "receipt", script(&[1, 0, 0, 3, 0])),
        ("nats_exchanges", "two-in-pieces", script(&[1, 1, 100, 1, 200, 0, 0, 2, 3, 0, 0, 3, 0, 0, 0, 0, 1, 0, 1, 0, 0, 3, 0])),
        ("nats_exchanges", "refused", script(&[1, 0, 0, 4, 0, 1, 0, 0, 5, 0, 1, 0, 0, 6, 0, 1, 0, 0, 7, 0])),
        ("nats_exchanges", "smaller", script(&[1, 8, 0, 1, 0, 0])),
        ("nats_exchanges", "ended", script(&[1, 1, 9, 9, 2])),
        ("nats_exchanges", "raw", script(&[&[1, 0, 0, 12, u8::try_from(reply.len()).unwrap()], &*reply, &[1, 0, 0, 11, 200]].concat())),
    ]
}

#[test]
fn the_corpus_is_what_the_code_writes() {
    for (target, name, content) in made() {
        let path = folder().join(target).join(name);
        if std::env::var_os(BLESS_VAR).is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &content).unwrap();
        }
        let kept = std::fs::read(&path).unwrap_or_default();
        assert!(kept == content, "{target}/{name} differs; if it was meant to change, run this test with {BLESS_VAR}=1");
    }
}

/// Bytes that mean something to one of the readers.
const PUNCTUATION: &[u8] = b"\r\n \t\"\\{}[],:0159-+eE.\0";

/// A changed input.
fn mutated(content: &[u8], others: &[&[u8]], seeded: &mut Seeded) -> Vec<u8> {
    let mut out = content.to_vec();
    for _ in 0..=seeded.below(4) {
        let at = seeded.below(out.len());
        let end = (at + 1 + seeded.below(32)).min(out.len());
        match seeded.below(8) {
            _ if out.is_empty() => out.extend_from_slice(content),
            0 | 1 => out[at] ^= 1 << seeded.below(8),
            2 => out[at] = u8::try_from(seeded.below(256)).unwrap(),
            3 => out[at] = PUNCTUATION[seeded.below(PUNCTUATION.len())],
            4 => drop(out.drain(at..end)),
            5 => drop(out.splice(at..at, out[at..end].to_vec())),
            6 => out.truncate(at),
            _ => {
                let other = others[seeded.below(others.len())];
                let from = seeded.below(other.len());
                let until = (from + 1 + seeded.below(256)).min(other.len());
                out.splice(at..end, other.get(from..until).unwrap_or_default().iter().copied());
            }
        }
    }
    out
}

/// What broke, or nothing.
fn failure(target: &Target, input: &Input, seed: u64, others: &[&[u8]]) -> Option<String> {
    let bytes = mutated(&input.content, others, &mut Seeded(seed));
    let broken = catch_unwind(AssertUnwindSafe(|| (target.body)(&bytes))).is_err();
    broken.then(|| format!("{} broke on {} mutated with seed {seed}", target.name, input.name))
}

#[test]
fn every_target_holds_for_its_corpus_and_for_mutations_of_it() {
    let inputs = committed();
    for target in TARGETS {
        assert!(inputs.iter().any(|input| input.target.name == target.name), "{} has no corpus", target.name);
        super::run(target.name, b"");
    }
    inputs.iter().for_each(|input| (input.target.body)(&input.content));
    let seconds = std::env::var(SECONDS_VAR).ok().map(|text| text.parse().unwrap()).map(Duration::from_secs);
    let (start, mut round) = (Instant::now(), 0);
    while seconds.map_or(round < MUTATIONS, |seconds| start.elapsed() < seconds) {
        for input in &inputs {
            let others: Vec<&[u8]> =
                inputs.iter().filter(|other| other.target.name == input.target.name).map(|other| &*other.content).collect();
            assert_eq!(failure(input.target, input, round, &others), None);
        }
        round += 1;
    }
}

#[test]
fn a_body_that_breaks_is_found_and_named_with_its_seed() {
    static PLANTED: Target = Target { name: "planted", body: |bytes| assert!(bytes.len() >= 40, "planted") };
    let input = Input { target: &PLANTED, name: "forty".to_owned(), content: vec![1; 40] };
    let found = (0..MUTATIONS).find_map(|seed| failure(&PLANTED, &input, seed, &[&input.content])).unwrap();
    assert!(found.starts_with("planted broke on forty mutated with seed "), "{found}");
}
