//! A journal that several share is a journal.

use std::{sync::Arc, time::Duration};

use alloy_primitives::B256;
use async_trait::async_trait;
use backstay_core::tx::Record;

use crate::{
    Author, Claim, Claiming, Holder, IntentId, Journal, JournalError, Line, LineState, NewIntent, Owner,
    Query, Stored, Summary,
};

/// So the clients of several chains can keep their intents in one journal that is open once, and a journal that was
/// chosen at run time is one too.
#[async_trait]
impl<J: Journal + ?Sized> Journal for Arc<J> {
    async fn claim(&self, line: Line, owner: &Owner, ttl: Duration) -> Result<Claiming, JournalError> {
        (**self).claim(line, owner, ttl).await
    }

    async fn release(&self, claim: Claim) -> Result<(), JournalError> {
        (**self).release(claim).await
    }

    async fn holder(&self, line: Line) -> Result<Option<Holder>, JournalError> {
        (**self).holder(line).await
    }

    async fn open(&self, intent: NewIntent) -> Result<Stored, JournalError> {
        (**self).open(intent).await
    }

    async fn load(&self, chain_id: u64, key: &str) -> Result<Option<Stored>, JournalError> {
        (**self).load(chain_id, key).await
    }

    async fn append(
        &self,
        author: Author,
        intent: IntentId,
        after: u64,
        records: &[Record],
    ) -> Result<(), JournalError> {
        (**self).append(author, intent, after, records).await
    }

    async fn list(&self, query: &Query) -> Result<Vec<Summary>, JournalError> {
        (**self).list(query).await
    }

    async fn line(&self, line: Line, from: u64) -> Result<LineState, JournalError> {
        (**self).line(line, from).await
    }

    async fn account_for(&self, line: Line, nonce: u64) -> Result<(), JournalError> {
        (**self).account_for(line, nonce).await
    }

    async fn prune(&self, chain_id: u64, older_than: Duration, limit: u32) -> Result<u32, JournalError> {
        (**self).prune(chain_id, older_than, limit).await
    }

    async fn genesis(&self, chain_id: u64) -> Result<Option<B256>, JournalError> {
        (**self).genesis(chain_id).await
    }

    async fn record_genesis(&self, chain_id: u64, hash: B256) -> Result<B256, JournalError> {
        (**self).record_genesis(chain_id, hash).await
    }
}
