//! The SDK from a user's side, over anvil and endpoints that misbehave. The ground truth is the chain, and
//! what the endpoints recorded.

mod alloy_over_client;
mod bad_input;
mod batches;
mod broadcasts;
mod bytes;
mod claims;
mod crowd;
mod depth;
mod filters;
mod fleets;
mod flows;
mod health;
mod hedging;
mod heights;
mod hostile;
mod identity;
mod intents;
mod keys;
mod lookups;
mod mistakes;
#[path = "../incidents/paper.rs"]
mod paper;
mod probing;
mod provider;
mod reads;
mod resuming;
mod roster;
mod secrets;
mod stage;
mod store_faults;
mod websocket;
mod wiretap;
