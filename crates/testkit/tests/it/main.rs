//! The testkit from a client's side: real nodes, real sockets.

mod actions;
mod client;
mod fleets;
mod history;
mod nodes;
#[cfg(unix)]
mod postgres;
mod scenarios;
mod views;
