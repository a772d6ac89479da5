//! What one fleet came to.

use std::{collections::BTreeMap, time::Duration};

use backstay::Trail;
use serde::Serialize;

/// The result of one fleet.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FleetReport {
    /// The fleet.
    pub fleet: String,
    /// Whether everything that must hold does.
    pub ok: bool,
    /// What does not hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Approves in the live chain.
    pub approvals_mined: u64,
    /// Registrations in the live chain.
    pub registrations_mined: u64,
    /// From sending the intent to its outcome, in milliseconds.
    pub elapsed_ms: u64,
    /// Calls that reached the endpoints, connecting and tracking included.
    pub rpc_calls: u64,
    /// Calls that went on to a further endpoint.
    pub failovers: u64,
    /// How often the session moved to another endpoint.
    pub pin_moves: u64,
    /// How often the faults of the fleet struck, by the fleet's own count.
    pub faults_fired: u64,
    /// Endpoint to method to count.
    pub calls: BTreeMap<String, BTreeMap<String, u64>>,
    /// The same story over plain alloy.
    pub by_hand: ByHand,
    /// What the session did.
    #[serde(skip)]
    pub trail: Trail,
}

/// The same story over plain alloy, on the same endpoints.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ByHand {
    /// Whether it got its registration.
    pub ok: bool,
    /// Registrations in the live chain.
    pub registrations_mined: u64,
    /// What stopped it.
    pub error: Option<String>,
}

impl FleetReport {
    /// Notes something that does not hold.
    pub fn problem(&mut self, what: impl Into<String>) {
        self.problems.push(what.into());
    }

    /// Sets the elapsed time.
    pub fn took(&mut self, elapsed: Duration) {
        self.elapsed_ms = elapsed.as_millis() as u64;
    }
}
