//! Hedging (R10): a second endpoint is asked where the first takes longer than it mostly does.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::endpoint::EndpointId;

/// When a read is asked for a second time, while the first time is still open (R10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct HedgeConfig {
    /// How many percent of an endpoint's answers are faster than what is hedged. Default 90: a slow tail of 5 % must
    /// lie wholly above it.
    pub percentile: u8,
    /// The least time that the first endpoint is given, however fast it mostly is. Default 5 ms: below that a hedge
    /// wins nothing over a network.
    #[serde(with = "humantime_serde")]
    pub floor: Duration,
    /// How many calls in a hundred may be asked a second time, over the long run. Default 10.
    pub budget: u8,
}

impl Default for HedgeConfig {
    fn default() -> Self {
        Self { percentile: 90, floor: Duration::from_millis(5), budget: 10 }
    }
}

/// How many answers must have been seen of an endpoint before it is hedged.
const LEAST_SEEN: u32 = 20;
/// What was seen weighs half from here on, so that the estimate follows the endpoint.
const MOST_SEEN: u32 = 1_024;
/// How many hedges may be saved up for a bad moment.
const MOST_SAVED: u32 = 10;
/// What one hedge costs; each call pays in as many as its budget has percent.
const PRICE: u32 = 100;

/// How fast each endpoint answers, and how many hedges are left to spend.
#[derive(Clone, Debug)]
pub struct Hedging {
    config: HedgeConfig,
    endpoints: Vec<Latency>,
    saved: u32,
}

impl Hedging {
    /// Nothing is known, and nothing is saved.
    pub const fn new(config: HedgeConfig) -> Self {
        Self { config, endpoints: Vec::new(), saved: 0 }
    }

    /// Begins a call to an endpoint. Returns how long it may take before it is hedged; `None` while too little is
    /// known of the endpoint.
    pub fn begin(&mut self, id: EndpointId) -> Option<Duration> {
        self.saved = (self.saved + u32::from(self.config.budget)).min(MOST_SAVED * PRICE);
        let usual = self.endpoints.get(id.0)?.percentile(self.config.percentile)?;
        Some(usual.max(self.config.floor))
    }

    /// Takes one hedge out of the budget, where there is one.
    pub fn spend(&mut self) -> Spent {
        match self.saved.checked_sub(PRICE) {
            Some(left) => {
                self.saved = left;
                Spent::One
            }
            None => Spent::Nothing,
        }
    }

    /// Gives back a hedge that was spent, and for which there was no endpoint.
    pub fn give_back(&mut self) {
        self.saved = (self.saved + PRICE).min(MOST_SAVED * PRICE);
    }

    /// Tells how long an endpoint took to answer, or for how long it had not when its call was given up.
    pub fn took(&mut self, id: EndpointId, took: Duration) {
        if self.endpoints.len() <= id.0 {
            self.endpoints.resize_with(id.0 + 1, Latency::default);
        }
        self.endpoints[id.0].add(took);
    }
}

/// Whether there was a hedge to spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// One is spent.
    One,
    /// The budget is used up.
    Nothing,
}

/// Four buckets for each doubling, from a microsecond to an hour.
const BUCKETS: usize = 128;

/// How long answers took, in buckets that are at most a quarter wide.
#[derive(Clone, Debug)]
struct Latency {
    counts: [u32; BUCKETS],
    seen: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], seen: 0 }
    }
}

impl Latency {
    fn add(&mut self, took: Duration) {
        self.counts[bucket(took)] += 1;
        self.seen += 1;
        if self.seen >= MOST_SEEN {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.seen = self.counts.iter().sum();
        }
    }

    /// The time that so many percent of the answers took at most.
    fn percentile(&self, percent: u8) -> Option<Duration> {
        if self.seen < LEAST_SEEN {
            return None;
        }
        let wanted = (u64::from(self.seen) * u64::from(percent)).div_ceil(100);
        let mut below = 0;
        let holds = |count: &u32| {
            below += u64::from(*count);
            below >= wanted
        };
        self.counts.iter().position(holds).map(upper_end)
    }
}

fn bucket(took: Duration) -> usize {
    // Four microseconds are the least that has quarters.
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(4);
    let doublings = micros.ilog2();
    let quarter = (micros >> (doublings - 2)) & 3;
    (((doublings - 2) * 4) as usize + quarter as usize).min(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> Duration {
    let (doublings, quarter) = (bucket / 4, bucket as u64 % 4);
    Duration::from_micros((5 + quarter) << doublings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointId = EndpointId(0);
    const B: EndpointId = EndpointId(1);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn plain() -> HedgeConfig {
        HedgeConfig { floor: Duration::ZERO, ..HedgeConfig::default() }
    }

    #[test]
    fn a_bucket_is_at_most_a_quarter_wide() {
        for micros in [0, 1, 4, 5, 7, 8, 9, 1_000, 1_023, 1_024, 300_000, 3_600_000_000] {
            let took = Duration::from_micros(micros);
            let upper = upper_end(bucket(took));
            assert!(
                upper > took && upper <= took.max(Duration::from_micros(4)).mul_f64(1.25),
                "{micros} {upper:?}"
            );
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn an_endpoint_of_which_little_is_known_is_not_hedged() {
        let mut hedging = Hedging::new(plain());
        assert_eq!(hedging.begin(A), None);
        (1..LEAST_SEEN).for_each(|_| hedging.took(A, millis(10)));
        assert_eq!(hedging.begin(A), None);
        hedging.took(A, millis(10));
        assert!(hedging.begin(A).is_some());
        assert_eq!(hedging.begin(B), None, "each endpoint is known by itself");
    }

    #[test]
    fn a_slow_tail_of_one_in_twenty_lies_above_what_is_waited_for() {
        let mut hedging = Hedging::new(plain());
        for turn in 0..5_000 {
            hedging.took(A, if turn % 20 == 0 { millis(300) } else { millis(10) });
        }
        let wait = hedging.begin(A).expect("it is known");
        assert!(wait >= millis(10) && wait < millis(13), "{wait:?}");
        let mut half = Hedging::new(plain());
        for turn in 0..100 {
            half.took(A, if turn % 2 == 0 { millis(300) } else { millis(10) });
        }
        assert!(half.begin(A).expect("it is known") >= millis(300));
    }

    #[test]
    fn the_floor_is_the_least() {
        let mut hedging = Hedging::new(HedgeConfig::default());
        (0..LEAST_SEEN).for_each(|_| hedging.took(A, Duration::from_micros(80)));
        assert_eq!(hedging.begin(A), Some(millis(5)));
    }

    #[test]
    fn an_endpoint_that_becomes_slower_is_given_more_time() {
        let mut hedging = Hedging::new(plain());
        (0..MOST_SEEN * 2).for_each(|_| hedging.took(A, millis(1)));
        (0..MOST_SEEN).for_each(|_| hedging.took(A, millis(50)));
        assert!(hedging.begin(A).expect("it is known") >= millis(50));
    }

    #[test]
    fn at_most_one_call_in_ten_is_hedged_and_few_are_saved_up() {
        let mut hedging = Hedging::new(plain());
        assert_eq!(hedging.spend(), Spent::Nothing);
        let mut spent = 0;
        for _ in 0..1_000 {
            hedging.begin(A);
            spent += u32::from(hedging.spend() == Spent::One);
        }
        assert_eq!(spent, 100);
        for _ in 0..10_000 {
            hedging.begin(A);
        }
        let saved = (0..1_000).filter(|_| hedging.spend() == Spent::One).count();
        assert_eq!(saved, MOST_SAVED as usize);
    }

    #[test]
    fn a_hedge_that_is_given_back_can_be_spent_and_none_is_won_by_it() {
        let mut hedging = Hedging::new(plain());
        hedging.give_back();
        assert_eq!((hedging.spend(), hedging.spend()), (Spent::One, Spent::Nothing));
        (0..10_000).for_each(|_| _ = hedging.begin(A));
        hedging.spend();
        hedging.give_back();
        hedging.give_back();
        let saved = (0..1_000).filter(|_| hedging.spend() == Spent::One).count();
        assert_eq!(saved, MOST_SAVED as usize);
    }
}
