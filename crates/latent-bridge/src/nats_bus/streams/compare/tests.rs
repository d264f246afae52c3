//! Decisions about one stream, without a broker.

use serde_json::json;

use super::*;

const HOUR: u64 = 3_600_000_000_000;

/// The stream of [`desired`] as a broker tells it, with other fields.
fn found(other: Value) -> StreamInfo {
    let mut config = json!({
        "name": "av_a", "subjects": ["a.p0", "a.p1"], "retention": "limits", "storage": "file", "max_age": 2 * HOUR,
        "duplicate_window": HOUR, "num_replicas": 1, "allow_direct": true, "discard": "old", "max_bytes": -1, "max_msgs": -1,
    });
    for (field, value) in other.as_object().unwrap() {
        config[field] = value.clone();
    }
    serde_json::from_value(json!({ "config": config, "created": "2026-01-01T00:00:00Z", "state": { "messages": 0, "last_seq": 0 } }))
        .unwrap()
}

fn desired() -> Desired {
    Desired::of_two_partitions("a")
}

fn plan(other: Value) -> TopicPlan {
    compare(&desired(), Some(&found(other)))
}

#[test]
fn a_stream_that_fits_is_kept_whatever_the_operator_chose_beside_it() {
    let foreign = json!({
        "description": "x", "metadata": { "a": "b" }, "max_msg_size": 1_000_000, "discard": "new", "compression": "s2", "deny_delete": true,
        "republish": { "dest": "x" }, "of_a_later_version": [1], "placement": { "tags": ["ssd"] }, "subjects": ["a.p1", "a.p0"],
        "sealed": false, "sources": [], "mirror": null,
    });
    let plan = plan(foreign);
    assert_eq!((plan.action, plan.changes, plan.refusals), (PlannedAction::Keep, vec![], vec![]));
}

#[test]
fn nothing_there_is_made_with_every_owned_setting() {
    let plan = compare(&desired(), None);
    assert_eq!(plan.action, PlannedAction::Create);
    let fields: Vec<_> = plan.changes.iter().map(|change| (change.field, change.to.clone())).collect();
    let expected = [
        ("subjects", json!(["a.p0", "a.p1"])),
        ("max_age", json!(2 * HOUR)),
        ("duplicate_window", json!(HOUR)),
        ("num_replicas", json!(1)),
    ];
    assert_eq!(fields, expected);
}

#[test]
fn each_owned_setting_is_changed_and_says_what_follows() {
    let table = [
        (json!({ "max_age": HOUR }), "max_age", false),
        (json!({ "max_age": 3 * HOUR }), "max_age", true),
        (json!({ "max_age": 0 }), "max_age", true),
        (json!({ "duplicate_window": 2 * HOUR }), "duplicate_window", true),
        (json!({ "duplicate_window": 1 }), "duplicate_window", false),
        (json!({ "num_replicas": 3 }), "num_replicas", true),
    ];
    for (other, field, has_consequence) in table {
        let plan = plan(other.clone());
        assert_eq!(plan.action, PlannedAction::Update, "{other}");
        let [change] = &plan.changes[..] else { panic!("{plan:?}") };
        assert_eq!((change.field, &change.from, change.consequence.is_some()), (field, &other[field], has_consequence));
    }
}

#[test]
fn an_update_sends_back_every_field_that_is_not_the_manifests() {
    let found = found(json!({ "max_age": HOUR, "of_a_later_version": { "deep": [1, { "x": 18_446_744_073_709_551_615_u64 }] } }));
    let Value::Object(mut sent) = merged(&desired(), &found) else { panic!() };
    assert_eq!(sent.insert("max_age".to_owned(), json!(HOUR)), Some(json!(2 * HOUR)));
    assert_eq!(sent, found.config);
}

/// D-21.
#[test]
fn another_number_of_partitions_is_refused_with_both() {
    for subjects in [json!(["a.p0"]), json!(["a.p0", "a.p1", "a.p2"]), json!(["a.p2", "a.p0", "a.p1"])] {
        let plan = plan(json!({ "subjects": subjects }));
        assert_eq!(plan.action, PlannedAction::Refuse);
        let count = subjects.as_array().unwrap().len();
        let told = plan.differences().remove(0);
        assert!(told.contains(&format!("the topic has {count} partitions and the manifest says 2, use {count}")), "{told}");
    }
}

#[test]
fn subjects_that_are_no_partitions_of_the_topic_are_refused_as_foreign() {
    let table = [
        json!([]),
        json!(["b.p0", "b.p1"]),
        json!(["a.>"]),
        json!(["a.p0", "a.p1", "other"]),
        json!(["a.p0", "a.p2"]),
        json!(["a.p0", "a.p01"]),
        json!(["a.p0", "a.p1", "a.p+2"]),
        json!(["ax.p0"]),
    ];
    for subjects in table {
        let plan = plan(json!({ "subjects": subjects }));
        assert_eq!(plan.action, PlannedAction::Refuse, "{subjects}");
        assert!(plan.refusals[0].advice.contains("belongs to something else"), "{subjects}");
        assert_eq!((plan.refusals[0].field, &plan.refusals[0].found), ("subjects", &subjects));
    }
}

#[test]
fn what_no_log_can_live_with_is_refused_with_both_values() {
    let table = [
        json!({ "storage": "memory" }),
        json!({ "retention": "interest" }),
        json!({ "retention": "workqueue" }),
        json!({ "sealed": true }),
        json!({ "mirror": { "name": "x" } }),
        json!({ "sources": [{ "name": "x" }] }),
        json!({ "subject_transform": { "src": "a", "dest": "b" } }),
        json!({ "no_ack": true }),
        json!({ "allow_msg_counter": true }),
    ];
    for other in table {
        let plan = plan(other.clone());
        let [refusal] = &plan.refusals[..] else { panic!("{other}: {plan:?}") };
        assert_eq!((plan.action, &refusal.found), (PlannedAction::Refuse, &other[refusal.field]), "{other}");
    }
}

#[test]
fn a_refused_stream_shows_what_would_change_beside_it() {
    let plan = plan(json!({ "storage": "memory", "max_age": HOUR, "num_replicas": 3 }));
    assert_eq!((plan.action, plan.changes.len(), plan.refusals.len()), (PlannedAction::Refuse, 2, 1));
    assert_eq!(plan.differences().len(), 3);
}

#[test]
fn settings_of_the_operator_that_can_lose_events_are_noted() {
    let table = [
        (json!({ "max_bytes": 1_000 }), "oldest events are removed"),
        (json!({ "max_msgs": 5, "discard": "new" }), "events are refused"),
        (json!({ "max_msgs_per_subject": 5 }), "max_msgs_per_subject is 5"),
        (json!({ "max_consumers": 5 }), "max_consumers is 5"),
        (json!({ "consumer_limits": { "inactive_threshold": 29_999_999_999_u64 } }), "reading needs 30000000000 ns"),
        (json!({ "persist_mode": "async" }), "acknowledges what a crash can lose"),
    ];
    for fine in
        [json!({}), json!({ "consumer_limits": { "inactive_threshold": 30_000_000_000_u64, "max_ack_pending": 1 }, "max_consumers": -1 })]
    {
        assert_eq!(plan(fine).notes, Vec::<String>::new());
    }
    for (other, text) in table {
        let plan = plan(other.clone());
        let [note] = &plan.notes[..] else { panic!("{other}: {plan:?}") };
        assert!(note.contains(text) && plan.action == PlannedAction::Keep, "{note}");
    }
}
