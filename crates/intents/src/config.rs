//! What can be set.

use std::time::Duration;

use backstay_core::{
    Error, Result,
    limits::{Zero, durations},
};
use serde::{Deserialize, Serialize};

/// How the lines of accounts are shared between processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ClaimsConfig {
    /// How long a claim of an account's line lasts when its process does not extend it: so long the intents of a process
    /// that died wait. It is extended at a third of it. A process that is stopped for longer loses its lines to the
    /// others, and is refused when it wakes up. Five times as long, what has stopped while signed bytes were open is left
    /// alone before it goes on by itself. Default 6 s: a restart takes about as long.
    #[serde(with = "humantime_serde")]
    pub ttl: Duration,
    /// How often the journal is looked at for intents that other processes have opened, and for the outcomes of those
    /// that other processes run. Default 500 ms.
    #[serde(with = "humantime_serde")]
    pub poll: Duration,
    /// A name of this process, shown where its claims are. Default: its process id.
    pub name: Option<String>,
}

impl Default for ClaimsConfig {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(6), poll: Duration::from_millis(500), name: None }
    }
}

/// What ended long ago, and how long it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RetentionConfig {
    /// How long the records of an intent that has ended are kept. After that its key, its outcome and its
    /// transactions' hashes are left of it, about 600 bytes with its indexes, and are never removed: the key keeps its meaning. One
    /// that stopped before anything was signed is forgotten. Default 30 days.
    #[serde(with = "humantime_serde")]
    pub finished: Duration,
    /// How often this client looks for what is to be pruned. Default 1 h.
    #[serde(with = "humantime_serde")]
    pub every: Duration,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self { finished: Duration::from_secs(30 * 86_400), every: Duration::from_secs(3_600) }
    }
}

/// When intents go on that an earlier run, or another process, has left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resume {
    /// By themselves, as soon as the client is connected: those of its accounts that were interrupted, and those that
    /// stopped while something that was signed for them was open.
    #[default]
    OnStart,
    /// When they are sent again under their key, or all together by `resume`. Until then, what comes after a nonce that
    /// was signed for them waits. Those that are opened, or asked for anywhere, while this client is connected are not
    /// left alone.
    OnDemand,
}

impl ClaimsConfig {
    /// Checks the values.
    ///
    /// # Errors
    ///
    /// A configuration error that names the key.
    pub fn validate(&self) -> Result<()> {
        if self.name.as_deref().is_some_and(|name| name.contains('\0')) {
            return Err(Error::config(
                "`claims.name` holds the character NUL, which is not stored; leave it out",
            ));
        }
        durations([("claims.ttl", self.ttl, Zero::Refused), ("claims.poll", self.poll, Zero::Refused)])?;
        if self.ttl < self.poll.saturating_mul(2) {
            return Err(Error::config(format!(
                "`claims.ttl` is {:?}, and `claims.poll` {:?}: a claim that does not last two polls ends before it is \
                 extended; give it at least twice as long",
                self.ttl, self.poll
            )));
        }
        Ok(())
    }
}

impl RetentionConfig {
    /// Checks the values.
    ///
    /// # Errors
    ///
    /// A configuration error that names the key.
    pub fn validate(&self) -> Result<()> {
        durations([
            // What has just ended would be gone before anybody can look at it.
            ("retention.finished", self.finished, Zero::Refused),
            ("retention.every", self.every, Zero::Refused),
        ])
    }
}
