//! Filters over several endpoints: each event comes, and comes once, whatever becomes of the endpoint that had it.

use std::collections::BTreeSet;

use backstay::{
    Client, ErrorKind,
    alloy::{
        network::Ethereum,
        primitives::{Address, B256, U256},
        providers::Provider,
        rpc::types::{Filter, Log},
    },
};
use backstay_testkit::{Action, Fleet, Program, Rule};
use serde_json::{Value, json};

use super::stage::{Stage, caught_up, ours, says, within};

async fn raw(client: &Client, method: &'static str, params: Value) -> Value {
    within(client.provider::<Ethereum>().raw_request::<_, Value>(method.into(), params)).await.expect(method)
}

fn transfers(stage: &Stage) -> Value {
    let filter = Filter::new().address(stage.contracts.token).event("Transfer(address,address,uint256)");
    serde_json::to_value(filter).expect("it serialises")
}

/// Who was paid, by the logs that a filter tells now.
async fn paid(client: &Client, id: &Value) -> Vec<Address> {
    let logs = raw(client, "eth_getFilterChanges", json!([id])).await;
    let logs: Vec<Log> = serde_json::from_value(logs).expect("logs");
    logs.iter().map(|log| Address::from_word(log.topics()[2])).collect()
}

/// Pays somebody new, which is one event.
async fn pay(stage: &Stage, client: &Client) -> Address {
    let paid = stage.account().await.address();
    caught_up(client, &stage.chain).await;
    paid
}

fn asked(fleet: &Fleet, method: &str) -> (u64, u64) {
    (fleet.count("primary", method), fleet.count("second", method))
}

#[tokio::test]
async fn a_filter_is_asked_where_it_was_made_under_an_id_of_the_clients_own() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let (client, other) = (stage.reader(&fleet).await, stage.reader(&fleet).await);
    let id = raw(&client, "eth_newFilter", json!([transfers(&stage)])).await;
    let blocks = raw(&client, "eth_newBlockFilter", json!([])).await;
    let others = raw(&other, "eth_newFilter", json!([transfers(&stage)])).await;
    let ids: BTreeSet<String> = [&id, &blocks, &others].map(ToString::to_string).into();
    assert_eq!(ids.len(), 3, "{ids:?}");
    let one = pay(&stage, &client).await;
    assert_eq!(paid(&client, &id).await, [one]);
    assert!(paid(&client, &id).await.is_empty(), "once");
    assert_eq!(raw(&client, "eth_getFilterLogs", json!([id])).await.as_array().map(Vec::len).unwrap_or(0), 0);
    assert_eq!(asked(&fleet, "eth_getFilterChanges"), (2, 0));
    assert_eq!(raw(&client, "eth_uninstallFilter", json!([id])).await, json!(true));
    assert_eq!(raw(&client, "eth_uninstallFilter", json!([id])).await, json!(false));
    assert_eq!(asked(&fleet, "eth_uninstallFilter"), (1, 0));
    let provider = client.provider::<Ethereum>();
    let gone = provider.raw_request::<_, Value>("eth_getFilterChanges".into(), json!([id])).await;
    assert_eq!(
        gone.expect_err("it is gone").as_error_resp().map(|error| &*error.message),
        Some("filter not found")
    );
}

#[tokio::test]
async fn when_the_endpoint_of_a_filter_dies_no_event_is_lost_and_none_comes_twice() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let id = raw(&client, "eth_newFilter", json!([transfers(&stage)])).await;
    let one = pay(&stage, &client).await;
    assert_eq!(paid(&client, &id).await, [one]);
    let two = pay(&stage, &client).await;
    fleet.endpoint("primary").set(Rule::any().then(Action::Reset));
    let three = pay(&stage, &client).await;
    assert_eq!(paid(&client, &id).await, [two, three]);
    // The first one is asked for a new one as well, as long as its breaker is closed.
    assert_eq!(asked(&fleet, "eth_newFilter"), (2, 1));
    let four = pay(&stage, &client).await;
    assert_eq!(paid(&client, &id).await, [four]);
    assert!(paid(&client, &id).await.is_empty());
    assert_eq!(asked(&fleet, "eth_newFilter"), (2, 1));
}

#[tokio::test]
async fn a_node_that_has_forgotten_a_filter_or_whose_reply_is_lost_costs_no_event() {
    let forgets = Rule::on("eth_getFilterChanges").then(Action::error(-32_000, "filter not found"));
    let loses = Rule::on("eth_getFilterChanges").then(Action::LoseReply);
    for fault in [forgets, loses] {
        let stage = Stage::new().await;
        let fleet = stage.fleet([("primary", Program::new().rule(fault.times(1)))]).await;
        let client = stage.reader(&fleet).await;
        let id = raw(&client, "eth_newFilter", json!([transfers(&stage)])).await;
        let one = pay(&stage, &client).await;
        assert_eq!(paid(&client, &id).await, [one]);
        let two = pay(&stage, &client).await;
        assert_eq!(paid(&client, &id).await, [two]);
        assert_eq!(fleet.count("primary", "eth_newFilter"), 2);
    }
}

#[tokio::test]
async fn each_block_comes_once_when_the_endpoint_of_a_block_filter_dies() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let id = raw(&client, "eth_newBlockFilter", json!([])).await;
    let before = stage.chain.head().await.expect("anvil answers");
    let mine = async |blocks: u64| {
        stage.chain.mine(blocks).await.expect("anvil mines");
        caught_up(&client, &stage.chain).await;
    };
    let mut seen: Vec<B256> = Vec::new();
    let mut see = async || {
        let hashes = raw(&client, "eth_getFilterChanges", json!([id])).await;
        seen.extend(serde_json::from_value::<Vec<B256>>(hashes).expect("hashes"));
    };
    mine(3).await;
    see().await;
    mine(2).await;
    fleet.endpoint("primary").set(Rule::any().then(Action::Reset));
    mine(2).await;
    see().await;
    mine(1).await;
    see().await;
    let mut expected = Vec::new();
    for number in before + 1..=before + 8 {
        let block = stage.rpc("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await;
        expected.push(serde_json::from_value::<B256>(block["hash"].clone()).expect("a hash"));
    }
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn streams_are_refused_with_a_word_on_what_to_do() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let refused = provider.raw_request::<_, U256>("eth_subscribe".into(), json!(["newHeads"])).await;
    let error = ours(&refused.expect_err("it is no stream"));
    assert_eq!(error.kind(), &ErrorKind::Unsupported);
    says(&error, &["watch_blocks"]);
    assert_eq!(asked(&fleet, "eth_subscribe"), (0, 0));
}
