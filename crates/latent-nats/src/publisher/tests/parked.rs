//! Parked connections: what may wait on them, when they are dialled anew, and that nothing of this side runs meanwhile.

use latent_core::UncertainCause;
use latent_testkit::fake_peer::{INFO, Step, message_for};

use super::bench::{Bench, PAYLOAD_END, STORED, Setup, receipt, serve, serve_each, unavailable, uncertain};

/// What the peer does with one publication and then, while the connection is parked.
fn parked(then: Vec<Step>) -> Vec<Step> {
    serve([Step::reply_message(STORED)].into_iter().chain(then))
}

fn answered() -> Vec<Step> {
    vec![Step::ServeUntil(PAYLOAD_END.to_vec()), Step::reply_message(STORED), Step::Hold]
}

/// X-023: eight control frames are dealt with when it is used again, each PING answered; the ninth ends the connection.
#[tokio::test]
async fn eight_control_frames_may_wait_on_a_parked_connection_and_nine_may_not() {
    let waiting = |count: usize| {
        let lowered = INFO.replace("1048576", "100000");
        let frames: String = (0..count).map(|place| if place == 3 { lowered.as_str() } else { "PING\r\n" }).collect();
        parked([vec![Step::send(frames)], answered()].concat())
    };
    let bench = Bench::start(vec![waiting(8)]);
    receipt(bench.publish().await);
    bench.clock.skip(2_000);
    receipt(bench.publish().await);
    assert_eq!((bench.peer.accepted(), bench.count(0, b"PONG\r\n"), bench.count(0, b"HPUB ")), (1, 7, 2));

    let bench = Bench::start(vec![waiting(9), serve_each([Step::reply_message(STORED)])]);
    receipt(bench.publish().await);
    bench.clock.skip(2_000);
    receipt(bench.publish().await);
    bench.peer.until_client_ended(0).await;
    assert_eq!((bench.peer.accepted(), bench.count(0, b"HPUB ")), (2, 1), "nothing rode on it");
    assert_eq!(bench.publisher.snapshot().parked_lost, 1);
}

/// X-023: any other frame ends it, be it one that is well formed.
#[tokio::test]
async fn any_other_frame_on_a_parked_connection_ends_it_before_anything_rides_on_it() {
    let late = Step::reply_message(r#"{"stream":"ORD","seq":9}"#);
    let frames = vec![
        late,
        Step::send("MSG x 1 0\r\n\r\n"),
        Step::send("-ERR 'Permissions Violation for Publish to \"shop.out\"'\r\n"),
        Step::send("-ERR 'Stale Connection'\r\n"),
        Step::send("HMSG _INBOX.LSF.x 1 16 16\r\nNATS/1.0 408\r\n\r\n\r\n"),
    ];
    let scripts = frames.into_iter().map(|frame| parked([vec![frame], answered()].concat()));
    // A PONG that comes after the PING of the check is its answer, whoever meant it. This one leaves with the receipt, so that it is there.
    let early_pong = Step::reply(|received| [message_for(received, STORED.as_bytes()).as_slice(), b"PONG\r\n"].concat());
    let scripts: Vec<_> = scripts.chain([serve([early_pong].into_iter().chain(answered()))]).collect();
    let count = scripts.len();
    let bench = Bench::start(scripts.into_iter().chain([serve_each([Step::reply_message(STORED)])]).collect());
    for connection in 0..=count {
        assert_eq!(receipt(bench.publish().await).sequence, 1);
        bench.clock.skip(2_000);
        if connection > 0 {
            bench.peer.until_client_ended(connection - 1).await;
            assert_eq!(bench.count(connection - 1, b"HPUB "), 1, "{connection}");
        }
    }
    assert_eq!((bench.peer.accepted(), bench.publisher.snapshot().uncertain), (count + 1, 0));
}

/// X-024, D-15: one redial within the same call, whose failure begins the backoff.
#[tokio::test]
async fn a_connection_that_was_closed_is_dialled_anew_once_and_a_failed_redial_begins_the_backoff() {
    let scripts = vec![parked(vec![Step::Close]), parked(vec![Step::CloseAbruptly]), vec![Step::Close], serve([])];
    let bench = Bench::start(scripts);
    receipt(bench.publish().await);
    bench.clock.skip(2_000);
    receipt(bench.publish().await);
    bench.clock.skip(2_000);
    unavailable(bench.publish().await);
    assert_eq!(bench.peer.accepted(), 3, "the connection that was lost, and one redial");
    unavailable(bench.publish().await);
    assert_eq!(bench.peer.accepted(), 3, "the backoff");
    let snapshot = bench.publisher.snapshot();
    assert_eq!((snapshot.parked_lost, snapshot.uncertain, snapshot.connections), (2, 0, 0));
}

/// X-024: whom the broker has just refused is not dialled again within the same call.
#[tokio::test]
async fn a_refused_credential_on_a_parked_connection_is_never_redialled() {
    let refused = Step::send("-ERR 'Authorization Violation'\r\n");
    let bench = Bench::start(vec![parked(vec![refused, Step::Close]), serve_each([Step::reply_message(STORED)])]);
    receipt(bench.publish().await);
    bench.clock.skip(2_000);
    assert!(unavailable(bench.publish().await).contains("refused the credentials"));
    assert_eq!((bench.peer.accepted(), bench.publications()), (1, 1));
    bench.assert_nothing_is_held();
}

/// X-024, P-054: after the write there is no second attempt, on whatever connection.
#[tokio::test]
async fn a_connection_that_ends_after_the_write_is_uncertain_and_dialled_by_nobody() {
    let lost = parked([Step::ServeUntil(PAYLOAD_END.to_vec()), Step::Close].to_vec());
    let bench = Bench::start(vec![lost, serve_each([Step::reply_message(STORED)])]);
    receipt(bench.publish().await);
    assert_eq!(uncertain(bench.publish().await), UncertainCause::Closed);
    assert_eq!((bench.peer.accepted(), bench.publications()), (1, 2));
}

/// X-021, X-022: an installed provider has no task, socket or timer, and one with a parked connection no task either.
#[tokio::test]
async fn a_dormant_provider_and_its_parked_connection_own_no_task() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let sixteen = |draft: &mut crate::NatsDraft| {
        let mappings = draft.mappings.as_mut().unwrap();
        for number in mappings.len()..16 {
            let (tenant, subject) = (Some(format!("t-{number}")), Some(format!("subject.{number}")));
            mappings.push(crate::MappingDraft { tenant, subject, ..mappings[0].clone() });
        }
    };
    let script = serve_each([Step::reply_message(STORED), Step::reply_message(STORED)]);
    let bench = Bench::start_with(vec![script], Setup { draft: sixteen, ..Setup::default() });
    assert_eq!((tasks(), bench.peer.accepted(), bench.publisher.snapshot().mappings), (before, 0, 16));
    bench.assert_nothing_is_held();
    receipt(bench.publish().await);
    assert_eq!((tasks(), bench.publisher.snapshot().connections), (before, 1));
    receipt(bench.publish().await);
    assert_eq!((tasks(), bench.peer.accepted()), (before, 1));
    // Age closes it, and then nothing is left.
    bench.clock.skip(60_000);
    bench.pools.pools.close_idle();
    bench.peer.until_client_ended(0).await;
    assert_eq!(tasks(), before);
    bench.assert_nothing_is_held();
}
