//! What a client finds open in its journal when it starts.

use std::time::Duration;

use backstay::{
    Delivery, ErrorKind, Resume,
    alloy::{primitives::U256, signers::local::PrivateKeySigner},
    journal::Record,
};

use super::{
    builder, config, connect, connect_with, deaf, journal, no_blocks, paid, pay, recorded, records, sent,
    watched::Watched, while_mining,
};
use crate::stage::{Stage, eventually, sends, within};

const NAMES: [&str; 2] = ["one", "two"];

/// Two payments that are signed and that nobody has, of a client that is gone.
async fn left_open(stage: &Stage, signer: &PrivateKeySigner) {
    let fleet = deaf(stage).await;
    let client = connect(stage, &fleet, signer).await;
    for name in NAMES {
        pay(&client, name).send().await.expect("it is written down");
        recorded(&journal(stage).await, name, |record| matches!(record, Record::Signed { .. })).await;
    }
    drop(client);
}

fn is_stop(record: &Record) -> bool {
    matches!(record, Record::Stopped { .. })
}

#[tokio::test]
async fn what_was_left_open_goes_on_without_being_sent_again() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    left_open(&stage, &signer).await;
    let fleet = stage.sound().await;
    let client = connect(&stage, &fleet, &signer).await;
    for name in NAMES {
        eventually("it is paid", async || paid(&stage, name).await == U256::ONE).await;
        let intent = client.find_intent(name).await.expect("the journal reads").expect("it is there");
        within(intent.outcome()).await.expect("it ends well").included().expect("it is included");
    }
    assert_eq!(stage.nonce(signer.address()).await, 2);
}

#[tokio::test]
async fn on_demand_what_was_left_open_waits_until_it_is_asked_for() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    left_open(&stage, &signer).await;
    let before = records(&journal(&stage).await, "two").await;
    let fleet = stage.sound().await;
    let watched = Watched::over(journal(&stage).await);
    let mut config = config(&stage, &fleet);
    config.resume = Resume::OnDemand;
    let client = builder(config, &signer).journal(watched.clone()).connect();
    let client = within(client).await.expect("it connects");

    let one = pay(&client, "one").send().await.expect("it is written down");
    within(one.outcome()).await.expect("it ends well").included().expect("it is included");
    watched.looked_into(5).await;
    assert_eq!(records(&watched, "two").await, before, "nobody asked for that one");

    let all = client.resume().await.expect("it resumes");
    assert_eq!(all.iter().map(|intent| intent.key()).collect::<Vec<_>>(), ["two"]);
    within(all[0].outcome()).await.expect("it ends well").included().expect("it is included");
    assert_eq!(stage.nonce(signer.address()).await, 2);
}

#[tokio::test]
async fn on_demand_what_others_send_meanwhile_is_run() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let mut config = config(&stage, &fleet);
    config.resume = Resume::OnDemand;
    let client = connect_with(config, &signer).await;
    let one = pay(&client, "one").send().await.expect("it is written down");
    sent(&fleet).await;
    let other = connect(&stage, &other_fleet, &signer).await;
    let two = pay(&other, "two").send().await.expect("it is written down");
    let (one, two) = while_mining(&stage, futures::future::join(one.outcome(), two.outcome())).await;
    for outcome in [one, two] {
        outcome.expect("it ends well").included().expect("it is included");
    }
    assert_eq!(sends(&other_fleet).len(), 0, "the line is held by the first one");
}

#[tokio::test]
async fn what_had_stopped_before_anything_was_signed_waits_until_it_is_asked_for() {
    let stage = Stage::new().await;
    let signer = PrivateKeySigner::random();
    let fleet = stage.sound().await;
    let client = connect(&stage, &fleet, &signer).await;
    for name in NAMES {
        let intent = pay(&client, name).send().await.expect("it is written down");
        let error = within(intent.outcome()).await.expect_err("there is no money");
        assert!(matches!(error.kind(), ErrorKind::InsufficientFunds { .. }), "{error:?}");
    }
    client.close().await.expect("it closes");
    stage.contracts.fund(&stage.chain, signer.address()).await.expect("it is funded");

    let watched = Watched::over(journal(&stage).await);
    let client = builder(config(&stage, &fleet), &signer).journal(watched.clone()).connect();
    let client = within(client).await.expect("it connects");
    let two = pay(&client, "two").send().await.expect("it is there");
    within(two.outcome()).await.expect("it ends well").included().expect("it is included");
    watched.looked_into(5).await;
    let there = records(&watched, "one").await;
    assert!(is_stop(there.last().expect("it was opened")), "its caller was told: {there:?}");
    let all = client.resume().await.expect("it resumes");
    assert_eq!(all.len(), 1);
    within(all[0].outcome()).await.expect("it ends well").included().expect("it is included");
}

#[tokio::test]
async fn what_had_stopped_while_its_bytes_were_open_goes_on() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let fleet = stage.sound().await;
    let mut config = config(&stage, &fleet);
    config.tx.inclusion_timeout = Duration::from_millis(300);
    let client = connect_with(config, &signer).await;
    let intent = pay(&client, "one").send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("there are no blocks");
    assert_eq!((error.kind(), error.delivery()), (&ErrorKind::Timeout, Delivery::Unknown), "{error}");
    client.close().await.expect("it closes");

    let watched = journal(&stage).await;
    assert!(is_stop(records(&watched, "one").await.last().expect("it was opened")));
    let _client = connect(&stage, &fleet, &signer).await;
    let finished = recorded(&watched, "one", |record| matches!(record, Record::Finished { .. }));
    while_mining(&stage, finished).await;
    assert_eq!(stage.nonce(signer.address()).await, 1);
}
