//! Typed lookups: what is absent comes with its reason, at a known number of calls.

use std::time::Duration;

use backstay::{
    Absent, Client, Config, Lookup,
    alloy::{
        consensus::BlockHeader,
        network::{AnyNetwork, Ethereum},
        primitives::B256,
        providers::Provider,
    },
};
use backstay_testkit::{Action, Fleet, Program, Rule};
use serde_json::{Value, json};

use super::{
    paper::{Paper, hash_of},
    stage::{config, within},
};

const HEAD: u64 = 0x1000;

async fn client_of<const N: usize>(endpoints: [(&str, Program); N]) -> (Fleet, Client) {
    let mut fleet = Fleet::builder();
    for (name, program) in endpoints {
        fleet = fleet.scripted(name, program);
    }
    let fleet = fleet.start().await.expect("the fleet starts");
    let client = connect(config(&fleet.urls())).await;
    (fleet, client)
}

async fn connect(mut config: Config) -> Client {
    config.provider.read.frontier_grace = Duration::from_millis(300);
    within(Client::builder(config).connect()).await.expect("it connects")
}

fn nothing(method: &str) -> Rule {
    Rule::on(method).then(Action::RpcResult(Value::Null))
}

fn calls(fleet: &Fleet, method: &str) -> [u64; 3] {
    ["one", "two", "three"].map(|name| fleet.count(name, method))
}

async fn block(client: &Client, number: u64) -> Result<u64, Absent> {
    match within(client.block::<Ethereum>(number)).await.expect("it answers") {
        Lookup::Found(block) => Ok(block.header.number()),
        Lookup::Absent(absent) => Err(absent),
    }
}

#[tokio::test]
async fn a_block_is_found_or_not_there_yet_or_pruned_or_nobody_has_it() {
    let chain = Paper::at(HEAD);
    let lacks = |words: Option<&'static str>| {
        let old = Rule::on("eth_getBlockByNumber").when(|call| call.params[0] == "0x10");
        chain.behind(old.then(match words {
            Some(words) => Action::error(-32_000, words),
            None => Action::RpcResult(Value::Null),
        }))
    };
    let (_fleet, client) = client_of([("one", lacks(None)), ("two", lacks(None))]).await;
    assert_eq!(block(&client, 0x20).await, Ok(0x20));
    assert_eq!(block(&client, 0x10).await, Err(Absent::NobodyHasIt));
    for ahead in [HEAD + 1, HEAD * 5] {
        assert_eq!(block(&client, ahead).await, Err(Absent::NotYet { head: Some(HEAD) }));
    }
    let pruned = Some("block #16 has been pruned; earliest available is #32");
    let (_fleet, client) = client_of([("one", lacks(pruned)), ("two", lacks(pruned))]).await;
    assert_eq!(block(&client, 0x10).await, Err(Absent::Pruned { height: 0x10, oldest: Some(0x20) }));
    let (_fleet, client) =
        client_of([("one", lacks(None)), ("two", lacks(pruned)), ("three", chain.node())]).await;
    assert_eq!(block(&client, 0x10).await, Ok(0x10));
}

#[tokio::test]
async fn a_block_by_its_hash_has_one_second_opinion_and_with_its_height_all_there_are() {
    let chain = Paper::at(HEAD);
    let lacks = || chain.behind(nothing("eth_getBlockByHash"));
    let three = || [("one", lacks()), ("two", lacks()), ("three", chain.node())];
    let (fleet, client) = client_of(three()).await;
    let hash = hash_of(0x10);
    for expected in [[1, 1, 0], [2, 1, 0]] {
        let found = within(client.block_by_hash::<Ethereum>(hash, None)).await.expect("it answers");
        assert_eq!(found.found(), None);
        assert_eq!(calls(&fleet, "eth_getBlockByHash"), expected, "one second opinion for each hash");
    }
    let found = within(client.block_by_hash::<Ethereum>(hash, Some(0x10))).await.expect("it answers");
    assert_eq!(found.found().map(|block| block.header.number()), Some(0x10));
    // Through alloy null stays null, and nobody else is asked.
    let (fleet, client) = client_of(three()).await;
    let block = within(client.provider::<Ethereum>().get_block_by_hash(hash)).await;
    assert_eq!(block.expect("it answers"), None);
    assert_eq!(calls(&fleet, "eth_getBlockByHash"), [1, 0, 0]);
}

#[tokio::test]
async fn a_receipt_that_is_absent_says_whether_its_transaction_waits() {
    let chain = Paper::at(HEAD);
    let hash = B256::repeat_byte(7);
    let (fleet, client) = client_of([("one", chain.node()), ("two", chain.node())]).await;
    let receipt = async |client: &Client| match within(client.receipt::<AnyNetwork>(hash, None))
        .await
        .expect("it answers")
    {
        Lookup::Found(_) => panic!("nobody has it"),
        Lookup::Absent(absent) => absent,
    };
    assert_eq!(receipt(&client).await, Absent::NobodyHasIt);
    assert_eq!(calls(&fleet, "eth_getTransactionReceipt"), [1, 1, 0]);
    assert_eq!(receipt(&client).await, Absent::Unknown, "the second is not asked again");
    let pending = Rule::on("eth_getTransactionByHash").then(Action::RpcResult(json!({"hash": hash})));
    let (_fleet, client) = client_of([("one", chain.behind(pending))]).await;
    assert_eq!(receipt(&client).await, Absent::NotYet { head: Some(HEAD) });
    let transaction = within(client.transaction::<AnyNetwork>(B256::repeat_byte(8), Some(HEAD - 1))).await;
    assert!(transaction.is_err(), "half a transaction is none");
}
