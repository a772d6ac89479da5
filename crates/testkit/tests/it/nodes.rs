use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use backstay_testkit::{Anvil, Error};
use serde_json::json;

use crate::client::{Got, SOON, ask, chain};

/// Set in the copy of this test binary that is to be killed.
const VICTIM: &str = "TESTKIT_VICTIM";

async fn genesis(node: &Anvil) -> serde_json::Value {
    node.rpc("eth_getBlockByNumber", json!(["0x0", false])).await.expect("anvil answers")["hash"].clone()
}

async fn until_refused(url: &url::Url) {
    let gone = async {
        while ask(url, "eth_chainId", json!([])).await != Got::Refused {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("the node ends");
}

#[tokio::test]
async fn the_timestamp_alone_decides_the_genesis() {
    let builder = || Anvil::builder().timestamp(1_700_000_000);
    let plain = chain().await;
    let other_id = builder().chain_id(1337).launch().await.expect("anvil starts");
    let other_time = builder().timestamp(1_700_000_001).launch().await.expect("anvil starts");
    assert_eq!(other_id.rpc("eth_chainId", json!([])).await.expect("anvil answers"), "0x539");
    assert_eq!(genesis(&plain).await, genesis(&other_id).await);
    assert_ne!(genesis(&plain).await, genesis(&other_time).await);
    let [one, two] = [
        Anvil::builder().launch().await.expect("anvil starts"),
        Anvil::builder().launch().await.expect("anvil starts"),
    ];
    assert_eq!(genesis(&one).await, genesis(&two).await, "without a timestamp they share one");
}

#[tokio::test]
async fn a_fork_starts_at_its_block() {
    let origin = chain().await;
    origin.mine(5).await.expect("anvil mines");
    let at = Anvil::builder().fork_at(origin.url(), 3).launch().await.expect("anvil forks");
    let head = Anvil::builder().fork(origin.url()).launch().await.expect("anvil forks");
    assert_eq!(at.head().await.expect("anvil answers"), 3);
    assert_eq!(head.head().await.expect("anvil answers"), 5);
    assert_eq!(genesis(&at).await, genesis(&origin).await);
}

#[tokio::test]
async fn blocks_come_by_time_where_asked() {
    let chain = Anvil::builder().block_time(Duration::from_secs(1)).launch().await.expect("anvil starts");
    crate::client::mined(&chain, 1).await;
    assert_eq!(chain.accounts().len(), 10);
    assert_eq!(chain.keys().len(), 10);
    assert!(chain.output().contains("eth_blockNumber"), "{}", chain.output());
}

#[tokio::test]
async fn a_dropped_node_is_gone() {
    let chain = chain().await;
    let url = chain.url().clone();
    drop(chain);
    assert_eq!(ask(&url, "eth_chainId", json!([])).await, Got::Refused);
}

#[tokio::test]
async fn a_node_that_cannot_start_says_why() {
    let bad = Anvil::builder().arg("--no-such-flag").launch().await;
    let Err(error @ Error::NotListening { .. }) = bad else { panic!("{bad:?}") };
    assert!(error.to_string().contains("--no-such-flag"), "{error}");
    let none = Anvil::builder().program("/nonexistent/anvil").launch().await;
    assert!(matches!(none, Err(Error::Spawn { .. })));
    let silent =
        Anvil::builder().args(["--quiet"]).startup_timeout(Duration::from_millis(300)).launch().await;
    assert!(matches!(silent, Err(Error::NotListening { .. })));
}

#[cfg(unix)]
#[tokio::test]
async fn a_node_does_not_outlive_a_process_that_is_killed() {
    // The process that is killed is this very test, started again.
    if std::env::var_os(VICTIM).is_some() {
        return be_the_victim().await;
    }
    let this = std::env::current_exe().expect("a test has a binary");
    let mut victim = Command::new(this)
        .args(["--exact", "nodes::a_node_does_not_outlive_a_process_that_is_killed", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary runs");
    let lines = BufReader::new(victim.stdout.take().expect("it is piped")).lines();
    let url: url::Url = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("node at ").and_then(|(_, url)| url.parse().ok()))
        .expect("the victim starts a node");
    assert!(matches!(ask(&url, "eth_chainId", json!([])).await, Got::Answer { .. }));
    // SIGKILL: nothing is dropped over there.
    victim.kill().expect("it is ours to kill");
    victim.wait().expect("it ends");
    until_refused(&url).await;
}

#[cfg(unix)]
async fn be_the_victim() {
    let chain = chain().await;
    println!("node at {}", chain.url());
    // Bounded, should nobody kill it.
    tokio::time::sleep(Duration::from_secs(60)).await;
}
