//! Tells for most hashes that a run does not have them, without reading it. Pure: hashes and bytes in, answers and bytes out.
//!
//! A blocked Bloom filter (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007): all bits of one hash lie in
//! one block of a cache line, one bit in each of its eight words. With ten bits for each entry about 1 in 100 absent hashes passes.

use super::UidHash;
use super::page::{PAGE_BYTES, PAGE_HEAD_BYTES};

/// Bytes of a block: one cache line.
pub(in super::super) const BLOCK_BYTES: usize = 64;
/// Blocks of a full page.
pub(in super::super) const PAGE_BLOCKS: usize = (PAGE_BYTES - PAGE_HEAD_BYTES) / BLOCK_BYTES;
/// Bits for each entry.
const ENTRY_BITS: u64 = 10;

/// Each word's bit is chosen by the upper six bits of the hash times one of these: odd, and without pattern (the fractions of the
/// square roots of the first eight primes). A product's upper bits depend on all lower bits of the hash, while the block was chosen
/// by its upper ones.
pub(in super::super) const MULTIPLIERS: [u64; 8] = [
    0x6a09_e667_f3bc_c909,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// Number between 0 and 63 of the bit that this hash has in the word of this multiplier.
const fn bit_number(hash: UidHash, multiplier: u64) -> u64 {
    hash.0.wrapping_mul(multiplier) >> 58
}

type Block = [u64; BLOCK_BYTES / 8];

/// Blocks for about so many entries, or 0 when they would take more than `bytes_max`.
pub(super) fn blocks_for(entries: u64, bytes_max: u64) -> u64 {
    let blocks = entries.checked_mul(ENTRY_BITS).map(|bits| bits.div_ceil(BLOCK_BYTES as u64 * 8));
    blocks.filter(|blocks| bytes_of(*blocks) <= bytes_max).unwrap_or(0)
}

/// Bytes in memory of so many blocks.
pub(super) const fn bytes_of(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK_BYTES as u64)
}

/// See the module.
#[derive(Debug)]
pub(super) struct Filter(Vec<Block>);

impl Filter {
    /// One without any hash. `None` when it has no block, or more than memory can hold.
    pub(super) fn empty(blocks: u64) -> Option<Self> {
        let count = usize::try_from(blocks).ok().filter(|count| *count > 0)?;
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(count).ok()?;
        blocks.resize(count, Block::default());
        Some(Self(blocks))
    }

    pub(super) fn blocks(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn add(&mut self, hash: UidHash) {
        let block = self.block_of(hash);
        if let Some(block) = self.0.get_mut(block) {
            block.iter_mut().zip(MULTIPLIERS).for_each(|(word, multiplier)| *word |= 1 << bit_number(hash, multiplier));
        }
    }

    /// False when `hash` was certainly not added.
    pub(super) fn may_have(&self, hash: UidHash) -> bool {
        // Without a branch for each word: which one misses cannot be predicted.
        let in_all = |block: &Block| {
            block.iter().zip(MULTIPLIERS).fold(1, |all, (word, multiplier)| all & (word >> bit_number(hash, multiplier))) == 1
        };
        self.0.get(self.block_of(hash)).is_none_or(in_all)
    }

    #[allow(clippy::cast_possible_truncation, reason = "less than the number of blocks, which is a usize")]
    fn block_of(&self, hash: UidHash) -> usize {
        hash.part_of(self.blocks()) as usize
    }

    /// Content of the filter's page `number`, counted from 0, and how many blocks it has.
    pub(super) fn page(&self, number: u64) -> (u16, Vec<u8>) {
        let blocks = usize::try_from(number).ok().and_then(|number| self.0.chunks(PAGE_BLOCKS).nth(number)).unwrap_or_default();
        let count = u16::try_from(blocks.len()).unwrap_or(0);
        (count, blocks.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    /// Takes over the blocks of page `number`. `None` when they are not as many as it has.
    pub(super) fn fill_page(&mut self, number: u64, count: u16, content: &[u8]) -> Option<()> {
        let number = usize::try_from(number).ok()?;
        let blocks = self.0.chunks_mut(PAGE_BLOCKS).nth(number).filter(|blocks| blocks.len() == usize::from(count))?;
        let words = content.as_chunks().0.iter();
        blocks.as_flattened_mut().iter_mut().zip(words).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::random_hashes;
    use super::*;

    const ENTRIES: usize = 200_000;

    #[test]
    fn what_was_added_passes_and_few_others_do() {
        let mut filter = Filter::empty(blocks_for(ENTRIES as u64, u64::MAX)).unwrap();
        let added: Vec<_> = random_hashes(1).take(ENTRIES).collect();
        added.iter().for_each(|hash| filter.add(*hash));
        assert!(added.iter().all(|hash| filter.may_have(*hash)));
        let passed = random_hashes(2).take(1_000_000).filter(|hash| filter.may_have(*hash)).count();
        assert!((1_000..15_000).contains(&passed), "{passed} of 1,000,000 absent hashes passed");
    }

    #[test]
    fn a_filter_reads_back_from_its_pages() {
        for blocks in [1, PAGE_BLOCKS as u64 - 1, PAGE_BLOCKS as u64, PAGE_BLOCKS as u64 + 1, 200] {
            let (mut written, mut read) = (Filter::empty(blocks).unwrap(), Filter::empty(blocks).unwrap());
            random_hashes(blocks).take(5_000).for_each(|hash| written.add(hash));
            let pages = blocks.div_ceil(PAGE_BLOCKS as u64);
            for number in 0..pages {
                let (count, content) = written.page(number);
                assert_eq!(read.fill_page(number, count + 1, &content), None);
                assert_eq!(read.fill_page(number, count, &content), Some(()));
            }
            assert_eq!(read.0, written.0);
            assert_eq!(written.page(pages).0, 0);
        }
    }

    #[test]
    fn its_size_follows_the_entries_up_to_a_bound() {
        for (entries, blocks) in [(0, 0), (1, 1), (51, 1), (52, 2), (1_024, 20)] {
            assert_eq!(blocks_for(entries, u64::MAX), blocks, "{entries}");
        }
        for (bytes_max, blocks) in [(20 * 64 - 1, 0), (20 * 64, 20), (20 * 64 + 1, 20)] {
            assert_eq!(blocks_for(1_024, bytes_max), blocks, "{bytes_max}");
        }
        assert_eq!(blocks_for(u64::MAX, u64::MAX), 0);
        for blocks in [0, 1 << 57, 1 << 58, u64::MAX] {
            assert!(Filter::empty(blocks).is_none(), "{blocks}");
        }
    }
}
