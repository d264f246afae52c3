//! The socket as a peer meets it: well-behaved, clumsy, slow and hostile.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use latent_bridge::{BridgeManifest, EmbeddedBroker, EventBus, MaintenanceReport, TopicStatistics};
use latent_core::{SystemClock, UnixMillis};
use latent_node::{Catalog, Hold, HoldCause};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::ControlClient;
use super::server::{ControlServer, ServerBounds};
use super::target::{ActivationCounts, LatencyMillis};
use super::*;
use crate::administration::{self, AdminError, Unread};
use crate::data_dir::DataDir;
use crate::engine::Engine;
use crate::host::{ClockWatch, HostFiles};
use crate::limits;
use crate::log::Log;
use crate::maintenance::MaintainError;
use latent_core::{ActivationId, Place};

mod administering;

const MANIFEST: &str = "manifest_version: 1\nname: demo\ntopics: [{ name: t, partitions: 2 }]\n";

struct FakeNode {
    log: Arc<EmbeddedBroker>,
    bindings: usize,
    catalog: Arc<Catalog>,
    watch: ClockWatch,
    clock: Believed,
    abandoned: Arc<std::sync::Mutex<Vec<ActivationId>>>,
}

/// Whether the node's maintenance believes the wall clock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Believed {
    Yes,
    No,
}

impl ControlTarget for FakeNode {
    fn engine(&self) -> Engine {
        Engine::Embedded
    }

    fn bus(&self) -> Result<Arc<dyn EventBus>, Fault> {
        Ok(Arc::clone(&self.log) as Arc<dyn EventBus>)
    }

    fn node_info(&self) -> NodeInfo {
        NodeInfo { name: "n".to_owned(), version: "1".to_owned(), pid: 7, engine: "embedded".to_owned() }
    }

    fn trigger_status(&self) -> Vec<TriggerStatus> {
        (0..self.bindings).map(|number| status(&format!("b{number:04}"))).collect()
    }

    fn statistics(&self) -> Result<Vec<TopicStatistics>, Fault> {
        Ok(self.log.statistics())
    }

    fn services(&self) -> Result<Vec<ServiceInfo>, AdminError> {
        Ok(administration::list(&self.catalog))
    }

    fn route_service(&self, order: &RouteOrder) -> Result<Routed, AdminError> {
        administration::route(&self.catalog, order)
    }

    fn revoke_service(&self, order: &RevokeOrder) -> Result<Vec<Revoked>, AdminError> {
        administration::revoke(&self.catalog, &Unread::new(), order)
    }

    fn clock(&self) -> Result<ClockInfo, AdminError> {
        Ok(administration::clock(&self.watch))
    }

    fn confirm_clock(&self) -> Result<ClockInfo, AdminError> {
        administration::confirm_clock(&self.watch)
    }

    fn maintain(&self) -> Result<MaintenanceReport, MaintainError> {
        if self.clock == Believed::No {
            return Err(MaintainError::Held(Hold { since: UnixMillis(0), cause: HoldCause::Jump { millis: 600_000 } }));
        }
        let mut report = MaintenanceReport::default();
        report.skipped_topics = vec!["t".to_owned()];
        Ok(report)
    }

    fn reload(&self, order: ReloadOrder) -> Result<Reloaded, Fault> {
        Ok(Reloaded {
            file: "latent.toml".to_owned(),
            epoch: order.expected_epoch.unwrap_or(1),
            applied: !order.dry_run,
            changes: Vec::new(),
            notes: Vec::new(),
        })
    }

    fn abandon(&self, activation: ActivationId) {
        self.abandoned.lock().unwrap().push(activation);
    }

    fn event_history(&self, _: &Place) -> Result<EventHistory, Fault> {
        Ok(EventHistory::default())
    }

    fn removed_triggers(&self) -> Result<Vec<RemovedTrigger>, Fault> {
        Ok(vec![RemovedTrigger { id: "gone".to_owned(), topic: "t".to_owned() }])
    }

    fn forget_trigger(&self, id: &str) -> Result<Forgotten, Fault> {
        Err(ForgetRefused::Unknown { id: id.to_owned() }.into())
    }

    /// Ends when it is abandoned, if the service is `waits`.
    fn invoke(&self, invocation: Invocation, handed_over: &dyn Fn(ActivationId)) -> Result<Invoked, Fault> {
        if invocation.service == "waits" {
            handed_over(ActivationId::from_random([7; 16]));
            latent_testkit::wait_until("the call is abandoned", || !self.abandoned.lock().unwrap().is_empty());
        }
        Err(Fault::refused("unknown-service", invocation.service))
    }

    fn node_summary(&self) -> NodeSummary {
        let activations = ActivationCounts { success: 3, rejected: 2, failed: 1 };
        NodeSummary { activations, append_to_settled_ms: Some(LatencyMillis { p50: 0.5, p99: 1.5 }), ..NodeSummary::default() }
    }
}

fn status(id: &str) -> TriggerStatus {
    TriggerStatus {
        id: id.to_owned(),
        engine: "embedded".to_owned(),
        state: BindingState::Idle,
        pending: Some(1),
        unacknowledged: Some(0),
        delayed: 1,
        dead_lettered: 0,
        last_outcome: Some("success".to_owned()),
        last_delivery_at: Some(5),
        next_attempt_at: None,
        topic: "t".to_owned(),
        partitions: 2,
        settled: Some(9),
        terminated: Some(0),
        exhausted: Some(0),
        expired_unread: 0,
        stranded: 1,
        stranded_at: Some(7),
        last_error: Some("x".repeat(limits::STATUS_TEXT_CHARS.max_usize() + 1)),
    }
}

/// A node's socket in service.
struct Served {
    dir: DataDir,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    runtime: Runtime,
    /// What the node was told to abandon.
    abandoned: Arc<std::sync::Mutex<Vec<ActivationId>>>,
    temp: tempfile::TempDir,
}

impl Served {
    fn start(bounds: ServerBounds) -> Self {
        Self::with_bindings(bounds, 1)
    }

    fn with_bindings(bounds: ServerBounds, bindings: usize) -> Self {
        Self::with_node(bounds, |log, files| {
            let watch = ClockWatch::open(files, Arc::new(SystemClock::start())).unwrap();
            FakeNode { log, bindings, catalog: Arc::default(), watch, clock: Believed::Yes, abandoned: Arc::default() }
        })
    }

    fn with_node(bounds: ServerBounds, make: impl FnOnce(Arc<EmbeddedBroker>, HostFiles) -> FakeNode) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::new(&temp.path().join("data"));
        let manifest = BridgeManifest::from_yaml(MANIFEST).unwrap();
        let log = Arc::new(EmbeddedBroker::provision(dir.log(), &manifest).unwrap());
        let socket = ControlSocket::bind(&dir, &Log::Embedded(Arc::clone(&log))).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (stop, stopped) = watch::channel(false);
        let server = {
            let _inside = runtime.enter();
            ControlServer::with_bounds(socket, bounds).unwrap()
        };
        let node = make(log, HostFiles::below(dir.log()));
        let abandoned = Arc::clone(&node.abandoned);
        let serving = runtime.spawn(server.serve(Arc::new(node), stopped));
        Self { dir, stop, serving, runtime, abandoned, temp }
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.dir.control_socket()).unwrap();
        // Only a guard against a hanging test.
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        BufReader::new(stream)
    }

    fn client(&self) -> ControlClient {
        ControlClient::greet(&self.dir.control_socket()).unwrap()
    }
}

fn defaults() -> ServerBounds {
    ServerBounds::default()
}

fn ask(peer: &mut BufReader<UnixStream>, line: &str) -> Value {
    writeln!(peer.get_mut(), "{line}").unwrap();
    answer_of(peer)
}

fn answer_of(peer: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    peer.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
}

fn is_closed(peer: &mut BufReader<UnixStream>) -> bool {
    let mut rest = Vec::new();
    // A peer that closes with our bytes unread resets the connection, which is closed too.
    peer.read_to_end(&mut rest).is_err() || rest.is_empty()
}

fn event(uid: &str, key: &str, payload: &str) -> NewEvent {
    let payload = Payload(payload.to_owned().into_bytes().into());
    NewEvent { uid: Some(uid.to_owned()), key: key.to_owned(), media_type: "text/plain".to_owned(), attributes: Vec::new(), payload }
}

#[test]
fn the_wire_form_is_one_json_line_each_way() {
    let served = Served::start(defaults());
    let mut peer = served.connect();
    let node = json!({ "name": "n", "version": "1", "pid": 7, "engine": "embedded" });
    assert_eq!(ask(&mut peer, r#"{"version":1,"request":"ping"}"#), json!({ "version": 1, "answer": { "node": node } }));
    let summary = ask(&mut peer, r#"{"version":1,"request":"summary"}"#);
    let expected = json!({
        "activations": { "success": 3, "rejected": 2, "failed": 1 },
        "events_settled": 0,
        "publications": { "receipts": 0, "duplicates": 0, "failures": 0, "uncertain": 0 },
        "append_to_settled_ms": { "p50": 0.5, "p99": 1.5 },
        "accounting": { "bytes": 0, "parts": [] },
        "providers": [],
        "pools": { "running": 0, "queued": 0, "connections": 0, "bytes": 0 },
        "audit": { "written": 0, "dropped": 0, "failing": false },
        "warnings": [],
    });
    assert_eq!(summary["answer"]["summary"], expected);
}

#[test]
fn events_are_published_found_and_read_back() {
    let served = Served::start(defaults());
    let mut client = served.client();
    let events = vec![event("a", "k", "1"), event("bad uid", "k", "2"), event("a", "k", "1"), event("a", "k", "other")];
    let Answer::Published(results) = client.call(Request::Publish { topic: "t".to_owned(), events }).unwrap() else { panic!() };
    let kinds: Vec<_> = results
        .iter()
        .map(|result| match result {
            Published::Stored(placed) => format!("{} {}", placed.offset, placed.duplicate),
            Published::Fault(fault) => format!("{} {}", fault.kind, fault.permanent),
        })
        .collect();
    assert_eq!(kinds, ["0 false", "rejected true", "0 true", "conflict true"]);

    let find = Request::Find { topic: "t".to_owned(), key: Some("k".to_owned()), uid: "a".to_owned() };
    let Answer::Found(Some(placed)) = client.call(find).unwrap() else { panic!() };
    let fetch = Request::Fetch { topic: "t".to_owned(), partition: placed.partition, offset: 0, max: 10 };
    let Answer::Events(events) = client.call(fetch).unwrap() else { panic!() };
    assert_eq!(events.iter().map(|event| (&*event.uid, &event.payload.0[..])).collect::<Vec<_>>(), [("a", &b"1"[..])]);
    assert_eq!(client.call(Request::Partitions { topic: "t".to_owned() }).unwrap(), Answer::Partitions(2));
    let Answer::Topics(topics) = client.call(Request::Topics).unwrap() else { panic!() };
    assert_eq!(topics, [TopicInfo { topic: "t".to_owned(), partitions: 2, events: 1 }]);
}

#[test]
fn sizes_and_maintenance_are_told() {
    let served = Served::start(defaults());
    let mut client = served.client();
    let events = vec![event("a", "k", "1"), event("b", "k", "2")];
    client.call(Request::Publish { topic: "t".to_owned(), events }).unwrap();
    let all = Request::Statistics { topic: None, after: None };
    let Answer::Statistics { partitions, more: false } = client.call(all).unwrap() else { panic!() };
    assert_eq!(partitions.iter().map(|partition| partition.records).sum::<u64>(), 2);
    let after = Some(partitions[0].place());
    let rest = Request::Statistics { topic: Some("t".to_owned()), after };
    assert_eq!(client.call(rest).unwrap(), Answer::Statistics { partitions: partitions[1..].to_vec(), more: false });
    let maintained = Maintained { skipped_topics: vec!["t".to_owned()], ..Maintained::default() };
    assert_eq!(client.call(Request::Maintain).unwrap(), Answer::Maintained(maintained));
}

#[test]
fn the_largest_page_of_sizes_fits_a_line() {
    let largest = PartitionInfo {
        topic: "t".repeat(latent_core::limits::TOPIC_NAME_BYTES.max_usize()),
        partition: u32::MAX,
        first: u64::MAX,
        next: u64::MAX,
        records: u64::MAX,
        damaged: u64::MAX,
        bytes: Some(u64::MAX),
        poisoned: false,
        topic_segments: u64::MAX,
        topic_uid_runs: u64::MAX,
        topic_oldest: Some(u64::MAX),
    };
    let partitions = vec![largest; limits::STATISTICS_PAGE.max_usize()];
    let line = protocol::encode_answer(Answer::Statistics { partitions, more: true });
    // Twice over: what is told of a partition may grow.
    assert!(line.len() * 2 < limits::CONTROL_LINE_BYTES.max_usize(), "{}", line.len());
}

#[test]
fn the_text_of_a_refused_event_is_cut_at_its_bound() {
    let chars_max = limits::FAULT_TEXT_CHARS.max_usize();
    for chars in [chars_max - 1, chars_max, chars_max + 1] {
        let fault = Fault::refused("rejected", "\u{fc}".repeat(chars)).bounded();
        assert_eq!(fault.message.chars().count(), chars.min(chars_max));
        assert_eq!(fault.message.ends_with('…'), chars > chars_max, "what is left out is marked");
    }
}

#[test]
fn a_fault_of_the_log_keeps_its_kind() {
    let served = Served::start(defaults());
    let mut client = served.client();
    let cases = [
        (Request::Bounds { topic: "nowhere".to_owned(), partition: 0 }, "unknown-topic"),
        (Request::Bounds { topic: "t".to_owned(), partition: 2 }, "out-of-range"),
        (Request::Statistics { topic: Some("nowhere".to_owned()), after: None }, "unknown-topic"),
        (Request::Find { topic: "t".to_owned(), key: None, uid: "a b".to_owned() }, "rejected"),
        (
            Request::Publish { topic: "t".to_owned(), events: vec![event("u", "", ""); limits::PUBLISH_BATCH_RECORDS.max_usize() + 1] },
            "out-of-range",
        ),
    ];
    for (request, kind) in cases {
        let error = client.call(request).unwrap_err();
        assert!(matches!(&error, ControlError::Refused(fault) if fault.kind == kind), "{kind}: {error:?}");
    }
}

#[test]
fn the_largest_batch_and_the_largest_page_fit_a_line() {
    let served = Served::start(defaults());
    let mut client = served.client();
    let count = limits::PUBLISH_BATCH_RECORDS.max_usize();
    let payload = "x".repeat(limits::PUBLISH_BATCH_BYTES.max_usize() / count);
    let events: Vec<_> = (0..count).map(|number| event(&format!("{}{number:04}", "\"".repeat(252)), "key", &payload)).collect();
    let Answer::Published(results) = client.call(Request::Publish { topic: "t".to_owned(), events }).unwrap() else { panic!() };
    assert!(results.iter().all(|result| matches!(result, Published::Stored(_))), "{:?}", results.first());
    let partition = match &results[0] {
        Published::Stored(placed) => placed.partition,
        Published::Fault(fault) => panic!("{fault:?}"),
    };
    let Answer::Events(page) = client.call(Request::Fetch { topic: "t".to_owned(), partition, offset: 0, max: u64::MAX }).unwrap() else {
        panic!()
    };
    assert_eq!(page.len() as u64, limits::FETCH_PAGE_RECORDS.max);

    // Keys of control characters grow sixfold in JSON; so does the page that they are read in.
    let keyed = |number| event(&format!("c{number}"), &"\u{1}".repeat(1_024), "");
    let events = (0..limits::FETCH_PAGE_RECORDS.max).map(keyed).collect();
    client.call(Request::Publish { topic: "t".to_owned(), events }).unwrap();
    let find = Request::Find { topic: "t".to_owned(), key: None, uid: "c0".to_owned() };
    let Answer::Found(Some(Placed { partition, offset, .. })) = client.call(find).unwrap() else { panic!() };
    let Answer::Events(page) = client.call(Request::Fetch { topic: "t".to_owned(), partition, offset, max: u64::MAX }).unwrap() else {
        panic!()
    };
    assert_eq!(page.len() as u64, limits::FETCH_PAGE_RECORDS.max);
}

#[test]
fn statuses_come_in_pages_with_their_text_cut() {
    let page = limits::STATUS_PAGE.max_usize();
    let served = Served::with_bindings(defaults(), page + 1);
    let mut client = served.client();
    let Answer::Statuses { statuses, more } = client.call(Request::TriggerStatus { after: None }).unwrap() else { panic!() };
    assert_eq!((statuses.len(), more), (page, true));
    assert_eq!(statuses[0].last_error.as_ref().map(|text| text.chars().count()), Some(limits::STATUS_TEXT_CHARS.max_usize()));
    let after = statuses.last().map(|status| status.id.clone());
    let Answer::Statuses { statuses, more } = client.call(Request::TriggerStatus { after }).unwrap() else { panic!() };
    assert_eq!((statuses.len(), more), (1, false));
}

#[test]
fn a_status_begins_with_the_stable_document() {
    let text = serde_json::to_string(&status("b")).unwrap();
    let stable = r#"{"id":"b","engine":"embedded","state":"idle","pending":1,"unacknowledged":0,"delayed":1,"dead_lettered":0,"last_outcome":"success","last_delivery_at":5,"next_attempt_at":null,"#;
    assert!(text.starts_with(stable), "{text}");
}

#[test]
fn what_is_not_understood_is_answered_with_the_reason_and_the_connection_closed() {
    let served = Served::start(defaults());
    let cases = [
        ("garbage", "control-malformed", "not understood"),
        ("", "control-malformed", "not understood"),
        ("{}", "control-malformed", "`version` is missing"),
        (r#"{"version":2,"request":"ping"}"#, "control-version", "speaks version 1"),
        (r#"{"version":2,"something":"new"}"#, "control-version", "version 2"),
        (r#"{"version":1,"request":"ping","more":1}"#, "control-malformed", "unknown field `more`"),
        (r#"{"version":1,"request":"pong"}"#, "control-malformed", "unknown variant `pong`"),
        (r#"{"version":1,"request":{"bounds":{"topic":"t","partition":0,"x":1}}}"#, "control-malformed", "unknown field `x`"),
        (r#"{"version":1,"request":{"bounds":{"topic":"t","partition":-1}}}"#, "control-malformed", "-1"),
    ];
    for (line, kind, words) in cases {
        let mut peer = served.connect();
        let fault = ask(&mut peer, line)["answer"]["fault"].clone();
        assert_eq!(fault["kind"], kind, "{line}");
        assert!(fault["message"].as_str().is_some_and(|message| message.contains(words)), "{line}: {fault}");
        assert!(is_closed(&mut peer), "{line}");
    }
}

#[test]
fn a_line_beyond_the_bound_is_refused_before_its_end() {
    let served = Served::start(defaults());
    let mut peer = served.connect();
    let bytes = vec![b'x'; limits::CONTROL_LINE_BYTES.max_usize() + 1];
    // No line break follows: the answer must not wait for one.
    peer.get_mut().write_all(&bytes).unwrap();
    assert_eq!(answer_of(&mut peer)["answer"]["fault"]["kind"], "control-line-too-long");
    assert!(is_closed(&mut peer));
}

#[test]
fn half_a_line_changes_nothing() {
    let served = Served::start(defaults());
    let mut peer = served.connect();
    let request =
        r#"{"version":1,"request":{"publish":{"topic":"t","events":[{"uid":"h","key":"","media_type":"a/b","payload":"eA=="}]}}}"#;
    peer.get_mut().write_all(request.as_bytes()).unwrap();
    drop(peer);
    let find = Request::Find { topic: "t".to_owned(), key: None, uid: "h".to_owned() };
    assert_eq!(served.client().call(find).unwrap(), Answer::Found(None));
}

#[test]
fn a_silent_peer_is_dropped_and_a_slow_one_too() {
    let served = Served::start(ServerBounds { idle_millis: limits::CONTROL_IDLE_MILLIS.min, ..defaults() });
    let mut silent = served.connect();
    assert!(is_closed(&mut silent));
    let mut slow = served.connect();
    slow.get_mut().write_all(b"{\"version\":").unwrap();
    assert!(is_closed(&mut slow));
}

#[test]
fn when_every_connection_is_taken_a_few_are_left_for_administration_and_one_too_many_is_told_so() {
    let served = Served::start(ServerBounds { connections: 2, ..defaults() });
    let (mut first, second) = (served.client(), served.client());
    let reserved = limits::CONTROL_RESERVED_CONNECTIONS.default_usize();
    let mut administrators: Vec<_> = (0..reserved).map(|_| served.connect()).collect();
    for peer in &mut administrators {
        let services = ask(peer, r#"{"version":1,"request":{"services":{"after":null}}}"#);
        assert!(services["answer"]["services"].is_object(), "{services}");
    }
    let mut one_more = served.connect();
    let fault = answer_of(&mut one_more)["answer"]["fault"].clone();
    assert_eq!((&fault["kind"], &fault["permanent"]), (&json!("busy"), &json!(false)));
    assert!(is_closed(&mut one_more));
    // What may take long has no place among the administrators.
    for request in [r#"{"find":{"topic":"t","key":"k","uid":"a"}}"#, r#"{"bounds":{"topic":"t","partition":0}}"#] {
        let mut peer = administrators.pop().unwrap();
        let answer = ask(&mut peer, &format!(r#"{{"version":1,"request":{request}}}"#));
        assert_eq!(answer["answer"]["fault"]["kind"], json!("busy"), "{answer}");
        assert!(is_closed(&mut peer));
    }
    assert!(matches!(first.call(Request::Ping), Ok(Answer::Node(_))), "the others are served on");
    drop(second);
    // The place is free once the server has seen the end of the second connection.
    latent_testkit::wait_until("a free place", || served.client().call(Request::Bounds { topic: "t".to_owned(), partition: 0 }).is_ok());
}

#[test]
fn only_the_owner_may_connect() {
    let served = Served::start(defaults());
    let mode = std::fs::metadata(served.dir.control_socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let names: Vec<_> = std::fs::read_dir(served.dir.log()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with(".c")), "{names:?}");
}

#[test]
fn stopping_removes_the_socket_and_ends_connections() {
    let served = Served::start(defaults());
    let mut peer = served.connect();
    assert_eq!(ask(&mut peer, r#"{"version":1,"request":"ping"}"#)["version"], 1);
    let Served { dir, stop, serving, runtime, abandoned: _, temp } = served;
    stop.send(true).unwrap();
    runtime.block_on(serving).unwrap();
    assert!(is_closed(&mut peer));
    assert!(!dir.control_socket().exists());
    assert!(matches!(ControlClient::greet(&dir.control_socket()), Err(ControlError::NotListening)));
    drop(temp);
}

#[test]
fn a_leftover_socket_is_replaced_and_anything_else_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::new(&temp.path().join("data"));
    let log = Log::Embedded(Arc::new(EmbeddedBroker::provision(dir.log(), &BridgeManifest::from_yaml(MANIFEST).unwrap()).unwrap()));
    drop(std::os::unix::net::UnixListener::bind(dir.control_socket()).unwrap());
    assert!(matches!(ControlClient::greet(&dir.control_socket()), Err(ControlError::NotListening)));
    drop(ControlSocket::bind(&dir, &log).unwrap());

    std::fs::write(dir.control_socket(), "mine").unwrap();
    assert!(matches!(ControlSocket::bind(&dir, &log), Err(socket::SocketError::Occupied(_))));
    assert_eq!(std::fs::read_to_string(dir.control_socket()).unwrap(), "mine");
}

#[test]
fn a_peer_that_never_answers_is_given_up() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("s");
    let _deaf = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut client = ControlClient::connect_within(&path, limits::CONTROL_ANSWER_MILLIS.min).unwrap();
    let error = client.call(Request::Ping).unwrap_err();
    assert!(matches!(error, ControlError::NoAnswer { millis: 10 }) && error.may_have_happened(), "{error:?}");
}

#[test]
fn an_answer_of_another_version_is_told_apart() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let newer = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = BufReader::new(stream);
        stream.read_line(&mut String::new()).unwrap();
        writeln!(stream.get_mut(), r#"{{"version":2,"reply":{{}}}}"#).unwrap();
    });
    let error = ControlClient::greet(&path).unwrap_err();
    assert_eq!(error.kind(), "control-version", "{error:?}");
    newer.join().unwrap();
}

#[test]
fn a_call_is_abandoned_when_its_peer_closes_and_not_before() {
    let served = Served::start(defaults());
    let mut peer = served.connect();
    let invocation =
        r#"{"version":1,"request":{"invoke":{"service":"waits","contract":"a:b/c@1.0.0","function":"f","arguments":"[]","budget":{}}}}"#;
    writeln!(peer.get_mut(), "{invocation}").unwrap();
    // Another connection is answered meanwhile, and nothing is abandoned by that.
    assert!(matches!(served.client().call(Request::Ping), Ok(Answer::Node(_))));
    assert!(served.abandoned.lock().unwrap().is_empty());
    drop(peer);
    latent_testkit::wait_until("the call is abandoned", || !served.abandoned.lock().unwrap().is_empty());
    assert_eq!(*served.abandoned.lock().unwrap(), [ActivationId::from_random([7; 16])]);
}
