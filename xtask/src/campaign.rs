//! `cargo xtask campaign`: long runs whose last report is kept in `docs/reliability.md`. The tests hold the run and its checks; this only
//! gives it length, and writes down what it said.

use std::path::Path;

use crate::failure::Failure;
use crate::process::{cargo, run_lines};

/// Where the reports are.
const PAGE: &str = "docs/reliability.md";

/// A long run: tests that print a line about themselves.
struct Campaign {
    name: &'static str,
    /// Which tests: what follows `cargo test --workspace`.
    tests: &'static [&'static str],
    /// Makes the test long.
    variable: &'static str,
    length: &'static str,
    /// What each line of the report contains, and no other line.
    line_contains: &'static str,
    lines: usize,
}

const CAMPAIGNS: &[Campaign] = &[
    Campaign {
        name: "activations",
        tests: &["--test", "activation_soak"],
        variable: "LATENT_SOAK_ACTIVATIONS",
        length: "1000000",
        line_contains: " activations: ",
        lines: 1,
    },
    Campaign {
        name: "deliveries",
        tests: &["--lib", "delivery::sim::every_schedule"],
        variable: "LATENT_SIM_SCHEDULES",
        length: "1000000",
        line_contains: " schedules: ",
        lines: 1,
    },
    Campaign {
        name: "kills",
        tests: &["--test", "webhooks"],
        variable: "LATENT_KILLS",
        length: "50",
        line_contains: " kills at work ",
        lines: 2,
    },
    Campaign {
        name: "bytes",
        tests: &["--test", "broker", "--test", "triggers", "bytes::"],
        variable: "LATENT_BYTES",
        length: "6",
        line_contains: " faults at a byte of ",
        lines: 2,
    },
    Campaign {
        name: "cluster",
        tests: &["--test", "nats", "cluster::"],
        variable: "LATENT_CLUSTER_RECORDS",
        length: "200000",
        line_contains: " kills of the leader ",
        lines: 1,
    },
    Campaign {
        name: "restore",
        tests: &["--test", "main", "cold::kill::"],
        variable: "LATENT_RESTORE_RECORDS",
        length: "1000000",
        line_contains: " records restored through ",
        lines: 1,
    },
    Campaign {
        name: "archive-crash",
        tests: &["--test", "nats", "cold_crash::"],
        variable: "LATENT_ARCHIVE_CRASH",
        length: "1000000",
        line_contains: "; each event is on the broker once and in the archive once, or nowhere",
        lines: 8,
    },
    Campaign {
        name: "migrate",
        tests: &["--test", "main", "migrating::often"],
        variable: "LATENT_MIGRATE_RECORDS",
        length: "1000000",
        line_contains: " records migrated to a broker through ",
        lines: 1,
    },
    Campaign {
        name: "lanes",
        tests: &["--test", "main", "while_nodes_and_their_broker_are_killed"],
        variable: "LATENT_LANES_EVENTS",
        length: "100000",
        line_contains: " nodes on one broker, events: ",
        lines: 1,
    },
    Campaign {
        name: "lanes-cluster",
        tests: &["--test", "main", "while_leaders_of_three_brokers_are_killed"],
        variable: "LATENT_LANES_CLUSTER_EVENTS",
        length: "20000",
        line_contains: " nodes on three brokers, events: ",
        lines: 1,
    },
];

/// Runs one campaign and puts its report into the page.
///
/// # Errors
/// [`Failure::Usage`] for an unknown name; [`Failure::Command`] when a check failed; [`Failure::Unexpected`] and [`Failure::File`] for the report
/// and the page.
pub(crate) fn run(root: &Path, name: &str) -> Result<(), Failure> {
    let campaign = CAMPAIGNS.iter().find(|campaign| campaign.name == name).ok_or(Failure::Usage)?;
    let mut command = cargo(root);
    // The whole workspace, as in `cargo xtask test`, so that nothing is compiled a second time with other features.
    command.args(["test", "--locked", "--workspace"]).args(campaign.tests).args(["--", "--nocapture"]);
    command.env(campaign.variable, campaign.length);
    let mut reports = Vec::new();
    run_lines(&format!("campaign {name}, {} long", campaign.length), &mut command, |line| {
        if line.contains(campaign.line_contains) {
            reports.push(line.trim().to_owned());
        }
    })?;
    if reports.len() != campaign.lines {
        let problem = format!("it ended well and its report has {} lines instead of {}", reports.len(), campaign.lines);
        return Err(Failure::Unexpected { what: format!("the campaign {name}"), problem });
    }
    // Tests run side by side: their lines come in any order.
    reports.sort();
    let report = reports.join("\n\n");
    let page = root.join(PAGE);
    let failed = |source| Failure::File { path: page.clone(), source };
    let text = std::fs::read_to_string(&page).map_err(failed)?;
    let no_place = || Failure::Unexpected { what: PAGE.to_owned(), problem: format!("it has no place for the report of {name}") };
    std::fs::write(&page, with_report(&text, name, &report).ok_or_else(no_place)?).map_err(failed)
}

/// The page with another report between the two marks of a campaign.
fn with_report(page: &str, name: &str, report: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- campaign {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{report}\n\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_takes_the_place_of_the_last_one() {
        let page = "a\n<!-- campaign x -->\nold\n<!-- end of x -->\nb\n";
        assert_eq!(with_report(page, "x", "new").unwrap(), "a\n<!-- campaign x -->\n\nnew\n\n<!-- end of x -->\nb\n");
        assert_eq!(with_report(page, "y", "new"), None);
    }

    #[test]
    fn every_campaign_has_its_place_on_the_page() {
        let page = include_str!("../../docs/reliability.md");
        for campaign in CAMPAIGNS {
            assert!(with_report(page, campaign.name, "x").is_some(), "{}", campaign.name);
        }
    }
}
