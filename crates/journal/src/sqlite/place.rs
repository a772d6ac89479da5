//! Which file it is, and what its failures mean.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::JournalError;

// Primary result codes: the low byte of what SQLite returns. https://www.sqlite.org/rescode.html
const PERM: i32 = 3;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const AUTH: i32 = 23;
const NOTADB: i32 = 26;

/// The file of a journal.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Absolute: SQLite takes some relative names for something else, such as `:memory:`.
    pub(super) path: PathBuf,
    /// How long a statement waits for a lock.
    pub(super) busy_timeout: Duration,
    /// Which file it was when it was opened. `None` before that, and where files have no such number.
    pub(super) file: Option<FileId>,
    /// Whether something could not be written because the file is read-only.
    pub(super) read_only: Arc<AtomicBool>,
}

/// The number of a file on its device: another file under the same name has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl Place {
    /// The file, in words.
    pub(super) fn name(&self) -> String {
        format!("the journal {}", self.path.display())
    }

    /// Notes which file it is, while it is open or is not written to yet: its number is not given to another one.
    pub(super) fn identify(&mut self) -> Result<(), JournalError> {
        let id = self.id();
        self.file =
            id.map_err(|error| JournalError::Backend { journal: self.name(), source: error.into() })?;
        Ok(())
    }

    /// Checks that the file that is open still is the one that has the journal's name. What is written to one that
    /// was deleted is gone with this process, and SQLite does not notice.
    pub(super) fn attend(&self) -> Result<(), JournalError> {
        let replaced = |found| Err(JournalError::Replaced { journal: self.name(), found });
        match (self.file, self.id()) {
            (None, _) => Ok(()),
            (Some(opened), Ok(Some(found))) if opened == found => Ok(()),
            (Some(_), Ok(_)) => replaced("another file"),
            (Some(_), Err(error)) if error.kind() == io::ErrorKind::NotFound => replaced("gone"),
            (Some(_), Err(error)) => {
                Err(JournalError::Backend { journal: self.name(), source: error.into() })
            }
        }
    }

    /// Whether something could not be written because the file is read-only, since this was asked last. SQLite falls back
    /// to reading when it opens such a file, without a word, and a connection stays so when the file can be written
    /// again; and it makes the other connections of the process so, which share the log's index with it.
    pub(super) fn was_read_only(&self) -> bool {
        self.read_only.swap(false, Ordering::Relaxed)
    }

    /// The file that has the name now.
    #[cfg(unix)]
    fn id(&self) -> io::Result<Option<FileId>> {
        use std::os::unix::fs::MetadataExt;
        let file = self.path.metadata()?;
        Ok(Some(FileId { device: file.dev(), inode: file.ino() }))
    }

    /// Elsewhere a file that is open can neither be deleted nor replaced.
    #[cfg(not(unix))]
    fn id(&self) -> io::Result<Option<FileId>> {
        Ok(None)
    }

    /// What a failure of SQLite means for whoever uses the journal.
    pub(super) fn failure(&self, error: sqlx::Error) -> JournalError {
        let journal = self.name();
        match result_code(&error) {
            Some(BUSY | LOCKED) => {
                JournalError::Busy { journal, waited: self.busy_timeout, source: error.into() }
            }
            Some(FULL) => JournalError::Full { journal, source: error.into() },
            Some(PERM | READONLY | CANTOPEN | AUTH) => {
                self.read_only.store(true, Ordering::Relaxed);
                JournalError::ReadOnly { journal, source: error.into() }
            }
            Some(CORRUPT) => self.corrupt("SQLite finds its pages malformed", Some(error)),
            Some(NOTADB) => self.corrupt("it no longer is a SQLite database", Some(error)),
            Some(_) | None => JournalError::Backend { journal, source: error.into() },
        }
    }

    /// The same while the file is opened: it may be no database at all.
    pub(super) fn failure_to_open(&self, error: sqlx::Error) -> JournalError {
        match result_code(&error) {
            Some(NOTADB) => self.not_a_journal("no SQLite database", Some(error)),
            Some(_) | None => self.failure(error),
        }
    }

    pub(super) fn corrupt(&self, what: impl Into<String>, source: Option<sqlx::Error>) -> JournalError {
        JournalError::Corrupt { journal: self.name(), what: what.into(), source: source.map(Into::into) }
    }

    pub(super) fn not_a_journal(&self, found: &'static str, source: Option<sqlx::Error>) -> JournalError {
        JournalError::NotAJournal {
            journal: self.path.display().to_string(),
            found,
            source: source.map(Into::into),
        }
    }
}

fn result_code(error: &sqlx::Error) -> Option<i32> {
    // sqlx gives the extended code, in decimal.
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}
