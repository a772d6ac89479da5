//! A journal that kills its own process.

use std::{sync::Arc, time::Duration};

use alloy::primitives::B256;
use async_trait::async_trait;
use backstay::journal::{
    Author, Claim, Claiming, Holder, IntentId, Journal, JournalError, Line, LineState, NewIntent, Owner,
    Query, Record, Stored, Summary,
};
use serde_json::Value;

use super::{
    life::{kill_self, moment},
    point::{Side, Trap},
};

/// How long at most a write is under way when the process is killed amid it.
const LONGEST_WRITE: Duration = Duration::from_millis(3);

/// A journal around another one: it counts the writes, and kills its own process at one of them.
#[derive(Debug)]
pub(super) struct KillingJournal {
    pub(super) inner: Arc<dyn Journal>,
    pub(super) trap: Arc<Trap>,
}

impl KillingJournal {
    /// One write, with what comes before and after it.
    async fn write<T>(
        &self,
        name: &str,
        write: impl Future<Output = Result<T, JournalError>>,
    ) -> Result<T, JournalError> {
        let boundary = format!("journal.{name}");
        self.cross(&boundary, Side::Before);
        let amid = self.trap.springs(&boundary, Side::Amid);
        if amid {
            let time = moment(&boundary, LONGEST_WRITE);
            std::thread::spawn(move || {
                std::thread::sleep(time);
                kill_self();
            });
        }
        let written = write.await;
        if amid {
            // It was quicker than the signal, and nothing may come of it.
            return std::future::pending().await;
        }
        let written = written?;
        self.cross(&boundary, Side::After);
        Ok(written)
    }

    fn cross(&self, boundary: &str, side: Side) {
        if self.trap.springs(boundary, side) {
            kill_self();
        }
    }
}

/// What a record is called: as it is stored, and for which step.
fn name(record: &Record) -> String {
    let value = serde_json::to_value(record).unwrap_or_default();
    let (kind, fields) = match &value {
        Value::Object(object) => match object.iter().next() {
            Some((kind, fields)) => (kind.as_str(), Some(fields)),
            None => ("", None),
        },
        other => (other.as_str().unwrap_or_default(), None),
    };
    match fields.and_then(|fields| fields.get("step")) {
        Some(Value::String(effect)) => format!("{kind}-{effect}"),
        Some(_) => format!("{kind}-plan"),
        None => kind.to_owned(),
    }
}

#[async_trait]
impl Journal for KillingJournal {
    async fn claim(&self, line: Line, owner: &Owner, ttl: Duration) -> Result<Claiming, JournalError> {
        self.write("claim", self.inner.claim(line, owner, ttl)).await
    }

    async fn release(&self, claim: Claim) -> Result<(), JournalError> {
        self.write("release", self.inner.release(claim)).await
    }

    async fn holder(&self, line: Line) -> Result<Option<Holder>, JournalError> {
        self.inner.holder(line).await
    }

    async fn open(&self, intent: NewIntent) -> Result<Stored, JournalError> {
        self.write("open", self.inner.open(intent)).await
    }

    async fn load(&self, chain_id: u64, key: &str) -> Result<Option<Stored>, JournalError> {
        self.inner.load(chain_id, key).await
    }

    async fn append(
        &self,
        author: Author,
        intent: IntentId,
        after: u64,
        records: &[Record],
    ) -> Result<(), JournalError> {
        // The last of them is what the others lead to.
        let name = records.last().map(name).unwrap_or_default();
        self.write(&format!("append.{name}"), self.inner.append(author, intent, after, records)).await
    }

    async fn list(&self, query: &Query) -> Result<Vec<Summary>, JournalError> {
        self.inner.list(query).await
    }

    async fn line(&self, line: Line, from: u64) -> Result<LineState, JournalError> {
        self.inner.line(line, from).await
    }

    async fn account_for(&self, line: Line, nonce: u64) -> Result<(), JournalError> {
        self.write("account-for", self.inner.account_for(line, nonce)).await
    }

    async fn prune(&self, chain_id: u64, older_than: Duration, limit: u32) -> Result<u32, JournalError> {
        self.write("prune", self.inner.prune(chain_id, older_than, limit)).await
    }

    async fn genesis(&self, chain_id: u64) -> Result<Option<B256>, JournalError> {
        self.inner.genesis(chain_id).await
    }

    async fn record_genesis(&self, chain_id: u64, hash: B256) -> Result<B256, JournalError> {
        self.write("genesis", self.inner.record_genesis(chain_id, hash)).await
    }
}

#[cfg(test)]
mod tests {
    use backstay::journal::StepId;

    use super::*;

    #[test]
    fn records_are_named_after_what_they_say_and_for_which_step() {
        let nonce = Record::Released { nonce: 3 };
        let block = backstay::BlockRef { number: 1, hash: B256::ZERO };
        let plan = StepId::Plan { round: 0, step: 0 };
        let checked = |step| Record::Checked { step, block, holds: true };
        let names =
            [Record::Resumed, nonce, checked(plan), checked(StepId::Effect)].map(|record| name(&record));
        assert_eq!(names, ["resumed", "released", "checked-plan", "checked-effect"]);
    }
}
