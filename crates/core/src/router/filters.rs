//! Filters (R7): what a client holds of them, and how far each has been told.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use alloy_primitives::B256;

/// How long a filter lives that is not asked for: as long as at nodes.
const UNUSED_FOR: Duration = Duration::from_secs(300);
/// How many filters a client holds at once.
const MOST: usize = 1_024;
/// How many blocks a node's filter may lag behind the node's own head.
const FILTER_LAG: u64 = 16;
/// How many of the last blocks that were fetched a node may tell once more: those that came while its filter was made.
const TOLD_TWICE: u64 = 64;
/// How many hashes of blocks are remembered, so that none is told twice.
const REMEMBERED: usize = 256;

/// The filters of one client, by ids of its own.
///
/// An id is this client's, not a node's: two nodes number theirs alike, and a filter moves from one to another.
#[derive(Debug)]
pub struct Filters<T> {
    open: BTreeMap<u64, (T, Instant)>,
    next: u64,
}

impl<T> Filters<T> {
    /// None yet. `first` is the id of the first one: it differs from client to client, so that an id that outlives
    /// its client is not another filter's.
    pub const fn new(first: u64) -> Self {
        Self { open: BTreeMap::new(), next: first }
    }

    /// Adds a filter and returns its id; `None` where there are too many.
    pub fn add(&mut self, filter: T, now: Instant) -> Option<u64> {
        self.forget_unused(now);
        if self.open.len() >= MOST {
            return None;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.insert(id, (filter, now));
        Some(id)
    }

    /// The filter with this id, which is in use now; `None` where there is none, or not any more.
    pub fn find(&mut self, id: u64, now: Instant) -> Option<&T> {
        self.forget_unused(now);
        let (filter, used) = self.open.get_mut(&id)?;
        *used = now;
        Some(filter)
    }

    /// Takes a filter out.
    pub fn remove(&mut self, id: u64, now: Instant) -> Option<T> {
        self.forget_unused(now);
        self.open.remove(&id).map(|(filter, _)| filter)
    }

    fn forget_unused(&mut self, now: Instant) {
        self.open.retain(|_, (_, used)| now.saturating_duration_since(*used) < UNUSED_FOR);
    }
}

/// How far a filter has been told: where to go on when the node that had it is gone.
#[derive(Clone, Debug)]
pub struct Told {
    /// The first block that may hold something that was not told.
    next: u64,
    /// The logs that were fetched last and that a node may tell as well.
    fetched: HashSet<LogId>,
    blocks: VecDeque<B256>,
}

/// What tells one log from another, also of another branch: the hash of its block, and its index there.
pub type LogId = (B256, u64);

/// Whether something was told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    /// It was not.
    Yes,
    /// It was.
    No,
}

impl Told {
    /// Nothing was told, and what is to be told lies above this head.
    pub fn above(head: u64) -> Self {
        Self { next: head.saturating_add(1), fetched: HashSet::new(), blocks: VecDeque::new() }
    }

    /// The first block that may hold something that was not told.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// The last block that was told, where blocks are told.
    pub fn last_block(&self) -> Option<B256> {
        self.blocks.back().copied()
    }

    /// A node tells a log of this block.
    pub fn log(&mut self, block: u64, id: LogId) -> Fresh {
        self.next = self.next.max(block.saturating_add(1));
        if self.fetched.contains(&id) { Fresh::No } else { Fresh::Yes }
    }

    /// A node tells a block.
    pub fn block(&mut self, hash: B256) -> Fresh {
        if self.blocks.contains(&hash) {
            return Fresh::No;
        }
        self.blocks.push_back(hash);
        if self.blocks.len() > REMEMBERED {
            self.blocks.pop_front();
        }
        self.next = self.next.saturating_add(1);
        Fresh::Yes
    }

    /// A node whose head was here before it was asked has told all that it had.
    pub fn up_to(&mut self, head: u64) {
        self.next = self.next.max(head.saturating_sub(FILTER_LAG).saturating_add(1));
    }

    /// The last block that was told is at this height.
    pub const fn stands_at(&mut self, height: u64) {
        self.next = height.saturating_add(1);
    }

    /// What lay between, up to this block, was fetched: these logs, with their blocks. A node may tell those of the last
    /// blocks once more. By their height alone, the logs of another branch would be taken for them.
    pub fn fetched(&mut self, last: u64, logs: impl IntoIterator<Item = (u64, LogId)>) {
        self.next = last.saturating_add(1);
        let recent = logs.into_iter().filter(|(block, _)| *block >= last.saturating_sub(TOLD_TWICE));
        self.fetched = recent.map(|(_, id)| id).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_clients_own_and_never_given_twice() {
        let now = Instant::now();
        let mut filters = Filters::new(7);
        assert_eq!((filters.add("a", now), filters.add("b", now)), (Some(7), Some(8)));
        assert_eq!(filters.remove(8, now), Some("b"));
        assert_eq!(filters.remove(8, now), None);
        assert_eq!(filters.add("c", now), Some(9));
        assert_eq!(filters.find(7, now), Some(&"a"));
        assert_eq!(filters.find(8, now), None);
    }

    #[test]
    fn what_is_not_asked_for_in_five_minutes_is_forgotten() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut filters = Filters::new(1);
        filters.add("used", now);
        filters.add("unused", now);
        assert!(filters.find(1, at(200)).is_some());
        assert!(filters.find(2, at(300)).is_none());
        assert!(filters.find(1, at(499)).is_some());
        assert!(filters.remove(1, at(799)).is_none());
    }

    #[test]
    fn a_client_holds_so_many_and_then_no_more() {
        let now = Instant::now();
        let mut filters = Filters::new(1);
        assert!((0..MOST).all(|_| filters.add((), now).is_some()));
        assert_eq!(filters.add((), now), None);
        assert!(filters.add((), now + UNUSED_FOR).is_some());
    }

    #[test]
    fn what_was_fetched_is_not_told_again_by_the_next_node() {
        let id = |branch: u8, index| (B256::repeat_byte(branch), index);
        let mut told = Told::above(10);
        assert_eq!(told.next(), 11);
        assert_eq!((told.log(12, id(12, 0)), told.next()), (Fresh::Yes, 13));
        told.fetched(20, [(20, id(20, 0))]);
        assert_eq!((told.log(20, id(20, 0)), told.log(21, id(21, 0))), (Fresh::No, Fresh::Yes));
        assert_eq!(
            (told.log(21, id(21, 1)), told.next()),
            (Fresh::Yes, 22),
            "more than one log is in a block"
        );
        assert_eq!(told.log(20, id(99, 0)), Fresh::Yes, "the same height, after the chain went back");
        told.fetched(1_000, [(20, id(20, 0)), (1_000, id(7, 3))]);
        assert_eq!(told.fetched.len(), 1, "no node tells what is so old");
    }

    #[test]
    fn a_node_that_has_nothing_to_tell_moves_on_with_its_head() {
        let mut told = Told::above(10);
        told.up_to(20);
        assert_eq!(told.next(), 11, "its filter may lag behind its head");
        told.up_to(100);
        assert_eq!(told.next(), 85);
    }

    #[test]
    fn a_block_is_told_once() {
        let mut told = Told::above(10);
        let hash = |n: u64| B256::left_padding_from(&n.to_be_bytes());
        assert_eq!(
            (told.block(hash(11)), told.block(hash(11)), told.block(hash(12))),
            (Fresh::Yes, Fresh::No, Fresh::Yes)
        );
        assert_eq!((told.next(), told.last_block()), (13, Some(hash(12))));
        told.stands_at(40);
        assert_eq!(told.next(), 41);
        for n in 100..100 + REMEMBERED as u64 {
            told.block(hash(n));
        }
        assert_eq!(told.block(hash(100)), Fresh::No, "as many are remembered");
        assert_eq!(told.block(hash(11)), Fresh::Yes, "and no more");
    }
}
