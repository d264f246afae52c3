//! `cargo xtask demo`: the product once, end to end, with nothing but what a clone has.
//!
//! The node gets a fresh folder under `target/demo/`, so a second run knows nothing of the first. However the command ends, the node
//! it started has ended too. Waits look for a state, have a limit, and say what they wait for.

mod control;
mod example;
mod summary;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cargo_metadata::MetadataCommand;
use latent_testkit::ChildGuard;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};

use self::example::Example;
use self::summary::{DeadLetter, Findings, Publication, Summary};
use crate::failure::Failure;
use crate::process::{cargo, command_line, run_step, timed};
use crate::{guests, tree};

const EXAMPLE: &str = "examples/webhook-triage";
const INPUT_TOPIC: &str = "github.events";
const OUTPUT_TOPIC: &str = "triage.results";

/// How long the node may take to answer, to handle the example's events, and to stop. Against hanging only.
const START_LIMIT: Duration = Duration::from_secs(120);
const HANDLE_LIMIT: Duration = Duration::from_secs(600);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const SAY_EVERY: Duration = Duration::from_secs(2);

/// Lines of the node's log shown when the demo fails.
const LOG_LINES_SHOWN: usize = 20;

/// For whom the result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// A person.
    Readable,
    /// A machine: the last line of standard output is one JSON document.
    Json,
}

/// Builds everything, runs the example and prints what happened.
///
/// # Errors
/// The first step that failed. The node has ended by then.
pub(crate) fn run(root: &Path, output: Output) -> Result<(), Failure> {
    guests::ensure_target(root)?;
    run_step("building latent (the first time takes a few minutes)", cargo(root).args(["build", "--locked", "--package", "latent"]))?;
    guests::build(root, EXAMPLE)?;
    let example = Example::laid_out(&root.join(EXAMPLE), &target_folder(root)?.join("demo"))?;
    let demo = Demo { latent: target_folder(root)?.join("debug").join("latent"), example, interrupted: interruptions()? };
    let summary = demo.run().inspect_err(|_| demo.show_end_of_log())?;
    match output {
        Output::Readable => println!("{}", summary.readable(&demo.next_steps())),
        Output::Json => println!("{}", summary.json()),
    }
    Ok(())
}

struct Demo {
    latent: PathBuf,
    example: Example,
    interrupted: Arc<AtomicBool>,
}

impl Demo {
    fn run(&self) -> Result<Summary, Failure> {
        let mut node = timed("starting the node", || self.start())?;
        let published = timed("publishing the example's events", || self.publish())?;
        timed("waiting until every event is handled", || self.wait_until_handled(&mut node, &published))?;
        let counters = control::ask(&self.example.socket(), "summary")?;
        let results = timed("fetching the results", || self.fetch_results())?;
        let dead_letters = timed("listing the dead letters", || self.dead_letters())?;
        timed("stopping the node", || self.stop(node))?;
        Summary::of(Findings { published: &published, counters: &counters, results: &results, dead_letters })
    }

    fn start(&self) -> Result<ChildGuard, Failure> {
        let log_path = self.log();
        let log = std::fs::File::create(&log_path).map_err(Failure::file(&log_path))?;
        let errors = log.try_clone().map_err(Failure::file(&log_path))?;
        let mut command = self.command(&["run"]);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let mut node = ChildGuard::spawn(&mut command).map_err(|source| Failure::Start { command: command_line(&command), source })?;
        // Only the socket is looked at: a command that finds no node would open the data directory in the node's place.
        let socket = self.example.socket();
        self.wait_for("the node to answer on its control socket", START_LIMIT, &mut node, |_| Ok(control::ask(&socket, "ping").is_ok()))?;
        Ok(node)
    }

    /// Publishes the example's lines. Refused ones belong to it: the command's exit status 1 is not a failure of the demo.
    fn publish(&self) -> Result<Vec<Publication>, Failure> {
        let events = self.example.events();
        let mut command = self.command(&["bus", "publish", INPUT_TOPIC, "--raw-lines", "--media-type", "application/json"]);
        command.args(["--key-pointer", "/payload/repository/full_name", "--json", "--file"]).arg(events);
        let lines = json_lines(&mut command, &[0, 1])?;
        lines.iter().map(Publication::parse).collect()
    }

    /// Every stored event was settled, and no binding has anything left. The first alone would miss events of other topics, the
    /// second alone those that no binding has noticed yet.
    fn wait_until_handled(&self, node: &mut ChildGuard, published: &[Publication]) -> Result<(), Failure> {
        let stored = published.iter().filter(|publication| **publication == Publication::Stored).count() as u64;
        self.wait_for("every binding to settle its events", HANDLE_LIMIT, node, |say| {
            let settled = summary::settled(&control::ask(&self.example.socket(), "summary")?)?;
            let left = summary::unsettled(&json_lines(&mut self.command(&["trigger", "status", "--json"]), &[0])?)?;
            if say {
                eprintln!("    {settled} events settled, {left} not yet");
            }
            Ok(settled >= stored && left == 0)
        })
    }

    fn fetch_results(&self) -> Result<Vec<Value>, Failure> {
        let topics = json_lines(&mut self.command(&["bus", "topics", "--json"]), &[0])?;
        let mut results = Vec::new();
        for partition in 0..summary::partitions(&topics, OUTPUT_TOPIC)? {
            let partition = partition.to_string();
            let words = ["bus", "fetch", OUTPUT_TOPIC, "--partition", &partition, "--offset", "0", "--max", "1000000", "--json"];
            results.extend(json_lines(&mut self.command(&words), &[0])?);
        }
        Ok(results)
    }

    fn dead_letters(&self) -> Result<Vec<DeadLetter>, Failure> {
        let lines = json_lines(&mut self.command(&["deadletter", "list", "--limit", "1000000", "--json"]), &[0])?;
        lines.iter().map(DeadLetter::parse).collect()
    }

    fn stop(&self, mut node: ChildGuard) -> Result<(), Failure> {
        node.terminate().map_err(Failure::file(&self.latent))?;
        match node.wait_at_most(STOP_LIMIT).map_err(Failure::file(&self.latent))? {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::NodeEnded { status, log: self.log() }),
            Err(_) => Err(Failure::TimedOut { awaited: "the node to stop".to_owned(), waited: STOP_LIMIT, log: self.log() }),
        }
    }

    /// Looks until `look` says yes. Its argument is true when it is time to say how far things are.
    fn wait_for(
        &self,
        awaited: &str,
        limit: Duration,
        node: &mut ChildGuard,
        mut look: impl FnMut(bool) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let start = Instant::now();
        let mut said = start;
        loop {
            if self.interrupted.load(Ordering::SeqCst) {
                return Err(Failure::Interrupted);
            }
            if let Some(status) = node.try_wait().map_err(Failure::file(&self.latent))? {
                return Err(Failure::NodeEnded { status, log: self.log() });
            }
            let say = said.elapsed() >= SAY_EVERY;
            if look(say)? {
                return Ok(());
            }
            if start.elapsed() >= limit {
                return Err(Failure::TimedOut { awaited: awaited.to_owned(), waited: limit, log: self.log() });
            }
            if say {
                said = Instant::now();
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.latent);
        command.args(arguments).arg("-c").arg(self.example.config()).current_dir(self.example.folder());
        command
    }

    fn log(&self) -> PathBuf {
        self.example.folder().join("node.log")
    }

    /// The node's last words, for a person who wonders why it failed.
    fn show_end_of_log(&self) {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        for line in lines.iter().skip(lines.len().saturating_sub(LOG_LINES_SHOWN)) {
            eprintln!("node: {line}");
        }
    }

    fn next_steps(&self) -> [String; 4] {
        let (latent, config) = (shown(&self.latent), shown(&self.example.config()));
        [
            format!("results:      {latent} bus fetch {OUTPUT_TOPIC} --partition 0 --offset 0 --max 10 -c {config}"),
            format!("dead letters: {latent} deadletter list -c {config}"),
            format!("node's log:   {}", shown(&self.log())),
            format!("the function: {EXAMPLE}/src; its configuration: {EXAMPLE}/latent.toml"),
        ]
    }
}

/// A path as short as it can be typed.
fn shown(path: &Path) -> String {
    path.strip_prefix(tree::project_root()).unwrap_or(path).display().to_string()
}

pub(crate) fn target_folder(root: &Path) -> Result<PathBuf, Failure> {
    let manifest = root.join("Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(&manifest).no_deps().exec();
    metadata
        .map(|metadata| metadata.target_directory.into_std_path_buf())
        .map_err(|source| Failure::Metadata { manifest: manifest.display().to_string(), source })
}

/// Set by Ctrl-C and SIGTERM from now on, so that waits end and the node with them.
fn interruptions() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&flag));
        registered.map_err(|source| Failure::Start { command: "a signal handler".to_owned(), source })?;
    }
    Ok(flag)
}

/// Runs a command whose standard output is one JSON document per line.
fn json_lines(command: &mut Command, statuses: &[i32]) -> Result<Vec<Value>, Failure> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.map_err(|source| Failure::Start { command: command_line(command), source })?;
    if !output.status.code().is_some_and(|code| statuses.contains(&code)) {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure::Command { command: command_line(command), status: output.status });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let documents = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    documents.map_err(|error| Failure::Unexpected { what: command_line(command), problem: error.to_string() })
}
