//! The pool: all endpoints, and the choice among them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{Admission, Breaker, BreakerConfig, Header, HeaderWindow, Identity};
use crate::{
    failure::Verdict,
    units::{BlockRef, EndpointName},
};

/// The block time assumed until one is measured.
const UNMEASURED_BLOCK_TIME: Duration = Duration::from_secs(12);
/// An endpoint is stale when it is further behind than both of these.
const MAX_LAG: Duration = Duration::from_secs(15);
const MAX_LAG_BLOCKS: u64 = 3;
/// How long an endpoint is remembered not to serve a method: nodes are upgraded, gateways have bad moments.
const UNSUPPORTED_FOR: Duration = Duration::from_secs(600);
/// Block times are measured in whole seconds of the chain's clock; faster chains measure as this.
const SHORTEST_BLOCK_TIME: Duration = Duration::from_millis(100);

/// An endpoint's place in its pool, in the order of the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub usize);

/// How the pool judges its endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PoolConfig {
    /// How far behind the frontier an endpoint may be before it is stale, in blocks (E3). Default: the
    /// larger of 3 blocks and 15 s, by the time that the headers themselves tell.
    pub max_lag: Option<u64>,
    /// The chain's block time. Default: measured from headers.
    #[serde(with = "humantime_serde")]
    pub block_time: Option<Duration>,
    /// How long a preferred endpoint must have been well before it is taken back (R1). Default 30 s.
    #[serde(with = "humantime_serde")]
    pub min_hold: Duration,
    /// The circuit breaker of each endpoint (E4).
    pub breaker: BreakerConfig,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            max_lag: None,
            block_time: None,
            min_hold: Duration::from_secs(30),
            breaker: BreakerConfig::default(),
        }
    }
}

/// What a call needs of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// An answer that is current: only endpoints inside `max_lag` (R2).
    Current,
    /// An answer that proves itself, such as a read at the hash of the block at this height: endpoints
    /// that reach up to there, and those inside `max_lag`, which may reach it any moment.
    AtHeight(u64),
    /// To be sent: only endpoints inside `max_lag`; a fork that lags mines what it is sent.
    Send,
}

/// Where a call goes. It must be ended or abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Which endpoint.
    pub id: EndpointId,
    /// Whether this call is the probe of a half-open breaker.
    pub probe: bool,
}

/// All endpoints of one chain.
#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    endpoints: Vec<EndpointState>,
    /// The endpoint that serves until it cannot (R1).
    sticky: usize,
}

/// What is known about one endpoint.
#[derive(Debug)]
pub struct EndpointState {
    /// Its name.
    pub name: EndpointName,
    identity: Identity,
    head: Option<Header>,
    /// When it last showed its head, or one above.
    head_at: Option<Instant>,
    /// An earlier header of the same endpoint, to measure the block time from.
    baseline: Option<Header>,
    window: HeaderWindow,
    breaker: Breaker,
    stale: bool,
    cool_until: Option<Instant>,
    unsupported: HashMap<String, Instant>,
    well_since: Option<Instant>,
    calls: u64,
    faults: u64,
}

/// A snapshot of one endpoint, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndpointStatus {
    /// Its name.
    pub name: EndpointName,
    /// Why it gets no calls now; `None` when it is in use.
    pub excluded: Option<String>,
    /// Its head.
    pub head: Option<BlockRef>,
    /// Blocks behind the frontier.
    pub lag: Option<u64>,
    /// Calls made to it.
    pub calls: u64,
    /// Faults among them.
    pub faults: u64,
}

impl Pool {
    /// A pool of endpoints in order of preference. `seed` differs from client to client and keeps their
    /// probes apart.
    pub fn new(config: PoolConfig, seed: u64, names: impl IntoIterator<Item = EndpointName>) -> Self {
        let endpoint = |(index, name): (usize, EndpointName)| EndpointState {
            name,
            identity: Identity::Unknown,
            head: None,
            head_at: None,
            baseline: None,
            window: HeaderWindow::default(),
            breaker: Breaker::new(config.breaker, seed.wrapping_add(index as u64)),
            stale: false,
            cool_until: None,
            unsupported: HashMap::new(),
            well_since: None,
            calls: 0,
            faults: 0,
        };
        Self { config, endpoints: names.into_iter().enumerate().map(endpoint).collect(), sticky: 0 }
    }

    /// Every endpoint's place.
    pub fn ids(&self) -> impl Iterator<Item = EndpointId> + use<> {
        (0..self.endpoints.len()).map(EndpointId)
    }

    /// One endpoint.
    pub fn get(&self, id: EndpointId) -> &EndpointState {
        &self.endpoints[id.0]
    }

    /// Chooses the endpoint for the next try of a call, or `None` when none is left.
    ///
    /// `prefer` comes first where it is usable, then the sticky endpoint, then the others in order. When
    /// no endpoint is well, one that rests, or did not serve the method, is asked all the same (E5): a pool
    /// never empties itself. Wrong identity and, for [`Need::Current`] and [`Need::Send`], staleness are the
    /// exceptions.
    pub fn begin(
        &mut self,
        need: Need,
        method: &str,
        prefer: Option<EndpointId>,
        tried: &[EndpointId],
        now: Instant,
    ) -> Option<Pick> {
        self.settle_sticky(now);
        let sticky = self.sticky;
        let order = prefer
            .into_iter()
            .map(|id| id.0)
            .chain([sticky])
            .chain(0..self.endpoints.len())
            .filter(|index| !tried.contains(&EndpointId(*index)));
        let may = |index: &usize| self.barred(*index, need).is_none();
        let well = |index: &usize| {
            let endpoint = &self.endpoints[*index];
            may(index) && endpoint.rests(now).is_none() && !endpoint.lacks(method, now)
        };
        let chosen = order.clone().find(well).or_else(|| order.clone().find(may))?;
        let endpoint = &mut self.endpoints[chosen];
        endpoint.calls += 1;
        let probe = endpoint.breaker.admit(now) == Admission::Probe;
        Some(Pick { id: EndpointId(chosen), probe })
    }

    /// The endpoint that a session is pinned to first: the sticky one, or whichever may serve.
    pub fn favourite(&mut self, now: Instant) -> Option<EndpointId> {
        self.settle_sticky(now);
        let may_serve = |index: &usize| self.barred(*index, Need::Current).is_none();
        [self.sticky].into_iter().chain(0..self.endpoints.len()).find(may_serve).map(EndpointId)
    }

    /// Admits a call of the head tracker: whatever the identity or lag, but not against the breaker, and not
    /// while the endpoint asked us to wait.
    pub fn begin_tracking(&mut self, id: EndpointId, now: Instant) -> Option<Pick> {
        if self.endpoints[id.0].cools(now) {
            return None;
        }
        match self.endpoints[id.0].breaker.admit(now) {
            Admission::Yes => Some(Pick { id, probe: false }),
            Admission::Probe => Some(Pick { id, probe: true }),
            Admission::No => None,
        }
    }

    /// Tells how a call ended.
    pub fn end(&mut self, pick: Pick, method: &str, verdict: &Verdict, now: Instant) {
        let endpoint = &mut self.endpoints[pick.id.0];
        match verdict {
            Verdict::Answer | Verdict::Reverted(_) => endpoint.breaker.on_success(now),
            Verdict::Fault(_) => {
                endpoint.faults += 1;
                endpoint.well_since = None;
                endpoint.breaker.on_fault(now);
            }
            Verdict::RateLimited { after } => {
                let after = after.unwrap_or(Duration::from_secs(1)).min(Duration::from_secs(300));
                endpoint.cool_until = Some(now + after);
                if pick.probe {
                    endpoint.breaker.on_success(now);
                }
            }
            Verdict::WrongIdentity => {
                endpoint.identity = Identity::Wrong("it answered for another chain".into());
                if pick.probe {
                    endpoint.breaker.on_abandoned(now);
                }
            }
            // The endpoint spoke, and speaking is all that a probe asks for.
            Verdict::Unsupported
            | Verdict::NotYet
            | Verdict::Missing { .. }
            | Verdict::TxRefused(_)
            | Verdict::RangeTooLarge { .. }
            | Verdict::Invalid
            | Verdict::Unclassified => {
                if pick.probe {
                    endpoint.breaker.on_success(now);
                }
                if *verdict == Verdict::Unsupported {
                    endpoint.unsupported.insert(method.to_owned(), now);
                }
            }
        }
    }

    /// Tells that a call was given up before it ended.
    pub fn abandon(&mut self, pick: Pick, now: Instant) {
        if pick.probe {
            self.endpoints[pick.id.0].breaker.on_abandoned(now);
        }
    }

    /// Notes what an identity check found.
    pub fn set_identity(&mut self, id: EndpointId, identity: Identity, now: Instant) {
        let endpoint = &mut self.endpoints[id.0];
        if identity == Identity::Verified && endpoint.well_since.is_none() {
            endpoint.well_since = Some(now);
        }
        endpoint.identity = identity;
        self.judge_lag(now);
    }

    /// Notes a latest header.
    ///
    /// A URL may be a load balancer over replicas at different heights (E9): a header below the head that
    /// contradicts nothing is a replica that lags, and does not lower the head until none has reached it again
    /// for 15 s.
    pub fn on_head(&mut self, id: EndpointId, header: Header, now: Instant) {
        let endpoint = &mut self.endpoints[id.0];
        let contradicts = endpoint.window.hash_at(header.number).is_some_and(|known| known != header.hash);
        let lags = endpoint.head.is_some_and(|head| header.number < head.number)
            && !contradicts
            && endpoint.head_at.is_some_and(|at| now.saturating_duration_since(at) < MAX_LAG);
        if lags {
            return;
        }
        if endpoint.head.is_some_and(|head| header.number < head.number) {
            // It went back: what was above is gone.
            endpoint.window = HeaderWindow::default();
        }
        endpoint.window.insert(&header);
        endpoint.head = Some(header);
        endpoint.head_at = Some(now);
        if endpoint.baseline.is_none_or(|baseline| baseline.number > header.number) {
            endpoint.baseline = Some(header);
        }
        self.judge_lag(now);
    }

    /// Notes an older header of the endpoint, to measure the block time from.
    pub fn on_ancestor(&mut self, id: EndpointId, header: Header) {
        let endpoint = &mut self.endpoints[id.0];
        if endpoint.baseline.is_none_or(|baseline| baseline.number > header.number) {
            endpoint.baseline = Some(header);
        }
    }

    /// The highest head of an identified endpoint.
    pub fn frontier(&self) -> Option<Header> {
        let verified = self.endpoints.iter().filter(|endpoint| endpoint.identity == Identity::Verified);
        verified.filter_map(|endpoint| endpoint.head).max_by_key(|head| head.number)
    }

    /// How many identified endpoints, other than `except`, show this block as canonical.
    pub fn corroborations(&self, block: BlockRef, except: Option<EndpointId>) -> usize {
        let shows = |(index, endpoint): &(usize, &EndpointState)| {
            Some(EndpointId(*index)) != except
                && endpoint.identity == Identity::Verified
                && endpoint.window.hash_at(block.number) == Some(block.hash)
        };
        self.endpoints.iter().enumerate().filter(shows).count()
    }

    /// The chain's block time: configured, else measured, else 12 s.
    pub fn block_time(&self) -> Duration {
        if let Some(configured) = self.config.block_time {
            return configured;
        }
        let measure = |endpoint: &EndpointState| {
            let (old, new) = (endpoint.baseline?, endpoint.head?);
            let blocks = new.number.checked_sub(old.number).filter(|blocks| *blocks > 0)?;
            let seconds = new.timestamp.saturating_sub(old.timestamp);
            Some((blocks, Duration::from_secs(seconds).div_f64(blocks as f64)))
        };
        let verified = self.endpoints.iter().filter(|endpoint| endpoint.identity == Identity::Verified);
        let longest = verified.filter_map(measure).max_by_key(|(blocks, _)| *blocks);
        longest.map_or(UNMEASURED_BLOCK_TIME, |(_, time)| time.max(SHORTEST_BLOCK_TIME))
    }

    /// Why an endpoint gets no such calls now; `None` when it may.
    pub fn excluded(&self, id: EndpointId, need: Need, now: Instant) -> Option<String> {
        self.barred(id.0, need).or_else(|| self.endpoints[id.0].rests(now).map(str::to_owned))
    }

    /// A snapshot of every endpoint.
    pub fn status(&self, now: Instant) -> Vec<EndpointStatus> {
        let frontier = self.frontier().map(|head| head.number);
        let status = |(index, endpoint): (usize, &EndpointState)| EndpointStatus {
            name: endpoint.name.clone(),
            excluded: self.excluded(EndpointId(index), Need::Current, now),
            head: endpoint.head.map(|head| head.block()),
            lag: frontier.zip(endpoint.head).map(|(frontier, head)| frontier.saturating_sub(head.number)),
            calls: endpoint.calls,
            faults: endpoint.faults,
        };
        self.endpoints.iter().enumerate().map(status).collect()
    }

    fn barred(&self, index: usize, need: Need) -> Option<String> {
        let endpoint = &self.endpoints[index];
        match &endpoint.identity {
            Identity::Unknown => return Some("not identified yet".into()),
            Identity::Wrong(why) => return Some(why.clone()),
            Identity::Verified => {}
        }
        match need {
            Need::AtHeight(height) if endpoint.head.is_some_and(|head| head.number >= height) => None,
            Need::AtHeight(_) | Need::Current | Need::Send if endpoint.stale => {
                let lag = self.frontier().zip(endpoint.head).map(|(top, head)| top.number - head.number);
                Some(format!("stale: {} blocks behind", lag.unwrap_or_default()))
            }
            Need::AtHeight(_) | Need::Current | Need::Send => None,
        }
    }

    fn settle_sticky(&mut self, now: Instant) {
        let usable = |index: usize| {
            self.barred(index, Need::Current).is_none() && self.endpoints[index].rests(now).is_none()
        };
        let held = |index: usize| {
            let since = self.endpoints[index].well_since;
            since.is_some_and(|since| now.saturating_duration_since(since) >= self.config.min_hold)
        };
        let preferred = (0..self.sticky).find(|index| usable(*index) && held(*index));
        let fallback = || (0..self.endpoints.len()).find(|index| usable(*index));
        if let Some(preferred) = preferred {
            self.sticky = preferred;
        } else if !usable(self.sticky)
            && let Some(fallback) = fallback()
        {
            self.sticky = fallback;
        }
    }

    fn judge_lag(&mut self, now: Instant) {
        let Some(frontier) = self.frontier() else { return };
        let max_lag = self.config.max_lag;
        for endpoint in &mut self.endpoints {
            let Some(head) = endpoint.head else { continue };
            let blocks = frontier.number.saturating_sub(head.number);
            let time = Duration::from_secs(frontier.timestamp.saturating_sub(head.timestamp));
            let behind = |part: u32| match max_lag {
                Some(max_lag) => blocks > max_lag / u64::from(part),
                None => blocks > MAX_LAG_BLOCKS / u64::from(part) && time > MAX_LAG / part,
            };
            if behind(1) {
                endpoint.stale = true;
                endpoint.well_since = None;
            } else if !behind(2) {
                // Only half the way back, so that an endpoint at the edge does not come and go.
                endpoint.stale = false;
            }
            let well = !endpoint.stale && endpoint.breaker.is_closed();
            if well && endpoint.identity == Identity::Verified && endpoint.well_since.is_none() {
                endpoint.well_since = Some(now);
            }
        }
    }
}

impl EndpointState {
    /// What is known of its identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its head.
    pub fn head(&self) -> Option<Header> {
        self.head
    }

    /// The hash that it showed at a height.
    pub fn hash_at(&self, number: u64) -> Option<alloy_primitives::B256> {
        self.window.hash_at(number)
    }

    /// Whether its breaker is closed and it is not stale: whether a session may stay on it.
    pub fn is_well(&self) -> bool {
        self.identity == Identity::Verified && self.breaker.is_closed() && !self.stale
    }

    /// The highest block of its recent run that is not above a height.
    pub fn block_at_most(&self, number: u64) -> Option<BlockRef> {
        self.window.at_most(number)
    }

    /// When the time is over for which it asked us to wait; `None` when it did not, or that is past.
    pub fn rested_at(&self) -> Option<Instant> {
        self.cool_until
    }

    /// When its breaker wants the next probe; `None` when it is closed.
    pub fn probe_at(&self) -> Option<Instant> {
        self.breaker.probe_at()
    }

    fn rests(&self, now: Instant) -> Option<&'static str> {
        if self.breaker.peek(now) == Admission::No {
            Some("its breaker is open")
        } else if self.cools(now) {
            Some("it asked us to wait")
        } else {
            None
        }
    }

    fn lacks(&self, method: &str, now: Instant) -> bool {
        let told = self.unsupported.get(method);
        told.is_some_and(|told| now.saturating_duration_since(*told) < UNSUPPORTED_FOR)
    }

    fn cools(&self, now: Instant) -> bool {
        self.cool_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;
    use crate::failure::FaultKind;

    const FAULT: Verdict = Verdict::Fault(FaultKind::Refused);

    fn header(number: u64) -> Header {
        let hash = |n: u64| B256::left_padding_from(&n.to_be_bytes());
        Header { number, hash: hash(number), parent: hash(number.saturating_sub(1)), timestamp: number }
    }

    /// Endpoints `a`, `b`, … at these heads, on a chain of one-second blocks.
    fn pool(heads: &[u64], now: Instant) -> Pool {
        let names = (0..heads.len()).map(|i| EndpointName::new(((b'a' + i as u8) as char).to_string()));
        let config = PoolConfig { block_time: Some(Duration::from_secs(1)), ..PoolConfig::default() };
        let mut pool = Pool::new(config, 7, names);
        for (index, head) in heads.iter().enumerate() {
            pool.set_identity(EndpointId(index), Identity::Verified, now);
            pool.on_head(EndpointId(index), header(*head), now);
        }
        pool
    }

    /// The names in the order in which a call that always fails would try them.
    fn order(pool: &mut Pool, need: Need, now: Instant) -> String {
        let mut tried = Vec::new();
        while let Some(pick) = pool.begin(need, "m", None, &tried, now) {
            pool.abandon(pick, now);
            tried.push(pick.id);
        }
        tried.iter().map(|id| pool.get(*id).name.as_str().to_owned()).collect()
    }

    #[test]
    fn the_configured_order_is_the_preference() {
        let now = Instant::now();
        assert_eq!(order(&mut pool(&[100, 100, 100], now), Need::Current, now), "abc");
    }

    #[test]
    fn an_endpoint_that_asked_us_to_wait_is_left_alone_by_the_tracker_too() {
        let now = Instant::now();
        let mut pool = pool(&[100, 100], now);
        let pick = pool.begin(Need::Current, "m", None, &[], now).expect("there is one");
        let after = Duration::from_secs(3);
        pool.end(pick, "m", &Verdict::RateLimited { after: Some(after) }, now);
        assert_eq!(pool.begin_tracking(pick.id, now + after - Duration::from_millis(1)), None);
        assert_eq!(pool.begin_tracking(pick.id, now + after), Some(pick));
        assert_eq!(order(&mut pool, Need::Current, now), "ba");
    }

    #[test]
    fn a_stale_endpoint_is_asked_only_for_what_it_has_and_can_prove() {
        let now = Instant::now();
        let mut pool = pool(&[60, 100, 100], now);
        assert_eq!(order(&mut pool, Need::Current, now), "bc");
        assert_eq!(order(&mut pool, Need::Send, now), "bc");
        assert_eq!(order(&mut pool, Need::AtHeight(61), now), "bc");
        assert_eq!(order(&mut pool, Need::AtHeight(60), now), "bac");
    }

    #[test]
    fn a_few_blocks_are_never_stale_and_neither_are_a_few_seconds() {
        let now = Instant::now();
        let stale = |behind: Header| {
            let mut pool = pool(&[100, 100], now);
            pool.on_head(EndpointId(1), behind, now);
            pool.on_head(EndpointId(0), Header { timestamp: 1000, ..header(200) }, now);
            pool.excluded(EndpointId(1), Need::Current, now).is_some()
        };
        assert!(!stale(Header { timestamp: 0, ..header(197) }), "a chain that was idle");
        assert!(!stale(Header { timestamp: 985, ..header(150) }), "a chain of many blocks a second");
        assert!(stale(Header { timestamp: 984, ..header(196) }));
    }

    #[test]
    fn staleness_is_left_only_half_way_back() {
        let now = Instant::now();
        let mut pool = pool(&[84, 100], now);
        let stale = |pool: &Pool| pool.excluded(EndpointId(0), Need::Current, now).is_some();
        assert!(stale(&pool), "16 behind, 15 allowed");
        pool.on_head(EndpointId(0), header(90), now);
        assert!(stale(&pool), "10 behind, but not yet back");
        pool.on_head(EndpointId(0), header(93), now);
        assert!(!stale(&pool));
    }

    #[test]
    fn an_open_breaker_sends_the_call_on_and_the_last_endpoint_is_asked_all_the_same() {
        let now = Instant::now();
        let mut pool = pool(&[100, 100], now);
        for id in [EndpointId(0), EndpointId(1)] {
            for _ in 0..5 {
                pool.end(Pick { id, probe: false }, "m", &FAULT, now);
            }
            assert_eq!(order(&mut pool, Need::Current, now), "ba");
        }
    }

    #[test]
    fn another_chain_is_never_asked() {
        let now = Instant::now();
        let mut pool = pool(&[100], now);
        pool.set_identity(EndpointId(0), Identity::Wrong("chain id 5".into()), now);
        assert_eq!(order(&mut pool, Need::AtHeight(1), now), "");
    }

    #[test]
    fn calls_stay_where_they_are_until_the_preferred_endpoint_has_been_well_for_a_while() {
        let now = Instant::now();
        let mut pool = pool(&[100, 100], now);
        for _ in 0..5 {
            pool.end(Pick { id: EndpointId(0), probe: false }, "m", &FAULT, now);
        }
        assert_eq!(order(&mut pool, Need::Current, now), "ba");
        let back = now + Duration::from_secs(5);
        let probe = pool.begin_tracking(EndpointId(0), back).expect("the cooldown is over");
        pool.end(probe, "m", &Verdict::Answer, back);
        pool.on_head(EndpointId(0), header(101), back);
        assert_eq!(order(&mut pool, Need::Current, back), "ba");
        assert_eq!(order(&mut pool, Need::Current, back + Duration::from_secs(30)), "ab");
    }

    #[test]
    fn a_method_that_is_not_served_is_asked_for_elsewhere() {
        let now = Instant::now();
        let mut pool = pool(&[100, 100], now);
        pool.end(Pick { id: EndpointId(0), probe: false }, "m", &Verdict::Unsupported, now);
        assert_eq!(order(&mut pool, Need::Current, now), "ba", "only when nobody else is left");
        let other = pool.begin(Need::Current, "other", None, &[], now).map(|pick| pick.id);
        assert_eq!(other, Some(EndpointId(0)));
        assert_eq!(order(&mut pool, Need::Current, now + UNSUPPORTED_FOR), "ab");
    }

    #[test]
    fn a_lagging_replica_behind_the_url_does_not_lower_its_head() {
        let now = Instant::now();
        let mut pool = pool(&[100], now);
        pool.on_head(EndpointId(0), header(99), now + Duration::from_secs(1));
        assert_eq!(pool.frontier().map(|head| head.number), Some(100));
        pool.on_head(EndpointId(0), header(99), now + Duration::from_secs(20));
        assert_eq!(pool.frontier().map(|head| head.number), Some(99), "no replica has reached 100 again");
    }

    #[test]
    fn a_replica_that_shows_a_height_between_polls_does_not_lower_the_head() {
        let now = Instant::now();
        let mut pool = pool(&[100], now);
        pool.on_head(EndpointId(0), header(104), now);
        pool.on_head(EndpointId(0), header(102), now);
        assert_eq!(pool.frontier().map(|head| head.number), Some(104));
        let other = Header { hash: B256::ZERO, parent: B256::ZERO, ..header(103) };
        pool.on_head(EndpointId(0), other, now);
        assert_eq!(
            pool.frontier().map(|head| head.number),
            Some(103),
            "another hash there is a reorganisation"
        );
    }

    #[test]
    fn a_rate_limit_in_answer_to_a_probe_closes_the_breaker_and_is_waited_out() {
        let now = Instant::now();
        let mut pool = pool(&[100, 100], now);
        for _ in 0..5 {
            pool.end(Pick { id: EndpointId(0), probe: false }, "m", &FAULT, now);
        }
        let due = pool.get(EndpointId(0)).probe_at().expect("its breaker is open");
        let probe = pool.begin_tracking(EndpointId(0), due).expect("the cooldown is over");
        let limited = Verdict::RateLimited { after: Some(Duration::from_secs(60)) };
        pool.end(probe, "m", &limited, due);
        assert!(pool.begin_tracking(EndpointId(0), due + Duration::from_secs(59)).is_none());
        assert!(pool.begin_tracking(EndpointId(0), due + Duration::from_secs(60)).is_some());
    }

    #[test]
    fn a_second_endpoint_corroborates_a_block_only_by_its_hash() {
        let now = Instant::now();
        let pool = pool(&[100, 101], now);
        let block = header(100).block();
        assert_eq!(pool.corroborations(block, Some(EndpointId(0))), 1);
        let other = BlockRef { hash: B256::ZERO, ..block };
        assert_eq!(pool.corroborations(other, None), 0);
    }

    #[test]
    fn the_block_time_is_measured_over_the_longest_span() {
        let now = Instant::now();
        let mut pool = Pool::new(PoolConfig::default(), 7, [EndpointName::from("a")]);
        assert_eq!(pool.block_time(), UNMEASURED_BLOCK_TIME);
        pool.set_identity(EndpointId(0), Identity::Verified, now);
        pool.on_head(EndpointId(0), Header { timestamp: 1000, ..header(100) }, now);
        pool.on_ancestor(EndpointId(0), Header { timestamp: 968, ..header(84) });
        assert_eq!(pool.block_time(), Duration::from_secs(2));
    }
}
