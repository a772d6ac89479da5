//! The endpoints and how they are used.

mod check;

use std::{collections::BTreeMap, fmt, num::NonZeroU32, time::Duration};

use alloy::primitives::B256;
use backstay_core::{
    BlockRef, EndpointName, Error, Result,
    endpoint::{Budget, Member, PoolConfig, Role},
    failure::{Classifier, Row},
    router::{Declared, ReadConfig},
};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::sends::Spread;

/// One RPC address with a name.
///
/// `Debug` shows name and host only: a URL and its headers may hold keys.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// The name by which logs, errors and timelines call it. Unique in its client.
    pub name: EndpointName,
    /// An `http`, `https`, `ws` or `wss` URL. User and password in it become a basic `Authorization` header.
    pub url: String,
    /// Headers to send with each request, or with the upgrade to WebSocket, such as an API key. Default: none.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// What it is for (E7). Default: `read`.
    #[serde(default)]
    pub role: Role,
    /// The most requests that may be under way there at once (E10). Default: no bound.
    #[serde(default)]
    pub max_concurrent: Option<NonZeroU32>,
    /// The most requests a second, on average (E10); as many may go out at once after a quiet second. Each element of
    /// a batch is one. Default: no bound. Set it a little below what the endpoint allows: what the client learns of its
    /// head counts, and is not held up.
    #[serde(default)]
    pub max_per_second: Option<NonZeroU32>,
}

impl EndpointConfig {
    /// An endpoint without headers.
    pub fn new(name: impl AsRef<str>, url: impl Into<String>) -> Self {
        Self {
            name: EndpointName::from(name.as_ref()),
            url: url.into(),
            headers: BTreeMap::new(),
            role: Role::default(),
            max_concurrent: None,
            max_per_second: None,
        }
    }

    /// As the pool takes it in.
    pub(crate) fn member(&self) -> Member {
        Member {
            name: self.name.clone(),
            host: self.host(),
            role: self.role,
            budget: Budget::new(self.max_concurrent, self.max_per_second),
        }
    }

    /// The host of its URL, which may be shown.
    fn host(&self) -> Option<String> {
        Url::parse(&self.url).ok().and_then(|url| url.host_str().map(str::to_owned))
    }

    /// The parsed URL.
    pub(crate) fn parse(&self) -> Result<Url> {
        let wrong = |why: &str| {
            Error::config(format!(
                "endpoint `{}`: its url {why}; write it as http://host:port, https://host/path or wss://host/path",
                self.name
            ))
        };
        let url = Url::parse(&self.url).map_err(|error| wrong(&format!("cannot be parsed ({error})")))?;
        match url.scheme() {
            "ws" | "wss" if cfg!(not(feature = "ws")) => Err(Error::config(format!(
                "endpoint `{}`: its url has the scheme `{}`, and this build is without the feature `ws`",
                self.name,
                url.scheme()
            ))),
            "http" | "https" | "ws" | "wss" if url.host_str().is_some_and(|host| !host.is_empty()) => Ok(url),
            "http" | "https" | "ws" | "wss" => Err(wrong("has no host")),
            // What stands before the first colon may be a user name or a key, when the scheme was forgotten.
            _ => Err(wrong("does not begin with `http://`, `https://`, `ws://` or `wss://`")),
        }
    }

    /// How it is spoken to.
    pub(crate) fn kind(url: &Url) -> Kind {
        match url.scheme() {
            "ws" | "wss" => Kind::WebSocket,
            _ => Kind::Http,
        }
    }
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("name", &self.name)
            .field("host", &self.host())
            .finish_non_exhaustive()
    }
}

/// To whom a transaction goes at first (T4). When two blocks pass without it, it goes to everybody in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Broadcast {
    /// To one endpoint after another, until one has taken it.
    #[default]
    First,
    /// To all that are well, at once; where one is private, to those that are. An acceptance counts more than an
    /// error that came before it. A slow endpoint is waited for half a second once another has accepted.
    AllHealthy,
}

impl Broadcast {
    /// As it is carried out.
    pub const fn spread(self) -> Spread {
        match self {
            Self::First => Spread::First,
            Self::AllHealthy => Spread::AllHealthy,
        }
    }
}

/// How an endpoint is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request, a reply.
    Http,
    /// One connection for all.
    WebSocket,
}

/// How endpoints are used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ProviderConfig {
    /// The hash of block 0 (E1). Default: what the journal recorded, else what most endpoints serve.
    pub genesis: Option<B256>,
    /// A block of the right chain, `{ number = .., hash = ".." }`, that tells the history of an endpoint that no longer
    /// holds block 0 (E1). Default: a finalized block of an endpoint that is identified; where there is none, such an
    /// endpoint is read from last, and never sent to.
    pub checkpoint: Option<BlockRef>,
    /// The longest that one attempt at one endpoint may take (R8). Default 20 s.
    #[serde(with = "humantime_serde")]
    pub attempt_timeout: Duration,
    /// The longest that one operation may take over all its attempts (R8). Default 60 s.
    #[serde(with = "humantime_serde")]
    pub operation_timeout: Duration,
    /// The longest that `connect()` may take (R8). Default 30 s. An endpoint that has not said who it is in the first
    /// half of it is identified when it speaks; where none has, connecting fails.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// How often identity is checked again (E1). Default 60 s.
    #[serde(with = "humantime_serde")]
    pub identity_recheck: Duration,
    /// How often each endpoint is asked for its head. Default: half the block time, between 100 ms and 6 s.
    #[serde(with = "humantime_serde")]
    pub head_poll: Option<Duration>,
    /// How long a send whose outcome is unknown is looked up before the bytes are sent again (T3). Default
    /// 3 s.
    #[serde(with = "humantime_serde")]
    pub lookup_budget: Duration,
    /// To whom a transaction goes at first (T4). Default `first`.
    pub broadcast: Broadcast,
    /// How long a session's pin may lack the fence before the session moves (S7). Default: three block
    /// times, at least 3 s.
    #[serde(with = "humantime_serde")]
    pub fence_patience: Option<Duration>,
    /// Whether endpoints that are read from are asked what they hold of the past, in the background, once each is first
    /// identified (E6): so that the first read of old data goes to one that has it. Mostly five calls to each endpoint,
    /// at most twelve. Default `true`; without it, it is learned from what is read.
    pub history_probes: bool,
    /// The largest reply body, in bytes; a larger one is a fault. Default 64 MiB.
    pub max_reply: usize,
    /// How endpoints are judged.
    pub pool: PoolConfig,
    /// How misses are told from faults, at the frontier and in the deep.
    pub read: ReadConfig,
    /// Methods that Backstay does not know and that read at a height: which parameter holds it, and what kind of
    /// data they read. Default: none; such a method is asked without regard to height.
    pub shapes: BTreeMap<String, Declared>,
    /// What errors mean whose wording Backstay does not know (V1): asked before the built-in table, in this order.
    /// Default: none.
    pub rows: Vec<Row>,
}

impl Default for ProviderConfig {
    fn default() -> Self {
        Self {
            genesis: None,
            checkpoint: None,
            attempt_timeout: Duration::from_secs(20),
            operation_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(30),
            identity_recheck: Duration::from_secs(60),
            head_poll: None,
            lookup_budget: Duration::from_secs(3),
            broadcast: Broadcast::First,
            fence_patience: None,
            history_probes: true,
            max_reply: 64 << 20,
            pool: PoolConfig::default(),
            read: ReadConfig::default(),
            shapes: BTreeMap::new(),
            rows: Vec::new(),
        }
    }
}

impl ProviderConfig {
    /// The classifier with the operator's rows.
    pub(crate) fn classifier(&self) -> Result<Classifier> {
        Classifier::with_rows(self.rows.clone())
            .map_err(|error| Error::config(format!("`provider.rows`: {error}")))
    }
}
