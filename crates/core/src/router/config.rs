//! The times and bounds of reads, as the config gives them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::HedgeConfig;

/// The times and bounds of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ReadConfig {
    /// How far from the last observed head a height counts as the frontier, in blocks. Default 256.
    pub frontier_blocks: u64,
    /// How long a miss at the frontier is waited out. Default 6 s. A lookup of what never comes takes this
    /// long, plus, with an origin, one `frontier_retry_timeout` for each endpoint in the worst case.
    #[serde(with = "humantime_serde")]
    pub frontier_grace: Duration,
    /// The longest that one attempt may take once the grace for the origin is over: an endpoint may hang on what
    /// it cannot have. Default 2 s.
    #[serde(with = "humantime_serde")]
    pub frontier_retry_timeout: Duration,
    /// How long an empty list of logs is asked for again where the block's bloom speaks for logs (R6). Default 2 s:
    /// an index follows its block within that, and the bloom of a full block speaks for logs that are not there.
    /// Never longer than `frontier_grace`.
    #[serde(with = "humantime_serde")]
    pub bloom_grace: Duration,
    /// Asks a second endpoint where the first is slower than it mostly is (R10). Default: none; a table turns it on
    /// for every read of the client.
    pub hedge: Option<HedgeConfig>,
}

impl Default for ReadConfig {
    fn default() -> Self {
        Self {
            frontier_blocks: 256,
            frontier_grace: Duration::from_secs(6),
            frontier_retry_timeout: Duration::from_secs(2),
            bloom_grace: Duration::from_secs(2),
            hedge: None,
        }
    }
}
