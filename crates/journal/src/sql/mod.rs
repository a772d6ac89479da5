//! A journal in a SQL database. The statements are the same for all of them: a backend includes this module (by its
//! path) next to what is its own, which is
//!
//! - `Backend`: the journal, with its `place`, `read`, which leases a connection, and `begin`, which
//!   begins a transaction that writes and gives it what a [`Guard`] says;
//! - `Connection`: its connection;
//! - `Place`: which database it is, in words, and what its failures mean;
//! - `dialect`: the few words of SQL that differ.
//!
//! So each text is there once, and is checked by the compiler against each database's types.

use std::time::Duration;

use alloy_primitives::B256;
use async_trait::async_trait;
use backstay_core::tx::Record;

use super::{Backend, Connection, Place, dialect};
use crate::{
    Author, Claim, Claiming, Holder, IntentId, Journal, JournalError, Line, LineState, NewIntent, Owner,
    Query, Stored, Summary,
    effects::{check_key, storable_chain, storable_nonce},
    lane::Guard,
};

mod intents;
mod keeping;
mod lines;

use intents::One;

type Result<T, E = JournalError> = std::result::Result<T, E>;
type Lease<'a> = crate::lane::Lease<'a, Connection>;

impl Backend {
    /// Commits what succeeded, takes back what failed.
    async fn end<T>(&self, mut lease: Lease<'_>, result: Result<T>) -> Result<T> {
        let word = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = sqlx::raw_sql(word).execute(&mut *lease).await;
        match (result, ended) {
            // It may be the connection that may not write, and not the database any more.
            (Err(error @ JournalError::ReadOnly { .. }), _) => Err(error),
            (result, Ok(_)) => {
                lease.keep();
                result
            }
            // The database has rolled back by itself, as on a full disk, or does when the connection closes now.
            (Err(error), Err(_)) => Err(error),
            (Ok(_), Err(error)) => Err(self.place.failure(error)),
        }
    }

    /// Creates an intent, or returns what somebody else has created meanwhile.
    pub(super) async fn create(&self, intent: NewIntent) -> Result<Stored> {
        check_key(&intent.key)?;
        storable_chain(intent.chain_id)?;
        let mut lease = self.begin(Guard::Nothing).await?;
        let opened = self.open_in(&mut lease, intent).await;
        self.end(lease, opened).await
    }

    async fn open_in(&self, connection: &mut Connection, intent: NewIntent) -> Result<Stored> {
        loop {
            if let Some(created) = intents::create(&self.place, connection, &intent).await? {
                return Ok(created);
            }
            // Somebody was faster.
            let stored = intents::load(&self.place, connection, intent.chain_id, &intent.key).await?;
            // Where it is gone again, it was pruned meanwhile, and its key is free.
            if let Some(stored) = stored {
                return Ok(stored);
            }
        }
    }
}

#[async_trait]
impl Journal for Backend {
    async fn claim(&self, line: Line, owner: &Owner, ttl: Duration) -> Result<Claiming> {
        storable_chain(line.chain_id)?;
        let mut lease = self.begin(Guard::Alone(line)).await?;
        let claimed = lines::claim(&self.place, &mut lease, line, owner, ttl).await;
        self.end(lease, claimed).await
    }

    async fn release(&self, claim: Claim) -> Result<()> {
        let mut lease = self.begin(Guard::Nothing).await?;
        let released = lines::release(&self.place, &mut lease, claim).await;
        self.end(lease, released).await
    }

    async fn holder(&self, line: Line) -> Result<Option<Holder>> {
        let mut lease = self.read().await?;
        let holder = lines::holder(&self.place, &mut lease, line).await?;
        lease.keep();
        Ok(holder)
    }

    async fn open(&self, intent: NewIntent) -> Result<Stored> {
        // What is there already needs no lock, and can be had when nothing can be written.
        if let Some(stored) = self.load(intent.chain_id, &intent.key).await? {
            return Ok(stored);
        }
        self.create(intent).await
    }

    async fn load(&self, chain_id: u64, key: &str) -> Result<Option<Stored>> {
        let mut lease = self.read().await?;
        let stored = intents::load(&self.place, &mut lease, chain_id, key).await?;
        lease.keep();
        Ok(stored)
    }

    async fn append(&self, author: Author, intent: IntentId, after: u64, records: &[Record]) -> Result<()> {
        let guard = match author {
            Author::Owner(claim) => Guard::Shared(claim.line),
            Author::Caller => Guard::Nothing,
        };
        let mut lease = self.begin(guard).await?;
        if let Some(one) = One::of(author, records) {
            match one.append(&self.place, &mut lease, intent, after).await {
                Ok(true) => return self.end(lease, Ok(())).await,
                Ok(false) => {
                    let undone = sqlx::raw_sql("ROLLBACK").execute(&mut *lease).await;
                    undone.map_err(|e| self.place.failure(e))?;
                    lease.keep();
                    lease = self.begin(guard).await?;
                }
                Err(error) => return self.end(lease, Err(error)).await,
            }
        }
        let appended = intents::append(&self.place, &mut lease, author, intent, after, records).await;
        self.end(lease, appended).await
    }

    async fn list(&self, query: &Query) -> Result<Vec<Summary>> {
        let mut lease = self.read().await?;
        let listed = keeping::list(&self.place, &mut lease, query).await?;
        lease.keep();
        Ok(listed)
    }

    async fn line(&self, line: Line, from: u64) -> Result<LineState> {
        let mut lease = self.read().await?;
        let state = lines::state(&self.place, &mut lease, line, from).await?;
        lease.keep();
        Ok(state)
    }

    async fn account_for(&self, line: Line, nonce: u64) -> Result<()> {
        storable_chain(line.chain_id)?;
        storable_nonce(nonce)?;
        let mut lease = self.begin(Guard::Nothing).await?;
        let accounted = lines::account_for(&self.place, &mut lease, line, nonce).await;
        self.end(lease, accounted).await
    }

    async fn prune(&self, chain_id: u64, older_than: Duration, limit: u32) -> Result<u32> {
        let mut lease = self.begin(Guard::Nothing).await?;
        let pruned = keeping::prune(&self.place, &mut lease, chain_id, older_than, limit).await;
        self.end(lease, pruned).await
    }

    async fn genesis(&self, chain_id: u64) -> Result<Option<B256>> {
        let mut lease = self.read().await?;
        let hash = keeping::genesis(&self.place, &mut lease, chain_id).await?;
        lease.keep();
        Ok(hash)
    }

    async fn record_genesis(&self, chain_id: u64, hash: B256) -> Result<B256> {
        storable_chain(chain_id)?;
        if let Some(recorded) = self.genesis(chain_id).await? {
            return Ok(recorded);
        }
        let mut lease = self.begin(Guard::Nothing).await?;
        let recorded = keeping::record_genesis(&self.place, &mut lease, chain_id, hash).await;
        self.end(lease, recorded).await
    }
}
