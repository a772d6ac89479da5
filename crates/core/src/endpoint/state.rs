//! What is known about one endpoint.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};

use super::{Admission, Breaker, Budget, Header, HeaderWindow, History, Identity, Phase, budget::Meter};
use crate::units::{BlockRef, EndpointName};

/// How long an endpoint is remembered not to serve a method: nodes are upgraded, gateways have bad moments.
pub(super) const UNSUPPORTED_FOR: Duration = Duration::from_secs(600);

/// How long the tracker may be without an answer before calls go elsewhere first: they would hang as well, each
/// for its whole attempt.
const SILENT: Duration = Duration::from_secs(3);

/// What is known about one endpoint.
#[derive(Debug)]
pub struct EndpointState {
    /// Its name.
    pub name: EndpointName,
    pub(super) host: Option<String>,
    pub(super) presence: Presence,
    pub(super) identity: Identity,
    pub(super) head: Option<Header>,
    /// Whether it has shown another hash at a height than before.
    pub(super) went_back: bool,
    /// The height that it named since as its latest.
    pub(super) told: Option<u64>,
    /// When it last showed its head, or one above.
    pub(super) head_at: Option<Instant>,
    /// An earlier header of the same endpoint, to measure the block time from.
    pub(super) baseline: Option<Header>,
    pub(super) window: HeaderWindow,
    pub(super) breaker: Breaker,
    pub(super) stale: bool,
    /// Why its head is not believed, and since when.
    pub(super) doubt: Option<(Doubt, Instant)>,
    /// Whether that counts: disbelief expires.
    pub(super) doubted: bool,
    pub(super) cool_until: Option<Instant>,
    pub(super) unsupported: HashMap<String, Instant>,
    pub(super) well_since: Option<Instant>,
    /// Since when a question of the tracker is open, or timed out.
    pub(super) silent_since: Option<Instant>,
    /// When it last said anything.
    pub(super) spoke_at: Option<Instant>,
    /// Whether a call timed out that it said nothing during, and nothing since.
    pub(super) mute: bool,
    pub(super) role: Role,
    pub(super) history: History,
    pub(super) meter: Meter,
    pub(super) calls: u64,
    pub(super) faults: u64,
    /// How often each verdict was given, by its label.
    pub(super) verdicts: Vec<(&'static str, u64)>,
}

/// Whether an endpoint is one of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is to take another's place, once it has shown who it is.
    Candidate,
    /// It is.
    Member,
    /// It was. Its place stays, for the calls that are under way.
    Removed,
}

/// Why a head is not believed (E2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Its own time is ahead of the clock.
    Future,
    /// It is further ahead of all others than the chain can have come.
    TooFar,
}

/// What an endpoint is for (E7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// It is the first to hold fresh data: the own node, a sequencer, a generator. What is about to come is
    /// waited for there.
    Origin,
    /// It is read from and sent to.
    #[default]
    Read,
    /// It is sent to, and never read from.
    SendOnly,
    /// A relay: it is sent to, never read from, and what is sent there goes nowhere else unless
    /// [`SendPublic`](super::SendPublic) consents. That it does not know a transaction proves nothing. It is asked
    /// who it is and how far it has come as any other, so it must serve `eth_chainId` and `eth_getBlockByNumber`.
    Private,
}

impl Role {
    /// Whether it is read from.
    pub const fn is_read_from(self) -> bool {
        match self {
            Self::Origin | Self::Read => true,
            Self::SendOnly | Self::Private => false,
        }
    }
}

/// An endpoint as a pool takes it in.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: EndpointName,
    /// The host of its URL, to be shown.
    pub host: Option<String>,
    /// What it is for.
    pub role: Role,
    /// How many requests it may be given.
    pub budget: Budget,
}

impl From<(EndpointName, Role)> for Member {
    fn from((name, role): (EndpointName, Role)) -> Self {
        Self { name, host: None, role, budget: Budget::default() }
    }
}

impl EndpointState {
    pub(super) fn new(member: Member, presence: Presence, breaker: Breaker) -> Self {
        let Member { name, host, role, budget } = member;
        Self {
            name,
            host,
            presence,
            identity: Identity::Unknown,
            head: None,
            told: None,
            went_back: false,
            head_at: None,
            baseline: None,
            window: HeaderWindow::default(),
            breaker,
            stale: false,
            doubt: None,
            doubted: false,
            cool_until: None,
            unsupported: HashMap::new(),
            well_since: None,
            silent_since: None,
            spoke_at: None,
            mute: false,
            role,
            history: History::default(),
            meter: Meter::new(budget),
            calls: 0,
            faults: 0,
            verdicts: Vec::new(),
        }
    }

    /// What is known of its identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its head.
    pub fn head(&self) -> Option<Header> {
        self.head
    }

    /// The highest block that it has shown or named.
    pub fn reached(&self) -> Option<u64> {
        self.head.map(|head| head.number).max(self.told)
    }

    /// The hash that it showed at a height.
    pub fn hash_at(&self, number: u64) -> Option<B256> {
        self.window.hash_at(number)
    }

    /// What it is for.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether it was ever asked anything.
    pub fn was_asked(&self) -> bool {
        self.calls > 0
    }

    /// Whether it was removed.
    pub fn is_removed(&self) -> bool {
        self.presence == Presence::Removed
    }

    /// Whether it is identified, its breaker closed and its head current and believed: whether a session may stay
    /// on it.
    pub fn is_well(&self) -> bool {
        self.is_identified() && self.breaker.is_closed() && !self.stale && !self.doubted
    }

    /// Whether it is one of the pool, and of the right chain.
    pub(super) fn is_identified(&self) -> bool {
        self.presence == Presence::Member && self.identity == Identity::Verified
    }

    /// Where its breaker stands.
    pub fn phase(&self) -> Phase {
        self.breaker.phase()
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

    /// Why calls go elsewhere first.
    pub(super) fn rests(&self, now: Instant) -> Option<&'static str> {
        if self.breaker.peek(now) == Admission::No {
            Some("its breaker is open")
        } else if self.cools(now) {
            Some("it asked us to wait")
        } else if self.mute
            || self.silent_since.is_some_and(|since| now.saturating_duration_since(since) >= SILENT)
        {
            Some("it does not answer")
        } else {
            None
        }
    }

    pub(super) fn lacks(&self, method: &str, now: Instant) -> bool {
        let told = self.unsupported.get(method);
        told.is_some_and(|told| now.saturating_duration_since(*told) < UNSUPPORTED_FOR)
    }

    /// Counts a verdict. There are few, and the most frequent comes first, mostly.
    pub(super) fn count(&mut self, verdict: &'static str) {
        match self.verdicts.iter_mut().find(|(label, _)| *label == verdict) {
            Some((_, count)) => *count += 1,
            None => self.verdicts.push((verdict, 1)),
        }
    }

    pub(super) fn cools(&self, now: Instant) -> bool {
        self.cool_until.is_some_and(|until| now < until)
    }
}
