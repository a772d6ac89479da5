//! The embedded backend: one SQLite file, in WAL mode, synced at every commit.

use std::{collections::BTreeMap, fmt, path::Path, time::Duration};

use alloy_primitives::{Address, B256};
use async_trait::async_trait;
use backstay_core::tx::Record;
use sqlx::sqlite::SqliteConnection;

use crate::{IntentId, Journal, JournalError, NewIntent, Stored, effects::storable_chain};
use lane::{Lane, Lease};
use place::Place;

mod lane;
mod opening;
mod place;
mod statements;
#[cfg(test)]
mod tests;

/// How many reads run at once. They do not wait for the writer, nor it for them.
const READERS: usize = 4;

/// A journal in one SQLite file. The embedded default: no server, and several processes of one machine may
/// open it.
///
/// A write is on disk when it returns: WAL mode with `synchronous = FULL`, one writer at a time. While a
/// journal is open, files with the suffixes `-wal` and `-shm` lie next to it and belong to it; a copy of the
/// journal without its `-wal` lacks the newest records. The file must be on a local disk, since network
/// file systems do not lock reliably.
///
/// # Cancel safety
///
/// As the trait demands. A dropped write is rolled back, unless its commit had begun.
pub struct SqliteJournal {
    place: Place,
    writer: Lane,
    readers: Lane,
}

/// How a SQLite journal is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteConfig {
    /// How long a statement waits for another process's lock before it gives up with
    /// [`JournalError::Busy`]. Writes of this process queue up behind each other without this limit.
    ///
    /// Default: 5 s. A write takes a few milliseconds, so only a process that is stuck, or a backup that
    /// holds the lock, takes longer.
    pub busy_timeout: Duration,
}

impl Default for SqliteConfig {
    fn default() -> Self {
        Self { busy_timeout: Duration::from_secs(5) }
    }
}

impl SqliteJournal {
    /// Opens a journal, or creates it where there is no file, or an empty one. An older schema is brought
    /// up to date.
    ///
    /// # Errors
    ///
    /// A file that is refused is left untouched, to the byte.
    ///
    /// - [`NotAJournal`](JournalError::NotAJournal): the file is something else.
    /// - [`NewerSchema`](JournalError::NewerSchema): a newer version wrote it.
    /// - [`NoDirectory`](JournalError::NoDirectory): there is no directory to create it in.
    /// - [`ReadOnly`](JournalError::ReadOnly), [`Busy`](JournalError::Busy), [`Full`](JournalError::Full),
    ///   [`Corrupt`](JournalError::Corrupt), [`Backend`](JournalError::Backend): as at any write. Opening
    ///   writes, so that a journal that cannot be written is found out here.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no journal, an empty one, or the one that was there.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, JournalError> {
        Self::open_with(path, &SqliteConfig::default()).await
    }

    /// Opens a journal as [`open`](Self::open) does, with a config of one's own.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub async fn open_with(path: impl AsRef<Path>, config: &SqliteConfig) -> Result<Self, JournalError> {
        let (place, connection) = opening::open(path.as_ref(), config).await?;
        let writer = Lane::new(opening::writing(&place), 1).with(connection);
        let readers = Lane::new(opening::reading(&place), READERS);
        Ok(Self { place, writer, readers })
    }

    /// The journal's file, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Closes the file and waits until that is done; the last one to close it also folds its `-wal` into it.
    /// Dropping the journal does the same in the background, and loses nothing either.
    ///
    /// # Errors
    ///
    /// What can befall any store. Everything that was written is durable all the same.
    pub async fn close(self) -> Result<(), JournalError> {
        self.readers.close().await.map_err(|e| self.place.failure(e))?;
        self.writer.close().await.map_err(|e| self.place.failure(e))
    }

    /// Begins to write. From here on nobody else writes until [`end`](Self::end), or until the lease drops.
    async fn begin(&self) -> Result<Lease<'_>, JournalError> {
        let mut lease = self.writer.lease().await.map_err(|e| self.place.failure(e))?;
        statements::begin(&mut lease).await.map_err(|e| self.place.failure(e))?;
        Ok(lease)
    }

    /// Commits what succeeded, takes back what failed.
    async fn end<T>(&self, mut lease: Lease<'_>, result: Result<T, JournalError>) -> Result<T, JournalError> {
        let ended = match &result {
            Ok(_) => statements::commit(&mut lease).await,
            Err(_) => statements::rollback(&mut lease).await,
        };
        match (result, ended) {
            (result, Ok(())) => {
                lease.keep();
                result
            }
            // SQLite has rolled back by itself, as on a full disk, or does when the connection closes now.
            (Err(error), Err(_)) => Err(error),
            (Ok(_), Err(error)) => Err(self.place.failure(error)),
        }
    }

    async fn read(&self) -> Result<Lease<'_>, JournalError> {
        self.readers.lease().await.map_err(|e| self.place.failure(e))
    }

    async fn open_in(
        &self,
        connection: &mut SqliteConnection,
        intent: NewIntent,
    ) -> Result<Stored, JournalError> {
        match statements::load(&self.place, connection, intent.chain_id, &intent.key).await? {
            // Somebody was faster.
            Some(stored) => Ok(stored),
            None => statements::create(&self.place, connection, intent).await,
        }
    }
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal").field("path", &self.place.path).finish_non_exhaustive()
    }
}

#[async_trait]
impl Journal for SqliteJournal {
    async fn open(&self, intent: NewIntent) -> Result<Stored, JournalError> {
        storable_chain(intent.chain_id)?;
        // What is there already needs no lock, and can be had when nothing can be written.
        if let Some(stored) = self.load(intent.chain_id, &intent.key).await? {
            return Ok(stored);
        }
        let mut lease = self.begin().await?;
        let opened = self.open_in(&mut lease, intent).await;
        self.end(lease, opened).await
    }

    async fn load(&self, chain_id: u64, key: &str) -> Result<Option<Stored>, JournalError> {
        let mut lease = self.read().await?;
        let stored = statements::load(&self.place, &mut lease, chain_id, key).await?;
        lease.keep();
        Ok(stored)
    }

    async fn append(&self, intent: IntentId, after: u64, records: &[Record]) -> Result<(), JournalError> {
        let mut lease = self.begin().await?;
        let appended = statements::append(&self.place, &mut lease, intent, after, records).await;
        self.end(lease, appended).await
    }

    async fn unfinished(&self, chain_id: u64) -> Result<Vec<Stored>, JournalError> {
        let mut lease = self.read().await?;
        let stored = statements::unfinished(&self.place, &mut lease, chain_id).await?;
        lease.keep();
        Ok(stored)
    }

    async fn slots(
        &self,
        chain_id: u64,
        account: Address,
        from: u64,
    ) -> Result<BTreeMap<u64, String>, JournalError> {
        let mut lease = self.read().await?;
        let slots = statements::slots(&self.place, &mut lease, chain_id, account, from).await?;
        lease.keep();
        Ok(slots)
    }

    async fn genesis(&self, chain_id: u64) -> Result<Option<B256>, JournalError> {
        let mut lease = self.read().await?;
        let hash = statements::genesis(&self.place, &mut lease, chain_id).await?;
        lease.keep();
        Ok(hash)
    }

    async fn record_genesis(&self, chain_id: u64, hash: B256) -> Result<B256, JournalError> {
        storable_chain(chain_id)?;
        if let Some(recorded) = self.genesis(chain_id).await? {
            return Ok(recorded);
        }
        let mut lease = self.begin().await?;
        let recorded = statements::record_genesis(&self.place, &mut lease, chain_id, hash).await;
        self.end(lease, recorded).await
    }
}
