//! What is known about one endpoint.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};

use super::{Admission, Breaker, Header, HeaderWindow, History, Identity, Phase};
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
    pub(super) identity: Identity,
    pub(super) head: Option<Header>,
    /// The height that it named since as its latest.
    pub(super) told: Option<u64>,
    /// When it last showed its head, or one above.
    pub(super) head_at: Option<Instant>,
    /// An earlier header of the same endpoint, to measure the block time from.
    pub(super) baseline: Option<Header>,
    pub(super) window: HeaderWindow,
    pub(super) breaker: Breaker,
    pub(super) stale: bool,
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
    pub(super) calls: u64,
    pub(super) faults: u64,
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

impl EndpointState {
    pub(super) fn new(name: EndpointName, role: Role, breaker: Breaker) -> Self {
        Self {
            name,
            identity: Identity::Unknown,
            head: None,
            told: None,
            head_at: None,
            baseline: None,
            window: HeaderWindow::default(),
            breaker,
            stale: false,
            cool_until: None,
            unsupported: HashMap::new(),
            well_since: None,
            silent_since: None,
            spoke_at: None,
            mute: false,
            role,
            history: History::default(),
            calls: 0,
            faults: 0,
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

    /// Where its breaker stands.
    pub fn phase(&self) -> Phase {
        self.breaker.phase()
    }

    /// When its breaker wants the next probe; `None` when it is closed.
    pub fn probe_at(&self) -> Option<Instant> {
        self.breaker.probe_at()
    }

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

    pub(super) fn cools(&self, now: Instant) -> bool {
        self.cool_until.is_some_and(|until| now < until)
    }
}
