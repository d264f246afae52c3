//! The file `host/revocations`: what was revoked on this data directory, whatever its configuration says.
//!
//! One line for each revocation: `<service> <digest> whole` or `<service> <digest> tenant <tenant>`. A node that cannot read it does not start: it
//! would forget what was revoked.

use latent_core::{ComponentDigest, ServiceName, TenantId};
use latent_node::{NotKept, Noted, Revocation, RevocationList, RevocationRecord, RevocationScope};

use super::checked_lines::{Form, Malformed};
use super::files::{HostFileError, HostFiles};

const NAME: &str = "revocations";
const FORM: Form = Form { kind: "latent-revocations", version: 1 };

/// Everything that was revoked; nothing when there is no file.
///
/// # Errors
/// [`HostFileError`]: it cannot be read, or not be relied on.
pub(crate) fn read_revocations(files: &HostFiles) -> Result<RevocationList, HostFileError> {
    let mut list = RevocationList::default();
    let Some(content) = files.read(NAME)? else { return Ok(list) };
    let damaged = |problem: String| HostFileError::Damaged { file: files.path(NAME), problem };
    for (number, line) in FORM.decode(&content).map_err(|problem: Malformed| files.damaged(NAME, &problem))? {
        let revocation = parse(line).ok_or_else(|| damaged(format!("line {number} is no revocation")))?;
        match list.insert(revocation) {
            Ok(Noted::New) => {}
            Ok(Noted::Known) => return Err(damaged(format!("line {number} says again what another line says"))),
            Err(error) => return Err(damaged(error.to_string())),
        }
    }
    Ok(list)
}

fn parse(line: &str) -> Option<Revocation> {
    let words: Vec<_> = line.split(' ').collect();
    let (service, digest, scope) = match *words {
        [service, digest, "whole"] => (service, digest, RevocationScope::Whole),
        [service, digest, "tenant", tenant] => (service, digest, RevocationScope::Tenant(TenantId::parse(tenant).ok()?)),
        _ => return None,
    };
    Some(Revocation { service: ServiceName::parse(service).ok()?, digest: ComponentDigest::parse(digest).ok()?, scope })
}

fn line_of(revocation: &Revocation) -> String {
    let Revocation { service, digest, scope } = revocation;
    match scope {
        RevocationScope::Whole => format!("{service} {digest} whole"),
        RevocationScope::Tenant(tenant) => format!("{service} {digest} tenant {tenant}"),
    }
}

/// Keeps a catalog's list in the file.
#[derive(Debug, Clone)]
pub(crate) struct RevocationFile(pub(crate) HostFiles);

impl RevocationRecord for RevocationFile {
    fn keep(&self, list: &RevocationList) -> Result<(), NotKept> {
        let content = FORM.encode(list.iter().map(|revocation| line_of(&revocation)));
        self.0.replace(NAME, &content).map_err(|error| match error {
            HostFileError::Io { operation, file, reason } => NotKept::Io { operation, file: file.display().to_string(), reason },
            HostFileError::Damaged { file, problem } => {
                NotKept::Io { operation: "replacing", file: file.display().to_string(), reason: problem }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use latent_node::limits::REVOCATIONS;

    use super::super::files::faults::{CALLS, Faulty};
    use super::*;

    fn revocation(component: u64, tenant: Option<&str>) -> Revocation {
        let scope = tenant.map_or(RevocationScope::Whole, |tenant| RevocationScope::Tenant(TenantId::parse(tenant).unwrap()));
        let digest = ComponentDigest::of(&component.to_le_bytes());
        Revocation { service: ServiceName::parse("triage").unwrap(), digest, scope }
    }

    fn list(revocations: impl IntoIterator<Item = Revocation>) -> RevocationList {
        let mut list = RevocationList::default();
        revocations.into_iter().for_each(|revocation| _ = list.insert(revocation).unwrap());
        list
    }

    #[test]
    fn what_is_kept_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let files = HostFiles::below(temp.path());
        assert_eq!(read_revocations(&files), Ok(RevocationList::default()));
        let lists = [
            list([revocation(1, None), revocation(2, Some("acme")), revocation(2, Some("*")), revocation(2, Some("whole"))]),
            list((0..REVOCATIONS.max).map(|component| revocation(component, None))),
        ];
        for list in lists {
            RevocationFile(files.clone()).keep(&list).unwrap();
            assert_eq!(read_revocations(&files), Ok(list));
        }
    }

    #[test]
    fn the_example_of_the_page_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let files = HostFiles::below(temp.path());
        let page = include_str!("../../../../docs/formats/host-files.md");
        let example = page.split("```\n").find(|block| block.starts_with("latent-revocations ")).unwrap();
        files.replace(NAME, example.as_bytes()).unwrap();
        assert_eq!(read_revocations(&files).unwrap().len(), 2);
    }

    #[test]
    fn the_longest_list_fits_the_file() {
        let longest = "s".repeat(latent_core::limits::NAME_BYTES.max_usize());
        let line = format!("00000000 {longest} {} tenant {longest}\n", ComponentDigest::of(b""));
        assert!(line.len() as u64 * REVOCATIONS.max < crate::limits::HOST_FILE_BYTES.max);
    }

    #[test]
    fn a_file_that_is_not_whole_is_refused_with_its_line() {
        let temp = tempfile::tempdir().unwrap();
        let files = HostFiles::below(temp.path());
        let digest = ComponentDigest::of(b"");
        let line = |line: String| FORM.encode([format!("triage {digest} tenant acme"), line]);
        let cases = [
            (line(format!("triage {digest}")), "line 3 is no revocation"),
            (line(format!("triage {digest} tenant")), "line 3 is no revocation"),
            (line(format!("triage {digest} whole more")), "line 3 is no revocation"),
            (line(format!("triage {digest} tenant acme more")), "line 3 is no revocation"),
            (line(format!("tri/age {digest} whole")), "line 3 is no revocation"),
            (line("triage sha256:00 whole".to_owned()), "line 3 is no revocation"),
            (line(format!("triage {digest} tenant ")), "line 3 is no revocation"),
            (line(format!("triage {digest} tenant acme")), "line 3 says again what another line says"),
            (FORM.encode((0..=REVOCATIONS.max).map(|component| line_of(&revocation(component, None)))), "revocations is 4097"),
            (b"latent-revocations 2\nend\n".to_vec(), "its first line is"),
            (b"".to_vec(), "its first line is"),
        ];
        for (content, problem) in cases {
            files.replace(NAME, &content).unwrap();
            let error = read_revocations(&files).unwrap_err();
            assert!(error.kind() == "host-file-damaged" && error.to_string().contains(problem), "{error}");
        }
    }

    #[test]
    fn whichever_call_fails_the_revocation_is_told_as_not_kept_and_earlier_ones_stay() {
        for calls in 0..CALLS {
            let temp = tempfile::tempdir().unwrap();
            let sound = HostFiles::below(temp.path());
            let (old, new) = (list([revocation(1, None)]), list([revocation(1, None), revocation(2, None)]));
            RevocationFile(sound.clone()).keep(&old).unwrap();
            let failing = RevocationFile(HostFiles::with_storage(temp.path(), Faulty::after(calls)));
            assert!(matches!(failing.keep(&new), Err(NotKept::Io { .. })), "{calls}");
            let kept = read_revocations(&sound).unwrap();
            assert!(kept == old || kept == new, "{calls}: {kept:?}");
            RevocationFile(sound.clone()).keep(&new).unwrap();
            assert_eq!(read_revocations(&sound), Ok(new));
        }
    }
}
