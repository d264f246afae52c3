//! Who may use a data directory when.

use serde_json::json;

use super::*;

#[test]
fn a_directory_that_another_process_holds_without_a_socket_is_refused_with_its_name() {
    let env = provisioned();
    // A publication that waits for its input holds the directory and opens no socket.
    let mut holder = Running::start(&env, &["bus", "publish", "one", "--file", "-", "--json"]);
    holder.write(b"{}\n");
    assert_eq!(holder.document()["offset"], json!(0));
    for arguments in
        [&["bus", "topics", "--json"][..], &["bus", "fetch", "one", "--json"], &["trigger", "status", "--json"], &["run", "--json"]]
    {
        let output = env.run(arguments).with_status(1);
        let error = error_of(&output);
        assert_eq!(error["kind"], json!("directory-held"), "{error}");
        let holder = format!("held by process {} (latent bus publish)", holder.child.pid());
        assert_eq!(error["why"], json!(holder), "{arguments:?}");
    }
    holder.child.kill().unwrap();
    assert_eq!(fetched(&env, "one", 0).len(), 1, "a killed holder leaves nothing to clean up");
}

#[test]
fn commands_go_through_a_running_node() {
    let env = provisioned();
    let node = node(&env);
    let acks = publish(&env, &["one"], b"{\"n\":1}\n{\"n\":2}\n", 0);
    assert_eq!(acks[1]["offset"], json!(1));
    assert_eq!(fetched(&env, "one", 0).len(), 2);
    assert_eq!(documents(&env.run(["bus", "topics", "--json"]).with_status(0)).len(), 2);
    let uid = acks[0]["uid"].as_str().unwrap();
    assert_eq!(documents(&env.run(["bus", "find", "one", uid, "--json"]).with_status(0))[0]["value"], json!({ "n": 1 }));
    assert_eq!(error_of(&env.run(["bus", "fetch", "nowhere", "--json"]).with_status(1))["kind"], json!("unknown-topic"));
    assert_eq!(error_of(&env.run(["bus", "provision", "--json"]).with_status(1))["kind"], json!("node-running"));
    // A second node names the first.
    let second = env.run(["run", "--json"]).with_status(1);
    let error = error_of(&second);
    assert_eq!(error["kind"], json!("node-running"));
    let what = error["what"].as_str().unwrap();
    assert!(what.contains("already running") && what.contains(&format!("(pid {})", node.child.pid())), "{what}");
    assert_eq!(node.stop(), Some(0));
    assert!(!env.folder().join("data/control.sock").exists());
    assert_eq!(fetched(&env, "one", 0).len(), 2, "the same events from the directory");
}

#[test]
fn a_socket_that_was_left_behind_is_passed_over() {
    let env = provisioned();
    drop(std::os::unix::net::UnixListener::bind(env.folder().join("data/control.sock")).unwrap());
    assert_eq!(publish(&env, &["one"], b"{}\n", 0).len(), 1);
    assert_eq!(node(&env).stop(), Some(0));
}

#[test]
fn a_node_that_is_killed_can_be_started_again() {
    let env = provisioned();
    let mut first = node(&env);
    assert_eq!(publish(&env, &["one"], b"{}\n", 0).len(), 1);
    first.child.kill().unwrap();
    assert!(env.folder().join("data/control.sock").exists(), "nobody took its socket away");
    let second = node(&env);
    assert_eq!(fetched(&env, "one", 0).len(), 1);
    assert_eq!(second.stop(), Some(0));
}
