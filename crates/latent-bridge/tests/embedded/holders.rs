//! One holder at a time, whoever comes when: processes, threads, provisioning beside opening.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

use latent_bridge::{BusError, EmbeddedBroker, EventBus};

use super::directory::snapshot;
use crate::support::fixtures::{count, fates, filled, manifest, publish, scratch, small_limits};

/// Set in a child to the data directory.
const CHILD: &str = "LATENT_BRIDGE_TEST_HOLDER_DIRECTORY";

/// Not a test of its own: without the variable it has nothing to do. Says that it is ready, waits for a line, opens or provisions, says
/// what came of it, and keeps the directory until its input ends.
#[test]
fn child_takes_the_directory_and_holds_it() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    println!("\nready");
    let mut lines = std::io::stdin().lines();
    let what = lines.next().unwrap().unwrap();
    let directory = Path::new(&directory);
    let taken = if what == "open" { EmbeddedBroker::open(directory) } else { EmbeddedBroker::provision(directory, &manifest(&[("t", 1)])) };
    println!("\ntaken {}", taken.as_ref().map_or_else(|error| format!("not: {error}"), |_| "yes".to_owned()));
    assert!(lines.next().is_none());
}

struct Holder {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Holder {
    fn ready(directory: &Path) -> Self {
        let arguments = ["embedded::holders::child_takes_the_directory_and_holds_it", "--exact", "--nocapture", "--test-threads=1"];
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(arguments).env(CHILD, directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "ready"));
        Self { child, lines: Box::new(lines) }
    }

    fn go(&mut self, what: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    /// What came of it: nothing when it has the directory.
    fn refused(&mut self) -> Option<String> {
        let line = self.lines.find(|line| line.starts_with("taken ")).unwrap();
        line.strip_prefix("taken not: ").map(str::to_owned)
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn of_eight_processes_that_provision_at_once_one_wins() {
    let directory = scratch();
    let path = directory.path().join("data");
    let mut holders: Vec<_> = (0..8).map(|_| Holder::ready(&path)).collect();
    holders.iter_mut().for_each(|holder| holder.go("provision"));
    let refused: Vec<_> = holders.iter_mut().filter_map(Holder::refused).collect();
    assert_eq!(refused.len(), 7, "{refused:?}");
    assert!(refused.iter().all(|text| text.contains("already provisioned")), "{refused:?}");
    holders.into_iter().for_each(Holder::kill);
    let broker = EmbeddedBroker::open(&path).unwrap();
    assert_eq!(publish(&broker, "t", "new", 3).len(), 3);
}

#[test]
fn of_processes_that_open_at_once_one_wins_the_others_touch_nothing_and_a_kill_frees_it() {
    let (directory, old) = filled(1, 5, small_limits());
    let mut holders: Vec<_> = (0..3).map(|_| Holder::ready(directory.path())).collect();
    holders.iter_mut().for_each(|holder| holder.go("open"));
    let refused: Vec<_> = holders.iter_mut().map(Holder::refused).collect();
    let (winner, losers): (Vec<_>, Vec<_>) = holders.into_iter().zip(refused).partition(|(_, refused)| refused.is_none());
    let winner = winner.into_iter().map(|(holder, _)| holder).next().unwrap();
    let id = winner.child.id();
    assert!(losers.len() == 2, "one at a time");
    for (loser, refused) in losers {
        let refused = refused.unwrap();
        assert!(refused.contains("in use by"), "{refused}");
        loser.kill();
    }
    let before = snapshot(directory.path());
    for _ in 0..3 {
        let refused = EmbeddedBroker::open(directory.path()).map(drop).unwrap_err();
        assert!(matches!(&refused, BusError::InUse { holder, .. } if holder.contains(&format!("process {id} "))), "{refused}");
    }
    assert_eq!(snapshot(directory.path()), before, "a refused opener touches nothing");
    winner.kill();
    let text = std::fs::read_to_string(directory.path().join("lock")).unwrap();
    assert!(text.contains(&id.to_string()), "the dead process is still named: {text}");
    let broker = EmbeddedBroker::open(directory.path()).unwrap();
    assert_eq!(count(&fates(&broker, &old)), (5, 0, 0));
}

#[test]
fn opening_beside_provisioning_sees_a_directory_that_is_whole_or_not_there() {
    for _ in 0..40 {
        let directory = scratch();
        let (path, start) = (directory.path().join("data"), Barrier::new(6));
        let provision = || {
            start.wait();
            EmbeddedBroker::provision(&path, &manifest(&[("t", 1)]))
        };
        let open = || {
            start.wait();
            EmbeddedBroker::open(&path)
        };
        std::thread::scope(|scope| {
            let provisions: Vec<_> = (0..3).map(|_| scope.spawn(provision)).collect();
            let opens: Vec<_> = (0..3).map(|_| scope.spawn(open)).collect();
            let provisions: Vec<_> = provisions.into_iter().map(|thread| thread.join().unwrap()).collect();
            // Held until all have ended, so that none of those who open can have it.
            assert_eq!(provisions.iter().filter(|provisioned| provisioned.is_ok()).count(), 1);
            for opened in opens {
                match opened.join().unwrap().map(drop) {
                    Err(BusError::InUse { .. }) => {}
                    Err(BusError::Config { problem }) => assert!(problem.contains("not provisioned"), "{problem}"),
                    other => panic!("{other:?}"),
                }
            }
        });
        let broker = EmbeddedBroker::open(&path).unwrap();
        assert_eq!(broker.topics(), ["t"]);
    }
}
