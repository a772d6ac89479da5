//! What must not take a client's time, or hold up an account.

use backstay::{
    Client, ErrorKind,
    alloy::signers::local::PrivateKeySigner,
    journal::{Claiming, Journal, Line, Owner, Record},
};
use backstay_testkit::Fleet;
use e2e::story::CHAIN_ID;

use super::{
    FOR_EVER, POLL, TTL, builder, config, connect, connect_with, deaf, journal, no_blocks, pay, recorded,
    sent,
    watched::{Trick, Watched},
};
use crate::stage::{SOON, Stage, eventually, within};

/// A client whose journal is watched, and which need not extend its claims.
async fn watched_client(stage: &Stage, fleet: &Fleet, signer: &PrivateKeySigner) -> (Client, Watched) {
    let watched = Watched::over(journal(stage).await);
    let mut config = config(stage, fleet);
    config.claims.ttl = FOR_EVER;
    let client = builder(config, signer).journal(watched.clone()).connect();
    (within(client).await.expect("it connects"), watched)
}

fn simulations(fleet: &Fleet) -> usize {
    fleet.records().iter().filter(|call| call.method == "eth_estimateGas").count()
}

#[tokio::test]
async fn an_intent_whose_stop_cannot_be_written_down_is_not_run_without_a_pause() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let (client, watched) = watched_client(&stage, &fleet, &signer).await;
    watched.plays(Some(Trick::NoRoomForStops));
    // It may not approve, so it stops.
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    within(intent.outcome()).await.expect_err("it may not approve");
    tokio::time::sleep(40 * POLL).await;
    // With a pause that doubles from one look at the journal on, it is five or six.
    let tries = simulations(&fleet);
    assert!(tries <= 12, "it was tried {tries} times");
    watched.plays(None);
    recorded(&watched, "register:a", |record| matches!(record, Record::Stopped { .. })).await;
}

#[tokio::test]
async fn a_line_that_was_lost_unnoticed_is_claimed_before_anything_is_run_again() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (client, watched) = watched_client(&stage, &fleet, &signer).await;
    watched.plays(Some(Trick::ShortClaims));
    let intent = pay(&client, "one").send().await.expect("it is written down");
    recorded(&watched, "one", |record| matches!(record, Record::Submitted { .. })).await;
    let line = Line { chain_id: CHAIN_ID, account: signer.address() };
    let other = Owner::new("somebody else");
    let there = journal(&stage).await;
    let claim = match there.claim(line, &other, FOR_EVER).await.expect("it can be claimed") {
        Claiming::Held(claim) => claim,
        Claiming::Elsewhere { .. } => panic!("the claim has ended"),
    };
    stage.chain.mine(1).await.expect("anvil mines");
    eventually("it is refused", async || watched.refused() > 0).await;
    tokio::time::sleep(40 * POLL).await;
    let refused = watched.refused();
    assert!(refused <= 2, "it was run on a line that is held elsewhere {refused} times");
    watched.plays(None);
    there.release(claim).await.expect("it is released");
    within(intent.outcome()).await.expect("it ends well").included().expect("it is included");
}

#[tokio::test]
async fn bytes_that_nobody_has_do_not_hold_up_an_account_that_is_never_idle() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let fleet = deaf(&stage).await;
    let mut config = config(&stage, &fleet);
    config.tx.inclusion_timeout = 40 * POLL;
    let client = connect_with(config, &signer).await;
    let first = pay(&client, "first").send().await.expect("it is written down");
    let error = within(first.outcome()).await.expect_err("nobody takes it");
    assert_eq!(*error.kind(), ErrorKind::Timeout, "{error}");
    for name in ["primary", "second"] {
        fleet.endpoint(name).heal();
    }
    // Each waits for the first one's nonce, until the next one is sent and longer.
    let there = journal(&stage).await;
    let sending = async {
        for index in 0.. {
            pay(&client, &format!("next {index}")).send().await.expect("it is written down");
            tokio::time::sleep(5 * POLL).await;
        }
    };
    tokio::select! {
        () = recorded(&there, "first", |record| matches!(record, Record::Finished { .. })) => {}
        () = sending => {}
    }
    within(first.outcome()).await.expect("the handle is told").included().expect("it is included");
}

#[tokio::test]
async fn bytes_that_nobody_has_do_not_wait_for_those_that_wait_for_their_nonce() {
    const OTHERS: u64 = 40;
    let stage = Stage::new().await;
    // There is an allowance for all, which all share.
    let signer = stage.account_allowing(OTHERS + 1).await;
    let fleet = deaf(&stage).await;
    let mut config = config(&stage, &fleet);
    config.tx.inclusion_timeout = 20 * POLL;
    let client = connect_with(config, &signer).await;
    let send = async |name: &str| {
        stage.register(&client, name).grant(stage.grant()).send().await.expect("it is written down")
    };
    let first = send("first").await;
    within(first.outcome()).await.expect_err("nobody takes it");
    for name in ["primary", "second"] {
        fleet.endpoint(name).heal();
    }
    for index in 0..OTHERS {
        send(&format!("next {index}")).await;
    }
    let there = journal(&stage).await;
    recorded(&there, "register:first", |record| matches!(record, Record::Finished { .. })).await;
}

#[tokio::test]
async fn a_handle_that_was_told_of_a_stop_is_told_of_the_end_elsewhere() {
    let stage = Stage::new().await;
    let signer = PrivateKeySigner::random();
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let client = connect(&stage, &fleet, &signer).await;
    let intent = pay(&client, "one").send().await.expect("it is written down");
    let clone = intent.clone();
    for handle in [&intent, &clone, &intent] {
        let error = within(handle.outcome()).await.expect_err("there is no money");
        assert!(matches!(error.kind(), ErrorKind::InsufficientFunds { .. }), "{error:?}");
    }
    stage.contracts.fund(&stage.chain, signer.address()).await.expect("it is funded");
    let other = connect(&stage, &other_fleet, &signer).await;
    // The line is claimed there once it is released here.
    let line = Line { chain_id: CHAIN_ID, account: signer.address() };
    let there = journal(&stage).await;
    let nobody = Owner::new("nobody");
    eventually("the line is free", async || {
        match there.claim(line, &nobody, TTL).await.expect("it can be asked") {
            Claiming::Held(_) => true,
            Claiming::Elsewhere { .. } => false,
        }
    })
    .await;
    client.close().await.expect("it closes");
    let again = within(other.resume_intent("one")).await.expect("it goes on").expect("it is there");
    let outcome = within(again.outcome()).await.expect("it ends well");
    for handle in [&intent, &clone] {
        assert_eq!(within(handle.outcome()).await.expect("it is told"), outcome);
    }
}

#[tokio::test]
async fn what_is_pruned_while_it_is_sent_again_is_sent_all_the_same() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = PrivateKeySigner::random();
    let (client, watched) = watched_client(&stage, &fleet, &signer).await;
    let intent = pay(&client, "one").send().await.expect("it is written down");
    within(intent.outcome()).await.expect_err("there is no money");
    stage.contracts.fund(&stage.chain, signer.address()).await.expect("it is funded");
    watched.plays(Some(Trick::PrunesBeforeWishes));
    let again = pay(&client, "one").send().await.expect("it is written down");
    within(again.outcome()).await.expect("it ends well").included().expect("it is included");
    assert_eq!(stage.nonce(signer.address()).await, 1);
}

#[tokio::test]
async fn what_is_pruned_while_it_is_resumed_is_left_out() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = PrivateKeySigner::random();
    let (client, watched) = watched_client(&stage, &fleet, &signer).await;
    for name in ["one", "two"] {
        let intent = pay(&client, name).send().await.expect("it is written down");
        within(intent.outcome()).await.expect_err("there is no money");
    }
    watched.plays(Some(Trick::PrunesBeforeWishes));
    assert!(within(client.resume()).await.expect("the others are resumed").is_empty());
    assert!(within(client.resume_intent("one")).await.expect("the journal reads").is_none());
}

#[tokio::test]
async fn who_waits_for_a_line_does_not_read_what_is_run_there() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let client = connect(&stage, &fleet, &signer).await;
    for index in 0..4 {
        pay(&client, &format!("intent {index}")).send().await.expect("it is written down");
    }
    sent(&fleet).await;
    let watched = Watched::over(journal(&stage).await);
    let other = builder(config(&stage, &other_fleet), &signer).journal(watched.clone()).connect();
    let _other = tokio::time::timeout(SOON, other).await.expect("in time").expect("it connects");
    let before = watched.loads();
    watched.looked_into(4).await;
    assert_eq!(watched.loads(), before);
}

#[tokio::test]
async fn who_waits_for_an_intent_does_not_read_it_whenever_another_one_ends() {
    let stage = Stage::new().await;
    let (signer, busy) = (stage.account().await, stage.account().await);
    let fleet = stage.sound().await;
    let watched = Watched::over(journal(&stage).await);
    let mut config = config(&stage, &fleet);
    (config.claims.poll, config.claims.ttl) = (SOON, FOR_EVER);
    // Its line is held elsewhere, and stays so.
    let line = Line { chain_id: CHAIN_ID, account: signer.address() };
    watched.claim(line, &Owner::new("somebody else"), FOR_EVER).await.expect("it can be claimed");
    let client = builder(config, &signer).signer(busy.clone()).journal(watched.clone()).connect();
    let client = within(client).await.expect("it connects");
    let waiting = pay(&client, "waiting").from(signer.address()).send().await.expect("it is written down");
    let waiting = tokio::spawn(async move { waiting.outcome().await });
    for name in ["one", "two", "three"] {
        let intent = pay(&client, name).from(busy.address()).send().await.expect("it is written down");
        within(intent.outcome()).await.expect("it ends well").included().expect("it is included");
    }
    let reads = watched.loads().iter().filter(|key| *key == "waiting").count();
    assert!(reads <= 1, "it was read {reads} times");
    waiting.abort();
}
