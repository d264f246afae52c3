//! What opens a session: CONNECT, the one subscription, and the PING that proves it. The bytes hold the secret, so they are wiped.

use std::fmt;

use zeroize::Zeroizing;

use crate::limits::{SECRET_BYTES, USER_BYTES};
use crate::link::{PING, SUBSCRIPTION};

/// What a connection authenticates with.
#[derive(Clone, Copy)]
pub enum Credential<'a> {
    /// A user and its password.
    Password {
        /// The user.
        user: &'a str,
        /// The password; UTF-8.
        password: &'a [u8],
    },
    /// A token; UTF-8.
    Token(&'a [u8]),
}

impl fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password { .. } => "Password(..)",
            Self::Token(_) => "Token(..)",
        })
    }
}

/// A credential that cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// Empty, or above its bound.
    #[error("a token or password has {bytes} bytes; 1 to {bytes_max} are allowed")]
    SecretBytes {
        /// Bytes seen.
        bytes: usize,
        /// Bytes allowed.
        bytes_max: usize,
    },
    /// CONNECT is JSON, which has text only.
    #[error("a token or password must be UTF-8")]
    NotText,
    /// Empty, or above its bound.
    #[error("the user name has {bytes} bytes; 1 to {bytes_max} are allowed")]
    UserBytes {
        /// Bytes seen.
        bytes: usize,
        /// Bytes allowed.
        bytes_max: usize,
    },
}

impl Credential<'_> {
    /// Whether it can be sent. For refusing before anything is dialled.
    ///
    /// # Errors
    /// [`CredentialError`] naming the bound.
    pub fn check(&self) -> Result<(), CredentialError> {
        self.texts().map(|_| ())
    }

    /// The user, if there is one, and the secret.
    fn texts(&self) -> Result<(Option<&str>, &str), CredentialError> {
        let (user, secret) = match self {
            Self::Password { user, password } => (Some(*user), *password),
            Self::Token(token) => (None, *token),
        };
        if let Some(user) = user
            && (user.is_empty() || user.len() > USER_BYTES.max_usize())
        {
            return Err(CredentialError::UserBytes { bytes: user.len(), bytes_max: USER_BYTES.max_usize() });
        }
        if secret.is_empty() || secret.len() > SECRET_BYTES.max_usize() {
            return Err(CredentialError::SecretBytes { bytes: secret.len(), bytes_max: SECRET_BYTES.max_usize() });
        }
        let secret = std::str::from_utf8(secret).map_err(|_| CredentialError::NotText)?;
        Ok((user, secret))
    }
}

const BEGIN: &str = concat!(
    "CONNECT {\"verbose\":false,\"pedantic\":false,\"tls_required\":true,\"lang\":\"rust\",\"name\":\"latent\",\"version\":\"",
    env!("CARGO_PKG_VERSION"),
    "\",\"protocol\":1,\"headers\":true,\"no_responders\":true"
);
/// Most bytes that one byte of a text has in JSON: `\u0000`.
const ESCAPED_BYTES_MAX: usize = 6;

/// CONNECT, SUB and PING, in memory that is allocated once and wiped when it is dropped.
pub(crate) fn opening(credential: Credential<'_>, inbox: &[u8]) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
    let (user, secret) = credential.texts()?;
    let texts = ESCAPED_BYTES_MAX * (user.map_or(0, str::len) + secret.len());
    let mut out = Zeroizing::new(Vec::with_capacity(BEGIN.len() + 128 + texts + inbox.len()));
    out.extend_from_slice(BEGIN.as_bytes());
    match user {
        Some(user) => {
            member(&mut out, "user", user);
            member(&mut out, "pass", secret);
        }
        None => member(&mut out, "auth_token", secret),
    }
    out.extend_from_slice(b"}\r\nSUB ");
    out.extend_from_slice(inbox);
    out.extend_from_slice(b"* ");
    out.extend_from_slice(SUBSCRIPTION);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(PING);
    Ok(out)
}

fn member(out: &mut Vec<u8>, name: &str, text: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..=0x1f => {
                let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + (nibble - 10) };
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(credential: Credential<'_>) -> String {
        let out = opening(credential, b"_INBOX.LSF.i.1.").unwrap();
        String::from_utf8(out.to_vec()).unwrap().split("\r\n").next().unwrap().to_owned()
    }

    #[test]
    fn secrets_are_json_texts_whatever_they_hold() {
        let table = [
            ("plain", "plain"),
            ("a\"b\\c", "a\\\"b\\\\c"),
            ("\",\"user\":\"root", "\\\",\\\"user\\\":\\\"root"),
            ("\r\nPUB x 0\r\n", "\\u000d\\u000aPUB x 0\\u000d\\u000a"),
            ("\0\u{1f}\u{7f}", "\\u0000\\u001f\u{7f}"),
            ("pässwörd €😀", "pässwörd €😀"),
        ];
        for (secret, written) in table {
            assert!(connect(Credential::Token(secret.as_bytes())).ends_with(&format!(",\"auth_token\":\"{written}\"}}")), "{secret:?}");
            let password = connect(Credential::Password { user: secret, password: secret.as_bytes() });
            assert!(password.ends_with(&format!(",\"user\":\"{written}\",\"pass\":\"{written}\"}}")), "{secret:?}");
            assert!(!password.contains("auth_token"));
        }
    }

    #[test]
    fn users_are_bounded() {
        let check = |user: &str| Credential::Password { user, password: b"x" }.check();
        assert_eq!(check(&"u".repeat(256)), Ok(()));
        for bytes in [0, 257] {
            assert_eq!(check(&"u".repeat(bytes)), Err(CredentialError::UserBytes { bytes, bytes_max: 256 }));
        }
    }

    #[test]
    fn the_worst_case_is_allocated_once_within_its_bound() {
        use crate::limits::AUTHENTICATION_SCRATCH_BYTES;
        let (user, secret) = ("\0".repeat(256), [0; 4_096]);
        let inbox = [b'i'; crate::inbox::INBOX_BYTES_MAX];
        for credential in [Credential::Password { user: &user, password: &secret }, Credential::Token(&secret)] {
            let (user, secret) = credential.texts().unwrap();
            let texts = ESCAPED_BYTES_MAX * (user.map_or(0, str::len) + secret.len());
            let out = opening(credential, &inbox).unwrap();
            // Growing would have at least doubled it, and left a copy of the secret behind.
            assert!(out.capacity() < BEGIN.len() + 256 + texts + inbox.len(), "{}", out.capacity());
            assert!(out.capacity() <= AUTHENTICATION_SCRATCH_BYTES.max_usize(), "{}", out.capacity());
        }
    }
}
