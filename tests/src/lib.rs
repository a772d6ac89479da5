//! The approve-then-register story over fleets of endpoints that misbehave: what the demo runs, and what the
//! end-to-end tests assert on.
//!
//! A **fleet** here is a name, a set of endpoints, and what must hold when the story is over. The ground truth
//! is always read from the chain itself or from the endpoints' own records, never from the SDK.

pub mod by_hand;
pub mod crash;
pub mod fleets;
pub mod report;
pub mod restart;
pub mod story;
