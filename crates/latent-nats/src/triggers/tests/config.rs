//! Every field missing, at its bound and one beyond; the JSON form; names, and what bindings share.

use latent_core::LimitError;

use super::bench::{binding, draft};
use crate::ConfigError;
use crate::triggers::{BindingDraft, BindingProblem, BudgetDraft, TriggerConfig, TriggerDraft, limits};

fn with(change: impl FnOnce(&mut TriggerDraft)) -> Result<TriggerConfig, ConfigError> {
    let mut draft = draft();
    change(&mut draft);
    draft.check()
}

/// The second binding changed, so that what is told of its place is told of the right one.
fn with_binding(change: impl FnOnce(&mut BindingDraft)) -> Result<TriggerConfig, ConfigError> {
    with(|draft| change(&mut draft.bindings.as_mut().unwrap()[1]))
}

fn with_bindings(bindings: Vec<BindingDraft>) -> Result<TriggerConfig, ConfigError> {
    with(|draft| draft.bindings = Some(bindings))
}

fn problem(outcome: Result<TriggerConfig, ConfigError>) -> BindingProblem {
    match outcome {
        Err(ConfigError::Binding { index: 1, problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

/// T-003, X-037.
#[test]
fn each_field_that_is_missing_is_named() {
    type Change = fn(&mut TriggerDraft);
    let table: [(&str, Change); 7] = [
        ("formatVersion", |draft| draft.format_version = None),
        ("endpoint", |draft| draft.endpoint = None),
        ("endpoint.address", |draft| draft.endpoint.as_mut().unwrap().address = None),
        ("endpoint.serverName", |draft| draft.endpoint.as_mut().unwrap().server_name = None),
        ("roots", |draft| draft.roots = None),
        ("pollIntervalMillis", |draft| draft.poll_interval_millis = None),
        ("bindings", |draft| draft.bindings = None),
    ];
    for (name, change) in table {
        match with(change) {
            Err(ConfigError::Missing { field, advice }) => assert!(field == name && !advice.is_empty(), "{field} instead of {name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    type OfBinding = fn(&mut BindingDraft);
    let table: [(&str, OfBinding); 18] = [
        ("id", |binding| binding.id = None),
        ("tenant", |binding| binding.tenant = None),
        ("service", |binding| binding.service = None),
        ("contract", |binding| binding.contract = None),
        ("function", |binding| binding.function = None),
        ("stream", |binding| binding.stream = None),
        ("consumer", |binding| binding.consumer = None),
        ("filter", |binding| binding.filter = None),
        ("payloadCeilingBytes", |binding| binding.payload_ceiling_bytes = None),
        ("operationTimeoutMillis", |binding| binding.operation_timeout_millis = None),
        ("maxDeliver", |binding| binding.max_deliver = None),
        ("ackWaitMillis", |binding| binding.ack_wait_millis = None),
        ("nakDelayMillis", |binding| binding.nak_delay_millis = None),
        ("budget", |binding| binding.budget = None),
        ("budget", |binding| binding.budget.as_mut().unwrap().cpu_fuel = None),
        ("budget", |binding| binding.budget.as_mut().unwrap().memory_bytes = None),
        ("budget", |binding| binding.budget.as_mut().unwrap().wall_time_millis = None),
        ("budget", |binding| binding.budget.as_mut().unwrap().outbound_requests = None),
    ];
    for (name, change) in table {
        match problem(with_binding(change)) {
            BindingProblem::Missing { field, advice } => assert!(field == name && !advice.is_empty(), "{field} instead of {name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(matches!(TriggerDraft::default().check(), Err(ConfigError::Missing { .. })));
    assert_eq!(with(|draft| draft.format_version = Some(2)), Err(ConfigError::Version { found: 2 }));
}

/// T-003: what is fixed, and what is taken when it is not said.
#[test]
fn a_binding_fixes_whom_it_calls_as_whom_and_with_what() {
    let config = draft().check().unwrap();
    let binding = &config.bindings()[1];
    let target = binding.target();
    let told = [binding.id().as_str(), binding.tenant().as_str(), target.service.as_str(), target.contract.as_str()];
    assert_eq!(told, ["b", "bank", "work", "demo:plain/work@1.0.0"]);
    assert_eq!((target.function.as_str(), target.route.is_none(), target.principal.to_string()), ("run", true, "trigger:b".to_owned()));
    assert_eq!((binding.stream().as_str(), binding.consumer().as_str(), binding.filter().as_str()), ("IN", "b", "in.b"));
    assert_eq!((target.budget.cpu_fuel, target.budget.wall_time_millis, target.input_bytes_max), (1_000, 500, 1_024));
    let named = with_binding(|binding| {
        (binding.principal, binding.route) = (Some("intake".to_owned()), Some("blue".to_owned()));
        binding.input = Some("wit-values".to_owned());
    });
    let named = named.unwrap();
    let target = named.bindings()[1].target();
    assert_eq!((target.principal.to_string(), target.route.as_ref().unwrap().as_str()), ("trigger:intake".to_owned(), "blue"));
    for input in ["raw-event", "", "WIT-VALUES"] {
        let refused = problem(with_binding(|binding| binding.input = Some(input.to_owned())));
        assert!(matches!(refused, BindingProblem::Input { .. }), "{input}: {refused:?}");
    }
}

/// T-024, T-026, T-028 to T-031.
#[test]
fn each_number_is_accepted_at_its_bounds_and_refused_beyond() {
    type Field = fn(&mut BindingDraft) -> &mut Option<u64>;
    let table: [(&str, Field, u64, u64); 5] = [
        ("payloadCeilingBytes", |binding| &mut binding.payload_ceiling_bytes, 1, 32_768),
        ("operationTimeoutMillis", |binding| &mut binding.operation_timeout_millis, 100, 10_000),
        ("maxDeliver", |binding| &mut binding.max_deliver, 1, 16),
        ("ackWaitMillis", |binding| &mut binding.ack_wait_millis, 1_100, 60_000),
        ("nakDelayMillis", |binding| &mut binding.nak_delay_millis, 100, 10_000),
    ];
    for (name, field, min, max) in table {
        for (value, is_good) in [(min - 1, false), (min, true), (max, true), (max + 1, false), (u64::MAX, false)] {
            let outcome = with_binding(|binding| {
                // Room for every other number.
                binding.budget.as_mut().unwrap().wall_time_millis = Some(1);
                binding.operation_timeout_millis = Some(100);
                binding.ack_wait_millis = Some(60_000);
                *field(binding) = Some(value);
            });
            assert_eq!(outcome.is_ok(), is_good, "{name} {value}: {outcome:?}");
            let told = |field| matches!(&outcome, Err(ConfigError::Binding { problem: BindingProblem::Limit { field: told, .. }, .. }) if *told == field);
            assert!(is_good || told(name), "{name} {value}: {outcome:?}");
        }
    }
    for (value, is_good) in [(9, false), (10, true), (1_000, true), (1_001, false)] {
        let outcome = with(|draft| draft.poll_interval_millis = Some(value));
        assert_eq!(outcome.is_ok(), is_good, "{value}");
        assert!(is_good || matches!(outcome, Err(ConfigError::Limit { field: "pollIntervalMillis", .. })));
    }
}

/// T-026, T-027, T-030: what one number asks of another.
#[test]
fn times_fit_into_each_other() {
    let of = |wall: u64, timeout: u64, ack_wait: u64| {
        with_binding(|binding| {
            binding.budget.as_mut().unwrap().wall_time_millis = Some(wall);
            (binding.operation_timeout_millis, binding.ack_wait_millis) = (Some(timeout), Some(ack_wait));
        })
    };
    assert!(of(2_000, 2_000, 3_000).is_ok() && of(1, 10_000, 11_000).is_ok());
    assert_eq!(problem(of(2_001, 2_000, 3_000)), BindingProblem::WallTime { wall_time_millis: 2_001, operation_timeout_millis: 2_000 });
    assert_eq!(problem(of(1, 2_000, 2_999)), BindingProblem::AckWait { ack_wait_millis: 2_999, least_millis: 3_000 });
    assert!(matches!(problem(of(0, 2_000, 3_000)), BindingProblem::Name { field: "budget", .. }), "a run takes time");
}

/// T-003: a root budget beyond what any activation may have.
#[test]
fn a_budget_larger_than_allowed_is_refused() {
    type Change = fn(&mut BudgetDraft);
    let table: [Change; 4] = [
        |budget| budget.cpu_fuel = Some(u64::MAX),
        |budget| budget.memory_bytes = Some(u64::MAX),
        |budget| budget.outbound_requests = Some(u64::MAX),
        |budget| budget.log_bytes = Some(u64::MAX),
    ];
    for change in table {
        let refused = problem(with_binding(|binding| change(binding.budget.as_mut().unwrap())));
        assert!(matches!(refused, BindingProblem::Name { field: "budget", .. }), "{refused:?}");
    }
}

/// T-022, T-010, T-023.
#[test]
fn bindings_and_tenants_are_counted() {
    let many =
        |count: usize, tenants: usize| with_bindings((0..count).map(|n| binding(&format!("t{}", n % tenants), &format!("b{n}"))).collect());
    let config = many(256, 8).unwrap();
    assert_eq!((config.bindings().len(), config.tenants().len()), (256, 8));
    for count in [0, 257] {
        let outcome = many(count, 8);
        assert!(matches!(outcome, Err(ConfigError::Limit { field: "bindings", error: LimitError { .. } })), "{count}: {outcome:?}");
    }
    assert!(many(8, 8).is_ok() && matches!(many(9, 9), Err(ConfigError::Limit { field: "bindings", .. })));
}

/// T-008, T-009.
#[test]
fn bindings_share_no_id_no_consumer_and_tenants_no_subject() {
    assert!(matches!(problem(with_binding(|binding| binding.id = Some("a".into()))), BindingProblem::SameId { first: 0 }));
    let same = problem(with_binding(|binding| binding.consumer = Some("a".into())));
    assert!(matches!(same, BindingProblem::SameConsumer { first: 0, .. }), "{same:?}");
    // The same name in another stream is another consumer.
    assert!(with_binding(|binding| (binding.stream, binding.consumer) = (Some("OTHER".into()), Some("a".into()))).is_ok());
    let shared = problem(with_binding(|binding| binding.filter = Some("in.a".into())));
    assert!(matches!(&shared, BindingProblem::SharedFilter { owner, .. } if owner.as_str() == "shop"), "{shared:?}");
    let told = with_binding(|binding| binding.filter = Some("in.a".into())).unwrap_err().to_string();
    assert!(told.contains("bindings[1] (\"b\")") && told.contains("in.a") && told.contains("shop"), "{told}");
    // A tenant may wake two functions with one subject.
    assert!(with_bindings(vec![binding("shop", "a"), BindingDraft { filter: Some("in.a".into()), ..binding("shop", "b") }]).is_ok());
}

/// T-022, BUG-19: a name is a name, up to its bound.
#[test]
fn names_are_accepted_up_to_their_bounds_and_only_if_they_are_literal() {
    type Field = fn(&mut BindingDraft) -> &mut Option<String>;
    let fields: [(&str, Field, usize, bool); 4] = [
        ("stream", |binding| &mut binding.stream, 128, false),
        ("consumer", |binding| &mut binding.consumer, 128, false),
        ("filter", |binding| &mut binding.filter, 128, true),
        ("id", |binding| &mut binding.id, 64, false),
    ];
    let bad = [
        "",
        " ",
        "a b",
        "a\tb",
        "a\n",
        "a\r\nPUB x 0\r\n",
        "a..b",
        ".a",
        "a.",
        "a.*",
        "*",
        ">",
        "a.>",
        "$JS.x",
        "_INBOX.x",
        "_inbox.x",
        "a\0",
        "\u{e9}",
        "a\u{a0}b",
    ];
    for (name, field, bytes_max, has_tokens) in fields {
        let of = |text: &str| with_binding(|binding| *field(binding) = Some(text.to_owned()));
        let refused =
            |text: &str| matches!(of(text), Err(ConfigError::Binding { problem: BindingProblem::Name { field, .. }, .. }) if field == name);
        for text in bad {
            assert!(refused(text), "{name} {text:?}: {:?}", of(text));
        }
        assert_eq!(of("x.y").is_ok(), has_tokens, "{name}");
        let longest = "n".repeat(bytes_max);
        assert!(of(&longest).is_ok() && refused(&format!("{longest}n")), "{name}");
    }
    type Other = fn(&mut BindingDraft) -> &mut Option<String>;
    let others: [(&str, Other); 6] = [
        ("tenant", |binding| &mut binding.tenant),
        ("principal", |binding| &mut binding.principal),
        ("service", |binding| &mut binding.service),
        ("contract", |binding| &mut binding.contract),
        ("function", |binding| &mut binding.function),
        ("route", |binding| &mut binding.route),
    ];
    for (name, field) in others {
        for text in ["", "a b", "a\r\nPUB x 0", "a\0", "\u{e9}", &"n".repeat(300)] {
            let outcome = with_binding(|binding| *field(binding) = Some(text.to_owned()));
            let told = matches!(&outcome, Err(ConfigError::Binding { problem: BindingProblem::Name { field, .. }, .. }) if *field == name);
            assert!(told, "{name} {text:?}: {outcome:?}");
        }
    }
}

/// T-019.
#[test]
fn the_json_form_gives_back_what_was_written() {
    let config = with_binding(|binding| (binding.principal, binding.route) = (Some("intake".into()), Some("blue".into()))).unwrap();
    let json = config.to_json();
    let again = TriggerConfig::from_json(json.as_bytes()).unwrap();
    assert_eq!((&again, again.to_json(), again.digest()), (&config, json.clone(), config.digest()));
    assert_ne!(config.digest(), draft().check().unwrap().digest());
    assert!(json.contains("\"formatVersion\": 1") && !json.to_lowercase().contains("password") && !json.contains("token"));
}

/// T-019: a field that is not known, or is there twice, is an error on every level.
#[test]
fn an_unknown_or_repeated_field_is_refused_on_every_level() {
    let json = with_binding(|binding| binding.route = Some("blue".into())).unwrap().to_json();
    let fields = [
        "\"formatVersion\": 1",
        "\"endpoint\": {",
        "\"serverName\": \"broker.latent.test\"",
        "\"roots\": {",
        "\"pollIntervalMillis\": 10",
        "\"id\": \"a\"",
        "\"tenant\": \"shop\"",
        "\"route\": \"blue\"",
        "\"consumer\": \"a\"",
        "\"filter\": \"in.a\"",
        "\"payloadCeilingBytes\": 1024",
        "\"maxDeliver\": 3",
        "\"budget\": {",
        "\"cpuFuel\": 1000",
        "\"wallTimeMillis\": 500",
    ];
    for field in fields {
        assert!(json.contains(field), "{field}");
        let unknown = json.replacen(field, &format!("\"unknown\": 1, {field}"), 1);
        assert!(matches!(TriggerConfig::from_json(unknown.as_bytes()), Err(ConfigError::Form { .. })), "unknown beside {field}");
        let (name, value) = field.split_once(": ").unwrap();
        let again = if value == "{" { format!("{name}: null, {field}") } else { format!("{field}, {field}") };
        let repeated = json.replacen(field, &again, 1);
        assert!(matches!(TriggerConfig::from_json(repeated.as_bytes()), Err(ConfigError::Form { .. })), "twice {field}");
    }
    for secret in ["password", "token", "credential", "username"] {
        let with_secret = json.replacen("\"id\"", &format!("\"{secret}\": \"x\", \"id\""), 1);
        assert!(matches!(TriggerConfig::from_json(with_secret.as_bytes()), Err(ConfigError::Form { .. })), "{secret} has no place here");
    }
    for bad in ["", "{", "[]", "null", "{}{}", &json[..json.len() - 1], &format!("{json} x"), &json.replace("1024", "\"1024\"")] {
        assert!(matches!(TriggerConfig::from_json(bad.as_bytes()), Err(ConfigError::Form { .. })), "{bad:.60}");
    }
    assert!(matches!(TriggerConfig::from_json(b"\xff{}"), Err(ConfigError::Form { .. })));
    let invalid = json.replace("\"maxDeliver\": 3", "\"maxDeliver\": 17");
    assert!(matches!(TriggerConfig::from_json(invalid.as_bytes()), Err(ConfigError::Binding { index: 0, .. })), "it is checked again");
}

/// T-032: what is read, and what is written.
#[test]
fn a_document_has_at_most_512_kib() {
    let json = draft().check().unwrap().to_json();
    let padded = |bytes: usize| format!("{json}{}", " ".repeat(bytes - json.len()));
    assert!(TriggerConfig::from_json(padded(524_288).as_bytes()).is_ok());
    assert!(matches!(TriggerConfig::from_json(padded(524_289).as_bytes()), Err(ConfigError::Limit { field: "the document", .. })));
    let roots = |count: usize, bindings: usize| {
        let long = |n: usize| BindingDraft {
            service: Some("s".repeat(64)),
            stream: Some("S".repeat(128)),
            consumer: Some(format!("{n:0128}")),
            filter: Some(format!("f.{n:0126}")),
            ..binding("shop", &format!("{n:064}"))
        };
        with(|draft| {
            draft.bindings = Some((0..bindings).map(long).collect());
            let der = draft.roots.as_ref().unwrap().der[0].clone();
            draft.roots.as_mut().unwrap().der = vec![der; count];
        })
    };
    let largest = roots(16, 256).unwrap().to_json();
    assert!(largest.len() < 524_288, "names within their bounds and small roots fit: {}", largest.len());
}

/// T-033, exactly.
#[test]
fn an_installation_is_charged_by_its_formula() {
    let root_bytes = super::bench::root().len() as u64;
    for (bindings, roots) in [(1, 1), (2, 1), (256, 1), (3, 16)] {
        let config = with(|draft| {
            draft.bindings = Some((0..bindings).map(|n| binding("shop", &format!("b{n}"))).collect());
            let der = draft.roots.as_ref().unwrap().der[0].clone();
            draft.roots.as_mut().unwrap().der = vec![der; roots];
        });
        let expected = 65_536 + 2_048 * bindings as u64 + 6 * root_bytes * roots as u64;
        assert_eq!(config.unwrap().installation_bytes(), expected, "{bindings} {roots}");
    }
    let public = with(|draft| *draft.roots.as_mut().unwrap() = crate::RootsDraft { public: true, der: Vec::new() }).unwrap();
    assert_eq!(public.installation_bytes(), 65_536 + 2 * 2_048, "compiled-in roots are not the configuration's");
}

/// T-034, exactly.
#[test]
fn a_visit_is_charged_by_its_formula() {
    for ceiling in [1, 1_024, 32_768] {
        let config = with_binding(|binding| binding.payload_ceiling_bytes = Some(ceiling)).unwrap();
        assert_eq!(config.bindings()[1].ingress_bytes(), 65_536 + 2 * ceiling);
    }
    assert_eq!(limits::INGRESS_BYTES.default, 65_536);
}
