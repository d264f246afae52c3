//! Killed again and again on its way, to a broker and back: and both sides are the same in the end. `cargo xtask campaign migrate` is the same
//! with a million events.
//!
//! The moments are random, the checks are not: they hold whatever the moment was.

use std::time::Instant;

use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser};
use latent_testkit::require_broker;

use super::super::cluster::{as_operator, with_admin};
use super::broker::{BY, both, forget_uids, lines};
use super::*;

const RECORDS: &str = "LATENT_MIGRATE_RECORDS";
const KILLS: u32 = 10;
/// Against hanging only, however many events there are.
const LONG: Duration = Duration::from_secs(3_600);

/// SplitMix64: small, seeded, the same everywhere.
struct Chance(u64);

impl Chance {
    fn moment_in(&mut self, window: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Duration::from_micros((mixed ^ (mixed >> 31)) % u64::try_from(window.as_micros()).unwrap().max(1))
    }
}

fn records() -> u64 {
    std::env::var(RECORDS).map_or(15_000, |records| records.parse().unwrap())
}

fn spawn(env: &CliEnv, words: &[&str]) -> ChildGuard {
    let mut command = env.command([&["bus", "migrate"], words, &["--json"]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    ChildGuard::spawn(&mut command).unwrap()
}

/// One run to its end; what it says.
fn to_the_end(env: &CliEnv, words: &[&str]) -> Vec<Value> {
    let mut child = spawn(env, words);
    let mut told = String::new();
    std::io::Read::read_to_string(&mut child.take_stdout().unwrap(), &mut told).unwrap();
    assert_eq!(child.wait_at_most(LONG).unwrap().unwrap().code(), Some(0), "{told}");
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How long an undisturbed run takes: to start, and to do its work.
#[derive(Clone, Copy)]
struct Pace {
    starting: Duration,
    working: Duration,
}

impl Pace {
    /// A moment at which a run has begun its work and got on by less than a tenth of all of it.
    fn moment(self, chance: &mut Chance) -> Duration {
        self.starting + self.working / 40 + chance.moment_in(self.working / 12)
    }
}

/// Kills runs until so many kills have found one at work, then lets one come to its end. `after_kill` is told of each; `anew` makes the
/// destination anew where a run was done before its kill.
fn kill_often(
    env: &CliEnv,
    words: &[&str],
    pace: Pace,
    chance: &mut Chance,
    mut after_kill: impl FnMut(u32),
    mut anew: impl FnMut(),
) -> (Vec<Value>, u32) {
    let (mut kills, mut begun_anew) = (0, 0);
    while kills < KILLS {
        let mut child = spawn(env, words);
        match child.wait_at_most(pace.moment(chance)).unwrap() {
            Err(_) => {
                child.kill().unwrap();
                kills += 1;
                after_kill(kills);
            }
            Ok(status) => {
                assert_eq!(status.code(), Some(0));
                begun_anew += 1;
                anew();
            }
        }
    }
    (to_the_end(env, words), begun_anew)
}

/// Digest and number of events of each partition, on both sides.
fn sides(told: &[Value]) -> Vec<(Value, Value)> {
    told.iter().filter(|document| document["topic"].is_string()).map(|of| (of["source"].clone(), of["destination"].clone())).collect()
}

fn copied(told: &[Value]) -> u64 {
    counts(told)["copied"].as_u64().unwrap()
}

#[test]
fn ten_kills_on_the_way_to_a_broker_and_ten_on_the_way_back_lose_and_double_nothing() {
    require_broker!();
    let records = records();
    let users = [BrokerUser::unlimited("operator", "MARKER-5a0f"), BrokerUser::unlimited("edge-1-bus", "MARKER-5a0f")];
    let spec = BrokerSpec { server_name: "127.0.0.1".to_owned(), ..BrokerSpec::with_users(users) };
    let broker = Broker::start(spec.disk(i64::try_from((64 << 20) + records * 2_048).unwrap()));
    let env = both_of(&broker, records);
    provision(&env, "undisturbed");
    let begun = Instant::now();
    let nothing = to_the_end(&env, &["out", "--from", "embedded:data", "--to", "embedded:undisturbed", "--progress", "n"]);
    assert_eq!(copied(&nothing), 0);
    let (starting, begun) = (begun.elapsed(), Instant::now());
    let undisturbed = to_the_end(&env, &["in.raw", "--from", "embedded:data", "--to", "embedded:undisturbed", "--progress", "u"]);
    let pace = Pace { starting, working: begun.elapsed().saturating_sub(starting) };
    let expected = sides(&undisturbed);
    assert_eq!(copied(&undisturbed), records);
    assert!(expected.iter().all(|(source, destination)| source == destination));

    let mut chance = Chance(0x5eed);
    // A broker answers each event, a directory each group.
    let slower = Pace { working: pace.working * 2, ..pace };
    let to = [&["in.raw", "--from", "embedded:data", "--to", "nats", "--progress", "to"], &BY[..]].concat();
    let mut lost = 0;
    let after_kill = |kills: u32| {
        // Half of them come back when the broker knows no uid any more, some without what was noted.
        if kills.is_multiple_of(2) {
            forget_uids(&broker);
        }
        if kills.is_multiple_of(5) {
            lost += u32::from(std::fs::remove_file(env.folder().join("to")).is_ok());
        }
    };
    let anew_on_broker = || {
        with_admin(&broker, async |admin| admin.delete_stream("av_in_raw").await);
        as_operator(&env, &["bus", "provision"]);
    };
    let (there, anew_there) = kill_often(&env, &to, slower, &mut chance, after_kill, anew_on_broker);
    assert_eq!(sides(&there), expected);
    assert_eq!(with_admin(&broker, async |admin| admin.count("av_in_raw").await), records, "and nothing else");

    provision(&env, "back");
    let from = [&["in.raw", "--from", "nats", "--to", "embedded:back", "--progress", "from"], &BY[..]].concat();
    let begin_anew = || {
        std::fs::remove_dir_all(env.folder().join("back")).unwrap();
        provision(&env, "back");
    };
    let (back, anew_back) = kill_often(&env, &from, pace, &mut chance, |_| {}, begin_anew);
    assert_eq!(sides(&back), expected, "what came back is what went there");
    // A process of its own, which copied nothing, compares the first with the last.
    let compared = to_the_end(&env, &["in.raw", "--from", "embedded:data", "--to", "embedded:back", "--verify-only"]);
    assert_eq!(sides(&compared), expected);
    println!(
        "{records} records migrated to a broker through {KILLS} kills and back through {KILLS} kills, copied and compared in {} ms without a kill: \
         the last runs copied {} and {}, destinations made anew {anew_there} and {anew_back}, progress lost {lost} times, uids forgotten by the \
         broker {} times; partitions with the same SHA-256 of uid, key, media type, attributes and payload in all three logs: {} of {}",
        pace.working.as_millis(),
        copied(&there),
        copied(&back),
        KILLS / 2,
        expected.len(),
        expected.len(),
    );
}

/// As [`both`], also for more events than a test may wait for.
fn both_of(broker: &Broker, records: u64) -> CliEnv {
    const AT_ONCE: u64 = 100_000;
    let env = both(broker, &lines(0, records.min(AT_ONCE)));
    for from in (AT_ONCE..records).step_by(100_000) {
        env.write("events.jsonl", lines(from, records.min(from + AT_ONCE)));
        let words = [
            "bus",
            "publish",
            "in.raw",
            "--engine",
            "embedded:data",
            "--file",
            "events.jsonl",
            "--key-pointer",
            "/key",
            "--uid-pointer",
            "/id",
        ];
        let _ = env.run(words).with_status(0);
    }
    env
}
