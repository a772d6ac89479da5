//! The recent canonical headers that one endpoint has shown.

use std::collections::VecDeque;

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};

use crate::units::BlockRef;

/// How many heights a window keeps. An hour of one-second blocks is not needed: it serves branch checks and
/// corroboration near the tip.
const KEPT: usize = 256;

/// The parts of a block header that decisions need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Height.
    pub number: u64,
    /// Hash.
    pub hash: B256,
    /// Hash of the block below.
    pub parent: B256,
    /// Seconds since the epoch, by the chain's clock.
    pub timestamp: u64,
}

impl Header {
    /// Number and hash.
    pub const fn block(&self) -> BlockRef {
        BlockRef { number: self.number, hash: self.hash }
    }
}

/// An unbroken run of recent headers, as one endpoint last told it: each the parent of the next. What a gap or
/// a reorganisation leaves in doubt is forgotten, never kept beside the new branch.
#[derive(Clone, Debug, Default)]
pub struct HeaderWindow {
    first: u64,
    hashes: VecDeque<B256>,
}

impl HeaderWindow {
    /// Notes a latest header and its parent.
    ///
    /// One below the run says nothing about the run, and is passed over.
    pub fn insert(&mut self, header: &Header) {
        if header.number < self.first || self.hash_at(header.number) == Some(header.hash) {
            return;
        }
        // Above a gap there is none.
        let parent = header.number.checked_sub(1).and_then(|below| self.hash_at(below));
        if parent != Some(header.parent) {
            return self.restart(header);
        }
        // It follows from the run, or replaces the run's upper end from here on.
        self.hashes.truncate((header.number - self.first) as usize);
        self.hashes.push_back(header.hash);
        if self.hashes.len() > KEPT {
            self.hashes.pop_front();
            self.first += 1;
        }
    }

    /// The hash that the endpoint showed at a height.
    pub fn hash_at(&self, number: u64) -> Option<B256> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.hashes.get(index).copied()
    }

    /// The highest block of the run that is not above a height.
    pub fn at_most(&self, number: u64) -> Option<BlockRef> {
        let last = (self.first + self.hashes.len() as u64).checked_sub(1)?;
        let number = number.min(last);
        Some(BlockRef { number, hash: self.hash_at(number)? })
    }

    fn restart(&mut self, header: &Header) {
        self.hashes.clear();
        self.first = header.number;
        if let Some(below) = header.number.checked_sub(1) {
            self.first = below;
            self.hashes.push_back(header.parent);
        }
        self.hashes.push_back(header.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(number: u64, branch: u8) -> Header {
        let hash = |n: u64| B256::right_padding_from(&[branch, n as u8]);
        Header { number, hash: hash(number), parent: hash(number.saturating_sub(1)), timestamp: number }
    }

    #[test]
    fn it_remembers_headers_and_their_parents() {
        let mut window = HeaderWindow::default();
        window.insert(&header(5, 1));
        assert_eq!(window.hash_at(5), Some(header(5, 1).hash));
        assert_eq!(window.hash_at(4), Some(header(5, 1).parent));
        assert_eq!(window.hash_at(3), None);
    }

    #[test]
    fn a_reorg_forgets_what_was_above_and_what_may_be_an_orphan() {
        let run = |numbers: std::ops::RangeInclusive<u64>| {
            let mut window = HeaderWindow::default();
            numbers.for_each(|number| window.insert(&header(number, 1)));
            window
        };
        let mut replaced = run(5..=9);
        replaced.insert(&Header { parent: header(6, 1).hash, ..header(7, 2) });
        assert_eq!(replaced.hash_at(7), Some(header(7, 2).hash));
        assert_eq!(replaced.hash_at(6), Some(header(6, 1).hash));
        assert_eq!(replaced.hash_at(8), None);

        // How deep it goes is not known: the run below may be an orphan too.
        let mut deeper = run(5..=9);
        deeper.insert(&header(7, 2));
        assert_eq!(deeper.hash_at(7), Some(header(7, 2).hash));
        assert_eq!(deeper.hash_at(5), None);

        // The lowest that the run has is the parent of its first header.
        let mut lowest = run(5..=9);
        lowest.insert(&header(4, 2));
        assert_eq!(lowest.hash_at(4), Some(header(4, 2).hash));
        assert_eq!(lowest.hash_at(9), None);

        let mut gap = run(5..=9);
        gap.insert(&header(12, 2));
        assert_eq!(gap.hash_at(8), None);
        assert_eq!(gap.hash_at(12), Some(header(12, 2).hash));
    }

    #[test]
    fn a_header_of_a_replica_that_lags_changes_nothing() {
        let mut window = HeaderWindow::default();
        (5..=9).for_each(|number| window.insert(&header(number, 1)));
        window.insert(&header(7, 1));
        window.insert(&header(2, 1));
        assert_eq!(window.hash_at(9), Some(header(9, 1).hash));
        assert_eq!(window.at_most(8), Some(header(8, 1).block()));
        assert_eq!(window.at_most(100), Some(header(9, 1).block()));
        assert_eq!(window.at_most(3), None);
    }

    #[test]
    fn it_is_bounded() {
        let mut window = HeaderWindow::default();
        for number in 0..1000 {
            window.insert(&header(number, 1));
        }
        assert_eq!(window.hashes.len(), KEPT);
        assert_eq!(window.hash_at(999), Some(header(999, 1).hash));
        assert_eq!(window.hash_at(999 - KEPT as u64), None);
    }
}
