//! The embedded backend: one SQLite file, in WAL mode, synced at every commit.

use std::{fmt, path::Path, time::Duration};

use crate::{
    JournalError,
    lane::{Guard, Lane, Lease},
};
// What `sql` asks for.
use SqliteJournal as Backend;
use place::Place;
use sqlx::sqlite::SqliteConnection as Connection;

mod dialect;
mod opening;
mod place;
#[cfg_attr(
    feature = "postgres",
    expect(clippy::duplicate_mod, reason = "the statements are compiled for each database")
)]
#[path = "../sql/mod.rs"]
mod sql;
#[cfg(test)]
mod tests;

/// How many reads run at once. They do not wait for the writer, nor it for them.
const READERS: u32 = 4;

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
    writers: Lane<Connection>,
    readers: Lane<Connection>,
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
        let (mut place, connection) = opening::open(path.as_ref(), config).await?;
        place.identify()?;
        // SQLite has one writer at a time; in this queue, first come is first served.
        let writers = Lane::new(opening::writing(&place), 1).with(connection);
        let readers = Lane::new(opening::reading(&place), READERS);
        Ok(Self { place, writers, readers })
    }

    /// Opens a journal that is there, and of this version's schema: to look into it, also while other processes use it.
    /// Nothing is created, and nothing is written until a method that writes is called.
    ///
    /// # Errors
    ///
    /// - [`Missing`](JournalError::Missing): there is no file.
    /// - [`OlderSchema`](JournalError::OlderSchema): an older version wrote it.
    /// - [`NotAJournal`](JournalError::NotAJournal): the file is something else, or empty.
    /// - The others of [`open`](Self::open).
    pub async fn open_existing(path: impl AsRef<Path>) -> Result<Self, JournalError> {
        let mut place = opening::find(path.as_ref(), &SqliteConfig::default()).await?;
        place.identify()?;
        let writers = Lane::new(opening::writing(&place), 1);
        let readers = Lane::new(opening::reading(&place), READERS);
        Ok(Self { place, writers, readers })
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
        self.writers.close().await.map_err(|e| self.place.failure(e))
    }

    async fn read(&self) -> Result<Lease<'_, Connection>, JournalError> {
        self.place.attend()?;
        self.readers.lease().await.map_err(|e| self.place.failure(e))
    }

    /// Begins to write. What is written happens at `end`, or not at all when the lease drops.
    async fn begin(&self, guard: Guard) -> Result<Lease<'_, Connection>, JournalError> {
        match guard {
            // There is one writer at a time anyway.
            Guard::Nothing | Guard::Shared(_) | Guard::Alone(_) => {}
        }
        self.place.attend()?;
        if self.place.was_read_only() {
            self.writers.renew().await;
            self.readers.renew().await;
        }
        let mut lease = self.writers.lease().await.map_err(|e| self.place.failure(e))?;
        // This waits for the write lock, and holds it: a deferred transaction could find out half way that somebody
        // else has written.
        let begun = sqlx::query("BEGIN IMMEDIATE").execute(&mut *lease).await;
        begun.map_err(|e| self.place.failure(e))?;
        Ok(lease)
    }
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal").field("path", &self.place.path).finish_non_exhaustive()
    }
}
