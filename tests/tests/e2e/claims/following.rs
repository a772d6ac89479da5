//! One client runs an intent, and others follow it.

use std::time::Duration;

use backstay::{ErrorKind, journal::Record};
use futures::future::join;

use super::{
    FOR_EVER, Process, builder, config, connect, connect_with, journal, no_blocks, paid, pay, records, sent,
    watched::{Frozen, Watched},
    while_mining,
};
use crate::stage::{Stage, eventually, sends, within};

#[tokio::test]
async fn a_second_client_follows_what_the_first_one_runs() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let client = connect(&stage, &fleet, &signer).await;
    let intent = pay(&client, "one").send().await.expect("it is written down");
    sent(&fleet).await;
    let other = connect(&stage, &other_fleet, &signer).await;
    let same = pay(&other, "one").send().await.expect("it is there");
    let (here, there) = while_mining(&stage, join(intent.outcome(), same.outcome())).await;
    let outcome = here.expect("it ends well");
    outcome.included().expect("it is included");
    assert_eq!(there.expect("it is told"), outcome);
    assert!(sends(&other_fleet).is_empty());
    assert_eq!(stage.nonce(signer.address()).await, 1);
}

#[tokio::test]
async fn a_client_that_is_dropped_lets_others_go_on_at_once() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let lasting = |fleet| {
        let mut config = config(&stage, fleet);
        // Its end comes after this test's.
        config.claims.ttl = FOR_EVER;
        config
    };
    let client = connect_with(lasting(&fleet), &signer).await;
    drop(pay(&client, "one").send().await.expect("it is written down"));
    sent(&fleet).await;
    let other = connect_with(lasting(&other_fleet), &signer).await;
    let same = pay(&other, "one").send().await.expect("it is there");
    drop(client);
    let outcome = while_mining(&stage, same.outcome()).await.expect("it ends well");
    outcome.included().expect("it is included");
    assert_eq!(stage.nonce(signer.address()).await, 1);
    assert_eq!(paid(&stage, "one").await.to::<u64>(), 1);
}

#[tokio::test]
async fn a_client_that_dies_is_taken_over_when_its_claim_ends() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let process = Process::start();
    let connecting = builder(config(&stage, &fleet), &signer).connect();
    let client = process.run(connecting).await.expect("it connects");
    process.run(pay(&client, "one").send()).await.expect("it is written down");
    sent(&fleet).await;
    let other = connect(&stage, &other_fleet, &signer).await;
    let found = other.find_intent("one").await.expect("the journal reads").expect("it is there");
    process.kill();
    let outcome = while_mining(&stage, found.outcome()).await.expect("it ends well");
    outcome.included().expect("it is included");
    let there = records(&journal(&stage).await, "one").await;
    assert_eq!(there.iter().filter(|record| matches!(record, Record::Signed { .. })).count(), 1, "{there:?}");
    assert_eq!(stage.nonce(signer.address()).await, 1);
    assert_eq!(paid(&stage, "one").await.to::<u64>(), 1);
    drop(client);
}

#[tokio::test]
async fn a_client_that_lives_keeps_its_line() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let lasting = |fleet| {
        let mut config = config(&stage, fleet);
        config.claims.ttl = Duration::from_secs(6);
        config
    };
    let watched = Watched::over(journal(&stage).await);
    let client = builder(lasting(&fleet), &signer).journal(watched.clone()).connect();
    let client = within(client).await.expect("it connects");
    let intent = pay(&client, "one").send().await.expect("it is written down");
    sent(&fleet).await;
    let _other = connect_with(lasting(&other_fleet), &signer).await;
    // Longer than its claim would have lasted.
    watched.claimed(4).await;
    let there = records(&watched, "one").await;
    assert!(!there.contains(&Record::Resumed), "it was taken over: {there:?}");
    let outcome = while_mining(&stage, intent.outcome()).await.expect("it ends well");
    outcome.included().expect("it is included");
    assert!(sends(&other_fleet).is_empty());
}

#[tokio::test]
async fn grants_of_a_second_client_reach_the_run_of_the_first() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let watched = Watched::over(journal(&stage).await);
    let client = builder(config(&stage, &fleet), &signer).journal(watched.clone()).connect();
    let client = within(client).await.expect("it connects");
    watched.freeze(Frozen::Appends);
    // Without a grant it stops, once it can say so.
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    watched.holds_an_append().await;
    let other = connect(&stage, &other_fleet, &signer).await;
    let granted = stage.register(&other, "a").grant(stage.grant()).send().await.expect("it is there");
    watched.thaw();
    let (here, there) = within(join(intent.outcome(), granted.outcome())).await;
    let outcome = here.expect("it ends well");
    outcome.included().expect("it is included");
    assert_eq!(there.expect("it is told"), outcome);
    let address = signer.address();
    assert_eq!((stage.approvals(address).await, stage.registrations(address).await), (1, 1));
    assert!(sends(&other_fleet).is_empty(), "the run of the first one went on");
}

#[tokio::test]
async fn a_key_keeps_its_content_for_all_clients_also_when_it_was_pruned() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let client = connect(&stage, &fleet, &signer).await;
    let other = connect(&stage, &other_fleet, &signer).await;
    let intent = pay(&client, "one").send().await.expect("it is written down");
    let conflicts = async |client: &backstay::Client| {
        let else_where = client.intent("one").to(super::payee("two"), Vec::new());
        let error = else_where.send().await.expect_err("the key has another content");
        assert_eq!(*error.kind(), ErrorKind::KeyConflict { key: "one".into() }, "{error}");
    };
    conflicts(&other).await;
    let outcome = within(intent.outcome()).await.expect("it ends well");
    assert_eq!(other.prune(Duration::ZERO).await.expect("it prunes"), 1);
    for client in [&client, &other] {
        conflicts(client).await;
        let same = pay(client, "one").send().await.expect("it has ended");
        assert_eq!(within(same.outcome()).await.expect("it is told"), outcome);
    }
    assert_eq!(stage.nonce(signer.address()).await, 1);
    assert_eq!(sends(&fleet).len() + sends(&other_fleet).len(), 1);
}

#[tokio::test]
async fn a_dropped_wait_stops_the_waiting_only() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let client = connect(&stage, &fleet, &signer).await;
    let intent = pay(&client, "one").send().await.expect("it is written down");
    sent(&fleet).await;
    let other = connect(&stage, &other_fleet, &signer).await;
    let followed = pay(&other, "one").send().await.expect("it is there");
    for waiting in [&intent, &followed] {
        let looked = fleet.count("primary", "eth_getTransactionReceipt");
        let again = async || fleet.count("primary", "eth_getTransactionReceipt") > looked;
        tokio::select! {
            ended = waiting.outcome() => panic!("there are no blocks, and it ended: {ended:?}"),
            () = eventually("its receipt was asked for", again) => {}
        }
    }
    let (here, there) = while_mining(&stage, join(intent.outcome(), followed.outcome())).await;
    assert_eq!(here.expect("it ends well"), there.expect("it is told"));
    assert_eq!(stage.nonce(signer.address()).await, 1);
}
