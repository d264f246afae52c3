//! A node in a process of its own: this test binary once more, told by a folder what to do. It drives its triggers until its standard
//! input ends, says each delivery on a line, and at the end what it counted.

use std::io::{BufRead, BufReader, Lines, Read as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use latent_capabilities::PoolSettings;
use latent_nats::NatsConfig;
use latent_nats::triggers::{TriggerConfig, TriggerMonitor};
use latent_node::NodeLimits;
use latent_testkit::{ChildGuard, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::node::{Node, Orders, backend};

/// Set in the child to its folder.
const CHILD: &str = "LATENT_TEST_NODE_FOLDER";
const DELIVERED: &str = "delivered ";
const COUNTED: &str = "counted ";

/// A running child. Dropping it is `kill -9`.
pub(crate) struct NodeProcess {
    child: ChildGuard,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Writes down what a node is told, for as many as are started on it.
pub(crate) fn write_orders(folder: &Path, orders: &Orders) {
    std::fs::write(folder.join("triggers.json"), orders.triggers.to_json()).unwrap();
    std::fs::write(folder.join("publisher.json"), orders.publisher.to_json()).unwrap();
}

impl NodeProcess {
    pub(crate) fn start(folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["process::a_node_until_its_input_ends", "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, folder);
        let mut child = ChildGuard::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
        let (input, output) = (child.take_stdin(), child.take_stdout().unwrap());
        Self { child, input, lines: BufReader::new(output).lines() }
    }

    /// Waits until it has been handed so many messages.
    pub(crate) fn until_delivered(&mut self, count: u64) {
        while self.next(DELIVERED).parse::<u64>().unwrap() < count {}
    }

    fn next(&mut self, what: &str) -> String {
        loop {
            let Some(line) = self.lines.next() else { panic!("the node ended early") };
            let line = line.unwrap();
            if let Some(said) = line.strip_prefix(what) {
                return said.to_owned();
            }
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
    }

    /// Stops every thread of it where it stands.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.pid());
        wait_until("every thread of the node to stand still", || {
            let states = std::fs::read_dir(&tasks).unwrap().flatten();
            states.map(|task| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default()).all(|stat| stat.contains(") T "))
        });
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.child.pid()).unwrap()).unwrap(), signal).unwrap();
    }

    /// Ends its input; what it counted.
    pub(crate) fn end(mut self) -> String {
        drop(self.input.take());
        self.next(COUNTED)
    }
}

/// Not a test of its own: without the variable it has nothing to do.
#[test]
fn a_node_until_its_input_ends() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let folder = Path::new(&folder);
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let orders = Orders {
        triggers: TriggerConfig::from_json(&read("triggers.json")).unwrap(),
        publisher: NatsConfig::from_json(&read("publisher.json")).unwrap(),
        limits: NodeLimits { cells: 2, ..NodeLimits::for_cores(1) },
        settings: PoolSettings::default(),
    };
    let backend = backend(Some(&folder.join("compiled")));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let node = Node::on(backend, orders);
        let (manager, monitor) = (node.manager.clone(), node.monitor.clone());
        let running = Node::run(node.triggers, &manager);
        let said = monitor.clone();
        // Ends with the process.
        drop(std::thread::spawn(move || say_deliveries(&said)));
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
        running.stop().await;
        println!("\n{COUNTED}{:?}", monitor.snapshot());
    });
}

fn say_deliveries(monitor: &TriggerMonitor) {
    let mut seen = 0;
    loop {
        wait_until("the next delivery", || monitor.snapshot().delivered > seen);
        seen = monitor.snapshot().delivered;
        println!("\n{DELIVERED}{seen}");
    }
}
