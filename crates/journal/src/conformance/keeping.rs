//! Lists, and what is left when records are pruned.

use std::time::{Duration, SystemTime};

use alloy_primitives::Address;
use backstay_core::{
    Delivery, Retry,
    tx::{Outcome, Record, StepId, Stop},
};

use super::{
    ACCOUNT, AGES, CHAIN, HERE, Store, append, append_on, content, fenced, finished, intent, open_intents,
    race, reload, signed, slots,
};
use crate::{IntentId, Journal, JournalError, Line, NewIntent, Query, State};

pub(super) async fn intents_are_listed_by_what_they_are(store: impl Store) {
    let journal = store.open().await;
    let before = SystemTime::now();
    let (elsewhere, other) = (Line { chain_id: CHAIN + 1, ..HERE }, Line { account: Address::ZERO, ..HERE });
    let mut ids = Vec::new();
    for key in ["due", "stopped", "again", "finished", "pruned"] {
        ids.push(journal.open(intent(key)).await.unwrap().id);
    }
    let there = journal.open(NewIntent { chain_id: elsewhere.chain_id, ..intent("there") }).await.unwrap().id;
    let others = journal.open(NewIntent { account: other.account, ..intent("others") }).await.unwrap().id;
    append(&journal, ids[0], 1, &[fenced(1), fenced(2)]).await.unwrap();
    append(&journal, ids[1], 1, &[fenced(1), stopped()]).await.unwrap();
    append(&journal, ids[2], 1, &[stopped()]).await.unwrap();
    append(&journal, ids[2], 2, &[Record::Requested]).await.unwrap();
    append(&journal, ids[4], 1, &[finished()]).await.unwrap();
    assert_eq!(
        journal.prune(CHAIN, Duration::ZERO, 9).await.unwrap(),
        2,
        "what stopped unsigned, and what finished"
    );
    let stopped_again = journal.open(intent("stopped")).await.unwrap().id;
    append(&journal, stopped_again, 1, &[fenced(1), stopped()]).await.unwrap();
    append(&journal, ids[3], 1, &[finished()]).await.unwrap();
    append_on(&journal, elsewhere, there, 1, &[stopped()]).await.unwrap();

    let check = async |query: Query, expected: &[&str]| {
        let listed = journal.list(&query).await.unwrap();
        let keys: Vec<_> = listed.iter().map(|summary| summary.key.as_str()).collect();
        assert_eq!(keys, expected, "{query:?}");
    };
    let all = ["due", "again", "finished", "pruned", "there", "others", "stopped"];
    check(Query::default(), &all).await;
    check(Query { limit: 2, ..Query::default() }, &all[..2]).await;
    check(Query { after: Some(ids[2]), ..Query::default() }, &all[2..]).await;
    check(Query { after: Some(IntentId::new(u64::MAX)), ..Query::default() }, &[]).await;
    check(Query { chain_id: Some(elsewhere.chain_id), ..Query::default() }, &["there"]).await;
    check(Query { chain_id: Some(u64::MAX), ..Query::default() }, &[]).await;
    check(Query { account: Some(other.account), ..Query::default() }, &["others"]).await;
    let keyed = |key: &str| Query { key: Some(key.to_owned()), ..Query::default() };
    check(keyed("finished"), &["finished"]).await;
    check(keyed("finish"), &[]).await;
    check(Query { chain_id: Some(CHAIN), ..keyed("there") }, &[]).await;
    check(Query { account: Some(other.account), ..keyed("others") }, &["others"]).await;
    let here = Query { chain_id: Some(CHAIN), account: Some(ACCOUNT), ..Query::default() };
    let of = |states: &[State]| Query { states: states.to_vec(), ..here.clone() };
    check(of(&[State::Due]), &["due", "again"]).await;
    check(of(&[State::Stopped]), &["stopped"]).await;
    check(of(&[State::Due, State::Stopped]), &["due", "again", "stopped"]).await;
    check(of(&[State::Finished]), &["finished"]).await;
    check(of(&[State::Pruned]), &["pruned"]).await;
    check(of(&State::ALL), &["due", "again", "finished", "pruned", "stopped"]).await;

    let [first, .., last] = &journal.list(&Query::default()).await.unwrap()[..] else {
        panic!("there are seven")
    };
    assert_eq!((first.id, first.chain_id, first.account, first.state), (ids[0], CHAIN, ACCOUNT, State::Due));
    assert_eq!((first.records, last.records), (3, 3));
    assert_eq!(others.get() + 1, stopped_again.get());
    let soon = SystemTime::now();
    for summary in [first, last] {
        assert!(summary.opened + Duration::from_millis(1) > before && summary.changed <= soon, "{summary:?}");
        assert!(summary.opened <= summary.changed);
    }
}

pub(super) async fn what_ended_long_ago_leaves_a_tombstone(store: impl Store) {
    let journal = store.open().await;
    let id = journal.open(intent("pay")).await.unwrap().id;
    let batch = [signed(StepId::Plan { round: 0, step: 0 }, 0, 1), Record::Released { nonce: 0 }];
    let planned = Record::Planned {
        flow: "f".to_owned(),
        diagnosis: "d".to_owned(),
        steps: vec![backstay_core::tx::PlanStep { label: "l".to_owned(), call: content(2), until: None }],
    };
    append(&journal, id, 1, &[planned]).await.unwrap();
    append(&journal, id, 2, &batch).await.unwrap();
    let effect = signed(StepId::Effect, 0, 2);
    let Record::Signed { attempt, .. } = &effect else { unreachable!("it signs") };
    let hash = attempt.hash;
    let Record::Signed { attempt: let_go, .. } = &batch[0] else { unreachable!("it signs") };
    append(&journal, id, 4, &[effect, finished()]).await.unwrap();
    assert_eq!(journal.prune(CHAIN + 1, Duration::ZERO, 9).await.unwrap(), 0, "of another chain");
    assert_eq!(journal.prune(CHAIN, Duration::ZERO, 9).await.unwrap(), 1);
    assert_eq!(journal.prune(CHAIN, Duration::ZERO, 9).await.unwrap(), 0);
    drop(journal);

    let journal = store.open().await;
    let stored = journal.open(intent("pay")).await.unwrap();
    assert!(!stored.created && stored.entries.is_empty());
    assert_eq!((stored.id, stored.account), (id, ACCOUNT));
    let tombstone = stored.tombstone.clone().expect("that is what is left");
    assert_eq!(tombstone.content, content(1).fingerprint());
    assert_eq!(tombstone.hashes, [let_go.hash, hash]);
    let Record::Finished { outcome } = finished() else { unreachable!("it finishes") };
    assert_eq!(tombstone.outcome, outcome);
    assert!(matches!(tombstone.outcome, Outcome::Included { .. }));
    assert_eq!(reload(&journal, "pay").await, stored);

    let refused = append(&journal, id, 0, &[fenced(1)]).await;
    assert!(matches!(refused, Err(JournalError::Finished { .. })), "{refused:?}");
    assert!(slots(&journal, HERE, 0).await.is_empty());
}

pub(super) async fn what_never_signed_leaves_nothing(store: impl Store) {
    let journal = store.open().await;
    let never = journal.open(intent("never")).await.unwrap().id;
    append(&journal, never, 1, &[fenced(1), stopped()]).await.unwrap();
    let open = journal.open(intent("open")).await.unwrap().id;
    append(&journal, open, 1, &[fenced(1)]).await.unwrap();
    let once = journal.open(intent("once")).await.unwrap().id;
    append(&journal, once, 1, &[signed(StepId::Effect, 0, 1), stopped()]).await.unwrap();
    let refused = journal.open(intent("refused")).await.unwrap().id;
    let released = [signed(StepId::Effect, 1, 1), Record::Released { nonce: 1 }, stopped()];
    append(&journal, refused, 1, &released).await.unwrap();

    assert_eq!(journal.prune(CHAIN, Duration::ZERO, 9).await.unwrap(), 1);
    assert_eq!(journal.load(CHAIN, "never").await.unwrap(), None);
    let keys: Vec<_> = open_intents(&journal).await.into_iter().map(|stored| stored.key).collect();
    assert_eq!(keys, ["open", "once", "refused"], "what is due, and whatever was signed once, stays");
    let again = journal.open(NewIntent { content: content(2), ..intent("never") }).await.unwrap();
    assert!(again.created && again.id > refused, "its key is free, its number is not");
}

pub(super) async fn pruning_goes_by_age_and_limit(store: impl Store) {
    let journal = store.open().await;
    for key in ["a", "b", "c"] {
        let id = journal.open(intent(key)).await.unwrap().id;
        append(&journal, id, 1, &[finished()]).await.unwrap();
    }
    assert_eq!(journal.prune(CHAIN, AGES, 9).await.unwrap(), 0, "none is that old");
    assert_eq!(journal.prune(CHAIN, Duration::MAX, 9).await.unwrap(), 0, "nor that");
    assert_eq!(journal.prune(CHAIN, Duration::ZERO, 2).await.unwrap(), 2);
    assert!(reload(&journal, "c").await.tombstone.is_none(), "the oldest go first");
    assert_eq!(journal.prune(CHAIN, Duration::ZERO, 2).await.unwrap(), 1);
    assert_eq!(journal.prune(u64::MAX, Duration::ZERO, 2).await.unwrap(), 0);
}

pub(super) async fn a_pruned_nonce_stays_accounted_for(store: impl Store) {
    let journal = store.open().await;
    for (key, nonce) in [("first", 6), ("second", 5)] {
        let id = journal.open(intent(key)).await.unwrap().id;
        append(&journal, id, 1, &[signed(StepId::Effect, nonce, 1), finished()]).await.unwrap();
    }
    assert_eq!(journal.prune(CHAIN, Duration::ZERO, 9).await.unwrap(), 2);
    let line = journal.line(HERE, 0).await.unwrap();
    assert!(line.slots.is_empty());
    assert_eq!(line.accounted, Some(7));
}

pub(super) async fn those_that_prune_at_once_do_not_wait_for_each_other(store: impl Store) {
    const EACH: u64 = 24;
    let journal = store.open().await;
    let (one, other) = (HERE, Line { account: Address::ZERO, ..HERE });
    // The first half ends with the account that the second begins with, and the second with that of the first.
    let lines = [vec![one; EACH as usize - 1], vec![other; EACH as usize], vec![one]].concat();
    for (nonce, line) in (0..).zip(lines) {
        let new = NewIntent { account: line.account, ..intent(&format!("intent {nonce}")) };
        let id = journal.open(new).await.unwrap().id;
        append_on(&journal, line, id, 1, &[signed(StepId::Effect, nonce, 1), finished()]).await.unwrap();
    }
    race(&store, 2, |journal, _| async move {
        journal.prune(CHAIN, Duration::ZERO, EACH as u32).await.unwrap();
    })
    .await;
    while journal.prune(CHAIN, Duration::ZERO, EACH as u32).await.unwrap() > 0 {}
    for (line, accounted) in [(one, 2 * EACH), (other, 2 * EACH - 1)] {
        assert_eq!(journal.line(line, 0).await.unwrap().accounted, Some(accounted));
    }
}

fn stopped() -> Record {
    Record::Stopped {
        stop: Stop { why: "no funds".to_owned(), retry: Retry::Later, delivery: Delivery::NotSent },
    }
}
