//! What every backend checks before it stores.

use backstay_core::tx::{Record, RecordEffect};

use crate::JournalError;

/// Whether the records end their intent: `None` where something follows the end.
pub(crate) fn ends(records: &[Record]) -> Option<bool> {
    match records.iter().position(|record| record.effect() == Some(RecordEffect::Finish)) {
        None => Some(false),
        Some(end) => (end + 1 == records.len()).then_some(true),
    }
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
