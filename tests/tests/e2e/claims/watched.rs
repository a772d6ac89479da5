//! A journal that counts, and stops answering when it is told to.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use backstay::{
    alloy::primitives::B256,
    journal::{
        Author, Claim, Claiming, Holder, IntentId, Journal, JournalError, Line, LineState, NewIntent, Owner,
        Query, Record, RecordEffect, Stored, Summary,
    },
};
use e2e::story::CHAIN_ID;
use tokio::sync::watch;

use crate::stage::eventually;

/// A journal around another one. Clones watch the same calls.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    inner: Arc<dyn Journal>,
    frozen: Arc<watch::Sender<Frozen>>,
    trick: Arc<Mutex<Option<Trick>>>,
    counts: Arc<Counts>,
}

/// Which calls wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frozen {
    /// None.
    Nothing,
    /// Those that append.
    Appends,
    /// All, from the first one on that writes down what was signed.
    FromSigningOn,
    /// All: to the store, the process has stopped.
    Everything,
}

/// What it does to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trick {
    /// It has no room for the record that says why an intent stopped.
    NoRoomForStops,
    /// Claims end at once, as where a machine was asleep.
    ShortClaims,
    /// What ended or stopped is pruned just before a caller's wish arrives.
    PrunesBeforeWishes,
}

#[derive(Debug, Default)]
struct Counts {
    loads: Mutex<Vec<String>>,
    lists: AtomicU64,
    claims: AtomicU64,
    waiting: AtomicU64,
    refused: AtomicU64,
}

impl Watched {
    pub(super) fn over(inner: impl Journal) -> Self {
        let frozen = Arc::new(watch::Sender::new(Frozen::Nothing));
        Self { inner: Arc::new(inner), frozen, trick: Arc::default(), counts: Arc::default() }
    }

    pub(super) fn plays(&self, trick: Option<Trick>) {
        *self.trick.lock().unwrap_or_else(PoisonError::into_inner) = trick;
    }

    fn playing(&self, trick: Trick) -> bool {
        *self.trick.lock().unwrap_or_else(PoisonError::into_inner) == Some(trick)
    }

    pub(super) fn freeze(&self, frozen: Frozen) {
        self.frozen.send_replace(frozen);
    }

    pub(super) fn thaw(&self) {
        self.freeze(Frozen::Nothing);
    }

    /// Waits until an append waits.
    pub(super) async fn holds_an_append(&self) {
        let waiting = &self.counts.waiting;
        eventually("an append waits", async || waiting.load(Ordering::SeqCst) > 0).await;
    }

    /// How many appends were refused because the line was taken over.
    pub(super) fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::SeqCst)
    }

    /// The intents that were read with all their records, by key, each as often as it was.
    pub(super) fn loads(&self) -> Vec<String> {
        self.counts.loads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until work was looked for so many times more.
    pub(super) async fn looked_into(&self, times: u64) {
        more(&self.counts.lists, times).await;
    }

    /// Waits until lines were claimed, or claims extended, so many times more.
    pub(super) async fn claimed(&self, times: u64) {
        more(&self.counts.claims, times).await;
    }

    async fn pass(&self, frozen: impl Fn(Frozen) -> bool) {
        // It lives as long as this does.
        let _ = self.frozen.subscribe().wait_for(|now| !frozen(*now)).await;
    }

    async fn answers(&self) {
        self.pass(|now| now == Frozen::Everything).await;
    }
}

async fn more(counter: &AtomicU64, times: u64) {
    let from = counter.load(Ordering::SeqCst);
    eventually("it was done", async || counter.load(Ordering::SeqCst) >= from + times).await;
}

#[async_trait]
impl Journal for Watched {
    async fn claim(&self, line: Line, owner: &Owner, ttl: Duration) -> Result<Claiming, JournalError> {
        self.answers().await;
        self.counts.claims.fetch_add(1, Ordering::SeqCst);
        let ttl = if self.playing(Trick::ShortClaims) { Duration::from_millis(1) } else { ttl };
        self.inner.claim(line, owner, ttl).await
    }

    async fn release(&self, claim: Claim) -> Result<(), JournalError> {
        self.answers().await;
        self.inner.release(claim).await
    }

    async fn holder(&self, line: Line) -> Result<Option<Holder>, JournalError> {
        self.answers().await;
        self.inner.holder(line).await
    }

    async fn open(&self, intent: NewIntent) -> Result<Stored, JournalError> {
        self.answers().await;
        self.inner.open(intent).await
    }

    async fn load(&self, chain_id: u64, key: &str) -> Result<Option<Stored>, JournalError> {
        self.answers().await;
        self.counts.loads.lock().unwrap_or_else(PoisonError::into_inner).push(key.to_owned());
        self.inner.load(chain_id, key).await
    }

    async fn append(
        &self,
        author: Author,
        intent: IntentId,
        after: u64,
        records: &[Record],
    ) -> Result<(), JournalError> {
        let stops = records.iter().any(|record| matches!(record, Record::Stopped { .. }));
        if stops && self.playing(Trick::NoRoomForStops) {
            return Err(JournalError::Full { journal: "the journal".to_owned(), source: "no room".into() });
        }
        if author == Author::Caller && self.playing(Trick::PrunesBeforeWishes) {
            self.inner.prune(CHAIN_ID, Duration::ZERO, 9).await?;
        }
        let signs = records.iter().any(|record| matches!(record.effect(), Some(RecordEffect::Take { .. })));
        if signs {
            self.frozen.send_if_modified(|now| {
                let begins = *now == Frozen::FromSigningOn;
                if begins {
                    *now = Frozen::Everything;
                }
                begins
            });
        }
        self.counts.waiting.fetch_add(1, Ordering::SeqCst);
        self.pass(|now| matches!(now, Frozen::Appends | Frozen::Everything)).await;
        self.counts.waiting.fetch_sub(1, Ordering::SeqCst);
        let appended = self.inner.append(author, intent, after, records).await;
        if matches!(appended, Err(JournalError::ClaimLost { .. })) {
            self.counts.refused.fetch_add(1, Ordering::SeqCst);
        }
        appended
    }

    async fn list(&self, query: &Query) -> Result<Vec<Summary>, JournalError> {
        self.answers().await;
        self.counts.lists.fetch_add(1, Ordering::SeqCst);
        self.inner.list(query).await
    }

    async fn line(&self, line: Line, from: u64) -> Result<LineState, JournalError> {
        self.answers().await;
        self.inner.line(line, from).await
    }

    async fn account_for(&self, line: Line, nonce: u64) -> Result<(), JournalError> {
        self.answers().await;
        self.inner.account_for(line, nonce).await
    }

    async fn prune(&self, chain_id: u64, older_than: Duration, limit: u32) -> Result<u32, JournalError> {
        self.answers().await;
        self.inner.prune(chain_id, older_than, limit).await
    }

    async fn genesis(&self, chain_id: u64) -> Result<Option<B256>, JournalError> {
        self.answers().await;
        self.inner.genesis(chain_id).await
    }

    async fn record_genesis(&self, chain_id: u64, hash: B256) -> Result<B256, JournalError> {
        self.answers().await;
        self.inner.record_genesis(chain_id, hash).await
    }
}
