//! One question to the node's control socket: a JSON line there, a JSON line back.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::Failure;

const VERSION: u32 = 1;
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Asks a question that has no arguments and gives what the answer holds.
///
/// # Errors
/// Nobody answers, or the answer is not the one to this question.
pub(super) fn ask(socket: &Path, question: &str) -> Result<Value, Failure> {
    let line = exchange(socket, question).map_err(Failure::file(socket))?;
    let unexpected = |problem: String| Failure::Unexpected { what: "the node's answer".to_owned(), problem };
    let answer: Value = serde_json::from_str(&line).map_err(|error| unexpected(error.to_string()))?;
    let answers = answer.get("answer").and_then(Value::as_object);
    match answers.and_then(|answers| answers.iter().next()) {
        Some((kind, content)) if kind != "fault" => Ok(content.clone()),
        _ => Err(unexpected(line)),
    }
}

fn exchange(socket: &Path, question: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(format!("{}\n", json!({"version": VERSION, "request": question})).as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// What `ask` makes of a node that answers with this line, and what the node was asked.
    fn ask_one_that_answers(answer: &'static str) -> (Result<Value, Failure>, String) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let node = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut asked = String::new();
            BufReader::new(&stream).read_line(&mut asked).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
            asked
        });
        let answer = ask(&socket, "summary");
        (answer, node.join().unwrap())
    }

    #[test]
    fn a_question_is_one_line_and_its_answer_is_what_the_line_holds() {
        let (answer, asked) = ask_one_that_answers("{\"version\":1,\"answer\":{\"summary\":{\"events_settled\":7}}}\n");
        assert_eq!(answer.unwrap(), json!({"events_settled": 7}));
        assert_eq!(serde_json::from_str::<Value>(&asked).unwrap(), json!({"version": 1, "request": "summary"}));
    }

    #[test]
    fn a_fault_and_what_is_no_answer_are_failures() {
        for line in ["{\"version\":1,\"answer\":{\"fault\":{\"kind\":\"busy\"}}}\n", "{\"version\":1}\n", "hello\n", ""] {
            assert!(matches!(ask_one_that_answers(line).0, Err(Failure::Unexpected { .. })), "{line:?}");
        }
    }

    #[test]
    fn nobody_there_is_a_failure_that_names_the_socket() {
        let failure = ask(Path::new("no-such.sock"), "ping").unwrap_err();
        assert!(failure.to_string().starts_with("no-such.sock: "), "{failure}");
    }
}
