//! Handles that are had by their keys.

use std::time::Duration;

use backstay::{Delivery, ErrorKind, alloy::signers::local::PrivateKeySigner};
use futures::future::join3;

use super::{config, connect, connect_with, no_blocks, pay, reader, sent, while_mining};
use crate::stage::{Stage, says, sends, within};

#[tokio::test]
async fn an_intent_is_found_by_its_key_in_any_client_and_at_any_time() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let client = connect(&stage, &fleet, &signer).await;
    let intent = pay(&client, "one").send().await.expect("it is written down");
    sent(&fleet).await;
    let other = connect(&stage, &other_fleet, &signer).await;
    let reads_only = reader(&stage, &other_fleet).await;
    for client in [&client, &other, &reads_only] {
        assert!(client.find_intent("two").await.expect("the journal reads").is_none());
    }
    let find = async |client: &backstay::Client| {
        let found = client.find_intent("one").await.expect("the journal reads").expect("it is there");
        assert_eq!((found.key(), found.account()), ("one", signer.address()));
        found
    };
    let (others, readers) = (find(&other).await, find(&reads_only).await);
    let all = join3(intent.outcome(), others.outcome(), readers.outcome());
    let (ours, others, readers) = while_mining(&stage, all).await;
    let outcome = ours.expect("it ends well");
    outcome.included().expect("it is included");
    assert_eq!(
        (others.expect("it is told"), readers.expect("it is told")),
        (outcome.clone(), outcome.clone())
    );

    // It has ended.
    for client in [&client, &other, &reads_only] {
        assert_eq!(within(find(client).await.outcome()).await.expect("it is told"), outcome);
    }
    drop((client, other, reads_only, intent));
    // After a restart, and after it was pruned.
    let client = connect(&stage, &fleet, &signer).await;
    assert_eq!(within(find(&client).await.outcome()).await.expect("it is told"), outcome);
    assert_eq!(client.prune(Duration::ZERO).await.expect("it prunes"), 1);
    let reads_only = reader(&stage, &other_fleet).await;
    for client in [&client, &reads_only] {
        assert_eq!(within(find(client).await.outcome()).await.expect("it is told"), outcome);
    }
    assert_eq!(stage.nonce(signer.address()).await, 1);
    assert!(sends(&other_fleet).is_empty());
}

#[tokio::test]
async fn a_handle_elsewhere_tells_why_an_intent_has_stopped() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let reads_only = reader(&stage, &fleet).await;
    let stops = async |signer: &PrivateKeySigner, name: &str| {
        let mut config = config(&stage, &fleet);
        config.tx.inclusion_timeout = Duration::from_millis(300);
        let client = connect_with(config, signer).await;
        let intent = pay(&client, name).send().await.expect("it is written down");
        let found = reads_only.find_intent(name).await.expect("the journal reads").expect("it is there");
        let elsewhere = within(found.outcome()).await.expect_err("it stops");
        (within(intent.outcome()).await.expect_err("it stops"), elsewhere)
    };
    let unsigned = stops(&PrivateKeySigner::random(), "unsigned").await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let signed = stops(&signer, "signed").await;
    for ((here, elsewhere), delivery) in [(unsigned, Delivery::NotSent), (signed, Delivery::Unknown)] {
        assert_eq!(*elsewhere.kind(), ErrorKind::Stopped);
        says(&elsewhere, &["in the process that ran it", &here.to_string()]);
        assert_eq!((here.delivery(), elsewhere.delivery()), (delivery, delivery));
        assert_eq!(here.retry(), elsewhere.retry());
    }
}

#[tokio::test]
async fn a_stopped_intent_that_was_pruned_leaves_its_key_free() {
    let stage = Stage::new().await;
    let signer = PrivateKeySigner::random();
    let fleet = stage.sound().await;
    let client = connect(&stage, &fleet, &signer).await;
    let intent = pay(&client, "one").send().await.expect("it is written down");
    within(intent.outcome()).await.expect_err("there is no money");
    let reads_only = reader(&stage, &fleet).await;
    let found = reads_only.find_intent("one").await.expect("the journal reads").expect("it is there");
    assert_eq!(client.prune(Duration::ZERO).await.expect("it prunes"), 1);
    assert!(client.find_intent("one").await.expect("the journal reads").is_none());
    let error = within(found.outcome()).await.expect_err("it is gone");
    assert_eq!(*error.kind(), ErrorKind::Closed);
    says(&error, &["one", "send it again"]);

    stage.contracts.fund(&stage.chain, signer.address()).await.expect("it is funded");
    let other = client.intent("one").to(super::payee("another"), Vec::new());
    let again = other.send().await.expect("the key is free").outcome().await;
    again.expect("it ends well").included().expect("it is included");
}
