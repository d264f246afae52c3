//! Consumers by the rules of T-101, each setting one above and one below, with both values in the refusal.

use super::*;
use crate::testing::message;
use crate::triggers::{ConsumerState, InspectError, ProfileField, ProfileMismatch};

/// As the pinned broker says it.
fn info() -> String {
    r#"{"type":"io.nats.jetstream.api.v1.consumer_info_response","stream_name":"ORD","name":"latent_a_p0","created":"2026-11-30T15:33:31Z",
"config":{"durable_name":"latent_a_p0","name":"latent_a_p0","deliver_policy":"all","ack_policy":"explicit","ack_wait":30000000000,
"max_deliver":13,"filter_subject":"orders.p0","replay_policy":"instant","max_waiting":512,"max_ack_pending":8,"max_batch":8,
"max_expires":5000000000,"max_bytes":81920,"num_replicas":0,"metadata":{"_nats.level":"4","_nats.req.level":"1","_nats.ver":"2.14.6"},
"priority_groups":["latent"],"priority_policy":"pinned_client","priority_timeout":60000000000},
"delivered":{"consumer_seq":6,"stream_seq":22,"last_active":"2026-11-30T15:33:31Z"},"ack_floor":{"consumer_seq":0,"stream_seq":19},
"num_ack_pending":3,"num_redelivered":1,"num_waiting":2,"num_pending":7,"ts":"2026-11-30T15:33:32Z",
"priority_groups":[{"group":"latent","pinned_client_id":"qKMu3Z5zuV1P5eEzYG80QW","pinned_ts":"2026-11-30T15:33:31Z"}]}"#
        .replace('\n', "")
}

fn inspect(consumer: &Arc<PullConsumer>, body: &str) -> Result<ConsumerInfo, InspectError> {
    let mut session = session();
    let operation = session.begin_inspect(consumer).unwrap();
    write(&mut session);
    session.received(&message(operation.0, body));
    assert_eq!(session.closed(), None);
    match &events(&mut session)[..] {
        [Event::Inspected { operation: of, result }] if *of == operation => result.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_consumer_as_it_must_be_tells_what_it_has_to_do_and_who_is_pinned() {
    let state = ConsumerState {
        pending: 7,
        ack_pending: 3,
        redelivered: 1,
        waiting: 2,
        delivered_stream_sequence: 22,
        delivered_consumer_sequence: 6,
        ack_floor_stream_sequence: 19,
    };
    let expected = ConsumerInfo {
        state,
        max_deliver: Some(13),
        priority_timeout_nanos: Some(60_000_000_000),
        pin: PinId::new("qKMu3Z5zuV1P5eEzYG80QW"),
    };
    assert_eq!(inspect(&consumer(), &info()), Ok(expected.clone()));
    for nobody in [r#"{"group":"latent","pinned_ts":"0001-01-01T00:00:00Z"}"#, r#"{"group":"latent","pinned_client_id":""}"#, ""] {
        let start = info().rfind("[{").unwrap();
        let body = format!("{}[{nobody}]}}", &info()[..start]);
        assert_eq!(inspect(&consumer(), &body), Ok(ConsumerInfo { pin: None, ..expected.clone() }), "{nobody}");
    }
}

const BEGINNINGS: &str = "all or new or by_start_sequence or by_start_time";

#[test]
fn where_a_consumer_began_is_its_bindings_decision() {
    for policy in ["new", "by_start_sequence\",\"opt_start_seq\":7,\"x\":\"", "by_start_time\",\"opt_start_time\":\"2026-01-01T00:00:00Z"] {
        let body = info().replace(r#""deliver_policy":"all""#, &format!(r#""deliver_policy":"{policy}""#));
        assert!(inspect(&consumer(), &body).is_ok(), "{policy}");
    }
}

#[test]
fn each_setting_is_held_at_its_edge_and_a_mismatch_names_both_values() {
    use ProfileField::*;
    let changes: &[(&str, &str, ProfileField, &str, &str)] = &[
        (r#""stream_name":"ORD""#, r#""stream_name":"OTHER""#, Stream, "ORD", "OTHER"),
        (r#""ORD","name":"latent_a_p0""#, r#""ORD","name":"c2""#, Consumer, "latent_a_p0", "c2"),
        (r#""durable_name":"latent_a_p0","#, "", Consumer, "latent_a_p0", "absent"),
        (r#""filter_subject":"orders.p0""#, r#""filter_subject":"orders.>""#, FilterSubject, "orders.p0", "orders.>"),
        (r#""filter_subject":"orders.p0""#, r#""filter_subjects":["orders.p0"]"#, FilterSubjects, "absent", "a list"),
        (r#""ack_policy":"explicit""#, r#""ack_policy":"none""#, AckPolicy, "explicit", "none"),
        (r#""deliver_policy":"all""#, r#""deliver_policy":"last""#, DeliverPolicy, BEGINNINGS, "last"),
        (r#""deliver_policy":"all","#, "", DeliverPolicy, BEGINNINGS, "absent"),
        (r#""replay_policy":"instant""#, r#""replay_policy":"original""#, ReplayPolicy, "instant", "original"),
        (r#""max_ack_pending":8"#, r#""max_ack_pending":7"#, MaxAckPending, "8", "7"),
        (r#""max_ack_pending":8"#, r#""max_ack_pending":9"#, MaxAckPending, "8", "9"),
        (r#""max_ack_pending":8"#, r#""max_ack_pending":-1"#, MaxAckPending, "8", "-1"),
        (r#""ack_wait":30000000000"#, r#""ack_wait":30000000001"#, AckWait, "30000000000", "30000000001"),
        (r#""ack_wait":30000000000"#, r#""ack_wait":29999999999"#, AckWait, "30000000000", "29999999999"),
        (r#""max_deliver":13"#, r#""max_deliver":12"#, MaxDeliver, "at least 13, or absent", "12"),
        (r#""max_waiting":512"#, r#""max_waiting":7"#, MaxWaiting, "at least 8", "7"),
        (r#""max_waiting":512"#, r#""max_waiting":-1"#, MaxWaiting, "at least 8", "-1"),
        (r#""max_waiting":512,"#, "", MaxWaiting, "at least 8", "absent"),
        (r#""max_batch":8"#, r#""max_batch":7"#, MaxBatch, "at least 8, or absent", "7"),
        (r#""max_batch":8"#, r#""max_batch":1.5"#, MaxBatch, "at least 8, or absent", "1.5"),
        (r#""max_expires":5000000000"#, r#""max_expires":4999999999"#, MaxExpires, "at least 5000000000, or absent", "4999999999"),
        (r#""max_bytes":81920"#, r#""max_bytes":81919"#, MaxBytes, "at least 81920, or absent", "81919"),
        (r#""priority_groups":["latent"],"#, "", PriorityGroups, "a list of latent", "absent"),
        (r#"["latent"]"#, r#"["other"]"#, PriorityGroups, "a list of latent", "a list"),
        (r#"["latent"]"#, r#"["latent","other"]"#, PriorityGroups, "a list of latent", "a list"),
        (r#"["latent"]"#, r#"["other","latent"]"#, PriorityGroups, "a list of latent", "a list"),
        (r#"["latent"]"#, "[]", PriorityGroups, "a list of latent", "a list"),
        ("pinned_client\"", "overflow\"", PriorityPolicy, "pinned_client", "overflow"),
        (r#""priority_policy":"pinned_client","#, "", PriorityPolicy, "pinned_client", "absent"),
        (r#""num_replicas":0"#, r#""deliver_subject":"x""#, DeliverSubject, "absent", "x"),
        (r#""num_replicas":0"#, r#""headers_only":true"#, HeadersOnly, "absent", "true"),
        (r#""num_replicas":0"#, r#""flow_control":true"#, FlowControl, "absent", "true"),
        (r#""num_replicas":0"#, r#""backoff":[1000000000]"#, Backoff, "absent", "a list"),
        (r#""num_replicas":0"#, r#""inactive_threshold":5"#, InactiveThreshold, "absent", "5"),
    ];
    for (from, to, field, required, found) in changes {
        assert!(info().contains(from), "{from}");
        let mismatch = ProfileMismatch { field: *field, required: (*required).into(), found: (*found).into() };
        let result = inspect(&consumer(), &info().replacen(from, to, 1));
        assert_eq!(result, Err(InspectError::Profile(Box::new(mismatch))), "{to}");
    }
}

#[test]
fn more_than_is_asked_for_or_no_bound_is_enough() {
    let changes = [
        (r#""max_deliver":13"#, r#""max_deliver":14"#),
        (r#""max_waiting":512"#, r#""max_waiting":8"#),
        (r#""max_batch":8,"#, ""),
        (r#""max_batch":8"#, r#""max_batch":9"#),
        (r#""max_batch":8"#, r#""max_batch":0"#),
        (r#""max_expires":5000000000"#, r#""max_expires":5000000001"#),
        (r#""max_expires":5000000000,"#, ""),
        (r#""max_bytes":81920"#, r#""max_bytes":81921"#),
        (r#""max_bytes":81920"#, r#""max_bytes":-1"#),
        (r#""num_replicas":0"#, r#""headers_only":false,"flow_control":false,"inactive_threshold":0,"deliver_subject":"""#),
    ];
    for (from, to) in changes {
        assert!(info().contains(from), "{from}");
        assert!(inspect(&consumer(), &info().replacen(from, to, 1)).is_ok(), "{to}");
    }
    let endless = inspect(&consumer(), &info().replacen(r#""max_deliver":13"#, r#""max_deliver":-1"#, 1)).unwrap();
    assert_eq!(endless.max_deliver, None);
}

#[test]
fn a_raw_stream_s_consumer_has_no_group() {
    let raw = Arc::new(PullConsumer::new(PullProfile { group: None, ..profile() }).unwrap());
    let groups = r#""priority_groups":["latent"],"priority_policy":"pinned_client","priority_timeout":60000000000"#;
    let plain = info().replacen(&format!(",{groups}"), "", 1);
    let end = plain.rfind(r#","priority_groups""#).unwrap();
    let plain = format!("{}}}", &plain[..end]);
    let found = inspect(&raw, &plain).unwrap();
    assert_eq!((found.pin, found.priority_timeout_nanos), (None, None));
    let mismatch = ProfileMismatch { field: ProfileField::PriorityGroups, required: "absent".into(), found: "a list".into() };
    assert_eq!(inspect(&raw, &info()), Err(InspectError::Profile(Box::new(mismatch))));
}

#[test]
fn what_cannot_be_read_ends_its_inspection_alone() {
    let refused = InspectError::Refused { code: Some(404), err_code: Some(10_014) };
    let body = r#"{"error":{"code":404,"err_code":10014,"description":"consumer not found"}}"#;
    assert_eq!(inspect(&consumer(), body), Err(refused));
    let repeated = info().replacen(r#""max_waiting":512"#, r#""max_waiting":2,"max_waiting":512"#, 1);
    let text = info().replacen(r#""max_deliver":13"#, r#""max_deliver":"13""#, 1);
    let groups = info().replacen(r#"["latent"]"#, r#""latent""#, 1);
    let pin = info().replacen("qKMu3Z5zuV1P5eEzYG80QW", r"\u0022", 1);
    for body in ["", "{", "[]", "null", &repeated, &text, &groups, &pin] {
        assert_eq!(inspect(&consumer(), body), Err(InspectError::Malformed), "{body:.60}");
    }
}
