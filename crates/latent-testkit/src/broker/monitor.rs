//! What the broker says of itself on its monitoring port, which only the loopback reaches.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use serde_json::Value;

const ANSWER_BYTES_MAX: u64 = 4 << 20;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// One client connection, as the broker sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The broker's number for it.
    pub id: u64,
    /// The user it authenticated as; empty with a token.
    pub user: String,
    /// What it subscribes to.
    pub subscriptions: Vec<String>,
    /// Messages that the broker got from it.
    pub messages_in: u64,
    /// Messages that the broker sent to it.
    pub messages_out: u64,
    /// Bytes of those messages, headers and bodies.
    pub bytes_out: u64,
    /// `1.3` or `1.2`.
    pub tls_version: String,
}

pub(super) fn config_load_time(monitor: SocketAddrV4) -> String {
    let varz = get(monitor, "/varz");
    varz.get("config_load_time").and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(super) fn server_id(monitor: SocketAddrV4) -> String {
    get(monitor, "/varz").get("server_id").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Which server leads the cluster's record of streams, as this one knows.
pub(super) fn meta_leader(monitor: SocketAddrV4) -> Option<String> {
    leader_in(get(monitor, "/jsz").get("meta_cluster")?)
}

/// A stream of a cluster, as one server knows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replicated {
    pub(super) stream: String,
    pub(super) leader: Option<String>,
    /// Members that have everything. Only the leader knows.
    pub(super) current: Vec<String>,
}

/// Every stream of every account, sorted by name.
pub(super) fn replicated(monitor: SocketAddrV4) -> Vec<Replicated> {
    let jsz = get(monitor, "/jsz?accounts=1&streams=1");
    let list = |value: &Value, field: &str| value.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let details = list(&jsz, "account_details").into_iter().flat_map(|account| list(&account, "stream_detail"));
    let replicated = details.filter_map(|detail| {
        let cluster = detail.get("cluster")?;
        let current = list(cluster, "replicas").into_iter().filter(|replica| replica.get("current") == Some(&Value::Bool(true)));
        Some(Replicated {
            stream: text(&detail, "name"),
            leader: leader_in(cluster),
            current: current.map(|replica| text(&replica, "name")).collect(),
        })
    });
    let mut replicated: Vec<_> = replicated.collect();
    replicated.sort_by(|a, b| a.stream.cmp(&b.stream));
    replicated
}

fn leader_in(cluster: &Value) -> Option<String> {
    Some(text(cluster, "leader")).filter(|leader| !leader.is_empty())
}

/// True when the server says that it can do its work, with all that it keeps up to date.
pub(super) fn is_healthy(monitor: SocketAddrV4) -> bool {
    fetch(monitor, "/healthz").is_ok_and(|body| String::from_utf8_lossy(&body).contains("\"ok\""))
}

/// How many consumers there are, of all streams of all accounts.
pub(super) fn consumers(monitor: SocketAddrV4) -> u64 {
    get(monitor, "/jsz").get("consumers").and_then(Value::as_u64).unwrap_or_default()
}

/// The open connections, but not those of the provisioning path.
pub(super) fn connections(monitor: SocketAddrV4, admin_name: &str) -> Vec<Connection> {
    let connz = get(monitor, "/connz?auth=1&subs=1&limit=1024");
    let all = connz.get("connections").and_then(Value::as_array).into_iter().flatten();
    all.filter(|entry| text(entry, "name") != admin_name).map(connection).collect()
}

fn connection(entry: &Value) -> Connection {
    let number = |name: &str| entry.get(name).and_then(Value::as_u64).unwrap_or_default();
    let subscriptions = entry.get("subscriptions_list").and_then(Value::as_array).into_iter().flatten();
    Connection {
        id: number("cid"),
        user: text(entry, "authorized_user"),
        subscriptions: subscriptions.filter_map(Value::as_str).map(str::to_owned).collect(),
        messages_in: number("in_msgs"),
        messages_out: number("out_msgs"),
        bytes_out: number("out_bytes"),
        tls_version: text(entry, "tls_version"),
    }
}

fn text(entry: &Value, name: &str) -> String {
    entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[allow(clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
fn get(monitor: SocketAddrV4, path: &str) -> Value {
    let body = fetch(monitor, path).unwrap_or_else(|error| panic!("the broker's monitoring port does not answer {path}: {error}"));
    serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{path} is no JSON: {error}"))
}

/// HTTP/1.0: the body is what follows the first empty line, up to the end.
fn fetch(monitor: SocketAddrV4, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&monitor.into(), ANSWER_TIME_MAX)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or(std::io::ErrorKind::InvalidData)?;
    Ok(answer.split_off(head + 4))
}
