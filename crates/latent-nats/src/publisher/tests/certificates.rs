//! Which certificate is good for which configured name (X-001, X-005, BUG-03, BUG-04).

use latent_testkit::broker::{Issued, TestCa};
use latent_testkit::fake_peer::{FakePeer, Step};

use super::bench::{Bench, STORED, Setup, receipt, serve_each, unavailable};
use crate::NatsDraft;

const NAME: &str = "broker.good.test";

fn peer_with(certificate: &Issued) -> FakePeer {
    FakePeer::start(certificate, vec![serve_each([Step::reply_message(STORED)])])
}

fn named(draft: fn(&mut NatsDraft)) -> Setup {
    Setup { draft, ..Setup::default() }
}

fn good(draft: &mut NatsDraft) {
    draft.endpoint.as_mut().unwrap().server_name = Some(NAME.to_owned());
}

fn loud(draft: &mut NatsDraft) {
    draft.endpoint.as_mut().unwrap().server_name = Some(NAME.to_uppercase());
}

/// The dialled address is the same throughout, and no certificate is ever looked at for it.
#[tokio::test]
async fn a_certificate_is_good_exactly_where_one_of_its_dns_names_is_the_configured_name() {
    let ca = TestCa::new();
    let accepted = [ca.issue(NAME), ca.issue(&NAME.to_uppercase()), ca.issue("*.good.test")];
    for certificate in &accepted {
        for draft in [good, loud] {
            let bench = Bench::before(peer_with(certificate), &ca.root_der(), named(draft));
            receipt(bench.publish().await);
            assert_eq!(bench.peer.report(0).server_name.as_deref(), Some(NAME), "{certificate:?}");
        }
    }
    let name = "not valid for the configured server name";
    let refused = [
        (ca.issue("other.good.test"), name),
        (ca.issue("good.test"), name),
        (ca.issue("*.test"), name),
        (ca.issue("a.broker.good.test"), name),
        (ca.issue("127.0.0.1"), name),
        (ca.issue_common_name_only(NAME), name),
        (ca.issue_expired(NAME), "expired"),
        (ca.issue_not_yet_valid(NAME), "expired or is not valid yet"),
        (TestCa::new().issue(NAME), "not acceptable"),
        (Issued::self_signed(NAME), "none of the configured roots"),
    ];
    for (certificate, expected) in &refused {
        let bench = Bench::before(peer_with(certificate), &ca.root_der(), named(good));
        let reason = unavailable(bench.publish().await);
        assert!(reason.contains(expected), "{reason}: {certificate:?}");
        bench.peer.until_client_ended(0).await;
        assert!(bench.peer.report(0).received.is_empty(), "no byte of a session");
        unavailable(bench.publish().await);
        assert_eq!(bench.peer.accepted(), 1, "the backoff");
    }
}

/// A certificate that signs itself is trusted when it is the configured root, as any other root, and for its names only.
#[tokio::test]
async fn a_leaf_given_as_root_is_a_root_for_itself_or_none() {
    let leaf = Issued::self_signed(NAME);
    let bench = Bench::before(peer_with(&leaf), &leaf.certificate_der, named(good));
    receipt(bench.publish().await);
    let other = Issued::self_signed("other.good.test");
    let bench = Bench::before(peer_with(&other), &other.certificate_der, named(good));
    unavailable(bench.publish().await);
}
