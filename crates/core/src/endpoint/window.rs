//! The recent canonical headers that one endpoint has shown.

use std::collections::BTreeMap;

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

/// Height to hash, as one endpoint last told it.
#[derive(Clone, Debug, Default)]
pub struct HeaderWindow {
    hashes: BTreeMap<u64, B256>,
}

impl HeaderWindow {
    /// Notes a header and its parent. Where either contradicts what was known, everything above is
    /// forgotten: the endpoint has reorganised.
    pub fn insert(&mut self, header: &Header) {
        if let Some(below) = header.number.checked_sub(1) {
            self.put(below, header.parent);
        }
        self.put(header.number, header.hash);
        while self.hashes.len() > KEPT {
            self.hashes.pop_first();
        }
    }

    /// The hash that the endpoint showed at a height.
    pub fn hash_at(&self, number: u64) -> Option<B256> {
        self.hashes.get(&number).copied()
    }

    fn put(&mut self, number: u64, hash: B256) {
        if self.hashes.insert(number, hash).is_some_and(|old| old != hash) {
            self.hashes.split_off(&(number + 1));
        }
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
    fn a_reorg_forgets_what_was_above() {
        let mut window = HeaderWindow::default();
        for number in 5..=9 {
            window.insert(&header(number, 1));
        }
        window.insert(&header(7, 2));
        assert_eq!(window.hash_at(7), Some(header(7, 2).hash));
        assert_eq!(window.hash_at(8), None);
        assert_eq!(window.hash_at(5), Some(header(5, 1).hash));
    }

    #[test]
    fn it_is_bounded() {
        let mut window = HeaderWindow::default();
        for number in 0..1000 {
            window.insert(&header(number, 1));
        }
        assert_eq!(window.hashes.len(), KEPT);
        assert!(window.hash_at(999).is_some());
    }
}
