//! Which file it is, and what its failures mean.

use std::{path::PathBuf, time::Duration};

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
}

impl Place {
    /// The file, in words.
    pub(super) fn name(&self) -> String {
        format!("the journal {}", self.path.display())
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
