//! What goes wrong in a run, each when so many more events have run than before the last one.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use latent_testkit::proxy::{At, Direction, Fault as Wire};
use latent_testkit::wait_until;

use super::nodes::Nodes;
use super::publishing::Publishing;
use super::world::{Brokers, World};
use super::{Chance, PARTITIONS, Plan};

/// Longer than a lease: what stands still for that long must have been taken over.
const LONG_STALL: Duration = Duration::from_millis(5_000);
/// Much shorter than a lease, so that nothing of it arrives after one.
const SHORT_STALL: Duration = Duration::from_millis(900);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// SIGKILL; it comes back when the next thing goes wrong.
    KillNode,
    /// SIGTERM, and the same.
    StopNode,
    /// SIGKILL; comes back at once with what it stored.
    KillBroker,
    /// A connection ends at a random byte.
    Cut,
    /// One direction stands still at a random byte, and the connection ends later.
    StallAndCut,
    /// One direction stands still at a random byte and goes on.
    StallShortly,
    KillStreamLeader,
    KillConsumerLeader,
}

impl Fault {
    const fn told(self) -> &'static str {
        match self {
            Self::KillNode => "kills of nodes",
            Self::StopNode => "stops of nodes",
            Self::KillBroker => "kills of the broker",
            Self::Cut => "cuts",
            Self::StallAndCut => "stalls that end with a cut",
            Self::StallShortly => "short stalls",
            Self::KillStreamLeader => "kills of the stream's leader",
            Self::KillConsumerLeader => "kills of a consumer's leader",
        }
    }

    /// A broker that was killed may have forgotten settlements; what was published over a connection that broke may arrive late.
    const fn excuses(self) -> bool {
        !matches!(self, Self::KillNode | Self::StopNode)
    }
}

/// What went wrong.
#[derive(Default)]
pub(super) struct Faults {
    counts: BTreeMap<Fault, u64>,
    /// When something went wrong, from beginning to end, after which runs may be seen out of turn.
    excuses: Vec<(u64, u64)>,
}

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

impl Faults {
    pub(super) fn run(plan: &Plan, chance: &mut Chance, (world, nodes, publishing): (&World, &mut Nodes, &Publishing<'_>)) -> Self {
        let mut faults = Self::default();
        let slot = plan.events / (plan.faults.len() as u64 + 2);
        for (index, fault) in plan.faults.iter().enumerate() {
            let due = slot * (index as u64 + 1) + chance.below(slot);
            faults.wait(due, (world, nodes, publishing));
            let middle = plan.faults.len() / 2;
            if index == middle + 1 {
                nodes.mark_middle();
            }
            let begun = now();
            faults.happen(*fault, chance, (world, nodes, index >= middle));
            if fault.excuses() {
                faults.excuses.push((begun, now()));
            }
            *faults.counts.entry(*fault).or_default() += 1;
        }
        faults
    }

    /// Until so many events have run.
    fn wait(&self, due: u64, (world, nodes, publishing): (&World, &mut Nodes, &Publishing<'_>)) {
        loop {
            let before = world.written();
            publishing.handled.store(before / 3, Ordering::SeqCst);
            if before / 3 >= due {
                return;
            }
            wait_until("events run", || {
                nodes.look();
                world.written() > before
            });
        }
    }

    fn happen(&self, fault: Fault, chance: &mut Chance, (world, nodes, late): (&World, &mut Nodes, bool)) {
        nodes.start_missing(world);
        let nodes_count = nodes.all.len();
        // In the second half the first node goes on, so that one can see what it holds.
        let ended = if late { 1 + chance.index(nodes_count - 1) } else { chance.index(nodes_count) };
        match (fault, &world.brokers) {
            (Fault::KillNode, _) => nodes.kill(ended),
            (Fault::StopNode, _) => nodes.stop_one(ended),
            (Fault::KillBroker, Brokers::One(broker)) => {
                broker.kill();
                broker.restart();
            }
            (Fault::Cut, _) => drop(nodes.all[chance.index(nodes_count)].inject(chance, Wire::Cut)),
            (Fault::StallAndCut, _) => {
                let node = &nodes.all[chance.index(nodes_count)];
                let (connection, direction) = node.inject(chance, Wire::Stall);
                pass(LONG_STALL);
                // What was held never arrives: the connection ends at the byte where the other direction is just then.
                let (proxy, other) = (
                    node.proxy.as_ref().unwrap(),
                    match direction {
                        Direction::ToBroker => Direction::ToClient,
                        Direction::ToClient => Direction::ToBroker,
                    },
                );
                let here = || proxy.inject(Some(connection), other, At::Byte(proxy.bytes_of(connection, other)), Wire::Cut);
                let cut = (0..20).any(|_| {
                    let watch = here();
                    pass(Duration::from_millis(20));
                    watch.is_reached()
                });
                // Otherwise the node has ended it itself.
                let _ = cut;
            }
            (Fault::StallShortly, _) => {
                let node = &nodes.all[chance.index(nodes_count)];
                node.inject(chance, Wire::Delay(SHORT_STALL));
            }
            (Fault::KillStreamLeader, Brokers::Three(cluster)) => {
                let leader = cluster.leader_of("av_in");
                cluster.kill(leader);
                cluster.leader_of("av_in");
                cluster.restart(leader);
            }
            (Fault::KillConsumerLeader, Brokers::Three(cluster)) => {
                let chosen = chance.index(PARTITIONS as usize);
                let mut leader = None;
                wait_until("the consumer has a leader", || {
                    let info = &world.consumers()[chosen];
                    leader = info["cluster"]["leader"].as_str().and_then(|name| name.strip_prefix("member-")?.parse().ok());
                    leader.is_some()
                });
                let leader: usize = leader.unwrap();
                cluster.kill(leader);
                cluster.leader_of("av_in");
                cluster.restart(leader);
            }
            (fault, _) => panic!("{fault:?} on other brokers"),
        }
    }

    /// Whether what happened at that time may be because of what went wrong before.
    pub(super) fn excuse(&self, at_unix_millis: u64, within_millis: u64) -> bool {
        self.excuses.iter().any(|(begun, ended)| (*begun..ended + within_millis).contains(&at_unix_millis))
    }

    pub(super) fn told(&self) -> String {
        let told: Vec<_> = self.counts.iter().map(|(fault, count)| format!("{count} {}", fault.told())).collect();
        told.join(", ")
    }
}

/// Lets real time pass: a lease of another process has to end.
fn pass(time: Duration) {
    let begun = Instant::now();
    wait_until("time passes", || begun.elapsed() >= time);
}
