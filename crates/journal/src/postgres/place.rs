//! Which database it is, and what its failures mean.

use std::{sync::Arc, time::Duration};

use crate::{Cause, JournalError};

// SQLSTATEs. https://www.postgresql.org/docs/current/errcodes-appendix.html
const READ_ONLY_TRANSACTION: &str = "25006";
const IDLE_IN_TRANSACTION: &str = "25P03";
const NO_SUCH_DATABASE: &str = "3D000";
const NO_SUCH_SCHEMA: &str = "3F000";
const SERIALIZATION: &str = "40001";
const DEADLOCK: &str = "40P01";
const NO_PRIVILEGE: &str = "42501";
pub(super) const NO_SUCH_COLUMN: &str = "42703";
const NO_SUCH_TABLE: &str = "42P01";
const DISK_FULL: &str = "53100";
const TOO_MANY_CONNECTIONS: &str = "53300";
const LOCK_NOT_AVAILABLE: &str = "55P03";
const QUERY_CANCELED: &str = "57014";
const ADMIN_SHUTDOWN: &str = "57P01";
const CRASH_SHUTDOWN: &str = "57P02";
const STARTING_UP: &str = "57P03";
const DATA_CORRUPTED: &str = "XX001";
const INDEX_CORRUPTED: &str = "XX002";

/// The database of a journal.
#[derive(Clone, Debug)]
pub(super) struct Place(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    /// Where it is: without a user, a password, or anything else of the URL.
    server: String,
    database: String,
    schema: String,
    lock_timeout: Duration,
    statement_timeout: Duration,
}

impl Place {
    pub(super) fn new(server: String, database: String, config: &super::PostgresConfig) -> Self {
        Self(Arc::new(Parts {
            server,
            database,
            schema: config.schema.clone(),
            lock_timeout: config.lock_timeout,
            statement_timeout: config.statement_timeout,
        }))
    }

    /// The journal, in words.
    pub(super) fn name(&self) -> String {
        format!("the journal {self}")
    }

    pub(super) fn schema(&self) -> &str {
        &self.0.schema
    }

    /// What a failure of a statement means for whoever uses the journal.
    pub(super) fn failure(&self, error: sqlx::Error) -> JournalError {
        let journal = self.name();
        let Some(code) = sqlstate(&error) else {
            return JournalError::Backend { journal, source: cause(error) };
        };
        match code.as_str() {
            LOCK_NOT_AVAILABLE | DEADLOCK | SERIALIZATION => {
                JournalError::Busy { journal, waited: self.0.lock_timeout, source: cause(error) }
            }
            QUERY_CANCELED => {
                JournalError::Busy { journal, waited: self.0.statement_timeout, source: cause(error) }
            }
            DISK_FULL => JournalError::Full { journal, source: cause(error) },
            READ_ONLY_TRANSACTION => JournalError::ReadOnly { journal, source: cause(error) },
            // A schema that one may not use is not there, says the server.
            NO_PRIVILEGE | NO_SUCH_DATABASE | NO_SUCH_SCHEMA => {
                JournalError::Refused { journal, source: cause(error) }
            }
            DATA_CORRUPTED | INDEX_CORRUPTED => {
                self.corrupt("PostgreSQL finds its data corrupted", Some(error))
            }
            NO_SUCH_TABLE | NO_SUCH_COLUMN => {
                self.corrupt("its tables are not what they were, or not granted to this user", Some(error))
            }
            // Authorization: the user, the password, or what the server asks of either.
            code if code.starts_with("28") => JournalError::Refused { journal, source: cause(error) },
            _ => JournalError::Backend { journal, source: cause(error) },
        }
    }

    /// The same where it is the connection that failed: nothing was asked of the journal then.
    pub(super) fn failure_to_connect(&self, error: sqlx::Error) -> JournalError {
        if breaks(&error) || sqlstate(&error).is_some_and(|code| code == TOO_MANY_CONNECTIONS) {
            return JournalError::Unreachable { journal: self.name(), source: cause(error) };
        }
        self.failure(error)
    }

    pub(super) fn corrupt(&self, what: impl Into<String>, source: Option<sqlx::Error>) -> JournalError {
        JournalError::Corrupt { journal: self.name(), what: what.into(), source: source.map(cause) }
    }

    pub(super) fn not_a_journal(&self, found: &'static str) -> JournalError {
        JournalError::NotAJournal { journal: self.name(), found, source: None }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Parts { server, database, schema, .. } = &*self.0;
        write!(f, "in schema {schema} of the PostgreSQL database {database} at {server}")
    }
}

/// Whether the connection is of no use any more after this.
pub(super) fn breaks(error: &sqlx::Error) -> bool {
    match sqlstate(error) {
        Some(code) => {
            matches!(code.as_str(), ADMIN_SHUTDOWN | CRASH_SHUTDOWN | STARTING_UP | IDLE_IN_TRANSACTION)
                // Connection exceptions.
                || code.starts_with("08")
        }
        None => matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_)),
    }
}

/// The same of an error that has its meaning already.
pub(super) fn is_broken(error: &JournalError) -> bool {
    match error {
        JournalError::Backend { source, .. } => source.downcast_ref::<sqlx::Error>().is_some_and(breaks),
        JournalError::Conflict { .. }
        | JournalError::SlotTaken { .. }
        | JournalError::SlotNotHeld { .. }
        | JournalError::Finished { .. }
        | JournalError::ClaimLost { .. }
        | JournalError::UnknownIntent { .. }
        | JournalError::BadKey { .. }
        | JournalError::OutOfRange { .. }
        | JournalError::NoDirectory { .. }
        | JournalError::NotAJournal { .. }
        | JournalError::BadAddress { .. }
        | JournalError::Unreachable { .. }
        | JournalError::Refused { .. }
        | JournalError::Missing { .. }
        | JournalError::NewerSchema { .. }
        | JournalError::OlderSchema { .. }
        | JournalError::ReadOnly { .. }
        | JournalError::Replaced { .. }
        | JournalError::Busy { .. }
        | JournalError::Full { .. }
        | JournalError::Corrupt { .. } => false,
    }
}

/// Whether it is worth trying to connect again: the server is down, starting up, or has no place at the moment.
pub(super) fn may_pass(error: &sqlx::Error) -> bool {
    match sqlstate(error) {
        Some(code) => {
            matches!(code.as_str(), STARTING_UP | TOO_MANY_CONNECTIONS | ADMIN_SHUTDOWN | CRASH_SHUTDOWN)
        }
        None => matches!(error, sqlx::Error::Io(_)),
    }
}

pub(super) fn sqlstate(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

fn cause(error: sqlx::Error) -> Cause {
    error.into()
}
