//! The pool: all endpoints, and the choice among them.

mod choice;
mod depth;
mod heads;
mod outcome;
mod roster;
mod snapshot;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use heads::Plausible;

use super::{BreakerConfig, EndpointState, Header, Member};

/// An endpoint's place in its pool. It stays valid when the endpoint is removed, and is never another's.
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
    /// How long an implausible head, that no second endpoint has reached, is not believed (E2). Default 10 min: long
    /// enough for a person to look, and an end where it was right all along.
    #[serde(with = "humantime_serde")]
    pub disbelief: Duration,
    /// Whether transactions go to endpoints that are not `private` where one is (E7). Default `never`.
    pub send_public: SendPublic,
    /// The circuit breaker of each endpoint (E4).
    pub breaker: BreakerConfig,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            max_lag: None,
            block_time: None,
            min_hold: Duration::from_secs(30),
            disbelief: Duration::from_secs(600),
            send_public: SendPublic::default(),
            breaker: BreakerConfig::default(),
        }
    }
}

/// Where transactions go in a pool with a `private` endpoint (E7). Without one it changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendPublic {
    /// To private endpoints only, whatever becomes of them: who pays for privacy is not served by a fallback.
    #[default]
    Never,
    /// To private endpoints first, and to the others when those fail, or when what was sent is sent again to everybody.
    Also,
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

/// Where a call goes. It must be ended or abandoned, once.
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
    /// Of the client and the chain; keeps the probes of many apart.
    seed: (u64, u64),
    /// Every endpoint that ever was, by its id.
    endpoints: Vec<EndpointState>,
    /// Those that are, in order of preference.
    order: Vec<EndpointId>,
    /// How many of them are private.
    private: usize,
    /// The endpoint that serves until it cannot (R1).
    sticky: EndpointId,
    /// When a preferred endpoint may be taken back; `None` while only news can change that.
    review_at: Option<Instant>,
    /// The highest believed head of an identified endpoint.
    frontier: Option<Header>,
    block_time: Duration,
    /// The time of day, as of an instant.
    time_of_day: Option<(Instant, Duration)>,
    pace: heads::Pace,
}

impl Pool {
    /// A pool of endpoints in order of preference. `client` is a number that differs from client to client, and keeps
    /// their probes apart, as the chain id does those of one client.
    pub fn new(
        config: PoolConfig,
        (client, chain_id): (u64, u64),
        members: impl IntoIterator<Item = impl Into<Member>>,
    ) -> Self {
        let mut pool = Self {
            config,
            seed: (client, chain_id),
            endpoints: Vec::new(),
            order: Vec::new(),
            private: 0,
            sticky: EndpointId(0),
            review_at: None,
            frontier: None,
            block_time: config.block_time.unwrap_or(heads::UNMEASURED_BLOCK_TIME),
            time_of_day: None,
            pace: heads::Pace::default(),
        };
        for member in members {
            pool.add(member.into());
        }
        pool
    }

    /// Every endpoint that is there, in order of preference.
    pub fn ids(&self) -> impl Iterator<Item = EndpointId> + '_ {
        self.order.iter().copied()
    }

    /// One endpoint, also one that was removed.
    pub fn get(&self, id: EndpointId) -> &EndpointState {
        &self.endpoints[id.0]
    }

    fn at(&mut self, id: EndpointId) -> &mut EndpointState {
        &mut self.endpoints[id.0]
    }

    /// The endpoint that serves until it cannot (R1).
    pub fn sticky(&self) -> EndpointId {
        self.sticky
    }

    /// The highest believed head of an identified endpoint.
    pub fn frontier(&self) -> Option<Header> {
        self.frontier
    }

    /// The chain's block time: configured, else measured, else 12 s.
    pub fn block_time(&self) -> Duration {
        self.block_time
    }
}

#[cfg(test)]
mod tests;
