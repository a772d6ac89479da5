//! Transactions that go to all healthy endpoints at once.

use std::time::Duration;

use backstay::{
    Broadcast, Client, ErrorKind, Role,
    alloy::{network::Ethereum, providers::Provider},
};
use backstay_testkit::{Action, Fleet, Program, Rule};

use crate::{
    stage::{Stage, ours, sends, within},
    websocket::transfer,
};

const SEND: &str = "eth_sendRawTransaction";

/// A client that sends to all at once.
async fn client(stage: &Stage, fleet: &Fleet) -> Client {
    let mut config = stage.config(fleet);
    config.provider.broadcast = Broadcast::AllHealthy;
    within(Client::builder(config).connect()).await.expect("it connects")
}

fn counts<const N: usize>(fleet: &Fleet, names: [&str; N]) -> [u64; N] {
    names.map(|name| fleet.count(name, SEND))
}

#[tokio::test]
async fn the_same_bytes_go_to_all_at_once_and_a_slow_acceptance_beats_a_fast_error() {
    let stage = Stage::new().await;
    let refuses = || Rule::on(SEND).then(Action::error(-32_000, "intrinsic gas too low"));
    let slow = Rule::on(SEND).then(Action::LateReply(Duration::from_millis(200)));
    let fleet = stage.fleet([
        ("refuses", refuses().into()),
        ("slow", slow.into()),
        ("refuses-too", refuses().into()),
    ]);
    let fleet = fleet.await;
    let client = client(&stage, &fleet).await;
    let signer = stage.account().await;
    let raw = transfer(&signer);
    let sent = within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await.expect("one accepts");
    assert_eq!(counts(&fleet, ["refuses", "slow", "refuses-too"]), [1, 1, 1]);
    let bytes: Vec<_> = sends(&fleet).into_iter().filter_map(|call| call.raw_tx).collect();
    assert!(bytes.iter().all(|bytes| *bytes == raw), "{bytes:?}");
    assert_eq!(*sent.tx_hash(), backstay::alloy::primitives::keccak256(&raw));
    assert_eq!(stage.nonce(signer.address()).await, 1);
    assert_eq!(client.failovers(), 0, "nobody failed anybody");
}

#[tokio::test]
async fn a_hung_endpoint_holds_up_no_broadcast_and_is_not_blamed_for_being_outrun() {
    let stage = Stage::new().await;
    let hangs = Rule::on(SEND).then(Action::Hang);
    let fleet = stage.fleet([("hangs", hangs.into()), ("sound", Program::new())]).await;
    let mut config = stage.config(&fleet);
    config.provider.broadcast = Broadcast::AllHealthy;
    config.provider.attempt_timeout = Duration::from_secs(25);
    config.provider.operation_timeout = Duration::from_secs(60);
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    let signer = stage.account().await;
    let begun = tokio::time::Instant::now();
    let _ = within(client.provider::<Ethereum>().send_raw_transaction(&transfer(&signer)))
        .await
        .expect("one accepts");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(counts(&fleet, ["hangs", "sound"]), [1, 1]);
    assert_eq!(crate::stage::status(&client, "hangs").faults, 0);
}

#[tokio::test]
async fn what_all_refuse_is_refused_with_a_nodes_reason() {
    let stage = Stage::new().await;
    let refuses = || Rule::on(SEND).then(Action::error(-32_000, "intrinsic gas too low")).into();
    let fleet = stage.fleet([("a", refuses()), ("b", refuses())]).await;
    let client = client(&stage, &fleet).await;
    let raw = transfer(&stage.account().await);
    let error =
        within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await.expect_err("it is refused");
    let node = error.as_error_resp().expect("it is the node's error");
    assert_eq!(node.message, "intrinsic gas too low");
    assert_eq!(counts(&fleet, ["a", "b"]), [1, 1]);
}

#[tokio::test]
async fn a_broadcast_whose_replies_are_all_lost_is_looked_up() {
    let stage = Stage::new().await;
    let loses = || Rule::on(SEND).then(Action::LoseReply).into();
    let fleet = stage.fleet([("a", loses()), ("b", loses())]).await;
    let client = client(&stage, &fleet).await;
    let signer = stage.account().await;
    let _ = within(client.provider::<Ethereum>().send_raw_transaction(&transfer(&signer)))
        .await
        .expect("it is found");
    assert_eq!(counts(&fleet, ["a", "b"]), [1, 1]);

    let drops = || Rule::on(SEND).then(Action::DropBefore);
    for name in ["a", "b"] {
        fleet.endpoint(name).set(drops());
    }
    let raw = transfer(&stage.account().await);
    let error =
        within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await.expect_err("nobody has it");
    let error = ours(&error);
    assert_eq!((error.kind(), error.delivery()), (&ErrorKind::Unavailable, backstay::Delivery::Unknown));
}

#[tokio::test]
async fn with_a_private_endpoint_a_broadcast_stays_there() {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("public", Program::new()), ("relay", Program::new())]).await;
    let mut config = stage.config(&fleet);
    config.provider.broadcast = Broadcast::AllHealthy;
    config.endpoints[1].role = Role::Private;
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    let raw = transfer(&stage.account().await);
    let _ =
        within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await.expect("the relay accepts");
    assert_eq!(counts(&fleet, ["public", "relay"]), [0, 1]);
}

#[tokio::test]
async fn an_intent_goes_to_all_at_once_too_and_takes_effect_once() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account_allowing(1).await;
    let mut config = stage.config(&fleet);
    config.provider.broadcast = Broadcast::AllHealthy;
    let client = within(Client::builder(config).signer(signer.clone()).connect()).await.expect("it connects");
    stage.registered(&client, "everywhere").await;
    assert_eq!(counts(&fleet, ["primary", "second"]), [1, 1]);
    assert_eq!(stage.registrations(signer.address()).await, 1);
}
