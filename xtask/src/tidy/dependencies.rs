//! Dependencies: exactly pinned, locked, and each with its line in `docs/dependencies.md`.

use std::collections::BTreeSet;

use cargo_metadata::semver::{Op, VersionReq};
use cargo_metadata::{Dependency, Metadata};

use crate::markdown;
use crate::tree::{Finding, Tree};

const PAGE: &str = "docs/dependencies.md";

pub(super) fn check<'a>(tree: &Tree, workspaces: impl Iterator<Item = (&'a str, &'a Metadata)>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for (folder, metadata) in workspaces {
        findings.extend(lock_file(tree, folder));
        for package in metadata.workspace_packages() {
            let foreign = package.dependencies.iter().filter(|dependency| dependency.path.is_none());
            for dependency in foreign {
                used.insert(dependency.name.clone());
                findings.extend(pin(&package.name, dependency));
            }
        }
    }
    findings.extend(page(tree, &used));
    findings
}

fn lock_file(tree: &Tree, folder: &str) -> Option<Finding> {
    let path = if folder.is_empty() { "Cargo.lock".to_owned() } else { format!("{folder}/Cargo.lock") };
    (!tree.paths.contains(&path)).then(|| Finding::new(path, "is missing; commit it"))
}

fn pin(package: &str, dependency: &Dependency) -> Option<Finding> {
    let problem = format!("{} is required as {:?}; pin it exactly, like \"=1.2.3\"", dependency.name, dependency.req.to_string());
    (!is_exact(&dependency.req)).then(|| Finding::new(package, problem))
}

fn is_exact(req: &VersionReq) -> bool {
    matches!(&*req.comparators, [only] if only.op == Op::Exact && only.minor.is_some() && only.patch.is_some())
}

fn page(tree: &Tree, used: &BTreeSet<String>) -> Vec<Finding> {
    let Some(text) = tree.texts.get(PAGE) else { return vec![Finding::new(PAGE, "is missing")] };
    let rows = markdown::prose_lines(text).filter_map(|(_, line)| markdown::cells(line));
    let named: BTreeSet<String> = rows.filter_map(|cells| markdown::code(cells.first()?).map(str::to_owned)).collect();
    let missing = used.difference(&named).map(|name| Finding::new(PAGE, format!("{name} is used and has no line")));
    let stale = named.difference(used).map(|name| Finding::new(PAGE, format!("{name} has a line and is not used")));
    missing.chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_whole_version_is_a_pin() {
        for (req, exact) in [
            ("=1.2.3", true),
            ("=1.2.3-rc.1", true),
            ("1.2.3", false),
            ("=1.2", false),
            ("^1.2.3", false),
            ("*", false),
            (">=1.2.3, <1.2.4", false),
        ] {
            assert_eq!(is_exact(&VersionReq::parse(req).unwrap()), exact, "{req}");
        }
    }

    #[test]
    fn a_loose_version_is_found_with_who_asks_for_it() {
        let mut metadata = super::super::tests::workspace(&[("latent-core", &["bytes"]), ("bytes", &[])]);
        metadata.packages[0].dependencies[0].path = None;
        let tree = Tree::of(&[("Cargo.lock", ""), (PAGE, "| `bytes` | why |")]);
        let findings = check(&tree, [("", &metadata)].into_iter());
        assert_eq!(findings, [Finding::new("latent-core", "bytes is required as \"*\"; pin it exactly, like \"=1.2.3\"")]);
    }

    #[test]
    fn the_page_and_the_manifests_name_the_same_crates() {
        let used = BTreeSet::from(["bytes".to_owned(), "serde".to_owned()]);
        let tree = Tree::of(&[(PAGE, "| crate | why |\n|---|---|\n| `bytes` | x |\n| `left-over` | x |\n")]);
        let problems: Vec<_> = page(&tree, &used).into_iter().map(|finding| finding.problem).collect();
        assert_eq!(problems, ["serde is used and has no line", "left-over has a line and is not used"]);
    }

    #[test]
    fn every_workspace_has_its_lock_file() {
        let tree = Tree::of(&[("Cargo.lock", ""), ("sdk/rust/Cargo.toml", "")]);
        assert_eq!(lock_file(&tree, ""), None);
        assert_eq!(lock_file(&tree, "sdk/rust").unwrap().place, "sdk/rust/Cargo.lock");
    }
}
