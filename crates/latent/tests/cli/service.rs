//! `latent service` in words: what is listed, which names are understood, what is refused and how. What a revocation stops is in
//! `revoking`.

use serde_json::json;

use super::revoking::{digest_of, with_services};
use super::*;

fn listed(env: &CliEnv) -> Vec<Value> {
    documents(&env.run(["service", "list", "--json"]).with_status(0))
}

#[test]
fn a_stopped_node_lists_what_its_configuration_says_and_a_running_one_what_it_publishes() {
    let env = with_services(&[("triage", "acme"), ("unbuilt", "acme")]);
    std::fs::remove_file(env.folder().join("unbuilt.wasm")).unwrap();
    let digest = digest_of(&env, "triage");
    let stopped = listed(&env);
    let expected = json!({
        "service": "triage", "tenants": ["acme"], "publication": null, "digest": digest, "state": "stopped", "revoked_for": [], "routes": [],
        "routes_left_out": 0,
    });
    assert_eq!((&stopped[0], stopped.len()), (&expected, 2));
    assert_eq!((&stopped[1]["service"], &stopped[1]["digest"]), (&json!("unbuilt"), &json!(null)));

    let env = with_services(&[("triage", "acme")]);
    let node = node(&env);
    let running = listed(&env);
    let mut expected = expected;
    (expected["publication"], expected["state"]) = (json!(1), json!("live"));
    expected["routes"] = json!([{ "tenant": "acme", "route": null, "generation": 1 }]);
    assert_eq!(running, [expected]);
    let table = env.run(["service", "list"]).with_status(0).stdout;
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["triage", "acme", "1", &digest[..19], "live", "-", "acme@1"], "{table}");
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn a_route_is_pointed_by_comparison_and_lasts_as_long_as_the_node() {
    let env = with_services(&[("triage", "acme")]);
    let digest = digest_of(&env, "triage");
    let route =
        |arguments: &[&str], status: i32| env.run(["service", "route", "triage", "--json"].iter().chain(arguments)).with_status(status);
    let first = node(&env);
    let routed = |route: Value, generation: u64| json!({ "service": "triage", "tenant": "acme", "route": route, "publication": 1, "digest": digest, "generation": generation });
    assert_eq!(documents(&route(&["--to", "1"], 0)), [routed(json!(null), 1)], "it leads there already");
    let canary = ["--to", &digest[7..20], "--route", "canary", "--tenant", "acme"];
    assert_eq!(documents(&route(&[&canary[..], &["--expect-generation", "0"]].concat(), 0)), [routed(json!("canary"), 1)]);
    let moved = error_of(&route(&[&canary[..], &["--expect-generation", "0"]].concat(), 1));
    assert_eq!(moved["kind"], json!("route-moved"));
    assert!(moved["why"].as_str().unwrap().contains("has generation 1 and not 0"), "{moved}");
    let human = env.run(["service", "route", "triage", "--to", "1"]).with_status(0);
    assert!(human.stdout.starts_with("the default route of acme to service triage leads to publication 1 (sha256:"), "{}", human.stdout);
    assert!(human.stderr.contains("lasts until the node stops"), "{}", human.stderr);
    assert_eq!(listed(&env)[0]["routes"].as_array().unwrap().len(), 2);
    assert_eq!(first.stop(), Some(0));
    let second = node(&env);
    assert_eq!(listed(&env)[0]["routes"].as_array().unwrap().len(), 1);
    assert_eq!(second.stop(), Some(0));
    let stopped = error_of(&route(&["--to", "1"], 1));
    assert_eq!(stopped["kind"], json!("node-stopped"));
}

#[test]
fn what_is_not_understood_is_told_with_what_there_is() {
    let env = with_services(&[("triage", "acme"), ("mail", "acme")]);
    let check = |running: bool| {
        let cases: [(&[&str], i32, &str, &str); 7] = [
            (&["revoke", "triag"], 1, "unknown-service", "did you mean triage?"),
            (&["revoke", "elsewhere"], 1, "unknown-service", "name one of them"),
            (&["revoke", "triage", "--tenant", "beta"], 1, "unknown-tenant", "latent service list"),
            (&["revoke", "triage", "--digest", "0000"], 1, "unknown-publication", "latent service list"),
            (&["revoke", "triage", "--digest", "1"], 2, "value", "give a value that keeps to this rule"),
            (&["revoke", "tri age"], 2, "value", "give a value that keeps to this rule"),
            (&["route", "triage", "--to", "xx"], 2, "value", "give a value that keeps to this rule"),
        ];
        let of_running: [(&[&str], i32, &str, &str); 3] = [
            (&["route", "triag", "--to", "1"], 1, "unknown-service", "did you mean triage?"),
            (&["route", "triage", "--to", "77"], 1, "unknown-publication", "latent service list"),
            (&["route", "mail", "--to", "1"], 1, "unknown-publication", "latent service list"),
        ];
        let of_running = if running { &of_running[..] } else { &[] };
        for (arguments, status, kind, next) in cases.iter().chain(of_running) {
            let error = error_of(&env.run(["service"].iter().chain(*arguments).chain(&["--json"])).with_status(*status));
            assert_eq!(error["kind"], json!(kind), "{arguments:?}: {error}");
            assert!(error["next"].as_str().unwrap().contains(next), "{arguments:?}: {error}");
        }
    };
    check(false);
    let node = node(&env);
    check(true);
    assert_eq!(node.stop(), Some(0));
    assert!(listed(&env).iter().all(|service| service["state"] == json!("stopped")), "nothing was revoked");
}

#[test]
fn a_change_without_an_answer_is_uncertain() {
    let env = provisioned();
    scripted_node(&env, |_| None);
    for arguments in [&["service", "revoke", "triage", "--json"][..], &["service", "route", "triage", "--to", "1", "--json"]] {
        assert_eq!(error_of(&env.run(arguments).with_status(3))["kind"], json!("control-closed"));
    }
}
