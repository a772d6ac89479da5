//! Who may write for an account.

use std::time::Duration;

use alloy_primitives::Address;
use backstay_core::tx::{Grant, Record, StepId};

use super::{ACCOUNT, AGES, CHAIN, HERE, Store, fenced, held, intent, race, records, reload, signed, slots};
use crate::{Author, Claiming, IntentId, Journal, JournalError, Line, Owner};

/// A claim that has ended when the next statement runs.
const NO_TIME: Duration = Duration::ZERO;

pub(super) async fn a_line_has_one_owner(store: impl Store) {
    let (journal, other) = (store.open().await, store.open().await);
    let (ann, bob) = (Owner::new("ann"), Owner::new("bob"));
    let claim = held(journal.claim(HERE, &ann, AGES).await.unwrap());
    assert_eq!(claim.line, HERE);
    let refused = other.claim(HERE, &bob, AGES).await.unwrap();
    let Claiming::Elsewhere { owner, remaining } = refused else { panic!("{refused:?}") };
    assert_eq!(owner, ann);
    assert!(remaining <= AGES && remaining > AGES / 2, "{remaining:?}");
    let holder = other.holder(HERE).await.unwrap().expect("it is held");
    assert_eq!(holder.owner, ann);
    assert!(holder.remaining <= AGES && holder.remaining > AGES / 2, "{holder:?}");

    for line in [Line { chain_id: CHAIN + 1, ..HERE }, Line { account: Address::ZERO, ..HERE }] {
        assert_eq!(other.holder(line).await.unwrap(), None);
        held(other.claim(line, &bob, AGES).await.unwrap());
        assert_eq!(journal.holder(line).await.unwrap().map(|holder| holder.owner), Some(bob.clone()));
    }
    journal.release(claim).await.unwrap();
    assert_eq!(other.holder(HERE).await.unwrap(), None);
    held(journal.claim(HERE, &ann, NO_TIME).await.unwrap());
    assert_eq!(other.holder(HERE).await.unwrap(), None, "its claim has ended");
    journal.account_for(Line { chain_id: CHAIN + 2, ..HERE }, 5).await.unwrap();
    assert_eq!(
        other.holder(Line { chain_id: CHAIN + 2, ..HERE }).await.unwrap(),
        None,
        "nobody has claimed it"
    );
}

pub(super) async fn of_owners_that_race_one_gets_the_line(store: impl Store) {
    let claimed = race(&store, 8, |journal, i| async move {
        journal.claim(HERE, &Owner::new(format!("owner {i}")), AGES).await.unwrap()
    })
    .await;
    let won: Vec<_> = claimed.iter().filter(|claiming| matches!(claiming, Claiming::Held(_))).collect();
    assert_eq!(won.len(), 1, "{claimed:?}");
}

pub(super) async fn a_claim_that_ended_is_taken_over_with_a_higher_token(store: impl Store) {
    let journal = store.open().await;
    let (ann, bob) = (Owner::new("ann"), Owner::new("bob"));
    let first = held(journal.claim(HERE, &ann, NO_TIME).await.unwrap());
    let second = held(journal.claim(HERE, &bob, AGES).await.unwrap());
    assert!(second.token > first.token, "{first:?} {second:?}");

    journal.release(first).await.unwrap();
    let refused = journal.claim(HERE, &ann, AGES).await.unwrap();
    assert!(matches!(refused, Claiming::Elsewhere { .. }), "a stale release does nothing: {refused:?}");
    journal.release(second).await.unwrap();
    let third = held(journal.claim(HERE, &ann, AGES).await.unwrap());
    assert!(third.token > second.token, "{second:?} {third:?}");
}

pub(super) async fn who_holds_a_line_extends_its_claim(store: impl Store) {
    let journal = store.open().await;
    let ann = Owner::new("ann");
    let first = held(journal.claim(HERE, &ann, NO_TIME).await.unwrap());
    let second = held(journal.claim(HERE, &ann, AGES).await.unwrap());
    assert_eq!(first, second, "it is one claim");
    let refused = journal.claim(HERE, &Owner::new("bob"), AGES).await.unwrap();
    assert!(matches!(refused, Claiming::Elsewhere { .. }), "{refused:?}");
}

pub(super) async fn a_stale_owner_is_refused(store: impl Store) {
    let (journal, other) = (store.open().await, store.open().await);
    let id = journal.open(intent("pay")).await.unwrap().id;
    let ann = held(journal.claim(HERE, &Owner::new("ann"), NO_TIME).await.unwrap());
    // Its time is over, and nobody has taken the line: it may go on.
    journal.append(Author::Owner(ann), id, 1, &[fenced(1)]).await.unwrap();

    let bob = held(other.claim(HERE, &Owner::new("bob"), AGES).await.unwrap());
    // Also where it has not seen what there is: that is the lesser reason.
    for after in [1, 2] {
        let batch = [fenced(2), signed(StepId::Effect, 0, 1)];
        assert_lost(journal.append(Author::Owner(ann), id, after, &batch).await);
    }
    assert_eq!(reload(&journal, "pay").await.seen(), 2);
    assert!(slots(&journal, HERE, 0).await.is_empty());
    other.append(Author::Owner(bob), id, 2, &[signed(StepId::Effect, 0, 2)]).await.unwrap();

    let elsewhere = Line { chain_id: CHAIN + 1, ..HERE };
    let claim = held(other.claim(elsewhere, &Owner::new("bob"), AGES).await.unwrap());
    assert_lost(other.append(Author::Owner(claim), id, 3, &[fenced(3)]).await);
}

/// Whatever an owner wrote, whoever takes over sees it: nothing of the old one comes after the first look of the
/// new one.
pub(super) async fn a_stale_owner_that_races_with_the_take_over_is_refused(store: impl Store) {
    let id = store.open().await.open(intent("race")).await.unwrap().id;
    let rounds = race(&store, 8, |journal, i| async move {
        let owner = Owner::new(format!("owner {i}"));
        for _ in 0..20 {
            let claiming = journal.claim(HERE, &owner, NO_TIME).await.unwrap();
            let Claiming::Held(claim) = claiming else { continue };
            let before = journal.load(CHAIN, "race").await.unwrap().expect("it is open").seen();
            // The token, written down: tokens must never fall along the records.
            match journal.append(Author::Owner(claim), id, before, &[fenced(claim.token)]).await {
                Ok(()) | Err(JournalError::ClaimLost { .. } | JournalError::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
    assert_eq!(rounds.len(), 8);
    let stored = reload(&store.open().await, "race").await;
    let tokens: Vec<u64> = records(&stored)[1..]
        .iter()
        .map(|record| match record {
            Record::Fenced { block } => block.number,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(tokens.is_sorted(), "{tokens:?}");
}

pub(super) async fn without_a_claim_only_wishes_are_taken(store: impl Store) {
    let journal = store.open().await;
    let id = journal.open(intent("pay")).await.unwrap().id;
    let grants = vec![Grant { token: ACCOUNT, spender: ACCOUNT, cap: Default::default() }];
    let wishes = [Record::Granted { grants }, Record::Requested];
    journal.append(Author::Caller, id, 1, &wishes).await.unwrap();
    for batch in [vec![fenced(1)], vec![Record::Requested, signed(StepId::Effect, 0, 1)]] {
        assert_lost(journal.append(Author::Caller, id, 3, &batch).await);
    }
    let stale = journal.append(Author::Caller, id, 1, &[Record::Requested]).await;
    assert!(matches!(stale, Err(JournalError::Conflict { after: 1, found: 3 })), "{stale:?}");
    let unknown = journal.append(Author::Caller, IntentId::new(99), 1, &[Record::Requested]).await;
    assert!(matches!(unknown, Err(JournalError::UnknownIntent { .. })), "{unknown:?}");
    assert_eq!(reload(&journal, "pay").await.seen(), 3);
}

#[track_caller]
fn assert_lost(refused: Result<(), JournalError>) {
    let Err(JournalError::ClaimLost { account }) = refused else { panic!("{refused:?}") };
    assert_eq!(account, ACCOUNT);
}
