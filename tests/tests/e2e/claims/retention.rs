//! Journals that stay small.

use std::{fs, time::Duration};

use backstay::journal::{Journal as _, Query, State};
use futures::future::join_all;

use super::{config, connect_with, file, journal, let_go, pay};
use crate::stage::{Stage, eventually, within};

/// What the file grows by, in bytes.
const PAGE: u64 = 4_096;
const ROUNDS: usize = 4;
const EACH: usize = 75;

#[tokio::test]
async fn what_ended_long_ago_leaves_the_file_as_new_intents_come() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let fleet = stage.sound().await;
    let mut pages = Vec::new();
    for round in 0..ROUNDS {
        let mut config = config(&stage, &fleet);
        config.retention.finished = Duration::from_secs(1);
        config.retention.every = Duration::from_millis(200);
        let client = connect_with(config, &signer).await;
        let one = async |index| {
            let intent = pay(&client, &format!("{round}:{index}")).send().await.expect("it is written down");
            within(intent.outcome()).await.expect("it ends well").included().expect("it is included");
        };
        join_all((0..EACH).map(one)).await;
        let watched = journal(&stage).await;
        let whole = Query { states: vec![State::Due, State::Stopped, State::Finished], ..Query::default() };
        eventually("all are pruned", async || watched.list(&whole).await.expect("it reads").is_empty()).await;
        watched.close().await.expect("it closes");
        drop(client);
        let_go(&stage).await;
        pages.push(fs::metadata(file(&stage)).expect("it is there").len() / PAGE);
    }
    // What is left of an intent takes less than a kilobyte, and more than three when it is whole.
    let room = ((ROUNDS - 1) * EACH) as u64 * 1_024 / PAGE;
    assert!(pages[ROUNDS - 1] <= pages[0] + room, "{pages:?}");
}
