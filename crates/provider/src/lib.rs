//! Endpoints, the failover transport for alloy, the head tracker, and pinned sessions.
//!
//! This crate is the shell around the decisions of `backstay-core`: it locks them, asks, unlocks, awaits,
//! and tells them what came of it. Users meet it through the crate `backstay`.
//!
//! | module | what it does |
//! |---|---|
//! | `config` | the endpoints and how they are used |
//! | `endpoints` | the pool: every call to an endpoint goes through here; who serves the right chain, how far it has come, what it holds of the past, who comes and goes |
//! | `link` | one endpoint as it is spoken to: an HTTP exchange, a WebSocket connection, a JSON-RPC envelope |
//! | `meter` | what is measured |
//! | `reads` | a read on one endpoint after another; logs, filters, heights that do not fall, hedges, typed lookups |
//! | `sends` | one signed transaction, with its three outcomes; the gate for managed accounts |
//! | `transport` | both as an alloy transport |
//! | `session` | a line of dependent reads: pin, fence, trail |

mod config;
mod endpoints;
mod link;
pub mod meter;
mod reads;
mod sends;
mod session;
mod transport;

pub use config::{Broadcast, EndpointConfig, ProviderConfig};
pub use endpoints::{Corroboration, Endpoints};
pub use sends::{Spread, Submission};
pub use session::{FoundReceipt, Reach, Session};
pub use transport::{Failover, error_of};
