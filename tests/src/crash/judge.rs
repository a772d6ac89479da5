//! What must hold when the process has come to its end: read from the chain, the endpoints' records, and the journal.

use std::collections::{BTreeMap, BTreeSet};

use alloy::{
    consensus::{Transaction as _, TxEnvelope, transaction::SignerRecoverable as _},
    eips::Decodable2718 as _,
    primitives::{Address, TxHash, U64, U256},
};
use backstay::{
    Inclusion,
    journal::{Line, Query, State},
};
use backstay_testkit::{Anvil, Fleet, Mark, sample::Deployment};
use serde_json::{Value, json};

use super::child::{Store, Told};
use crate::story::CHAIN_ID;

/// What a run is held against.
pub(super) struct Truth<'a> {
    pub(super) chain: &'a Anvil,
    pub(super) contracts: &'a Deployment,
    pub(super) fleet: &'a Fleet,
    pub(super) store: &'a Store,
    /// The account.
    pub(super) owner: Address,
    /// Whom a wei was to be paid.
    pub(super) payee: Option<Address>,
    /// Where the fleet's records of each life begin.
    pub(super) lives: &'a [Mark],
}

impl Truth<'_> {
    /// What does not hold.
    ///
    /// # Errors
    ///
    /// When the chain or the journal cannot be read.
    pub(super) async fn problems(&self, told: &Told) -> anyhow::Result<Vec<String>> {
        let mut problems = Vec::new();
        let mut hold = |holds: bool, problem: &dyn Fn() -> String| {
            if !holds {
                problems.push(problem());
            }
        };
        let approves = self.contracts.approvals(self.chain, self.owner).await?;
        hold(approves == 1, &|| format!("{approves} approves were mined"));
        let registrations = self.contracts.registrations(self.chain, self.owner).await?;
        hold(registrations == 1, &|| format!("{registrations} registrations were mined"));
        if let Some(payee) = self.payee {
            let balance = self.chain.rpc("eth_getBalance", json!([payee, "latest"])).await?;
            let balance: U256 = serde_json::from_value(balance)?;
            hold(balance == U256::ONE, &|| format!("the payee has {balance} wei"));
        }

        let due = 2 + u64::from(self.payee.is_some());
        let (mined, pending) = (self.count("latest").await?, self.count("pending").await?);
        hold(mined == due, &|| format!("the chain has {mined} transactions of the account, not {due}"));
        hold(pending == mined, &|| format!("{} transactions are pending", pending - mined.min(pending)));
        let pool = self.pool().await?;
        hold(pool.is_empty(), &|| format!("the pool holds nonces {}", pool.join(", ")));

        let mut kept = BTreeSet::new();
        for (nonce, hashes) in self.signed() {
            hold(hashes.len() == 1, &|| format!("nonce {nonce} was signed for {} times", hashes.len()));
            kept.extend(hashes);
        }
        for hash in &kept {
            let receipt = self.receipt(*hash).await?;
            hold(!receipt.is_null(), &|| format!("{hash} was sent, and is in no block"));
        }
        for (life, hash) in self.sent_unseen() {
            hold(false, &|| format!("life {life} sent {hash} again before it looked for its receipt"));
        }
        let handles = [("registration", told.inclusion), ("payment", told.payment)];
        for (what, inclusion) in handles.into_iter().take(1 + usize::from(self.payee.is_some())) {
            let Some(inclusion) = inclusion else {
                hold(false, &|| format!("the handle of the {what} has no outcome"));
                continue;
            };
            let shown = self.shows(&inclusion).await?;
            hold(shown, &|| format!("the {what} is not where its handle says: {inclusion:?}"));
            hold(kept.contains(&inclusion.hash), &|| format!("nobody was seen to send the {what}"));
        }

        let journal = self.store.open().await?;
        let line = journal.line(Line { chain_id: CHAIN_ID, account: self.owner }, mined).await?;
        hold(line.slots.is_empty(), &|| format!("nonces {:?} are reserved and open", line.slots.keys()));
        let unfinished = Query { states: vec![State::Due, State::Stopped], ..Query::default() };
        let keys: Vec<_> = journal.list(&unfinished).await?.into_iter().map(|intent| intent.key).collect();
        hold(keys.is_empty(), &|| format!("intents are unfinished: {}", keys.join(", ")));
        Ok(problems)
    }

    async fn count(&self, block: &str) -> anyhow::Result<u64> {
        let count = self.chain.rpc("eth_getTransactionCount", json!([self.owner, block])).await?;
        Ok(serde_json::from_value::<U64>(count)?.to())
    }

    /// The nonces of the account that the chain's pool holds, also those that wait for others.
    async fn pool(&self) -> anyhow::Result<Vec<String>> {
        let pool = self.chain.rpc("txpool_content", json!([])).await?;
        let of_owner = |part: &str| {
            let accounts = pool.get(part).and_then(Value::as_object);
            let ours = accounts
                .into_iter()
                .flatten()
                .filter(|(account, _)| account.parse::<Address>().is_ok_and(|account| account == self.owner));
            ours.filter_map(|(_, nonces)| nonces.as_object())
                .flat_map(|nonces| nonces.keys().cloned())
                .collect::<Vec<_>>()
        };
        Ok([of_owner("pending"), of_owner("queued")].concat())
    }

    /// What was sent to any endpoint for the account: by nonce, the hashes.
    fn signed(&self) -> BTreeMap<u64, BTreeSet<TxHash>> {
        let mut signed: BTreeMap<u64, BTreeSet<TxHash>> = BTreeMap::new();
        let calls = self.fleet.records().into_iter();
        for raw in calls.filter_map(|call| call.raw_tx) {
            let Ok(transaction) = TxEnvelope::decode_2718(&mut raw.as_ref()) else { continue };
            if transaction.recover_signer().is_ok_and(|signer| signer == self.owner) {
                signed.entry(transaction.nonce()).or_default().insert(*transaction.tx_hash());
            }
        }
        signed
    }

    /// What a life sent that an earlier one had sent, and for whose receipt it had not asked.
    fn sent_unseen(&self) -> Vec<(usize, TxHash)> {
        let (mut sent, mut unseen) = (BTreeSet::new(), Vec::new());
        for (index, life) in self.lives.iter().enumerate() {
            let mut calls = self.fleet.records_since(*life);
            if let Some(next) = self.lives.get(index + 1) {
                calls.truncate(calls.len() - self.fleet.records_since(*next).len());
            }
            let mut looked = BTreeSet::new();
            for call in calls {
                if call.method == "eth_getTransactionReceipt" {
                    looked.extend(call.params[0].as_str().and_then(|hash| hash.parse::<TxHash>().ok()));
                }
                let Some(hash) = call.tx_hash() else { continue };
                // From then on this life knows that it has sent it.
                if sent.contains(&hash) && looked.insert(hash) {
                    unseen.push((index + 1, hash));
                }
                sent.insert(hash);
                looked.insert(hash);
            }
        }
        unseen
    }

    async fn receipt(&self, hash: TxHash) -> anyhow::Result<Value> {
        Ok(self.chain.rpc("eth_getTransactionReceipt", json!([hash])).await?)
    }

    /// Whether the chain has a transaction where a handle says that it is.
    async fn shows(&self, inclusion: &Inclusion) -> anyhow::Result<bool> {
        let receipt = self.receipt(inclusion.hash).await?;
        let block = receipt["blockHash"].as_str().and_then(|hash| hash.parse().ok());
        Ok(block == Some(inclusion.block.hash) && receipt["status"] == "0x1" && inclusion.succeeded)
    }
}
