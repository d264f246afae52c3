//! Triggers by `nats-jetstream-pull-v2`: on topics of a broker by default, on streams where asked for; and that a topic's trigger is the
//! same on either engine.

use latent_nats::lanes::{LaneDraft, LaneInput};

use super::super::settings::LanesConfig;
use super::broker::{ON_NATS, TRIGGER, seen, with_root};
use super::*;

fn lanes_of(text: &str) -> Vec<LanesConfig> {
    parse(&with_root().path, text, NamedFiles::MustExist).unwrap_or_else(|error| panic!("{}", error.why())).config.lanes
}

/// Where each lane is on its broker.
fn places(lanes: &LanesConfig) -> Vec<[String; 3]> {
    let place = |lane: &LaneDraft| [lane.stream.to_string(), lane.consumer.to_string(), lane.filter.to_string()];
    lanes.installed.lanes().iter().map(|lane| place(lane.draft())).collect()
}

/// Everything that a trigger on a topic may have.
const EVERY_KEY: &str = "max_deliveries = 100\nmax_in_flight = 3\nretry_delay_millis = 10\nretry_delay_max_millis = 20\n\
                         operation_timeout_millis = 600000\nack_wait_millis = 3000\npayload_ceiling_bytes = 524288\nstart = \"latest\"\n\
                         profile = \"nats-jetstream-pull-v2\"\ninput = \"event\"\ncontract = \"latent:events/handler@0.2.0\"\n\
                         function = \"handle\"\nbudget = { wall_time_millis = 1000 }\n";

const EMBEDDED: &str = "kind = \"embedded\"\nmanifest = \"bridge.yaml\"\n";

fn on_embedded(text: &str) -> String {
    let (begin, end) = (text.find("kind = \"nats\"").unwrap(), text.find("[secrets]").unwrap());
    format!("{}{EMBEDDED}{}", &text[..begin], &text[end..])
}

#[test]
fn a_trigger_on_a_topic_of_a_broker_follows_the_second_profile_by_default() {
    let lanes = lanes_of(&format!("{ON_NATS}{TRIGGER}"));
    assert_eq!((lanes.len(), lanes[0].installed.peer().address().to_string().as_str()), (1, "192.0.2.10:4222"));
    assert!(!lanes[0].installed.trusts_public_roots());
    let lane = &lanes[0].triggers[0];
    let draft = lanes[0].installed.lanes()[3].draft();
    assert_eq!((draft.ack_wait_millis, draft.payload_ceiling_bytes, draft.group.as_deref()), (30_000, 524_288, Some("latent")));
    assert_eq!((lane.partitions, draft.id.as_str(), draft.trigger.as_str()), (4, "t_p3", "t"));
    assert_eq!((lane.trigger.max_in_flight, lane.trigger.max_deliveries, lane.trigger.topic.as_str()), (8, 5, "github.events"));
    let of = |partition: u32| ["av_github_events".to_owned(), format!("latent_t_p{partition}"), format!("github.events.p{partition}")];
    assert_eq!(places(&lanes[0]), [of(0), of(1), of(2), of(3)]);
    let credentials: Vec<_> = lanes[0].credentials.iter().map(|of| (of.tenant.as_str(), of.user.as_deref())).collect();
    assert_eq!(credentials, [("acme", Some("acme-trigger"))], "who has no trigger there is left out");
    let v1 = format!("{ON_NATS}{TRIGGER}profile = \"nats-jetstream-pull-v1\"\n");
    assert!(lanes_of(&v1).is_empty());
}

#[test]
fn every_key_of_a_trigger_on_a_topic_is_the_same_on_both_engines() {
    let on_nats = format!("{ON_NATS}{TRIGGER}{EVERY_KEY}");
    let lanes = lanes_of(&on_nats).remove(0);
    let lane = &lanes.triggers[0];
    let config = parse(&with_root().path, &on_embedded(&on_nats), NamedFiles::MustExist).unwrap().config;
    assert_eq!((config.lanes.len(), &config.triggers), (0, &vec![lane.trigger.clone()]));
    assert_eq!((lanes.installed.lanes()[0].draft().ack_wait_millis, lane.trigger.start), (3_000, StartPosition::Latest));
    let problems = seen(&on_embedded(&format!("{ON_NATS}{TRIGGER}profile = \"nats-jetstream-pull-v1\"\n"))).1;
    assert!(problems.contains("this profile is for topics on a broker"), "{problems}");
    // What is out of range on one engine is on the other.
    for wrong in ["ack_wait_millis = 2999", "payload_ceiling_bytes = 524289", "max_deliveries = 101"] {
        let text = format!("{ON_NATS}{TRIGGER}{wrong}\n");
        let kinds = |text: &str| seen(text).0.into_iter().map(|told| told.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            (kinds(&text), kinds(&on_embedded(&text))),
            (vec!["config-out-of-range".to_owned()], vec!["config-out-of-range".to_owned()])
        );
    }
}

const RAW: &str = "\n[[service]]\nname = \"triage\"\ntenant = \"acme\"\ncomponent = \"triage.wasm\"\n\n[[trigger]]\nid = \"raw\"\n\
                   tenant = \"acme\"\nservice = \"triage\"\nstream = \"ORDERS\"\nconsumer = \"intake\"\nfilter = \"orders.new\"\n\
                   profile = \"nats-jetstream-pull-v2\"\n";

const BROKER: &str = "[broker]\naddress = \"192.0.2.20:4222\"\nallow_non_public_peer = \"192.0.2.20:4222\"\n\
                      server_name = \"streams.example.net\"\nroots = [\"ca.der\"]\n\
                      credentials = [{ tenant = \"acme\", user = \"acme-in\", secret = \"acme-in\" }]\n";

#[test]
fn a_stream_gives_raw_events_where_it_is_asked_for() {
    let lanes = lanes_of(&format!("{ON_NATS}{RAW}input = \"raw-event\"\nmax_in_flight = 2\n"));
    let lane = &lanes[0].triggers[0];
    assert_eq!((lane.trigger.topic.as_str(), lane.trigger.max_in_flight, lane.partitions), ("orders.new", 2, 1));
    assert_eq!(lanes[0].installed.lanes()[0].draft().input, LaneInput::Raw);
    assert_eq!(lane.trigger.contract.as_str(), "latent:events/handler@0.2.0");
    assert_eq!(places(&lanes[0]), [["ORDERS", "intake", "orders.new"].map(str::to_owned)]);
    // With a [broker] it is there, and topics stay where they are.
    let beside = RAW.replace(TRIGGER.split("[[trigger]]").next().unwrap(), "\n");
    let both = lanes_of(&format!("{ON_NATS}{TRIGGER}{beside}{BROKER}"));
    let places: Vec<_> = both.iter().map(|lanes| (lanes.installed.peer().address().to_string(), lanes.triggers.len())).collect();
    assert_eq!(places, [("192.0.2.10:4222".to_owned(), 1), ("192.0.2.20:4222".to_owned(), 1)]);
    assert_eq!(both[1].credentials[0].user.as_deref(), Some("acme-in"));
    let embedded = lanes_of(&on_embedded(&format!("{ON_NATS}{RAW}{BROKER}")));
    assert_eq!((embedded.len(), embedded[0].installed.peer().server_name()), (1, "streams.example.net"));
}

#[test]
fn what_a_trigger_by_the_second_profile_cannot_be_is_told_with_its_line() {
    let beside = RAW.replace(TRIGGER.split("[[trigger]]").next().unwrap(), "\n");
    let on_topic = format!("{ON_NATS}{TRIGGER}");
    let on_stream = format!("{ON_NATS}{RAW}");
    let cases = [
        (
            on_topic.replace("acme = \"acme-trigger\", ", ""),
            "topic = \"github.events\" # woken",
            "config-no-credential",
            "trigger_credentials = { acme",
        ),
        (format!("{on_topic}profile = \"nats-jetstream-pull-v3\"\n"), "pull-v3", "config-choice", "nats-jetstream-pull-v2"),
        (format!("{on_stream}topic = \"github.events\"\n"), "topic = ", "config-exclusive", "stream and topic"),
        (format!("{on_stream}input = \"wit-values\"\n"), "input = ", "config-choice", "raw-event"),
        (on_stream.replace("orders.new", "orders.*"), "filter = ", "config-name", "topic"),
        (on_stream.replace("orders.new", "triage.results"), "stream = ", "config-streams", "also the name of a topic"),
        (on_stream.replace("orders.new", "github.events.p1"), "stream = ", "config-stream-of-topic", "github.events"),
        (on_topic.replace("id = \"t\"", &format!("id = \"{}\"", "t".repeat(59))), "id = \"tt", "config-streams", "58 bytes"),
        (on_stream.replace("consumer = \"intake\"\n", ""), "[[trigger]]", "config-missing-key", "consumer is missing"),
        (
            on_stream
                .replace("profile = \"nats-jetstream-pull-v2\"", "contract = \"a:b/c@1.0.0\"\nfunction = \"f\"\ninput = \"raw-event\""),
            "input = ",
            "config-streams",
            "pull-v2",
        ),
        (on_embedded(&on_stream), "stream = ", "config-no-broker", "[broker]"),
        (
            format!("{on_stream}{}", BROKER.replace("tenant = \"acme\"", "tenant = \"bolt\"")),
            "address = \"192.0.2.20:4222\"",
            "config-no-credential",
            "acme",
        ),
        (
            format!("{on_topic}{}", beside.replace("\"ORDERS\"", "\"av_github_events\"").replace("\"intake\"", "\"latent_t_p3\"")),
            "stream = ",
            "config-streams",
            "has consumer latent_t_p3 of stream av_github_events already",
        ),
        (
            format!(
                "{on_stream}{}",
                beside.replace("\"raw\"", "\"other\"").replace("\"intake\"", "\"more\"").replace("tenant = \"acme\"", "tenant = \"bolt\"")
            ),
            "consumer = \"more\"",
            "config-streams",
            "what one tenant reads no other one may",
        ),
    ];
    for (text, line, kind, words) in cases {
        let (placed, told) = seen(&text);
        let at = line_of(&text, line);
        let near = [at.saturating_sub(1), at];
        assert!(near.iter().any(|at| placed.contains(&format!("{at} {kind}"))), "{line} {kind}: {placed:?} {told}");
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn as_many_bindings_as_the_profile_serves_are_taken_and_one_more_is_told_with_the_sum() {
    let trigger =
        |id: usize, topic: &str| format!("\n[[trigger]]\nid = \"w{id}\"\ntenant = \"acme\"\nservice = \"triage\"\ntopic = \"{topic}\"\n");
    let service = "\n[[topic]]\nname = \"wide\"\ntenant = \"acme\"\n[[topic]]\nname = \"triage.results\"\ntenant = \"acme\"\n\
                   [[service]]\nname = \"triage\"\ntenant = \"acme\"\ncomponent = \"triage.wasm\"\n";
    // Four triggers on 1,024 partitions each.
    let full = format!("{ON_NATS}{service}{}", (0..4).map(|id| trigger(id, "wide")).collect::<String>());
    assert_eq!(lanes_of(&full)[0].installed.lanes().len(), 4_096);
    let more = format!("{full}{}", trigger(4, "triage.results"));
    let (placed, told) = seen(&more);
    assert_eq!(placed.len(), 1, "{told}");
    assert!(placed[0].ends_with("config-too-many-bindings") && told.contains("4098 bindings") && told.contains("within 4096"), "{told}");
    assert_eq!(seen(&on_embedded(&more)).0, Vec::<String>::new(), "the embedded engine serves more");
}
