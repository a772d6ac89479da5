//! What was interrupted, and is picked up while no endpoint can serve it: nobody is there to be told.

use backstay::{
    Client, Config, ErrorKind, RefusalKind, Retry,
    alloy::{primitives::U256, signers::local::PrivateKeySigner},
    journal::{Claiming, Journal, Line, Owner, Record},
};
use backstay_testkit::{Action, Fleet, Program, Rule};
use e2e::story::CHAIN_ID;

use super::{
    FOR_EVER, builder, config, connect, connect_with, journal, paid, pay, payee, recorded, records,
    watched::Watched,
};
use crate::stage::{ATTEMPT, Stage, eventually, within};

const READS: [&str; 2] = ["eth_estimateGas", "eth_call"];

/// A payment that is written down and not signed, of a client that is gone.
async fn interrupted(stage: &Stage, signer: &PrivateKeySigner, name: &str) {
    let hangs = || Rule::on_any_of(READS).then(Action::Hang).into();
    let fleet = stage.fleet([("primary", hangs()), ("second", hangs())]).await;
    let client = connect(stage, &fleet, signer).await;
    drop(pay(&client, name).send().await.expect("it is written down"));
    client.close().await.expect("it closes");
    assert_eq!(records(&journal(stage).await, name).await.len(), 1, "it was opened");
}

/// Reads that fail do not take the test's time.
fn impatient(stage: &Stage, fleet: &Fleet) -> Config {
    let mut config = config(stage, fleet);
    config.provider.operation_timeout = ATTEMPT;
    config
}

async fn watching(stage: &Stage, fleet: &Fleet, signer: &PrivateKeySigner) -> (Client, Watched) {
    let watched = Watched::over(journal(stage).await);
    let client = builder(impatient(stage, fleet), signer).journal(watched.clone()).connect();
    (within(client).await.expect("it connects"), watched)
}

/// Waits until an intent was picked up so often.
async fn picked_up(watched: &Watched, name: &str, times: usize) {
    let loads = || watched.loads().into_iter().filter(|key| key == name).count();
    eventually("it was picked up", async || loads() >= times).await;
}

async fn not_stopped(journal: &impl Journal, name: &str) {
    let there = records(journal, name).await;
    assert!(there.iter().all(|record| !matches!(record, Record::Stopped { .. })), "{there:?}");
}

#[tokio::test]
async fn what_was_interrupted_goes_on_by_itself_once_the_dead_endpoints_are_back() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    interrupted(&stage, &signer, "one").await;
    // All die once the next client is connected, and before it may run anything.
    let there = journal(&stage).await;
    let line = Line { chain_id: CHAIN_ID, account: signer.address() };
    let claim = match there.claim(line, &Owner::new("somebody else"), FOR_EVER).await {
        Ok(Claiming::Held(claim)) => claim,
        other => panic!("the line is free: {other:?}"),
    };
    let fleet = stage.sound().await;
    let (client, watched) = watching(&stage, &fleet, &signer).await;
    let found = client.find_intent("one").await.expect("the journal reads").expect("it is there");
    let waiting = tokio::spawn(async move { found.outcome().await });
    for name in ["primary", "second"] {
        fleet.endpoint(name).kill().await;
    }
    there.release(claim).await.expect("it is released");
    picked_up(&watched, "one", 2).await;
    // It rests for longer and longer, and others may have the line meanwhile.
    let claimed = async || there.holder(line).await.expect("it can be asked").is_some();
    eventually("the line is free", async || !claimed().await).await;
    not_stopped(&watched, "one").await;
    assert!(!waiting.is_finished(), "it goes on by itself, so nothing is told to who looks on");

    for name in ["primary", "second"] {
        fleet.endpoint(name).revive().await.expect("the port is free");
    }
    let outcome = within(waiting).await.expect("it does not panic").expect("it ends well");
    outcome.included().expect("it is included");
    assert_eq!((paid(&stage, "one").await, stage.nonce(signer.address()).await), (U256::ONE, 1));
}

#[tokio::test]
async fn what_was_interrupted_outlasts_whatever_endpoints_cannot_do_now() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let trouble = [
        ("out of order", Action::http(503, "out of order")),
        ("rate limited", Action::too_many_requests(1)),
        ("behind", Action::error(-32_000, "header not found")),
        ("silent", Action::Hang),
    ];
    for (name, action) in trouble {
        interrupted(&stage, &signer, name).await;
        let ill = || Rule::on_any_of(READS).then(action.clone()).into();
        let fleet = stage.fleet([("primary", ill()), ("second", ill())]).await;
        let (client, watched) = watching(&stage, &fleet, &signer).await;
        picked_up(&watched, name, 3).await;
        not_stopped(&watched, name).await;
        for endpoint in ["primary", "second"] {
            fleet.endpoint(endpoint).heal();
        }
        recorded(&watched, name, |record| matches!(record, Record::Finished { .. })).await;
        client.close().await.expect("it closes");
    }
    assert_eq!(stage.nonce(signer.address()).await, 4);
}

#[tokio::test]
async fn what_rests_holds_up_no_other_and_who_asks_for_it_is_told() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    interrupted(&stage, &signer, "one").await;
    let lacks = || {
        Program::from(
            Rule::on_any_of(READS).to(payee("one")).then(Action::error(-32_000, "header not found")),
        )
    };
    let fleet = stage.fleet([("primary", lacks()), ("second", lacks())]).await;
    let (client, watched) = watching(&stage, &fleet, &signer).await;
    picked_up(&watched, "one", 2).await;
    let two = pay(&client, "two").send().await.expect("it is written down");
    within(two.outcome()).await.expect("it ends well").included().expect("it is included");
    not_stopped(&watched, "one").await;

    let one = pay(&client, "one").send().await.expect("it is there");
    let error = within(one.outcome()).await.expect_err("nobody has its block");
    assert!(error.passes(), "{error:?}");
    recorded(&watched, "one", |record| matches!(record, Record::Stopped { .. })).await;
}

#[tokio::test]
async fn what_stopped_for_want_of_money_does_not_rest_although_its_caller_has_gone() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = connect_with(impatient(&stage, &fleet), &PrivateKeySigner::random()).await;
    drop(pay(&client, "one").send().await.expect("it is written down"));
    recorded(&journal(&stage).await, "one", |record| matches!(record, Record::Stopped { .. })).await;
}

#[tokio::test]
async fn what_nodes_refuse_to_simulate_does_not_rest() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let cases = [
        (
            "refused",
            Action::error(-32_000, "exceeds block gas limit"),
            ErrorKind::TxRefused(RefusalKind::BlockGasLimit),
        ),
        (
            "not served",
            Action::error(-32_601, "the method eth_estimateGas does not exist"),
            ErrorKind::Unsupported,
        ),
    ];
    for (name, action, kind) in cases {
        let refuse = || Rule::on("eth_estimateGas").then(action.clone()).into();
        let fleet = stage.fleet([("primary", refuse()), ("second", refuse())]).await;
        let (client, watched) = watching(&stage, &fleet, &signer).await;
        drop(pay(&client, name).send().await.expect("it is written down"));
        recorded(&watched, name, |record| matches!(record, Record::Stopped { .. })).await;
        let again = pay(&client, name).send().await.expect("it is there");
        let error = within(again.outcome()).await.expect_err("it cannot be simulated");
        assert_eq!((error.kind(), error.retry()), (&kind, Retry::Never), "{error}");
    }
}
