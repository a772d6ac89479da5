//! Clients that are closed.

use backstay::ErrorKind;

use super::{FOR_EVER, config, connect_with, no_blocks, paid, pay, sent, while_mining};
use crate::stage::{SOON, Stage, sends, within};

#[tokio::test]
async fn a_closed_client_does_nothing_more_and_lets_others_go_on_at_once() {
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
    let intent = pay(&client, "one").send().await.expect("it is written down");
    sent(&fleet).await;
    let waiting = tokio::spawn({
        let intent = intent.clone();
        async move { intent.outcome().await }
    });
    within(client.close()).await.expect("it closes");
    let error = within(waiting).await.expect("it does not panic").expect_err("nobody works on it here");
    assert_eq!(*error.kind(), ErrorKind::Closed, "{error}");
    let error = within(intent.outcome()).await.expect_err("nobody works on it here");
    assert_eq!(*error.kind(), ErrorKind::Closed, "{error}");
    fleet.wait_until_idle(SOON).await.expect("nothing is under way");

    let mark = fleet.mark();
    let error = pay(&client, "two").send().await.expect_err("it is closed");
    assert_eq!(*error.kind(), ErrorKind::Closed, "{error}");
    assert_eq!(*client.resume().await.expect_err("it is closed").kind(), ErrorKind::Closed);
    let other = connect_with(lasting(&other_fleet), &signer).await;
    let found = other.find_intent("one").await.expect("the journal reads").expect("it is there");
    let outcome = while_mining(&stage, found.outcome()).await.expect("it ends well");
    outcome.included().expect("it is included");
    // What has ended is told by a closed client too.
    assert_eq!(within(intent.outcome()).await.expect("it is told"), outcome);
    let worked = fleet.records_since(mark).into_iter();
    let worked = worked.filter(|call| call.method.starts_with("eth_send") || call.method.contains("Receipt"));
    assert_eq!(worked.count(), 0);
    assert!(other.find_intent("two").await.expect("the journal reads").is_none());
    assert_eq!(stage.nonce(signer.address()).await, 1);
    assert_eq!(paid(&stage, "one").await.to::<u64>(), 1);
    within(client.close()).await.expect("it may be closed again");
    assert!(sends(&fleet).len() <= 2);
}

#[tokio::test]
async fn a_line_is_free_at_once_whenever_its_client_is_closed() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let fleet = stage.sound().await;
    // Closed at one time or another of a claim that is being made.
    for index in 0..8 {
        let mut config = config(&stage, &fleet);
        config.claims.ttl = FOR_EVER;
        let client = connect_with(config, &signer).await;
        let intent = pay(&client, &format!("intent {index}")).send().await.expect("it is written down");
        for _ in 0..index {
            tokio::task::yield_now().await;
        }
        within(client.close()).await.expect("it closes");
        drop(intent);
    }
    let mut config = config(&stage, &fleet);
    config.claims.ttl = FOR_EVER;
    let client = connect_with(config, &signer).await;
    for index in 0..8 {
        let key = format!("intent {index}");
        let found = client.find_intent(&key).await.expect("the journal reads").expect("it is there");
        within(found.outcome()).await.expect("it ends well").included().expect("it is included");
    }
    assert_eq!(stage.nonce(signer.address()).await, 8);
}
