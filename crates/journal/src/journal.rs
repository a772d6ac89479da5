//! The trait, and what goes in and out of it.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

use alloy_primitives::{Address, B256};
use async_trait::async_trait;
use backstay_core::tx::{Content, Grant, Record};

use crate::JournalError;

/// Where intents are written down.
///
/// Every write is one transaction: it happens entirely or not at all, and it is durable when it returns
/// `Ok`. Handles to the same store, in one process or in several, see each other's writes at once.
///
/// Chain ids and nonces are at most [`i64::MAX`], as EIP-2294 and EIP-2681 allow; beyond that every method
/// that writes refuses with [`JournalError::OutOfRange`].
///
/// Whoever implements this trait runs [`conformance`](crate::conformance) on it.
///
/// # Cancel safety
///
/// Dropping the future of a read has no effect. Dropping the future of a write leaves it unknown whether
/// the write happened; never did half of it happen, and the journal goes on working. An
/// [`append`](Journal::append) that did happen shows itself as [`JournalError::Conflict`] at the next one;
/// [`open`](Journal::open) and [`record_genesis`](Journal::record_genesis) are simply asked again.
#[async_trait]
pub trait Journal: Send + Sync + fmt::Debug + 'static {
    /// Opens an intent, or returns what is stored under its key on this chain. Of callers that race for
    /// one key, one creates the intent and the others get what it created.
    ///
    /// A new intent's first record is [`Record::Opened`]; when there are grants, [`Record::Granted`] is the
    /// second. What is stored is returned as it is, whatever the new content says: comparing the two is the
    /// caller's part (T1).
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](JournalError::OutOfRange), and what can befall any store:
    /// [`Busy`](JournalError::Busy), [`Full`](JournalError::Full), [`ReadOnly`](JournalError::ReadOnly),
    /// [`Corrupt`](JournalError::Corrupt), [`Backend`](JournalError::Backend).
    async fn open(&self, intent: NewIntent) -> Result<Stored, JournalError>;

    /// What is stored under a key, if anything is.
    ///
    /// # Errors
    ///
    /// What can befall any store.
    async fn load(&self, chain_id: u64, key: &str) -> Result<Option<Stored>, JournalError>;

    /// Appends records to an intent of which the caller has seen the first `after` records.
    ///
    /// Three records do more than being stored, in the same transaction:
    ///
    /// - [`Record::Signed`] takes the nonce for its step. A nonce of an account on a chain is held by one
    ///   step of one intent; further attempts of that step at it are fine.
    /// - [`Record::Released`] frees a nonce that this intent holds.
    /// - [`Record::Finished`] closes the intent: [`unfinished`](Journal::unfinished) passes over it, and
    ///   nothing is appended after it. The nonces that it holds stay taken.
    ///
    /// # Errors
    ///
    /// Nothing is written when an error is returned, except that an error of the store itself
    /// ([`Backend`](JournalError::Backend)) can leave it open, as a dropped future does.
    ///
    /// - [`Conflict`](JournalError::Conflict): somebody else appended.
    /// - [`SlotTaken`](JournalError::SlotTaken): another intent, or another step of this one, holds the
    ///   nonce.
    /// - [`SlotNotHeld`](JournalError::SlotNotHeld): this intent does not hold the nonce to be freed.
    /// - [`Finished`](JournalError::Finished), [`UnknownIntent`](JournalError::UnknownIntent),
    ///   [`OutOfRange`](JournalError::OutOfRange), and what can befall any store.
    async fn append(&self, intent: IntentId, after: u64, records: &[Record]) -> Result<(), JournalError>;

    /// The intents of a chain that have not finished, in the order in which they were opened.
    ///
    /// # Errors
    ///
    /// What can befall any store.
    async fn unfinished(&self, chain_id: u64) -> Result<Vec<Stored>, JournalError>;

    /// The nonces of an account that are signed for, at or above `from`, each with the key of the intent
    /// that holds it. Finished intents hold theirs too.
    ///
    /// # Errors
    ///
    /// What can befall any store.
    async fn slots(
        &self,
        chain_id: u64,
        account: Address,
        from: u64,
    ) -> Result<BTreeMap<u64, String>, JournalError>;

    /// The hash of block 0 that was recorded for a chain, if one was.
    ///
    /// # Errors
    ///
    /// What can befall any store.
    async fn genesis(&self, chain_id: u64) -> Result<Option<B256>, JournalError>;

    /// Records the hash of a chain's block 0 unless one is recorded already, and returns the one that is.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](JournalError::OutOfRange), and what can befall any store.
    async fn record_genesis(&self, chain_id: u64, hash: B256) -> Result<B256, JournalError>;
}

/// An intent to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIntent {
    /// The chain.
    pub chain_id: u64,
    /// The idempotency key, unique on its chain.
    pub key: String,
    /// The account that signs.
    pub account: Address,
    /// What to send.
    pub content: Content,
    /// What recovery may approve. Empty: nothing.
    pub grants: Vec<Grant>,
}

impl NewIntent {
    /// The first records of the intent.
    pub fn records(&self) -> Vec<Record> {
        let mut records = vec![Record::Opened { account: self.account, content: self.content.clone() }];
        if !self.grants.is_empty() {
            records.push(Record::Granted { grants: self.grants.clone() });
        }
        records
    }
}

/// An intent as the journal holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its number in this journal.
    pub id: IntentId,
    /// The chain.
    pub chain_id: u64,
    /// Its key.
    pub key: String,
    /// Whether this very call created it.
    pub created: bool,
    /// All its records, oldest first.
    pub entries: Vec<Entry>,
}

impl Stored {
    /// How many records there are: the `after` of an [`append`](Journal::append) by whoever has read this.
    pub fn seen(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The records without their times, oldest first.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.entries.iter().map(|entry| &entry.record)
    }
}

/// A record and when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The time of day at the writer, in whole milliseconds. To be shown, not to be ordered by: clocks
    /// differ and jump.
    pub at: SystemTime,
    /// The record.
    pub record: Record,
}

/// The number of an intent in one journal. It means nothing in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntentId(u64);

impl IntentId {
    /// The number, as a backend assigns it.
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The time of day in milliseconds since 1970: what journals keep of it.
pub(crate) fn millis_now() -> u64 {
    // A clock before 1970 is not set; the time is only shown.
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The time of day from milliseconds since 1970.
pub(crate) fn at_millis(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}
