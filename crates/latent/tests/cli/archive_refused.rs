//! What `latent archive` and its neighbours refuse, and what they say to do.

use super::archive::{PROOF, archived, key, restore, segments, verify};
use super::*;

fn why(output: &CliOutput) -> String {
    error_of(output)["why"].as_str().unwrap().to_owned()
}

fn next(output: &CliOutput) -> String {
    error_of(output)["next"].as_str().unwrap().to_owned()
}

#[test]
fn a_forged_event_beside_a_proven_chain_is_found_and_not_restored() {
    let env = archived();
    let folder = segments(&env)[0].parent().unwrap().to_owned();
    let partition: u32 = folder.file_name().unwrap().to_str().unwrap()[1..].parse().unwrap();
    let forged = format!(
        "{{\"uid\":\"forged\",\"partition\":{partition},\"offset\":9000,\"key\":\"k\",\"media_type\":\"application/json\",\
         \"attributes\":[],\"value\":{{}},\"stored_at\":9}}"
    );
    std::fs::write(folder.join(format!("{:020}.json", 9_000)), forged).unwrap();
    let told = verify(&env, &PROOF, 1).stdout;
    assert!(told.starts_with(&format!("extra: in/p{partition} offset 9000: in/p{partition}/")), "{told}");
    assert_eq!(error_of(&restore(&env, &[], 1))["kind"], json!("archive-unsound"));
    assert!((0..3).all(|partition| fetched(&env, "in", partition).is_empty()));
    let _ = verify(&env, &[&PROOF[..], &["--accept-unproven"]].concat(), 0);
}

#[test]
fn a_topic_that_is_archived_where_its_events_come_from_is_refused() {
    let env = archived();
    env.write(
        "bridge.yaml",
        MANIFEST.replace("partitions: 3 }", "partitions: 3, retention: { cold_uri: archive, cold_format: segments } }"),
    );
    env.write("latent.toml", format!("{CONFIG}\n[archive]\ncontrol_key_files = [\"control.key\"]\n"));
    let refused = restore(&env, &[], 2);
    assert!(why(&refused).contains("topic \"in\" is itself archived at archive") && why(&refused).contains("--into"), "{refused:?}");
    assert!((0..3).all(|partition| fetched(&env, "in", partition).is_empty()));
    let _ = restore(&env, &["--into", "one"], 0);
    let node = node(&env);
    env.write("bridge.yaml", MANIFEST);
    let in_force = restore(&env, &[], 2);
    assert!(why(&in_force).contains("is itself archived at archive"), "what the running node has counts: {in_force:?}");
    assert_eq!(node.stop(), Some(0));
    let named = env.run(["archive", "restore", "--archive", "archive", "--engine", "embedded:data", "--json"]).with_status(2);
    assert!(why(&named).contains("is itself archived at archive"), "and what a directory has that is named alone: {named:?}");
}

#[test]
fn what_comes_from_a_copy_into_an_archived_topic_is_warned_of_and_restored() {
    let env = archived();
    env.write(
        "bridge.yaml",
        MANIFEST.replace("partitions: 3 }", "partitions: 3, retention: { cold_uri: elsewhere, cold_format: segments } }"),
    );
    env.write("latent.toml", format!("{CONFIG}\n[archive]\ncontrol_key_files = [\"control.key\"]\n"));
    let told = restore(&env, &["--progress", "restore.json"], 0).stderr;
    let warning: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(warning["warning"]["topic"], json!("in"), "{told}");
    assert!(
        warning["warning"]["message"].as_str().unwrap().contains("is archived there again, with the same uids under new offsets"),
        "{told}"
    );
    assert!(restore(&env, &["--into", "one"], 0).stderr.is_empty(), "nothing of it goes to the archived one");
}

#[test]
fn restoring_into_a_topic_whose_archive_takes_a_key_that_is_not_there_is_refused_before_anything_is_read() {
    let env = archived();
    env.write("bridge.yaml", MANIFEST.replace("partitions: 3 }", "partitions: 3, retention: { cold_uri: elsewhere } }"));
    let on_nats = ["--engine", "nats", "--manifest", "bridge.yaml"];
    let refused = restore(&env, &on_nats, 2);
    assert!(
        why(&refused).contains("topic \"in\" has a cold_uri") && next(&refused).contains("-c FILE instead of --engine nats"),
        "{refused:?}"
    );
    let other =
        env.run_with_input([&["bus", "publish", "in", "--file", "-", "--json"][..], &on_nats].concat(), b"1\n".to_vec()).with_status(2);
    assert_eq!(next(&other), next(&refused));
    // A topic that is not archived is not in the way of it: then it is the environment that is missed.
    let into = restore(&env, &[&["--into", "one"][..], &on_nats].concat(), 2);
    assert_eq!(error_of(&into)["kind"], json!("environment"), "{into:?}");
}

#[test]
fn several_topics_into_one_are_a_wrong_command() {
    let env = archived();
    std::fs::create_dir_all(env.folder().join("archive/two/p0")).unwrap();
    std::fs::copy(&segments(&env)[0], env.folder().join("archive/two/p0/00000000000000000000.seg")).unwrap();
    let refused = restore(&env, &["--into", "one"], 2);
    assert!(why(&refused).contains("\"in\" and \"two\", which cannot both become \"one\""), "{refused:?}");
    assert_eq!(next(&refused), "name one topic of the archive with --topic");
    assert!(fetched(&env, "one", 0).is_empty());
}

#[test]
fn what_is_restored_is_told_with_the_topic_and_the_partitions_that_it_is_in_now() {
    let env = archived();
    let told = env.run(["archive", "restore", "--archive", "archive", "--key", "control.key", "--into", "one"]).with_status(0).stdout;
    let first = told.lines().next().unwrap();
    assert!(first.starts_with("in/p") && first.contains(", now in one: p0 offsets 0 to "), "{told}");
    let restored = &documents(&restore(&env, &["--topic", "in"], 0))[0]["restored"];
    let partition = restored["partition"].to_string();
    assert_eq!((&restored["into"], &restored["offsets"][partition][0]), (&json!("in"), &json!(0)), "{restored}");
}

#[test]
fn a_part_that_an_archive_does_not_have_is_a_mistake_of_a_restoration_too() {
    let env = archived();
    for part in [["--topic", "nosuch"], ["--partition", "7"]] {
        let refused = restore(&env, &part, 2);
        assert!(why(&refused).ends_with("the archive archive has nothing of it"), "{refused:?}");
    }
    let both = ["--topic", "in", "--partition", "7"];
    for refused in [restore(&env, &both, 2), verify(&env, &[&["--archive", "archive", "--json"][..], &both].concat(), 2)] {
        assert!(error_of(&refused)["what"].as_str().unwrap().contains("--partition"), "the topic is there: {refused:?}");
    }
}

#[test]
fn files_of_heads_and_of_progress_are_read_with_a_bound_and_say_what_is_wrong_with_them() {
    let env = archived();
    for (content, words) in [("", "it holds no head"), ("{\"intents\":{}}\n", "it holds no head"), ("x", "expected value")] {
        env.write("empty.jsonl", content);
        let refused = verify(&env, &["--archive", "archive", "--key", "control.key", "--head", "empty.jsonl", "--json"], 2);
        assert!(why(&refused).contains(words), "{refused:?}");
    }
    let pipe = env.folder().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let refused = verify(&env, &["--archive", "archive", "--key", "control.key", "--head", "pipe", "--json"], 2);
    assert_eq!((error_of(&refused)["kind"].clone(), why(&refused)), (json!("value"), "pipe: it is not a file".to_owned()));
    let refused = restore(&env, &["--progress", "pipe"], 2);
    assert_eq!((error_of(&refused)["kind"].clone(), why(&refused)), (json!("value"), "pipe: it is not a file".to_owned()));
    // Sparse: as long as nobody wants to have in memory.
    let file = std::fs::File::create(env.folder().join("long")).unwrap();
    file.set_len(3 << 30).unwrap();
    let refused = restore(&env, &["--progress", "long"], 2);
    assert!(why(&refused).contains("restore_progress_bytes"), "{refused:?}");
    rustix::fs::mknodat(rustix::fs::CWD, env.folder().join("restore.json.tmp"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    let _ = restore(&env, &["--progress", "restore.json"], 0);
    let other = restore(&env, &["--progress", "restore.json", "--topic", "in"], 2);
    assert!(next(&other).starts_with("name another file, or remove this one"), "{other:?}");
}

#[test]
fn progress_of_another_log_or_of_an_earlier_version_is_of_another_restoration() {
    let env = archived();
    let _ = restore(&env, &["--progress", "restore.json"], 0);
    let _ = env.run(["bus", "provision", "--engine", "embedded:other", "--manifest", "bridge.yaml"]).with_status(0);
    let other = restore(&env, &["--engine", "embedded:other", "--progress", "restore.json"], 2);
    let data = env.folder().join("data").canonicalize().unwrap();
    assert!(
        why(&other).ends_with(&format!("it is of another restoration: the archive archive, into embedded:{}", data.display())),
        "{other:?}"
    );
    assert!(next(&other).contains("remove this one"), "{other:?}");
    let parts = restore(&env, &["--progress", "parts.json", "--topic", "in", "--partition", "0", "--into", "one"], 0);
    let told = why(&restore(&env, &["--progress", "parts.json"], 2));
    assert!(told.contains("the archive archive, topic in, partition 0, into topic one of embedded:"), "{told}: {parts:?}");
    env.write("old.json", r#"{"restoration":"of archive topic Some(\"in\") partition None into None","done":{"in/p0":9}}"#);
    let old = restore(&env, &["--progress", "old.json"], 2);
    assert!(why(&old).contains("it is of another restoration") && !why(&old).contains("Some("), "{old:?}");
    assert!(next(&old).contains("remove this one"), "{old:?}");
    // The same place with a log that was made anew since.
    std::fs::remove_dir_all(env.folder().join("data")).unwrap();
    let _ = env.run(["bus", "provision"]).with_status(0);
    let anew = restore(&env, &["--progress", "restore.json"], 1);
    assert!(why(&anew).contains("restore.json says that it was published: remove that file"), "{anew:?}");
}

#[test]
fn a_proof_by_another_key_says_to_name_that_key() {
    let env = archived();
    key(&env, "other.key", &"08".repeat(32));
    let other = verify(&env, &["--archive", "archive", "--key", "other.key", "--json"], 1);
    assert!(next(&other).starts_with("name the key that they are proven with"), "{other:?}");
}

/// A head that is damaged, and a key that is not named any more: what can be shown is, and what cannot is named with what to do.
#[test]
fn a_head_that_cannot_be_read_is_told_with_its_partition_beside_the_others() {
    let env = archived();
    env.write(
        "bridge.yaml",
        MANIFEST.replace("partitions: 3 }", "partitions: 3, retention: { cold_uri: archive, cold_format: segments } }"),
    );
    let config = |key: &str| env.write("latent.toml", format!("{CONFIG}\n[archive]\ncontrol_key_files = [\"{key}\"]\n"));
    config("control.key");
    let intents = |status| documents(&env.run(["archive", "status", "--json"]).with_status(status)).remove(0)["intents"].clone();
    let node = node(&env);
    assert_eq!(intents(0)["intents_quarantined"], json!(0));
    node.stop();
    assert_eq!((&intents(0)["intents"], &intents(0)["intents_quarantined"]), (&json!(0), &Value::Null), "only a node knows");
    let heads = env.folder().join("data/cold-outbox/segments");
    std::fs::create_dir_all(&heads).unwrap();
    let there: Vec<_> = (0..3).map(|n| format!("in.p{n}.head")).filter(|name| env.folder().join("heads").join(name).is_file()).collect();
    assert!(there.len() > 1, "{there:?}");
    for name in &there {
        std::fs::copy(env.folder().join("heads").join(name), heads.join(name)).unwrap();
    }
    std::fs::write(heads.join(&there[0]), "{}").unwrap();
    let damaged = env.run(["archive", "status", "--json"]).with_status(1);
    let place = format!("in/{}", there[0].split('.').nth(1).unwrap());
    assert_eq!(error_of(&damaged)["what"], json!(format!("reading the head of {place} failed")), "{damaged:?}");
    let told = documents(&damaged);
    assert_eq!(told.iter().filter(|line| line["document"].is_string()).count(), there.len() - 1, "{told:?}");
    assert_eq!(told.iter().filter(|line| line["unread"] == json!(true)).count(), 1, "{told:?}");
    assert!(env.run(["archive", "status"]).with_status(1).stdout.contains("unknown"));

    std::fs::copy(env.folder().join("heads").join(&there[0]), heads.join(&there[0])).unwrap();
    key(&env, "other.key", &"08".repeat(32));
    config("other.key");
    let signed: Value = serde_json::from_slice(&std::fs::read(heads.join(&there[0])).unwrap()).unwrap();
    for command in [&["archive", "status", "--json"][..], &["archive", "verify", "--json"]] {
        let refused = env.run(command).with_status(1);
        assert_eq!(error_of(&refused)["kind"], json!("unknown-control-key"), "{refused:?}");
        assert!(why(&refused).contains(signed["key_id"].as_str().unwrap()), "{refused:?}");
        assert!(next(&refused).starts_with("put the old key back at the end of control_key_files"), "{refused:?}");
        assert!(!documents(&refused).is_empty(), "{refused:?}");
    }
}

#[test]
fn check_looks_at_control_keys_and_names_them_as_what_they_are() {
    let env = fresh();
    env.write("bridge.yaml", MANIFEST.replace("partitions: 3 }", "partitions: 3, retention: { cold_uri: cold } }"));
    env.write("latent.toml", format!("{CONFIG}\n[archive]\ncontrol_key_files = [\"control.key\"]\n"));
    let check = |words: &str| {
        let refused = env.run(["check"]).with_status(2);
        let told = refused.stderr;
        assert!(told.contains("control key file") && told.contains("control.key") && told.contains(words), "{words}: {told}");
        assert!(!told.contains("sealing"), "{told}");
    };
    check("does not exist");
    key(&env, "control.key", &"00".repeat(32));
    check("zeros");
    let refused = env.run(["run", "--json"]).with_status(1);
    assert!(why(&refused).contains("control.key holds zeros"), "the node names the file as well: {refused:?}");
    key(&env, "control.key", "07");
    check("64 hexadecimal digits");
    env.write("control.key", "07".repeat(32));
    std::fs::set_permissions(env.folder().join("control.key"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    check("open to others");
    key(&env, "control.key", &"07".repeat(32));
    let _ = env.run(["check"]).with_status(0);
    assert!(!env.folder().join("cold").exists(), "checking makes no folder");
}

#[test]
fn an_archive_that_cannot_be_made_is_told_as_the_cold_uri_that_names_it() {
    let env = fresh();
    key(&env, "control.key", &"07".repeat(32));
    env.write("bridge.yaml", MANIFEST.replace("partitions: 3 }", "partitions: 3, retention: { cold_uri: /proc/nope } }"));
    env.write("latent.toml", format!("{CONFIG}\n[archive]\ncontrol_key_files = [\"control.key\"]\n"));
    let refused = env.run(["run", "--json"]).with_status(1);
    assert!(refused.stderr.contains("cold_uri") && refused.stderr.contains("/proc/nope"), "{refused:?}");
}

#[test]
fn publishing_to_an_archived_topic_without_a_key_is_one_error_and_not_one_for_each_line() {
    let env = fresh();
    env.write("bridge.yaml", MANIFEST.replace("partitions: 3 }", "partitions: 3, retention: { cold_uri: cold } }"));
    let arguments = ["bus", "publish", "in", "--engine", "nats", "--manifest", "bridge.yaml", "--file", "-", "--json"];
    let refused = env.run_with_input(arguments, b"1\n2\n3\n".to_vec()).with_status(2);
    assert!(refused.stdout.is_empty() && why(&refused).contains("has a cold_uri"), "{refused:?}");
}

#[test]
fn a_maintenance_says_what_could_not_be_archived_and_what_to_do() {
    let env = provisioned();
    let problem = "uid order-1 of topic \"in\" on its way to /mnt/cold (intent 0a.json): cold store: \"in/p0/7.json\" already exists";
    let report = json!({
        "expired_records": 0, "expired_segments": 0, "skipped_topics": [], "unremoved_files": 0, "intents_completed": 0, "intents_pending": 1,
        "intents_quarantined": 1, "archive_problems": [problem],
    });
    scripted_node(&env, move |_| Some(json!({ "maintained": report })));
    let told = env.run(["bus", "maintain"]).with_status(1).stderr;
    assert!(told.contains("1 export to the archive needs somebody to look") && told.contains(problem), "{told}");
    assert!(told.contains("docs/archive.md has a line for each"), "{told}");
}
