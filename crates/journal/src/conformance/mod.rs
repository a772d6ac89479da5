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
mod claims;
mod keeping;
mod opening;
mod slots;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use async_trait::async_trait;
use backstay_core::{
    BlockRef,
    tx::{Attempt, Content, Inclusion, Outcome, Record, StepId},
};
use tokio::task::JoinSet;

use crate::{
    Author, Claim, Claiming, IntentId, Journal, JournalError, Line, NewIntent, Owner, Query, State, Stored,
};

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
    opening::keys_that_not_every_store_takes_are_refused(make().await).await;
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
    slots::what_is_signed_or_lost_is_accounted_for(make().await).await;

    claims::a_line_has_one_owner(make().await).await;
    claims::of_owners_that_race_one_gets_the_line(make().await).await;
    claims::a_claim_that_ended_is_taken_over_with_a_higher_token(make().await).await;
    claims::who_holds_a_line_extends_its_claim(make().await).await;
    claims::a_stale_owner_is_refused(make().await).await;
    claims::a_stale_owner_that_races_with_the_take_over_is_refused(make().await).await;
    claims::without_a_claim_only_wishes_are_taken(make().await).await;

    keeping::intents_are_listed_by_what_they_are(make().await).await;
    keeping::what_ended_long_ago_leaves_a_tombstone(make().await).await;
    keeping::what_never_signed_leaves_nothing(make().await).await;
    keeping::pruning_goes_by_age_and_limit(make().await).await;
    keeping::a_pruned_nonce_stays_accounted_for(make().await).await;
    keeping::those_that_prune_at_once_do_not_wait_for_each_other(make().await).await;
}

const CHAIN: u64 = 31337;
const ACCOUNT: Address = Address::repeat_byte(0xa1);

const HERE: Line = Line { chain_id: CHAIN, account: ACCOUNT };
/// Long enough for a check.
const AGES: Duration = Duration::from_secs(3600);

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

/// Appends as the one owner of all lines.
async fn append(
    journal: &impl Journal,
    intent: IntentId,
    after: u64,
    records: &[Record],
) -> Result<(), JournalError> {
    append_on(journal, HERE, intent, after, records).await
}

async fn append_on(
    journal: &impl Journal,
    line: Line,
    intent: IntentId,
    after: u64,
    records: &[Record],
) -> Result<(), JournalError> {
    let claim = held(journal.claim(line, &Owner::new("owner"), AGES).await.unwrap());
    journal.append(Author::Owner(claim), intent, after, records).await
}

#[track_caller]
fn held(claiming: Claiming) -> Claim {
    match claiming {
        Claiming::Held(claim) => claim,
        Claiming::Elsewhere { .. } => panic!("{claiming:?}"),
    }
}

/// The intents that have not ended.
async fn open_intents(journal: &impl Journal) -> Vec<Stored> {
    let states = vec![State::Due, State::Stopped];
    let query = Query { chain_id: Some(CHAIN), states, ..Query::default() };
    let mut open = Vec::new();
    for listed in journal.list(&query).await.unwrap() {
        open.push(reload(journal, &listed.key).await);
    }
    open
}

async fn slots(journal: &impl Journal, line: Line, from: u64) -> BTreeMap<u64, String> {
    journal.line(line, from).await.unwrap().slots
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
