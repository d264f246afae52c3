//! Pages of a run: bytes in, values out; no I/O. `docs/formats/embedded-log.md` has the tables.
//!
//! A page says which page of which run it is, inside its checksum: one that a file system or a copy put in another place is noticed.
//! Pages of entries are sorted by hash, within the page and from page to page.

use super::{UidEntry, UidHash};
use crate::engine::embedded::frame::{Salt, u16_at, u32_at, u64_at};

/// Bytes of every page.
pub(in super::super) const PAGE_BYTES: usize = 4_096;
/// Bytes before a page's content.
pub(in super::super) const PAGE_HEAD_BYTES: usize = 16;
/// Bytes of one entry.
pub(in super::super) const ENTRY_BYTES: usize = 20;
/// Entries of a full page.
pub(in super::super) const PAGE_ENTRIES: usize = (PAGE_BYTES - PAGE_HEAD_BYTES) / ENTRY_BYTES;

/// Byte positions in a page's head.
pub(in super::super) mod page_at {
    pub(in super::super::super) const CRC: usize = 0;
    pub(in super::super::super) const RUN: usize = 4;
    pub(in super::super::super) const PAGE: usize = 8;
    pub(in super::super::super) const COUNT: usize = 12;
    pub(in super::super::super) const ZERO: usize = 14;
}

/// Byte positions in an entry.
pub(in super::super) mod entry_at {
    pub(in super::super::super) const HASH: usize = 0;
    pub(in super::super::super) const SEQUENCE: usize = 8;
    pub(in super::super::super) const AT: usize = 16;
}

/// One page in memory.
pub(super) type PageBytes = [u8; PAGE_BYTES];

/// Which page of which run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageIdentity {
    /// The run's mark, see `header`.
    pub(super) run: u32,
    /// The page's number in the file, counted from 0.
    pub(super) number: u64,
}

impl PageIdentity {
    /// The number as it stands in the page. It is only compared, so that its low half is enough.
    const fn short_number(self) -> u32 {
        (self.number & 0xffff_ffff) as u32
    }
}

/// Appends a page. `content` is at most what a page holds after its head; `count` says how many things are in it.
pub(super) fn seal(salt: Salt, identity: PageIdentity, count: u16, content: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; page_at::RUN]);
    out.extend_from_slice(&identity.run.to_le_bytes());
    out.extend_from_slice(&identity.short_number().to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&[0; PAGE_HEAD_BYTES - page_at::ZERO]);
    out.extend_from_slice(content);
    seal_checksum(salt, start, out);
}

/// Fills what was appended since `start` up to a whole page, and puts the checksum of all but its first four bytes into these.
fn seal_checksum(salt: Salt, start: usize, out: &mut Vec<u8>) {
    out.resize(start.saturating_add(PAGE_BYTES), 0);
    let crc = salt.crc(out.get(start.saturating_add(page_at::RUN)..).unwrap_or_default());
    if let Some(place) = out.get_mut(start..).and_then(|page| page.first_chunk_mut()) {
        *place = crc.to_le_bytes();
    }
}

/// Count and content of a page, or `None` when it is not what was written as this page.
pub(super) fn unseal(salt: Salt, identity: PageIdentity, page: &PageBytes) -> Option<(u16, &[u8])> {
    let valid = u32_at(page, page_at::CRC)? == salt.crc(page.get(page_at::RUN..)?)
        && u32_at(page, page_at::RUN)? == identity.run
        && u32_at(page, page_at::PAGE)? == identity.short_number();
    if !valid {
        return None;
    }
    Some((u16_at(page, page_at::COUNT)?, page.get(PAGE_HEAD_BYTES..)?))
}

impl UidEntry {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash.0.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.at.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            hash: UidHash(u64_at(bytes, entry_at::HASH)?),
            sequence: u64_at(bytes, entry_at::SEQUENCE)?,
            at: u32_at(bytes, entry_at::AT)?,
        })
    }
}

/// A page of entries whose checksum fits.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryPage<'p>(&'p [[u8; ENTRY_BYTES]]);

impl<'p> EntryPage<'p> {
    /// `None` when this is not what was written as this page.
    pub(super) fn open(salt: Salt, identity: PageIdentity, page: &'p PageBytes) -> Option<Self> {
        let (count, content) = unseal(salt, identity, page)?;
        content.as_chunks().0.get(..usize::from(count)).map(Self)
    }

    pub(super) fn entries(self) -> impl Iterator<Item = UidEntry> {
        self.0.iter().filter_map(|bytes| UidEntry::decode(bytes))
    }

    /// Its entries with this hash.
    pub(super) fn matching(self, hash: UidHash) -> impl Iterator<Item = UidEntry> {
        let from = self.0.partition_point(|bytes| hash_of(bytes) < hash);
        let rest = EntryPage(self.0.get(from..).unwrap_or_default());
        rest.entries().take_while(move |entry| entry.hash == hash)
    }

    /// True when entries with this hash may go on in the next page: an entry is there only if it did not fit here.
    pub(super) fn may_go_on(self, hash: UidHash) -> bool {
        self.0.len() == PAGE_ENTRIES && self.0.last().is_some_and(|last| hash_of(last) <= hash)
    }
}

fn hash_of(entry: &[u8; ENTRY_BYTES]) -> UidHash {
    UidHash(u64_at(entry, entry_at::HASH).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT_OF: [u8; 16] = [3; 16];
    const IDENTITY: PageIdentity = PageIdentity { run: 7, number: 9 };

    fn sealed(entries: &[UidEntry]) -> Box<PageBytes> {
        let (mut content, mut out) = (Vec::new(), Vec::new());
        entries.iter().for_each(|entry| entry.encode(&mut content));
        seal(Salt::of(&SALT_OF, "t"), IDENTITY, u16::try_from(entries.len()).unwrap(), &content, &mut out);
        out.into_boxed_slice().try_into().unwrap()
    }

    fn entry(hash: u64) -> UidEntry {
        UidEntry { hash: UidHash(hash), sequence: hash + 1, at: 5 }
    }

    #[test]
    fn a_page_reads_back_and_any_flipped_bit_or_other_place_is_noticed() {
        let salt = Salt::of(&SALT_OF, "t");
        let entries: Vec<_> = (0..PAGE_ENTRIES as u64).map(entry).collect();
        let page = sealed(&entries);
        let read = |identity| EntryPage::open(salt, identity, &page).map(|page| page.entries().collect::<Vec<_>>());
        assert_eq!(read(IDENTITY), Some(entries));
        for other in [PageIdentity { run: 8, ..IDENTITY }, PageIdentity { number: 10, ..IDENTITY }] {
            assert_eq!(read(other), None);
        }
        assert!(EntryPage::open(Salt::of(&SALT_OF, "u"), IDENTITY, &page).is_none(), "another topic's page");
        for bit in 0..PAGE_BYTES * 8 {
            let mut flipped = page.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(EntryPage::open(salt, IDENTITY, &flipped).is_none(), "bit {bit}");
        }
        assert!(EntryPage::open(salt, IDENTITY, &[0; PAGE_BYTES]).is_none(), "zeros are no page");
    }

    #[test]
    fn a_count_that_no_page_can_have_is_noticed() {
        let salt = Salt::of(&SALT_OF, "t");
        for (count, fits) in [(PAGE_ENTRIES, true), (PAGE_ENTRIES + 1, false), (usize::from(u16::MAX), false)] {
            let mut out = Vec::new();
            seal(salt, IDENTITY, u16::try_from(count).unwrap(), &[], &mut out);
            assert_eq!(EntryPage::open(salt, IDENTITY, &out.try_into().unwrap()).is_some(), fits, "{count}");
        }
    }

    #[test]
    fn a_hash_may_go_on_in_the_next_page_only_past_the_last_entry_of_a_full_one() {
        let salt = Salt::of(&SALT_OF, "t");
        let count = PAGE_ENTRIES as u64;
        let hashes = |count: u64| (0..count).map(|at| entry(10 + at / 2)).collect::<Vec<_>>();
        let (full, short) = (sealed(&hashes(count)), sealed(&hashes(count - 1)));
        let (full, short) = (EntryPage::open(salt, IDENTITY, &full).unwrap(), EntryPage::open(salt, IDENTITY, &short).unwrap());
        let last = 10 + (count - 1) / 2;
        for (hash, goes_on) in [(0, false), (last - 1, false), (last, true), (last + 1, true)] {
            assert_eq!(full.may_go_on(UidHash(hash)), goes_on, "{hash}");
            assert!(!short.may_go_on(UidHash(hash)));
        }
        for (hash, found) in [(9, 0), (10, 2), (last, 2), (last + 1, 0)] {
            assert_eq!(full.matching(UidHash(hash)).count(), found, "{hash}");
        }
    }
}
