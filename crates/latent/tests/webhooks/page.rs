//! The page about delivery, as somebody who types what it shows: every command of it, in its order, in one folder with one node.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::bench::{Application, Node};

const PAGE: &str = include_str!("../../../../docs/delivery.md");
/// In an output, what may be anything.
const ANYTHING: char = '…';
/// The one command that stays.
const RUN: &str = "latent run";

/// A command and the lines shown under it.
#[derive(Debug, PartialEq, Eq)]
struct Step<'p> {
    command: &'p str,
    shown: Vec<&'p str>,
}

fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").unwrap();
        for line in block.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command, shown: Vec::new() }),
                (None, Some(step)) => step.shown.push(line),
                (None, None) => panic!("{line:?} stands under no command"),
            }
        }
    }
    steps
}

/// Whether a line is the one that is shown: widths of columns may differ.
fn is_shown(shown: &str, line: &str) -> bool {
    let narrow = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, line) = (narrow(shown), narrow(line));
    let parts: Vec<_> = shown.split(ANYTHING).collect();
    let Some((first, rest)) = parts.split_first() else { return false };
    let Some(mut left) = line.strip_prefix(first) else { return false };
    for (number, part) in rest.iter().enumerate() {
        if number + 1 == rest.len() {
            return left.ends_with(part);
        }
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.is_empty()
}

/// Every shown line is in the output, in the order shown.
#[track_caller]
fn check(step: &Step<'_>, output: &str) {
    let mut lines = output.lines();
    for shown in &step.shown {
        assert!(lines.any(|line| is_shown(shown, line)), "`{}` does not say {shown:?} there, but:\n{output}", step.command);
    }
}

fn run(application: &Application, command: &str) -> String {
    let latent = Path::new(env!("CARGO_BIN_EXE_latent"));
    let path = std::env::join_paths(
        std::iter::once(latent.parent().unwrap().to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(application.folder()).env("PATH", path.unwrap()).stdin(Stdio::null());
    let output = shell.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "`{command}`: {}\n{said}", output.status);
    said
}

#[test]
fn every_command_of_the_page_does_what_the_page_shows() {
    let (application, mut node) = (Application::new(), None::<Node>);
    let steps = steps(PAGE);
    for step in &steps {
        if step.command == RUN {
            node = Some(application.start());
            continue;
        }
        check(step, &run(&application, step.command));
        if node.is_some() {
            application.wait_until_handled();
        }
    }
    node.unwrap().stop();
    for word in ["trigger status", "deadletter list", "deadletter show", "deadletter replay", "why", "trigger forget"] {
        assert!(steps.iter().any(|step| step.command.contains(&format!("latent {word}"))), "the page does not show {word}");
    }
}

#[test]
fn a_shown_line_is_compared_but_for_what_may_be_anything() {
    for (shown, line, is) in [
        ("a  b", "a b", true),
        ("a b", "a b c", false),
        ("a …", "a b c", true),
        ("…c", "a b c", true),
        ("a … c", "a b c", true),
        ("a … d", "a b c", false),
        ("a…b…c", "a c b", false),
        ("…", "anything", true),
    ] {
        assert_eq!(is_shown(shown, line), is, "{shown:?} and {line:?}");
    }
}
