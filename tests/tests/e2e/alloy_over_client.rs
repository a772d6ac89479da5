//! What alloy builds on a provider works over the client unchanged: multicalls, pollers, fillers, and the networks
//! of rollups.

use std::time::Duration;

use backstay::{
    Client,
    alloy::{
        consensus::Typed2718,
        network::{AnyNetwork, AnyTxEnvelope, Ethereum, TransactionBuilder},
        primitives::{Address, B256, U256, address, bytes},
        providers::{Provider, ProviderBuilder},
        rpc::types::{Filter, TransactionRequest},
        transports::{RpcError, TransportError},
    },
};
use backstay_testkit::{
    Action, Fleet, Program, Reply, Rule,
    sample::{ContextGraphs, Parameters, Token, deploy_multicall},
};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::{
    paper::Paper,
    stage::{Stage, block_number, config, eventually, key, status, within},
};

#[tokio::test]
async fn a_multicall_is_one_call_and_fails_over_as_one() {
    let stage = Stage::new().await;
    deploy_multicall(&stage.chain).await.expect("it deploys");
    let account = stage.account().await.address();
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let token = Token::new(stage.contracts.token, &provider);
    let parameters = Parameters::new(stage.contracts.parameters, &provider);
    let reads = provider
        .multicall()
        .add(token.balanceOf(account))
        .add(parameters.deposit())
        .get_eth_balance(account)
        .get_block_number();
    let head = stage.chain.head().await.expect("anvil answers");
    let expected = (
        stage.contracts.deposit * U256::from(100),
        stage.contracts.deposit,
        U256::from(10).pow(U256::from(20)),
        U256::from(head),
    );
    let check = async |asked: (u64, u64)| {
        let (tokens, deposit, ether, number) = within(reads.aggregate()).await.expect("it is answered");
        assert_eq!((tokens, deposit, ether), (expected.0, expected.1, expected.2));
        // Alloy asks at the pending block, as for any call without one.
        assert!(number == expected.3 || number == expected.3 + U256::ONE, "{number}");
        assert_eq!((fleet.count("primary", "eth_call"), fleet.count("second", "eth_call")), asked);
    };
    check((1, 0)).await;
    fleet.endpoint("primary").set(Rule::on("eth_call").then(Action::http(502, "bad gateway")));
    check((2, 1)).await;
    assert_eq!(client.failovers(), 1);
}

#[tokio::test]
async fn a_revert_inside_a_multicall_is_that_calls_alone() {
    let stage = Stage::new().await;
    deploy_multicall(&stage.chain).await.expect("it deploys");
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let graphs = ContextGraphs::new(stage.contracts.graphs, &provider);
    let parameters = Parameters::new(stage.contracts.parameters, &provider);
    let reads = provider.multicall().add(graphs.createContextGraph(key("a"))).add(parameters.deposit());
    let (refused, deposit) = within(reads.try_aggregate(false)).await.expect("it is answered");
    let revert = refused.err().expect("there is no allowance").return_data;
    assert!(revert.starts_with(&selector("TooLowAllowance(address,uint256,uint256)")), "{revert}");
    assert_eq!(deposit.expect("it is answered"), stage.contracts.deposit);
    within(reads.aggregate()).await.err().expect("one of them fails");
    assert_eq!((fleet.count("primary", "eth_call"), fleet.count("second", "eth_call")), (2, 0));
    assert_eq!(client.failovers(), 0, "a revert is an answer");
}

fn selector(signature: &str) -> [u8; 4] {
    let hash = backstay::alloy::primitives::keccak256(signature);
    [hash[0], hash[1], hash[2], hash[3]]
}

/// How often pollers look.
const POLL: Duration = Duration::from_millis(20);

#[tokio::test]
async fn pollers_see_blocks_logs_and_pending_transactions() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let minted = Filter::new().address(stage.contracts.token).event("Transfer(address,address,uint256)");
    let blocks = within(provider.watch_blocks()).await.expect("a filter").with_poll_interval(POLL);
    let logs = within(provider.watch_logs(&minted)).await.expect("a filter").with_poll_interval(POLL);
    let pending = within(provider.watch_pending_transactions()).await.expect("a filter");
    let mut blocks = blocks.into_stream().flat_map(futures::stream::iter);
    let mut logs = logs.into_stream().flat_map(futures::stream::iter);
    let mut pending = pending.with_poll_interval(POLL).into_stream().flat_map(futures::stream::iter);

    let before = stage.chain.head().await.expect("anvil answers");
    let account = stage.account().await.address();
    let after = stage.chain.head().await.expect("anvil answers");
    for number in before + 1..=after {
        let block = stage.rpc("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await;
        let seen = within(blocks.next()).await.expect("the stream goes on");
        assert_eq!(json!(seen), block["hash"], "block {number}");
    }
    let log = within(logs.next()).await.expect("the stream goes on");
    assert_eq!(log.topics()[2], account.into_word());
    let hash = within(pending.next()).await.expect("the stream goes on");
    assert_eq!(Some(hash), log.transaction_hash);
    // What one endpoint has made is asked for there alone.
    for method in ["eth_newBlockFilter", "eth_newFilter", "eth_newPendingTransactionFilter"] {
        assert_eq!((fleet.count("primary", method), fleet.count("second", method)), (1, 0), "{method}");
    }
    assert!(fleet.count("primary", "eth_getFilterChanges") >= 3);
    assert_eq!(fleet.count("second", "eth_getFilterChanges"), 0);
}

#[tokio::test]
async fn fillers_over_the_client_fill_in_what_is_missing() {
    let stage = Stage::new().await;
    let broken = Rule::any().then(Action::http(503, "out of order"));
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    fleet.endpoint("primary").set(broken);
    let from = stage.account_allowing(1).await.address();
    let provider = ProviderBuilder::new().connect_provider(client.provider::<Ethereum>());
    let request =
        TransactionRequest::default().with_from(from).with_to(Address::repeat_byte(5)).with_value(U256::ONE);
    let filled = within(provider.fill(request)).await.expect("the second answers");
    let filled = filled.as_builder().expect("nobody has signed it");
    assert_eq!((filled.nonce(), filled.chain_id()), (Some(1), Some(e2e::story::CHAIN_ID)));
    assert_eq!(filled.gas_limit(), Some(21_000));
    assert!(filled.max_fee_per_gas() > filled.max_priority_fee_per_gas());
    assert!(client.failovers() > 0);
}

/// A deposit from the first chain, as OP Stack nodes show it in a block.
fn deposit(number: u64) -> Value {
    json!({
        "type": "0x7e",
        "hash": B256::repeat_byte(0x7e),
        "sourceHash": B256::repeat_byte(1),
        "from": address!("deaddeaddeaddeaddeaddeaddeaddeaddead0001"),
        "to": address!("4200000000000000000000000000000000000015"),
        "mint": "0x0",
        "value": "0x0",
        "gas": "0xf4240",
        "gasPrice": "0x0",
        "isSystemTx": false,
        "input": bytes!("440a5e20"),
        "nonce": "0x1",
        "depositReceiptVersion": "0x1",
        "blockHash": B256::ZERO,
        "blockNumber": format!("{number:#x}"),
        "transactionIndex": "0x0",
        "r": "0x0",
        "s": "0x0",
        "v": "0x0",
        "yParity": "0x0",
    })
}

/// A node of a rollup: each of its blocks holds a deposit, and has fields that the first chain does not know.
fn rollup(node: &Paper) -> Program {
    let view = node.clone();
    let blocks = Action::scripted(move |call| {
        let block = match call.method.as_str() {
            "eth_getBlockByNumber" => view.number(call.params[0].as_str().unwrap_or_default()),
            _ => view.number_of(call.params[0].as_str().unwrap_or_default()),
        };
        let mut block = view.block(block);
        if let Some(number) = block["number"].as_str().and_then(|number| view.number(number)) {
            block["l1BlockNumber"] = json!("0x1312d00");
            block["sendRoot"] = json!(B256::repeat_byte(3));
            let deposit = deposit(number);
            block["transactions"] =
                if call.params[1] == true { json!([deposit]) } else { json!([deposit["hash"]]) };
        }
        Reply::Result(block)
    });
    let transaction = |call: &backstay_testkit::Call| {
        let known = call.params[0] == json!(B256::repeat_byte(0x7e));
        Reply::Result(if known { deposit(0x64) } else { Value::Null })
    };
    let rules = Program::new()
        .rule(Rule::on_any_of(["eth_getBlockByNumber", "eth_getBlockByHash"]).then(blocks))
        .rule(Rule::on("eth_getTransactionByHash").then(Action::scripted(transaction)));
    node.behind(rules)
}

async fn over_rollups(nodes: [&Paper; 2]) -> (Fleet, Client) {
    let [first, second] = nodes.map(rollup);
    let fleet = Fleet::builder().scripted("A", first).scripted("B", second).start().await;
    let fleet = fleet.expect("the fleet starts");
    let client = within(Client::builder(config(&fleet.urls())).connect()).await.expect("it connects");
    (fleet, client)
}

#[tokio::test]
async fn blocks_with_transaction_types_of_a_rollup_are_read_as_those_of_any_network() {
    let node = Paper::at(0x64);
    let (fleet, client) = over_rollups([&node, &node]).await;
    let provider = client.provider::<AnyNetwork>();
    let block = within(provider.get_block_by_number(0x64.into()).full()).await.expect("it can be read");
    let block = block.expect("it is there");
    let [transaction] = block.transactions.as_transactions().expect("they were asked for") else {
        panic!("{block:?}")
    };
    let AnyTxEnvelope::Unknown(deposit) = transaction.inner.inner.inner() else { panic!("{transaction:?}") };
    assert_eq!(deposit.ty(), 0x7e);
    assert_eq!(deposit.inner.fields["isSystemTx"], json!(false));
    assert_eq!(block.other["l1BlockNumber"], json!("0x1312d00"));
    let hash = B256::repeat_byte(0x7e);
    let alone = within(provider.get_transaction_by_hash(hash)).await.expect("it can be read");
    assert_eq!(alone.expect("it is there").inner.inner.ty(), 0x7e);
    assert_eq!(fleet.count("B", "eth_getTransactionByHash"), 0);
}

#[tokio::test]
async fn a_transaction_type_that_ethereum_does_not_have_is_an_error_of_reading_and_nobodys_fault() {
    let node = Paper::at(0x64);
    let (fleet, client) = over_rollups([&node, &node]).await;
    let mark = fleet.mark();
    let ethereum = client.provider::<Ethereum>();
    let error: TransportError = within(ethereum.get_block_by_number(0x64.into()).full())
        .await
        .expect_err("Ethereum has no such type");
    assert!(matches!(error, RpcError::DeserError { .. }), "{error:?}");
    let full = |call: &backstay_testkit::Call| call.params[1] == true;
    let asked: Vec<_> =
        fleet.records_since(mark).into_iter().filter(full).map(|call| call.endpoint).collect();
    assert_eq!(asked, ["A"], "nobody else is asked for what this one has answered well");
    assert_eq!(status(&client, "A").faults, 0);
    // Hashes of transactions have no type.
    let block = within(ethereum.get_block_by_number(0x64.into())).await.expect("it can be read");
    assert_eq!(block.expect("it is there").transactions.len(), 1);
}

#[tokio::test]
async fn heads_of_a_rollup_are_followed_and_a_lagging_node_of_one_is_left() {
    let (still, moving) = (Paper::at(0x64), Paper::at(0x64));
    let (_fleet, client) = over_rollups([&still, &moving]).await;
    assert_eq!(within(block_number(&client)).await.expect("A answers"), 0x64);
    moving.move_to(0x100);
    eventually("A is left for B", async || {
        within(block_number(&client)).await.expect("one answers") == 0x100
    })
    .await;
    assert_eq!(status(&client, "B").head.expect("it was seen").number, 0x100);
}
