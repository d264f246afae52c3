//! What the broker's answer to one publication means: the one table of this engine (B-055, D-05). No I/O.
//!
//! A refusal is believed only where the pinned broker is known to store nothing with it; everything else may have been stored.

use latent_core::UncertainCause;
use serde::Deserialize;

use super::words::{Told, told};

/// Refusals that prove that nothing was stored, with whether the same event can ever be taken.
const NOT_STORED: &[(u16, bool)] = &[
    // Larger than the stream allows.
    (10_054, true),
    // The subject belongs to another stream than expected. The event is not at fault.
    (10_060, false),
    // The stream's last message has another id or sequence than expected: something else was stored meanwhile.
    (10_070, false),
    (10_071, false),
];
/// The stream or the server is full: on some versions the message was stored all the same.
const STORAGE_LIMITS: &[u16] = &[10_023, 10_028, 10_047, 10_077];
/// Another publication with the same id is being stored at this moment: so answers a stream with replicas. What becomes of that one, asking again tells.
const IN_PROCESS: u16 = 10_158;
/// Status of a subject on which nothing listens.
const NO_RESPONDERS: u16 = 503;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The stream has it.
    Stored { sequence: u64, duplicate: bool },
    /// It was certainly not stored.
    Refused { rule: String, permanent: bool },
    /// Another one with its uid is being stored. To be sent again a moment later.
    InProcess,
    /// It may have been stored.
    Uncertain { cause: UncertainCause, words: String },
}

#[derive(Deserialize)]
struct Reply {
    error: Option<Refusal>,
    stream: Option<String>,
    seq: Option<u64>,
    #[serde(default)]
    duplicate: bool,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    err_code: u16,
    #[serde(default)]
    description: String,
}

/// Reads the answer to a publication for `stream`.
pub(super) fn read(status: Option<u16>, body: &[u8], stream: &str) -> Answer {
    if status == Some(NO_RESPONDERS) {
        let rule = format!("no stream takes messages for stream {stream} now; JetStream has no leader for it, or it was removed");
        return Answer::Refused { rule, permanent: false };
    }
    let unusable = |words: String| Answer::Uncertain { cause: UncertainCause::Unusable, words };
    let reply: Reply = match serde_json::from_slice(body) {
        Ok(reply) if status.is_none() => reply,
        Ok(_) => return unusable(format!("status {}", status.unwrap_or_default())),
        Err(error) => return unusable(told(error)),
    };
    match reply {
        Reply { error: Some(Refusal { err_code, description }), .. } => refused(err_code, &description),
        Reply { stream: Some(named), seq: Some(sequence), duplicate, .. } if named == stream && sequence > 0 => {
            Answer::Stored { sequence, duplicate }
        }
        Reply { stream: named, .. } => unusable(format!("an acknowledgement of stream {}", Told(&named.unwrap_or_default()))),
    }
}

fn refused(err_code: u16, description: &str) -> Answer {
    let words = format!("the broker says: {} ({err_code})", Told(description));
    if let Some((_, permanent)) = NOT_STORED.iter().find(|(code, _)| *code == err_code) {
        return Answer::Refused { rule: words, permanent: *permanent };
    }
    if err_code == IN_PROCESS {
        return Answer::InProcess;
    }
    let cause = if STORAGE_LIMITS.contains(&err_code) { UncertainCause::StorageLimit } else { UncertainCause::Unusable };
    Answer::Uncertain { cause, words }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Answer {
        read(None, body.as_bytes(), "av_t")
    }

    fn uncertain(answer: &Answer) -> Option<UncertainCause> {
        match answer {
            Answer::Uncertain { cause, .. } => Some(*cause),
            _ => None,
        }
    }

    #[test]
    fn only_an_acknowledgement_of_the_stream_is_one() {
        assert_eq!(of(r#"{"stream":"av_t","seq":7}"#), Answer::Stored { sequence: 7, duplicate: false });
        assert_eq!(of(r#"{"stream":"av_t","seq":7,"duplicate": true,"domain":"x"}"#), Answer::Stored { sequence: 7, duplicate: true });
        for unusable in [r#"{"stream":"av_s","seq":7}"#, r#"{"stream":"av_t","seq":0}"#, r#"{"stream":"av_t"}"#, "{}", "", "+OK", "[]"] {
            assert_eq!(uncertain(&of(unusable)), Some(UncertainCause::Unusable), "{unusable}");
        }
    }

    #[test]
    fn a_refusal_is_believed_only_where_it_proves_that_nothing_was_stored() {
        let refusal =
            |code: u16| of(&format!(r#"{{"error":{{"code":400,"err_code":{code},"description":"words"}},"stream":"av_t","seq":0}}"#));
        assert!(matches!(refusal(10_054), Answer::Refused { permanent: true, rule } if rule.contains("words")));
        for passing in [10_060, 10_070, 10_071] {
            assert!(matches!(refusal(passing), Answer::Refused { permanent: false, .. }), "{passing}");
        }
        for full in STORAGE_LIMITS {
            assert_eq!(uncertain(&refusal(*full)), Some(UncertainCause::StorageLimit));
        }
        assert_eq!(refusal(10_158), Answer::InProcess, "one that is still being stored may or may not come to be");
        for other in [0, 1, 10_008, 10_076, 10_157, 10_159, 10_167, u16::MAX] {
            assert_eq!(uncertain(&refusal(other)), Some(UncertainCause::Unusable), "{other}");
        }
    }

    #[test]
    fn nobody_listening_is_a_refusal_and_any_other_status_is_not() {
        assert!(matches!(read(Some(503), b"", "av_t"), Answer::Refused { permanent: false, .. }));
        assert_eq!(uncertain(&read(Some(500), b"{\"stream\":\"av_t\",\"seq\":7}", "av_t")), Some(UncertainCause::Unusable));
        assert_eq!(uncertain(&read(Some(408), b"", "av_t")), Some(UncertainCause::Unusable));
    }
}
