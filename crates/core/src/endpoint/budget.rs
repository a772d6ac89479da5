//! How many requests an endpoint is given (E10).

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// How long a place is kept for a call of the tracker that found none.
const KEPT: Duration = Duration::from_secs(2);
/// How often a place among the concurrent requests is looked for: when one is free depends on replies.
const LOOK: Duration = Duration::from_millis(10);

/// How many requests an endpoint may be given. Default: as many as there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Budget {
    /// The most requests at once.
    pub max_concurrent: Option<NonZeroU32>,
    /// The most requests a second, on average; as many may go out at once after a quiet second.
    pub max_per_second: Option<NonZeroU32>,
}

impl Budget {
    /// A budget of so many at once and so many a second; `None` is no bound.
    pub const fn new(max_concurrent: Option<NonZeroU32>, max_per_second: Option<NonZeroU32>) -> Self {
        Self { max_concurrent, max_per_second }
    }
}

/// What of a budget is used: a token bucket, and the requests under way.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    budget: Budget,
    in_flight: u32,
    /// The requests that may go out at `counted_at`. Below zero when more went out than that: a batch, or the
    /// tracker, which is not held up.
    left: f64,
    counted_at: Option<Instant>,
    /// Since when a call of the tracker has looked for a place.
    tracker_waits: Option<Instant>,
}

impl Meter {
    pub(super) fn new(budget: Budget) -> Self {
        let left = budget.max_per_second.map_or(0.0, |rate| f64::from(rate.get()));
        Self { budget, in_flight: 0, left, counted_at: None, tracker_waits: None }
    }

    pub(super) const fn budget(&self) -> Budget {
        self.budget
    }

    pub(super) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// How long until one more request may go out; `None` when it may now.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let kept = self.tracker_waits.is_some_and(|since| now.saturating_duration_since(since) < KEPT);
        let full = self.full(if kept { 1 } else { 0 });
        let spent = self.budget.max_per_second.and_then(|rate| {
            let short = 1.0 - self.left(now);
            (short > 0.0)
                .then(|| Duration::from_secs_f64(short / f64::from(rate.get())).max(Duration::from_millis(1)))
        });
        spent.max(full.then_some(LOOK))
    }

    /// Whether a call of the tracker may go out. It goes before all others, and one that finds no place among the
    /// concurrent requests is kept the next: without it, nothing would be known.
    pub(super) fn admits_tracker(&mut self, now: Instant) -> bool {
        if self.full(0) {
            self.tracker_waits.get_or_insert(now);
            return false;
        }
        self.tracker_waits = None;
        true
    }

    /// Requests go out: so many.
    pub(super) fn charge(&mut self, requests: u32, now: Instant) {
        if self.budget.max_per_second.is_some() {
            self.left = self.left(now) - f64::from(requests);
            self.counted_at = Some(now);
        }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.in_flight += 1;
        self.charge(1, now);
    }

    pub(super) fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The requests that may go out now.
    pub(super) fn left(&self, now: Instant) -> f64 {
        let Some(rate) = self.budget.max_per_second else { return 0.0 };
        let rate = f64::from(rate.get());
        let passed = self.counted_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        (self.left + passed.as_secs_f64() * rate).min(rate)
    }

    fn full(&self, kept: u32) -> bool {
        self.budget.max_concurrent.is_some_and(|most| self.in_flight + kept >= most.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(at_once: Option<u32>, a_second: Option<u32>) -> Meter {
        Meter::new(Budget::new(at_once.and_then(NonZeroU32::new), a_second.and_then(NonZeroU32::new)))
    }

    #[test]
    fn without_a_bound_nothing_waits() {
        let now = Instant::now();
        let mut meter = meter(None, None);
        for _ in 0..10_000 {
            assert_eq!(meter.wait(now), None);
            meter.begin(now);
        }
        assert_eq!(meter.in_flight(), 10_000);
    }

    #[test]
    fn a_second_s_worth_goes_out_at_once_and_then_one_by_one() {
        let now = Instant::now();
        let mut meter = meter(None, Some(4));
        for _ in 0..4 {
            assert_eq!(meter.wait(now), None);
            meter.begin(now);
        }
        assert_eq!(meter.wait(now), Some(Duration::from_millis(250)));
        assert_eq!(meter.wait(now + Duration::from_millis(100)), Some(Duration::from_millis(150)));
        assert_eq!(meter.wait(now + Duration::from_millis(250)), None);
        meter.begin(now + Duration::from_millis(250));
        assert_eq!(meter.wait(now + Duration::from_millis(250)), Some(Duration::from_millis(250)));
        // A quiet hour does not add up.
        let later = now + Duration::from_secs(3_600);
        assert_eq!(meter.left(later), 4.0);
    }

    #[test]
    fn a_batch_and_the_tracker_are_paid_for_afterwards() {
        let now = Instant::now();
        let mut meter = meter(None, Some(10));
        meter.begin(now);
        meter.charge(14, now);
        assert!(meter.admits_tracker(now));
        meter.begin(now);
        assert_eq!(meter.wait(now), Some(Duration::from_millis(700)));
    }

    #[test]
    fn places_are_counted_and_given_back() {
        let now = Instant::now();
        let mut meter = meter(Some(2), None);
        meter.begin(now);
        assert_eq!(meter.wait(now), None);
        meter.begin(now);
        assert_eq!(meter.wait(now), Some(LOOK));
        meter.end();
        assert_eq!((meter.wait(now), meter.in_flight()), (None, 1));
        meter.end();
        meter.end();
        assert_eq!(meter.in_flight(), 0);
    }

    #[test]
    fn the_next_place_is_the_tracker_s_when_it_found_none() {
        let now = Instant::now();
        let mut meter = meter(Some(1), None);
        meter.begin(now);
        assert!(!meter.admits_tracker(now));
        meter.end();
        assert_eq!(meter.wait(now), Some(LOOK), "it is kept for the tracker");
        assert_eq!(meter.wait(now + KEPT), None, "not for ever");
        assert!(meter.admits_tracker(now));
        assert_eq!(meter.wait(now), None);
    }
}
