use alloy::primitives::Address;
use backstay_testkit::{Anvil, Data, Gone, History, Kept, Program, RpcError, View};
use serde_json::{Value, json};

use crate::client::{chain, error, fleet, mined, pay, payee, result};

const MISSING: (i64, &str) = (-32000, "missing trie node");

fn refused() -> Gone {
    Gone::Error(RpcError::new(MISSING.0, MISSING.1))
}

/// A chain of four payments, and their hashes.
async fn paid() -> (Anvil, Vec<Value>) {
    let chain = chain().await;
    let mut hashes = Vec::new();
    for _ in 0..4 {
        hashes.push(pay(&chain).await);
    }
    (chain, hashes)
}

async fn block_hash(chain: &Anvil, block: &str) -> Value {
    chain.rpc("eth_getBlockByNumber", json!([block, false])).await.expect("anvil answers")["hash"].clone()
}

#[tokio::test]
async fn old_data_of_each_kind_is_null_and_recent_data_is_there() {
    let (chain, hashes) = paid().await;
    let fleet = fleet(&chain, History::pruned(Kept::Last(1), Gone::Null)).await;
    let url = fleet.url("a");
    let (old, recent) = (block_hash(&chain, "0x2").await, block_hash(&chain, "0x3").await);
    for (method, params) in [
        ("eth_getBalance", json!([payee(), "0x2"])),
        ("eth_getBalance", json!([payee(), { "blockHash": old }])),
        ("eth_call", json!([{ "to": payee() }, "earliest"])),
        ("eth_getBlockByNumber", json!(["0x0", false])),
        ("eth_getBlockByHash", json!([old, false])),
        ("eth_getBlockReceipts", json!(["0x2"])),
        ("eth_getTransactionReceipt", json!([hashes[1]])),
        ("eth_getTransactionByHash", json!([hashes[1]])),
    ] {
        assert_eq!(result(&url, method, params.clone()).await, Value::Null, "{method} {params}");
    }
    let records = fleet.records();
    assert!(records.iter().all(|call| call.fault && call.upstream.is_none()), "{records:#?}");

    let mark = fleet.mark();
    for (method, params) in [
        ("eth_getBalance", json!([payee(), "0x3"])),
        ("eth_getBalance", json!([payee(), { "blockHash": recent }])),
        ("eth_getBalance", json!([payee(), "latest"])),
        ("eth_getBlockByNumber", json!(["0x3", false])),
        ("eth_getBlockByHash", json!([recent, false])),
        ("eth_getBlockReceipts", json!(["0x3"])),
        ("eth_getTransactionReceipt", json!([hashes[2]])),
        ("eth_getTransactionByHash", json!([hashes[2]])),
        ("eth_call", json!([{ "to": payee() }])),
        ("eth_chainId", json!([])),
    ] {
        let ours = result(&url, method, params.clone()).await;
        assert_eq!(ours, chain.rpc(method, params).await.expect("anvil answers"), "{method}");
    }
    assert!(fleet.records_since(mark).iter().all(|call| !call.fault));

    // The bound moves with the head.
    pay(&chain).await;
    assert_eq!(result(&url, "eth_getBalance", json!([payee(), "0x3"])).await, Value::Null);
}

#[tokio::test]
async fn kinds_have_bounds_and_forms_of_their_own() {
    let (chain, hashes) = paid().await;
    let history = History::whole().without(Data::State, Kept::From(3), refused()).without(
        Data::Receipts,
        Kept::From(2),
        Gone::Null,
    );
    let fleet = fleet(&chain, history).await;
    let url = fleet.url("a");
    let missing = (MISSING.0, MISSING.1.to_owned());
    assert_eq!(error(&url, "eth_getBalance", json!([payee(), "0x2"])).await, missing);
    assert_eq!(error(&url, "debug_traceTransaction", json!([hashes[1]])).await, missing);
    assert_eq!(result(&url, "eth_getBalance", json!([payee(), "0x3"])).await, "0x3");
    assert_eq!(result(&url, "eth_getTransactionReceipt", json!([hashes[0]])).await, Value::Null);
    assert_eq!(result(&url, "eth_getTransactionReceipt", json!([hashes[1]])).await["blockNumber"], "0x2");
    assert_eq!(result(&url, "eth_getBlockByNumber", json!(["0x0", false])).await["number"], "0x0");
    assert_eq!(fleet.faults_fired(), 3);
}

#[tokio::test]
async fn logs_below_the_bound_are_left_out_or_refused() {
    let chain = chain().await;
    let logger = Address::repeat_byte(0x77);
    chain.rpc("anvil_setCode", json!([logger, "0x60006000a000"])).await.expect("anvil sets code");
    for height in 1..=3 {
        let call = json!([{ "from": chain.accounts()[0], "to": logger }]);
        chain.rpc("eth_sendTransaction", call).await.expect("anvil takes it");
        mined(&chain, height).await;
    }
    let fleet = fleet(&chain, History::whole().without(Data::Logs, Kept::From(2), Gone::Null)).await;
    let url = fleet.url("a");
    let from = |block: &str| json!([{ "fromBlock": block, "toBlock": "latest" }]);
    let heights = |logs: Value| -> Vec<Value> {
        logs.as_array().expect("logs are a list").iter().map(|log| log["blockNumber"].clone()).collect()
    };
    assert_eq!(heights(result(&url, "eth_getLogs", from("0x1")).await), ["0x2", "0x3"]);
    assert_eq!(heights(result(&url, "eth_getLogs", from("0x2")).await), ["0x2", "0x3"]);
    let old = json!([{ "blockHash": block_hash(&chain, "0x1").await }]);
    assert_eq!(result(&url, "eth_getLogs", old.clone()).await, json!([]));
    assert_eq!(fleet.faults_fired(), 2, "not where all that was asked for is held");

    fleet.endpoint("a").set(History::whole().without(Data::Logs, Kept::From(2), refused()));
    for params in [from("earliest"), from("0x1"), old] {
        assert_eq!(error(&url, "eth_getLogs", params).await.1, MISSING.1);
    }
    assert_eq!(heights(result(&url, "eth_getLogs", from("0x2")).await), ["0x2", "0x3"]);
}

#[tokio::test]
async fn a_node_that_lags_counts_from_its_own_head_and_keeps_its_history_when_it_catches_up() {
    let (chain, _) = paid().await;
    let pruned = History::pruned(Kept::Last(1), Gone::Null);
    let fleet = fleet(&chain, Program::new().view(View::Frozen { at: 2 }).history(pruned)).await;
    let url = fleet.url("a");
    assert_eq!(result(&url, "eth_getBalance", json!([payee(), "0x1"])).await, "0x1");
    assert_eq!(result(&url, "eth_getBalance", json!([payee(), "0x0"])).await, Value::Null);
    assert_eq!(result(&url, "eth_getBalance", json!([payee(), "latest"])).await, "0x2");
    fleet.endpoint("a").set_view(View::Live);
    assert_eq!(result(&url, "eth_getBalance", json!([payee(), "0x2"])).await, Value::Null);
    assert_eq!(result(&url, "eth_getBalance", json!([payee(), "0x3"])).await, "0x3");
    fleet.endpoint("a").heal();
    assert_eq!(result(&url, "eth_getBalance", json!([payee(), "0x0"])).await, "0x0");
}
