//! Manifest text: bounded and free of anchors before the YAML parser sees it, strict afterwards (B-012 to B-014).

use serde::Deserialize;

use super::place::{locate, locate_odd_number};
use super::{BridgeManifest, MANIFEST_VERSION, ManifestError};
use crate::limits;

impl BridgeManifest {
    /// Reads and validates a manifest.
    ///
    /// # Errors
    /// [`ManifestError`], with line and column where the parser knows them.
    pub fn from_yaml(text: &str) -> Result<Self, ManifestError> {
        let bytes = text.len() as u64;
        if bytes > limits::MANIFEST_BYTES.max {
            let cap = limits::MANIFEST_BYTES.max;
            return Err(ManifestError::parse(format!("its {bytes} bytes: exceeds cap of {cap} bytes; split the bridge")));
        }
        refuse_anchors(text)?;
        let manifest: Self = parse(text).map_err(|error| version_of(text).map_or_else(|| told(&error, text), ManifestError::Version))?;
        manifest.check(|place| locate(text, place))?;
        Ok(manifest)
    }

    /// Writes a valid manifest as text that [`BridgeManifest::from_yaml`] reads as the same value.
    ///
    /// # Errors
    /// [`ManifestError`] when the value breaks a rule.
    pub fn to_yaml(&self) -> Result<String, ManifestError> {
        self.validate()?;
        render(self)
    }
}

/// The text of a manifest, valid or not.
pub(super) fn render(manifest: &BridgeManifest) -> Result<String, ManifestError> {
    // Everything quoted: no value can then be taken for a number, a boolean, a comment or a block.
    let options = serde_saphyr::ser_options! { quote_all: true, prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(manifest, options).map_err(|error| ManifestError::parse(format!("cannot be written: {error}")))
}

/// `&` or `*` before a name, anywhere: in a comment or in quotes it is harmless, but telling the two apart would take the parser
/// that this guard protects.
fn refuse_anchors(text: &str) -> Result<(), ManifestError> {
    for (number, line) in (1_u64..).zip(text.lines()) {
        let mut pairs = line.bytes().zip(line.bytes().skip(1));
        let found =
            pairs.position(|(mark, next)| matches!(mark, b'&' | b'*') && (next.is_ascii_alphanumeric() || matches!(next, b'_' | b'-')));
        if let Some(at) = found {
            let problem = "anchors and aliases (`&name`, `*name`) are refused, even in quotes and comments; write the value out".to_owned();
            return Err(ManifestError::Parse { problem, line: Some(number), column: Some(at as u64 + 1) });
        }
    }
    Ok(())
}

pub(super) fn parse<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, serde_saphyr::Error> {
    let budget = serde_saphyr::budget! { max_documents: 1, max_anchors: 0, max_aliases: 0, max_depth: 16 };
    let options = serde_saphyr::options! {
        budget: budget,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        merge_keys: serde_saphyr::MergeKeyPolicy::Error,
        strict_booleans: true,
        // Text that other readers would take for a number or a boolean stands in quotes.
        no_schema: true,
    };
    serde_saphyr::from_str_with_options(text, options)
}

fn told(error: &serde_saphyr::Error, text: &str) -> ManifestError {
    let error = error.without_snippet();
    // The parser does not know the place of a value that a field's own reader refuses.
    let refused = matches!(error, serde_saphyr::Error::SerdeInvalidType { .. } | serde_saphyr::Error::SerdeInvalidValue { .. });
    let odd = if refused { locate_odd_number(text) } else { None };
    let (line, column) = odd.or_else(|| error.location().map(|place| (place.line(), place.column()))).unzip();
    ManifestError::Parse { problem: words(error).replace(['\n', '\r'], " "), line, column }
}

/// What the parser found, in the words of a manifest and without the place, which is told beside it.
fn words(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error {
        Error::Eof { .. } => "the text ends here, and a manifest begins with `manifest_version: 1`".to_owned(),
        Error::Unexpected { expected: "mapping start", .. } => "fields are expected here, one `name: value` a line".to_owned(),
        Error::Unexpected { expected: "sequence start", .. } => "a list is expected here, each item after `- `".to_owned(),
        Error::Unexpected { expected: "string scalar", .. } => "text is expected here".to_owned(),
        Error::NullIntoString { .. } => "nothing is given, and text is needed".to_owned(),
        Error::QuotingRequired { value, .. } => {
            format!("text is needed, and this could be read as something else; put it in quotes: \"{value}\"")
        }
        Error::DuplicateMappingKey { key, .. } => format!("`{}` is given twice; keep one", key.as_deref().unwrap_or("a field")),
        Error::MultipleDocuments { .. } => "a second document begins here; a manifest is one".to_owned(),
        Error::Budget { .. } => "this is more than a manifest needs: one document, at most 16 levels deep".to_owned(),
        other => {
            let text = other.to_string();
            let place = other.location().map(|place| format!(" at line {}, column {}", place.line(), place.column()));
            place.and_then(|place| text.strip_suffix(&place)).unwrap_or(&text).to_owned()
        }
    }
}

/// The version of a text that does not parse as ours: a newer form is worth a better answer than its first unknown field.
fn version_of(text: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Version {
        manifest_version: u64,
    }
    parse::<Version>(text).ok().map(|version| version.manifest_version).filter(|version| *version != u64::from(MANIFEST_VERSION))
}
