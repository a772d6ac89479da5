//! Lookups that say why something is absent (R5).

use std::collections::{HashSet, VecDeque};

use alloy_primitives::B256;

/// What a lookup came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// It is there.
    Found(T),
    /// It is not, for this reason.
    Absent(Absent),
}

/// Why something is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absent {
    /// It is not there yet: a block above the head, or the receipt of a transaction that waits.
    NotYet {
        /// The highest block that this client knows of.
        head: Option<u64>,
    },
    /// Every endpoint that can be asked says that it has nothing, or one that is proven to hold that height does.
    NobodyHasIt,
    /// No endpoint holds that height any more.
    Pruned {
        /// The height.
        height: u64,
        /// The lowest height that any endpoint is known to hold of that kind of data.
        oldest: Option<u64>,
    },
    /// Those that were asked have nothing, and others may have it.
    Unknown,
}

impl<T> Lookup<T> {
    /// What was found; `None` where it is absent.
    pub fn found(self) -> Option<T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Absent(_) => None,
        }
    }
}

/// How many hashes are remembered of each sort.
const REMEMBERED: usize = 4_096;

/// For which hashes another endpoint may be asked about a `null`: once each, and never for what this client has sent
/// itself.
#[derive(Debug, Default)]
pub struct Opinions {
    asked: Recent,
    own: Recent,
}

/// Whether another endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// It is.
    Due,
    /// It was before, or the hash is of this client's own transaction, which is waited for elsewhere.
    Spent,
}

impl Opinions {
    /// Notes that this client sends a transaction.
    pub fn sends(&mut self, hash: B256) {
        self.own.add(hash);
    }

    /// Takes the one opinion that there is for a hash.
    pub fn take(&mut self, hash: B256) -> Opinion {
        if self.own.has(hash) || !self.asked.add(hash) { Opinion::Spent } else { Opinion::Due }
    }
}

/// The hashes that were added last.
#[derive(Debug, Default)]
struct Recent {
    order: VecDeque<B256>,
    all: HashSet<B256>,
}

impl Recent {
    fn has(&self, hash: B256) -> bool {
        self.all.contains(&hash)
    }

    /// Whether it was not there.
    fn add(&mut self, hash: B256) -> bool {
        if !self.all.insert(hash) {
            return false;
        }
        self.order.push_back(hash);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> B256 {
        B256::left_padding_from(&number.to_be_bytes())
    }

    #[test]
    fn a_hash_has_one_second_opinion_and_what_the_client_sent_has_none() {
        let mut opinions = Opinions::default();
        opinions.sends(hash(1));
        assert_eq!(opinions.take(hash(1)), Opinion::Spent);
        assert_eq!(opinions.take(hash(2)), Opinion::Due);
        assert_eq!(opinions.take(hash(2)), Opinion::Spent);
    }

    #[test]
    fn only_so_many_hashes_are_remembered() {
        let mut opinions = Opinions::default();
        for number in 0..REMEMBERED as u64 + 1 {
            assert_eq!(opinions.take(hash(number)), Opinion::Due);
        }
        assert_eq!(opinions.asked.order.len(), REMEMBERED);
        assert_eq!(opinions.asked.all.len(), REMEMBERED);
        assert_eq!(opinions.take(hash(1)), Opinion::Spent);
        assert_eq!(opinions.take(hash(0)), Opinion::Due, "too long ago");
    }

    #[test]
    fn what_was_found_can_be_taken_out() {
        assert_eq!(Lookup::Found(1).found(), Some(1));
        assert_eq!(Lookup::<u8>::Absent(Absent::Unknown).found(), None);
    }
}
