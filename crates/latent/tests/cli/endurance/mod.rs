//! Many events through `nats-jetstream-pull-v2` while nodes, brokers and connections fail, and what must hold in the end. Nodes are the real
//! program with a real function; what ran when is read from what that function wrote down.
//!
//! `LATENT_LANES_EVENTS` and `LATENT_LANES_CLUSTER_EVENTS` make the runs long (`cargo xtask campaign lanes`, `lanes-cluster`);
//! `LATENT_LANES_SEED` chooses what goes wrong, and when.

mod chance;
mod faults;
mod nodes;
mod publishing;
mod verdict;
mod world;

use std::sync::atomic::Ordering;
use std::time::Instant;

use latent_testkit::{require_broker, wait_until};

use chance::Chance;
use faults::{Fault, Faults};
use nodes::Nodes;
use publishing::Publishing;
use verdict::Verdict;
use world::World;

/// Topics and keys of a run.
const PARTITIONS: u32 = 8;
const KEYS: u64 = 96;
/// From so many events on a run is a long one.
const LONG: u64 = 5_000;
/// Anonymous memory that a node which is not ended may take on in the second half of a long run.
const GROWTH_BYTES_MAX: u64 = 24 << 20;
/// The same for files and sockets: connections come and go.
const FILES_MORE_MAX: usize = 24;

/// How often an event runs, and for how long at most it waits in between. Functions cannot publish while a stream has no leader, and that
/// must not use up their runs: in a long run on a cluster they last for fifteen seconds.
#[derive(Debug, Clone, Copy)]
struct Attempts {
    most: u32,
    delay_millis_max: u64,
}

impl Attempts {
    const fn of(plan: &Plan) -> Self {
        let is_long = plan.brokers > 1 && plan.events >= LONG;
        if is_long { Self { most: 12, delay_millis_max: 2_000 } } else { Self { most: 12, delay_millis_max: 500 } }
    }
}

/// The trigger of a run, with what a profile has of its own.
fn trigger(attempts_max: u32, own: &str) -> String {
    format!(
        "[[trigger]]\nid = \"work\"\ntopic = \"in\"\ndead_letter = \"dead\"\nmax_deliveries = {attempts_max}\nretry_delay_millis = 100\n\
         operation_timeout_millis = 2000\nack_wait_millis = 4000\nbudget = {{ wall_time_millis = 1700 }}\n{own}"
    )
}

/// How large a run is.
struct Plan {
    events: u64,
    nodes: usize,
    brokers: usize,
    /// What goes wrong, in this order, each when so many more events have run.
    faults: Vec<Fault>,
    seed: u64,
}

fn of_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Runs a plan to its end and gives its report.
fn run(plan: &Plan) -> String {
    let mut chance = Chance(plan.seed);
    let Attempts { most, delay_millis_max } = Attempts::of(plan);
    let world = World::start(plan.brokers, &trigger(most, &format!("retry_delay_max_millis = {delay_millis_max}\n")));
    let mut nodes = Nodes::start(&world, plan.nodes);
    let publishing = Publishing::new(&world, plan.events);
    let begun = Instant::now();
    let faults = std::thread::scope(|scope| {
        scope.spawn(|| publishing.run());
        let faults = Faults::run(plan, &mut chance, (&world, &mut nodes, &publishing));
        nodes.start_missing(&world);
        wait_until_settled(&world, &mut nodes, &publishing);
        faults
    });
    let took = begun.elapsed();
    world.must_be_settled();
    nodes.must_tell_no_trouble();
    let growth = nodes.growth();
    nodes.stop();
    let verdict = Verdict::of(&world, (plan.events, most), &faults);
    format!("{} through {} in {} s: {verdict}{growth}", plan.events, faults.told(), took.as_secs())
}

/// Nothing is left, at the broker or with a node. Waits as long as there is progress.
fn wait_until_settled(world: &World, nodes: &mut Nodes, publishing: &Publishing<'_>) {
    loop {
        let before = (world.left(), world.written());
        if before.0 == 0 && publishing.published.load(Ordering::SeqCst) == publishing.events {
            return;
        }
        wait_until("events are settled", || {
            nodes.look();
            let (left, written) = (world.left(), world.written());
            publishing.handled.store(written / 3, Ordering::SeqCst);
            (left, written) != before
        });
    }
}

/// What goes wrong on one broker: in a long run everything, in a short one two nodes are killed and the broker.
fn faults_of_one_broker(events: u64, chance: &mut Chance) -> Vec<Fault> {
    if events < LONG {
        return vec![Fault::KillNode, Fault::KillBroker, Fault::KillNode];
    }
    const KINDS: [Fault; 8] = [
        Fault::KillNode,
        Fault::Cut,
        Fault::KillNode,
        Fault::StopNode,
        Fault::Cut,
        Fault::KillBroker,
        Fault::StallAndCut,
        Fault::StallShortly,
    ];
    (0..events / 1_000).map(|_| KINDS[chance.index(KINDS.len())]).collect()
}

fn faults_of_a_cluster(events: u64, chance: &mut Chance) -> Vec<Fault> {
    if events < LONG {
        return vec![Fault::KillConsumerLeader, Fault::KillNode];
    }
    const KINDS: [Fault; 5] =
        [Fault::KillStreamLeader, Fault::KillConsumerLeader, Fault::KillNode, Fault::KillConsumerLeader, Fault::StopNode];
    (0..events / 1_000).map(|_| KINDS[chance.index(KINDS.len())]).collect()
}

#[test]
fn every_event_ends_once_and_in_order_while_nodes_and_their_broker_are_killed() {
    require_broker!();
    let (events, seed) = (of_environment("LATENT_LANES_EVENTS", 300), of_environment("LATENT_LANES_SEED", 11));
    let nodes = if events < LONG { 2 } else { 3 };
    let faults = faults_of_one_broker(events, &mut Chance(seed ^ 0xfa));
    let report = run(&Plan { events, nodes, brokers: 1, faults, seed });
    println!("seed {seed}, {nodes} nodes on one broker, events: {report}");
}

#[test]
fn every_event_ends_once_and_in_order_while_leaders_of_three_brokers_are_killed() {
    require_broker!();
    let (events, seed) = (of_environment("LATENT_LANES_CLUSTER_EVENTS", 200), of_environment("LATENT_LANES_SEED", 11));
    let faults = faults_of_a_cluster(events, &mut Chance(seed ^ 0xfa));
    let report = run(&Plan { events, nodes: 3, brokers: 3, faults, seed });
    println!("seed {seed}, 3 nodes on three brokers, events: {report}");
}

/// The first profile's way: one message after the other, each pulled by itself.
#[test]
fn the_first_profile_settles_every_event_of_streams_with_replicas_too() {
    require_broker!();
    const EVENTS: u64 = 24;
    let world = World::start(3, &trigger(4, "profile = \"nats-jetstream-pull-v1\"\n"));
    let mut nodes = Nodes::start(&world, 1);
    let publishing = Publishing::new(&world, EVENTS);
    publishing.run();
    wait_until_settled(&world, &mut nodes, &publishing);
    world.must_be_settled();
    nodes.stop();
    let verdict = Verdict::of(&world, (EVENTS, 4), &Faults::default()).to_string();
    assert!(verdict.starts_with("22 outputs, 2 parked as rejected, 0 as exhausted"), "{verdict}");
}
