//! Public incidents of RPC clients, each as a test over real sockets: what the endpoints do is scripted, and what
//! they were asked is counted. `docs/incidents.md` names the incident behind each test.

mod classification;
mod failover;
mod history;
mod logs;
mod paper;
mod restarts;
mod reverts;
mod sends;
mod setup;
mod siblings;
#[expect(dead_code, reason = "the end-to-end tests use all of it")]
#[path = "../e2e/stage.rs"]
mod stage;
mod websocket;
