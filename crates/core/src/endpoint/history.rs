//! How deep an endpoint's history goes, by kind of data (E6): demonstrated, never assumed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::failure::DataKind;

/// What is known of an endpoint's history of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    kinds: BTreeMap<DataKind, Depth>,
}

/// What is known of one kind. Depths are blocks below the endpoint's own head at the time, because what a
/// pruned node holds moves with its head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Depth {
    /// The deepest that it answered at.
    held: Option<u64>,
    /// The shallowest that it refused at.
    missing: Option<u64>,
    /// The lowest height that it answered at, while nothing above it was refused: an archive's bound stays where
    /// it is.
    lowest: Option<u64>,
}

/// Whether an endpoint holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// It has answered at that depth, or deeper.
    Proven,
    /// It has not been seen there.
    Unknown,
    /// It has refused at that depth, or less.
    Missing,
}

impl History {
    /// It answered with data at a height.
    pub fn shown(&mut self, kind: DataKind, height: u64, head: u64) {
        let Some(depth) = head.checked_sub(height) else { return };
        let known = self.kinds.entry(kind).or_default();
        known.held = Some(known.held.map_or(depth, |held| held.max(depth)));
        known.lowest = Some(known.lowest.map_or(height, |lowest| lowest.min(height)));
        if known.missing.is_some_and(|missing| missing <= depth) {
            // It has been given more history, or it is another node behind the same address.
            known.missing = None;
        }
    }

    /// It refused data at a height, naming the lowest that it holds where it did. A refusal above its own head
    /// says nothing about depth.
    pub fn refused(&mut self, kind: DataKind, height: u64, oldest: Option<u64>, head: u64) {
        let Some(depth) = head.checked_sub(height) else { return };
        let known = self.kinds.entry(kind).or_default();
        known.missing = Some(known.missing.map_or(depth, |missing| missing.min(depth)));
        known.lowest = oldest.filter(|oldest| *oldest > height);
        let said = known.lowest.and_then(|oldest| head.checked_sub(oldest));
        known.held = said.or(known.held.filter(|held| *held < depth));
    }

    /// Whether it holds data at a height.
    pub fn holds(&self, kind: DataKind, height: u64, head: u64) -> Holds {
        let Some(known) = self.kinds.get(&kind) else { return Holds::Unknown };
        let Some(depth) = head.checked_sub(height) else { return Holds::Unknown };
        if known.missing.is_some_and(|missing| depth >= missing) {
            Holds::Missing
        } else if known.held.is_some_and(|held| depth <= held)
            || (known.missing.is_none() && known.lowest.is_some_and(|lowest| height >= lowest))
        {
            Holds::Proven
        } else {
            Holds::Unknown
        }
    }

    /// The lowest height that it has shown, now that its head is here.
    pub fn oldest(&self, kind: DataKind, head: u64) -> Option<u64> {
        let known = self.kinds.get(&kind)?;
        match (known.missing, known.lowest) {
            (None, Some(lowest)) => Some(lowest),
            _ => known.held.map(|held| head.saturating_sub(held)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: DataKind = DataKind::State;

    #[test]
    fn nothing_is_assumed() {
        assert_eq!(History::default().holds(STATE, 5, 100), Holds::Unknown);
    }

    #[test]
    fn what_a_pruned_node_holds_moves_with_its_head() {
        let mut history = History::default();
        history.shown(STATE, 90, 100);
        history.refused(STATE, 50, None, 100);
        let check = |height, head, expected| {
            assert_eq!(history.holds(STATE, height, head), expected, "{height} {head}")
        };
        check(90, 100, Holds::Proven);
        check(70, 100, Holds::Unknown);
        check(50, 100, Holds::Missing);
        check(90, 101, Holds::Unknown);
        check(91, 101, Holds::Proven);
        check(51, 101, Holds::Missing);
        check(102, 101, Holds::Unknown);
        assert_eq!(history.oldest(STATE, 100), Some(90));
        assert_eq!(history.oldest(STATE, 110), Some(100));
    }

    #[test]
    fn an_archive_stays_one_as_its_head_moves() {
        let mut history = History::default();
        history.shown(STATE, 1, 100);
        assert_eq!(history.holds(STATE, 1, 1_000), Holds::Proven);
        assert_eq!(history.holds(STATE, 0, 1_000), Holds::Unknown);
        assert_eq!(history.oldest(STATE, 1_000), Some(1));
    }

    #[test]
    fn a_refusal_takes_back_what_was_shown_below_it_and_believes_the_bound_that_it_names() {
        let mut history = History::default();
        history.shown(STATE, 1, 100);
        history.refused(STATE, 10, Some(60), 100);
        assert_eq!(history.holds(STATE, 10, 100), Holds::Missing);
        assert_eq!(history.holds(STATE, 1, 100), Holds::Missing);
        assert_eq!(history.holds(STATE, 60, 100), Holds::Proven);
        assert_eq!(history.oldest(STATE, 100), Some(60));
    }

    #[test]
    fn a_refusal_above_its_own_head_says_nothing_of_depth() {
        let mut history = History::default();
        history.refused(STATE, 101, None, 100);
        assert_eq!(history, History::default());
    }

    #[test]
    fn data_kinds_have_bounds_of_their_own() {
        let mut history = History::default();
        history.refused(DataKind::Logs, 10, None, 100);
        assert_eq!(history.holds(STATE, 10, 100), Holds::Unknown);
    }
}
