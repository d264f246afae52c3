//! The decision crates know no async runtime and no network, neither in their sources nor in what they are built from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cargo_metadata::{DependencyKind, Metadata, PackageId};

use super::arrows::DECISION_CRATES;
use crate::rust_source::RustFile;
use crate::tree::Finding;

/// Crates that run tasks or open sockets.
const RUNTIMES: &[&str] =
    &["tokio", "async-std", "async-io", "smol", "futures-executor", "mio", "socket2", "hyper", "rustls", "async-nats", "reqwest"];

/// Paths in sources. An IPv4 address is `core::net`: a value, not a network.
const PATHS: &[&[&str]] =
    &[&["std", ":", ":", "net"], &["unix", ":", ":", "net"], &["tokio", ":", ":"], &["mio", ":", ":"], &["socket2", ":", ":"]];
const TYPES: &[&str] = &["TcpStream", "TcpListener", "UdpSocket", "UnixStream", "UnixListener", "UnixDatagram", "ToSocketAddrs"];

pub(super) fn check_sources(files: &[RustFile]) -> Vec<Finding> {
    let decides = |file: &&RustFile| DECISION_CRATES.iter().any(|name| file.path.starts_with(&format!("crates/{name}/")));
    files.iter().filter(decides).flat_map(source_findings).collect()
}

fn source_findings(file: &RustFile) -> Vec<Finding> {
    let paths = PATHS.iter().flat_map(|path| file.places(path).map(|token| (token, path.concat())));
    let types = TYPES.iter().flat_map(|name| file.places(std::slice::from_ref(name)).map(|token| (token, (*name).to_owned())));
    paths.chain(types).map(|(token, what)| Finding::new(file.place(token), format!("a decision crate must not use {what}"))).collect()
}

pub(super) fn check_graph(metadata: &Metadata) -> Vec<Finding> {
    let packages = metadata.workspace_packages();
    let mut findings = Vec::new();
    for package in packages.iter().filter(|package| DECISION_CRATES.contains(&package.name.as_str())) {
        let place = format!("crates/{}/Cargo.toml", package.name);
        let in_tests = package.dependencies.iter().filter(|d| d.kind == DependencyKind::Development && RUNTIMES.contains(&d.name.as_str()));
        findings.extend(in_tests.map(|d| Finding::new(&place, format!("its tests use {}", d.name))));
        let way = way_to_a_runtime(metadata, &package.id);
        findings.extend(way.map(|way| Finding::new(&place, format!("is built from a runtime: {way}"))));
    }
    findings
}

/// The shortest chain of normal dependencies from a package to a runtime, if there is one.
fn way_to_a_runtime(metadata: &Metadata, from: &PackageId) -> Option<String> {
    let names: BTreeMap<&PackageId, &str> = metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
    let nodes: BTreeMap<&PackageId, _> = metadata.resolve.as_ref()?.nodes.iter().map(|node| (&node.id, node)).collect();
    let mut seen = BTreeSet::from([from]);
    let mut ways = VecDeque::from([vec![from]]);
    while let Some(way) = ways.pop_front() {
        let last = *way.last()?;
        if names.get(last).is_some_and(|name| RUNTIMES.contains(name)) {
            return Some(way.iter().filter_map(|id| names.get(id).copied()).collect::<Vec<_>>().join(" → "));
        }
        let dependencies = nodes.get(last).into_iter().flat_map(|node| &node.deps);
        let normal = dependencies.filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
        for next in normal.map(|dep| &dep.pkg).filter(|next| seen.insert(next)) {
            ways.push_back(way.iter().copied().chain([next]).collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networking_is_found_in_decision_crates_and_only_there() {
        let cases = [
            ("crates/latent-core/src/a.rs", "use std::net::TcpStream;", 2),
            ("crates/latent-core/src/a.rs", "use std::{io, net::UdpSocket};", 1),
            ("crates/latent-nats-proto/src/a.rs", "fn f() { tokio::spawn(async {}); }", 1),
            ("crates/latent-capabilities/src/a.rs", "use std::os::unix::net::UnixStream;", 2),
            ("crates/latent-core/tests/main.rs", "#[tokio::test] async fn f() {}", 1),
            ("crates/latent-core/src/a.rs", "use core::net::SocketAddrV4; // std::net\nconst S: &str = \"tokio::spawn\";", 0),
            ("crates/latent-node/src/a.rs", "use std::net::TcpStream;", 0),
        ];
        for (path, source, count) in cases {
            let found = check_sources(&[RustFile::parse(path, source).unwrap()]);
            assert_eq!(found.len(), count, "{path}: {source}: {found:?}");
        }
    }

    #[test]
    fn a_runtime_far_down_the_graph_is_found_with_the_way_to_it() {
        let metadata = super::super::tests::workspace(&[("latent-core", &["middle"]), ("middle", &["tokio"]), ("tokio", &[])]);
        let findings = check_graph(&metadata);
        assert_eq!(findings, [Finding::new("crates/latent-core/Cargo.toml", "is built from a runtime: latent-core → middle → tokio")]);
    }

    #[test]
    fn a_graph_without_a_runtime_is_sound() {
        let metadata = super::super::tests::workspace(&[
            ("latent-core", &["middle"]),
            ("middle", &["latent-core"]),
            ("latent-node", &["tokio"]),
            ("tokio", &[]),
        ]);
        assert_eq!(check_graph(&metadata), []);
    }
}
