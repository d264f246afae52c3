//! The nodes of a run: processes that are ended and started again, each behind a proxy of its own where there is one broker.

use std::fs::File;
use std::process::Stdio;

use latent_testkit::proxy::{At, Direction, FaultProxy};
use latent_testkit::{ChildGuard, wait_until};

use super::world::{Brokers, World};
use serde_json::json;

use super::{Chance, FILES_MORE_MAX, GROWTH_BYTES_MAX};
use crate::cli::{CliEnv, HANG_LIMIT, answers, documents};

/// What a process holds.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    anonymous_bytes: u64,
    files: usize,
}

pub(super) struct Node {
    env: CliEnv,
    child: Option<ChildGuard>,
    pub(super) proxy: Option<FaultProxy>,
    /// What it held in the middle of the run, and most since then, without an end in between.
    middle: Option<Held>,
    most: Held,
}

pub(super) struct Nodes {
    pub(super) all: Vec<Node>,
    looks: u64,
}

impl Nodes {
    pub(super) fn start(world: &World, count: usize) -> Self {
        let node = |index: usize| {
            let (proxy, address) = match &world.brokers {
                Brokers::One(broker) => {
                    let proxy = FaultProxy::start_raw(broker);
                    let address = proxy.address();
                    (Some(proxy), address)
                }
                Brokers::Three(cluster) => (None, cluster.addresses()[index % 3]),
            };
            Node { env: world.node(&format!("node-{index}"), address), child: None, proxy, middle: None, most: Held::default() }
        };
        let mut nodes = Self { all: (0..count).map(node).collect(), looks: 0 };
        nodes.start_missing(world);
        nodes
    }

    /// Starts every node that does not run.
    pub(super) fn start_missing(&mut self, world: &World) {
        for (index, node) in self.all.iter_mut().enumerate() {
            let broker_runs = match &world.brokers {
                Brokers::One(broker) => broker.pid().is_some(),
                Brokers::Three(cluster) => cluster.members()[index % 3].pid().is_some(),
            };
            if node.child.is_none() && broker_runs {
                node.start();
            }
        }
    }

    pub(super) fn kill(&mut self, index: usize) {
        let node = &mut self.all[index];
        if let Some(mut child) = node.child.take() {
            child.kill().unwrap();
        }
        node.middle = None;
    }

    /// Asks it to stop, and waits until it has.
    pub(super) fn stop_one(&mut self, index: usize) {
        let node = &mut self.all[index];
        if let Some(mut child) = node.child.take() {
            child.terminate().unwrap();
            let ended = child.wait_at_most(HANG_LIMIT).unwrap();
            let Ok(ended) = ended else { panic!("{ended:?}: {}\n{}", node.status(), node.log()) };
            assert!(ended.success(), "{ended:?}: {}", node.log());
        }
        node.middle = None;
    }

    pub(super) fn stop(&mut self) {
        (0..self.all.len()).for_each(|index| self.stop_one(index));
    }

    /// From here on nodes that go on are compared with what they hold now.
    pub(super) fn mark_middle(&mut self) {
        self.all.iter_mut().filter(|node| node.child.is_some()).for_each(|node| {
            node.middle = Some(node.held());
            node.most = Held::default();
        });
    }

    /// No node ended by itself; now and then it is seen what each holds.
    pub(super) fn look(&mut self) {
        self.looks += 1;
        for node in &mut self.all {
            let Some(child) = &mut node.child else { continue };
            assert_eq!(child.try_wait().unwrap(), None, "a node ended by itself: {}", node.log());
            if self.looks.is_multiple_of(16) {
                node.see();
            }
        }
    }

    /// What nodes that went on since the middle held then, and most after it.
    pub(super) fn growth(&mut self) -> String {
        self.all.iter_mut().for_each(Node::see);
        let grown = self.all.iter().filter_map(|node| Some((node.middle?, node.most)));
        let told = grown.map(|(middle, most)| {
            assert!(most.anonymous_bytes < middle.anonymous_bytes + GROWTH_BYTES_MAX, "{middle:?} {most:?}");
            assert!(most.files < middle.files + FILES_MORE_MAX, "{middle:?} {most:?}");
            let mib = |bytes: u64| bytes >> 20;
            format!(
                "; a node that went on in the second half had {} MiB of its own and {} at most later, {} files open and {}",
                mib(middle.anonymous_bytes),
                mib(most.anonymous_bytes),
                middle.files,
                most.files
            )
        });
        told.collect()
    }

    /// Every node that runs comes to say that nothing of its trigger stands still, is left or was given up.
    pub(super) fn must_tell_no_trouble(&self) {
        for node in self.all.iter().filter(|node| node.child.is_some()) {
            let mut told = json!(null);
            wait_until("the node sees that everything is settled", || {
                told = documents(&node.env.run(["trigger", "status", "--json"]).with_status(0)).remove(0);
                told["pending"] == json!(0) && told["state"] != json!("stalled")
            });
            assert!(told["stranded"] == json!(0) && told["state"] != json!("stranded"), "{told}");
        }
    }
}

/// A run that failed tells what its nodes said.
impl Drop for Nodes {
    #[allow(clippy::print_stdout, reason = "the test's output is where somebody looks who has a failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (index, node) in self.all.iter().enumerate() {
                println!("node {index}: {}\n{}", node.status(), node.log());
            }
        }
    }
}

impl Node {
    fn start(&mut self) {
        let log = || File::options().create(true).append(true).open(self.env.folder().join("node.log")).unwrap();
        let mut command = self.env.command(["run"]);
        command.stdout(Stdio::from(log())).stderr(Stdio::from(log()));
        let mut child = ChildGuard::spawn(&mut command).unwrap();
        let socket = self.env.folder().join("data/control.sock");
        wait_until("the node's answer on its control socket", || {
            assert_eq!(child.try_wait().unwrap(), None, "the node ended: {}", self.log());
            answers(&socket)
        });
        self.child = Some(child);
    }

    /// What it says of its trigger, if it still does.
    fn status(&self) -> String {
        let told = self.env.command(["trigger", "status", "--json"]).output().unwrap();
        String::from_utf8_lossy(&told.stdout).into_owned()
    }

    /// The end of what it said.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.env.folder().join("node.log")).unwrap_or_default();
        text.lines().rev().take(30).collect::<Vec<_>>().join("\n")
    }

    fn see(&mut self) {
        let held = self.held();
        self.most.anonymous_bytes = self.most.anonymous_bytes.max(held.anonymous_bytes);
        self.most.files = self.most.files.max(held.files);
    }

    fn held(&self) -> Held {
        let pid = self.child.as_ref().map(ChildGuard::pid).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().split(' ').next()?.parse::<u64>().ok());
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        Held { anonymous_bytes: kib.unwrap_or_default() << 10, files }
    }

    /// Lets something happen to one of its connections, so many bytes from now. Gives the connection's number.
    pub(super) fn inject(&self, chance: &mut Chance, fault: latent_testkit::proxy::Fault) -> (usize, Direction) {
        let proxy = self.proxy.as_ref().unwrap();
        // The last two that it made are its bus's and its triggers'.
        let connection = proxy.connections() - 1 - chance.index(2.min(proxy.connections()));
        let direction = if chance.below(2) == 0 { Direction::ToBroker } else { Direction::ToClient };
        let byte = proxy.bytes_of(connection, direction) + chance.below(6_000);
        proxy.inject(Some(connection), direction, At::Byte(byte), fault);
        (connection, direction)
    }
}
