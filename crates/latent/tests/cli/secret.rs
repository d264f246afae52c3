//! `latent secret`, as operators and their scripts run it. Whether a store holds is tested in its crate; here is what is said and what is not.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::*;

const MARKER: &str = "MARKER-b4c1e0";

/// A node with a key and no secrets yet.
fn with_key() -> CliEnv {
    let env = fresh();
    env.write("latent.toml", format!("{CONFIG}[secrets]\nkey_file = \"secrets.key\"\n"));
    let key = env.write("secrets.key", [7; 32]);
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
    env
}

const BINDING: [&str; 8] = ["--tenant", "acme", "--provider", "broker", "--server-name", "NATS.example.net", "--port", "4222"];

fn put(env: &CliEnv, name: &str, more: &[&str], value: &str) -> CliOutput {
    let arguments = ["secret", "put", name, "--json"].into_iter().chain(BINDING).chain(more.iter().copied());
    unmarked(env.run_with_input(arguments, value.as_bytes().to_vec()))
}

fn rotate(env: &CliEnv, more: &[&str], value: &str) -> CliOutput {
    unmarked(env.run_with_input(["secret", "rotate", "acme-bus", "--json"].iter().chain(more), value.as_bytes().to_vec()))
}

fn list(env: &CliEnv) -> Vec<Value> {
    documents(&unmarked(env.run(["secret", "list", "--json"]).with_status(0)))
}

/// Nothing that a command says has the value in it.
fn unmarked(output: CliOutput) -> CliOutput {
    for text in [&output.stdout, &output.stderr] {
        assert!(!text.contains("MARKER") && !text.contains("TUFSS0VS") && !text.contains("4d41524b4552"), "{text}");
    }
    output
}

/// Every file under the folder in which the value stands in one of its usual forms.
fn files_with_marker(env: &CliEnv) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![env.folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                found.extend(
                    ["MARKER", "TUFSS0VS", "4d41524b4552"].iter().any(|form| text.contains(form)).then(|| path.display().to_string()),
                );
            }
        }
    }
    found
}

#[test]
fn a_secret_is_put_rotated_and_revoked_and_its_value_is_nowhere() {
    let env = with_key();
    let stored = documents(&put(&env, "acme-bus", &[], &format!("{MARKER}\n")).with_status(0)).remove(0);
    let written = stored["written"].as_u64().unwrap();
    assert!(written > 1_600_000_000_000, "milliseconds since 1970: {written}");
    let expected = json!({
        "name": "acme-bus", "purpose": "tls-provider-credential", "tenant": "acme", "provider": "broker", "protocol": "tls",
        "server_name": "nats.example.net", "port": 4222, "version": 1, "state": "current", "written": written, "expires": null,
    });
    assert_eq!(stored, expected);
    assert_eq!(list(&env), [expected]);
    let rotated = documents(&rotate(&env, &["--expires", "90d"], MARKER).with_status(0)).remove(0);
    assert_eq!((&rotated["version"], &rotated["state"]), (&json!(2), &json!("current")));
    assert!(rotated["expires"].as_u64().unwrap() > written + 89 * 86_400_000);
    assert_eq!(files_with_marker(&env), Vec::<String>::new());
    // The same search finds it where it is.
    env.write("value", MARKER);
    assert_eq!(files_with_marker(&env).len(), 1);
    let _ = put(&env, "other", &["--value-file", "value", "--expires", "2999-12-31"], "not this").with_status(0);
    let revoked = documents(&env.run(["secret", "revoke", "acme-bus", "--json"]).with_status(0)).remove(0);
    assert_eq!((&revoked["version"], &revoked["state"]), (&json!(3), &json!("revoked")));
    let listed = list(&env);
    let states = listed.iter().map(|info| (info["name"].as_str().unwrap(), info["state"].as_str().unwrap()));
    assert_eq!(states.collect::<Vec<_>>(), [("acme-bus", "revoked"), ("other", "current")]);
    assert_eq!(documents(&put(&env, "acme-bus", &[], MARKER).with_status(0))[0]["version"], json!(4), "the name is free again");
}

#[test]
fn people_are_told_in_a_line_and_a_table() {
    let env = with_key();
    let arguments = ["secret", "put", "acme-bus", "--expires", "2999-12-31T12:00:00Z"];
    let stored = env.run_with_input(arguments.iter().chain(&BINDING), MARKER.into()).with_status(0).stdout;
    assert_eq!(stored, "stored acme-bus, version 1, for nats.example.net:4222, until 2999-12-31T12:00:00Z\n");
    let table = env.run(["secret", "list"]).with_status(0).stdout;
    let cells: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(cells[..6], ["acme-bus", "current", "1", "acme", "broker", "nats.example.net:4222"]);
    assert_eq!(cells[8], "2999-12-31T12:00:00Z");
    assert_eq!(env.run(["secret", "revoke", "acme-bus"]).with_status(0).stdout, "revoked acme-bus, version 2, for nats.example.net:4222\n");
}

#[test]
fn each_refusal_has_its_kind_and_its_status_and_changes_nothing() {
    let env = with_key();
    let _ = put(&env, "acme-bus", &["--expires", "90d"], MARKER).with_status(0);
    let before = list(&env);
    let long = MARKER.repeat(400);
    let cases: Vec<(CliOutput, i32, &str)> = vec![
        (put(&env, "acme-bus", &[], MARKER), 1, "secret-exists"),
        (put(&env, "new", &[], ""), 2, "secret-value"),
        (put(&env, "new", &[], "\n"), 2, "secret-value"),
        (put(&env, "new", &[], &long), 2, "secret-value"),
        (put(&env, "new", &["--expires", "2001-01-01"], MARKER), 2, "secret-expiry"),
        (put(&env, "new", &["--expires", "soon"], MARKER), 2, "value"),
        (put(&env, "new", &["--value-file", "nowhere"], MARKER), 1, "input"),
        (put(&env, "a/b", &[], MARKER), 2, "value"),
        (rotate(&env, &[], MARKER), 2, "value"),
        (rotate(&env, &["--expires", "never"], ""), 2, "secret-value"),
        (env.run(["secret", "rotate", "new", "--json"]), 2, "secret-value"),
        (env.run(["secret", "revoke", "new", "--json"]), 1, "secret-not-found"),
        (env.run(["secret", "put", "new", MARKER, "--json"]), 2, "usage"),
        (env.run(["secret", "list", "-c", "bridge.yaml", "--json"]), 2, "config-invalid"),
        (env.run(["put", "new", "--json"]), 2, "usage"),
    ];
    for (output, status, kind) in cases {
        let error = error_of(&output);
        assert_eq!((&error["kind"], &error["status"], output.status), (&json!(kind), &json!(status), Some(status)), "{error}");
        for field in ["what", "why", "next"] {
            assert!(error[field].as_str().is_some_and(|text| !text.is_empty()), "{error}");
        }
    }
    assert_eq!(list(&env), before);
}

#[test]
fn a_name_that_may_be_the_value_is_not_repeated() {
    let env = with_key();
    let wrong = format!("{MARKER}!");
    for arguments in [["secret", "revoke", &*wrong, "--json"], ["secret", "rotate", &*wrong, "--json"]] {
        let error = error_of(&unmarked(env.run(arguments).with_status(2)));
        assert_eq!((&error["kind"], &error["what"]), (&json!("value"), &json!("NAME is not usable")));
    }
}

#[test]
fn what_is_wrong_with_key_and_directory_is_told_with_what_to_run() {
    let env = with_key();
    let why = |output: CliOutput, kind: &str| {
        let error = error_of(&output);
        assert_eq!(error["kind"], json!(kind), "{error}");
        error["why"].as_str().unwrap().to_owned()
    };
    let missing = env.run(["secret", "list", "--json"]).with_status(1);
    assert_eq!(why(missing, "secret-access"), "the secret store data/secrets does not exist");
    let _ = put(&env, "acme-bus", &[], MARKER).with_status(0);
    let chmod = |name: &str, mode| std::fs::set_permissions(env.folder().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    chmod("data/secrets", 0o755);
    assert!(why(env.run(["secret", "list", "--json"]).with_status(1), "secret-access").ends_with("run `chmod 700 data/secrets`"));
    chmod("data/secrets", 0o700);
    chmod("secrets.key", 0o644);
    assert!(why(env.run(["secret", "list", "--json"]).with_status(1), "secret-key").ends_with("run `chmod 600 secrets.key`"));
    env.write("secrets.key", [8; 32]);
    chmod("secrets.key", 0o600);
    assert!(why(put(&env, "new", &[], MARKER).with_status(1), "secret-wrong-key").contains("sealed under another key"));
    env.write("secrets.key", "too short");
    assert!(why(env.run(["secret", "list", "--json"]).with_status(1), "secret-key").contains("head -c 32 /dev/urandom"));
    env.write("latent.toml", CONFIG);
    assert!(why(env.run(["secret", "list", "--json"]).with_status(2), "no-secret-store").contains("key"));
}

#[test]
fn a_key_comes_from_a_systemd_credential_where_the_configuration_says_so() {
    let env = with_key();
    let credentials = env.folder().join("credentials");
    env.write("credentials/latent-key", [7; 32]);
    std::fs::set_permissions(credentials.join("latent-key"), std::fs::Permissions::from_mode(0o400)).unwrap();
    env.write("latent.toml", format!("{CONFIG}[secrets]\ndirectory = \"store\"\nkey_credential = \"latent-key\"\n"));
    let error = error_of(&put(&env, "acme-bus", &[], MARKER).with_status(1));
    assert!(error["why"].as_str().unwrap().contains("LoadCredential="), "{error}");
    let env = env.with_variable("CREDENTIALS_DIRECTORY", credentials);
    let _ = put(&env, "acme-bus", &[], MARKER).with_status(0);
    assert_eq!(list(&env).len(), 1);
    assert!(env.folder().join("store/acme-bus.secret").exists());
}

#[test]
fn one_damaged_secret_is_told_and_the_others_are_shown() {
    let env = with_key();
    for name in ["a", "b", "c"] {
        let _ = put(&env, name, &[], MARKER).with_status(0);
    }
    for name in ["a", "c"] {
        let file = format!("data/secrets/{name}.secret");
        let content = std::fs::read_to_string(env.folder().join(&file)).unwrap();
        env.write(file, content.replace("port 4222", "port 4223"));
    }
    let output = env.run(["secret", "list", "--json"]).with_status(1);
    assert_eq!(documents(&output).iter().map(|info| info["name"].clone()).collect::<Vec<_>>(), [json!("b")]);
    let error = error_of(&output);
    assert_eq!(error["kind"], json!("secret-damaged"));
    assert!(error["why"].as_str().unwrap().starts_with("data/secrets/a.secret is damaged"), "{error}");
    let noted: Value = serde_json::from_str(output.stderr.lines().next().unwrap()).unwrap();
    assert_eq!(noted["unreadable"]["kind"], json!("secret-damaged"));
    assert!(noted["unreadable"]["message"].as_str().unwrap().starts_with("data/secrets/c.secret"));
}

#[test]
fn secrets_may_be_there_before_the_node_is() {
    let env = with_key();
    let _ = put(&env, "acme-bus", &[], MARKER).with_status(0);
    let node = node(&env);
    let _ = rotate(&env, &[], MARKER).with_status(0);
    assert_eq!(list(&env)[0]["version"], json!(2));
    assert_eq!(node.stop(), Some(0));
    assert_eq!(files_with_marker(&env), Vec::<String>::new());
}
