//! Appending records.

use std::{future::poll_fn, pin::pin, task::Poll};

use alloy_primitives::{Address, B256, Bytes, TxHash, U256};
use backstay_core::{
    Delivery, Retry,
    failure::RefusalKind,
    tx::{Attempt, Check, Content, Grant, Inclusion, Outcome, PlanStep, Record, SendAnswer, StepId, Stop},
};

use super::{
    CHAIN, HERE, Store, append, block, fenced, finished, intent, open_intents, race, records, reload, signed,
    slots,
};
use crate::{IntentId, Journal, JournalError, NewIntent};

pub(super) async fn records_come_back_as_they_were(store: impl Store) {
    let journal = store.open().await;
    let stored = journal.open(intent("pay")).await.unwrap();
    let mut expected = records(&stored);
    for numbers in [0..1, 1..5, 5..5, 5..80] {
        let batch: Vec<_> = numbers.map(fenced).collect();
        append(&journal, stored.id, expected.len() as u64, &batch).await.unwrap();
        expected.extend(batch);
        assert_eq!(records(&reload(&journal, "pay").await), expected);
    }
    let unfinished = open_intents(&journal).await;
    assert_eq!(unfinished, [reload(&journal, "pay").await]);
    assert!(!unfinished[0].created);
}

pub(super) async fn every_kind_of_record_is_kept(store: impl Store) {
    let journal = store.open().await;
    let hash = TxHash::repeat_byte(0xab);
    let plan = StepId::Plan { round: 1, step: u32::MAX };
    let call =
        Content { to: Address::repeat_byte(3), value: U256::MAX, input: Bytes::from(vec![0x5a; 128 * 1024]) };
    let attempt = Attempt {
        unused_at: 7,
        nonce: 3,
        hash,
        raw: Bytes::from_static(&[2, 0, 255]),
        gas_limit: u64::MAX,
        max_fee_per_gas: u128::MAX,
    };
    let inclusion = Inclusion { hash, block: block(u64::MAX), succeeded: false, gas_used: u64::MAX };
    let check = Check { to: Address::ZERO, input: Bytes::new(), at_least: U256::MAX };
    let step = PlanStep { label: "approve \"it\"".to_owned(), call: call.clone(), until: Some(check) };
    let all = [
        Record::Granted {
            grants: vec![Grant { token: Address::ZERO, spender: Address::repeat_byte(1), cap: U256::MAX }],
        },
        fenced(u64::MAX),
        Record::Planned {
            flow: "allowance".to_owned(),
            diagnosis: "needs 5\nhas 0 ✗".to_owned(),
            steps: vec![step, PlanStep { label: String::new(), call, until: None }],
        },
        // What a contract says when it reverts is any text.
        Record::Abandoned { why: "not granted \0 \\u0000 \u{7f}".to_owned() },
        Record::Resumed,
        Record::Requested,
        Record::Stopped {
            stop: Stop { why: "no \"funds\"".to_owned(), retry: Retry::Later, delivery: Delivery::Unknown },
        },
        Record::Signed { step: plan, attempt: attempt.clone() },
        Record::Submitted { hash, answer: SendAnswer::Unknown },
        Record::Submitted { hash, answer: SendAnswer::Refused(RefusalKind::NonceTooHigh) },
        Record::Included { step: plan, inclusion, by: "own-node".into() },
        Record::Checked { step: plan, block: block(0), holds: true },
        Record::Released { nonce: 3 },
        Record::Signed { step: StepId::Effect, attempt: Attempt { nonce: 4, ..attempt } },
        Record::Displaced { nonce: 4, by: hash, block: 9 },
        Record::Finished {
            outcome: Outcome::Reverted {
                inclusion,
                corroborated: true,
                data: Bytes::from_static(&[8, 0xc3]),
            },
        },
    ];
    let stored = journal.open(intent("all")).await.unwrap();
    append(&journal, stored.id, 1, &all).await.unwrap();
    drop(journal);
    let stored = reload(&store.open().await, "all").await;
    assert_eq!(records(&stored)[1..], all);
}

pub(super) async fn who_has_not_seen_everything_is_refused(store: impl Store) {
    let (journal, other) = (store.open().await, store.open().await);
    let stored = journal.open(intent("pay")).await.unwrap();
    append(&journal, stored.id, 1, &[fenced(1)]).await.unwrap();

    for after in [0, 1, 3, u64::MAX] {
        let batch = [fenced(2), signed(StepId::Effect, 0, 1)];
        let refused = append(&other, stored.id, after, &batch).await;
        let Err(JournalError::Conflict { after: said, found }) = refused else { panic!("{refused:?}") };
        assert_eq!((said, found), (after, 2));
    }
    assert_eq!(reload(&journal, "pay").await.seen(), 2);
    assert!(slots(&journal, HERE, 0).await.is_empty());
    append(&other, stored.id, 2, &[fenced(2)]).await.unwrap();
}

pub(super) async fn of_appends_that_race_one_is_written(store: impl Store) {
    let id = store.open().await.open(intent("race")).await.unwrap().id;
    for after in 1..5 {
        let appended = race(&store, 8, |journal, i| async move {
            match append(journal.as_ref(), id, after, &[fenced(i as u64)]).await {
                Ok(()) => Some(i as u64),
                Err(JournalError::Conflict { .. }) => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await;
        let winners: Vec<_> = appended.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        let stored = reload(&store.open().await, "race").await;
        assert_eq!(records(&stored)[after as usize..], [fenced(winners[0])]);
    }
}

pub(super) async fn a_finished_intent_is_closed(store: impl Store) {
    let journal = store.open().await;
    let stored = journal.open(intent("pay")).await.unwrap();
    append(&journal, stored.id, 1, &[fenced(1), finished()]).await.unwrap();
    assert_eq!(open_intents(&journal).await, []);

    for after in [0, 1, 3] {
        for record in [fenced(2), finished()] {
            let refused = append(&journal, stored.id, after, &[record]).await;
            let Err(JournalError::Finished { intent }) = refused else { panic!("{refused:?}") };
            assert_eq!(intent, stored.id);
        }
    }
    let again = journal.open(intent("pay")).await.unwrap();
    assert!(!again.created, "it is closed, not forgotten");
    assert_eq!(records(&again)[1..], [fenced(1), finished()]);
}

pub(super) async fn nothing_follows_the_end_in_one_append(store: impl Store) {
    let journal = store.open().await;
    let stored = journal.open(intent("pay")).await.unwrap();
    let refused = append(&journal, stored.id, 1, &[fenced(1), finished(), fenced(2)]).await;
    assert!(matches!(refused, Err(JournalError::Finished { .. })), "{refused:?}");
    assert_eq!(open_intents(&journal).await, [reload(&journal, "pay").await]);
    assert_eq!(reload(&journal, "pay").await.seen(), 1);
}

pub(super) async fn unfinished_intents_come_in_the_order_of_their_opening(store: impl Store) {
    let journal = store.open().await;
    let mut ids = Vec::new();
    for key in ["c", "a", "d", "b"] {
        ids.push(journal.open(intent(key)).await.unwrap().id);
    }
    journal.open(NewIntent { chain_id: CHAIN + 1, ..intent("elsewhere") }).await.unwrap();
    // Activity does not change the order.
    append(&journal, ids[3], 1, &[fenced(1)]).await.unwrap();
    append(&journal, ids[0], 1, &[fenced(1)]).await.unwrap();
    append(&journal, ids[2], 1, &[finished()]).await.unwrap();

    let unfinished = open_intents(&journal).await;
    let keys: Vec<_> = unfinished.iter().map(|stored| (stored.key.as_str(), stored.seen())).collect();
    assert_eq!(keys, [("c", 2), ("a", 1), ("b", 2)]);
}

pub(super) async fn an_intent_that_is_not_there_is_refused(store: impl Store) {
    let journal = store.open().await;
    let stored = journal.open(intent("pay")).await.unwrap();
    for id in [0, stored.id.get() + 1, u64::MAX] {
        let refused = append(&journal, IntentId::new(id), 1, &[fenced(1)]).await;
        assert!(matches!(refused, Err(JournalError::UnknownIntent { .. })), "{refused:?}");
    }
}

pub(super) async fn a_dropped_append_is_written_entirely_or_not_at_all(store: impl Store) {
    let journal = store.open().await;
    let id = journal.open(intent("dropped")).await.unwrap().id;
    for nonce in 0..60 {
        let batch = batch(nonce);
        let seen = reload(&journal, "dropped").await.seen();
        // Dropped at whatever it is doing by then. A conflict is the end of the append before it, dropped
        // while it committed.
        let mut append = pin!(append(&journal, id, seen, &batch));
        for _ in 0..nonce * nonce {
            let done = poll_fn(|cx| Poll::Ready(append.as_mut().poll(cx).is_ready())).await;
            if done {
                break;
            }
            tokio::task::yield_now().await;
        }
    }

    // The journal goes on working.
    let mut seen = reload(&journal, "dropped").await.seen();
    while let Err(error) = append(&journal, id, seen, &batch(60)).await {
        let JournalError::Conflict { found, .. } = error else { panic!("{error}") };
        seen = found;
    }
    let stored = reload(&journal, "dropped").await;
    let held = slots(&journal, HERE, 0).await;
    let written = &records(&stored)[1..];
    let mut nonces = Vec::new();
    for three in written.chunks(3) {
        let Record::Signed { attempt, .. } = &three[1] else { panic!("{three:?}") };
        assert_eq!(three, batch(attempt.nonce));
        nonces.push(attempt.nonce);
    }
    assert_eq!(held.into_keys().collect::<Vec<_>>(), nonces);
    assert_eq!(nonces.last(), Some(&60));

    fn batch(nonce: u64) -> [Record; 3] {
        let hash = B256::repeat_byte(nonce as u8);
        let submitted = Record::Submitted { hash, answer: SendAnswer::Accepted };
        [fenced(nonce), signed(StepId::Effect, nonce, 1), submitted]
    }
}
