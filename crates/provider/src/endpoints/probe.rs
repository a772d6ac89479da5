//! Probes of history (E6): endpoints are asked about the past in the background, once each is identified. What is asked
//! is decided by [`Probes`].

use std::{
    collections::BTreeSet,
    sync::{Arc, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use alloy::primitives::{Address, B256, Bloom, U64, U256};
use backstay_core::{
    endpoint::{Detail, EndpointId, Found, Landmark, Logs, Need, Pick, Probes, Question, Said, Seen},
    failure::Verdict,
};
use futures::future::join_all;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::{
    endpoints::{Shared, now},
    link::wire::{Call, Reply},
};

/// The longest that one answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The transactions that every chain counts alike: what system transactions of other types do to a nonce differs.
const COUNTED_TYPES: u64 = 4;

/// Probes endpoints as they are identified, until the pool is gone.
pub(crate) async fn probe(shared: Weak<Shared>, due: Arc<Notify>) {
    loop {
        match shared.upgrade() {
            Some(shared) => shared.probe_those_due().await,
            None => return,
        }
        due.notified().await;
    }
}

impl Shared {
    /// Lets an endpoint's history be probed, once.
    pub(crate) fn probe_history(&self, id: EndpointId) {
        if self.config.history_probes {
            self.probes().identified(id);
            self.probes_due.notify_one();
        }
    }

    fn probes(&self) -> MutexGuard<'_, Probes> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn probe_those_due(&self) {
        let mut among: Vec<(EndpointId, u64)> = {
            let pool = self.pool();
            let due = self.probes().take_due(|id| pool.may_serve(id, Need::Current));
            let mut due: Vec<_> =
                due.into_iter().filter_map(|id| Some((id, pool.get(id).head()?.number))).collect();
            let order: Vec<EndpointId> = pool.ids().collect();
            due.sort_by_key(|(id, _)| order.iter().position(|other| other == id));
            due
        };
        let mut given_up = BTreeSet::new();
        loop {
            let question = self.probes().search(&among);
            let Some((id, question)) = question else { break };
            if self.put(id, question).await.is_none() {
                given_up.insert(id);
                among.retain(|(other, _)| *other != id);
            }
        }
        join_all(among.iter().map(|(id, head)| self.probe_one(*id, *head))).await;
        let suspects = self.probes().suspects();
        for kind in suspects {
            tracing::warn!(
                ?kind,
                "the probe of this history is suspect: every endpoint that was asked has failed it; it is learned from \
                 what is read"
            );
        }
    }

    /// Asks one endpoint about what is known.
    async fn probe_one(&self, id: EndpointId, head: u64) {
        loop {
            let question = self.probes().next(id, head);
            let Some(question) = question else { break };
            if self.put(id, question).await.is_none() {
                tracing::debug!(endpoint = %self.name(id), "the probe of its history was given up");
                return;
            }
        }
        self.probes().ended(id);
    }

    /// Puts a question, and notes what follows from the answer; `None` when the endpoint cannot be asked now.
    async fn put(&self, id: EndpointId, question: Question) -> Option<()> {
        let pick = self.room_for_probe(id).await?;
        let call = self.question(question);
        // Shorter than an attempt: that it does not answer by then is not held against it.
        let timeout = PATIENCE.min(self.config.attempt_timeout.saturating_sub(Duration::from_millis(1)));
        let reply = self.exchange(self.begun_aside(pick), &[&call], timeout, None).await.replies.pop()?;
        let said = said(question, &reply)?;
        let findings = self.probes().told(id, question, said);
        for finding in findings {
            let about = (finding.kind, finding.height);
            match finding.found {
                Found::Held => self.pool().history_shown(finding.id, about.0, about.1),
                Found::Missing { oldest } => self.pool().history_refused(finding.id, about, oldest, now()),
            }
            let (endpoint, kind) = (self.name(finding.id), finding.kind);
            tracing::debug!(%endpoint, ?kind, height = finding.height, found = ?finding.found, "history probed");
        }
        Some(())
    }

    /// Admits a probe, where the endpoint may be asked: it may wait for the budget, and for nothing else.
    async fn room_for_probe(&self, id: EndpointId) -> Option<Pick> {
        let until = now() + self.config.attempt_timeout;
        loop {
            let wait = {
                let mut pool = self.pool();
                if !pool.may_serve(id, Need::Current) {
                    return None;
                }
                match pool.begin_only(id, now()) {
                    // The probe of a breaker is for a call whose end is told.
                    Some(pick) if pick.probe => {
                        pool.abandon(pick, now());
                        return None;
                    }
                    Some(pick) => return Some(pick),
                    None => pool.room_in(id, now())?,
                }
            };
            if now() + wait >= until {
                return None;
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn question(&self, question: Question) -> Call {
        match question {
            Question::Block { height, detail } => {
                let whole = detail == Detail::Transactions;
                self.call("eth_getBlockByNumber", &format!("[\"0x{height:x}\",{whole}]"))
            }
            Question::Count { sender, height } => {
                self.call("eth_getTransactionCount", &format!("[\"{sender}\",\"0x{height:x}\"]"))
            }
            Question::Receipt { transaction, .. } => {
                self.call("eth_getTransactionReceipt", &format!("[\"{transaction}\"]"))
            }
            Question::Logs { height } => {
                let params = format!("[{{\"fromBlock\":\"0x{height:x}\",\"toBlock\":\"0x{height:x}\"}}]");
                self.call("eth_getLogs", &params)
            }
        }
    }
}

/// What a reply says to a question; `None` where the endpoint has failed, or asks us to wait.
fn said(question: Question, reply: &Reply) -> Option<Said> {
    match &reply.verdict {
        Verdict::Answer if reply.is_null() => Some(Said::Nothing),
        Verdict::Answer => {
            Some(reply.result().and_then(|result| read(question, result)).unwrap_or(Said::Unclear))
        }
        Verdict::Missing { oldest, .. } => Some(Said::Refused { oldest: *oldest }),
        // Far below its head this means that it has nothing there.
        Verdict::NotYet => Some(Said::Nothing),
        Verdict::RangeTooLarge { .. } => Some(match question {
            // It holds too many of them for one reply.
            Question::Logs { .. } => Said::There,
            Question::Block { .. } | Question::Count { .. } | Question::Receipt { .. } => Said::Unclear,
        }),
        Verdict::Reverted(_)
        | Verdict::TxRefused(_)
        | Verdict::Unsupported
        | Verdict::Invalid
        | Verdict::Unclassified => Some(Said::Unclear),
        Verdict::Fault(_) | Verdict::RateLimited { .. } | Verdict::WrongIdentity => None,
    }
}

/// What an answer says; `None` where it is not what was asked for.
fn read(question: Question, result: &str) -> Option<Said> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Block<'a> {
        number: U64,
        #[serde(default)]
        logs_bloom: Option<Bloom>,
        #[serde(borrow, default)]
        transactions: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Receipt {
        transaction_hash: B256,
        block_number: U64,
    }
    match question {
        Question::Block { height, .. } => {
            let block: Block<'_> = serde_json::from_str(result).ok()?;
            // Some chains fill the bloom of every block.
            let telling = |bloom: Bloom| bloom != Bloom::ZERO && bloom != Bloom::repeat_byte(0xff);
            let logs = if block.logs_bloom.is_some_and(telling) { Logs::Some } else { Logs::Unknown };
            let transaction = block.transactions.iter().find_map(|transaction| landmark(transaction.get()));
            (block.number.to::<u64>() == height).then_some(Said::Block(Seen { transaction, logs }))
        }
        Question::Count { .. } => {
            let count: U64 = serde_json::from_str(result).ok()?;
            Some(Said::Count(count.to()))
        }
        Question::Receipt { transaction, height } => {
            let receipt: Receipt = serde_json::from_str(result).ok()?;
            let same = receipt.transaction_hash == transaction && receipt.block_number.to::<u64>() == height;
            same.then_some(Said::There)
        }
        Question::Logs { .. } => {
            let logs: Vec<&RawValue> = serde_json::from_str(result).ok()?;
            Some(if logs.is_empty() { Said::Nothing } else { Said::There })
        }
    }
}

/// A transaction that its sender has signed, and that counts.
fn landmark(transaction: &str) -> Option<Landmark> {
    #[derive(Deserialize)]
    struct Transaction {
        hash: B256,
        from: Address,
        nonce: U64,
        #[serde(default, rename = "type")]
        of_type: U64,
        /// Zero where nobody has signed it: some chains list their own doings among the transactions.
        #[serde(default)]
        r: U256,
    }
    let Transaction { hash, from, nonce, of_type, r } = serde_json::from_str(transaction).ok()?;
    let counted = of_type.to::<u64>() <= COUNTED_TYPES && !r.is_zero() && !from.is_zero();
    counted.then(|| Landmark { hash, sender: from, nonce: nonce.to() })
}
