//! Anvil fleets with fault programs on real sockets, for tests of code that talks to EVM endpoints.
//!
//! An [`Anvil`] is a chain. A [`Fleet`] is a set of HTTP endpoints on loopback in front of one or several
//! chains. Between the client and the chain each endpoint has a [`Program`]: [`Rule`]s that make requests fail
//! in chosen ways, a [`View`] that shows an older head than the chain's, and a [`History`] that lacks some of its
//! past. Programs change while the fleet runs, and every request is recorded. The code under test gets nothing
//! but URLs.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use backstay_testkit::{Action, Anvil, Fleet, Mark, Outcome, Program, Rule, View};
//!
//! # async fn code_under_test(_: Vec<url::Url>) {}
//! # async fn test() -> Result<(), backstay_testkit::Error> {
//! let chain = Anvil::builder().timestamp(1_700_000_000).launch().await?;
//! let lost = Rule::on("eth_sendRawTransaction").times(1).then(Action::LoseReply);
//! let hits = lost.hits();
//! let fleet = Fleet::builder()
//!     // The first transaction reaches the chain, and the client never learns of it.
//!     .endpoint("flaky", chain.url(), lost)
//!     // A load balancer: every second request meets a replica that is one block behind.
//!     .endpoint("balanced", chain.url(), View::alternating(View::Trailing { blocks: 1 }))
//!     .start()
//!     .await?;
//!
//! code_under_test(vec![fleet.url("flaky"), fleet.url("balanced")]).await;
//!
//! let sent = fleet.wait_for(Mark::START, Duration::from_secs(5), |call| call.raw_tx.is_some()).await?;
//! assert_eq!(sent.outcome, Outcome::Lost);
//! assert_eq!(hits.get(), 1);
//! assert_eq!(fleet.count("flaky", "eth_sendRawTransaction"), 1, "it was not sent blindly again");
//!
//! fleet.endpoint("flaky").set(Program::new().view(View::Frozen { at: 3 }));
//! fleet.endpoint("balanced").kill().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Faults
//!
//! | Fault | The client sees | The chain sees | [`Outcome`] |
//! |---|---|---|---|
//! | [`Endpoint::kill`] | connection refused; open connections end | nothing | not recorded |
//! | [`Action::Reset`] | connection reset | nothing | `Reset` |
//! | [`Action::DropBefore`] | connection closed, no byte | nothing | `Dropped` |
//! | [`Action::Hang`] | nothing, for ever | nothing | `Hung` |
//! | [`Action::Http`] | that HTTP answer | nothing | `Http` |
//! | [`Action::RpcError`], [`Action::RpcErrorUnder`], [`Action::RpcResult`] | that reply | nothing | `Reply` |
//! | [`Action::Scripted`] | what a function says | nothing | `Reply` |
//! | [`Action::Stall`] | the reply, late | the request, late, even if the client has left | `Reply` |
//! | [`Action::LateReply`] | the reply, late | the request at once | `Reply` |
//! | [`Action::LoseReply`] | connection closed, no byte | the request | `Lost` |
//! | [`Action::CutReply`] | half of the answer, then closed | the request | `Cut` |
//! | [`View::Frozen`] | a node that is stuck at a block | reads at that block | `Reply` |
//! | [`View::Trailing`] | a node some blocks behind | reads at that block | `Reply` |
//! | [`View::TrailingTime`] | a node some time behind | reads at that block | `Reply` |
//! | [`View::Replicas`] | replicas that disagree, in turn by request | reads at their blocks | `Reply` |
//! | [`History`], [`Gone::Null`] | a pruned node that answers `null`, or the logs it has | nothing; logs are read | `Reply` |
//! | [`History`], [`Gone::Error`] | a pruned node that refuses | nothing | `Reply` |
//! | [`Program::live_for`] | a node that shows some things before others | those as they are | `Reply` |
//!
//! A rule strikes always, or as often as [`Rule::skip`], [`Rule::every`] and [`Rule::times`] say: an endpoint that
//! flaps is `Rule::any().every(2)`. Another chain, the same chain id over another genesis, and the same genesis with
//! another history are other nodes: see [`AnvilBuilder::timestamp`].
//!
//! What an endpoint has received it carries out, as a node does: a client that gives up does not take its
//! transaction back. Only [`Endpoint::kill`] and the end of the fleet stop what has not been forwarded yet.
//!
//! Any of them comes later with [`Rule::late_by`]. Rules can be read from a file: see [`Scenario`].
//!
//! # Hooks
//!
//! [`Rule::before`] and [`Rule::after_reply`] call a function at an exact point of a request's way, together with
//! any action. A test of crashes kills the process under test there: before its transaction reaches the chain,
//! or after, and before it learns of it.
//!
//! # Evidence
//!
//! A test that no fault has reached proves nothing. [`Rule::hits`] counts what a rule took;
//! [`Fleet::faults_fired`] counts the calls that met a fault. For that a view that lags asks the chain twice, at
//! the shown head and at its own, and counts a call only if the answers differ. A read of what was pruned counts
//! where the chain has it.
//!
//! # PostgreSQL
//!
//! A [`Postgres`] is a server of one's own, to be killed and restarted.
//!
//! # Limits
//!
//! The endpoints of a fleet speak HTTP/1.1, and POST only. A [`SocketServer`] is an endpoint over WebSocket, without
//! subscriptions. Bodies of at most 32 MiB.

mod anvil;
mod error;
mod exchange;
mod fleet;
mod history;
mod lens;
#[cfg(unix)]
mod postgres;
mod process;
mod program;
mod proxy;
mod record;
pub mod sample;
mod scenario;
mod socket;
mod upstream;
mod view;

pub use anvil::{Anvil, AnvilBuilder};
pub use error::Error;
pub use fleet::{Endpoint, Fleet, FleetBuilder};
pub use history::{Data, Gone, History, Kept};
#[cfg(unix)]
pub use postgres::{Fsync, Postgres, PostgresBuilder, PostgresPlaces};
pub use program::{Action, Hits, Hook, Program, Rule, Script};
pub use record::{Call, Mark, Outcome, Reply, RpcError};
pub use scenario::Scenario;
pub use socket::{Message, SocketServer, Upgrade};
pub use view::View;
