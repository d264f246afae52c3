//! `cargo xtask tidy`: rules of the tree that a compiler does not know. Each rule is a function from what was read to findings,
//! and has a test with a planted violation.

mod arrows;
mod decision_crates;
mod dependencies;
mod kinds;
mod limits;
mod sizes;
mod source;
mod words;

use std::path::Path;

use cargo_metadata::{Metadata, MetadataCommand};

use crate::failure::Failure;
use crate::process::host_target;
use crate::rust_source;
use crate::tree::{Finding, Tree, report};

/// Checks everything.
///
/// # Errors
/// [`Failure::Findings`] when there is something to mend.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let tree = Tree::read(root)?;
    let workspaces = Workspaces::read(root, &tree)?;
    report("tidy", &check(&tree, &workspaces))?;
    eprintln!("tidy: nothing to mend");
    Ok(())
}

/// Rewrites the table of `docs/limits.md` from the sources.
///
/// # Errors
/// The page or its markers are missing, or a source cannot be read.
pub(crate) fn bless(root: &Path) -> Result<(), Failure> {
    let tree = Tree::read(root)?;
    let files = rust_source::parse_all(&tree).or_else(|findings| report("tidy", &findings).map(|()| Vec::new()))?;
    let (limits, findings) = limits::in_sources(&files);
    report("tidy", &findings)?;
    let page = limits::page_with(&tree, &limits)?;
    let path = root.join(limits::PAGE);
    std::fs::write(&path, page).map_err(Failure::file(path))
}

/// What cargo knows of every workspace of the project.
struct Workspaces {
    /// The product's own, with its resolved dependency graph.
    root: Metadata,
    /// Those of guests, with their folders, without a graph.
    guests: Vec<(String, Metadata)>,
}

impl Workspaces {
    fn read(root: &Path, tree: &Tree) -> Result<Self, Failure> {
        // The graph of this machine alone: for others, cargo would fetch crates that nothing here builds.
        let host = host_target(root)?;
        let folders = tree.workspace_folders();
        let guests = folders.iter().skip(1).map(|folder| Ok((folder.clone(), metadata(root, folder, &Graph::Leave)?)));
        Ok(Self { root: metadata(root, "", &Graph::ResolveFor(host))?, guests: guests.collect::<Result<_, Failure>>()? })
    }

    fn all(&self) -> impl Iterator<Item = (&str, &Metadata)> {
        std::iter::once(("", &self.root)).chain(self.guests.iter().map(|(folder, metadata)| (folder.as_str(), metadata)))
    }
}

/// Whether dependencies of dependencies are asked for.
#[derive(Debug)]
enum Graph {
    ResolveFor(String),
    Leave,
}

fn metadata(root: &Path, folder: &str, graph: &Graph) -> Result<Metadata, Failure> {
    let manifest = root.join(folder).join("Cargo.toml");
    let mut command = MetadataCommand::new();
    command.manifest_path(&manifest);
    match graph {
        Graph::ResolveFor(target) => command.other_options(["--locked", "--filter-platform", target].map(str::to_owned)),
        Graph::Leave => command.no_deps(),
    };
    command.exec().map_err(|source| Failure::Metadata { manifest: manifest.display().to_string(), source })
}

fn check(tree: &Tree, workspaces: &Workspaces) -> Vec<Finding> {
    let mut findings = arrows::check(&workspaces.root);
    findings.extend(decision_crates::check_graph(&workspaces.root));
    findings.extend(dependencies::check(tree, workspaces.all()));
    findings.extend(words::check(tree));
    match rust_source::parse_all(tree) {
        Err(unreadable) => findings.extend(unreadable),
        Ok(files) => {
            findings.extend(decision_crates::check_sources(&files));
            findings.extend(kinds::check(tree, &files));
            findings.extend(limits::check(tree, &files));
            findings.extend(sizes::check(tree, &files));
            findings.extend(source::check(&files));
        }
    }
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What cargo would say of a workspace with these packages and normal dependencies between them.
    pub(super) fn workspace(packages: &[(&str, &[&str])]) -> Metadata {
        let id = |name: &str| format!("path+file:///x/{name}#0.1.0");
        let dependency = |name: &&str| {
            json!({"name": name, "source": null, "req": "*", "kind": null, "rename": null, "optional": false,
                "uses_default_features": true, "features": [], "target": null, "registry": null, "path": "/x"})
        };
        let package = |(name, uses): &(&str, &[&str])| {
            json!({"name": name, "version": "0.1.0", "id": id(name), "license": null, "license_file": null, "description": null,
                "source": null, "dependencies": uses.iter().map(dependency).collect::<Vec<Value>>(), "targets": [], "features": {},
                "manifest_path": format!("/x/{name}/Cargo.toml"), "metadata": null, "publish": [], "authors": [], "categories": [],
                "keywords": [], "readme": null, "repository": null, "homepage": null, "documentation": null, "edition": "2024",
                "links": null, "default_run": null, "rust_version": null})
        };
        let node = |(name, uses): &(&str, &[&str])| {
            let deps = uses.iter().map(|used| json!({"name": used, "pkg": id(used), "dep_kinds": [{"kind": null, "target": null}]}));
            json!({"id": id(name), "dependencies": uses.iter().map(|used| id(used)).collect::<Vec<_>>(),
                "deps": deps.collect::<Vec<_>>(), "features": []})
        };
        let members: Vec<String> = packages.iter().map(|(name, _)| id(name)).collect();
        let document = json!({"packages": packages.iter().map(package).collect::<Vec<_>>(), "workspace_members": members,
            "workspace_default_members": members, "resolve": {"nodes": packages.iter().map(node).collect::<Vec<_>>(), "root": null},
            "target_directory": "/x/target", "build_directory": "/x/target", "version": 1, "workspace_root": "/x", "metadata": null});
        serde_json::from_value(document).unwrap()
    }
}
