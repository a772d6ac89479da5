//! Endpoints, the failover transport for alloy, the head tracker, and pinned sessions.
//!
//! This crate is the shell around the decisions of `backstay-core`: it locks them, asks, unlocks, awaits,
//! and tells them what came of it. Users meet it through the crate `backstay`.
//!
//! | module | what it does |
//! |---|---|
//! | `config` | the endpoints and how they are used |
//! | `endpoints` | the pool: every call to an endpoint goes through here |
//! | `http`, `ws`, `wire` | one HTTP exchange, one WebSocket connection, one JSON-RPC envelope |
//! | `link`, `meter`, `notice` | one endpoint as it is spoken to; what is measured and told of it |
//! | `connect`, `track` | who serves the right chain, and how far it has come |
//! | `roster` | endpoints that come and go at run time |
//! | `route`, `transport` | a read on one endpoint after another, as an alloy transport |
//! | `height`, `code` | heights that do not fall; calls to where there is no contract |
//! | `lookup` | typed lookups: what is absent comes with its reason |
//! | `filters` | filters, each at the endpoint that has it |
//! | `logs`, `hedge` | log ranges, piece by piece; a second endpoint where the first is slow |
//! | `send` | one signed transaction, with its three outcomes |
//! | `session` | a line of dependent reads: pin, fence, trail |

mod check;
mod code;
mod config;
mod connect;
mod endpoints;
mod filters;
mod gate;
mod hedge;
mod height;
mod http;
mod link;
mod logs;
mod lookup;
pub mod meter;
mod notice;
mod roster;
mod route;
mod secrets;
mod send;
mod session;
mod track;
mod transport;
mod wire;
#[cfg(feature = "ws")]
mod ws;

pub use config::{Broadcast, EndpointConfig, ProviderConfig};
pub use endpoints::{Corroboration, Endpoints};
pub use send::{Spread, Submission};
pub use session::{FoundReceipt, Reach, Session};
pub use transport::{Failover, error_of};
