//! The records of an intent as a stream.

use std::time::Duration;

use backstay::{
    Intent,
    journal::{Entry, Record},
};
use futures::StreamExt as _;
use tokio::task::JoinHandle;

use super::{connect, journal, no_blocks, pay, reader, sent, stored, while_mining};
use crate::stage::{SOON, Stage, within};

/// Collects all that a handle's stream gives, to its end.
fn collected(intent: &Intent) -> JoinHandle<Vec<Entry>> {
    let events = intent.events().map(|event| event.expect("the journal reads")).collect();
    tokio::spawn(async move { tokio::time::timeout(SOON, events).await.expect("it ends") })
}

#[tokio::test]
async fn the_records_of_an_intent_are_a_stream_in_any_client_and_across_a_restart() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    no_blocks(&stage).await;
    let fleet = stage.sound().await;
    let client = connect(&stage, &fleet, &signer).await;
    let reads_only = reader(&stage, &fleet).await;
    let intent = pay(&client, "one").send().await.expect("it is written down");
    let found = reads_only.find_intent("one").await.expect("the journal reads").expect("it is there");
    for handle in [&intent, &found] {
        let mut events = Box::pin(handle.events());
        let first = within(events.next()).await.expect("there is one").expect("the journal reads");
        assert!(matches!(first.record, Record::Opened { .. }), "{first:?}");
    }
    let (here, there) = (collected(&intent), collected(&found));
    sent(&fleet).await;
    drop(client);
    let until_then = within(here).await.expect("it does not panic");

    let client = connect(&stage, &fleet, &signer).await;
    let again = client.find_intent("one").await.expect("the journal reads").expect("it is there");
    let again = collected(&again);
    let there = while_mining(&stage, there).await.expect("it does not panic");
    let again = within(again).await.expect("it does not panic");
    let all = stored(&journal(&stage).await, "one").await.entries;
    assert!(matches!(all.last().expect("there are some").record, Record::Finished { .. }), "{all:?}");
    assert_eq!(there, all);
    assert_eq!(again, all);
    assert!(all.starts_with(&until_then) && until_then.len() < all.len(), "{until_then:?}");

    // It has ended, and then it is pruned.
    assert_eq!(within(collected(&found)).await.expect("it does not panic"), all);
    assert_eq!(client.prune(Duration::ZERO).await.expect("it prunes"), 1);
    assert_eq!(within(collected(&found)).await.expect("it does not panic"), []);
}
