//! Connections to one database, so many at a time.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use sqlx::Connection;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Line;

/// Opens connections.
#[async_trait]
pub(crate) trait Connector<C>: Send + Sync {
    /// Opens one, ready for use.
    async fn open(&self) -> Result<C, sqlx::Error>;
}

/// A lane of connections: whoever wants one waits for a place, first come, first served.
pub(crate) struct Lane<C: Connection> {
    connector: Box<dyn Connector<C>>,
    idle: Mutex<Vec<C>>,
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "only a file is opened anew as a whole"))]
    size: u32,
    places: Semaphore,
}

/// What a transaction has of a line from its first statement to its end.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "SQLite has one writer at a time anyway"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Guard {
    /// Nothing: the line is not its business, or each statement looks after itself.
    Nothing,
    /// Others may share it, and nobody takes the line over meanwhile.
    Shared(Line),
    /// Nobody else has it.
    Alone(Line),
}

/// A connection on loan.
///
/// Only [`keep`](Lease::keep) gives it back to the lane. Dropped, it is closed, and the database rolls back what
/// was not committed: a future that is dropped in the middle of a transaction, or one that does not know
/// what state it is in, leaves the next caller a fresh connection.
pub(crate) struct Lease<'a, C: Connection> {
    lane: &'a Lane<C>,
    /// `None` only in `keep`.
    connection: Option<C>,
    /// Whether the connection has lain idle, and may have died over it.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "a file does not go away"))]
    has_lain: bool,
    _place: SemaphorePermit<'a>,
}

impl<C: Connection> Lane<C> {
    pub(crate) fn new(connector: impl Connector<C> + 'static, size: u32) -> Self {
        let places = Semaphore::new(size as usize);
        Self { connector: Box::new(connector), idle: Mutex::default(), size, places }
    }

    /// The lane with a connection that is open already.
    pub(crate) fn with(self, connection: C) -> Self {
        self.idle().push(connection);
        self
    }

    pub(crate) async fn lease(&self) -> Result<Lease<'_, C>, sqlx::Error> {
        let place = self.places.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
        let idle = self.idle().pop();
        let has_lain = idle.is_some();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connector.open().await?,
        };
        Ok(Lease { lane: self, connection: Some(connection), has_lain, _place: place })
    }

    /// Closes all connections, as soon as those on loan are given back: the next ones are opened anew.
    #[cfg(feature = "sqlite")]
    pub(crate) async fn renew(&self) {
        let Ok(_all) = self.places.acquire_many(self.size).await else { return };
        let idle = std::mem::take(&mut *self.idle());
        for connection in idle {
            // Whatever it says: it is gone.
            let _ = connection.close().await;
        }
    }

    /// Drops the connections that lie idle.
    #[cfg(feature = "postgres")]
    pub(crate) fn forget_idle(&self) {
        let idle = std::mem::take(&mut *self.idle());
        drop(idle);
    }

    /// Closes all. None is on loan, as a lease borrows the lane.
    pub(crate) async fn close(self) -> Result<(), sqlx::Error> {
        let idle = std::mem::take(&mut *self.idle());
        for connection in idle {
            connection.close().await?;
        }
        Ok(())
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<C>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Connection> Lease<'_, C> {
    /// Whether the connection has lain idle, and may have died over it.
    #[cfg(feature = "postgres")]
    pub(crate) fn has_lain(&self) -> bool {
        self.has_lain
    }

    /// Gives the connection back. It must be in no transaction.
    pub(crate) fn keep(mut self) {
        if let Some(connection) = self.connection.take() {
            self.lane.idle().push(connection);
        }
    }
}

impl<C: Connection> Deref for Lease<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.connection.as_ref().expect("only `keep` takes it, and `keep` ends the lease")
    }
}

impl<C: Connection> DerefMut for Lease<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        self.connection.as_mut().expect("only `keep` takes it, and `keep` ends the lease")
    }
}
