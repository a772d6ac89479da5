//! The shared backend: one PostgreSQL database for several processes and machines.

use std::{fmt, time::Duration};

use alloy_primitives::B256;
use async_trait::async_trait;
use backstay_core::tx::Record;
use sqlx::postgres::PgConnection as Connection;

use crate::{
    Author, Claim, Claiming, Holder, IntentId, Journal, JournalError, Line, LineState, NewIntent, Owner,
    PostgresConfig, Query, Stored, Summary,
};
use backend::Backend;
use place::Place;

mod address;
mod backend;
mod connector;
mod dialect;
mod opening;
mod place;
#[cfg_attr(
    feature = "sqlite",
    expect(clippy::duplicate_mod, reason = "the statements are compiled for each database")
)]
#[path = "../sql/mod.rs"]
mod sql;
#[cfg(test)]
mod tests;

type Result<T, E = JournalError> = std::result::Result<T, E>;

/// A journal in a PostgreSQL database, which several processes share, on one machine or on many.
///
/// A write is on disk when it returns: every connection asks for `synchronous_commit = on`, whatever the server's own
/// default. It cannot ask for `fsync`: a server that runs with `fsync = off` loses, with its machine, what it called
/// durable.
///
/// The server may go away and come back. What is under way then fails; whatever comes later connects anew. A
/// connection that died while it lay idle costs no error, as nothing was sent over it.
///
/// Connections go to the server itself, or through a pooler that gives each its own session: settings of the session,
/// and prepared statements, are lost in one that does not.
///
/// # Cancel safety
///
/// As the trait demands. A dropped write is rolled back, unless its commit had begun.
pub struct PostgresJournal {
    backend: Backend,
    /// How long an operation takes at most before it is given up.
    patience: Duration,
    /// How long a statement takes at most.
    statement: Duration,
}

impl PostgresJournal {
    /// Opens the journal in the database at `url`: `postgres://user:password@host:port/database`. Where there is none, it
    /// is created; an older schema is brought up to date. Several processes may do so at once.
    ///
    /// Letters with a meaning in URLs are written as in every URL, `%40` for `@`. After a question mark may stand what
    /// libpq knows too: `sslmode` (`prefer` by default, `verify-full` to insist on the server's certificate),
    /// `sslrootcert`, `sslcert`, `sslkey`, `host` (a folder, for a Unix socket), `application_name`, `options`. What the URL
    /// leaves out is taken from the variables of libpq (`PGPASSWORD`, ...) and its password file.
    ///
    /// # Errors
    ///
    /// What is refused is left untouched. No error quotes the URL, the user's name or the password.
    ///
    /// - [`BadAddress`](JournalError::BadAddress): the URL cannot be used.
    /// - [`Unreachable`](JournalError::Unreachable): no server answers there.
    /// - [`Refused`](JournalError::Refused): it does not let this program in, has no such database, or does not let it
    ///   create or write the tables.
    /// - [`NotAJournal`](JournalError::NotAJournal): the schema holds something else.
    /// - [`NewerSchema`](JournalError::NewerSchema): a newer version wrote it.
    /// - [`ReadOnly`](JournalError::ReadOnly), [`Busy`](JournalError::Busy), [`Full`](JournalError::Full),
    ///   [`Corrupt`](JournalError::Corrupt), [`Backend`](JournalError::Backend): as at any write. Opening writes, so
    ///   that a journal that cannot be written is found out here.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no journal, an empty one, or the one that was there.
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(url, &PostgresConfig::default()).await
    }

    /// Opens a journal as [`open`](Self::open) does, with a config of one's own.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub async fn open_with(url: &str, config: &PostgresConfig) -> Result<Self> {
        let (options, place) = address::read(url, config)?;
        let patience = patience(config);
        let backend = bounded(&place, patience, opening::open(options, place.clone(), config)).await?;
        Ok(Self { backend, patience, statement: config.statement_timeout })
    }

    /// Opens a journal that is there, and of this version's schema: to look into it, also while other processes use it.
    /// Nothing is created, and nothing is written until a method that writes is called.
    ///
    /// # Errors
    ///
    /// - [`Missing`](JournalError::Missing): there is no such schema, or it is empty.
    /// - [`OlderSchema`](JournalError::OlderSchema): an older version wrote it.
    /// - The others of [`open`](Self::open).
    pub async fn open_existing(url: &str, config: &PostgresConfig) -> Result<Self> {
        let (options, place) = address::read(url, config)?;
        let patience = patience(config);
        let backend = bounded(&place, patience, opening::find(options, place.clone(), config)).await?;
        Ok(Self { backend, patience, statement: config.statement_timeout })
    }

    /// Closes every connection and waits until that is done. Dropping the journal does the same in the background, and
    /// loses nothing either.
    ///
    /// # Errors
    ///
    /// What can befall any store. Everything that was written is durable all the same.
    pub async fn close(self) -> Result<()> {
        let place = self.backend.place.clone();
        bounded(&place, self.patience, self.backend.close()).await
    }

    /// Checks an address without connecting.
    ///
    /// # Errors
    ///
    /// [`BadAddress`](JournalError::BadAddress).
    pub fn check(url: &str) -> Result<()> {
        address::read(url, &PostgresConfig::default()).map(drop)
    }

    async fn bounded<T>(&self, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        bounded(&self.backend.place, self.patience, work).await
    }

    /// Writes. A connection that was opened while nothing could be written stays as it is: others are opened then.
    async fn write<T>(&self, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let done = self.bounded(work).await;
        if let Err(JournalError::ReadOnly { .. }) = done {
            self.backend.writers.forget_idle();
        }
        done
    }

    /// Reads, once more where the connection broke: that of a server that has restarted, as a rule.
    async fn read<F, T>(&self, ask: impl Fn() -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        match self.bounded(ask()).await {
            Err(error) if place::is_broken(&error) => {
                self.backend.readers.forget_idle();
                self.bounded(ask()).await
            }
            answer => answer,
        }
    }
}

/// How long an operation takes at most: connecting, waiting for a lock, and what it says.
fn patience(config: &PostgresConfig) -> Duration {
    config
        .statement_timeout
        .saturating_mul(2)
        .saturating_add(config.connect_timeout)
        .saturating_add(config.lock_timeout)
}

/// Gives up what gets no answer: a server that was cut off says nothing, for hours.
async fn bounded<T>(
    place: &Place,
    patience: Duration,
    work: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    match tokio::time::timeout(patience, work).await {
        Ok(done) => done,
        Err(_) => Err(JournalError::Backend {
            journal: place.name(),
            source: format!("no answer within {patience:?}").into(),
        }),
    }
}

impl fmt::Debug for PostgresJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(f)
    }
}

#[async_trait]
impl Journal for PostgresJournal {
    async fn claim(&self, line: Line, owner: &Owner, ttl: Duration) -> Result<Claiming> {
        self.write(self.backend.claim(line, owner, ttl)).await
    }

    async fn release(&self, claim: Claim) -> Result<()> {
        self.write(self.backend.release(claim)).await
    }

    async fn holder(&self, line: Line) -> Result<Option<Holder>> {
        self.read(|| self.backend.holder(line)).await
    }

    async fn open(&self, intent: NewIntent) -> Result<Stored> {
        // What is there already can be had when nothing can be written.
        if let Some(stored) = self.load(intent.chain_id, &intent.key).await? {
            return Ok(stored);
        }
        self.write(self.backend.create(intent)).await
    }

    async fn load(&self, chain_id: u64, key: &str) -> Result<Option<Stored>> {
        self.read(|| self.backend.load(chain_id, key)).await
    }

    async fn append(&self, author: Author, intent: IntentId, after: u64, records: &[Record]) -> Result<()> {
        self.write(self.backend.append(author, intent, after, records)).await
    }

    async fn list(&self, query: &Query) -> Result<Vec<Summary>> {
        self.read(|| self.backend.list(query)).await
    }

    async fn line(&self, line: Line, from: u64) -> Result<LineState> {
        self.read(|| self.backend.line(line, from)).await
    }

    async fn account_for(&self, line: Line, nonce: u64) -> Result<()> {
        self.write(self.backend.account_for(line, nonce)).await
    }

    async fn prune(&self, chain_id: u64, older_than: Duration, limit: u32) -> Result<u32> {
        // Statements for each intent: as many as that take as long as they may.
        let patience = self.patience.saturating_add(self.statement.saturating_mul(limit));
        bounded(&self.backend.place, patience, self.backend.prune(chain_id, older_than, limit)).await
    }

    async fn genesis(&self, chain_id: u64) -> Result<Option<B256>> {
        self.read(|| self.backend.genesis(chain_id)).await
    }

    async fn record_genesis(&self, chain_id: u64, hash: B256) -> Result<B256> {
        if let Some(recorded) = self.genesis(chain_id).await? {
            return Ok(recorded);
        }
        self.write(self.backend.record_genesis(chain_id, hash)).await
    }
}
