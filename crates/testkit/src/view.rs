//! Which height of the chain an endpoint shows.

use std::time::{Duration, Instant};

/// Which head an endpoint shows of the chain behind it.
///
/// Every reply is that of a node with this head: its number and `latest`, the state, blocks, logs, receipts
/// and transactions up to it, and a node's refusals above it. Signed transactions are passed on. What depends
/// on the view but is not covered: `eth_gasPrice` and other suggestions of fees come from the live chain, and
/// filters (`eth_newFilter` and kin) are refused as unknown methods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// The chain as it is.
    #[default]
    Live,
    /// Stuck at this block, or at the chain's head where that is lower.
    Frozen {
        /// The number of the block.
        at: u64,
    },
    /// Some blocks behind the chain.
    Trailing {
        /// How many.
        blocks: u64,
    },
    /// Some time behind the chain: a block is shown this long after it was first seen. What the chain had when
    /// the fleet started is shown at once. Blocks are looked for every 20 ms, so it can be that much more.
    TrailingTime {
        /// How long.
        by: Duration,
    },
    /// Several replicas behind one address: each HTTP request goes to the next of them, whatever its
    /// connection. An empty list is [`Live`](Self::Live).
    Replicas(Vec<View>),
}

impl View {
    /// Two replicas behind one address: the live chain, and `other`.
    pub fn alternating(other: Self) -> Self {
        Self::Replicas(vec![Self::Live, other])
    }

    /// Which view the request with this number meets, and the place of the replica.
    pub(crate) fn at_turn(&self, turn: u64) -> (Option<usize>, &Self) {
        match self {
            Self::Replicas(replicas) if replicas.is_empty() => (None, &Self::Live),
            Self::Replicas(replicas) => {
                let count = replicas.len() as u64;
                let place = (turn % count) as usize;
                (Some(place), replicas[place].at_turn(turn / count).1)
            }
            single => (None, single),
        }
    }

    /// The highest block shown while the chain is at `head`; `None` for all.
    pub(crate) fn height(&self, head: u64, seen: &Seen, now: Instant) -> Option<u64> {
        match self {
            Self::Live | Self::Replicas(_) => None,
            Self::Frozen { at } => Some(*at),
            Self::Trailing { blocks } => Some(head.saturating_sub(*blocks)),
            Self::TrailingTime { by } => Some(seen.height(*by, now).unwrap_or(head).min(head)),
        }
    }
}

/// When each height of a chain was first seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Heights rise. The first one was there before anybody looked.
    heights: Vec<(Instant, u64)>,
}

impl Seen {
    pub(crate) fn note(&mut self, head: u64, now: Instant) {
        // A chain that went back has taken its blocks with it: they come anew.
        let lower = self.heights.partition_point(|(_, height)| *height <= head);
        if lower < self.heights.len() && lower > 0 {
            self.heights.truncate(lower);
        } else if lower < self.heights.len() {
            self.heights.clear();
        }
        if self.heights.last().is_none_or(|(_, last)| *last < head) {
            self.heights.push((now, head));
        }
    }

    fn height(&self, by: Duration, now: Instant) -> Option<u64> {
        let (_, first) = self.heights.first()?;
        let shown = self.heights.iter().rev().find(|(at, _)| *at + by <= now);
        Some(shown.map_or(*first, |(_, height)| *height))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_shown_once_it_is_old_enough() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let mut seen = Seen::default();
        seen.note(5, ms(0));
        seen.note(6, ms(100));
        seen.note(6, ms(150));
        let by = Duration::from_millis(300);
        assert_eq!(seen.height(by, ms(100)), Some(5), "what was there at the start is shown at once");
        assert_eq!(seen.height(by, ms(399)), Some(5));
        assert_eq!(seen.height(by, ms(400)), Some(6));
    }

    #[test]
    fn a_chain_that_went_back_shows_its_blocks_anew() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let mut seen = Seen::default();
        for (at, head) in [(0, 5), (100, 7), (200, 6), (300, 7)] {
            seen.note(head, ms(at));
        }
        let by = Duration::from_millis(50);
        assert_eq!(seen.height(by, ms(260)), Some(6));
        assert_eq!(seen.height(by, ms(310)), Some(6));
        assert_eq!(seen.height(by, ms(350)), Some(7));
    }

    #[test]
    fn replicas_take_turns_at_each_depth() {
        let view = View::Replicas(vec![
            View::Replicas(vec![View::Frozen { at: 1 }, View::Frozen { at: 2 }]),
            View::Live,
        ]);
        let met: Vec<_> = (0..5).map(|turn| view.at_turn(turn)).collect();
        assert_eq!(
            met,
            [
                (Some(0), &View::Frozen { at: 1 }),
                (Some(1), &View::Live),
                (Some(0), &View::Frozen { at: 2 }),
                (Some(1), &View::Live),
                (Some(0), &View::Frozen { at: 1 }),
            ]
        );
    }
}
