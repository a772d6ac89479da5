//! The trait, and what goes in and out of it.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

use alloy_primitives::{Address, B256, TxHash};
use async_trait::async_trait;
use backstay_core::tx::{Content, Grant, Outcome, Record, RecordEffect};
use serde::{Deserialize, Serialize};

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
/// # Errors
///
/// Each method names those of its own. What can befall any store, besides:
/// [`Busy`](JournalError::Busy), [`Full`](JournalError::Full), [`ReadOnly`](JournalError::ReadOnly),
/// [`Corrupt`](JournalError::Corrupt), [`NewerSchema`](JournalError::NewerSchema),
/// [`Backend`](JournalError::Backend).
///
/// # Cancel safety
///
/// Dropping the future of a read has no effect. Dropping the future of a write leaves it unknown whether
/// the write happened; never did half of it happen, and the journal goes on working. An
/// [`append`](Journal::append) that did happen shows itself as [`JournalError::Conflict`] at the next one;
/// everything else is simply asked again.
#[async_trait]
pub trait Journal: Send + Sync + fmt::Debug + 'static {
    /// Claims the line of an account for an owner, for `ttl` from now on by the store's own clock; for the owner that
    /// holds it, the claim is extended. Everything that is sent for the account is written down under a claim of its
    /// line (J4).
    ///
    /// One owner holds a line at a time. Another one gets it when the holder has let its claim end, or released it, and
    /// then with a higher token, so that whatever the old one still tries to write is refused, however late it
    /// wakes up. A claim that is said to end later than its `ttl` from now was made before the clock was set back,
    /// and has ended too.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](JournalError::OutOfRange).
    async fn claim(&self, line: Line, owner: &Owner, ttl: Duration) -> Result<Claiming, JournalError>;

    /// Ends a claim, so that others need not wait for its end. One that was taken over is left as it is.
    async fn release(&self, claim: Claim) -> Result<(), JournalError>;

    /// Who holds the line of an account now, by the store's own clock; `None` where nobody does. To be shown: by the time
    /// that it is read, another one may hold it.
    async fn holder(&self, line: Line) -> Result<Option<Holder>, JournalError>;

    /// Opens an intent, or returns what is stored under its key on this chain. Of callers that race for
    /// one key, one creates the intent and the others get what it created. It needs no claim.
    ///
    /// A new intent's first record is [`Record::Opened`]; when there are grants, [`Record::Granted`] is the
    /// second. What is stored is returned as it is, whatever the new content says: comparing the two is the
    /// caller's part (T1).
    ///
    /// # Errors
    ///
    /// [`BadKey`](JournalError::BadKey) where [`check_key`](crate::check_key) gives it;
    /// [`OutOfRange`](JournalError::OutOfRange).
    async fn open(&self, intent: NewIntent) -> Result<Stored, JournalError>;

    /// What is stored under a key, if anything is.
    async fn load(&self, chain_id: u64, key: &str) -> Result<Option<Stored>, JournalError>;

    /// Appends records to an intent of which the author has seen the first `after` records.
    ///
    /// Some records do more than being stored, in the same transaction:
    ///
    /// - [`Record::Signed`] takes the nonce for its step. A nonce of an account on a chain is held by one
    ///   step of one intent; further attempts of that step at it are fine.
    /// - [`Record::Released`] frees a nonce that this intent holds.
    /// - [`Record::Displaced`] frees it too, and the line [accounts](LineState::accounted) for it.
    /// - [`Record::Finished`] closes the intent: nothing is appended after it. The nonces that it holds stay taken.
    ///
    /// The last record says in which [`State`] the intent is from then on.
    ///
    /// # Errors
    ///
    /// Nothing is written when an error is returned, except that an error of the store itself
    /// ([`Backend`](JournalError::Backend)) can leave it open, as a dropped future does.
    ///
    /// - [`ClaimLost`](JournalError::ClaimLost): the claim was taken over, is of another line, or there is none and the
    ///   records need one.
    /// - [`Conflict`](JournalError::Conflict): somebody else appended.
    /// - [`SlotTaken`](JournalError::SlotTaken): another intent, or another step of this one, holds the
    ///   nonce.
    /// - [`SlotNotHeld`](JournalError::SlotNotHeld): this intent does not hold the nonce to be freed.
    /// - [`Finished`](JournalError::Finished), [`UnknownIntent`](JournalError::UnknownIntent),
    ///   [`OutOfRange`](JournalError::OutOfRange).
    async fn append(
        &self,
        author: Author,
        intent: IntentId,
        after: u64,
        records: &[Record],
    ) -> Result<(), JournalError>;

    /// The intents that a query asks for, in the order in which they were opened, without their records.
    async fn list(&self, query: &Query) -> Result<Vec<Summary>, JournalError>;

    /// What the journal knows of the nonces of an account: those that are signed for at or above `from`, and how far
    /// it accounts for them.
    async fn line(&self, line: Line, from: u64) -> Result<LineState, JournalError>;

    /// Accounts for every nonce below `nonce`, whoever has used them. It never goes back.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](JournalError::OutOfRange).
    async fn account_for(&self, line: Line, nonce: u64) -> Result<(), JournalError>;

    /// Removes the records of intents of a chain that ended long ago: at most `limit` of them, oldest first. A
    /// finished one leaves a [`Tombstone`], so that its key keeps its meaning (T1). One that has
    /// stopped, and for which nothing was ever signed, leaves nothing: its key is free.
    ///
    /// Returns how many there were: fewer than `limit` when none is left.
    async fn prune(&self, chain_id: u64, older_than: Duration, limit: u32) -> Result<u32, JournalError>;

    /// The hash of block 0 that was recorded for a chain, if one was.
    async fn genesis(&self, chain_id: u64) -> Result<Option<B256>, JournalError>;

    /// Records the hash of a chain's block 0 unless one is recorded already, and returns the one that is.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](JournalError::OutOfRange).
    async fn record_genesis(&self, chain_id: u64, hash: B256) -> Result<B256, JournalError>;
}

/// The nonces of an account on a chain, and everything that uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    /// The chain.
    pub chain_id: u64,
    /// The account.
    pub account: Address,
}

/// Who claims lines: a name that no other process and no other client has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(String);

impl Owner {
    /// An owner by its name, which is stored and shown.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A line that is held. A copy is the same claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which line.
    pub line: Line,
    /// The fencing token: higher than that of every owner before.
    pub token: u64,
}

/// What came of claiming a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claiming {
    /// It is held.
    Held(Claim),
    /// Somebody else holds it.
    Elsewhere {
        /// Who.
        owner: Owner,
        /// How long its claim lasts yet, by the store's clock, if it is not extended.
        remaining: Duration,
    },
}

/// Who holds a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Who.
    pub owner: Owner,
    /// How long its claim lasts yet, by the store's clock, if it is not extended.
    pub remaining: Duration,
}

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// The owner of the account's line: any record.
    Owner(Claim),
    /// Anybody: only records that [say what a caller wants](Record::is_of_caller).
    Caller,
}

/// What the journal knows of the nonces of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineState {
    /// The nonces that are signed for, each with the key of the intent that holds it. Finished intents hold theirs
    /// until they are pruned.
    pub slots: BTreeMap<u64, String>,
    /// The first nonce that the journal knows nothing of: every one below was signed for here, was used by
    /// somebody else to the journal's knowledge, or was [accounted for](Journal::account_for). `None` where nothing
    /// was ever signed. A chain that has used more has seen transactions that are not in this journal.
    pub accounted: Option<u64>,
    /// The nonce after the highest of `slots` whose intent has finished: the chain has used it, and a view of the chain
    /// that has not is from before that. `None` where no slot is of a finished intent.
    pub used: Option<u64>,
}

/// Which intents to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Of this chain. `None`: of all.
    pub chain_id: Option<u64>,
    /// Of this account. `None`: of all.
    pub account: Option<Address>,
    /// In one of these states. Empty: in any.
    pub states: Vec<State>,
    /// Under this key. `None`: under any. With it and without a chain, it takes as long as the journal is large.
    pub key: Option<String>,
    /// Opened after this one.
    pub after: Option<IntentId>,
    /// At most so many.
    pub limit: u32,
}

impl Default for Query {
    /// The first thousand of all.
    fn default() -> Self {
        Self { chain_id: None, account: None, states: Vec::new(), key: None, after: None, limit: 1_000 }
    }
}

/// How far an intent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It is to be worked on.
    Due,
    /// Its last run ended with an error.
    Stopped,
    /// It has ended.
    Finished,
    /// It has ended, and only its tombstone is left.
    Pruned,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Due, Self::Stopped, Self::Finished, Self::Pruned];

    /// The state after these records, where there is one.
    pub fn after(records: &[Record]) -> Option<Self> {
        let last = records.last()?;
        Some(match last.effect() {
            Some(RecordEffect::Finish) => Self::Finished,
            Some(RecordEffect::Take { .. } | RecordEffect::Release { .. } | RecordEffect::Lose { .. }) => {
                Self::Due
            }
            None if matches!(last, Record::Stopped { .. }) => Self::Stopped,
            None => Self::Due,
        })
    }
}

/// An intent without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its number in this journal.
    pub id: IntentId,
    /// The chain.
    pub chain_id: u64,
    /// Its key.
    pub key: String,
    /// The account that signs.
    pub account: Address,
    /// How far it is.
    pub state: State,
    /// How many records it has, or had before it was pruned.
    pub records: u64,
    /// Whether anything was ever signed for it.
    pub signed: bool,
    /// When it was opened, by its opener's clock.
    pub opened: SystemTime,
    /// When its newest record was written, by its writer's clock.
    pub changed: SystemTime,
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
    /// The account that signs.
    pub account: Address,
    /// Whether this very call created it.
    pub created: bool,
    /// All its records, oldest first. None where it was pruned.
    pub entries: Vec<Entry>,
    /// What is left of it, where it was pruned.
    pub tombstone: Option<Tombstone>,
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

/// What is left of an intent that was pruned: enough for its key to keep its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The digest of its content.
    pub content: B256,
    /// How it ended.
    pub outcome: Outcome,
    /// The hashes of everything that was signed for it, recovery included.
    pub hashes: Vec<TxHash>,
}

impl Tombstone {
    /// The tombstone of an intent with these records; `None` where it has not finished.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Option<Self> {
        let (mut digest, mut hashes) = (None, Vec::new());
        for record in records {
            match record {
                Record::Opened { content, .. } => digest = Some(content.fingerprint()),
                Record::Signed { attempt, .. } => hashes.push(attempt.hash),
                Record::Finished { outcome } => {
                    return Some(Self { content: digest?, outcome: outcome.clone(), hashes });
                }
                _ => {}
            }
        }
        None
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
