//! How far each endpoint has come: the frontier, which heads are believed (E2), and which are stale (E3).

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use super::{EndpointId, Need, Pool};
use crate::{
    endpoint::{
        Header, HeaderWindow, Identity, Role,
        state::{Doubt, EndpointState},
    },
    units::BlockRef,
};

/// The block time assumed until one is measured.
pub(super) const UNMEASURED_BLOCK_TIME: Duration = Duration::from_secs(12);
/// An endpoint is stale when it is further behind than both of these.
const MAX_LAG: Duration = Duration::from_secs(15);
const MAX_LAG_BLOCKS: u64 = 3;
/// Block times are measured in whole seconds of the chain's clock; faster chains measure as this.
const SHORTEST_BLOCK_TIME: Duration = Duration::from_millis(100);
/// How far ahead of the clock a header's time may be: nodes allow as much, and clocks differ.
const AHEAD_OF_CLOCK: Duration = Duration::from_secs(15);
/// How much faster than measured a chain may come on, and by how many blocks more: some make blocks on demand.
const FASTER: f64 = 4.0;
const BURST: f64 = 64.0;
/// The same for a height that a reply names: nobody is passed over for it, so that more is let pass.
const NAMED_BURST: f64 = 256.0;
/// A head that is older than this many block times, and than this, is old by the clock.
const OLD_BLOCKS: u32 = 10;
const OLD: Duration = Duration::from_secs(60);
/// How many blocks in a row make a chain one of steady blocks.
const STEADY: u32 = 8;
/// How much longer than the measured block time one block of such a chain may take.
const UNEVEN: u32 = 4;

/// How evenly the frontier has come on.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Advances in a row that took no more than [`UNEVEN`] block times a block.
    even: u32,
}

impl Pool {
    /// Tells the time of day. Heads are held against it; without it none is from the future.
    pub fn tell_time(&mut self, now: Instant, unix: Duration) {
        self.time_of_day = Some((now, unix));
    }

    /// Notes what an identity check found.
    pub fn set_identity(&mut self, id: EndpointId, identity: Identity, now: Instant) {
        self.at(id).identity = identity;
        self.judge(now);
    }

    /// Notes a latest header.
    ///
    /// A URL may be a load balancer over replicas at different heights (E9): a header below the head that
    /// contradicts nothing is a replica that lags, and does not lower the head until none has reached it again
    /// for 15 s.
    pub fn on_head(&mut self, id: EndpointId, header: Header, now: Instant) {
        let endpoint = self.at(id);
        if endpoint.head == Some(header) {
            endpoint.told = None;
            endpoint.head_at = Some(now);
            return self.news(id, now);
        }
        let contradicts = endpoint.window.hash_at(header.number).is_some_and(|known| known != header.hash);
        let lower = endpoint.head.is_some_and(|head| header.number < head.number);
        if lower
            && !contradicts
            && endpoint.head_at.is_some_and(|at| now.saturating_duration_since(at) < MAX_LAG)
        {
            return;
        }
        let below = header.number.checked_sub(1).and_then(|below| endpoint.window.hash_at(below));
        if contradicts || below.is_some_and(|known| known != header.parent) {
            endpoint.went_back = true;
        }
        if lower {
            // It went back: what was above is gone.
            endpoint.window = HeaderWindow::default();
        }
        endpoint.window.insert(&header);
        endpoint.told = None;
        endpoint.head = Some(header);
        endpoint.head_at = Some(now);
        self.on_ancestor(id, header);
        self.judge(now);
    }

    /// Whether an identified endpoint has shown, since this was asked last, another hash at a height than before: the
    /// chain went back.
    pub fn take_reorg(&mut self, id: EndpointId) -> bool {
        let endpoint = self.at(id);
        std::mem::take(&mut endpoint.went_back) && endpoint.is_identified()
    }

    /// Notes that an endpoint named this height as its latest, without the header. One that the chain cannot have come
    /// to is not believed.
    pub fn on_height(&mut self, id: EndpointId, height: u64, now: Instant) -> Plausible {
        if !self.may_have_come_to(height, now) {
            return Plausible::No;
        }
        self.at(id).told = Some(height);
        Plausible::Yes
    }

    /// Whether the chain can have come to a height since the frontier was last shown. Nothing is known against one
    /// while there is no frontier.
    fn may_have_come_to(&self, height: u64, now: Instant) -> bool {
        let Some(frontier) = self.frontier else { return true };
        let shown = self.believed().filter(|endpoint| endpoint.head == Some(frontier));
        let Some(heard_at) = shown.filter_map(|endpoint| endpoint.head_at).max() else { return true };
        let blocks = height.saturating_sub(frontier.number) as f64;
        let since = now.saturating_duration_since(heard_at).as_secs_f64();
        blocks <= NAMED_BURST + FASTER * since / self.block_time.as_secs_f64()
    }

    /// The highest block that an endpoint has shown or named which can be read from now. Those that rest count where
    /// there are no others.
    pub fn highest_readable(&self, now: Instant) -> Option<u64> {
        let able = || self.ids().filter(|id| self.may_serve(*id, Need::Current)).map(|id| self.get(id));
        let awake = able().filter(|endpoint| endpoint.rests(now).is_none());
        let highest = awake.filter_map(EndpointState::reached).max();
        highest.or_else(|| able().filter_map(EndpointState::reached).max())
    }

    /// Notes an older header of the endpoint, to measure the block time from.
    pub fn on_ancestor(&mut self, id: EndpointId, header: Header) {
        let endpoint = self.at(id);
        // At the same height the later one: the chain may have dropped the other.
        if endpoint.baseline.is_none_or(|baseline| baseline.number >= header.number) {
            endpoint.baseline = Some(header);
            self.block_time = self.measure();
        }
    }

    /// How many identified endpoints, other than `except`, show this block as canonical.
    pub fn corroborations(&self, block: BlockRef, except: Option<EndpointId>) -> usize {
        let shows = |id: &EndpointId| {
            let endpoint = self.get(*id);
            Some(*id) != except
                && endpoint.is_identified()
                && endpoint.role != Role::Private
                && endpoint.window.hash_at(block.number) == Some(block.hash)
        };
        self.ids().filter(shows).count()
    }

    /// How old the frontier is by the clock, where that is more than a chain of steady blocks explains: every endpoint
    /// stands still, or the chain does.
    pub(super) fn standstill(&self, now: Instant) -> Option<Duration> {
        let age = self.age(self.frontier?, now)?;
        let steady = self.config.block_time.is_some() || self.pace.even >= STEADY;
        (steady && age > (self.block_time * OLD_BLOCKS).max(OLD)).then_some(age)
    }

    /// How old a header is by the clock.
    pub(super) fn age(&self, header: Header, now: Instant) -> Option<Duration> {
        Some(self.time_of_day(now)?.saturating_sub(Duration::from_secs(header.timestamp)))
    }

    /// Judges all that follows from heads and identities.
    pub(super) fn judge(&mut self, now: Instant) {
        self.believe(now);
        let before = self.frontier;
        let believed = self.believed().filter_map(|endpoint| endpoint.head);
        self.frontier = believed.max_by_key(|head| head.number);
        self.block_time = self.measure();
        if let Some((before, after)) = before.zip(self.frontier) {
            self.pace.on_advance(before, after, self.block_time);
        }
        for index in 0..self.order.len() {
            let id = self.order[index];
            self.judge_lag(id);
            self.note_wellness(id, now);
        }
        self.review_at = Some(now);
    }

    /// Judges what follows from news of one endpoint that have not changed its head.
    pub(super) fn news(&mut self, id: EndpointId, now: Instant) {
        if self.ids().any(|id| self.get(id).doubt.is_some()) {
            // Doubt goes with time too.
            self.judge(now);
        } else if self.note_wellness(id, now) == Wellness::New {
            self.review_at = Some(now);
        }
    }

    fn note_wellness(&mut self, id: EndpointId, now: Instant) -> Wellness {
        let endpoint = self.at(id);
        if !endpoint.is_well() {
            endpoint.well_since = None;
            return Wellness::Same;
        }
        // One that has just stopped resting is news as well.
        endpoint.well_since.get_or_insert(now);
        Wellness::New
    }

    fn judge_lag(&mut self, id: EndpointId) {
        let max_lag = self.config.max_lag;
        let Some(frontier) = self.frontier else { return };
        let endpoint = self.at(id);
        let Some(head) = endpoint.head else { return };
        let blocks = frontier.number.saturating_sub(head.number);
        let time = Duration::from_secs(frontier.timestamp.saturating_sub(head.timestamp));
        let behind = |part: u32| match max_lag {
            Some(max_lag) => blocks > max_lag / u64::from(part),
            None => blocks > MAX_LAG_BLOCKS / u64::from(part) && time > MAX_LAG / part,
        };
        if behind(1) {
            endpoint.stale = true;
        } else if !behind(2) {
            // Only half the way back, so that an endpoint at the edge does not come and go.
            endpoint.stale = false;
        }
    }

    /// Doubts the heads that the chain cannot have (E2). One is always believed: the lowest.
    fn believe(&mut self, now: Instant) {
        let mut heads: Vec<(EndpointId, Header, Instant)> = self
            .ids()
            .filter_map(|id| {
                let endpoint = self.get(id);
                let head = endpoint.head.filter(|_| endpoint.is_identified())?;
                Some((id, head, endpoint.head_at?))
            })
            .collect();
        heads.sort_by_key(|(_, head, _)| Reverse(head.number));
        let mut doubts = Vec::new();
        if let Some(clock) = self.time_of_day(now) {
            let reach = AHEAD_OF_CLOCK.max(self.block_time * 2).as_secs();
            let limit = (clock + AHEAD_OF_CLOCK).as_secs();
            let reached = |id: EndpointId, head: Header| {
                let near = |its: Header| its.timestamp.abs_diff(head.timestamp) <= reach;
                heads.iter().any(|(other, its, _)| *other != id && near(*its))
            };
            let future = |(id, head, _): &&(EndpointId, Header, Instant)| {
                head.timestamp > limit && !reached(*id, *head)
            };
            doubts.extend(heads.iter().filter(future).map(|(id, ..)| (*id, Doubt::Future)));
        }
        let mut rest =
            heads.iter().filter(|(id, ..)| !doubts.iter().any(|(other, _)| other == id)).peekable();
        let mut too_far = Vec::new();
        while let (Some((id, head, _)), Some((_, below, heard_at))) = (rest.next(), rest.peek()) {
            if self.can_have_come(*head, *below, *heard_at, now) {
                break;
            }
            too_far.push((*id, Doubt::TooFar));
        }
        doubts.extend(too_far);
        if doubts.len() == heads.len() {
            let lowest = heads.last().map(|(id, ..)| *id);
            doubts.retain(|(id, _)| Some(*id) != lowest);
        }
        let disbelief = self.config.disbelief;
        for index in 0..self.order.len() {
            let id = self.order[index];
            let doubt = doubts.iter().find(|(other, _)| *other == id).map(|(_, doubt)| *doubt);
            let endpoint = self.at(id);
            endpoint.doubt = doubt.map(|doubt| (doubt, endpoint.doubt.map_or(now, |(_, since)| since)));
            endpoint.doubted =
                endpoint.doubt.is_some_and(|(_, since)| now.saturating_duration_since(since) < disbelief);
        }
    }

    /// Whether the chain can have come from one head, last shown at `heard_at`, to a higher one, in the time since or
    /// in the time that the headers themselves tell: the head that is old by the clock is the stale one. A time ahead of
    /// the clock has been doubted before.
    fn can_have_come(&self, head: Header, below: Header, heard_at: Instant, now: Instant) -> bool {
        let blocks = head.number.saturating_sub(below.number) as f64;
        let since = now.saturating_duration_since(heard_at);
        let between = Duration::from_secs(head.timestamp.saturating_sub(below.timestamp));
        blocks <= BURST + FASTER * since.max(between).as_secs_f64() / self.block_time.as_secs_f64()
    }

    fn believed(&self) -> impl Iterator<Item = &EndpointState> {
        self.ids().map(|id| self.get(id)).filter(|endpoint| endpoint.is_identified() && !endpoint.doubted)
    }

    fn measure(&self) -> Duration {
        if let Some(configured) = self.config.block_time {
            return configured;
        }
        let measure = |endpoint: &EndpointState| {
            let (old, new) = (endpoint.baseline?, endpoint.head?);
            let blocks = new.number.checked_sub(old.number).filter(|blocks| *blocks > 0)?;
            let seconds = new.timestamp.saturating_sub(old.timestamp);
            Some((blocks, Duration::from_secs(seconds).div_f64(blocks as f64)))
        };
        let longest = self.believed().filter_map(measure).max_by_key(|(blocks, _)| *blocks);
        longest.map_or(UNMEASURED_BLOCK_TIME, |(_, time)| time.max(SHORTEST_BLOCK_TIME))
    }

    fn time_of_day(&self, now: Instant) -> Option<Duration> {
        self.time_of_day.map(|(at, unix)| unix + now.saturating_duration_since(at))
    }
}

/// Whether the chain can have come to a height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plausible {
    /// It can.
    Yes,
    /// It cannot, by its block time.
    No,
}

/// Whether an endpoint is well now, which may make it the one that serves.
#[derive(PartialEq, Eq)]
enum Wellness {
    New,
    Same,
}

impl Pace {
    fn on_advance(&mut self, before: Header, after: Header, block_time: Duration) {
        let Some(blocks) = after.number.checked_sub(before.number).filter(|blocks| *blocks > 0) else {
            return;
        };
        let took = Duration::from_secs(after.timestamp.saturating_sub(before.timestamp));
        // Whole seconds: a chain of fast blocks may show one more.
        let most = (block_time * UNEVEN).mul_f64(blocks as f64) + Duration::from_secs(1);
        self.even = if took <= most { self.even.saturating_add(1) } else { 0 };
    }
}
