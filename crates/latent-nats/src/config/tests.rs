//! Every field missing, at its bound and one beyond; the JSON form; names, mappings and roots.

use latent_testkit::broker::TestCa;

use super::*;

const ADDRESS: &str = "127.0.0.1:4222";

/// A certificate takes a key, so the tests share one.
fn root() -> &'static [u8] {
    static ROOT: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    ROOT.get_or_init(|| TestCa::new().root_der())
}

fn mapping(tenant: &str, topic: &str, subject: &str, stream: &str) -> MappingDraft {
    let some = |text: &str| Some(text.to_owned());
    MappingDraft { tenant: some(tenant), topic: some(topic), subject: some(subject), stream: some(stream) }
}

fn draft() -> NatsDraft {
    NatsDraft {
        format_version: Some(1),
        endpoint: Some(EndpointDraft {
            address: Some(ADDRESS.to_owned()),
            allow_non_public_peer: Some(ADDRESS.to_owned()),
            server_name: Some("broker.latent.test".to_owned()),
        }),
        roots: Some(RootsDraft::only(root())),
        idempotency_namespace: Some("shop".to_owned()),
        payload_ceiling_bytes: Some(65_536),
        operation_timeout_millis: Some(5_000),
        duplicate_window_millis: Some(120_000),
        mappings: Some(vec![mapping("shop", "out", "shop.out", "ORD"), mapping("bank", "out", "bank.out", "ORD")]),
    }
}

fn with(change: impl FnOnce(&mut NatsDraft)) -> Result<NatsConfig, ConfigError> {
    let mut draft = draft();
    change(&mut draft);
    draft.check()
}

fn with_mapping(change: impl FnOnce(&mut MappingDraft)) -> Result<NatsConfig, ConfigError> {
    with(|draft| change(&mut draft.mappings.as_mut().unwrap()[1]))
}

///
#[test]
fn each_field_that_is_missing_is_named() {
    type Change = fn(&mut NatsDraft);
    let table: [(&str, Change); 14] = [
        ("formatVersion", |draft| draft.format_version = None),
        ("endpoint", |draft| draft.endpoint = None),
        ("endpoint.address", |draft| draft.endpoint.as_mut().unwrap().address = None),
        ("endpoint.serverName", |draft| draft.endpoint.as_mut().unwrap().server_name = None),
        ("roots", |draft| draft.roots = None),
        ("idempotencyNamespace", |draft| draft.idempotency_namespace = None),
        ("payloadCeilingBytes", |draft| draft.payload_ceiling_bytes = None),
        ("operationTimeoutMillis", |draft| draft.operation_timeout_millis = None),
        ("duplicateWindowMillis", |draft| draft.duplicate_window_millis = None),
        ("mappings", |draft| draft.mappings = None),
        ("mappings[].tenant", |draft| draft.mappings.as_mut().unwrap()[1].tenant = None),
        ("mappings[].topic", |draft| draft.mappings.as_mut().unwrap()[1].topic = None),
        ("mappings[].subject", |draft| draft.mappings.as_mut().unwrap()[1].subject = None),
        ("mappings[].stream", |draft| draft.mappings.as_mut().unwrap()[1].stream = None),
    ];
    for (name, change) in table {
        match with(change) {
            Err(ConfigError::Missing { field, advice }) => assert!(field == name && !advice.is_empty(), "{field} instead of {name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(matches!(NatsDraft::default().check(), Err(ConfigError::Missing { .. })));
    assert_eq!(with(|draft| draft.format_version = Some(2)), Err(ConfigError::Version { found: 2 }));
}

/// P-018, P-028, P-029.
#[test]
fn each_number_is_accepted_at_its_bounds_and_refused_beyond() {
    type Field = fn(&mut NatsDraft) -> &mut Option<u64>;
    let table: [(Field, u64, u64); 3] = [
        (|draft| &mut draft.payload_ceiling_bytes, 1, 262_144),
        (|draft| &mut draft.operation_timeout_millis, 10, 30_000),
        (|draft| &mut draft.duplicate_window_millis, 1_000, 86_400_000),
    ];
    for (field, min, max) in table {
        for (value, is_good) in [(min - 1, false), (min, true), (max, true), (max + 1, false), (u64::MAX, false)] {
            let outcome = with(|draft| *field(draft) = Some(value));
            assert_eq!(outcome.is_ok(), is_good, "{value}");
            assert!(is_good || matches!(outcome, Err(ConfigError::Limit { .. })), "{value}: {outcome:?}");
        }
    }
}

/// P-013, P-014.
#[test]
fn sixteen_mappings_of_sixteen_tenants_fit_and_seventeen_do_not() {
    let many = |count: usize| (0..count).map(|n| mapping(&format!("t{n}"), "out", &format!("s.{n}"), "ORD")).collect::<Vec<_>>();
    let config = with(|draft| draft.mappings = Some(many(16))).unwrap();
    assert_eq!(config.tenants().len(), 16);
    for count in [0, 17] {
        let outcome = with(|draft| draft.mappings = Some(many(count)));
        assert!(matches!(outcome, Err(ConfigError::Limit { field: "mappings", .. })), "{count}: {outcome:?}");
    }
}

/// P-005, P-015, P-016, P-017, BUG-19: a name is a name, up to its bound.
#[test]
fn names_are_accepted_at_128_bytes_and_only_if_they_are_literal() {
    type Field = fn(&mut MappingDraft) -> &mut Option<String>;
    let long = "a".repeat(129);
    let never = ["", " ", "a b", "a\tb", "a\n", "a\r\nPUB x", "*", ">", "a.*", "a.>", "\0", "\u{fc}", "a\u{a0}b", &long];
    let topics_and_subjects: [Field; 2] = [|mapping| &mut mapping.topic, |mapping| &mut mapping.subject];
    for field in topics_and_subjects {
        for bad in never.iter().chain(&["a..b", ".a", "a.", "$JS.API.x", "$SYS.x", "_INBOX.x", "_inbox.x", "_a"]) {
            let outcome = with_mapping(|mapping| *field(mapping) = Some((*bad).to_owned()));
            assert!(matches!(outcome, Err(ConfigError::Name { .. })), "{bad:?}: {outcome:?}");
        }
        for good in ["a", "A-b_c.d.9", &"a".repeat(128), &format!("a.{}", "b".repeat(126))] {
            assert!(with_mapping(|mapping| *field(mapping) = Some(good.to_owned())).is_ok(), "{good}");
        }
    }
    for bad in never.iter().chain(&["a.b", "a/b", "a\\b"]) {
        let outcome = with_mapping(|mapping| mapping.stream = Some((*bad).to_owned()));
        assert!(matches!(outcome, Err(ConfigError::Name { .. })), "{bad:?}: {outcome:?}");
    }
    assert!(with_mapping(|mapping| mapping.stream = Some("S".repeat(128))).is_ok());
    for bad in ["", " ", "a b", "a\n", "\0", "\u{fc}"] {
        let outcome = with(|draft| draft.idempotency_namespace = Some(bad.to_owned()));
        assert!(matches!(outcome, Err(ConfigError::Name { .. })), "{bad:?}: {outcome:?}");
        let outcome = with_mapping(|mapping| mapping.tenant = Some(bad.to_owned()));
        assert!(matches!(outcome, Err(ConfigError::Name { .. })), "{bad:?}: {outcome:?}");
    }
    match with_mapping(|mapping| mapping.topic = Some("a b".to_owned())) {
        Err(error @ ConfigError::Name { .. }) => assert!(error.to_string().starts_with("mappings[1].topic: "), "{error}"),
        other => panic!("{other:?}"),
    }
}

/// P-005: every text of four characters out of those that matter, against the rule said in another way.
#[test]
fn a_literal_name_is_tokens_joined_by_single_dots_whatever_is_written() {
    const ALPHABET: [char; 9] = ['a', 'Z', '7', '-', '_', '.', '$', '*', '>'];
    let is_name = |text: &str| {
        let tokens: Vec<&str> = text.split('.').collect();
        let is_token = |token: &&str| !token.is_empty() && !token.contains(['$', '*', '>']);
        tokens.iter().all(is_token) && !text.starts_with('_')
    };
    for number in 0..ALPHABET.len().pow(4) {
        let text: String = (0..4).map(|place| ALPHABET[number / ALPHABET.len().pow(place) % ALPHABET.len()]).collect();
        assert_eq!(Subject::parse(&text).is_ok(), is_name(&text), "{text}");
        assert_eq!(LogicalTopic::parse(&text).is_ok(), is_name(&text), "{text}");
    }
    for byte in 0..=u8::MAX {
        let text = format!("a{}b", char::from(byte));
        let is_good = byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        assert_eq!((Subject::parse(&text).is_ok(), LogicalTopic::parse(&text).is_ok()), (is_good, is_good), "{byte}");
    }
}

/// P-004, P-006, D-08.
#[test]
fn a_topic_has_one_subject_and_one_stream_and_a_subject_one_tenant() {
    let mapped = |mappings: Vec<MappingDraft>| with(|draft| draft.mappings = Some(mappings));
    let first = || mapping("shop", "out", "shop.out", "ORD");
    for second in [first(), mapping("shop", "out", "shop.other", "ORD"), mapping("shop", "out", "shop.out", "OTHER")] {
        assert!(matches!(mapped(vec![first(), second]), Err(ConfigError::DoubleMapping { index: 1, .. })));
    }
    let shared = mapping("bank", "out", "shop.out", "ORD");
    match mapped(vec![first(), shared]) {
        Err(ConfigError::SharedSubject { index, tenant, owner, .. }) => {
            assert_eq!((index, tenant.as_str(), owner.as_str()), (1, "bank", "shop"));
        }
        other => panic!("{other:?}"),
    }
    let two_streams = mapping("shop", "more", "shop.out", "OTHER");
    assert!(matches!(mapped(vec![first(), two_streams]), Err(ConfigError::TwoStreams { index: 1, .. })));
    // Two topics of one tenant on one subject are two keys apart; and letter case makes another topic and another subject.
    let allowed =
        [mapping("shop", "more", "shop.out", "ORD"), mapping("shop", "Out", "shop.Out", "ORD"), mapping("bank", "out", "b", "ORD")];
    let config = mapped([vec![first()], allowed.to_vec()].concat()).unwrap();
    assert_eq!(config.tenants().iter().map(TenantId::as_str).collect::<Vec<_>>(), ["shop", "bank"]);
    let shop = config.tenants()[0].clone();
    assert_eq!(config.topics_of(&shop).map(LogicalTopic::as_str).collect::<Vec<_>>(), ["out", "more", "Out"]);
}

/// X-001, BUG-04: a server name is a DNS name. An address is none, on whichever certificate it stands.
#[test]
fn a_server_name_is_a_dns_name_in_lower_case() {
    let named = |name: &str| with(|draft| draft.endpoint.as_mut().unwrap().server_name = Some(name.to_owned()));
    for good in ["broker.latent.test", "localhost", "a-b.c9"] {
        assert_eq!(named(good).unwrap().server_name(), good);
    }
    assert_eq!(named("Broker.LATENT.test").unwrap().server_name(), "broker.latent.test");
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(named(&longest).unwrap().server_name().len(), 253);
    for bad in [
        "",
        " ",
        "127.0.0.1",
        "::1",
        "[::1]",
        "a b",
        "a..b",
        ".a",
        "*.a",
        "a:4222",
        "nats://a",
        "\u{fc}.test",
        &format!("{longest}a"),
        &"a".repeat(64),
    ] {
        assert!(matches!(named(bad), Err(ConfigError::ServerName { .. })), "{bad:?}: {:?}", named(bad));
    }
}

/// the classes of addresses are in `endpoint`; here, that the configuration asks.
#[test]
fn an_address_is_one_ipv4_socket_opted_in_if_it_is_not_public() {
    let at = |address: &str, allowed: Option<&str>| {
        with(|draft| {
            let endpoint = draft.endpoint.as_mut().unwrap();
            (endpoint.address, endpoint.allow_non_public_peer) = (Some(address.to_owned()), allowed.map(str::to_owned));
        })
    };
    assert_eq!(at("8.8.8.8:4222", None).unwrap().address().to_string(), "8.8.8.8:4222");
    assert!(at(ADDRESS, Some(ADDRESS)).is_ok());
    assert!(matches!(at(ADDRESS, None), Err(ConfigError::NotPublic { .. })));
    assert!(matches!(at(ADDRESS, Some("127.0.0.1:4223")), Err(ConfigError::OtherOptIn { .. })));
    assert!(matches!(at("0.0.0.0:4222", Some("0.0.0.0:4222")), Err(ConfigError::NeverAPeer { .. })));
    for bad in ["broker.latent.test:4222", "[::1]:4222", "8.8.8.8:0", "8.8.8.8", "nats://8.8.8.8:4222", "8.8.8.8:4222,9.9.9.9:4222"] {
        assert!(matches!(at(bad, None), Err(ConfigError::Address { .. })), "{bad}");
    }
}

///
#[test]
fn roots_are_chosen_and_each_is_a_certificate_within_its_bounds() {
    let chosen = |public: bool, der: Vec<String>| with(|draft| draft.roots = Some(RootsDraft { public, der }));
    let good = STANDARD.encode(root());
    assert_eq!(chosen(false, Vec::new()), Err(ConfigError::NoRoots));
    assert!(chosen(true, Vec::new()).is_ok() && chosen(true, vec![good.clone()]).is_ok());
    assert!(chosen(false, vec![good.clone(); 16]).is_ok());
    assert!(matches!(chosen(false, vec![good.clone(); 17]), Err(ConfigError::Limit { field: "roots.der", .. })));
    let cut = STANDARD.encode(&root()[..root().len() - 1]);
    for bad in ["", "not base64!", "AAAA", &cut, TestCa::new().root_pem(), &format!(" {good}")] {
        let outcome = chosen(false, vec![good.clone(), bad.to_owned()]);
        assert!(
            matches!(outcome, Err(ConfigError::Root { index: 1 } | ConfigError::Limit { field: "roots.der", .. })),
            "{bad:.40}: {outcome:?}"
        );
    }
    let of = |bytes: usize| chosen(false, vec![STANDARD.encode(vec![0; bytes])]);
    assert_eq!(of(16_384), Err(ConfigError::Root { index: 0 }), "within its bound, and no certificate");
    for bytes in [16_385, 16_386, 16_387, 1 << 20] {
        assert!(matches!(of(bytes), Err(ConfigError::Limit { field: "roots.der", .. })), "{bytes}");
    }
}

#[test]
fn the_json_form_gives_back_what_was_written() {
    let config = draft().check().unwrap();
    assert_eq!(NatsConfig::from_json(config.to_json().as_bytes()), Ok(config.clone()));
    let public = with(|draft| {
        draft.roots = Some(RootsDraft { public: true, der: Vec::new() });
        draft.endpoint =
            Some(EndpointDraft { address: Some("8.8.8.8:4222".into()), allow_non_public_peer: None, server_name: Some("A.b".into()) });
    });
    let public = public.unwrap();
    assert_eq!(NatsConfig::from_json(public.to_json().as_bytes()), Ok(public.clone()));
    assert!(!public.to_json().contains("allowNonPublicPeer") && public.to_json().contains("\"serverName\": \"A.b\""));
}

/// a field that is not known, or is there twice, is an error on every level.
#[test]
fn an_unknown_or_repeated_field_is_refused_on_every_level() {
    let json = draft().check().unwrap().to_json();
    let fields = [
        "\"formatVersion\": 1",
        "\"endpoint\": {",
        "\"address\": \"127.0.0.1:4222\"",
        "\"serverName\": \"broker.latent.test\"",
        "\"allowNonPublicPeer\": \"127.0.0.1:4222\"",
        "\"roots\": {",
        "\"public\": false",
        "\"idempotencyNamespace\": \"shop\"",
        "\"payloadCeilingBytes\": 65536",
        "\"operationTimeoutMillis\": 5000",
        "\"duplicateWindowMillis\": 120000",
        "\"tenant\": \"shop\"",
        "\"topic\": \"out\"",
        "\"subject\": \"shop.out\"",
        "\"stream\": \"ORD\"",
    ];
    for field in fields {
        assert!(json.contains(field), "{field}");
        let unknown = json.replacen(field, &format!("\"unknown\": 1, {field}"), 1);
        assert!(matches!(NatsConfig::from_json(unknown.as_bytes()), Err(ConfigError::Form { .. })), "unknown beside {field}");
        let (name, value) = field.split_once(": ").unwrap();
        let again = if value == "{" { format!("{name}: null, {field}") } else { format!("{field}, {field}") };
        let repeated = json.replacen(field, &again, 1);
        assert!(matches!(NatsConfig::from_json(repeated.as_bytes()), Err(ConfigError::Form { .. })), "twice {field}");
    }
    for secret in ["password", "token", "credential", "username"] {
        let with_secret = json.replacen("\"formatVersion\"", &format!("\"{secret}\": \"x\", \"formatVersion\""), 1);
        assert!(matches!(NatsConfig::from_json(with_secret.as_bytes()), Err(ConfigError::Form { .. })), "{secret} has no place here");
    }
}

#[test]
fn a_document_that_is_no_configuration_is_refused() {
    let json = draft().check().unwrap().to_json();
    for bad in [
        "",
        "{",
        "[]",
        "null",
        "1",
        "\"\"",
        "{}{}",
        &json[..json.len() - 1],
        &format!("{json} x"),
        &json.replace("65536", "\"65536\""),
        &json.replace("65536", "-1"),
        &json.replace("65536", "1.5"),
    ] {
        assert!(matches!(NatsConfig::from_json(bad.as_bytes()), Err(ConfigError::Form { .. })), "{bad:.60}");
    }
    assert!(matches!(NatsConfig::from_json(b"{}"), Err(ConfigError::Missing { field: "formatVersion", .. })));
    assert!(matches!(NatsConfig::from_json(b"\xff{}"), Err(ConfigError::Form { .. })));
    let padded = |bytes: usize| format!("{json}{}", " ".repeat(bytes - json.len()));
    assert!(NatsConfig::from_json(padded(524_288).as_bytes()).is_ok());
    assert!(matches!(NatsConfig::from_json(padded(524_289).as_bytes()), Err(ConfigError::Limit { .. })));
}

/// what is installed is told apart by its digest, which is of the configuration alone.
#[test]
fn the_digest_changes_with_every_field_and_only_then() {
    type Change = fn(&mut NatsDraft);
    let changes: [Change; 11] = [
        |_| (),
        |draft| draft.endpoint.as_mut().unwrap().server_name = Some("other.latent.test".into()),
        |draft| {
            let endpoint = draft.endpoint.as_mut().unwrap();
            (endpoint.address, endpoint.allow_non_public_peer) = (Some("127.0.0.1:1".into()), Some("127.0.0.1:1".into()));
        },
        |draft| draft.roots.as_mut().unwrap().public = true,
        |draft| draft.roots.as_mut().unwrap().der.push(STANDARD.encode(root())),
        |draft| draft.idempotency_namespace = Some("other".into()),
        |draft| draft.payload_ceiling_bytes = Some(1),
        |draft| draft.operation_timeout_millis = Some(10),
        |draft| draft.duplicate_window_millis = Some(1_000),
        |draft| draft.mappings.as_mut().unwrap()[0].stream = Some("OTHER".into()),
        |draft| draft.mappings.as_mut().unwrap().reverse(),
    ];
    let digests: std::collections::BTreeSet<_> = changes.into_iter().map(|change| with(change).unwrap().digest()).collect();
    assert_eq!(digests.len(), changes.len());
    assert_eq!(with(|_| ()).unwrap().digest(), with(|_| ()).unwrap().digest());
}
