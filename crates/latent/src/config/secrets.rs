//! `[secrets]`.

use std::path::Path;

use super::problem::Fault;
use super::section::{Report, Section};
use super::settings::{KeySource, SecretsConfig};

const DIRECTORY: &str = "secrets";
const EITHER: &str = "key_file = \"secrets.key\", or key_credential = \"NAME\" where systemd gives the key";

/// Reads the table. Without a directory of its own the store lies in the data directory.
pub(super) fn read(report: &mut Report<'_>, section: Option<Section<'_>>, folder: &Path, data_dir: Option<&Path>) -> Option<SecretsConfig> {
    let mut section = section?;
    let directory = given(report, &mut section, "directory", "directory = \"secrets\"");
    let key_file = given(report, &mut section, "key_file", EITHER);
    let key_credential = given(report, &mut section, "key_credential", EITHER);
    let (file_stands, credential_stands) = (section.is_present("key_file"), section.is_present("key_credential"));
    let label = section.label().to_owned();
    match (file_stands, credential_stands) {
        (true, true) => {
            let fault = Fault::Exclusive { table: label, first: "key_file", second: "key_credential" };
            report.push(section.place_of("key_credential"), fault);
        }
        (false, false) => report.push(section.place_of("key_file"), Fault::Missing { table: label, key: "key_file", example: EITHER }),
        _ => {}
    }
    section.finish(report, &[]);
    let key = key_file.map(|file| KeySource::File(folder.join(file))).or(key_credential.map(KeySource::Credential))?;
    let directory = directory.map(|directory| folder.join(directory)).or_else(|| data_dir.map(|dir| dir.join(DIRECTORY)))?;
    Some(SecretsConfig { directory, key })
}

/// A text that is not empty, if the key is there.
fn given(report: &mut Report<'_>, section: &mut Section<'_>, key: &'static str, example: &'static str) -> Option<String> {
    let text = section.text(report, key)?;
    if text.value.is_empty() {
        report.push(text.at, Fault::Empty { table: section.label().to_owned(), key, example });
        return None;
    }
    Some(text.value.to_owned())
}
