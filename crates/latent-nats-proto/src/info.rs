//! What the broker says of itself. Addresses that it offers, redirects and hints to go elsewhere are not even read (X-003).

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use crate::json::{JsonError, Rules, Value, object};

/// Facts of the connected server; they change with each INFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerFacts {
    /// Most bytes of headers and payload that it takes in one message.
    pub max_payload_bytes: u64,
    /// Version of the protocol.
    pub protocol: u64,
    /// Whether it asks for credentials.
    pub auth_required: bool,
    /// Whether JetStream runs on this server itself. Another server of a cluster may run it all the same.
    pub jetstream: bool,
    /// Its version, when it is three numbers.
    pub version: Option<ServerVersion>,
    /// Tells one start of a server from every other one, as far as this process goes on; `None` when it has no `server_id`.
    pub started: Option<u64>,
    /// Whether it is one of a cluster.
    pub is_clustered: bool,
}

/// Version of a server; a suffix is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

/// An INFO that cannot be worked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// It is no JSON object, or a field that counts is doubled or of another type.
    #[error("the broker's INFO is malformed")]
    Malformed,
    /// The server, or its configuration, has no message headers.
    #[error("the broker does not support message headers")]
    NoHeaders,
    /// It does not say how large a message may be, or says zero.
    #[error("the broker's INFO has no usable max_payload")]
    NoMaxPayload,
}

#[derive(Default)]
struct Fields {
    version: Option<Option<ServerVersion>>,
    protocol: Option<u64>,
    headers: Option<bool>,
    auth_required: Option<bool>,
    max_payload: Option<u64>,
    jetstream: Option<bool>,
    started: Option<u64>,
    is_clustered: Option<bool>,
}

/// Reads what stands behind `INFO`.
pub(crate) fn read(text: &[u8]) -> Result<ServerFacts, InfoError> {
    let text = std::str::from_utf8(text).map_err(|_| InfoError::Malformed)?;
    let mut fields = Fields::default();
    object(text, Rules::Tolerant, |name, value| {
        if name.is("version") {
            once(&mut fields.version, version(&value)?)
        } else if name.is("proto") {
            once(&mut fields.protocol, value.integer()?)
        } else if name.is("headers") {
            once(&mut fields.headers, value.bool()?)
        } else if name.is("auth_required") {
            once(&mut fields.auth_required, value.bool()?)
        } else if name.is("max_payload") {
            once(&mut fields.max_payload, value.integer()?)
        } else if name.is("jetstream") {
            once(&mut fields.jetstream, value.bool()?)
        } else if name.is("server_id") {
            once(&mut fields.started, hash_of(value.text()?.raw()))
        } else if name.is("cluster") {
            once(&mut fields.is_clustered, !value.text()?.raw().is_empty())
        } else {
            Ok(())
        }
    })
    .map_err(|_| InfoError::Malformed)?;
    if fields.headers != Some(true) {
        return Err(InfoError::NoHeaders);
    }
    Ok(ServerFacts {
        max_payload_bytes: fields.max_payload.filter(|bytes| *bytes > 0).ok_or(InfoError::NoMaxPayload)?,
        protocol: fields.protocol.unwrap_or(0),
        auth_required: fields.auth_required.unwrap_or(false),
        jetstream: fields.jetstream.unwrap_or(false),
        version: fields.version.flatten(),
        started: fields.started,
        is_clustered: fields.is_clustered.unwrap_or(false),
    })
}

/// Servers make a new id each time they start. It is only compared, so it need not be kept.
fn hash_of(id: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(id)
}

fn once<T>(field: &mut Option<T>, value: T) -> Result<(), JsonError> {
    if field.replace(value).is_some() { Err(JsonError::Repeated) } else { Ok(()) }
}

fn version(value: &Value<'_>) -> Result<Option<ServerVersion>, JsonError> {
    let text = value.text()?.raw();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let mut numbers = text.get(..end).unwrap_or_default().split('.').map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    Ok((|| Some(ServerVersion { major: next()?, minor: next()?, patch: next()? }))())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: &str = r#"{"server_id":"N","server_name":"N","version":"2.14.6","proto":1,"go":"go1.25","host":"0.0.0.0","port":4222,
        "headers":true,"auth_required":true,"tls_required":true,"max_payload":1048576,"jetstream":true,"client_id":5,"api_lvl":4,"xkey":"X"}"#;

    fn facts(text: &str) -> Result<ServerFacts, InfoError> {
        read(text.as_bytes())
    }

    #[test]
    fn each_start_of_a_server_is_another_one_and_one_of_a_cluster_says_so() {
        let of = |more: &str| read(format!(r#"{{"headers":true,"max_payload":1{more}}}"#).as_bytes()).unwrap();
        let (first, second, unnamed) = (of(r#","server_id":"NA""#), of(r#","server_id":"NB""#), of(""));
        assert!(first.started.is_some() && first.started != second.started && unnamed.started.is_none());
        assert_eq!(first.started, of(r#","server_id":"NA","cluster":"c""#).started);
        assert!(of(r#","cluster":"c""#).is_clustered && !of(r#","cluster":"""#).is_clustered && !first.is_clustered);
    }

    #[test]
    fn an_info_of_the_pinned_broker_is_read() {
        let version = Some(ServerVersion { major: 2, minor: 14, patch: 6 });
        let expected = ServerFacts {
            max_payload_bytes: 1_048_576,
            protocol: 1,
            auth_required: true,
            jetstream: true,
            version,
            started: Some(hash_of("N")),
            is_clustered: false,
        };
        assert_eq!(facts(REAL), Ok(expected));
    }

    #[test]
    fn fields_that_are_not_known_may_hold_anything_at_any_depth() {
        let deep = format!("{}{}", "[".repeat(3_000), "]".repeat(3_000));
        let objects = format!("{}1{}", "{\"a\":".repeat(1_000), "}".repeat(1_000));
        for more in [&*deep, &objects, "[]", "{}", "null", "-1.5e9", r#"["a",{"b":[true,false,{"c":{}}]}]"#, r#""\u00e9\n""#] {
            let text = format!(r#"{{"x":{more},"headers":true,"max_payload":9,"x":{more},"ldm":true,"connect_urls":["10.0.0.1:4222"]}}"#);
            assert_eq!(facts(&text).map(|facts| facts.max_payload_bytes), Ok(9), "{more:.60}");
        }
        let many: String = (0..900).map(|n| format!(r#""f{n}":0,"#)).collect();
        assert!(facts(&format!(r#"{{{many}"headers":true,"max_payload":9}}"#)).is_ok());
    }

    #[test]
    fn what_counts_must_be_there_once_and_of_its_type() {
        use InfoError::{Malformed, NoHeaders, NoMaxPayload};
        let table = [
            (r#"{}"#, NoHeaders),
            (r#"{"headers":false,"max_payload":9}"#, NoHeaders),
            (r#"{"headers":true}"#, NoMaxPayload),
            (r#"{"headers":true,"max_payload":0}"#, NoMaxPayload),
            (r#"{"headers":true,"max_payload":-1}"#, Malformed),
            (r#"{"headers":true,"max_payload":1.5}"#, Malformed),
            (r#"{"headers":true,"max_payload":"9"}"#, Malformed),
            (r#"{"headers":true,"max_payload":18446744073709551616}"#, Malformed),
            (r#"{"headers":true,"max_payload":9,"max_payload":9}"#, Malformed),
            (r#"{"headers":true,"max_payload":9,"max\u005fpayload":10}"#, Malformed),
            (r#"{"headers":1,"max_payload":9}"#, Malformed),
            (r#"{"headers":true,"max_payload":9,"version":2}"#, Malformed),
            (r#"{"headers":true,"max_payload":9,"x":[}"#, Malformed),
            (r#"{"headers":true,"max_payload":9} {}"#, Malformed),
            ("", Malformed),
        ];
        for (text, expected) in table {
            assert_eq!(facts(text), Err(expected), "{text}");
        }
        assert_eq!(read(b"{\"headers\":true,\"max_payload\":9,\"x\":\"\xff\"}"), Err(Malformed));
    }

    #[test]
    fn a_version_is_three_numbers_or_nothing() {
        let version = |text: &str| facts(&format!(r#"{{"headers":true,"max_payload":9,"version":"{text}"}}"#)).unwrap().version;
        let read = |text: &str| version(text).map(|version| (version.major, version.minor, version.patch));
        assert_eq!((read("2.14.6"), read("2.15.0-dev"), read("3.0.1+x")), (Some((2, 14, 6)), Some((2, 15, 0)), Some((3, 0, 1))));
        for text in ["", "2", "2.14", "v2.14.6", "2..6", "2.14.99999999999", r"\u0032"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
