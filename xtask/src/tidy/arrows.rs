//! Which crate of the workspace may use which. The table is the architecture; another arrow is a change of it.

use cargo_metadata::{DependencyKind, Metadata};

use crate::tree::Finding;

/// A crate, the crates it may use, and those it may use behind a feature only.
struct Arrows {
    user: &'static str,
    used: &'static [&'static str],
    behind_a_feature: &'static [&'static str],
}

const fn arrows(user: &'static str, used: &'static [&'static str]) -> Arrows {
    Arrows { user, used, behind_a_feature: &[] }
}

const ALLOWED: &[Arrows] = &[
    arrows("latent-core", &[]),
    arrows("latent-nats-proto", &["latent-core"]),
    arrows("latent-capabilities", &["latent-core"]),
    arrows("latent-secrets", &["latent-core"]),
    arrows("latent-bridge", &["latent-core"]),
    arrows("latent-wasmtime", &["latent-core", "latent-capabilities"]),
    arrows("latent-node", &["latent-core", "latent-capabilities", "latent-wasmtime"]),
    arrows("latent-nats", &["latent-core", "latent-nats-proto", "latent-capabilities", "latent-secrets", "latent-node"]),
    Arrows {
        user: "latent-topics",
        used: &["latent-core", "latent-bridge", "latent-capabilities", "latent-node"],
        behind_a_feature: &["latent-nats"],
    },
    arrows(
        "latent",
        &[
            "latent-core",
            "latent-nats-proto",
            "latent-capabilities",
            "latent-secrets",
            "latent-bridge",
            "latent-wasmtime",
            "latent-node",
            "latent-nats",
            "latent-topics",
        ],
    ),
    arrows("latent-testkit", &["latent-core", "latent-nats-proto"]),
    arrows("latent-test-guests", &[]),
    arrows("xtask", &["latent-testkit"]),
];

/// What decides, never does: needs no async runtime, not even to be tested.
pub(super) const DECISION_CRATES: &[&str] = &["latent-core", "latent-nats-proto", "latent-capabilities"];

/// What decision crates may use in tests beside their arrows.
const TEST_TOOLS: &[&str] = &["latent-testkit"];

/// One dependency between two crates of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arrow<'a> {
    user: &'a str,
    used: &'a str,
    kind: DependencyKind,
    optional: bool,
}

pub(super) fn check(metadata: &Metadata) -> Vec<Finding> {
    let packages = metadata.workspace_packages();
    let unknown = packages.iter().filter(|package| table(&package.name).is_none());
    let unknown = unknown.map(|package| Finding::new(&package.name, "is not in the table of arrows; give it its place there"));
    let arrows = packages.iter().flat_map(|package| {
        let within = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
        within.map(|d| Arrow { user: &package.name, used: &d.name, kind: d.kind, optional: d.optional })
    });
    unknown.chain(arrows.filter_map(problem)).collect()
}

fn table(user: &str) -> Option<&'static Arrows> {
    ALLOWED.iter().find(|arrows| arrows.user == user)
}

fn problem(arrow: Arrow<'_>) -> Option<Finding> {
    let Arrow { user, used, kind, optional } = arrow;
    let allowed = table(user)?;
    let behind_a_feature = allowed.behind_a_feature.contains(&used);
    let is_allowed =
        allowed.used.contains(&used) || behind_a_feature && optional || kind == DependencyKind::Development && free_in_tests(arrow);
    let problem = match (is_allowed, behind_a_feature) {
        (true, _) => return None,
        (false, true) => format!("may use {used} behind a feature only"),
        (false, false) => format!("must not use {used}; it may use: {}", allowed.used.join(", ")),
    };
    Some(Finding::new(format!("crates/{user}/Cargo.toml"), problem))
}

/// Dev-dependencies are free, except into the decision crates.
fn free_in_tests(arrow: Arrow<'_>) -> bool {
    !DECISION_CRATES.contains(&arrow.user) || TEST_TOOLS.contains(&arrow.used)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: DependencyKind = DependencyKind::Normal;
    const DEV: DependencyKind = DependencyKind::Development;

    #[test]
    fn only_the_arrows_of_the_table_are_allowed() {
        let cases = [
            ("latent-node", "latent-core", NORMAL, false, true),
            ("latent-core", "latent-node", NORMAL, false, false),
            ("latent-bridge", "latent-capabilities", NORMAL, false, false),
            ("latent-bridge", "latent-capabilities", DEV, false, true),
            ("latent-bridge", "latent-wasmtime", DependencyKind::Build, false, false),
            ("latent-capabilities", "latent-bridge", DEV, false, false),
            ("latent-capabilities", "latent-testkit", DEV, false, true),
            ("latent-capabilities", "latent-testkit", NORMAL, false, false),
            ("latent-topics", "latent-nats", NORMAL, true, true),
            ("latent-topics", "latent-nats", NORMAL, false, false),
            ("latent", "latent-testkit", NORMAL, false, false),
        ];
        for (user, used, kind, optional, allowed) in cases {
            let arrow = Arrow { user, used, kind, optional };
            assert_eq!(problem(arrow).is_none(), allowed, "{arrow:?}");
        }
    }

    #[test]
    fn the_table_has_no_way_back_to_where_it_came_from() {
        fn reaches(from: &str, to: &str) -> bool {
            let arrows = table(from).unwrap();
            arrows.used.iter().chain(arrows.behind_a_feature).any(|next| *next == to || reaches(next, to))
        }
        for arrows in ALLOWED {
            assert!(!reaches(arrows.user, arrows.user), "{} reaches itself", arrows.user);
        }
    }

    #[test]
    fn a_crate_outside_the_table_and_a_wrong_arrow_are_found_in_what_cargo_says() {
        let metadata = super::super::tests::workspace(&[("latent-core", &["latent-newcomer"]), ("latent-newcomer", &[])]);
        let places: Vec<_> = check(&metadata).into_iter().map(|finding| finding.place).collect();
        assert_eq!(places, ["latent-newcomer", "crates/latent-core/Cargo.toml"]);
    }
}
