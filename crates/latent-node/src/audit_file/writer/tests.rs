use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::*;

/// A disk in memory whose calls fail by number, and of whose failed appends a part is written.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    files: BTreeMap<u64, Vec<u8>>,
    open: Option<u64>,
    calls: usize,
    fails: Option<usize>,
}

impl Disk {
    fn call<T>(&self, step: impl FnOnce(&mut Inner, bool) -> io::Result<T>) -> io::Result<T> {
        let mut inner = self.0.lock().unwrap();
        inner.calls += 1;
        let fails = inner.fails == Some(inner.calls);
        let done = step(&mut inner, fails);
        if fails { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { done }
    }

    fn files(&self) -> BTreeMap<u64, String> {
        let inner = self.0.lock().unwrap();
        inner.files.iter().map(|(number, bytes)| (*number, String::from_utf8(bytes.clone()).unwrap())).collect()
    }

    fn lines(&self) -> Vec<String> {
        self.files().values().flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    fn failing_at(call: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner { fails: Some(call), ..Inner::default() })))
    }
}

impl AuditStorage for Disk {
    fn numbers(&mut self) -> io::Result<Vec<u64>> {
        self.call(|disk, _| Ok(disk.files.keys().copied().collect()))
    }

    fn open(&mut self, number: u64) -> io::Result<Tail> {
        self.call(|disk, fails| {
            disk.open = (!fails).then_some(number);
            let file = disk.files.entry(number).or_default();
            Ok(Tail { bytes: file.len() as u64, torn: file.last().is_some_and(|byte| *byte != b'\n') })
        })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.call(|disk, fails| {
            let written = if fails { bytes.len() / 2 } else { bytes.len() };
            let file = disk.open.and_then(|number| disk.files.get_mut(&number)).ok_or(io::ErrorKind::NotFound)?;
            file.extend_from_slice(&bytes[..written]);
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.call(|_, _| Ok(()))
    }

    fn remove(&mut self, number: u64) -> io::Result<()> {
        self.call(|disk, fails| {
            if !fails {
                disk.files.remove(&number);
            }
            Ok(())
        })
    }
}

/// Three files of at most 20 bytes. The range of the limits is not the writer's business.
fn writer(disk: &Disk) -> Writer<Disk> {
    Writer::new(disk.clone(), AuditFileLimits { files: 3, file_bytes: 20, queue_records: 1 })
}

/// Line number `number`: ten bytes with its newline.
fn line(number: usize) -> String {
    format!("line {number:04}\n")
}

#[test]
fn a_file_is_filled_to_its_bound_and_the_oldest_goes_first() {
    let disk = Disk::default();
    let mut writer = writer(&disk);
    for number in 0..7 {
        writer.write(line(number).as_bytes()).unwrap();
    }
    let files = disk.files();
    assert_eq!(files.keys().copied().collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(disk.lines(), (2..7).map(|number| line(number).trim_end().to_owned()).collect::<Vec<_>>());
}

#[test]
fn a_line_fits_a_file_at_its_edge_and_is_refused_beyond_it() {
    let disk = Disk::default();
    let mut writer = writer(&disk);
    for bytes in [19, 20] {
        assert_eq!(writer.write(format!("{}\n", "x".repeat(bytes - 1)).as_bytes()), Ok(()), "{bytes}");
    }
    let refused = writer.write(format!("{}\n", "x".repeat(20)).as_bytes());
    assert_eq!(refused.map_err(|fault| fault.operation), Err("fit"));
    writer.write(line(1).as_bytes()).unwrap();
    assert_eq!(disk.files().values().map(String::len).collect::<Vec<_>>(), [19, 20, 10]);
}

#[test]
fn the_newest_file_is_continued_and_its_torn_line_is_ended() {
    let disk = Disk::default();
    disk.0.lock().unwrap().files = [(4, b"old\n".to_vec()), (7, b"to".to_vec())].into();
    writer(&disk).write(b"next\n").unwrap();
    assert_eq!(disk.files(), [(4, "old\n".to_owned()), (7, "to\nnext\n".to_owned())].into());
}

#[test]
fn files_beyond_the_bound_are_removed_when_it_shrank() {
    let disk = Disk::default();
    disk.0.lock().unwrap().files = (1..=6).map(|number| (number, b"old\n".to_vec())).collect();
    writer(&disk).write(b"next\n").unwrap();
    assert_eq!(disk.files().keys().copied().collect::<Vec<_>>(), [4, 5, 6]);
}

#[test]
fn whichever_call_fails_one_line_is_lost_and_said_to_be_and_the_next_is_whole() {
    let calls = {
        let disk = Disk::default();
        let mut writer = writer(&disk);
        (0..9).for_each(|number| writer.write(line(number).as_bytes()).unwrap());
        disk.0.lock().unwrap().calls
    };
    for call in 1..=calls {
        let disk = Disk::failing_at(call);
        let mut writer = writer(&disk);
        let results: Vec<_> = (0..9).map(|number| writer.write(line(number).as_bytes())).collect();
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1, "call {call}");
        let (lines, files) = (disk.lines(), disk.files());
        assert!(files.len() <= 3 && files.values().all(|text| text.len() <= 20), "call {call}: {files:?}");
        // The newest lines that were said to be written are there, whole and in order.
        let written: Vec<_> = (0..9).filter(|number| results[*number].is_ok()).map(|number| line(number).trim_end().to_owned()).collect();
        let whole: Vec<_> = lines.into_iter().filter(|found| found.len() == 9).collect();
        assert!(whole.len() >= 3 && written.ends_with(&whole), "call {call}: {whole:?} of {written:?}");
    }
}
