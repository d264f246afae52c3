//! What was published, read by a client that shares no line with ours: nats-py.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use latent_core::{LogicalTopic, MessageId};
use latent_testkit::broker::{BrokerAuth, BrokerUser};
use latent_testkit::{Missing, require_broker, skip};

use crate::bench::{Bench, STREAM, Setup, event, receipt, spec, tenant};

const READER: &str = "reader";
const PASSWORD: &str = "of the reader";

/// The wheel that `cargo xtask broker` fetches; Python imports it as it is.
fn wheel() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/nats-server/nats_py-2.16.0-py3-none-any.whl");
    let named = std::env::var_os("LATENT_NATS_PY").map(PathBuf::from);
    Some(named.unwrap_or(fetched)).filter(|wheel| wheel.is_file())
}

fn read(bench: &Bench, wheel: &Path) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root.pem");
    std::fs::write(&root, bench.broker.ca().root_pem()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broker/read_stream.py");
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", wheel).env("PYTHONDONTWRITEBYTECODE", "1").arg(script);
    python.args([bench.broker.address().to_string(), bench.broker.server_name()]).arg(&root).args([READER, STREAM]);
    let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{PASSWORD}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn an_independent_client_reads_subject_headers_payload_and_one_message_for_each_key() {
    require_broker!();
    let Some(wheel) = wheel() else { skip!(Missing::Reader) };
    let mut spec = spec();
    if let BrokerAuth::Users(users) = &mut spec.auth {
        let (publish, subscribe) = (vec!["$JS.API.>".to_owned()], vec!["_INBOX.>".to_owned()]);
        users.push(BrokerUser { name: READER.to_owned(), password: PASSWORD.to_owned(), publish, subscribe });
    }
    let bench = Bench::start(Setup { spec, ..Setup::default() });
    let bytes: Vec<u8> = (0..=255).collect();
    let binary = latent_capabilities::EventDraft { payload: bytes.clone(), key: None, attributes: Vec::new(), ..event("k-2") };
    receipt(bench.publish("shop", "k-1").await);
    assert!(receipt(bench.publish("shop", "k-1").await).duplicate);
    receipt(bench.publish_draft("shop", binary).await);
    receipt(bench.publish("bank", "k-1").await);

    let read = read(&bench, &wheel);
    let id = |name: &str, key: &str| MessageId::derive("tests", &tenant(name), &LogicalTopic::parse("out").unwrap(), key);
    let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let own = |id: MessageId| serde_json::json!({ "Nats-Expected-Stream": STREAM, "Nats-Msg-Id": id.as_str(), "Content-Type": "application/json" });
    let with = |id: MessageId| {
        let mut headers = own(id);
        headers["Lsf-Event-Key"] = "customer-7".into();
        headers["Lsf-Attr-Trace"] = "t-1".into();
        headers
    };
    let expected = [
        ("shop.out", with(id("shop", "k-1")), base64(&event("").payload)),
        ("shop.out", own(id("shop", "k-2")), base64(&bytes)),
        ("bank.out", with(id("bank", "k-1")), base64(&event("").payload)),
    ];
    assert_eq!(read.len(), expected.len());
    for (place, (message, (subject, headers, payload))) in read.iter().zip(expected).enumerate() {
        assert_eq!(message["sequence"], place + 1);
        assert_eq!(message["subject"], subject);
        assert_eq!(message["headers"], headers);
        assert_eq!(message["payload"], payload);
    }
}
