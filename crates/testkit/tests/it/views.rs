use std::time::{Duration, Instant};

use alloy::{
    eips::BlockId,
    network::{EthereumWallet, TransactionBuilder as _},
    primitives::{Address, B256, U256},
    providers::{Provider as _, ProviderBuilder},
    rpc::types::TransactionRequest,
    signers::local::PrivateKeySigner,
};
use backstay_testkit::{Action, Anvil, Fleet, Program, Rule, View};
use serde_json::{Value, json};

use crate::client::{Got, SOON, ask, chain, envelope, error, fleet, pay, payee, post, result};

/// A contract that logs on each call, without topics or data.
const LOGGER: &str = "0x60006000a000";

/// A chain of `blocks` payments, and the hash of the last.
async fn paid(blocks: u64) -> (Anvil, Value) {
    let chain = chain().await;
    let mut last = Value::Null;
    for _ in 0..blocks {
        last = pay(&chain).await;
    }
    (chain, last)
}

fn out_of_range(head: u64, asked: u64) -> (i64, String) {
    (-32602, format!("BlockOutOfRangeError: block height is {head} but requested was {asked}"))
}

#[tokio::test]
async fn state_is_that_of_the_shown_head() {
    let (chain, _) = paid(3).await;
    let fleet = fleet(&chain, View::Frozen { at: 2 }).await;
    let url = fleet.url("a");
    assert_eq!(result(&url, "eth_blockNumber", json!([])).await, "0x2");
    for block in
        [json!("latest"), json!("pending"), json!("0x2"), json!({ "blockNumber": "0x2" }), Value::Null]
    {
        assert_eq!(result(&url, "eth_getBalance", json!([payee(), block])).await, "0x2", "{block}");
    }
    assert_eq!(result(&url, "eth_getBalance", json!([payee()])).await, "0x2");
    assert_eq!(result(&url, "eth_getBalance", json!([payee(), "0x1"])).await, "0x1");
    assert_eq!(result(&url, "eth_getTransactionCount", json!([chain.accounts()[0], "pending"])).await, "0x2");
    assert_eq!(
        result(&url, "eth_getProof", json!([payee(), [], "latest"])).await["balance"],
        "0x2",
        "the block is the third parameter there"
    );
    for block in [json!("0x3"), json!({ "blockNumber": "0x3" })] {
        assert_eq!(error(&url, "eth_getBalance", json!([payee(), block])).await, out_of_range(2, 3));
    }
    let records = fleet.records();
    assert!(
        records.iter().filter(|call| call.method != "eth_blockNumber").all(|call| call.height == Some(2))
    );
    let unaltered = records.iter().filter(|call| !call.fault).count();
    assert_eq!(unaltered, 3, "those that named a block below the head");
}

#[tokio::test]
async fn calls_and_estimates_run_on_the_shown_state() {
    let (chain, _) = paid(1).await;
    // Answers with the number of its block.
    let contract = Address::repeat_byte(0x77);
    let rpc =
        |method: &'static str, params: Value| async { chain.rpc(method, params).await.expect("anvil does") };
    chain.mine(4).await.expect("anvil mines");
    rpc("anvil_setCode", json!([contract, "0x4360005260206000f3"])).await;
    chain.mine(1).await.expect("anvil mines");
    chain.mine(2).await.expect("anvil mines");
    let fleet = fleet(&chain, View::Frozen { at: 6 }).await;
    let url = fleet.url("a");
    let number = U256::from(6).to_be_bytes::<32>();
    for params in [json!([{ "to": contract }]), json!([{ "to": contract }, "pending"])] {
        let answer = result(&url, "eth_call", params).await;
        assert_eq!(answer, json!(alloy::hex::encode_prefixed(number)));
    }
    assert_eq!(error(&url, "eth_estimateGas", json!([{ "to": contract }, "0x7"])).await, out_of_range(6, 7));
    result(&url, "eth_estimateGas", json!([{ "to": contract }, "latest"])).await;
    result(&url, "eth_createAccessList", json!([{ "to": contract }])).await;
    assert_eq!(result(&url, "eth_getCode", json!([contract, "latest"])).await, "0x4360005260206000f3");
    assert_eq!(result(&url, "eth_getStorageAt", json!([contract, "0x0", "latest"])).await, json!(B256::ZERO));
}

#[tokio::test]
async fn blocks_receipts_and_transactions_above_the_head_are_not_there_yet() {
    let (chain, last) = paid(3).await;
    let fleet = fleet(&chain, View::Frozen { at: 2 }).await;
    let url = fleet.url("a");
    let hash = chain.rpc("eth_getBlockByNumber", json!(["0x3", false])).await.expect("anvil answers")["hash"]
        .clone();

    assert_eq!(result(&url, "eth_getBlockByNumber", json!(["latest", false])).await["number"], "0x2");
    assert_eq!(result(&url, "eth_getBlockByNumber", json!(["0x3", false])).await, Value::Null);
    assert_eq!(result(&url, "eth_getBlockByHash", json!([hash, false])).await, Value::Null);
    assert_eq!(result(&url, "eth_getBlockReceipts", json!(["0x3"])).await, Value::Null);
    assert_eq!(result(&url, "eth_getBlockReceipts", json!([hash])).await, Value::Null);
    assert_eq!(result(&url, "eth_getBlockReceipts", json!(["latest"])).await[0]["blockNumber"], "0x2");
    assert_eq!(result(&url, "eth_getTransactionReceipt", json!([last])).await, Value::Null);
    let pooled = result(&url, "eth_getTransactionByHash", json!([last])).await;
    assert_eq!(pooled["hash"], last);
    for field in ["blockHash", "blockNumber", "transactionIndex"] {
        assert_eq!(pooled[field], Value::Null, "{field}");
    }
    let fees = result(&url, "eth_feeHistory", json!(["0x1", "latest", []])).await;
    assert_eq!(fees["oldestBlock"], "0x2");

    for block in
        [hash.clone(), json!({ "blockHash": hash }), json!({ "blockHash": hash, "requireCanonical": true })]
    {
        assert_eq!(
            error(&url, "eth_getBalance", json!([payee(), block])).await,
            (-32001, "Resource not found".to_owned()),
            "{block}"
        );
    }
    assert_eq!(fleet.faults_fired(), fleet.records().len() as u64, "each of these was changed");

    // The same questions once the node has caught up.
    fleet.endpoint("a").set_view(View::Frozen { at: 3 });
    assert_eq!(result(&url, "eth_getBlockByHash", json!([hash, false])).await["number"], "0x3");
    assert_eq!(result(&url, "eth_getTransactionReceipt", json!([last])).await["blockNumber"], "0x3");
    assert_eq!(result(&url, "eth_getBalance", json!([payee(), { "blockHash": hash }])).await, "0x3");
    assert_eq!(fleet.records().iter().rev().take(3).filter(|call| call.fault).count(), 0);
}

#[tokio::test]
async fn logs_end_at_the_head() {
    let chain = chain().await;
    let logger = Address::repeat_byte(0x77);
    chain.rpc("anvil_setCode", json!([logger, LOGGER])).await.expect("anvil sets code");
    for height in 1..=3 {
        let call = json!([{ "from": chain.accounts()[0], "to": logger }]);
        chain.rpc("eth_sendTransaction", call).await.expect("anvil takes it");
        crate::client::mined(&chain, height).await;
    }
    let fleet = fleet(&chain, View::Frozen { at: 2 }).await;
    let url = fleet.url("a");
    let heights = |logs: Value| -> Vec<Value> {
        logs.as_array().expect("logs are a list").iter().map(|log| log["blockNumber"].clone()).collect()
    };
    let all = json!([{ "fromBlock": "0x1", "toBlock": "0x3" }]);
    assert_eq!(heights(chain.rpc("eth_getLogs", all.clone()).await.expect("anvil answers")).len(), 3);
    assert_eq!(heights(result(&url, "eth_getLogs", all).await), ["0x1", "0x2"]);
    assert_eq!(heights(result(&url, "eth_getLogs", json!([{ "fromBlock": "0x1" }])).await), ["0x1", "0x2"]);
    assert_eq!(heights(result(&url, "eth_getLogs", json!([{}])).await), ["0x2"]);
    assert_eq!(error(&url, "eth_getLogs", json!([{ "fromBlock": "0x3" }])).await, out_of_range(2, 3));
    let block = chain.rpc("eth_getBlockByNumber", json!(["0x3", false])).await.expect("anvil answers");
    assert_eq!(
        error(&url, "eth_getLogs", json!([{ "blockHash": block["hash"] }])).await,
        (-32000, "unknown block".to_owned())
    );
    assert_eq!(error(&url, "eth_newBlockFilter", json!([])).await.0, -32601);
}

#[tokio::test]
async fn refusals_are_those_of_a_fork_that_ends_there() {
    let (chain, _) = paid(3).await;
    let fork =
        Anvil::builder().timestamp(1_700_000_000).fork_at(chain.url(), 2).launch().await.expect("it forks");
    let fleet = fleet(&chain, View::Frozen { at: 2 }).await;
    let url = fleet.url("a");
    for (method, params) in [
        ("eth_blockNumber", json!([])),
        ("eth_getBalance", json!([payee(), "latest"])),
        ("eth_getBalance", json!([payee(), "0x3"])),
        ("eth_getTransactionCount", json!([chain.accounts()[0], "latest"])),
        ("eth_call", json!([{ "to": payee() }, "0x3"])),
        ("eth_estimateGas", json!([{ "to": payee() }, "0x3"])),
        ("eth_getBlockByNumber", json!(["0x3", false])),
        ("eth_getLogs", json!([{ "fromBlock": "0x3" }])),
        ("eth_getLogs", json!([{ "fromBlock": "0x1", "toBlock": "0x9" }])),
        ("eth_getBlockTransactionCountByNumber", json!(["0x3"])),
    ] {
        let ours = envelope(&url, method, params.clone()).await;
        assert_eq!(ours, envelope(fork.url(), method, params.clone()).await, "{method} {params}");
    }
}

#[tokio::test]
async fn safe_and_finalized_are_as_deep_below_the_shown_head() {
    let chain = Anvil::builder()
        .timestamp(1_700_000_000)
        .args(["--slots-in-an-epoch", "1"])
        .launch()
        .await
        .expect("anvil starts");
    chain.mine(9).await.expect("anvil mines");
    let fleet = fleet(&chain, View::Trailing { blocks: 4 }).await;
    let url = fleet.url("a");
    let number = |tag: &'static str| {
        let url = url.clone();
        async move { result(&url, "eth_getBlockByNumber", json!([tag, false])).await["number"].clone() }
    };
    assert_eq!(
        [number("latest").await, number("safe").await, number("finalized").await],
        ["0x5", "0x4", "0x3"]
    );
}

#[tokio::test]
async fn a_trailing_endpoint_keeps_its_distance() {
    let (chain, _) = paid(1).await;
    let fleet = fleet(&chain, View::Trailing { blocks: 1 }).await;
    let url = fleet.url("a");
    for shown in ["0x0", "0x1", "0x2"] {
        assert_eq!(result(&url, "eth_blockNumber", json!([])).await, shown);
        assert_eq!(result(&url, "eth_getBalance", json!([payee(), "latest"])).await, shown);
        pay(&chain).await;
    }
}

#[tokio::test]
async fn a_block_comes_up_after_its_time() {
    let (chain, _) = paid(1).await;
    let by = Duration::from_millis(600);
    let fleet = fleet(&chain, View::TrailingTime { by }).await;
    let url = fleet.url("a");
    assert_eq!(result(&url, "eth_blockNumber", json!([])).await, "0x1", "old blocks are there");
    let mined_after = Instant::now();
    let hash = pay(&chain).await;
    assert_eq!(result(&url, "eth_getTransactionReceipt", json!([hash])).await, Value::Null);
    let come_up = async { while result(&url, "eth_getTransactionReceipt", json!([hash])).await.is_null() {} };
    tokio::time::timeout(SOON, come_up).await.expect("it comes up");
    assert!(mined_after.elapsed() >= by, "{:?}", mined_after.elapsed());
    assert_eq!(result(&url, "eth_blockNumber", json!([])).await, "0x2");
    let last = fleet.records().pop().expect("there are records");
    assert!(!last.fault, "the chain says the same now");
}

#[tokio::test]
async fn replicas_take_turns_by_request() {
    let (chain, _) = paid(2).await;
    let view = View::Replicas(vec![View::Live, View::Trailing { blocks: 1 }, View::Frozen { at: 0 }]);
    let fleet = fleet(&chain, view).await;
    // One client on one kept connection.
    let provider = ProviderBuilder::new().connect_http(fleet.url("a"));
    let mut numbers = Vec::new();
    for _ in 0..6 {
        numbers.push(provider.get_block_number().await.expect("it answers"));
    }
    assert_eq!(numbers, [2, 1, 0, 2, 1, 0]);
    let records = fleet.records();
    let replicas: Vec<_> = records.iter().map(|call| call.replica).collect();
    assert_eq!(replicas[..3], [Some(0), Some(1), Some(2)]);
    assert_eq!(fleet.faults_fired(), 4);

    // A batch is one request.
    fleet.endpoint("a").set_view(View::alternating(View::Frozen { at: 1 }));
    let number = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#;
    for shown in ["0x2", "0x1"] {
        let got = post(&fleet.url("a"), &format!("[{number},{number}]")).await;
        let Got::Answer { body, .. } = got else { panic!("{got:?}") };
        let replies: Value = serde_json::from_str(&body).expect("JSON-RPC is JSON");
        assert_eq!([&replies[0]["result"], &replies[1]["result"]], [shown, shown]);
    }
}

#[tokio::test]
async fn transactions_go_through_a_node_that_lags_and_preconfirmations_outrun_its_state() {
    let chain = chain().await;
    let fleet = Fleet::builder()
        .endpoint("lagging", chain.url(), View::Frozen { at: 0 })
        .endpoint(
            "preconfirming",
            chain.url(),
            Program::new().view(View::Frozen { at: 0 }).live_for(["eth_getTransactionReceipt"]),
        )
        .start()
        .await
        .expect("the fleet starts");
    let signer = PrivateKeySigner::from_bytes(&chain.keys()[0]).expect("anvil's keys are keys");
    let from = signer.address();
    let provider =
        ProviderBuilder::new().wallet(EthereumWallet::from(signer)).connect_http(fleet.url("lagging"));
    let payment = TransactionRequest::default().with_to(Address::repeat_byte(0x11)).with_value(U256::from(1));
    let hash = *provider.send_transaction(payment).await.expect("it is passed on").tx_hash();
    crate::client::mined(&chain, 1).await;

    assert_eq!(provider.get_transaction_receipt(hash).await.expect("it answers"), None);
    assert_eq!(provider.get_transaction_count(from).await.expect("it answers"), 0);
    let pooled =
        provider.get_transaction_by_hash(hash).await.expect("it answers").expect("it is in the pool");
    assert_eq!(pooled.block_number, None);
    drop(provider);

    let provider = ProviderBuilder::new().connect_http(fleet.url("preconfirming"));
    let receipt = provider.get_transaction_receipt(hash).await.expect("it answers").expect("it is there");
    assert_eq!(provider.get_transaction_count(from).await.expect("it answers"), 0);
    let fenced = BlockId::hash_canonical(receipt.block_hash.expect("it is mined"));
    let refused = provider.get_balance(from).block_id(fenced).await.expect_err("the state is not there");
    assert_eq!(refused.as_error_resp().map(|error| error.code), Some(-32001));
}

#[tokio::test]
async fn a_view_that_changes_nothing_is_no_fault() {
    let (chain, _) = paid(1).await;
    let fleet = fleet(&chain, View::Frozen { at: 0 }).await;
    let url = fleet.url("a");
    // This account has not moved between the two heights.
    result(&url, "eth_getBalance", json!([chain.accounts()[5], "latest"])).await;
    result(&url, "eth_chainId", json!([])).await;
    assert_eq!(fleet.faults_fired(), 0);
    result(&url, "eth_getBalance", json!([payee(), "latest"])).await;
    assert_eq!(fleet.faults_fired(), 1);

    // Ahead of the chain there is nothing to hide, and the pool is visible.
    fleet.endpoint("a").set_view(View::Frozen { at: 9 });
    chain.rpc("evm_setAutomine", json!([false])).await.expect("anvil stops");
    let pooled = json!([{ "from": chain.accounts()[0], "to": payee(), "value": "0x1" }]);
    chain.rpc("eth_sendTransaction", pooled).await.expect("anvil takes it");
    assert_eq!(result(&url, "eth_getTransactionCount", json!([chain.accounts()[0], "pending"])).await, "0x2");
    assert_eq!(result(&url, "eth_getTransactionCount", json!([chain.accounts()[0], "latest"])).await, "0x1");
    assert_eq!(fleet.faults_fired(), 1);
}

#[tokio::test]
async fn rules_and_views_work_together_and_rules_survive_a_change_of_view() {
    let (chain, _) = paid(2).await;
    let rule = Rule::on("eth_blockNumber").times(2).then(Action::LoseReply);
    let hits = rule.hits();
    let fleet = fleet(&chain, Program::new().rule(rule).view(View::Frozen { at: 1 })).await;
    let url = fleet.url("a");
    assert_eq!(ask(&url, "eth_blockNumber", json!([])).await, Got::Closed);
    fleet.endpoint("a").set_view(View::Frozen { at: 0 });
    assert_eq!(ask(&url, "eth_blockNumber", json!([])).await, Got::Closed);
    assert_eq!(result(&url, "eth_blockNumber", json!([])).await, "0x0");
    assert_eq!(hits.get(), 2);
    fleet.endpoint("a").heal();
    assert_eq!(result(&url, "eth_blockNumber", json!([])).await, "0x2");
}
