//! The file `host/clock`: what the clock said when it was last believed, and whether it still was.
//!
//! Five lines, the last two only where they apply, in this order; times are milliseconds, of the wall clock since 1970 and of
//! `steady` since the machine's start:
//!
//! ```text
//! believed-from <time>
//! believed-to <time>|open
//! seen <time>
//! steady <boot, 32 hexadecimal digits> <time>
//! held-since <time>
//! ```

use latent_core::{MonoTime, UnixMillis};
use latent_node::{BootId, ClockRecord, Remembered};

use super::checked_lines::Form;
use super::files::{HostFileError, HostFiles};

const NAME: &str = "clock";
const FORM: Form = Form { kind: "latent-clock", version: 1 };

/// What an earlier process left, and why it cannot be relied on if it cannot.
///
/// # Errors
/// [`HostFileError::Io`].
pub(super) fn read(files: &HostFiles) -> Result<(Remembered, Option<HostFileError>), HostFileError> {
    let content = match files.read(NAME) {
        Ok(content) => content,
        Err(damaged @ HostFileError::Damaged { .. }) => return Ok((Remembered::Damaged, Some(damaged))),
        Err(error) => return Err(error),
    };
    let Some(content) = content else { return Ok((Remembered::Nothing, None)) };
    let lines = match FORM.decode(&content) {
        Ok(lines) => lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>(),
        Err(problem) => return Ok((Remembered::Damaged, Some(files.damaged(NAME, &problem)))),
    };
    Ok(parse(&lines).map_or_else(
        || {
            let problem = "its lines are not those of a clock".to_owned();
            (Remembered::Damaged, Some(HostFileError::Damaged { file: files.path(NAME), problem }))
        },
        |record| (Remembered::Record(record), None),
    ))
}

/// Keeps a record for the next process.
///
/// # Errors
/// [`HostFileError::Io`].
pub(super) fn write(files: &HostFiles, record: &ClockRecord) -> Result<(), HostFileError> {
    files.replace(NAME, &FORM.encode(lines_of(record)))
}

fn lines_of(record: &ClockRecord) -> Vec<String> {
    let ClockRecord { believed_from, believed_to, seen, steady, held_since } = record;
    let to = believed_to.map_or_else(|| "open".to_owned(), |to| to.to_string());
    let mut lines = vec![format!("believed-from {believed_from}"), format!("believed-to {to}"), format!("seen {seen}")];
    lines.extend(steady.map(|(BootId(boot), at)| format!("steady {boot:032x} {}", at.as_micros() / 1_000)));
    lines.extend(held_since.map(|since| format!("held-since {since}")));
    lines
}

fn parse(lines: &[&str]) -> Option<ClockRecord> {
    let (required, optional) = lines.split_at_checked(3)?;
    let [from, to, seen] = required else { return None };
    let (steady, held) = match optional {
        [] => (None, None),
        [steady] if steady.starts_with("steady ") => (Some(steady), None),
        [held] => (None, Some(held)),
        [steady, held] => (Some(steady), Some(held)),
        _ => return None,
    };
    let to = to.strip_prefix("believed-to ")?;
    Some(ClockRecord {
        believed_from: time(from, "believed-from ")?,
        believed_to: if to == "open" { None } else { Some(time(to, "")?) },
        seen: time(seen, "seen ")?,
        steady: steady.map_or(Some(None), |line| steady_of(line).map(Some))?,
        held_since: held.map_or(Some(None), |line| time(line, "held-since ").map(Some))?,
    })
}

fn steady_of(line: &str) -> Option<(BootId, MonoTime)> {
    let (boot, at) = line.strip_prefix("steady ")?.split_once(' ')?;
    let boot = u128::from_str_radix(boot, 16).ok().filter(|_| boot.len() == 32)?;
    Some((BootId(boot), MonoTime::from_millis(time(at, "")?.0)))
}

fn time(line: &str, prefix: &str) -> Option<UnixMillis> {
    line.strip_prefix(prefix)?.parse().ok().map(UnixMillis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: UnixMillis = UnixMillis(1_800_000_000_000);

    fn records() -> Vec<ClockRecord> {
        let plain = ClockRecord { believed_from: SEEN, believed_to: Some(SEEN), seen: SEEN, steady: None, held_since: None };
        let steady = Some((BootId(0xab), MonoTime::from_millis(7)));
        vec![
            plain,
            ClockRecord { believed_to: None, steady, ..plain },
            ClockRecord { held_since: Some(UnixMillis(9)), ..plain },
            ClockRecord { steady, held_since: Some(UnixMillis(9)), ..plain },
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let files = HostFiles::below(temp.path());
        assert_eq!(read(&files), Ok((Remembered::Nothing, None)));
        for record in records() {
            write(&files, &record).unwrap();
            assert_eq!(read(&files), Ok((Remembered::Record(record), None)));
        }
    }

    #[test]
    fn the_example_of_the_page_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let files = HostFiles::below(temp.path());
        let page = include_str!("../../../../docs/formats/host-files.md");
        let example = page.split("```\n").find(|block| block.starts_with("latent-clock ")).unwrap();
        files.replace(NAME, example.as_bytes()).unwrap();
        let (Remembered::Record(record), None) = read(&files).unwrap() else { panic!("it is not read") };
        assert!(record.steady.is_some() && record.held_since.is_some());
    }

    #[test]
    fn what_is_not_whole_is_damaged_and_says_why() {
        let temp = tempfile::tempdir().unwrap();
        let files = HostFiles::below(temp.path());
        let whole = lines_of(&records()[3]);
        let mut cases: Vec<_> = (0..3)
            .map(|without| {
                let mut lines = whole.clone();
                lines.remove(without);
                lines
            })
            .collect();
        cases.extend((0..5).map(|changed| {
            let mut lines = whole.clone();
            lines[changed].push('x');
            lines
        }));
        cases.push([&whole[..], &whole[4..]].concat());
        cases.push(vec![whole[1].clone(), whole[0].clone(), whole[2].clone()]);
        for lines in cases {
            files.replace(NAME, &FORM.encode(&lines)).unwrap();
            let (remembered, why) = read(&files).unwrap();
            assert_eq!((remembered, why.unwrap().kind()), (Remembered::Damaged, "host-file-damaged"), "{lines:?}");
        }
        for content in [&b""[..], b"latent-clock 2\nend\n"] {
            files.replace(NAME, content).unwrap();
            assert!(matches!(read(&files), Ok((Remembered::Damaged, Some(_)))));
        }
    }
}
