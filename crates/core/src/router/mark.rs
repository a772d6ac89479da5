//! The highest block that a client was shown (R2).

use std::collections::VecDeque;

use alloy_primitives::B256;

use crate::units::BlockRef;

/// How many blocks are remembered by their hashes.
const REMEMBERED: usize = 64;

/// The highest block that a client was shown: what it is shown next does not lie below, unless the chain went back.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    highest: Option<u64>,
    blocks: VecDeque<BlockRef>,
}

/// How a height stands to what was shown before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Height {
    /// It is as high, or the first, or of another branch than what was shown.
    Risen,
    /// It lies below what was shown.
    Below,
}

impl Mark {
    /// The highest that was shown.
    pub const fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// A reply carries this height, and the hash of its block where it shows it. Another hash than the one that was
    /// shown at that height proves that the chain went back.
    pub fn carries(&mut self, number: u64, hash: Option<B256>) -> Height {
        let known = self.blocks.iter().find(|block| block.number == number);
        if known.zip(hash).is_some_and(|(known, hash)| known.hash != hash) {
            self.went_back();
        }
        if self.highest.is_some_and(|highest| number < highest) {
            return Height::Below;
        }
        self.highest = Some(number);
        if let Some(hash) = hash
            && self.blocks.back().is_none_or(|last| last.number < number)
        {
            self.blocks.push_back(BlockRef { number, hash });
            if self.blocks.len() > REMEMBERED {
                self.blocks.pop_front();
            }
        }
        Height::Risen
    }

    /// A lower height was given after all: from there on it is what was shown. Without that, each call would wait again
    /// for what may never come back. Nothing changes where something else was shown meanwhile.
    pub fn fell(&mut self, from: u64, to: u64) {
        if self.highest == Some(from) && to < from {
            self.highest = Some(to);
            self.blocks.retain(|block| block.number <= to);
        }
    }

    /// The chain went back, by its hashes: what was shown does not bind any more.
    pub fn went_back(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(branch: u8) -> Option<B256> {
        Some(B256::repeat_byte(branch))
    }

    #[test]
    fn what_was_shown_is_the_least() {
        let mut mark = Mark::default();
        assert_eq!((mark.carries(10, None), mark.carries(10, None)), (Height::Risen, Height::Risen));
        assert_eq!((mark.carries(9, None), mark.highest()), (Height::Below, Some(10)));
        assert_eq!((mark.carries(12, hash(1)), mark.carries(11, hash(1))), (Height::Risen, Height::Below));
    }

    #[test]
    fn another_hash_at_a_height_that_was_shown_proves_a_reorg() {
        let mut mark = Mark::default();
        mark.carries(10, hash(1));
        mark.carries(12, hash(3));
        assert_eq!(mark.carries(10, hash(1)), Height::Below);
        assert_eq!(mark.carries(11, hash(9)), Height::Below, "what stood there was not shown");
        assert_eq!((mark.carries(10, hash(2)), mark.highest()), (Height::Risen, Some(10)));
        let mut mark = Mark::default();
        mark.carries(10, None);
        mark.went_back();
        assert_eq!((mark.carries(3, None), mark.highest()), (Height::Risen, Some(3)));
    }

    #[test]
    fn a_lower_height_that_was_given_is_the_mark_from_there_on() {
        let mut mark = Mark::default();
        mark.carries(10, hash(1));
        mark.fell(10, 8);
        assert_eq!((mark.carries(8, None), mark.highest()), (Height::Risen, Some(8)));
        assert_eq!(mark.carries(7, None), Height::Below);
        assert_eq!(mark.carries(10, hash(2)), Height::Risen, "what stood above is forgotten");
        mark.carries(12, None);
        mark.fell(10, 9);
        assert_eq!(mark.highest(), Some(12), "a higher one was shown meanwhile");
        mark.fell(12, 13);
        assert_eq!(mark.highest(), Some(12));
    }

    #[test]
    fn only_so_many_hashes_are_remembered() {
        let mut mark = Mark::default();
        for number in 1..=REMEMBERED as u64 + 1 {
            mark.carries(number, hash(1));
        }
        assert_eq!(mark.blocks.len(), REMEMBERED);
        assert_eq!(mark.carries(1, hash(2)), Height::Below, "too long ago");
        assert_eq!(mark.carries(2, hash(2)), Height::Risen);
    }

    #[test]
    fn a_head_that_is_shown_again_and_again_makes_no_other_forgotten() {
        let mut mark = Mark::default();
        mark.carries(1, hash(1));
        for _ in 0..=REMEMBERED {
            mark.carries(2, hash(2));
        }
        assert_eq!(mark.carries(1, hash(9)), Height::Risen, "it proves a reorg");
    }
}
