//! How deep an endpoint's history goes, by kind of data (E6): demonstrated, never assumed.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::failure::DataKind;

/// How long a refusal is remembered: histories grow, and some refusals are a bad moment.
const REFUSED_FOR: Duration = Duration::from_secs(600);

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
    /// The shallowest that it refused at, and when.
    missing: Option<(u64, Instant)>,
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
        if known.missing.is_some_and(|(missing, _)| missing <= depth) {
            // It has been given more history, or it is another node behind the same address.
            known.missing = None;
        }
    }

    /// It refused data at a height, naming the lowest that it holds where it did. A refusal above its own head
    /// says nothing about depth; one that contradicts what it has shown only casts doubt on that, the first time.
    pub fn refused(&mut self, kind: DataKind, height: u64, oldest: Option<u64>, head: u64, now: Instant) {
        let Some(depth) = head.checked_sub(height) else { return };
        let proven = self.holds(kind, height, head, now) == Holds::Proven;
        let known = self.kinds.entry(kind).or_default();
        known.lowest = oldest.filter(|oldest| *oldest > height);
        let said = known.lowest.and_then(|oldest| head.checked_sub(oldest));
        known.held = said.or(known.held.filter(|held| *held < depth));
        if !proven || said.is_some() {
            let missing = known.missing.map_or(depth, |(missing, _)| missing.min(depth));
            known.missing = Some((missing, now));
        }
    }

    /// Whether it holds data at a height.
    pub fn holds(&self, kind: DataKind, height: u64, head: u64, now: Instant) -> Holds {
        let Some(known) = self.kinds.get(&kind) else { return Holds::Unknown };
        let Some(depth) = head.checked_sub(height) else { return Holds::Unknown };
        let missing = known.missing.filter(|(_, at)| now.saturating_duration_since(*at) < REFUSED_FOR);
        if missing.is_some_and(|(missing, _)| depth >= missing) {
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

    fn now() -> Instant {
        static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BEGUN.get_or_init(Instant::now)
    }

    #[test]
    fn nothing_is_assumed() {
        assert_eq!(History::default().holds(STATE, 5, 100, now()), Holds::Unknown);
    }

    #[test]
    fn what_a_pruned_node_holds_moves_with_its_head() {
        let mut history = History::default();
        history.shown(STATE, 90, 100);
        history.refused(STATE, 50, None, 100, now());
        let check = |height, head, expected| {
            assert_eq!(history.holds(STATE, height, head, now()), expected, "{height} {head}")
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
        assert_eq!(history.holds(STATE, 1, 1_000, now()), Holds::Proven);
        assert_eq!(history.holds(STATE, 0, 1_000, now()), Holds::Unknown);
        assert_eq!(history.oldest(STATE, 1_000), Some(1));
    }

    #[test]
    fn a_refusal_takes_back_what_was_shown_below_it_and_believes_the_bound_that_it_names() {
        let mut history = History::default();
        history.shown(STATE, 1, 100);
        history.refused(STATE, 10, Some(60), 100, now());
        assert_eq!(history.holds(STATE, 10, 100, now()), Holds::Missing);
        assert_eq!(history.holds(STATE, 1, 100, now()), Holds::Missing);
        assert_eq!(history.holds(STATE, 60, 100, now()), Holds::Proven);
        assert_eq!(history.oldest(STATE, 100), Some(60));
    }

    #[test]
    fn a_refusal_above_its_own_head_says_nothing_of_depth() {
        let mut history = History::default();
        history.refused(STATE, 101, None, 100, now());
        assert_eq!(history, History::default());
    }

    #[test]
    fn one_refusal_against_a_proof_casts_doubt_and_a_second_is_believed_for_a_while() {
        let mut history = History::default();
        history.shown(STATE, 1, 100);
        history.refused(STATE, 10, None, 100, now());
        assert_eq!(history.holds(STATE, 10, 100, now()), Holds::Unknown);
        history.refused(STATE, 10, None, 100, now());
        assert_eq!(history.holds(STATE, 10, 100, now()), Holds::Missing);
        assert_eq!(history.holds(STATE, 10, 100, now() + REFUSED_FOR), Holds::Unknown);
    }

    #[test]
    fn a_refusal_is_taken_back_by_an_answer_from_as_deep_and_by_no_other() {
        let mut history = History::default();
        history.refused(STATE, 50, None, 100, now());
        history.shown(STATE, 90, 100);
        assert_eq!(history.holds(STATE, 50, 100, now()), Holds::Missing);
        history.shown(STATE, 40, 100);
        for height in [40, 45, 50] {
            assert_eq!(history.holds(STATE, height, 100, now()), Holds::Proven, "{height}");
        }
    }

    #[test]
    fn a_refusal_of_what_was_shown_at_that_very_height_casts_doubt_on_it() {
        let mut history = History::default();
        history.shown(STATE, 10, 100);
        history.refused(STATE, 10, None, 100, now());
        assert_eq!(history.holds(STATE, 10, 100, now()), Holds::Unknown);
        assert_eq!(history.oldest(STATE, 100), None);
    }

    #[test]
    fn a_bound_that_contradicts_the_refusal_itself_is_not_believed() {
        for oldest in [9, 10] {
            let mut history = History::default();
            history.refused(STATE, 10, Some(oldest), 100, now());
            assert_eq!(history.holds(STATE, 11, 100, now()), Holds::Unknown);
            assert_eq!(history.oldest(STATE, 100), None);
        }
    }

    #[test]
    fn data_kinds_have_bounds_of_their_own() {
        let mut history = History::default();
        history.refused(DataKind::Logs, 10, None, 100, now());
        assert_eq!(history.holds(STATE, 10, 100, now()), Holds::Unknown);
    }
}
