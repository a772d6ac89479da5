//! Clients that were stopped for longer than their claims, and wake up.

use backstay::{Client, alloy::signers::local::PrivateKeySigner, journal::Record};
use backstay_testkit::{Call, Fleet, View};
use futures::future::join;

use super::{
    builder, config, connect, journal, no_blocks, paid, pay, recorded, records, sent,
    watched::{Frozen, Watched},
    while_mining,
};
use crate::stage::{SOON, Stage, eventually, sends, within};

async fn watched_client(stage: &Stage, fleet: &Fleet, signer: &PrivateKeySigner) -> (Client, Watched) {
    let watched = Watched::over(journal(stage).await);
    let client = builder(config(stage, fleet), signer).journal(watched.clone()).connect();
    (within(client).await.expect("it connects"), watched)
}

#[tokio::test]
async fn a_client_that_slept_while_its_transaction_waited_is_refused_and_follows() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let (client, watched) = watched_client(&stage, &fleet, &signer).await;
    let intent = pay(&client, "one").send().await.expect("it is written down");
    recorded(&watched, "one", |record| matches!(record, Record::Submitted { .. })).await;
    watched.freeze(Frozen::Everything);
    let other = connect(&stage, &other_fleet, &signer).await;
    let same = pay(&other, "one").send().await.expect("it is there");
    let there = while_mining(&stage, same.outcome()).await.expect("it ends well");
    there.included().expect("it is included");
    // It has seen the receipt too, and wants to write that down.
    watched.holds_an_append().await;
    watched.thaw();
    assert_eq!(within(intent.outcome()).await.expect("it is told"), there);
    assert!(watched.refused() > 0);
    let there = records(&watched, "one").await;
    let included = there.iter().filter(|record| matches!(record, Record::Included { .. })).count();
    assert_eq!(included, 1, "{there:?}");
    assert_eq!(stage.nonce(signer.address()).await, 1);
}

#[tokio::test]
async fn a_client_that_slept_until_its_intent_was_pruned_follows_all_the_same() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let (client, watched) = watched_client(&stage, &fleet, &signer).await;
    let intent = pay(&client, "one").send().await.expect("it is written down");
    recorded(&watched, "one", |record| matches!(record, Record::Submitted { .. })).await;
    watched.freeze(Frozen::Everything);
    let other = connect(&stage, &other_fleet, &signer).await;
    let same = pay(&other, "one").send().await.expect("it is there");
    let there = while_mining(&stage, same.outcome()).await.expect("it ends well");
    watched.holds_an_append().await;
    assert_eq!(other.prune(std::time::Duration::ZERO).await.expect("it prunes"), 1);
    watched.thaw();
    assert_eq!(within(intent.outcome()).await.expect("it is told"), there);
}

#[tokio::test]
async fn a_client_that_slept_before_it_could_write_down_what_it_signed_sends_nothing() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let (fleet, other_fleet) = (stage.sound().await, stage.sound().await);
    let (client, watched) = watched_client(&stage, &fleet, &signer).await;
    watched.freeze(Frozen::FromSigningOn);
    let one = pay(&client, "one").send().await.expect("it is written down");
    watched.holds_an_append().await;
    let other = connect(&stage, &other_fleet, &signer).await;
    sent(&other_fleet).await;
    // The other one still runs it.
    watched.thaw();
    eventually("it was refused", async || watched.refused() > 0).await;
    let two = pay(&client, "two").send().await.expect("it is written down");
    let (one, two) = while_mining(&stage, join(one.outcome(), two.outcome())).await;
    for outcome in [one, two] {
        outcome.expect("it ends well").included().expect("it is included");
    }
    assert!(sends(&fleet).iter().all(|call| call.tx_hash() != sends(&other_fleet)[0].tx_hash()));
    assert_eq!(stage.nonce(signer.address()).await, 2);
    for name in ["one", "two"] {
        assert_eq!(paid(&stage, name).await.to::<u64>(), 1);
        let there = records(&watched, name).await;
        let signed = there.iter().filter(|record| matches!(record, Record::Signed { .. })).count();
        assert_eq!(signed, 1, "{there:?}");
    }
    drop(other);
}

#[tokio::test]
async fn nothing_is_signed_at_a_view_from_before_what_another_client_has_done() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    // The endpoints of the second client have not come to the block of the first one's payment.
    let head = stage.chain.head().await.expect("anvil answers");
    let late = || View::Frozen { at: head }.into();
    let (fleet, late) = (stage.sound().await, stage.fleet([("primary", late()), ("second", late())]).await);
    let other = connect(&stage, &late, &signer).await;
    let client = connect(&stage, &fleet, &signer).await;
    let one = pay(&client, "one").send().await.expect("it is written down");
    within(one.outcome()).await.expect("it ends well").included().expect("it is included");
    within(client.close()).await.expect("the line is released");

    let mark = late.mark();
    let two = pay(&other, "two").send().await.expect("it is written down");
    let counted = |call: &Call| call.method == "eth_getTransactionCount";
    late.wait_for(mark, SOON, counted).await.expect("it looks");
    let again = || late.records_since(mark).into_iter().filter(counted).count() >= 3;
    eventually("it looks again and again", async || again()).await;
    assert_eq!(records(&journal(&stage).await, "two").await.len(), 1, "nothing is signed");
    for name in ["primary", "second"] {
        late.endpoint(name).set_view(View::Live);
    }
    within(two.outcome()).await.expect("it ends well").included().expect("it is included");
    assert_eq!(stage.nonce(signer.address()).await, 2);
}
