//! Clients that are dropped or killed, and journals that outlive them.

use backstay::ErrorKind;
use backstay_testkit::{Action, Rule};

use crate::stage::{SOON, Stage, sends, within};

#[tokio::test]
async fn a_client_dropped_after_each_send_finishes_its_intent_once() {
    for sends_before in [1, 2] {
        let stage = Stage::new().await;
        let fleet = stage.sound().await;
        let signer = stage.account().await;
        let client = stage.client(&fleet, &signer).await;
        // The receipt of the last send never comes, so the client is dropped while it waits for it.
        for name in ["primary", "second"] {
            let fleet_seen = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
            let counted = fleet_seen.clone();
            let count = Rule::on("eth_sendRawTransaction").before(move |_| {
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            });
            let enough = move |_: &_| fleet_seen.load(std::sync::atomic::Ordering::SeqCst) >= sends_before;
            let none = Rule::on("eth_getTransactionReceipt").when(enough);
            let none = none.then(Action::RpcResult(serde_json::Value::Null));
            fleet.endpoint(name).set(backstay_testkit::Program::new().rule(count).rule(none));
        }
        let mark = fleet.mark();
        let intent =
            stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down");
        let waiting = |call: &backstay_testkit::Call| {
            call.method == "eth_getTransactionReceipt" && call.fault && call.upstream.is_none()
        };
        fleet.wait_for(mark, SOON, waiting).await.expect("it waits for the receipt");
        assert_eq!(sends(&fleet).len() as u64, sends_before);
        drop(client);
        let error = within(intent.outcome()).await.expect_err("nobody works on it");
        assert_eq!(*error.kind(), ErrorKind::Closed, "{error}");

        for name in ["primary", "second"] {
            fleet.endpoint(name).heal();
        }
        let client = stage.client(&fleet, &signer).await;
        stage.registered(&client, "a").await;
        let address = signer.address();
        assert_eq!((stage.approvals(address).await, stage.registrations(address).await), (1, 1));
        assert_eq!(stage.nonce(address).await, 2);
    }
}

#[tokio::test]
async fn a_finished_key_has_the_same_outcome_after_a_reconnect_and_sends_nothing() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    let outcome = within(stage.registered(&client, "a").await.outcome()).await.expect("it has ended");
    drop(client);
    let sent = sends(&fleet).len();
    let client = stage.client(&fleet, &signer).await;
    let again = stage.register(&client, "a").send().await.expect("it has ended");
    assert_eq!(within(again.outcome()).await.expect("it has ended"), outcome);
    assert_eq!(sends(&fleet).len(), sent);
    assert_eq!(stage.nonce(signer.address()).await, 2);
}

#[tokio::test]
async fn a_finished_key_has_its_outcome_while_every_endpoint_is_dead() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.client(&fleet, &stage.account().await).await;
    let outcome = within(stage.registered(&client, "a").await.outcome()).await.expect("it has ended");
    for name in ["primary", "second"] {
        fleet.endpoint(name).kill().await;
    }
    let again = stage.register(&client, "a").send().await.expect("it has ended");
    assert_eq!(within(again.outcome()).await.expect("it has ended"), outcome);
}

#[tokio::test]
async fn two_clients_over_one_journal_send_an_intent_once() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let (one, other) = tokio::join!(stage.client(&fleet, &signer), stage.client(&fleet, &signer));
    tokio::join!(stage.registered(&one, "a"), stage.registered(&other, "a"));
    let address = signer.address();
    assert_eq!((stage.approvals(address).await, stage.registrations(address).await), (1, 1));
    assert_eq!(stage.nonce(address).await, 2);
}

#[tokio::test]
async fn two_clients_over_one_journal_share_an_accounts_nonces() {
    const EACH: u64 = 5;
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account_allowing(2 * EACH).await;
    let before = stage.nonce(signer.address()).await;
    let (one, other) = tokio::join!(stage.client(&fleet, &signer), stage.client(&fleet, &signer));
    let register = async |client: &backstay::Client, name: String| {
        let intent = stage.register(client, &name).send().await.expect("it is written down");
        within(intent.outcome()).await.expect("it ends well").included().expect("it is included");
    };
    let all = (0..EACH).flat_map(|index| {
        [register(&one, format!("one {index}")), register(&other, format!("other {index}"))]
    });
    futures::future::join_all(all).await;
    assert_eq!(stage.registrations(signer.address()).await, 2 * EACH);
    assert_eq!(stage.nonce(signer.address()).await, before + 2 * EACH);
}

#[tokio::test]
async fn a_dropped_wait_does_not_stop_the_intent() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    drop(stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down"));
    crate::stage::eventually("it is registered", async || stage.registrations(signer.address()).await == 1)
        .await;
    stage.registered(&client, "a").await;
    assert_eq!(stage.nonce(signer.address()).await, 2);
}

#[tokio::test]
async fn what_no_endpoint_took_is_sent_again_though_the_chain_has_no_new_blocks() {
    for vanishing in [Action::DropBefore, Action::too_many_requests(1)] {
        let stage = Stage::new().await;
        let once = || Rule::on("eth_sendRawTransaction").times(1).then(vanishing.clone()).into();
        let fleet = stage.fleet([("primary", once()), ("second", once())]).await;
        let signer = stage.account().await;
        let client = stage.client(&fleet, &signer).await;
        stage.registered(&client, "a").await;
        assert!(fleet.faults_fired() >= 2, "{vanishing:?}");
        let address = signer.address();
        assert_eq!((stage.approvals(address).await, stage.registrations(address).await), (1, 1));
        assert_eq!(stage.nonce(address).await, 2);
    }
}

#[tokio::test]
async fn an_intent_survives_that_every_endpoint_is_gone_for_a_while() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let mut config = stage.config(&fleet);
    config.provider.pool.breaker.cooldown = std::time::Duration::from_millis(100);
    let builder =
        backstay::Client::builder(config).signer(signer.clone()).flow(backstay::AllowanceFlow::new());
    let client = within(builder.connect()).await.expect("it connects");
    let mark = fleet.mark();
    let intent = stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down");
    fleet.wait_for(mark, SOON, |call| call.raw_tx.is_some()).await.expect("the approve is sent");
    for name in ["primary", "second"] {
        fleet.endpoint(name).kill().await;
    }
    crate::stage::eventually("both breakers are open", async || {
        client.status().endpoints.iter().all(|status| status.excluded.is_some())
    })
    .await;
    for name in ["primary", "second"] {
        fleet.endpoint(name).revive().await.expect("the port is ours");
    }
    within(intent.outcome()).await.expect("it goes on").included().expect("it is included");
    let address = signer.address();
    assert_eq!((stage.approvals(address).await, stage.registrations(address).await), (1, 1));
}

#[tokio::test]
async fn an_intent_is_resumed_by_its_key_and_the_others_stay() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    for name in ["a", "b"] {
        // It stops: there is no allowance, and no grant.
        let intent = stage.register(&client, name).send().await.expect("it is written down");
        within(intent.outcome()).await.expect_err("it may not approve");
    }
    within(client.close()).await.expect("the line is released");

    let mut config = stage.config(&fleet);
    config.resume = backstay::Resume::OnDemand;
    let connect = async |builder: backstay::Builder| within(builder.connect()).await.expect("it connects");
    let reader = connect(backstay::Client::builder(config.clone())).await;
    let error = within(reader.resume_intent("register:a")).await.expect_err("nobody signs");
    let account = Some(signer.address());
    assert_eq!(*error.kind(), ErrorKind::SignerMissing { account }, "{error}");

    let client = connect(backstay::Client::builder(config).signer(signer.clone())).await;
    assert!(within(client.resume_intent("register:c")).await.expect("the journal is read").is_none());
    let journal =
        backstay::journal::open_existing(stage.folder.path().join("journal.db"), &Default::default()).await;
    let journal = journal.expect("it is there");
    let seen = async |name: &str| {
        let key = format!("register:{name}");
        journal.load(e2e::story::CHAIN_ID, &key).await.expect("it is read").expect("it is there").seen()
    };
    let before = (seen("a").await, seen("b").await);
    let intent = within(client.resume_intent("register:a")).await.expect("it goes on").expect("it is there");
    let error = within(intent.outcome()).await.expect_err("it stops again");
    assert_eq!(error.delivery(), backstay::Delivery::NotSent, "{error}");
    let after = (seen("a").await, seen("b").await);
    assert!(after.0 >= before.0 + 2, "it was asked for, and has stopped: {before:?} {after:?}");
    assert_eq!(after.1, before.1, "the other stays as it is");
}
