//! Several brokers that keep streams together: processes on the loopback, TLS for clients, plain routes, one certificate authority.
//!
//! Members are [`Broker`]s: they can be killed and started again with what they stored, each by itself.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::sync::Arc;

use super::monitor::Replicated;
use super::{Broker, BrokerSpec, TestCa, monitor};
use crate::wait_until;

/// A running cluster. Dropping it ends its processes and removes their folders.
#[derive(Debug)]
pub struct Cluster {
    ca: Arc<TestCa>,
    members: Vec<Broker>,
}

#[allow(clippy::expect_used, clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
impl Cluster {
    /// Starts three brokers of this specification and waits until they have a leader and are up to date.
    ///
    /// # Panics
    /// When they do not start, and for a specification with streams: those are made on a running cluster.
    pub fn start(spec: &BrokerSpec) -> Self {
        assert!(spec.streams.is_empty(), "streams of a cluster are made once it runs");
        let (ca, ports) = (Arc::new(TestCa::new()), free_ports::<3>());
        let routes = ports.map(|port| format!("\"nats-route://127.0.0.1:{port}\"")).join(", ");
        let member = |(index, port): (usize, u16)| {
            let cluster = format!(
                "\nserver_name: \"{}\"\ncluster {{ name: \"tests\", listen: \"127.0.0.1:{port}\", routes: [{routes}] }}\n",
                name(index)
            );
            Broker::start_certified(BrokerSpec { extra: format!("{}{cluster}", spec.extra), ..spec.clone() }, Arc::clone(&ca))
        };
        let members = ports.into_iter().enumerate().map(member).collect();
        let cluster = Self { ca, members };
        cluster.wait_until_ready();
        cluster
    }

    /// The members.
    pub fn members(&self) -> &[Broker] {
        &self.members
    }

    /// Where clients connect; stays the same over restarts.
    pub fn addresses(&self) -> Vec<SocketAddrV4> {
        self.members.iter().map(Broker::address).collect()
    }

    /// The authority that certified every member.
    pub fn ca(&self) -> &TestCa {
        &self.ca
    }

    /// Waits until the running members agree about leaders, and have everything that each stream holds.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn wait_until_ready(&self) {
        wait_until("the members agree about their leaders and are up to date", || {
            let running: Vec<_> = self.running().collect();
            let monitors: Vec<_> = running.iter().map(|(_, member)| member.monitor()).collect();
            let leaders: Vec<_> = monitors.iter().map(|monitor| monitor::meta_leader(*monitor)).collect();
            let agreed = leaders.iter().all(|leader| leader.is_some() && *leader == leaders[0]);
            // A member without a leader would answer for a stream that it has nothing of yet.
            agreed && monitors.iter().all(|monitor| monitor::is_healthy(*monitor)) && up_to_date(&running)
        });
    }

    /// Which member leads `stream`, as soon as the running ones have one.
    ///
    /// # Panics
    /// When no running member leads it for too long.
    pub fn leader_of(&self, stream: &str) -> usize {
        let mut leader = None;
        wait_until("a running member leads the stream", || {
            let known = self.running().find_map(|(_, member)| {
                let streams = monitor::replicated(member.monitor());
                streams.into_iter().find(|replicated| replicated.stream == stream)?.leader
            });
            leader = (0..self.members.len()).find(|index| known.as_ref().is_some_and(|known| *known == name(*index)));
            leader.is_some_and(|index| self.members[index].pid().is_some())
        });
        leader.expect("what was waited for")
    }

    /// Ends a member as a power cut would (SIGKILL). What it stored stays.
    pub fn kill(&self, index: usize) {
        self.members[index].kill();
    }

    /// Starts a member again with what it stored, and waits until the cluster is whole.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&self, index: usize) {
        self.members[index].restart();
        self.wait_until_ready();
    }

    fn running(&self) -> impl Iterator<Item = (String, &Broker)> {
        self.members.iter().enumerate().filter(|(_, member)| member.pid().is_some()).map(|(index, member)| (name(index), member))
    }
}

/// True when all of these members agree about each stream's leader, one of them, and it says that they have everything.
fn up_to_date(members: &[(String, &Broker)]) -> bool {
    let seen: Vec<_> = members.iter().map(|(_, member)| monitor::replicated(member.monitor())).collect();
    let streams = |of: &[Replicated]| of.iter().map(|one| (one.stream.clone(), one.leader.clone())).collect::<Vec<_>>();
    let agreed = seen.iter().all(|of| streams(of) == streams(&seen[0]));
    let whole = |(name, own): (&String, &Vec<Replicated>)| {
        let led = own.iter().filter(|one| one.leader.as_ref() == Some(name));
        led.into_iter().all(|one| members.iter().all(|(other, _)| other == name || one.current.contains(other)))
    };
    let led = seen.first().is_some_and(|of| of.iter().all(|one| members.iter().any(|(name, _)| one.leader.as_ref() == Some(name))));
    agreed && led && members.iter().map(|(name, _)| name).zip(&seen).all(whole)
}

fn name(index: usize) -> String {
    format!("member-{index}")
}

/// Below the ports that systems give to who asks for any: brokers that other tests start at the same time get those.
const PORTS: std::ops::Range<u16> = 10_000..32_000;
/// Ports that are tried before none is thought to be free.
const TRIES: usize = 1_000;

/// Ports that nobody had a moment ago: routes must be known before the first member starts.
#[allow(clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    // Each state of a process has keys of its own, which is as random as is needed here.
    let random = || RandomState::new().build_hasher().finish() % PORTS.len() as u64;
    let any = || PORTS.start.saturating_add(u16::try_from(random()).unwrap_or_default());
    let free = |()| TcpListener::bind((Ipv4Addr::LOCALHOST, any())).ok();
    let mut found = std::iter::repeat_n((), TRIES).filter_map(free);
    let held: [TcpListener; COUNT] = std::array::from_fn(|_| found.next().unwrap_or_else(|| panic!("no free port in {PORTS:?}")));
    held.each_ref().map(|listener| listener.local_addr().map_or_else(|error| panic!("{error}"), |address| address.port()))
}
