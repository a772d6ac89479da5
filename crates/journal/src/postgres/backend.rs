//! The connections, and how a transaction begins on one.

use std::fmt;

use alloy_primitives::keccak256;
use sqlx::AssertSqlSafe;

use super::{Connection, Place, Result, place};
use crate::{
    Line,
    lane::{Guard, Lane, Lease},
};

/// The journal, without bounds on time.
pub(super) struct Backend {
    pub(super) place: Place,
    pub(super) writers: Lane<Connection>,
    pub(super) readers: Lane<Connection>,
}

impl Backend {
    pub(super) async fn close(self) -> Result<()> {
        self.readers.close().await.map_err(|e| self.place.failure(e))?;
        self.writers.close().await.map_err(|e| self.place.failure(e))
    }

    /// Begins to write. What is written happens at `end`, or not at all when the lease drops.
    pub(super) async fn begin(&self, guard: Guard) -> Result<Lease<'_, Connection>> {
        let text = self.beginning(guard);
        loop {
            let mut lease = self.writers.lease().await.map_err(|e| self.place.failure_to_connect(e))?;
            match sqlx::raw_sql(AssertSqlSafe(text.as_str())).execute(&mut *lease).await {
                Ok(_) => return Ok(lease),
                // Nothing was written over it yet. One that was opened just now is not followed by another.
                Err(error) if lease.has_lain() && place::breaks(&error) => self.writers.forget_idle(),
                Err(error) => return Err(self.place.failure(error)),
            }
        }
    }

    pub(super) async fn read(&self) -> Result<Lease<'_, Connection>> {
        self.readers.lease().await.map_err(|e| self.place.failure_to_connect(e))
    }

    /// The guard is had before anything is read, so that what is read is true to the end. It is no row: whoever waits
    /// for one that many share may wait for ever, and here comes first who came first.
    fn beginning(&self, guard: Guard) -> String {
        match guard {
            Guard::Nothing => "BEGIN".to_owned(),
            Guard::Shared(line) => {
                format!("BEGIN; SELECT pg_advisory_xact_lock_shared({})", self.number(line))
            }
            Guard::Alone(line) => format!("BEGIN; SELECT pg_advisory_xact_lock({})", self.number(line)),
        }
    }

    /// The number of a line's lock. Versions that share a database agree on it, so it never changes. Two lines of one
    /// number wait for each other, and nothing worse.
    fn number(&self, line: Line) -> i64 {
        let chain = line.chain_id.to_be_bytes();
        let name = [b"backstay line ", self.place.schema().as_bytes(), &chain, line.account.as_slice()];
        let digest = keccak256(name.concat());
        i64::from_be_bytes(digest[..8].try_into().expect("a digest has 32 bytes"))
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresJournal({})", self.place)
    }
}
