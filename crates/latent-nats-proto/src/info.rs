//! What the broker says of itself. Addresses that it offers, redirects and hints to go elsewhere are not even read.

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
    })
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
