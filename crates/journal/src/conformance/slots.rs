//! The nonces that are signed for.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256};
use backstay_core::tx::{Record, StepId};

use super::{
    CHAIN, HERE, Store, append, append_on, fenced, finished, intent, race, records, reload, signed, slots,
};
use crate::{Journal, JournalError, Line, LineState, NewIntent};

const APPROVE: StepId = StepId::Plan { round: 0, step: 0 };

pub(super) async fn a_nonce_belongs_to_one_intent(store: impl Store) {
    let journal = store.open().await;
    let first = journal.open(intent("first")).await.unwrap().id;
    let second = journal.open(intent("second")).await.unwrap().id;
    append(&journal, first, 1, &[signed(StepId::Effect, 7, 1)]).await.unwrap();

    let batch = [fenced(1), signed(StepId::Effect, 6, 2), signed(StepId::Effect, 7, 2)];
    assert_taken(append(&journal, second, 1, &batch).await, 7, "first");
    assert_eq!(reload(&journal, "second").await.seen(), 1, "nothing is written");
    assert_eq!(held(&journal, 0).await, [(7, "first")].map(owned).into());

    append(&journal, second, 1, &[signed(StepId::Effect, 8, 2)]).await.unwrap();
    assert_eq!(held(&journal, 0).await, [(7, "first"), (8, "second")].map(owned).into());
    assert_eq!(held(&journal, 8).await, [(8, "second")].map(owned).into());
    assert!(held(&journal, 9).await.is_empty());
}

pub(super) async fn of_signers_that_race_one_gets_the_nonce(store: impl Store) {
    let outcomes = race(&store, 16, |journal, i| async move {
        let key = format!("race-{i}");
        let stored = journal.open(intent(&key)).await.unwrap();
        match append(journal.as_ref(), stored.id, 1, &[signed(StepId::Effect, 0, i as u8)]).await {
            Ok(()) => Ok(key),
            Err(JournalError::SlotTaken { nonce: 0, key: holder }) => Err(holder),
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    let winners: Vec<_> = outcomes.iter().flatten().collect();
    assert_eq!(winners.len(), 1, "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().unwrap_or_else(|holder| holder) == winners[0]));
    assert_eq!(held(&store.open().await, 0).await, [(0, winners[0].clone())].into());
}

pub(super) async fn a_step_may_sign_its_nonce_again(store: impl Store) {
    let journal = store.open().await;
    let id = journal.open(intent("bump")).await.unwrap().id;
    let attempts = [signed(StepId::Effect, 0, 1), signed(StepId::Effect, 0, 2), signed(StepId::Effect, 0, 3)];
    append(&journal, id, 1, &attempts[..2]).await.unwrap();
    append(&journal, id, 3, &attempts[2..]).await.unwrap();
    assert_eq!(records(&reload(&journal, "bump").await)[1..], attempts);
    assert_eq!(held(&journal, 0).await, [(0, "bump")].map(owned).into());
}

pub(super) async fn another_step_may_not_sign_it(store: impl Store) {
    let journal = store.open().await;
    let id = journal.open(intent("steps")).await.unwrap().id;
    append(&journal, id, 1, &[signed(APPROVE, 0, 1)]).await.unwrap();
    let others = [StepId::Effect, StepId::Plan { round: 0, step: 1 }, StepId::Plan { round: 1, step: 0 }];
    for other in others {
        assert_taken(append(&journal, id, 2, &[signed(other, 0, 2)]).await, 0, "steps");
    }
    let both = [signed(StepId::Effect, 1, 2), signed(APPROVE, 1, 3)];
    assert_taken(append(&journal, id, 2, &both).await, 1, "steps");
    assert_eq!(reload(&journal, "steps").await.seen(), 2);
    append(&journal, id, 2, &[signed(StepId::Effect, 1, 2)]).await.unwrap();
}

pub(super) async fn lines_of_other_accounts_and_chains_are_apart(store: impl Store) {
    let journal = store.open().await;
    let other = Address::repeat_byte(0xb2);
    let intents = [
        intent("here"),
        NewIntent { account: other, ..intent("other account") },
        NewIntent { chain_id: CHAIN + 1, ..intent("other chain") },
    ];
    let lines = [HERE, Line { account: other, ..HERE }, Line { chain_id: CHAIN + 1, ..HERE }];
    for (intent, line) in intents.into_iter().zip(lines) {
        let id = journal.open(intent).await.unwrap().id;
        append_on(&journal, line, id, 1, &[signed(StepId::Effect, 0, 1)]).await.unwrap();
    }
    assert_eq!(slots(&journal, HERE, 0).await, [(0, "here")].map(owned).into());
    assert_eq!(slots(&journal, lines[1], 0).await, [(0, "other account")].map(owned).into());
    assert_eq!(slots(&journal, lines[2], 0).await, [(0, "other chain")].map(owned).into());
    let nobody = Line { chain_id: CHAIN + 1, account: other };
    assert_eq!(journal.line(nobody, 0).await.unwrap(), LineState::default());
}

pub(super) async fn a_released_nonce_is_free(store: impl Store) {
    let journal = store.open().await;
    let first = journal.open(intent("first")).await.unwrap().id;
    append(&journal, first, 1, &[signed(StepId::Effect, 3, 1)]).await.unwrap();
    append(&journal, first, 2, &[Record::Released { nonce: 3 }]).await.unwrap();
    assert!(held(&journal, 0).await.is_empty());
    let again = append(&journal, first, 3, &[Record::Released { nonce: 3 }]).await;
    assert!(matches!(again, Err(JournalError::SlotNotHeld { nonce: 3 })), "{again:?}");

    let second = journal.open(intent("second")).await.unwrap().id;
    append(&journal, second, 1, &[signed(APPROVE, 3, 2)]).await.unwrap();
    assert_eq!(held(&journal, 0).await, [(3, "second")].map(owned).into());
    assert_taken(append(&journal, first, 3, &[signed(StepId::Effect, 3, 1)]).await, 3, "second");
}

pub(super) async fn only_the_holder_releases(store: impl Store) {
    let journal = store.open().await;
    let holder = journal.open(intent("holder")).await.unwrap().id;
    let other = journal.open(intent("other")).await.unwrap().id;
    append(&journal, holder, 1, &[signed(StepId::Effect, 0, 1)]).await.unwrap();
    for nonce in [0, 1] {
        let refused = append(&journal, other, 1, &[fenced(1), Record::Released { nonce }]).await;
        let Err(JournalError::SlotNotHeld { nonce: said }) = refused else { panic!("{refused:?}") };
        assert_eq!(said, nonce);
    }
    assert_eq!(reload(&journal, "other").await.seen(), 1, "nothing is written");
    assert_eq!(held(&journal, 0).await, [(0, "holder")].map(owned).into());
}

pub(super) async fn finishing_keeps_the_nonces(store: impl Store) {
    let journal = store.open().await;
    let done = journal.open(intent("done")).await.unwrap().id;
    append(&journal, done, 1, &[signed(StepId::Effect, 0, 1), finished()]).await.unwrap();
    assert_eq!(held(&journal, 0).await, [(0, "done")].map(owned).into());
    let next = journal.open(intent("next")).await.unwrap().id;
    assert_taken(append(&journal, next, 1, &[signed(StepId::Effect, 0, 2)]).await, 0, "done");

    append(&journal, next, 1, &[signed(StepId::Effect, 1, 2)]).await.unwrap();
    let line = journal.line(HERE, 0).await.unwrap();
    assert_eq!(line.used, Some(1), "that of the finished one; the other may not be");
    assert_eq!(journal.line(HERE, 1).await.unwrap().used, None);
    append(&journal, next, 2, &[finished()]).await.unwrap();
    assert_eq!(journal.line(HERE, 0).await.unwrap().used, Some(2));
}

pub(super) async fn one_append_may_take_and_release(store: impl Store) {
    let journal = store.open().await;
    let id = journal.open(intent("both")).await.unwrap().id;
    let release = Record::Released { nonce: 0 };
    let batch = [signed(APPROVE, 0, 1), release.clone(), signed(StepId::Effect, 0, 2)];
    append(&journal, id, 1, &batch).await.unwrap();
    assert_taken(append(&journal, id, 4, &[signed(APPROVE, 0, 1)]).await, 0, "both");
    let refused = append(&journal, id, 4, &[release.clone(), release]).await;
    assert!(matches!(refused, Err(JournalError::SlotNotHeld { nonce: 0 })), "{refused:?}");
    assert_eq!(held(&journal, 0).await, [(0, "both")].map(owned).into(), "nothing is released either");
}

async fn held(journal: &impl Journal, from: u64) -> BTreeMap<u64, String> {
    slots(journal, HERE, from).await
}

fn owned((nonce, key): (u64, &str)) -> (u64, String) {
    (nonce, key.to_owned())
}

#[track_caller]
fn assert_taken(refused: Result<(), JournalError>, nonce: u64, holder: &str) {
    let Err(JournalError::SlotTaken { nonce: said, key }) = refused else { panic!("{refused:?}") };
    assert_eq!((said, key.as_str()), (nonce, holder));
}

pub(super) async fn what_is_signed_or_lost_is_accounted_for(store: impl Store) {
    let journal = store.open().await;
    let id = journal.open(intent("line")).await.unwrap().id;
    assert_eq!(accounted(&journal).await, None);
    append(&journal, id, 1, &[signed(StepId::Effect, 7, 1)]).await.unwrap();
    assert_eq!(accounted(&journal).await, Some(8));
    append(&journal, id, 2, &[Record::Released { nonce: 7 }]).await.unwrap();
    assert_eq!(accounted(&journal).await, None, "it is as free as it was");

    append(&journal, id, 3, &[signed(StepId::Effect, 8, 2)]).await.unwrap();
    let lost = Record::Displaced { nonce: 8, by: B256::repeat_byte(1), block: 5 };
    append(&journal, id, 4, std::slice::from_ref(&lost)).await.unwrap();
    assert!(held(&journal, 0).await.is_empty());
    assert_eq!(accounted(&journal).await, Some(9), "it is used up, and known to be");
    let again = append(&journal, id, 5, &[lost]).await;
    assert!(matches!(again, Err(JournalError::SlotNotHeld { nonce: 8 })), "{again:?}");

    journal.account_for(HERE, 20).await.unwrap();
    journal.account_for(HERE, 15).await.unwrap();
    assert_eq!(accounted(&journal).await, Some(20), "it never goes back");
    append(&journal, id, 5, &[signed(StepId::Effect, 30, 3)]).await.unwrap();
    assert_eq!(accounted(&journal).await, Some(31));
    let unclaimed = Line { chain_id: CHAIN + 1, ..HERE };
    journal.account_for(unclaimed, 3).await.unwrap();
    assert_eq!(journal.line(unclaimed, 0).await.unwrap().accounted, Some(3));
}

async fn accounted(journal: &impl Journal) -> Option<u64> {
    // Wherever one begins to look.
    let far = journal.line(HERE, u64::MAX).await.unwrap();
    assert!(far.slots.is_empty());
    assert_eq!(journal.line(HERE, 0).await.unwrap().accounted, far.accounted);
    far.accounted
}
