//! Opening intents and stores.

use std::time::{Duration, SystemTime};

use alloy_primitives::{Address, B256, U256, hex, keccak256};
use backstay_core::tx::{Grant, Record};

use super::{
    ACCOUNT, CHAIN, HERE, Store, append, append_on, content, fenced, finished, intent, open_intents, race,
    records, reload, signed, slots,
};
use crate::{Journal, JournalError, Line, NewIntent, Query};

pub(super) async fn an_intent_is_opened_once(store: impl Store) {
    let journal = store.open().await;
    let grant =
        Grant { token: Address::repeat_byte(1), spender: Address::repeat_byte(2), cap: U256::from(100) };
    let before = SystemTime::now();

    let first = journal.open(NewIntent { grants: vec![grant], ..intent("pay-1") }).await.unwrap();
    assert!(first.created);
    assert_eq!((first.chain_id, first.key.as_str()), (CHAIN, "pay-1"));
    let opened = Record::Opened { account: ACCOUNT, content: content(1) };
    assert_eq!(records(&first), [opened, Record::Granted { grants: vec![grant] }]);
    for entry in &first.entries {
        // Times are in whole milliseconds.
        assert!(entry.at + Duration::from_millis(1) > before && entry.at <= SystemTime::now());
    }

    // Other content under the same key changes nothing: the caller compares.
    let again = journal.open(NewIntent { content: content(2), ..intent("pay-1") }).await.unwrap();
    assert!(!again.created);
    assert_eq!((again.id, &again.entries), (first.id, &first.entries));
    assert_eq!(reload(&journal, "pay-1").await, again);

    let other = journal.open(intent("pay-2")).await.unwrap();
    assert!(other.created);
    assert_ne!(other.id, first.id);
    assert_eq!(other.seen(), 1, "without grants only `Opened` is written");
}

pub(super) async fn of_callers_that_race_one_creates(store: impl Store) {
    let opened = race(&store, 16, |journal, i| async move {
        journal.open(NewIntent { content: content(i as u64), ..intent("race") }).await.unwrap()
    })
    .await;
    assert_eq!(opened.iter().filter(|stored| stored.created).count(), 1);
    for stored in &opened {
        assert_eq!((stored.id, &stored.entries), (opened[0].id, &opened[0].entries));
    }
}

pub(super) async fn a_key_belongs_to_its_chain(store: impl Store) {
    let journal = store.open().await;
    let here = journal.open(intent("pay")).await.unwrap();
    let there = journal.open(NewIntent { chain_id: CHAIN + 1, ..intent("pay") }).await.unwrap();
    assert!(here.created && there.created);
    assert_ne!(here.id, there.id);
    assert_eq!(there.chain_id, CHAIN + 1);

    append_on(&journal, Line { chain_id: CHAIN + 1, ..HERE }, there.id, 1, &[fenced(1)]).await.unwrap();
    assert_eq!(reload(&journal, "pay").await.seen(), 1);
    assert_eq!(journal.load(CHAIN + 1, "pay").await.unwrap().unwrap().seen(), 2);
}

pub(super) async fn keys_are_any_text(store: impl Store) {
    let journal = store.open().await;
    let long = "k".repeat(1_000);
    for key in ["", " ", "'; DROP TABLE intents; --", "a\nb", "Zahlung-ä-支払い-💸", "PAY", "pay", &long]
    {
        assert!(journal.open(intent(key)).await.unwrap().created, "{key:?}");
        assert_eq!(reload(&journal, key).await.key, key);
    }
}

pub(super) async fn keys_that_not_every_store_takes_are_refused(store: impl Store) {
    let journal = store.open().await;
    // Not of one letter alone: what can be compressed is shorter in an index.
    let long: String = (0..1_400_u64).map(|part| hex::encode(&keccak256(part.to_be_bytes())[..1])).collect();
    let check = async |key: &str| {
        let opened = journal.open(intent(key)).await;
        assert!(matches!(opened, Err(JournalError::BadKey { .. })), "{opened:?}");
        assert_eq!(journal.load(CHAIN, key).await.unwrap(), None);
        let query = Query { key: Some(key.to_owned()), ..Query::default() };
        assert_eq!(journal.list(&query).await.unwrap(), []);
    };
    check("a\0b").await;
    check(&long).await;
    check(&long[..1_025]).await;
    assert!(journal.open(intent(&long[..1_024])).await.unwrap().created);
}

pub(super) async fn what_was_never_opened_is_not_there(store: impl Store) {
    let journal = store.open().await;
    assert_eq!(journal.load(CHAIN, "never").await.unwrap(), None);
    assert_eq!(journal.load(u64::MAX, "never").await.unwrap(), None);
    assert_eq!(open_intents(&journal).await, []);
    assert!(slots(&journal, HERE, 0).await.is_empty());
    assert!(slots(&journal, HERE, u64::MAX).await.is_empty());
    assert_eq!(journal.genesis(CHAIN).await.unwrap(), None);
}

pub(super) async fn a_store_that_is_opened_again_has_everything(store: impl Store) {
    let step = backstay_core::tx::StepId::Effect;
    let journal = store.open().await;
    let open = journal.open(intent("open")).await.unwrap();
    append(&journal, open.id, 1, &[fenced(1), signed(step, 4, 1)]).await.unwrap();
    let done = journal.open(intent("done")).await.unwrap();
    append(&journal, done.id, 1, &[signed(step, 5, 2), finished()]).await.unwrap();
    journal.record_genesis(CHAIN, B256::repeat_byte(9)).await.unwrap();
    let (open, done) = (reload(&journal, "open").await, reload(&journal, "done").await);
    drop(journal);

    let journal = store.open().await;
    assert_eq!(reload(&journal, "open").await, open);
    assert_eq!(reload(&journal, "done").await, done);
    assert_eq!(open_intents(&journal).await, std::slice::from_ref(&open));
    let slots = slots(&journal, HERE, 0).await;
    assert_eq!(slots, [(4, "open".to_owned()), (5, "done".to_owned())].into());
    assert_eq!(journal.genesis(CHAIN).await.unwrap(), Some(B256::repeat_byte(9)));

    assert!(!journal.open(intent("open")).await.unwrap().created);
    append(&journal, open.id, open.seen(), &[fenced(2)]).await.unwrap();
    let refused = append(&journal, done.id, done.seen(), &[fenced(2)]).await;
    assert!(matches!(refused, Err(JournalError::Finished { .. })), "{refused:?}");
    assert!(journal.open(intent("new")).await.unwrap().id > done.id, "ids are not used again");
}

pub(super) async fn the_first_genesis_counts(store: impl Store) {
    let recorded = race(&store, 8, |journal, i| async move {
        journal.record_genesis(CHAIN, B256::repeat_byte(i as u8)).await.unwrap()
    })
    .await;
    assert!(recorded.iter().all(|hash| *hash == recorded[0]), "{recorded:?}");

    let journal = store.open().await;
    assert_eq!(journal.record_genesis(CHAIN, B256::repeat_byte(0xff)).await.unwrap(), recorded[0]);
    assert_eq!(journal.genesis(CHAIN).await.unwrap(), Some(recorded[0]));
    assert_eq!(journal.genesis(CHAIN + 1).await.unwrap(), None);
    let other = B256::repeat_byte(0xee);
    assert_eq!(journal.record_genesis(CHAIN + 1, other).await.unwrap(), other);
}

pub(super) async fn numbers_out_of_range_are_refused(store: impl Store) {
    const FIRST: u64 = i64::MAX as u64 + 1;
    let journal = store.open().await;

    let opened = journal.open(NewIntent { chain_id: FIRST, ..intent("far") }).await;
    assert!(matches!(opened, Err(JournalError::OutOfRange { value: FIRST, .. })), "{opened:?}");
    let recorded = journal.record_genesis(FIRST, B256::ZERO).await;
    assert!(matches!(recorded, Err(JournalError::OutOfRange { value: FIRST, .. })), "{recorded:?}");

    let stored = journal.open(intent("near")).await.unwrap();
    let step = backstay_core::tx::StepId::Effect;
    for record in [signed(step, FIRST, 1), Record::Released { nonce: FIRST }] {
        let appended = append(&journal, stored.id, 1, &[fenced(1), record]).await;
        assert!(matches!(appended, Err(JournalError::OutOfRange { value: FIRST, .. })), "{appended:?}");
        assert_eq!(reload(&journal, "near").await.seen(), 1, "nothing is written");
    }

    let line = Line { chain_id: FIRST - 1, ..HERE };
    let last = NewIntent { chain_id: FIRST - 1, ..intent("last") };
    let stored = journal.open(last).await.unwrap();
    append_on(&journal, line, stored.id, 1, &[signed(step, FIRST - 1, 1)]).await.unwrap();
    let slots = slots(&journal, line, 0).await;
    assert_eq!(slots, [(FIRST - 1, "last".to_owned())].into());
}
