//! Snapshots of endpoints and their pool, for people and programs.

use std::{collections::BTreeMap, time::Duration};

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};

use super::{Phase, Role};
use crate::{
    failure::DataKind,
    units::{BlockRef, EndpointName},
};

/// A snapshot of all endpoints of a client. It holds no URL and no header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolStatus {
    /// The highest believed head of an identified endpoint.
    pub frontier: Option<HeadStatus>,
    /// The chain's block time: configured, else measured, else 12 s.
    #[serde(with = "humantime_serde")]
    pub block_time: Duration,
    /// The endpoint that serves reads until it cannot.
    pub sticky: Option<EndpointName>,
    /// What is wrong with the pool as a whole, in words; empty when nothing is.
    pub degraded: Vec<String>,
    /// Each endpoint, in order of preference.
    pub endpoints: Vec<EndpointStatus>,
}

/// A latest block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeadStatus {
    /// Height.
    pub number: u64,
    /// Hash.
    pub hash: B256,
    /// Seconds since the epoch, by the chain's clock.
    pub timestamp: u64,
    /// How old that is by this machine's clock; zero when it is ahead.
    #[serde(with = "humantime_serde")]
    pub age: Option<Duration>,
}

impl HeadStatus {
    /// Number and hash.
    pub const fn block(&self) -> BlockRef {
        BlockRef { number: self.number, hash: self.hash }
    }
}

/// What an endpoint does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Standing {
    /// It serves what its role is for.
    Serving,
    /// It has not shown yet who it is.
    Unidentified,
    /// It no longer holds block 0, and nothing else has shown yet that it is of the right history.
    Unverified,
    /// It is of another chain, another history or another branch.
    Wrong,
    /// It is too far behind.
    Stale,
    /// Its head is not believed.
    Doubted,
    /// Its breaker is open, or half-open.
    Open,
    /// It asked us to wait.
    Cooling,
    /// It does not answer.
    Silent,
    /// Its part is played by private endpoints: it would only be sent to.
    Idle,
}

/// A snapshot of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndpointStatus {
    /// Its name.
    pub name: EndpointName,
    /// The host of its URL.
    pub host: Option<String>,
    /// What it is for.
    pub role: Role,
    /// What it does at the moment.
    pub standing: Standing,
    /// Why it gets no calls now, in words; `None` when it is in use.
    pub excluded: Option<String>,
    /// Its head.
    pub head: Option<HeadStatus>,
    /// Blocks behind the frontier.
    pub lag: Option<u64>,
    /// Time behind the frontier, by the headers.
    #[serde(with = "humantime_serde")]
    pub lag_time: Option<Duration>,
    /// The lowest block of each kind of data that it is known to hold; a kind that is not there is unknown.
    pub oldest: BTreeMap<DataKind, u64>,
    /// Where its breaker stands.
    pub breaker: Phase,
    /// The time until its breaker wants the next probe; zero when that is due.
    #[serde(with = "humantime_serde")]
    pub next_probe: Option<Duration>,
    /// What of its budget is used.
    pub budget: BudgetStatus,
    /// The methods that it was last seen not to serve.
    pub unsupported: Vec<String>,
    /// Calls made to it; a batch is one.
    pub calls: u64,
    /// Faults among them.
    pub faults: u64,
    /// How often each verdict was given; a batch counts by its worst.
    pub verdicts: BTreeMap<String, u64>,
}

/// What of an endpoint's budget is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BudgetStatus {
    /// Requests under way.
    pub in_flight: u32,
    /// The most that may be.
    pub max_concurrent: Option<u32>,
    /// The most requests a second.
    pub max_per_second: Option<u32>,
    /// How many may go out now; below zero when more went out than the budget has, which is made up for. `None` without
    /// a bound.
    pub left: Option<i64>,
}
