//! What the first bytes of a component's file say, before anything is compiled.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::problem::Fault;
use super::section::{Report, Spanned};
use crate::component_file;

/// Magic, version and layer of a binary.
const HEAD_BYTES: usize = 8;
const MAGIC: &[u8] = b"\0asm";
/// Version, then layer: a component.
const COMPONENT: &[u8] = &[0x0d, 0, 1, 0];
/// Layer of a core module, whatever its version.
const MODULE_LAYER: &[u8] = &[0, 0];

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Component,
    CoreModule,
    OtherVersion,
    NotWasm,
}

fn encoding_of(head: &[u8]) -> Encoding {
    match head.strip_prefix(MAGIC) {
        Some(COMPONENT) => Encoding::Component,
        Some([_, _, layer @ ..]) if layer == MODULE_LAYER => Encoding::CoreModule,
        Some([_, _, _, _]) => Encoding::OtherVersion,
        _ => Encoding::NotWasm,
    }
}

/// Reports a file that is missing or no component.
pub(super) fn check(report: &mut Report<'_>, component: &Spanned<PathBuf>) {
    let file = || component.value.display().to_string();
    let fault = match head_of(&component.value).map(|head| encoding_of(&head)) {
        Ok(Encoding::Component) => return,
        Ok(Encoding::CoreModule) => Fault::CoreModule { file: file() },
        Ok(Encoding::OtherVersion) => Fault::ComponentVersion { file: file() },
        Ok(Encoding::NotWasm) => Fault::NotWasm { file: file() },
        Err(error) => Fault::Component { file: file(), reason: error.to_string() },
    };
    report.push(component.at, fault);
}

/// The first bytes, or as many as there are.
fn head_of(path: &Path) -> io::Result<Vec<u8>> {
    let (file, _) = component_file::open(path)?;
    let mut head = Vec::with_capacity(HEAD_BYTES);
    file.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_tell_a_component_from_everything_else() {
        let cases: [(&[u8], Encoding); 8] = [
            (b"\0asm\x0d\0\x01\0", Encoding::Component),
            (b"\0asm\x01\0\0\0", Encoding::CoreModule),
            (b"\0asm\x0a\0\x01\0", Encoding::OtherVersion),
            (b"\0asm\x0d\0\x02\0", Encoding::OtherVersion),
            (b"\0asm\x0d\0\x01", Encoding::NotWasm),
            (b"\0asm", Encoding::NotWasm),
            (b"", Encoding::NotWasm),
            (b"(compone", Encoding::NotWasm),
        ];
        for (head, encoding) in cases {
            assert_eq!(encoding_of(head), encoding, "{head:?}");
        }
    }
}
