//! Log queries (R6): what a filter asks for, what a block's bloom says of it, and how a range is split that is too
//! large for a node.

use alloy_primitives::{Address, B256, Bloom, BloomInput};
use serde::Deserialize;

use super::asks::quantity;

/// A log filter, as far as decisions need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// Which blocks.
    pub blocks: Blocks,
    addresses: Vec<Address>,
    topics: Vec<Vec<B256>>,
}

/// Which blocks a log filter covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// One block, by its hash.
    Of(B256),
    /// From the first to the last.
    Range(Edge, Edge),
    /// Blocks behind a tag whose height only the node knows, such as `finalized`.
    Tagged,
}

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// This height.
    Number(u64),
    /// The head: also where nothing is said.
    Latest,
}

impl LogFilter {
    /// Reads a filter out of the JSON of the parameter; `None` where it is none.
    pub fn parse(json: &str) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Some<T> {
            One(T),
            Any(Vec<T>),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Filter {
            block_hash: Option<B256>,
            from_block: Option<serde_json::Value>,
            to_block: Option<serde_json::Value>,
            address: Option<Some<Address>>,
            topics: Option<Vec<Option<Some<B256>>>>,
        }
        fn all<T>(some: Option<Some<T>>) -> Vec<T> {
            match some {
                None => Vec::new(),
                Option::Some(Some::One(one)) => vec![one],
                Option::Some(Some::Any(any)) => any,
            }
        }
        let filter: Filter = serde_json::from_str(json).ok()?;
        let blocks = match (filter.block_hash, edge(filter.from_block), edge(filter.to_block)) {
            (Option::Some(hash), _, _) => Blocks::Of(hash),
            (None, Option::Some(from), Option::Some(to)) => Blocks::Range(from, to),
            (None, _, _) => Blocks::Tagged,
        };
        let topics = filter.topics.unwrap_or_default().into_iter().map(all).collect();
        Option::Some(Self { blocks, addresses: all(filter.address), topics })
    }

    /// Whether a block with this bloom may hold such a log. A bloom that says no is right.
    pub fn may_be_in(&self, bloom: &Bloom) -> bool {
        let has = |bytes: &[u8]| bloom.contains_input(BloomInput::Raw(bytes));
        let address =
            self.addresses.is_empty() || self.addresses.iter().any(|address| has(address.as_slice()));
        let topic = |any: &Vec<B256>| any.is_empty() || any.iter().any(|topic| has(topic.as_slice()));
        *bloom != Bloom::ZERO && address && self.topics.iter().all(topic)
    }
}

/// `None` for a tag whose height only the node knows.
fn edge(block: Option<serde_json::Value>) -> Option<Edge> {
    match block {
        None | Some(serde_json::Value::Null) => Some(Edge::Latest),
        Some(serde_json::Value::Number(number)) => number.as_u64().map(Edge::Number),
        Some(serde_json::Value::String(text)) => match text.as_str() {
            "latest" => Some(Edge::Latest),
            "earliest" => Some(Edge::Number(0)),
            text => quantity(text).map(Edge::Number),
        },
        Some(serde_json::Value::Bool(_) | serde_json::Value::Array(_) | serde_json::Value::Object(_)) => None,
    }
}

/// How many pieces are answered before a longer one is tried.
const PATIENCE: u32 = 4;
const MOST_PATIENCE: u32 = 64;

/// A range of blocks, asked for piece by piece, from its first block to its last.
///
/// A piece that is too large is asked for anew as its first half, or as the part that the node says would work. What
/// follows is asked for at that length, and at twice the length once enough pieces have been answered: a limit may be
/// on the blocks, or on the results, which lie closer in one place than in another.
#[derive(Clone, Debug)]
pub struct Split {
    cursor: u64,
    last: u64,
    /// The longest piece to ask for; `None` until one was too large.
    step: Option<u64>,
    /// How many pieces were answered at this step.
    answered: u32,
    patience: u32,
    /// Whether the step was made longer and has not been answered since.
    reaching: bool,
    over: bool,
}

/// What to do about a piece that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLarge {
    /// Go on: the next piece is shorter.
    Shorter,
    /// It is one block: there is nothing to split.
    OneBlock,
}

impl Split {
    /// The blocks from `first` to `last`.
    pub const fn new(first: u64, last: u64) -> Self {
        let over = first > last;
        Self { cursor: first, last, step: None, answered: 0, patience: PATIENCE, reaching: false, over }
    }

    /// The next piece, its first and its last block; `None` when all were answered.
    pub fn next(&self) -> Option<(u64, u64)> {
        let end = self.step.map_or(self.last, |step| self.cursor.saturating_add(step - 1).min(self.last));
        (!self.over).then_some((self.cursor, end))
    }

    /// The next piece was answered.
    pub fn answered(&mut self) {
        let Some((_, end)) = self.next() else { return };
        match end.checked_add(1).filter(|next| *next <= self.last) {
            Some(next) => self.cursor = next,
            None => self.over = true,
        }
        if self.reaching {
            self.reaching = false;
            self.patience = PATIENCE;
        }
        self.answered += 1;
        if self.answered >= self.patience {
            self.answered = 0;
            self.reaching = true;
            self.step = self.step.map(|step| step.saturating_mul(2));
        }
    }

    /// The next piece is too large for the node, which says that `hint` would work.
    pub fn too_large(&mut self, hint: Option<(u64, u64)>) -> TooLarge {
        let Some((first, end)) = self.next() else { return TooLarge::OneBlock };
        // The number of blocks, less one: the whole range of heights has no number.
        let beyond_first = end - first;
        if beyond_first == 0 {
            return TooLarge::OneBlock;
        }
        let half = beyond_first / 2 + 1;
        // A hint is hearsay: it counts where it makes the piece shorter.
        let hinted = hint.and_then(|(a, b)| b.checked_sub(a)).filter(|beyond| *beyond < beyond_first);
        self.step = Some(hinted.map_or(half.min(beyond_first), |beyond| beyond + 1));
        if self.reaching {
            self.reaching = false;
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        }
        self.answered = 0;
        TooLarge::Shorter
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{address, b256};
    use proptest::prelude::*;

    use super::*;

    const ADDRESS: Address = address!("2222222222222222222222222222222222222222");
    const TOPIC: B256 = b256!("48257dc961b6f792c2b78a080dacfed693b660960a702de21cee364e20270e2f");

    fn blocks(json: &str) -> Option<Blocks> {
        LogFilter::parse(json).map(|filter| filter.blocks)
    }

    #[test]
    fn a_filter_says_which_blocks_it_covers() {
        let check = |json, from, to| assert_eq!(blocks(json), Some(Blocks::Range(from, to)), "{json}");
        check("{}", Edge::Latest, Edge::Latest);
        check(r#"{"fromBlock":"earliest","toBlock":"latest"}"#, Edge::Number(0), Edge::Latest);
        check(r#"{"fromBlock":"0x10","toBlock":17}"#, Edge::Number(16), Edge::Number(17));
        check(r#"{"fromBlock":"0x10","toBlock":null}"#, Edge::Number(16), Edge::Latest);
        for tag in ["safe", "finalized", "pending"] {
            assert_eq!(blocks(&format!(r#"{{"fromBlock":"0x1","toBlock":"{tag}"}}"#)), Some(Blocks::Tagged));
        }
        assert_eq!(blocks(&format!(r#"{{"blockHash":"{TOPIC}"}}"#)), Some(Blocks::Of(TOPIC)));
        assert_eq!(blocks("[]"), None);
        assert_eq!(blocks(r#"{"address":"0x1"}"#), None);
    }

    #[test]
    fn a_bloom_speaks_for_a_log_only_where_it_has_the_address_and_each_topic() {
        let mut bloom = Bloom::ZERO;
        bloom.accrue_raw_log(ADDRESS, &[TOPIC]);
        let other = B256::repeat_byte(7);
        let check = |json: String, expected| {
            let filter = LogFilter::parse(&json).expect("it is a filter");
            assert_eq!(filter.may_be_in(&bloom), expected, "{json}");
            assert!(!filter.may_be_in(&Bloom::ZERO), "{json}");
        };
        check("{}".into(), true);
        check(format!(r#"{{"address":"{ADDRESS}"}}"#), true);
        check(format!(r#"{{"address":["{}","{ADDRESS}"]}}"#, Address::ZERO), true);
        check(r#"{"address":[],"topics":[]}"#.into(), true);
        check(format!(r#"{{"address":"{}"}}"#, Address::ZERO), false);
        check(format!(r#"{{"address":"{ADDRESS}","topics":["{TOPIC}"]}}"#), true);
        check(format!(r#"{{"topics":[null,["{other}","{TOPIC}"]]}}"#), true);
        check(format!(r#"{{"topics":["{TOPIC}","{other}"]}}"#), false);
        check(format!(r#"{{"address":"{ADDRESS}","topics":[["{other}"]]}}"#), false);
    }

    /// Asks a node that takes at most so many blocks, and returns the pieces that it answered and the calls.
    fn run(split: &mut Split, fits: impl Fn(u64, u64) -> bool) -> (Vec<(u64, u64)>, usize) {
        let (mut pieces, mut calls) = (Vec::new(), 0);
        while let Some((first, last)) = split.next() {
            calls += 1;
            assert!(calls < 10_000, "it does not end");
            if fits(first, last) {
                pieces.push((first, last));
                split.answered();
            } else if split.too_large(None) == TooLarge::OneBlock {
                break;
            }
        }
        (pieces, calls)
    }

    #[test]
    fn a_range_that_fits_is_one_piece() {
        assert_eq!(run(&mut Split::new(5, 5), |_, _| true), (vec![(5, 5)], 1));
        assert_eq!(run(&mut Split::new(0, u64::MAX), |_, _| true), (vec![(0, u64::MAX)], 1));
        assert_eq!(run(&mut Split::new(6, 5), |_, _| true), (vec![], 0));
    }

    #[test]
    fn a_limit_on_blocks_is_found_and_seldom_run_into_again() {
        let (pieces, calls) = run(&mut Split::new(0, 99_999), |first, last| last - first < 1_000);
        assert!(pieces.len() < 150, "{}", pieces.len());
        assert!(calls < pieces.len() + 20, "{calls} for {}", pieces.len());
    }

    #[test]
    fn where_logs_lie_close_pieces_are_short_and_then_longer_again() {
        let dense = |first: u64, last: u64| first <= 0x80f && last >= 0x800;
        let fits = |first, last| last - first < if dense(first, last) { 10 } else { 1_000 };
        let (pieces, calls) = run(&mut Split::new(0, 0x1000), fits);
        assert!(calls < 70, "{calls}");
        assert!(pieces.iter().any(|(first, last)| last - first < 10), "{pieces:?}");
        assert!(pieces.iter().any(|(first, last)| *first > 0x80f && last - first > 200), "{pieces:?}");
    }

    #[test]
    fn longer_pieces_are_tried_half_as_often_each_time_they_are_too_large() {
        let mut split = Split::new(0, 1_000_000);
        split.too_large(Some((0, 9)));
        let answered = [(); 7].map(|()| {
            let mut answered = 0;
            while split.next().is_some_and(|(first, last)| last - first < 10) {
                split.answered();
                answered += 1;
            }
            split.too_large(None);
            answered
        });
        assert_eq!(answered, [4, 8, 16, 32, 64, 64, 64]);
    }

    #[test]
    fn one_block_that_is_too_large_ends_it() {
        let (pieces, calls) = run(&mut Split::new(0, 63), |_, last| last < 5);
        assert_eq!(pieces.last().map(|(_, last)| *last), Some(4));
        assert!(calls < 20, "{calls}");
    }

    #[test]
    fn a_hint_is_taken_where_it_makes_the_piece_shorter() {
        let check = |hint, expected| {
            let mut split = Split::new(100, 199);
            assert_eq!(split.too_large(hint), TooLarge::Shorter);
            assert_eq!(split.next(), Some(expected), "{hint:?}");
        };
        check(Some((100, 109)), (100, 109));
        check(Some((3_000, 3_019)), (100, 119));
        check(Some((100, 100)), (100, 100));
        check(Some((100, 199)), (100, 149));
        check(Some((0, 5_000)), (100, 149));
        check(Some((9, 5)), (100, 149));
        check(None, (100, 149));
    }

    #[test]
    fn two_blocks_become_one() {
        let mut split = Split::new(0, 1);
        assert_eq!(split.too_large(None), TooLarge::Shorter);
        assert_eq!(split.next(), Some((0, 0)));
        let mut split = Split::new(0, u64::MAX);
        assert_eq!(split.too_large(None), TooLarge::Shorter);
        assert_eq!(split.next(), Some((0, u64::MAX / 2)));
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_range_without_a_gap_and_without_an_overlap(
            first in 0_u64..1_000,
            length in 1_u64..3_000,
            limits in proptest::collection::vec(1_u64..500, 1..8),
        ) {
            let last = first + length - 1;
            let limit = |at: u64| limits[(at / 400) as usize % limits.len()];
            let fits = |a: u64, b: u64| b - a < (a..=b).map(limit).min().unwrap_or(1);
            let (pieces, _) = run(&mut Split::new(first, last), fits);
            let covered: Vec<u64> = pieces.iter().flat_map(|(a, b)| *a..=*b).collect();
            prop_assert_eq!(covered, (first..=last).collect::<Vec<_>>());
        }
    }
}
