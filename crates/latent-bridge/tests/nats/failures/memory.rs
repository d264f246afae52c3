//! How much memory a reader takes. A child is this test binary run again with an environment variable, so that nothing else is counted.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use latent_bridge::limits::FETCH_BYTES;
use latent_bridge::nats_bus::{NatsOptions, NatsRoots};
use latent_bridge::{EventBus, NatsBus};
use latent_core::{Offset, Partition};
use latent_testkit::broker::TestCa;
use latent_testkit::{ChildGuard, require_broker};

use crate::live::{manifest, options_at, record, spec, with_topic};

/// Set in a child to the server and the root's file.
const CHILD: &str = "LATENT_BRIDGE_TEST_MEASURED_CHILD";
const RECORDS: usize = 12_000;
const PAYLOAD: usize = 4_096;
const MIB: u64 = 1 << 20;

/// The most memory that this process has had so far, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// Not a test of its own: without the variable it has nothing to do.
#[test]
fn child_reads_everything_page_by_page() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (server, ca_file) = told.split_once(' ').unwrap();
    let roots = NatsRoots::Pem(PathBuf::from(ca_file));
    let options = NatsOptions { servers: vec![server.to_owned()], roots, ..options_at(&[], &TestCa::new()) };
    let bus = NatsBus::open_with(options, &manifest(1)).unwrap();
    let read = |from: u64, max: usize| bus.submit_fetch("t", Partition(0), Offset(from), max).wait().unwrap();
    assert_eq!(read(0, 10).len(), 10);
    let before = peak();
    let (mut next, mut count) = (0, 0);
    loop {
        let page = read(next, 1_000_000);
        let Some(last) = page.last() else { break };
        next = last.offset.0 + 1;
        count += page.len();
    }
    let of_pages = peak() - before;
    assert_eq!(count, RECORDS);
    assert!(bus.find_event_by_uid("t", "k", &format!("u{}", RECORDS - 1)).unwrap().is_some());
    let of_lookup = peak() - before;
    // A page is there as it came, with what is behind it on its way, and as records.
    let bound = 4 * FETCH_BYTES.default;
    assert!(of_pages <= bound && of_lookup <= bound, "{of_pages} and {of_lookup} of {bound} bytes");
    // Everything at once takes as much as it is, a few times over.
    let events = bus.fetch("t", 0, 0, 1_000_000).unwrap();
    let (of_all, all) = (peak() - before, (RECORDS * PAYLOAD) as u64);
    assert!(events.len() == RECORDS && of_all <= 6 * all, "{of_all} bytes for {all}");
    println!("\npages {} MiB, lookup {} MiB, everything {} MiB of {} MiB", of_pages / MIB, of_lookup / MIB, of_all / MIB, all / MIB);
}

/// BUG-52: a read of everything, however much is asked for, takes memory for a page and not for what is there.
#[test]
fn bug_52_memory_is_bounded_by_the_page_and_not_by_what_is_asked_for() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 1);
    let records: Vec<_> = (0..RECORDS).map(|n| record(&format!("u{n}"), "k", vec![b'x'; PAYLOAD])).collect();
    assert!(bus.publish_batch("t", &records).iter().all(Result::is_ok));
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, broker.ca().root_pem()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["failures::memory::child_reads_everything_page_by_page", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, format!("tls://{} {}", broker.address(), ca_file.display()));
    let mut child = ChildGuard::spawn(command.stdin(Stdio::null())).unwrap();
    let ended = child.wait_at_most(std::time::Duration::from_secs(120)).unwrap();
    assert!(ended.is_ok_and(|status| status.success()));
}
