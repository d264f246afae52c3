//! The environment of the bus: which variables there are and what may stand in them (B-047, B-048, D-19). Reads through a function that
//! is given to it, so that nothing here depends on the process's own environment.

use std::ffi::OsString;
use std::path::PathBuf;

use super::options::{NatsCredentials, NatsOptions, NatsRoots};
use crate::BusError;

/// The file of root certificates, in PEM form.
pub(super) const CA_FILE: &str = "AV_NATS_CA_FILE";
/// The user.
pub(super) const USER: &str = "AV_NATS_USER";
/// The user's password.
pub(super) const PASSWORD: &str = "AV_NATS_PASSWORD";
/// Whether TLS comes before anything else: `true` or `false`.
pub(super) const TLS_FIRST: &str = "AV_NATS_TLS_FIRST";

/// The directory of the archive's outbox (B-070).
pub(super) const COLD_OUTBOX_DIR: &str = "AV_COLD_OUTBOX_DIR";

/// `options` with what the variables say.
pub(super) fn read(mut options: NatsOptions, lookup: impl Fn(&str) -> Option<OsString>) -> Result<NatsOptions, BusError> {
    let text = |name: &str| text(name, lookup(name));
    if let Some(path) = text(CA_FILE)? {
        options.roots = NatsRoots::Pem(PathBuf::from(path));
    }
    if let Some(path) = text(COLD_OUTBOX_DIR)? {
        options.archive.get_or_insert_default().outbox = Some(PathBuf::from(path));
    }
    options.credentials = nats_credentials(text(USER)?, text(PASSWORD)?)?;
    options.tls_first = match text(TLS_FIRST)?.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(config(format!("{TLS_FIRST} is {other:?}; write true or false"))),
    };
    Ok(options)
}

/// Both or neither: half a credential is never taken for none.
///
/// # Errors
/// [`BusError::Config`] when one is missing.
pub fn nats_credentials(user: Option<String>, password: Option<String>) -> Result<Option<NatsCredentials>, BusError> {
    match (user, password) {
        (Some(user), Some(password)) => Ok(Some(NatsCredentials::UserPassword { user, password })),
        (None, None) => Ok(None),
        (user, _) => {
            let missing = if user.is_some() { PASSWORD } else { USER };
            Err(config(format!("AV_NATS_USER and AV_NATS_PASSWORD must be set together; {missing} is not set")))
        }
    }
}

fn text(name: &str, value: Option<OsString>) -> Result<Option<String>, BusError> {
    let Some(value) = value else { return Ok(None) };
    if value.is_empty() {
        return Err(empty(name));
    }
    // What is no text is not shown: it may be a password.
    value.into_string().map(Some).map_err(|_| config(format!("{name} is not UTF-8; set it to text, or take it out of the environment")))
}

fn empty(name: &str) -> BusError {
    config(format!("{name} is set and empty; give it a value, or take it out of the environment"))
}

fn config(problem: String) -> BusError {
    BusError::Config { problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(variables: &[(&str, &str)]) -> Result<NatsOptions, BusError> {
        let variables: Vec<(String, OsString)> = variables.iter().map(|(name, value)| ((*name).to_owned(), value.into())).collect();
        NatsOptions::from_lookup("nats://a", |name| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
    }

    fn user(user: &str, password: &str) -> Option<NatsCredentials> {
        Some(NatsCredentials::UserPassword { user: user.to_owned(), password: password.to_owned() })
    }

    #[test]
    fn an_environment_without_variables_asks_for_nothing() {
        let options = read_with(&[]).unwrap();
        assert!(options.credentials.is_none() && options.roots == NatsRoots::System && !options.tls_first);
        assert!(!options.forces_tls(&options.server_addrs().unwrap()));
    }

    #[test]
    fn each_variable_says_its_part() {
        let all = [(CA_FILE, "/x/ca.pem"), (USER, "u"), (PASSWORD, "p"), (TLS_FIRST, "true"), (COLD_OUTBOX_DIR, "/x/outbox")];
        let options = read_with(&all).unwrap();
        assert!(options.credentials == user("u", "p") && options.tls_first);
        assert_eq!(options.roots, NatsRoots::Pem(PathBuf::from("/x/ca.pem")));
        assert_eq!(options.archive.unwrap().outbox, Some(PathBuf::from("/x/outbox")));
        assert!(!read_with(&[(TLS_FIRST, "false")]).unwrap().tls_first);
    }

    /// B-048.
    #[test]
    fn half_a_credential_is_an_error_and_never_none() {
        let some = |text: &str| Some(text.to_owned());
        assert!(nats_credentials(some("u"), some("p")).unwrap() == user("u", "p"));
        assert!(nats_credentials(None, None).unwrap().is_none());
        for half in [[(USER, "u")], [(PASSWORD, "secret")]] {
            let error = read_with(&half).map(drop).unwrap_err();
            assert!(error.to_string().contains("AV_NATS_USER and AV_NATS_PASSWORD must be set together"), "{error}");
            assert!(error.is_permanent() && !error.to_string().contains("secret"));
        }
    }

    /// D-19.
    #[test]
    fn what_is_set_and_empty_or_no_text_is_an_error_and_never_unset() {
        use std::os::unix::ffi::OsStringExt;
        for name in [CA_FILE, USER, PASSWORD, TLS_FIRST, COLD_OUTBOX_DIR] {
            for (value, told) in [(OsString::new(), "set and empty"), (OsString::from_vec(b"secret\xff".to_vec()), "not UTF-8")] {
                let error = NatsOptions::from_lookup("nats://a", |asked| (asked == name).then(|| value.clone())).map(drop).unwrap_err();
                let text = error.to_string();
                assert!(text.contains(name) && text.contains(told) && !text.contains("secret"), "{text}");
                assert!(matches!(error, BusError::Config { .. }));
            }
        }
    }

    #[test]
    fn the_order_of_tls_is_one_of_two_words() {
        for other in ["TRUE", "1", "yes", " true", "no"] {
            let error = read_with(&[(TLS_FIRST, other)]).map(drop).unwrap_err().to_string();
            assert!(error.contains(&format!("AV_NATS_TLS_FIRST is {other:?}; write true or false")), "{error}");
        }
    }
}
