//! The file of one secret: what may be told of it as lines, then the sealed value. The lines are the associated data, byte for
//! byte, so a value that was moved to other lines does not open.

use latent_core::{ProviderId, TenantId, UnixMillis};
use zeroize::Zeroizing;

use crate::binding::is_stored_server_name;
use crate::seal::{self, Nonce};
use crate::{SealingKey, SecretInfo, SecretName, SecretProtocol, SecretPurpose};

const FORMAT: &str = "latent-secret 1";
const NEVER: &str = "never";
const SEALED: &str = "\nsealed ";

/// The file for a secret. `value` is `None` for one that is revoked: then nothing is sealed, and the lines are proved all the same.
pub(crate) fn encode(key: &SealingKey, nonce: &Nonce, info: &SecretInfo, value: Option<&[u8]>) -> Option<Vec<u8>> {
    let lines = lines(info);
    let text = match value {
        Some(value) => seal::padded(value)?,
        None => Zeroizing::new(Vec::new()),
    };
    let sealed = seal::seal(key, nonce, lines.as_bytes(), text)?;
    Some(format!("{lines}sealed {sealed}\n").into_bytes())
}

/// What is in a file, before it is believed.
#[derive(Debug)]
pub(crate) struct Sealed<'a> {
    lines: &'a str,
    sealed: &'a str,
    info: SecretInfo,
}

/// Reads a file. Every file but those that [`encode`] makes is refused.
pub(crate) fn decode<'a>(name: &SecretName, content: &'a [u8]) -> Result<Sealed<'a>, &'static str> {
    let text = std::str::from_utf8(content).map_err(|_| "it is not text")?;
    let end = text.find(SEALED).ok_or("its sealed value is missing")?;
    let (lines_of_text, rest) = text.split_at(end + 1);
    let sealed = rest.strip_prefix("sealed ").and_then(|rest| rest.strip_suffix('\n')).ok_or("its end is missing")?;
    let info = parse(lines_of_text).ok_or("its lines are not those of a secret of format version 1")?;
    // One form only: a line that reads the same and is written differently was not written here.
    if lines(&info) != lines_of_text {
        return Err("its lines are not written as a secret's are");
    }
    if info.name != *name {
        return Err("it is the file of another secret");
    }
    Ok(Sealed { lines: lines_of_text, sealed, info })
}

impl Sealed<'_> {
    /// Proves the lines and opens the value; `None` under another key, or when anything was changed.
    pub(crate) fn open(self, key: &SealingKey) -> Option<(SecretInfo, Zeroizing<Vec<u8>>)> {
        let text = seal::unseal(key, self.lines.as_bytes(), self.sealed)?;
        let whole = if self.info.revoked { text.is_empty() } else { seal::value_of(&text).is_some() };
        whole.then_some((self.info, text))
    }
}

fn lines(info: &SecretInfo) -> String {
    let SecretInfo { name, purpose, tenant, provider, protocol, server_name, port, version, written, expires, revoked } = info;
    let expires = expires.map_or_else(|| NEVER.to_owned(), |at| at.to_string());
    let state = state_word(*revoked);
    format!(
        "{FORMAT}\nname {name}\npurpose {purpose}\ntenant {tenant}\nprovider {provider}\nprotocol {protocol}\nserver-name {server_name}\n\
         port {port}\nversion {version}\nstate {state}\nwritten {written}\nexpires {expires}\n"
    )
}

fn parse(text: &str) -> Option<SecretInfo> {
    let mut lines = text.strip_prefix(FORMAT)?.strip_prefix('\n')?.lines();
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let info = SecretInfo {
        name: SecretName::parse(field("name")?).ok()?,
        purpose: SecretPurpose::parse(field("purpose")?)?,
        tenant: TenantId::parse(field("tenant")?).ok()?,
        provider: ProviderId::parse(field("provider")?).ok()?,
        protocol: SecretProtocol::parse(field("protocol")?)?,
        server_name: field("server-name").filter(|text| is_stored_server_name(text))?.to_owned(),
        port: field("port")?.parse().ok()?,
        version: field("version")?.parse().ok()?,
        revoked: [false, true].into_iter().zip([field("state")?; 2]).find(|(revoked, word)| state_word(*revoked) == *word)?.0,
        written: UnixMillis(field("written")?.parse().ok()?),
        expires: match field("expires")? {
            NEVER => None,
            at => Some(UnixMillis(at.parse().ok()?)),
        },
    };
    lines.next().is_none().then_some(info)
}

const fn state_word(revoked: bool) -> &'static str {
    if revoked { "revoked" } else { "stored" }
}
