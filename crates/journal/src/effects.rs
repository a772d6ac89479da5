//! What appending a record does besides storing it: the same for every backend.

use backstay_core::tx::{Record, StepId};

use crate::JournalError;

/// What a record does to the account's nonces and to its intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The nonce is signed for, by this step.
    Take { nonce: u64, step: StepId },
    /// The nonce is free again.
    Release { nonce: u64 },
    /// The intent has ended.
    Finish,
}

/// The effect of a record, where it has one.
pub(crate) fn effect(record: &Record) -> Option<Effect> {
    match record {
        Record::Signed { step, attempt } => Some(Effect::Take { nonce: attempt.nonce, step: *step }),
        Record::Released { nonce } => Some(Effect::Release { nonce: *nonce }),
        Record::Finished { .. } => Some(Effect::Finish),
        Record::Opened { .. }
        | Record::Granted { .. }
        | Record::Fenced { .. }
        | Record::Planned { .. }
        | Record::Submitted { .. }
        | Record::Included { .. }
        | Record::Checked { .. } => None,
        // The enum may grow. Records are inert unless they are named above.
        _ => None,
    }
}

/// Whether the records end their intent: `None` where something follows the end.
pub(crate) fn ends(records: &[Record]) -> Option<bool> {
    match records.iter().position(|record| effect(record) == Some(Effect::Finish)) {
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
