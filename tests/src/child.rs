//! The process that the restart fleet kills: the story, over a journal that kills it at a chosen record.

use std::{path::PathBuf, time::Duration};

use alloy::{
    primitives::{Address, B256, U256},
    signers::local::PrivateKeySigner,
};
use async_trait::async_trait;
use backstay::journal::{
    Author, Claim, Claiming, IntentId, Journal, JournalError, Line, LineState, NewIntent, Owner, Query,
    Record, SqliteJournal, StepId, Stored, Summary,
};
use backstay_testkit::sample::Deployment;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{by_hand, story};

/// What the child is told: all that it needs, as JSON in one argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// Names and addresses.
    pub endpoints: Vec<(String, Url)>,
    /// The journal's file.
    pub journal: PathBuf,
    /// The account's key.
    pub key: B256,
    /// The contracts.
    pub token: Address,
    /// Where the deposit is set.
    pub parameters: Address,
    /// The registry.
    pub graphs: Address,
    /// The key to register.
    pub graph: B256,
    /// Where the journal kills the process; `None` lets it live.
    pub kill: Option<KillAt>,
    /// Who tells the story.
    pub teller: Teller,
}

/// Who tells the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Teller {
    /// The SDK.
    Backstay,
    /// Plain alloy.
    ByHand,
}

/// A point at the journal's boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillAt {
    /// Which record.
    pub record: Kind,
    /// Before it is written, or after.
    pub side: Side,
}

/// Which record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The plan of a recovery round.
    Planned,
    /// Signed bytes of the plan's step.
    SignedPlan,
    /// Signed bytes of the intent's own call.
    SignedEffect,
    /// The plan step's inclusion.
    IncludedPlan,
    /// The inclusion of the intent's own call.
    IncludedEffect,
}

/// Which side of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Before it is written.
    Before,
    /// Once it is durable.
    After,
}

/// Runs the story to its end, or to where it is killed. Prints where it was included, as JSON.
///
/// # Errors
///
/// What stopped the intent.
pub async fn run(orders: Orders) -> anyhow::Result<()> {
    let signer = PrivateKeySigner::from_bytes(&orders.key)?;
    let contracts =
        Deployment::at(orders.token, orders.parameters, orders.graphs, U256::ZERO, signer.address());
    if orders.teller == Teller::ByHand {
        by_hand::register(&orders.endpoints, signer, &contracts, orders.graph, None).await?;
        println!("{{}}");
        return Ok(());
    }
    let config = story::config(&orders.endpoints, &orders.journal);
    let journal = SqliteJournal::open(&orders.journal).await?;
    let journal = KillingJournal { inner: journal, kill: orders.kill };
    let client = story::builder(config, signer, orders.parameters).journal(journal).connect().await?;
    let intent = story::register(&client, &contracts, orders.graph).await?;
    let outcome = intent.outcome().await?;
    let inclusion = outcome.included()?;
    println!("{}", serde_json::to_string(inclusion)?);
    Ok(())
}

/// A journal that kills its own process at one record.
#[derive(Debug)]
struct KillingJournal {
    inner: SqliteJournal,
    kill: Option<KillAt>,
}

impl KillingJournal {
    fn strike(&self, records: &[Record], side: Side) {
        let Some(kill) = self.kill.filter(|kill| kill.side == side) else { return };
        if records.iter().filter_map(kind).any(|kind| kind == kill.record) {
            kill_process(std::process::id());
            // The signal may take a moment; nothing more may happen in it.
            loop {
                std::thread::park();
            }
        }
    }
}

/// Kills a process with SIGKILL. It is no error when it is gone already.
pub fn kill_process(id: u32) {
    if let Some(pid) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn kind(record: &Record) -> Option<Kind> {
    match record {
        Record::Planned { .. } => Some(Kind::Planned),
        Record::Signed { step: StepId::Plan { .. }, .. } => Some(Kind::SignedPlan),
        Record::Signed { step: StepId::Effect, .. } => Some(Kind::SignedEffect),
        Record::Included { step: StepId::Plan { .. }, .. } => Some(Kind::IncludedPlan),
        Record::Included { step: StepId::Effect, .. } => Some(Kind::IncludedEffect),
        _ => None,
    }
}

#[async_trait]
impl Journal for KillingJournal {
    async fn open(&self, intent: NewIntent) -> Result<Stored, JournalError> {
        self.inner.open(intent).await
    }

    async fn load(&self, chain_id: u64, key: &str) -> Result<Option<Stored>, JournalError> {
        self.inner.load(chain_id, key).await
    }

    async fn claim(&self, line: Line, owner: &Owner, ttl: Duration) -> Result<Claiming, JournalError> {
        self.inner.claim(line, owner, ttl).await
    }

    async fn release(&self, claim: Claim) -> Result<(), JournalError> {
        self.inner.release(claim).await
    }

    async fn append(
        &self,
        author: Author,
        intent: IntentId,
        after: u64,
        records: &[Record],
    ) -> Result<(), JournalError> {
        self.strike(records, Side::Before);
        self.inner.append(author, intent, after, records).await?;
        self.strike(records, Side::After);
        Ok(())
    }

    async fn list(&self, query: &Query) -> Result<Vec<Summary>, JournalError> {
        self.inner.list(query).await
    }

    async fn line(&self, line: Line, from: u64) -> Result<LineState, JournalError> {
        self.inner.line(line, from).await
    }

    async fn account_for(&self, line: Line, nonce: u64) -> Result<(), JournalError> {
        self.inner.account_for(line, nonce).await
    }

    async fn prune(&self, chain_id: u64, older_than: Duration, limit: u32) -> Result<u32, JournalError> {
        self.inner.prune(chain_id, older_than, limit).await
    }

    async fn genesis(&self, chain_id: u64) -> Result<Option<B256>, JournalError> {
        self.inner.genesis(chain_id).await
    }

    async fn record_genesis(&self, chain_id: u64, hash: B256) -> Result<B256, JournalError> {
        self.inner.record_genesis(chain_id, hash).await
    }
}
