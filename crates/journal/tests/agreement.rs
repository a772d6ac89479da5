//! Whatever is done to them, the two backends give the same answers: a test in memory stands for the file.
#![cfg(feature = "sqlite")]

use std::time::Duration;

use alloy_primitives::{Address, B256, Bytes, U256};
use backstay_core::{
    BlockRef, Delivery, Retry,
    tx::{Attempt, Content, Outcome, Record, StepId, Stop},
};
use backstay_journal::{
    Author, Claiming, IntentId, Journal, Line, MemoryJournal, NewIntent, Owner, Query, SqliteJournal, Stored,
};
use proptest::{collection::vec, prelude::*};

/// Keys, accounts and nonces are few, so that they collide.
#[derive(Clone, Debug)]
enum Op {
    Open {
        chain: u64,
        key: u8,
        account: u8,
    },
    /// `ended`: the claim lasts no time.
    Claim {
        chain: u64,
        account: u8,
        owner: u8,
        ended: bool,
    },
    Release {
        claim: usize,
    },
    /// By a claim of those that were had, the newest first. `lag`: how many records fewer than there are the
    /// author has seen.
    Append {
        claim: usize,
        intent: u64,
        lag: u64,
        records: Vec<Record>,
    },
    AccountFor {
        chain: u64,
        account: u8,
        nonce: u64,
    },
    Prune {
        chain: u64,
    },
    Genesis {
        chain: u64,
        hash: u8,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let open = (1..3u64, 0..4u8, 0..2u8).prop_map(|(chain, key, account)| Op::Open { chain, key, account });
    let lag = prop_oneof![9 => Just(0u64), 1 => Just(1)];
    let claim = (1..3u64, 0..2u8, 0..2u8, any::<bool>())
        .prop_map(|(chain, account, owner, ended)| Op::Claim { chain, account, owner, ended });
    let release = (0..6usize).prop_map(|claim| Op::Release { claim });
    let append = (0..3usize, 1..6u64, lag, vec(record(), 0..4))
        .prop_map(|(claim, intent, lag, records)| Op::Append { claim, intent, lag, records });
    let account_for = (1..3u64, 0..2u8, 0..9u64).prop_map(|(chain, account, nonce)| Op::AccountFor {
        chain,
        account,
        nonce,
    });
    let prune = (1..3u64).prop_map(|chain| Op::Prune { chain });
    let genesis = (1..3u64, any::<u8>()).prop_map(|(chain, hash)| Op::Genesis { chain, hash });
    vec(
        prop_oneof![3 => open, 4 => claim, 1 => release, 9 => append, 1 => account_for, 1 => prune, 1 => genesis],
        1..80,
    )
}

fn record() -> impl Strategy<Value = Record> {
    let step = prop_oneof![Just(StepId::Effect), Just(StepId::Plan { round: 0, step: 0 })];
    let signed = (step, 0..4u64).prop_map(|(step, nonce)| {
        let raw = Bytes::from_static(&[1]);
        let attempt =
            Attempt { nonce, unused_at: 0, hash: B256::ZERO, raw, gas_limit: 1, max_fee_per_gas: 1 };
        Record::Signed { step, attempt }
    });
    let refused = Outcome::Refused { kind: backstay_core::failure::RefusalKind::Policy };
    let stop = Stop { why: "why".to_owned(), retry: Retry::Later, delivery: Delivery::NotSent };
    prop_oneof![
        3 => Just(Record::Fenced { block: BlockRef { number: 1, hash: B256::ZERO } }),
        6 => signed,
        3 => (0..4u64).prop_map(|nonce| Record::Released { nonce }),
        2 => (0..4u64).prop_map(|nonce| Record::Displaced { nonce, by: B256::ZERO, block: 1 }),
        1 => Just(Record::Requested),
        1 => Just(Record::Stopped { stop }),
        1 => Just(Record::Finished { outcome: refused }),
    ]
}

/// What was answered to each op, then all that can be read.
async fn transcript(journal: &impl Journal, ops: &[Op]) -> Vec<String> {
    let mut said = Vec::new();
    let mut seen = std::collections::HashMap::new();
    let mut claims = Vec::new();
    for op in ops {
        said.push(match op.clone() {
            Op::Open { chain, key, account } => {
                let content = Content { to: Address::ZERO, value: U256::from(key), input: Bytes::new() };
                let account = Address::repeat_byte(account);
                let key = format!("key-{key}");
                let stored = journal
                    .open(NewIntent { chain_id: chain, key, account, content, grants: vec![] })
                    .await
                    .unwrap();
                seen.insert(stored.id.get(), stored.seen());
                shown(&stored)
            }
            Op::Claim { chain, account, owner, ended } => {
                let line = Line { chain_id: chain, account: Address::repeat_byte(account) };
                let ttl = if ended { Duration::ZERO } else { Duration::from_secs(3600) };
                match journal.claim(line, &Owner::new(owner.to_string()), ttl).await.unwrap() {
                    Claiming::Held(claim) => {
                        claims.insert(0, claim);
                        format!("{claim:?}")
                    }
                    Claiming::Elsewhere { owner, .. } => format!("{owner} has it"),
                }
            }
            Op::Release { claim } => match claims.get(claim) {
                Some(claim) => format!("{:?}", journal.release(*claim).await),
                None => String::new(),
            },
            Op::AccountFor { chain, account, nonce } => {
                let line = Line { chain_id: chain, account: Address::repeat_byte(account) };
                format!("{:?}", journal.account_for(line, nonce).await)
            }
            Op::Prune { chain } => format!("{:?}", journal.prune(chain, Duration::ZERO, 1).await),
            Op::Append { claim, intent, lag, records } => {
                let after = seen.get(&intent).copied().unwrap_or(1).saturating_sub(lag);
                let author = claims.get(claim).map_or(Author::Caller, |claim| Author::Owner(*claim));
                let appended = journal.append(author, IntentId::new(intent), after, &records).await;
                if appended.is_ok() {
                    *seen.get_mut(&intent).expect("it was opened") += records.len() as u64;
                }
                format!("{appended:?}")
            }
            Op::Genesis { chain, hash } => {
                format!("{:?}", journal.record_genesis(chain, B256::repeat_byte(hash)).await)
            }
        });
    }
    for chain in 1..3 {
        let listed = journal.list(&Query { chain_id: Some(chain), ..Query::default() }).await.unwrap();
        said.extend(
            listed.iter().map(|listed| format!("{} {} {:?}", listed.id, listed.records, listed.state)),
        );
        for key in 0..4 {
            said.extend(journal.load(chain, &format!("key-{key}")).await.unwrap().iter().map(shown));
        }
        for account in 0..2 {
            let line = Line { chain_id: chain, account: Address::repeat_byte(account) };
            said.push(format!("{:?}", journal.line(line, 1).await));
        }
        said.push(format!("{:?}", journal.genesis(chain).await));
    }
    said
}

/// Without the times.
fn shown(stored: &Stored) -> String {
    let records: Vec<_> = stored.records().collect();
    let Stored { id, chain_id, key, created, tombstone, .. } = stored;
    format!("{id} {chain_id} {key} {created} {records:?} {tombstone:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn both_backends_give_the_same_answers(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let file = SqliteJournal::open(dir.path().join("journal.db")).await.unwrap();
            let on_disk = transcript(&file, &ops).await;
            let in_memory = transcript(&MemoryJournal::new(), &ops).await;
            prop_assert_eq!(on_disk, in_memory);
            Ok(())
        })?;
    }
}
