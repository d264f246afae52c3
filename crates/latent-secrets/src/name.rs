//! The name of a secret: what configuration and commands say instead of the secret.

use std::fmt;
use std::sync::Arc;

use crate::limits::SECRET_NAME_BYTES;

/// A secret's name: letters, digits, `_` and `-`, the first a letter or digit, at most 64 bytes. It is also the name of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Arc<str>);

/// A text that is no name of a secret. It does not say which text: somebody may have written the secret itself there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a secret is letters, digits, `_` and `-`, begins with a letter or digit and has at most {} bytes; \
     what was given is not shown, in case it is the secret itself",
    SECRET_NAME_BYTES.max
)]
pub struct SecretNameError;

impl SecretName {
    /// Checks the rule and keeps the text.
    ///
    /// # Errors
    /// [`SecretNameError`].
    pub fn parse(text: &str) -> Result<Self, SecretNameError> {
        let token = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        let begins = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        if !token || !begins || text.len() > SECRET_NAME_BYTES.max_usize() {
            return Err(SecretNameError);
        }
        Ok(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_token_that_is_safe_as_a_file_and_as_an_argument() {
        for good in ["a", "edge-1-bus", "Acme_trigger", "9", &"x".repeat(63), &"x".repeat(64)] {
            assert_eq!(SecretName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "_a", "a.b", "..", "a/b", "a b", "a\n", "a\0", "é", "p@ss", &"x".repeat(65)] {
            assert_eq!(SecretName::parse(bad), Err(SecretNameError), "{bad:?}");
        }
    }

    #[test]
    fn an_error_does_not_repeat_what_may_be_the_secret() {
        let error = SecretName::parse("hunter2!").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}
