//! Intents that share a grant, and clients that come and go.

use std::time::Duration;

use backstay::journal::{Journal, Record, StepId};
use e2e::story::CHAIN_ID;

use super::{connect, journal};
use crate::stage::{Stage, eventually, within};

#[tokio::test]
async fn what_was_approved_for_an_intent_stays_its_own_when_its_client_is_gone() {
    let stage = Stage::with_blocks_every(Duration::from_millis(150)).await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let journal = journal(&stage).await;
    let (mut total, account) = (0, signer.address());
    // Gone when an approve was signed, and when one was included.
    for (round, mined) in [(0, false), (1, true), (2, false), (3, true)] {
        let names: Vec<String> = (0..5).map(|item| format!("{round}-{item}")).collect();
        let client = connect(&stage, &fleet, &signer).await;
        for name in &names[..3] {
            stage.register(&client, name).grant(stage.grant()).send().await.expect("it is written down");
        }
        eventually("an approve is on its way", async || {
            for name in &names[..3] {
                let stored = journal.load(CHAIN_ID, &format!("register:{name}")).await.expect("it is read");
                let stored = stored.expect("it is there");
                let is = |record: &Record| match record {
                    Record::Signed { step: StepId::Plan { .. }, .. } => !mined,
                    Record::Included { step: StepId::Plan { .. }, .. } => mined,
                    _ => false,
                };
                if stored.records().any(is)
                    && !stored.records().any(|record| matches!(record, Record::Finished { .. }))
                {
                    return true;
                }
            }
            false
        })
        .await;
        drop(client);

        let client = connect(&stage, &fleet, &signer).await;
        let mut intents = Vec::new();
        // Those that come new would do with the allowance that is there, too.
        for name in names.iter().rev() {
            let sent = stage.register(&client, name).grant(stage.grant()).send().await;
            intents.push(sent.expect("it is written down"));
        }
        for intent in intents {
            let outcome = within(intent.outcome()).await.expect("it ends well");
            outcome
                .included()
                .unwrap_or_else(|error| panic!("{}: {error}\n{}", intent.key(), intent.trail()));
        }
        total += names.len() as u64;
        assert_eq!(stage.registrations(account).await, total);
        assert_eq!(stage.approvals(account).await, total, "one for each");
    }
}
