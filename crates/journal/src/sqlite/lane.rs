//! Connections to one file, so many at a time.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
};

use sqlx::{
    ConnectOptions, Connection,
    sqlite::{SqliteConnectOptions, SqliteConnection},
};
use tokio::sync::{Semaphore, SemaphorePermit};

/// A lane of connections: whoever wants one waits for a place, first come, first served.
pub(super) struct Lane {
    options: SqliteConnectOptions,
    idle: Mutex<Vec<SqliteConnection>>,
    places: Semaphore,
}

/// A connection on loan.
///
/// Only [`keep`](Lease::keep) gives it back to the lane. Dropped, it is closed, and SQLite rolls back what
/// was not committed: a future that is dropped in the middle of a transaction, or one that does not know
/// what state it is in, leaves the next caller a fresh connection.
pub(super) struct Lease<'a> {
    lane: &'a Lane,
    /// `None` only in `keep`.
    connection: Option<SqliteConnection>,
    _place: SemaphorePermit<'a>,
}

impl Lane {
    pub(super) fn new(options: SqliteConnectOptions, places: usize) -> Self {
        Self { options, idle: Mutex::default(), places: Semaphore::new(places) }
    }

    /// The lane with a connection that is open already.
    pub(super) fn with(self, connection: SqliteConnection) -> Self {
        self.idle().push(connection);
        self
    }

    pub(super) async fn lease(&self) -> Result<Lease<'_>, sqlx::Error> {
        let place = self.places.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.options.connect().await?,
        };
        Ok(Lease { lane: self, connection: Some(connection), _place: place })
    }

    /// Closes all. None is on loan, as a lease borrows the lane.
    pub(super) async fn close(self) -> Result<(), sqlx::Error> {
        let idle = std::mem::take(&mut *self.idle());
        for connection in idle {
            connection.close().await?;
        }
        Ok(())
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<SqliteConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease<'_> {
    /// Gives the connection back. It must be in no transaction.
    pub(super) fn keep(mut self) {
        if let Some(connection) = self.connection.take() {
            self.lane.idle().push(connection);
        }
    }
}

impl Deref for Lease<'_> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        self.connection.as_ref().expect("only `keep` takes it, and `keep` ends the lease")
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        self.connection.as_mut().expect("only `keep` takes it, and `keep` ends the lease")
    }
}
