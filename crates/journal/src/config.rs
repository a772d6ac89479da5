//! What can be set, of backends that a build may be without.

use std::time::Duration;

use backstay_core::{
    Error, Result,
    limits::{Zero, durations},
};
use serde::{Deserialize, Serialize};

#[cfg(doc)]
use crate::JournalError;

/// The longest name that PostgreSQL does not cut off, in bytes.
const NAME: usize = 63;

/// How a PostgreSQL journal is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PostgresConfig {
    /// The schema that holds the tables. It is made where it is missing, and is left alone where it holds anything else.
    /// Journals in different schemas know nothing of each other.
    ///
    /// Default: `backstay`, so that the tables are apart from those of the service that uses the same database.
    pub schema: String,
    /// How many writes run at once. Each has a connection, and reads have half as many of their own; they are opened
    /// when they are needed, and stay open.
    ///
    /// Default: 8. PostgreSQL writes the commits of several connections to the disk together, and takes 100 connections
    /// in all where its own default was left.
    pub connections: u32,
    /// How long it is tried to get a connection, while the server is down or starting up too, before
    /// [`JournalError::Unreachable`]. Nothing was sent then.
    ///
    /// Default: 5 s, in which a server restarts.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// How long a statement waits for a lock that somebody else holds before [`JournalError::Busy`]. A process that is
    /// halted in the middle of a write loses its connection, and with it its locks, within four fifths of that.
    ///
    /// Default: 5 s. A write takes a few milliseconds.
    #[serde(with = "humantime_serde")]
    pub lock_timeout: Duration,
    /// How long the server works on a statement before it ends it with [`JournalError::Busy`]. An operation for which no
    /// answer comes in twice this time, that of a connection and that of a lock is given up with [`JournalError::Backend`].
    ///
    /// Default: 10 s, a thousand times what a statement of ours takes.
    #[serde(with = "humantime_serde")]
    pub statement_timeout: Duration,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            schema: "backstay".to_owned(),
            connections: 8,
            connect_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
        }
    }
}

impl PostgresConfig {
    /// Checks the values.
    ///
    /// # Errors
    ///
    /// A configuration error that names the key.
    pub fn validate(&self) -> Result<()> {
        if !is_plain(&self.schema) {
            return Err(Error::config(format!(
                "`postgres.schema` is {:?}; take at most {NAME} of a-z, 0-9 and `_`, no digit first, and no `pg_`",
                self.schema
            )));
        }
        if self.connections == 0 {
            return Err(Error::config("`postgres.connections` is zero; allow at least one"));
        }
        durations([
            ("postgres.connect_timeout", self.connect_timeout, Zero::Refused),
            ("postgres.lock_timeout", self.lock_timeout, Zero::Refused),
            ("postgres.statement_timeout", self.statement_timeout, Zero::Refused),
        ])
    }
}

/// Whether a name needs no quoting, and is not PostgreSQL's own.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty()
        && name.len() <= NAME
        && name.bytes().all(plain)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.starts_with("pg_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_a_plain_name() {
        for name in ["", "Upper", "a-b", "a\"; DROP SCHEMA x", "1st", "pg_mine", &"x".repeat(64)] {
            let config = PostgresConfig { schema: name.to_owned(), ..PostgresConfig::default() };
            let said = config.validate().expect_err("it is no plain name").to_string();
            assert!(said.contains("`postgres.schema` is"), "{said}");
        }
        let config = PostgresConfig { schema: "_a1".to_owned(), ..PostgresConfig::default() };
        config.validate().expect("it is one");
    }

    #[test]
    fn values_that_allow_nothing_are_refused() {
        let none = PostgresConfig { connections: 0, ..PostgresConfig::default() };
        assert!(none.validate().expect_err("it is zero").to_string().contains("`postgres.connections`"));
        let never = PostgresConfig { lock_timeout: Duration::ZERO, ..PostgresConfig::default() };
        assert!(never.validate().expect_err("it is zero").to_string().contains("`postgres.lock_timeout`"));
    }
}
