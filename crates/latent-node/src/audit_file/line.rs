//! One record as a line of JSON, and as an event of `tracing`. The closed list of what leaves the process stands here: nothing that a
//! guest, a peer or an operator wrote but names that the configuration fixes.

use latent_capabilities::{AuditRecord, ProviderOutcome};
use serde::Serialize;

/// Version of the line's fields. Fields may be added without a new one.
const VERSION: u8 = 1;

#[derive(Serialize)]
struct Line<'a> {
    v: u8,
    admitted_at_unix_millis: u64,
    ended_at_unix_millis: u64,
    activation: String,
    tenant: &'a str,
    operation: &'static str,
    provider: Provider<'a>,
    request: String,
    observed: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    told: Option<&'static str>,
}

#[derive(Serialize)]
struct Provider<'a> {
    id: &'a str,
    capability: &'a str,
    profile: &'a str,
    epoch: u64,
    digest: String,
}

/// The record's line, with its newline.
pub(super) fn of(record: &AuditRecord) -> Vec<u8> {
    let (duplicate, reason) = details(record.observed);
    let provider = &record.provider;
    let line = Line {
        v: VERSION,
        admitted_at_unix_millis: record.admitted_at.0,
        ended_at_unix_millis: record.ended_at.0,
        activation: record.activation.to_string(),
        tenant: record.tenant.as_str(),
        operation: record.operation.name(),
        provider: Provider {
            id: provider.logical_id.as_str(),
            capability: provider.capability.as_str(),
            profile: &provider.profile,
            epoch: provider.epoch.0,
            digest: hex(&provider.digest),
        },
        request: record.request.to_string(),
        observed: record.observed.kind(),
        duplicate,
        reason,
        told: record.told,
    };
    // Strings and numbers alone cannot fail to become JSON; if they did, the empty line would still keep its count.
    let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The record for whoever listens to the node's own log, at debug.
pub(super) fn trace(record: &AuditRecord) {
    let (duplicate, reason) = details(record.observed);
    tracing::debug!(
        target: "audit",
        activation = %record.activation,
        tenant = %record.tenant,
        operation = record.operation.name(),
        provider = %record.provider.logical_id,
        epoch = record.provider.epoch.0,
        request = %record.request,
        observed = record.observed.kind(),
        duplicate,
        reason,
        told = record.told,
        "provider attempt"
    );
}

const fn details(observed: ProviderOutcome) -> (Option<bool>, Option<&'static str>) {
    match observed {
        ProviderOutcome::NotStarted { reason } | ProviderOutcome::Rejected { reason } | ProviderOutcome::Unknown { cause: reason } => {
            (None, Some(reason))
        }
        ProviderOutcome::Acknowledged { duplicate } => (Some(duplicate), None),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use latent_capabilities::{EVENT_PUBLISHER, EventDraft, EventPublication, Operation, ProviderRef};
    use latent_core::{ActivationId, ContractName, Epoch, ProviderId, TenantId, UnixMillis};

    use super::*;

    pub(crate) fn record() -> AuditRecord {
        let event = EventPublication::check(EventDraft {
            topic: "out".to_owned(),
            media_type: "text/plain".to_owned(),
            idempotency_key: "i".to_owned(),
            ..EventDraft::default()
        });
        AuditRecord {
            admitted_at: UnixMillis(1),
            ended_at: UnixMillis(2),
            activation: ActivationId::from_random([0xab; 16]),
            tenant: TenantId::parse("a\"b").unwrap(),
            provider: ProviderRef {
                logical_id: ProviderId::parse("topics").unwrap(),
                capability: ContractName::parse(EVENT_PUBLISHER).unwrap(),
                profile: "latent-topic-publish-v1".into(),
                epoch: Epoch(3),
                digest: [0x0f; 32],
            },
            operation: Operation::Publish,
            request: event.unwrap().digest(),
            observed: ProviderOutcome::Acknowledged { duplicate: true },
            told: Some("receipt"),
        }
    }

    fn parsed(record: &AuditRecord) -> serde_json::Value {
        let line = of(record);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(line.last(), Some(&b'\n'));
        serde_json::from_slice(&line).unwrap()
    }

    #[test]
    fn a_line_has_the_documented_fields_and_no_others() {
        let line = parsed(&record());
        let names: BTreeSet<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
        let page = include_str!("../../../../docs/audit.md");
        let rows = page.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next());
        let documented: BTreeSet<_> = rows.map(|field| field.split('.').next().unwrap()).collect();
        let all = names.iter().copied().chain(["reason"]).collect::<BTreeSet<_>>();
        assert_eq!(all, documented);
        assert_eq!((&line["tenant"], &line["told"], &line["duplicate"]), (&"a\"b".into(), &"receipt".into(), &true.into()));
        assert_eq!(line["provider"]["digest"], "0f".repeat(32));
        assert!(line["request"].as_str().unwrap().starts_with("sha256:"));
    }

    #[test]
    fn each_observation_has_its_word_and_its_detail() {
        let table = [
            (ProviderOutcome::NotStarted { reason: "cancelled" }, "not-started", Some("cancelled"), None),
            (ProviderOutcome::Rejected { reason: "conflict" }, "rejected", Some("conflict"), None),
            (ProviderOutcome::Unknown { cause: "deadline" }, "unknown", Some("deadline"), None),
            (ProviderOutcome::Acknowledged { duplicate: false }, "acknowledged", None, Some(false)),
        ];
        for (observed, word, reason, duplicate) in table {
            let line = parsed(&AuditRecord { observed, told: None, ..record() });
            assert_eq!(line["observed"], word);
            assert_eq!(line.get("reason").and_then(serde_json::Value::as_str), reason);
            assert_eq!(line.get("duplicate").and_then(serde_json::Value::as_bool), duplicate);
            assert_eq!(line["told"], serde_json::Value::Null);
        }
    }
}
