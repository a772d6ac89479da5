//! What every journal must do.
//!
//! A backend proves itself by running [`run`] in its tests, on stores of its own:
//!
//! ```
//! use async_trait::async_trait;
//! use backstay_journal::{
//!     MemoryJournal,
//!     conformance::{self, Store},
//! };
//!
//! struct Memory(MemoryJournal);
//!
//! #[async_trait]
//! impl Store for Memory {
//!     type Journal = MemoryJournal;
//!
//!     async fn open(&self) -> MemoryJournal {
//!         self.0.clone()
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() {
//!     conformance::run(async || Memory(MemoryJournal::new())).await;
//! }
//! ```
//!
//! The checks panic where a journal fails them, as tests do; the line of the panic says what it failed.
//! Checks of races spawn tasks: on a multi-threaded runtime they test more.

mod appending;
mod opening;
mod slots;

use std::sync::Arc;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use async_trait::async_trait;
use backstay_core::{
    BlockRef,
    tx::{Attempt, Content, Inclusion, Outcome, Record, StepId},
};
use tokio::task::JoinSet;

use crate::{Journal, NewIntent, Stored};

/// A store that a check has to itself.
#[async_trait]
pub trait Store: Send + Sync {
    /// Its kind of journal.
    type Journal: Journal;

    /// Opens the store once more. Journals that are open on it stay so; what is written through one is seen
    /// through all, and by those opened after all were dropped.
    async fn open(&self) -> Self::Journal;
}

/// Runs every check, each on a store that `make` has made for it alone.
///
/// # Panics
///
/// At the first check that the journal fails.
pub async fn run<S: Store>(make: impl AsyncFn() -> S) {
    opening::an_intent_is_opened_once(make().await).await;
    opening::of_callers_that_race_one_creates(make().await).await;
    opening::a_key_belongs_to_its_chain(make().await).await;
    opening::keys_are_any_text(make().await).await;
    opening::what_was_never_opened_is_not_there(make().await).await;
    opening::a_store_that_is_opened_again_has_everything(make().await).await;
    opening::the_first_genesis_counts(make().await).await;
    opening::numbers_out_of_range_are_refused(make().await).await;

    appending::records_come_back_as_they_were(make().await).await;
    appending::every_kind_of_record_is_kept(make().await).await;
    appending::who_has_not_seen_everything_is_refused(make().await).await;
    appending::of_appends_that_race_one_is_written(make().await).await;
    appending::a_finished_intent_is_closed(make().await).await;
    appending::nothing_follows_the_end_in_one_append(make().await).await;
    appending::unfinished_intents_come_in_the_order_of_their_opening(make().await).await;
    appending::an_intent_that_is_not_there_is_refused(make().await).await;
    appending::a_dropped_append_is_written_entirely_or_not_at_all(make().await).await;

    slots::a_nonce_belongs_to_one_intent(make().await).await;
    slots::of_signers_that_race_one_gets_the_nonce(make().await).await;
    slots::a_step_may_sign_its_nonce_again(make().await).await;
    slots::another_step_may_not_sign_it(make().await).await;
    slots::lines_of_other_accounts_and_chains_are_apart(make().await).await;
    slots::a_released_nonce_is_free(make().await).await;
    slots::only_the_holder_releases(make().await).await;
    slots::finishing_keeps_the_nonces(make().await).await;
    slots::one_append_may_take_and_release(make().await).await;
}

const CHAIN: u64 = 31337;
const ACCOUNT: Address = Address::repeat_byte(0xa1);

/// An intent of [`ACCOUNT`] on [`CHAIN`].
fn intent(key: &str) -> NewIntent {
    NewIntent { chain_id: CHAIN, key: key.to_owned(), account: ACCOUNT, content: content(1), grants: vec![] }
}

fn content(value: u64) -> Content {
    Content {
        to: Address::repeat_byte(0xc0),
        value: U256::from(value),
        input: Bytes::from_static(&[0xde, 0xad, 0xbe, 0xef]),
    }
}

fn block(number: u64) -> BlockRef {
    BlockRef { number, hash: keccak256(number.to_be_bytes()) }
}

fn fenced(number: u64) -> Record {
    Record::Fenced { block: block(number) }
}

/// A signed transaction at a nonce; `version` tells attempts at one nonce apart.
fn signed(step: StepId, nonce: u64, version: u8) -> Record {
    let raw = Bytes::from(vec![version; 120]);
    let attempt = Attempt {
        nonce,
        unused_at: 0,
        hash: keccak256(&raw),
        raw,
        gas_limit: 21_000,
        max_fee_per_gas: version.into(),
    };
    Record::Signed { step, attempt }
}

fn finished() -> Record {
    let inclusion =
        Inclusion { hash: B256::repeat_byte(7), block: block(9), succeeded: true, gas_used: 21_000 };
    Record::Finished { outcome: Outcome::Included { inclusion, corroborated: true } }
}

async fn reload(journal: &impl Journal, key: &str) -> Stored {
    journal.load(CHAIN, key).await.unwrap().expect("it was opened")
}

fn records(stored: &Stored) -> Vec<Record> {
    stored.records().cloned().collect()
}

/// Runs a task for each number below `tasks`, all at once, half of them through a second handle.
async fn race<S, T, F>(store: &S, tasks: usize, task: impl Fn(Arc<S::Journal>, usize) -> F) -> Vec<T>
where
    S: Store,
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let handles = [Arc::new(store.open().await), Arc::new(store.open().await)];
    let mut set = JoinSet::new();
    for i in 0..tasks {
        set.spawn(task(Arc::clone(&handles[i % 2]), i));
    }
    set.join_all().await
}
