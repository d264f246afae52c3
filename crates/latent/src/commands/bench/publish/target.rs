//! The broker that is measured against, as it is given on the command line.

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use clap::Args;
use zeroize::Zeroizing;

use crate::error::CliError;

/// Which broker, and as whom. All of it is needed; what is missing is told together with who gives it.
#[derive(Debug, Args)]
pub(in super::super) struct TargetArgs {
    /// The broker's socket; TLS comes first there
    #[arg(long, value_name = "IP:PORT")]
    address: Option<SocketAddrV4>,
    /// The name that its certificate is for
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// The root that it is certified by, in DER form
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// A user of the broker
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Holds the user's password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Where it is published
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,
    /// The stream that stores the subject
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
}

/// A broker and a user of it.
pub(in super::super) struct Target {
    pub(in super::super) address: SocketAddrV4,
    pub(in super::super) server_name: String,
    pub(in super::super) root: Vec<u8>,
    pub(in super::super) user: String,
    pub(in super::super) password: Zeroizing<String>,
    pub(in super::super) subject: String,
    pub(in super::super) stream: String,
}

impl TargetArgs {
    /// Whether one is named at all.
    pub(in super::super) const fn is_given(&self) -> bool {
        self.address.is_some()
    }

    /// Reads the files. `starter` is the command that starts a broker and gives everything.
    pub(in super::super) fn read(&self, starter: &str) -> Result<Target, CliError> {
        let root = given(self.root.as_deref(), "--root", starter)?;
        let password = given(self.password_file.as_deref(), "--password-file", starter)?;
        let target = Target {
            address: *given(self.address.as_ref(), "--address", starter)?,
            server_name: given(self.server_name.as_ref(), "--server-name", starter)?.clone(),
            root: fs::read(root).map_err(unreadable("--root", root))?,
            user: given(self.user.as_ref(), "--user", starter)?.clone(),
            password: Zeroizing::new(fs::read_to_string(password).map_err(unreadable("--password-file", password))?),
            subject: given(self.subject.as_ref(), "--subject", starter)?.clone(),
            stream: given(self.stream.as_ref(), "--stream", starter)?.clone(),
        };
        // An editor ends the file's one line.
        let password = Zeroizing::new(target.password.trim_end_matches(['\r', '\n']).to_owned());
        Ok(Target { password, ..target })
    }
}

fn given<T>(value: Option<T>, option: &'static str, starter: &str) -> Result<T, CliError> {
    let reason = || format!("it is not given, and no broker is started here; `{starter}` starts the pinned broker and gives everything");
    value.ok_or_else(|| CliError::Value { option, reason: reason() })
}

fn unreadable(option: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> CliError {
    move |error| CliError::Value { option, reason: format!("{}: {error}", path.display()) }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: TargetArgs,
    }

    fn read(words: &[&str]) -> Result<Target, CliError> {
        Words::try_parse_from(["publish"].iter().chain(words)).unwrap().args.read("cargo xtask bench publish")
    }

    #[test]
    fn what_is_missing_is_named_together_with_who_gives_it() {
        match read(&[]).map(|target| target.address) {
            Err(CliError::Value { option, reason }) => assert!(option == "--root" && reason.contains("cargo xtask bench publish")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_password_is_its_files_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let (root, password) = (file("root", "der"), file("password", " a pass word \r\n"));
        let words = ["--address", "127.0.0.1:4222", "--server-name", "n", "--root", &root, "--user", "u", "--password-file", &password];
        let target = read(&[&words[..], &["--subject", "s", "--stream", "S"]].concat()).unwrap();
        assert_eq!((target.password.as_str(), &target.root[..]), (" a pass word ", &b"der"[..]));
        assert!(matches!(read(&words), Err(CliError::Value { option: "--subject", .. })));
    }
}
