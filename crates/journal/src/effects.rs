//! What every backend checks before it stores.

use backstay_core::tx::{Record, RecordEffect};

use crate::JournalError;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::State;

/// Whether the records end their intent: `None` where something follows the end.
pub(crate) fn ends(records: &[Record]) -> Option<bool> {
    match records.iter().position(|record| record.effect() == Some(RecordEffect::Finish)) {
        None => Some(false),
        Some(end) => (end + 1 == records.len()).then_some(true),
    }
}

/// The longest key, in bytes. PostgreSQL indexes nothing that is longer than a third of its pages.
const LONGEST_KEY: usize = 1_024;

/// Checks whether journals hold a key: any text of at most 1024 bytes, without the character NUL, which PostgreSQL does
/// not store.
///
/// # Errors
///
/// [`JournalError::BadKey`].
pub fn check_key(key: &str) -> Result<(), JournalError> {
    if key.len() > LONGEST_KEY {
        return Err(JournalError::BadKey { what: "is longer than 1024 bytes" });
    }
    if key.contains('\0') {
        return Err(JournalError::BadKey { what: "holds the character NUL" });
    }
    Ok(())
}

/// A number as databases hold it.
pub(crate) fn storable(what: &'static str, value: u64) -> Result<i64, JournalError> {
    i64::try_from(value).map_err(|_| JournalError::OutOfRange { what, value })
}

/// A chain id as databases hold it.
pub(crate) fn storable_chain(chain_id: u64) -> Result<i64, JournalError> {
    storable("chain id", chain_id)
}

/// A nonce as databases hold it.
pub(crate) fn storable_nonce(nonce: u64) -> Result<i64, JournalError> {
    storable("nonce", nonce)
}

/// The nonce after one, within what databases hold.
pub(crate) fn following(nonce: u64) -> u64 {
    nonce.saturating_add(1).min(i64::MAX as u64)
}

/// How databases hold a state. Partial indexes name these numbers.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const fn state_number(state: State) -> i64 {
    match state {
        State::Due => 0,
        State::Stopped => 1,
        State::Finished => 2,
        State::Pruned => 3,
    }
}

/// The state that a number stands for.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn state_of(number: i64) -> Option<State> {
    State::ALL.into_iter().find(|state| state_number(*state) == number)
}
