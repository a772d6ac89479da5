//! The circuit breaker of one endpoint (E4).

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::units::EndpointName;

/// When a breaker opens and how long it stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct BreakerConfig {
    /// Faults, decayed, that open it. Default 5.
    pub faults: u32,
    /// The time in which a fault loses half its weight. Default 30 s: a handful of faults a minute is a
    /// flaky endpoint, one a minute is the network.
    #[serde(with = "humantime_serde")]
    pub half_life: Duration,
    /// The first cooldown. Default 2 s.
    #[serde(with = "humantime_serde")]
    pub cooldown: Duration,
    /// The longest cooldown; each failed probe doubles it up to here. Default 5 min.
    #[serde(with = "humantime_serde")]
    pub max_cooldown: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            faults: 5,
            half_life: Duration::from_secs(30),
            cooldown: Duration::from_secs(2),
            max_cooldown: Duration::from_secs(300),
        }
    }
}

/// A circuit breaker: closed, open, half-open.
#[derive(Clone, Debug)]
pub struct Breaker {
    config: BreakerConfig,
    /// Spreads the probes of many clients; the same for the life of the breaker.
    seed: u64,
    state: State,
    /// Decayed faults, as of `scored_at`.
    score: f64,
    scored_at: Option<Instant>,
    /// The cooldown of the next opening.
    cooldown: Duration,
    /// How often it opened; moves the spread from one opening to the next.
    openings: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed,
    Open { until: Instant },
    HalfOpen,
}

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Calls pass.
    Closed,
    /// No call passes.
    Open,
    /// One probe is on its way.
    HalfOpen,
}

impl Phase {
    /// One word for timelines and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

/// Whether a call may go to the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Yes,
    /// It may, as the one probe of a half-open breaker. It must be ended or abandoned.
    Probe,
    /// It may not.
    No,
}

impl Breaker {
    /// A closed breaker. `seed` comes from the client, the chain and the endpoint.
    pub fn new(config: BreakerConfig, seed: u64) -> Self {
        Self {
            cooldown: config.cooldown,
            config,
            seed,
            state: State::Closed,
            score: 0.0,
            scored_at: None,
            openings: 0,
        }
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Closed => Phase::Closed,
            State::Open { .. } => Phase::Open,
            State::HalfOpen => Phase::HalfOpen,
        }
    }

    /// What it would say to a call now, without taking the probe's place.
    pub fn peek(&self, now: Instant) -> Admission {
        match self.state {
            State::Closed => Admission::Yes,
            State::Open { until } if now >= until => Admission::Probe,
            State::Open { .. } | State::HalfOpen => Admission::No,
        }
    }

    /// Asks to send a call now. [`Admission::Probe`] takes the only place of the half-open breaker.
    pub fn admit(&mut self, now: Instant) -> Admission {
        let admission = self.peek(now);
        if admission == Admission::Probe {
            self.state = State::HalfOpen;
        }
        admission
    }

    /// When the next probe is due; `None` while closed.
    pub fn probe_at(&self) -> Option<Instant> {
        match self.state {
            State::Closed | State::HalfOpen => None,
            State::Open { until } => Some(until),
        }
    }

    /// A call succeeded. Successes decay faults, they do not erase them: an endpoint that fails every
    /// second call still opens, and one that fails again soon after its probe opens at once, for longer.
    pub fn on_success(&mut self, now: Instant) {
        self.decay(now);
        self.score *= 0.8;
        if self.state != State::Closed {
            self.state = State::Closed;
        } else if self.score < 0.1 {
            // It has been well for a while: the next opening starts small again.
            self.cooldown = self.config.cooldown;
        }
    }

    /// A call failed that was not the probe. Those that were under way when it opened change nothing about when
    /// the probe is due.
    pub fn on_fault(&mut self, now: Instant) {
        self.decay(now);
        // No more than opens it: a hundred calls that fail at once are one outage.
        self.score = (self.score + 1.0).min(f64::from(self.config.faults));
        match self.state {
            // Half a fault of slack, because the first ones have decayed a little by the last.
            State::Closed if self.score > f64::from(self.config.faults) - 0.5 => self.open(now),
            State::Closed | State::Open { .. } | State::HalfOpen => {}
        }
    }

    /// The probe failed.
    pub fn on_probe_failed(&mut self, now: Instant) {
        self.on_fault(now);
        if self.state == State::HalfOpen {
            self.open(now);
        }
    }

    /// The probe was given up: its place is free again, at once.
    pub fn on_abandoned(&mut self, now: Instant) {
        if self.state == State::HalfOpen {
            self.state = State::Open { until: now };
        }
    }

    fn open(&mut self, now: Instant) {
        let until = now + self.cooldown + spread(self.seed, self.openings, self.cooldown);
        self.state = State::Open { until };
        self.openings += 1;
        self.cooldown = (self.cooldown * 2).min(self.config.max_cooldown);
    }

    fn decay(&mut self, now: Instant) {
        if let Some(then) = self.scored_at {
            let elapsed = now.saturating_duration_since(then).as_secs_f64();
            self.score *= 0.5_f64.powf(elapsed / self.config.half_life.as_secs_f64().max(0.001));
        }
        self.scored_at = Some(now);
    }
}

/// The seed of a breaker: of the client, the chain and the endpoint's name, so that the probes of a fleet, of
/// one client's chains and of one chain's endpoints come apart.
pub fn breaker_seed(client: u64, chain_id: u64, endpoint: &EndpointName) -> u64 {
    endpoint.as_str().bytes().fold(mix(mix(client) ^ chain_id), |seed, byte| mix(seed ^ u64::from(byte)))
}

/// A part of an interval, at most an eighth of it, that differs from client to client and from one opening
/// to the next.
fn spread(seed: u64, round: u64, interval: Duration) -> Duration {
    let part = mix(seed.wrapping_add(round.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    interval.mul_f64((part >> 11) as f64 / (1u64 << 53) as f64 / 8.0)
}

/// splitmix64: spreads neighbouring numbers evenly.
const fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::new(BreakerConfig::default(), 7);
        for _ in 0..5 {
            breaker.on_fault(now);
        }
        breaker
    }

    #[test]
    fn five_faults_open_it_and_four_do_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new(BreakerConfig::default(), 7);
        for _ in 0..4 {
            breaker.on_fault(now);
            assert_eq!(breaker.peek(now), Admission::Yes);
        }
        breaker.on_fault(now);
        assert_eq!(breaker.peek(now), Admission::No);
    }

    #[test]
    fn faults_far_apart_never_open_it() {
        let mut now = Instant::now();
        let mut breaker = Breaker::new(BreakerConfig::default(), 7);
        for _ in 0..50 {
            breaker.on_fault(now);
            now += Duration::from_secs(60);
        }
        assert!(breaker.is_closed());
    }

    #[test]
    fn an_endpoint_that_fails_two_calls_of_three_opens_despite_its_successes() {
        let now = Instant::now();
        let mut breaker = Breaker::new(BreakerConfig::default(), 7);
        for _ in 0..20 {
            breaker.on_fault(now);
            breaker.on_fault(now);
            if !breaker.is_closed() {
                return;
            }
            breaker.on_success(now);
        }
        panic!("it never opened");
    }

    #[test]
    fn it_admits_one_probe_after_the_cooldown() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let due = breaker.probe_at().expect("an open breaker has a next probe");
        assert!(due >= now + Duration::from_secs(2) && due <= now + Duration::from_millis(2250));
        assert_eq!(breaker.admit(due - Duration::from_millis(1)), Admission::No);
        assert_eq!(breaker.phase(), Phase::Open);
        assert_eq!(breaker.admit(due), Admission::Probe);
        assert_eq!(breaker.phase(), Phase::HalfOpen);
        assert_eq!(breaker.admit(due), Admission::No);
    }

    #[test]
    fn an_abandoned_probe_frees_its_place() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let due = breaker.probe_at().expect("open");
        assert_eq!(breaker.admit(due), Admission::Probe);
        breaker.on_abandoned(due);
        assert_eq!(breaker.admit(due), Admission::Probe);
    }

    #[test]
    fn failed_probes_double_the_cooldown_up_to_five_minutes() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        let mut waits = Vec::new();
        for _ in 0..10 {
            let due = breaker.probe_at().expect("open");
            waits.push((due - now).as_secs());
            now = due;
            assert_eq!(breaker.admit(now), Admission::Probe);
            breaker.on_probe_failed(now);
        }
        let within = |(wait, base): (&u64, u64)| *wait >= base && *wait <= base + base / 8;
        assert!(waits.iter().zip([2, 4, 8, 16, 32, 64, 128, 256, 300, 300]).all(within), "{waits:?}");
    }

    #[test]
    fn a_successful_probe_closes_it() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let due = breaker.probe_at().expect("open");
        breaker.admit(due);
        assert_eq!((breaker.phase(), breaker.probe_at()), (Phase::HalfOpen, None));
        breaker.on_success(due);
        assert_eq!((breaker.peek(due), breaker.phase()), (Admission::Yes, Phase::Closed));
    }

    #[test]
    fn one_fault_soon_after_the_probe_opens_it_again_for_longer() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let due = breaker.probe_at().expect("open");
        breaker.admit(due);
        breaker.on_success(due);
        breaker.on_fault(due);
        let again = breaker.probe_at().expect("what was decayed is not erased");
        assert!(again >= due + Duration::from_secs(4), "{:?}", again - due);
    }

    #[test]
    fn after_a_while_of_successes_it_starts_small_again() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let due = breaker.probe_at().expect("open");
        breaker.admit(due);
        for _ in 0..20 {
            breaker.on_success(due);
        }
        for _ in 0..4 {
            breaker.on_fault(due);
            assert!(breaker.is_closed());
        }
        breaker.on_fault(due);
        let wait = breaker.probe_at().expect("open") - due;
        assert!(wait <= Duration::from_millis(2250), "{wait:?}");
    }

    #[test]
    fn an_outage_that_many_calls_meet_counts_once() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let due = breaker.probe_at();
        for _ in 0..1_000 {
            breaker.on_fault(now);
        }
        assert_eq!(breaker.probe_at(), due, "what was under way does not put the probe off");
        let later = now + 2 * breaker.config.half_life;
        breaker.admit(later);
        breaker.on_success(later);
        breaker.on_fault(later);
        assert!(breaker.is_closed(), "it has decayed as five faults do");
    }

    #[test]
    fn a_call_that_fails_beside_the_probe_does_not_speak_for_it() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let due = breaker.probe_at().expect("open");
        breaker.admit(due);
        breaker.on_fault(due);
        assert_eq!(breaker.phase(), Phase::HalfOpen);
        assert_eq!(breaker.peek(due + Duration::from_secs(60)), Admission::No, "one probe at a time");
        breaker.on_probe_failed(due);
        assert_eq!(breaker.phase(), Phase::Open);
    }

    #[test]
    fn a_probe_given_up_after_it_closed_changes_nothing() {
        let now = Instant::now();
        let mut breaker = Breaker::new(BreakerConfig::default(), 7);
        breaker.on_abandoned(now);
        assert_eq!(breaker.phase(), Phase::Closed);
    }

    #[test]
    fn ten_thousand_clients_that_lose_an_endpoint_at_once_probe_it_spread_over_the_window() {
        let lost = Instant::now();
        let name = EndpointName::from("hosted");
        let mut client = 0x5eed_u64;
        let random = std::iter::repeat_with(|| {
            client = mix(client);
            client
        });
        // Those of a process each, and those of a fleet that are numbered.
        let fleets: [Vec<u64>; 2] = [random.take(10_000).collect(), (0..10_000).collect()];
        for fleet in fleets {
            let mut breakers: Vec<Breaker> = fleet
                .into_iter()
                .map(|client| Breaker::new(BreakerConfig::default(), breaker_seed(client, 1, &name)))
                .collect();
            let mut failed_at = vec![lost; breakers.len()];
            for (at, breaker) in failed_at.iter().zip(&mut breakers) {
                (0..5).for_each(|_| breaker.on_fault(*at));
            }
            let mut cooldown = BreakerConfig::default().cooldown;
            for round in 0..8 {
                let mut tenths = [0_usize; 10];
                for (at, breaker) in failed_at.iter_mut().zip(&mut breakers) {
                    let due = breaker.probe_at().expect("there is always a next probe");
                    let part = (due - *at - cooldown).as_secs_f64() / (cooldown.as_secs_f64() / 8.0);
                    assert!((0.0..1.0).contains(&part), "{part}");
                    tenths[(part * 10.0) as usize] += 1;
                    assert_eq!(breaker.admit(due), Admission::Probe);
                    breaker.on_probe_failed(due);
                    *at = due;
                }
                assert!(tenths.iter().all(|tenth| *tenth <= 2_000), "round {round}: {tenths:?}");
                cooldown = (cooldown * 2).min(BreakerConfig::default().max_cooldown);
            }
        }
    }

    #[test]
    fn chains_and_endpoints_of_one_client_probe_apart() {
        let seeds: std::collections::BTreeSet<u64> = [1, 2]
            .into_iter()
            .flat_map(|chain| ["a", "b", "ab", "ba"].map(|name| breaker_seed(7, chain, &name.into())))
            .collect();
        assert_eq!(seeds.len(), 8);
        assert_eq!(breaker_seed(7, 1, &"a".into()), breaker_seed(7, 1, &"a".into()));
    }

    /// One that opens at its second fault.
    fn touchy() -> Breaker {
        Breaker::new(BreakerConfig { faults: 2, ..BreakerConfig::default() }, 7)
    }

    const HALF_LIFE: Duration = Duration::from_secs(30);

    #[test]
    fn a_fault_loses_half_its_weight_in_its_half_life() {
        let now = Instant::now();
        // Half a fault is the slack: one and a half are not two.
        let mut breaker = touchy();
        breaker.on_fault(now);
        breaker.on_fault(now + HALF_LIFE);
        assert!(breaker.is_closed());
        let mut breaker = touchy();
        breaker.on_fault(now);
        breaker.on_fault(now + HALF_LIFE - Duration::from_secs(1));
        assert!(!breaker.is_closed());
    }

    #[test]
    fn an_endpoint_that_fails_every_second_call_opens_at_its_eleventh_fault() {
        let now = Instant::now();
        let mut breaker = Breaker::new(BreakerConfig::default(), 7);
        let opened = (1..100).find(|_| {
            breaker.on_success(now);
            breaker.on_fault(now);
            !breaker.is_closed()
        });
        assert_eq!(opened, Some(11));
    }

    /// How long a breaker stays open that opens now.
    fn opens_for(mut breaker: Breaker, now: Instant) -> u64 {
        (0..5).for_each(|_| breaker.on_fault(now));
        (breaker.probe_at().expect("open") - now).as_secs()
    }

    #[test]
    fn the_cooldown_starts_small_again_once_an_endpoint_has_been_well_for_a_while() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let due = breaker.probe_at().expect("open");
        breaker.admit(due);
        breaker.on_success(due);
        assert_eq!(opens_for(breaker.clone(), due), 4, "it has only just closed");
        // So long after, nothing is left of the faults that opened it.
        let faulted = due + 1_000 * HALF_LIFE;
        breaker.on_fault(faulted);
        let later = faulted + 3 * HALF_LIFE;
        // An eighth of the fault is left, and a success takes a fifth of that: a tenth is the bound.
        breaker.on_success(later);
        assert_eq!(opens_for(breaker.clone(), later), 4);
        breaker.on_success(later);
        assert_eq!(opens_for(breaker, later), 2);
    }

    #[test]
    fn the_spread_is_that_of_splitmix64_and_at_most_an_eighth() {
        // The first outputs of the generator's reference implementation, seeded with 0.
        let outputs = [0xe220_a839_7b1d_cdaf_u64, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        for (round, output) in (0..).zip(outputs) {
            // An interval so long that the last bits of the output tell.
            let part = output as f64 / 2f64.powi(64) * 1e6;
            let spread = spread(0, round, Duration::from_secs(8_000_000)).as_secs_f64();
            assert!((spread - part).abs() < 1e-6, "{round}: {spread} is not {part}");
        }
    }

    #[test]
    fn the_spread_differs_from_one_opening_to_the_next_and_from_client_to_client() {
        let parts = |seed: u64| {
            let mut now = Instant::now();
            let mut breaker = Breaker::new(BreakerConfig::default(), seed);
            (0..5).for_each(|_| breaker.on_fault(now));
            [2, 4, 8].map(|cooldown| {
                let due = breaker.probe_at().expect("open");
                let part = (due - now).as_secs_f64() / f64::from(cooldown) - 1.0;
                now = due;
                breaker.admit(now);
                breaker.on_probe_failed(now);
                (part * 1e6).round() as u64
            })
        };
        let (one, other) = (parts(1), parts(2));
        let all: std::collections::BTreeSet<u64> = one.into_iter().chain(other).collect();
        assert_eq!(all.len(), 6, "{one:?} {other:?}");
    }

    #[test]
    fn it_tells_where_it_stands() {
        let now = Instant::now();
        let mut breaker = Breaker::new(BreakerConfig::default(), 7);
        assert_eq!(breaker.phase().label(), "closed");
        (0..5).for_each(|_| breaker.on_fault(now));
        assert_eq!(breaker.phase().label(), "open");
        breaker.admit(breaker.probe_at().expect("open"));
        assert_eq!(breaker.phase().label(), "half-open");
    }
}
