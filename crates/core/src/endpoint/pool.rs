//! The pool: all endpoints, and the choice among them.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{
    Admission, Breaker, BreakerConfig, EndpointState, EndpointStatus, Header, HeaderWindow, Holds, Identity,
    Role,
};
use crate::{
    failure::{DataKind, FaultKind, Verdict},
    units::{BlockRef, EndpointName},
};

/// The block time assumed until one is measured.
const UNMEASURED_BLOCK_TIME: Duration = Duration::from_secs(12);
/// An endpoint is stale when it is further behind than both of these.
const MAX_LAG: Duration = Duration::from_secs(15);
const MAX_LAG_BLOCKS: u64 = 3;
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
    /// An answer that covers all blocks up to this height, and does not show whether it did, such as logs: only
    /// endpoints that have shown this height.
    Reached(u64),
    /// To be sent: only endpoints inside `max_lag`; a fork that lags mines what it is sent.
    Send,
}

/// What becomes of endpoints that rest, because of their breaker or because they asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resting {
    /// They are asked when nobody else is left (E5).
    Ask,
    /// They are left alone: somebody has spoken already.
    Leave,
}

/// Why an endpoint may not serve a need at all.
enum Barred<'a> {
    Unidentified,
    Wrong(&'a str),
    SendOnly,
    Stale,
    Behind(u64),
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

impl Pool {
    /// A pool of endpoints in order of preference. `seed` differs from client to client and keeps their
    /// probes apart.
    pub fn new(config: PoolConfig, seed: u64, names: impl IntoIterator<Item = (EndpointName, Role)>) -> Self {
        let endpoint = |(index, (name, role)): (usize, (EndpointName, Role))| {
            EndpointState::new(name, role, Breaker::new(config.breaker, seed.wrapping_add(index as u64)))
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

    /// The endpoint that serves until it cannot (R1).
    pub fn sticky(&self) -> EndpointId {
        EndpointId(self.sticky)
    }

    /// Chooses the endpoint for the next try of a call, or `None` when none is left.
    ///
    /// `prefer` comes first where it is usable, then the sticky endpoint, then the others in order. When
    /// no endpoint is well, one that rests, or did not serve the method, is asked all the same (E5), unless
    /// `resting` says that somebody has spoken already: a pool never empties itself. Wrong identity and, for [`Need::Current`] and [`Need::Send`], staleness are the
    /// exceptions.
    pub fn begin(
        &mut self,
        need: Need,
        method: &str,
        prefer: Option<EndpointId>,
        tried: &[EndpointId],
        resting: Resting,
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
        let last_resort = || match resting {
            Resting::Ask => order.clone().find(may),
            Resting::Leave => None,
        };
        let chosen = order.clone().find(well).or_else(last_resort)?;
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
        let endpoint = &mut self.endpoints[id.0];
        if endpoint.cools(now) {
            return None;
        }
        let probe = match endpoint.breaker.admit(now) {
            Admission::Yes => false,
            Admission::Probe => true,
            Admission::No => return None,
        };
        endpoint.calls += 1;
        endpoint.silent_since.get_or_insert(now);
        Some(Pick { id, probe })
    }

    /// Admits a call to this very endpoint, unless it rests.
    pub fn begin_only(&mut self, id: EndpointId, now: Instant) -> Option<Pick> {
        let endpoint = &mut self.endpoints[id.0];
        if endpoint.rests(now).is_some() {
            return None;
        }
        endpoint.calls += 1;
        Some(Pick { id, probe: endpoint.breaker.admit(now) == Admission::Probe })
    }

    /// The endpoint that is about to have what is at the frontier: a declared origin that is well, beside at
    /// least one other endpoint, and not known to lack that height.
    pub fn origin(&self, method: &str, kind: DataKind, height: u64, now: Instant) -> Option<EndpointId> {
        let origin = self.ids().find(|id| self.get(*id).role == Role::Origin)?;
        let well = self.barred(origin.0, Need::Current).is_none() && self.get(origin).rests(now).is_none();
        let lacks =
            self.get(origin).lacks(method, now) || self.holds(origin, kind, height, now) == Holds::Missing;
        (self.endpoints.len() > 1 && well && !lacks).then_some(origin)
    }

    /// Whether an endpoint holds data of a kind at a height.
    pub fn holds(&self, id: EndpointId, kind: DataKind, height: u64, now: Instant) -> Holds {
        let endpoint = self.get(id);
        endpoint.head.map_or(Holds::Unknown, |head| endpoint.history.holds(kind, height, head.number, now))
    }

    /// Notes that an endpoint answered with data at a height.
    pub fn history_shown(&mut self, id: EndpointId, kind: DataKind, height: u64) {
        let endpoint = &mut self.endpoints[id.0];
        if let Some(head) = endpoint.head {
            endpoint.history.shown(kind, height, head.number);
        }
    }

    /// Notes that an endpoint does not hold data at a height, and the lowest that it says it holds.
    pub fn history_refused(
        &mut self,
        id: EndpointId,
        (kind, height): (DataKind, u64),
        oldest: Option<u64>,
        now: Instant,
    ) {
        let endpoint = &mut self.endpoints[id.0];
        if let Some(head) = endpoint.head {
            endpoint.history.refused(kind, height, oldest, head.number, now);
        }
    }

    /// The lowest height that any endpoint is known to hold.
    pub fn oldest(&self, kind: DataKind) -> Option<u64> {
        let held = |endpoint: &EndpointState| endpoint.history.oldest(kind, endpoint.head?.number);
        self.endpoints.iter().filter_map(held).min()
    }

    /// How many endpoints may be sent to, breaker and rest aside.
    pub fn senders(&self) -> usize {
        self.ids().filter(|id| self.may_serve(*id, Need::Send)).count()
    }

    /// Whether an endpoint may serve a need, breaker and rest aside.
    pub fn may_serve(&self, id: EndpointId, need: Need) -> bool {
        self.barred(id.0, need).is_none()
    }

    /// Tells how a call ended.
    pub fn end(&mut self, pick: Pick, method: &str, verdict: &Verdict, now: Instant) {
        let endpoint = &mut self.endpoints[pick.id.0];
        if *verdict != Verdict::Fault(FaultKind::Timeout) {
            endpoint.silent_since = None;
            endpoint.spoke_at = Some(now);
            endpoint.mute = false;
        }
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

    /// Tells that a call which began at `begun` timed out. An endpoint that has said nothing since then is passed
    /// over until it does: the next call would hang as well. One that answered others meanwhile was only slow.
    pub fn unheard(&mut self, id: EndpointId, begun: Instant) {
        let endpoint = &mut self.endpoints[id.0];
        endpoint.mute = endpoint.spoke_at.is_none_or(|spoke| spoke <= begun);
    }

    /// The endpoints that get no such calls now while another is well.
    pub fn resting(&self, need: Need, now: Instant) -> Vec<EndpointId> {
        self.ids().filter(|id| self.excluded(*id, need, now).is_some()).collect()
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
        endpoint.told = None;
        endpoint.head = Some(header);
        endpoint.head_at = Some(now);
        if endpoint.baseline.is_none_or(|baseline| baseline.number > header.number) {
            endpoint.baseline = Some(header);
        }
        self.judge_lag(now);
    }

    /// Notes that an endpoint named this height as its latest, without the header.
    pub fn on_height(&mut self, id: EndpointId, height: u64) {
        self.endpoints[id.0].told = Some(height);
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
        let endpoint = self.get(id);
        match self.barred(id.0, need) {
            None => endpoint.rests(now).map(str::to_owned),
            Some(Barred::Unidentified) => Some("not identified yet".to_owned()),
            Some(Barred::Wrong(why)) => Some(why.to_owned()),
            Some(Barred::SendOnly) => Some("it is only sent to".to_owned()),
            Some(Barred::Behind(height)) => Some(format!("it has not shown block {height}")),
            Some(Barred::Stale) => {
                let heads = self.frontier().zip(endpoint.head);
                let lag = heads.map_or(0, |(top, head)| top.number.saturating_sub(head.number));
                Some(format!("stale: {lag} blocks behind"))
            }
        }
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

    fn barred(&self, index: usize, need: Need) -> Option<Barred<'_>> {
        let endpoint = &self.endpoints[index];
        match &endpoint.identity {
            Identity::Unknown => return Some(Barred::Unidentified),
            Identity::Wrong(why) => return Some(Barred::Wrong(why)),
            Identity::Verified => {}
        }
        match need {
            Need::AtHeight(_) | Need::Reached(_) | Need::Current if endpoint.role == Role::SendOnly => {
                Some(Barred::SendOnly)
            }
            Need::Reached(height) => {
                let reached = endpoint.reached().is_some_and(|reached| reached >= height);
                (!reached).then_some(Barred::Behind(height))
            }
            Need::AtHeight(height) if endpoint.head.is_some_and(|head| head.number >= height) => None,
            Need::AtHeight(_) | Need::Current | Need::Send if endpoint.stale => Some(Barred::Stale),
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

#[cfg(test)]
mod tests;
