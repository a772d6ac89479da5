//! The journal: what is written down about every intent, before it takes effect.
//!
//! A [`Journal`] keeps append-only [`Record`]s by intent. What an intent has come to is the fold of its
//! records, so a process that is killed at any point finds out from its journal how far it got (J1, J3).
//! That holds only if a record is durable before the effect that it announces: every write here is durable
//! when it returns.
//!
//! | item | what it is |
//! |---|---|
//! | [`Journal`] | the trait |
//! | [`SqliteJournal`] | one file, the embedded default (feature `sqlite`) |
//! | [`PostgresJournal`] | one database for several processes and machines (feature `postgres`) |
//! | [`MemoryJournal`] | for tests: gone with the process |
//! | [`conformance`] | what every backend must do, to be run against yours |
//! | [`JournalError`] | why a journal refused, case by case |
//!
//! No private key and no URL is ever given to a journal (J6).
//!
//! [`Record`]: backstay_core::tx::Record

mod config;
pub mod conformance;
mod effects;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod envelope;
mod error;
mod journal;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod lane;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod shared;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use config::PostgresConfig;
pub use effects::check_key;
pub use error::{Cause, JournalError};
pub use journal::{
    Author, Claim, Claiming, Entry, Holder, IntentId, Journal, Line, LineState, NewIntent, Owner, Query,
    State, Stored, Summary, Tombstone,
};
pub use memory::MemoryJournal;
#[cfg(feature = "postgres")]
pub use postgres::PostgresJournal;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteConfig, SqliteJournal};
