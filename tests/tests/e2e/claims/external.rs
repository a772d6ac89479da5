//! Transactions of an account that the journal knows nothing of.

use std::{fs, time::Duration};

use backstay::{
    Client, Delivery, ErrorKind, ExternalUse, alloy::signers::local::PrivateKeySigner, journal::Record,
};
use backstay_testkit::{Action, Fleet, Rule};
use serde_json::json;

use super::{SEND, config, connect, connect_with, file, journal, let_go, pay, payee, recorded};
use crate::stage::{Stage, says, within};

async fn pays(client: &Client, name: &str) {
    let intent = pay(client, name).send().await.expect("it is written down");
    within(intent.outcome()).await.expect("it ends well").included().expect("it is included");
}

/// A journal that was put back to where it was two transactions ago.
async fn restored(stage: &Stage, fleet: &Fleet, signer: &PrivateKeySigner) {
    let backup = stage.folder.path().join("backup.db");
    let client = connect(stage, fleet, signer).await;
    pays(&client, "one").await;
    drop(client);
    let_go(stage).await;
    fs::copy(file(stage), &backup).expect("it is copied");
    let client = connect(stage, fleet, signer).await;
    pays(&client, "two").await;
    pays(&client, "three").await;
    drop(client);
    let_go(stage).await;
    fs::copy(&backup, file(stage)).expect("it is put back");
}

#[tokio::test]
async fn a_journal_that_was_restored_from_a_backup_signs_nothing_until_the_chain_is_accepted() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let fleet = stage.sound().await;
    restored(&stage, &fleet, &signer).await;
    let client = connect(&stage, &fleet, &signer).await;
    let mark = fleet.mark();
    // The journal has forgotten that it was paid.
    let intent = pay(&client, "three").send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("the chain is ahead");
    let account = signer.address();
    assert_eq!(*error.kind(), ErrorKind::ChainAhead { account, chain: 3, journal: 1 }, "{error}");
    assert_eq!(error.delivery(), Delivery::NotSent);
    says(&error, &["3", "1", "accept_external", "old copy"]);
    assert!(!error.to_string().contains("  "), "{error}");
    let line = backstay::journal::Line { chain_id: client.chain_id(), account };
    let held = backstay::journal::Journal::line(&journal(&stage).await, line, 0).await.expect("it reads");
    assert_eq!(held.slots.into_keys().collect::<Vec<_>>(), [0], "nothing is signed");
    assert!(fleet.records_since(mark).iter().all(|call| call.raw_tx.is_none()));
    assert_eq!(stage.nonce(account).await, 3);

    assert_eq!(client.accept_external(account).await.expect("it is accepted"), 3);
    pays(&client, "four").await;
    assert_eq!(stage.nonce(account).await, 4);
}

#[tokio::test]
async fn an_account_that_others_sign_for_too_goes_on_after_them() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let fleet = stage.sound().await;
    restored(&stage, &fleet, &signer).await;
    let mut config = config(&stage, &fleet);
    config.tx.external_use = ExternalUse::Accept;
    let client = connect_with(config, &signer).await;
    pays(&client, "four").await;
    drop(client);
    // The journal knows of them from then on.
    let client = connect(&stage, &fleet, &signer).await;
    pays(&client, "five").await;
    assert_eq!(stage.nonce(signer.address()).await, 5);
}

#[tokio::test]
async fn pruned_intents_are_accounted_for() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let fleet = stage.sound().await;
    let client = connect(&stage, &fleet, &signer).await;
    // From here on the journal answers for every nonce.
    assert_eq!(client.accept_external(signer.address()).await.expect("it is accepted"), 0);
    for name in ["one", "two"] {
        pays(&client, name).await;
    }
    assert_eq!(client.prune(Duration::ZERO).await.expect("it prunes"), 2);
    pays(&client, "three").await;
    assert_eq!(client.prune(Duration::ZERO).await.expect("it prunes"), 1);
    drop(client);
    let client = connect(&stage, &fleet, &signer).await;
    pays(&client, "four").await;
    assert_eq!(stage.nonce(signer.address()).await, 4);
}

#[tokio::test]
async fn a_nonce_that_went_to_a_stranger_is_accounted_for() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let fleet = stage.sound().await;
    let client = connect(&stage, &fleet, &signer).await;
    pays(&client, "one").await;
    for name in ["primary", "second"] {
        fleet.endpoint(name).set(Rule::on(SEND).then(Action::DropBefore));
    }
    let intent = pay(&client, "two").send().await.expect("it is written down");
    recorded(&journal(&stage).await, "two", |record| matches!(record, Record::Signed { .. })).await;
    // Somebody else signs for the account, and is faster.
    let from = signer.address();
    stage.rpc("anvil_impersonateAccount", json!([from])).await;
    stage.rpc("eth_sendTransaction", json!([{"from": from, "to": payee("stranger"), "value": "0x1"}])).await;
    for name in ["primary", "second"] {
        fleet.endpoint(name).heal();
    }
    // Until that is final.
    stage.chain.mine(70).await.expect("anvil mines");
    within(intent.outcome()).await.expect("it is signed anew").included().expect("it is included");
    recorded(&journal(&stage).await, "two", |record| matches!(record, Record::Displaced { nonce: 1, .. }))
        .await;
    pays(&client, "three").await;
    assert_eq!(stage.nonce(from).await, 4);
}
