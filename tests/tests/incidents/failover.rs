//! Endpoints that are stale, hung, ahead of each other, or of another chain.

use std::time::Duration;

use backstay::{
    Client,
    alloy::{
        network::Ethereum,
        primitives::{Address, U256},
        providers::Provider,
        rpc::client::BatchRequest,
    },
};
use backstay_testkit::{Action, Call, Program, Reply, Rule};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    paper::{Paper, word},
    setup::{TARGET, asked, distinct, reader, scripted, unblamed},
    stage::{ATTEMPT, Stage, block_number, config, eventually, says, status, within},
};

#[tokio::test]
async fn b01_an_endpoint_whose_head_stands_still_is_left_until_it_has_caught_up() {
    let (still, moving) = (Paper::at(0x64), Paper::at(0x1f4));
    let fleet = scripted([("A", still.node()), ("B", moving.node())]).await;
    let client = reader(&fleet).await;
    says(&status(&client, "A").excluded.expect("it is stale"), &["stale", "400 blocks behind"]);
    let demoted = fleet.mark();
    for _ in 0..20 {
        assert!(within(block_number(&client)).await.expect("B answers") >= 0x1f4);
        moving.move_to(moving.head() + 1);
    }
    assert_eq!(asked(&fleet, demoted, "B", "eth_blockNumber"), 20);
    let probed = |call: &Call| call.endpoint == "A";
    fleet.wait_for(demoted, ATTEMPT, probed).await.expect("it is looked at all the same");
    let at_a = fleet.records_since(demoted).into_iter().filter(|call| call.endpoint == "A");
    let other: Vec<_> =
        at_a.map(|call| call.method).filter(|method| method != "eth_getBlockByNumber").collect();
    assert_eq!(other, Vec::<String>::new(), "it gets nothing but the tracker's questions");

    still.move_to(moving.head());
    eventually("A is back", async || {
        let mark = fleet.mark();
        within(block_number(&client)).await.expect("one answers");
        asked(&fleet, mark, "A", "eth_blockNumber") == 1
    })
    .await;
    unblamed(&client, "A");
}

#[tokio::test]
async fn b02_an_endpoint_that_never_writes_a_byte_stops_neither_connecting_nor_reading() {
    let node = Paper::at(0x64);
    let fleet = scripted([("A", Rule::any().then(Action::Hang).into()), ("B", node.node())]).await;
    let begun = Instant::now();
    let client = within(Client::builder(config(&fleet.urls())).connect()).await.expect("B is enough");
    assert_eq!(within(block_number(&client)).await.expect("B answers"), 0x64);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(3), "one attempt at A takes {ATTEMPT:?}, all of it {took:?}");
    assert!(fleet.count("A", "*") >= 1);
    assert_eq!((fleet.count("A", "eth_blockNumber"), fleet.count("B", "eth_blockNumber")), (0, 1));
    let hung = status(&client, "A");
    assert!(hung.faults >= 1, "its timeout counts");
    says(&hung.excluded.expect("it is not in use"), &["not identified"]);
}

#[tokio::test]
async fn b03_sound_endpoints_that_are_a_few_blocks_apart_are_no_disagreement() {
    let endpoints =
        [("A", 0x64), ("B", 0x66), ("C", 0x66)].map(|(name, head)| (name, Paper::at(head).node()));
    let fleet = scripted(endpoints).await;
    let client = reader(&fleet).await;
    let first = within(block_number(&client)).await.expect("it is answered");
    let second = within(block_number(&client)).await.expect("it is answered");
    assert!((0x64..=0x66).contains(&first) && second >= first, "{first}, then {second}");
    for name in ["A", "B", "C"] {
        unblamed(&client, name);
    }
    fleet.endpoint("A").kill().await;
    let third = within(block_number(&client)).await.expect("it is answered");
    assert!(third >= second, "{second}, then {third}");
}

#[tokio::test]
async fn b12_an_endpoint_that_is_of_another_chain_or_becomes_so_gets_no_transaction() {
    let stage = Stage::new().await;
    let other_chain = || Program::from(Rule::on("eth_chainId").then(Action::RpcResult(json!("0x1"))));
    let sound = Program::new;
    let fleet = stage.fleet([("A", other_chain()), ("B", sound()), ("C", sound())]).await;
    let signer = stage.account().await;
    let mut config = stage.config(&fleet);
    config.provider.identity_recheck = Duration::from_millis(100);
    let client = Client::builder(config).signer(signer.clone());
    let client = within(client.connect()).await.expect("it connects");
    let why = ["serves chain 1, not 31337"];
    says(&status(&client, "A").excluded.expect("it is quarantined"), &why);
    assert_eq!(status(&client, "B").excluded, None);

    // The vendor points the address elsewhere.
    fleet.endpoint("B").set(other_chain());
    eventually("B is quarantined", async || status(&client, "B").excluded.is_some()).await;
    says(&status(&client, "B").excluded.expect("it is quarantined"), &why);
    let payment = client.intent("payment").to(TARGET, Vec::new()).value(U256::ONE);
    let payment = payment.send().await.expect("it is written down");
    within(payment.outcome()).await.expect("it ends well").included().expect("it is included");
    let sent = ["A", "B", "C"].map(|name| fleet.count(name, "eth_sendRawTransaction"));
    assert_eq!(sent, [0, 0, 1]);
    assert_eq!(distinct(&fleet).len(), 1);
    assert_eq!(stage.nonce(signer.address()).await, 1);
    says(&status(&client, "A").excluded.expect("it is quarantined still"), &why);
}

#[tokio::test]
async fn b14_a_batch_that_comes_back_shuffled_and_incomplete_gives_each_call_its_own_answer() {
    let node = Paper::at(0x64);
    // A provider numbers its calls from 0.
    let shuffled = json!([
        {"jsonrpc": "2.0", "id": 2, "result": "0x2"},
        {"jsonrpc": "2.0", "id": 0, "result": "0x0"},
        {"jsonrpc": "2.0", "id": 3, "error": {"code": -32_005, "message": "limit exceeded"}},
    ]);
    let a = Rule::on("eth_getBalance").times(1).then(Action::http(200, shuffled.to_string()));
    let b = Rule::on("eth_getBalance").then(Action::scripted(|call| {
        let last = call.params[0].as_str().and_then(|account| account.chars().last()).expect("an account");
        Reply::Result(json!(format!("0xb{last}")))
    }));
    let fleet = scripted([("A", node.behind(a)), ("B", node.behind(b))]).await;
    let client = reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let mut batch = BatchRequest::new(provider.client());
    let mut waiters = Vec::new();
    for account in 0..4 {
        let params = (Address::with_last_byte(account), "latest");
        waiters.push(batch.add_call::<_, U256>("eth_getBalance", &params).expect("it is JSON"));
    }
    let begun = Instant::now();
    within(batch.send()).await.expect("it is answered");
    let mut values = Vec::new();
    for waiter in waiters {
        values.push(within(waiter).await.expect("it has its answer").to::<u64>());
    }
    assert_eq!(values, [0x0, 0xb1, 0x2, 0xb3], "1 and 3 are from B");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!((fleet.count("A", "eth_getBalance"), fleet.count("B", "eth_getBalance")), (4, 2));
}

#[tokio::test]
async fn b26_an_endpoint_from_before_the_deployment_is_not_asked_what_the_contract_says() {
    backstay::alloy::sol! {
        #[sol(rpc)]
        interface Counter { function count() external view returns (uint256); }
    }
    // Twelve blocks of twelve seconds behind.
    let (before, after) = (Paper::spaced(0x64, 12), Paper::spaced(0x70, 12));
    let empty = |method: &str| Rule::on(method).then(Action::RpcResult(json!("0x")));
    let a = Program::new().rule(empty("eth_call")).rule(empty("eth_getCode"));
    let b = Rule::on("eth_call").then(Action::RpcResult(json!(word(5))));
    let fleet = scripted([("A", before.behind(a)), ("B", after.behind(b))]).await;
    let client = reader(&fleet).await;
    let counter = Counter::new(TARGET, client.provider::<Ethereum>());
    assert_eq!(within(counter.count().call()).await.expect("B answers"), U256::from(5), "now");
    let at_deployment = counter.count().block(0x65.into());
    assert_eq!(within(at_deployment.call()).await.expect("B answers"), U256::from(5), "at a height");
    assert_eq!((fleet.count("A", "eth_call"), fleet.count("B", "eth_call")), (0, 2));
}
