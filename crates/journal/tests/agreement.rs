//! Whatever is done to them, the two backends give the same answers: a test in memory stands for the file.
#![cfg(feature = "sqlite")]

use alloy_primitives::{Address, B256, Bytes, U256};
use backstay_core::{
    BlockRef,
    tx::{Attempt, Content, Outcome, Record, StepId},
};
use backstay_journal::{IntentId, Journal, MemoryJournal, NewIntent, SqliteJournal, Stored};
use proptest::{collection::vec, prelude::*};

/// Keys, accounts and nonces are few, so that they collide.
#[derive(Clone, Debug)]
enum Op {
    Open {
        chain: u64,
        key: u8,
        account: u8,
    },
    /// `lag`: how many records fewer than there are the caller has seen.
    Append {
        intent: u64,
        lag: u64,
        records: Vec<Record>,
    },
    Genesis {
        chain: u64,
        hash: u8,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let open = (1..3u64, 0..4u8, 0..2u8).prop_map(|(chain, key, account)| Op::Open { chain, key, account });
    let lag = prop_oneof![9 => Just(0u64), 1 => Just(1)];
    let append = (1..6u64, lag, vec(record(), 0..4)).prop_map(|(intent, lag, records)| Op::Append {
        intent,
        lag,
        records,
    });
    let genesis = (1..3u64, any::<u8>()).prop_map(|(chain, hash)| Op::Genesis { chain, hash });
    vec(prop_oneof![3 => open, 9 => append, 1 => genesis], 1..60)
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
    prop_oneof![
        3 => Just(Record::Fenced { block: BlockRef { number: 1, hash: B256::ZERO } }),
        6 => signed,
        3 => (0..4u64).prop_map(|nonce| Record::Released { nonce }),
        1 => Just(Record::Finished { outcome: refused }),
    ]
}

/// What was answered to each op, then all that can be read.
async fn transcript(journal: &impl Journal, ops: &[Op]) -> Vec<String> {
    let mut said = Vec::new();
    let mut seen = std::collections::HashMap::new();
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
            Op::Append { intent, lag, records } => {
                let after = seen.get(&intent).copied().unwrap_or(1).saturating_sub(lag);
                let appended = journal.append(IntentId::new(intent), after, &records).await;
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
        said.extend(journal.unfinished(chain).await.unwrap().iter().map(shown));
        for key in 0..4 {
            said.extend(journal.load(chain, &format!("key-{key}")).await.unwrap().iter().map(shown));
        }
        for account in 0..2 {
            said.push(format!("{:?}", journal.slots(chain, Address::repeat_byte(account), 1).await));
        }
        said.push(format!("{:?}", journal.genesis(chain).await));
    }
    said
}

/// Without the times.
fn shown(stored: &Stored) -> String {
    let records: Vec<_> = stored.records().collect();
    format!("{} {} {} {} {records:?}", stored.id, stored.chain_id, stored.key, stored.created)
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
