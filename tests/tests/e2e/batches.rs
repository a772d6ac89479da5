//! Batches: matched by id, and only what failed goes on.

use backstay::alloy::{
    network::Ethereum,
    primitives::{Address, U64, U256},
    providers::Provider,
    rpc::{client::BatchRequest, json_rpc::RpcError},
};
use backstay_testkit::{Action, Rule};
use serde_json::{Value, json};

use crate::stage::{Stage, ours, within};

const RICH: Address = Address::repeat_byte(1);
const POOR: Address = Address::repeat_byte(2);

async fn stage() -> Stage {
    let stage = Stage::new().await;
    stage.rpc("anvil_setBalance", json!([RICH, "0x7"])).await;
    // Balances are asked for at the head, which the change above is part of only from the next block on.
    stage.chain.mine(1).await.expect("anvil mines");
    stage
}

/// A batch of three reads: what each came to, as JSON text or an error.
async fn three(client: &backstay::Client) -> Result<(U256, U64, U256), RpcError<String>> {
    let provider = client.provider::<Ethereum>();
    let mut batch = BatchRequest::new(provider.client());
    let mut add = |account: Address| batch.add_call::<_, U256>("eth_getBalance", &(account, "latest"));
    let (rich, poor) = (add(RICH).expect("it is JSON"), add(POOR).expect("it is JSON"));
    let id = batch.add_call::<_, U64>("eth_chainId", &()).expect("it is JSON");
    let text = |error| RpcError::local_usage_str(&format!("{error:?}"));
    within(batch.send()).await.map_err(text)?;
    let (rich, id, poor) = (rich.await, id.await, poor.await);
    Ok((rich.map_err(text)?, id.map_err(text)?, poor.map_err(text)?))
}

fn right() -> (U256, U64, U256) {
    (U256::from(7), U64::from(31_337), U256::ZERO)
}

#[tokio::test]
async fn only_the_elements_that_failed_go_to_the_next_endpoint() {
    let stage = stage().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let poor = POOR.to_string();
    let fails =
        Rule::on("eth_getBalance").containing(&poor).then(Action::error(-32_603, "request timed out"));
    fleet.endpoint("primary").set(fails);
    let mark = fleet.mark();
    assert_eq!(three(&client).await.expect("it is answered"), right());
    let asked = |endpoint: &str| -> Vec<Value> {
        let calls = fleet.records_since(mark).into_iter();
        let calls = calls.filter(|call| call.endpoint == endpoint && call.method == "eth_getBalance");
        calls.map(|call| call.params[0].clone()).collect()
    };
    assert_eq!(asked("primary"), [json!(RICH), json!(POOR)]);
    assert_eq!(asked("second"), [json!(POOR)]);
    assert_eq!(client.failovers(), 1);
}

#[tokio::test]
async fn a_batch_that_fails_as_a_whole_goes_on_as_a_whole() {
    let stage = stage().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    for fault in [
        Action::http(503, "out of order"),
        Action::CutReply,
        Action::http(
            200,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch too large"}}"#,
        ),
    ] {
        fleet.endpoint("primary").set(Rule::on("eth_getBalance").then(fault.clone()));
        assert_eq!(three(&client).await.expect("it is answered"), right(), "{fault:?}");
    }
}

#[tokio::test]
async fn the_answers_of_a_batch_find_their_calls_whatever_their_order() {
    let stage = stage().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    for _ in 0..5 {
        assert_eq!(three(&client).await.expect("it is answered"), right());
    }
    assert_eq!(client.failovers(), 0);
}

#[tokio::test]
async fn a_revert_inside_a_batch_is_the_answer_to_its_element_alone() {
    let stage = stage().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let mut batch = BatchRequest::new(provider.client());
    let call = json!({"to": stage.contracts.graphs, "input": create_call()});
    let reverts = batch.add_call::<_, Value>("eth_call", &(call, "latest")).expect("it is JSON");
    let balance = batch.add_call::<_, U256>("eth_getBalance", &(RICH, "latest")).expect("it is JSON");
    within(batch.send()).await.expect("the batch is answered");
    assert_eq!(balance.await.expect("it is answered"), U256::from(7));
    let error = reverts.await.expect_err("it reverts");
    let data = error.as_error_resp().and_then(|error| error.as_revert_data()).expect("it says why");
    assert!(!data.is_empty());
    assert_eq!(fleet.count("second", "eth_call"), 0, "a revert is not asked for elsewhere");
}

#[tokio::test]
async fn a_batch_that_nobody_answers_says_so() {
    let stage = stage().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    for name in ["primary", "second"] {
        fleet.endpoint(name).kill().await;
    }
    let provider = client.provider::<Ethereum>();
    let mut batch = BatchRequest::new(provider.client());
    let id = batch.add_call::<_, U64>("eth_chainId", &()).expect("it is JSON");
    let error = within(batch.send()).await.expect_err("nobody is there");
    assert_eq!(*ours(&error).kind(), backstay::ErrorKind::Unavailable);
    id.await.expect_err("nobody is there");
}

fn create_call() -> backstay::alloy::primitives::Bytes {
    use backstay::alloy::sol_types::SolCall;
    let key = crate::stage::key("batch");
    backstay_testkit::sample::ContextGraphs::createContextGraphCall { key }.abi_encode().into()
}

#[tokio::test]
async fn logs_and_filters_inside_a_batch_go_the_way_that_they_go_alone() {
    let stage = stage().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let mut batch = BatchRequest::new(provider.client());
    let logs = batch.add_call::<_, Vec<Value>>("eth_getLogs", &[json!({"fromBlock": "0x0"})]);
    let filter = batch.add_call::<_, Value>("eth_newBlockFilter", &());
    let id = batch.add_call::<_, U64>("eth_chainId", &());
    let balance = batch.add_call::<_, U256>("eth_getBalance", &(RICH, "latest"));
    within(batch.send()).await.expect("the batch is answered");
    let all = stage.rpc("eth_getLogs", json!([{"fromBlock": "0x0"}])).await;
    assert_eq!(json!(logs.expect("it is JSON").await.expect("it is answered")), all);
    assert_eq!(id.expect("it is JSON").await.expect("it is answered"), U64::from(31_337));
    assert_eq!(balance.expect("it is JSON").await.expect("it is answered"), U256::from(7));
    let filter = filter.expect("it is JSON").await.expect("it is answered");
    stage.chain.mine(1).await.expect("anvil mines");
    let blocks = provider.raw_request::<_, Vec<Value>>("eth_getFilterChanges".into(), [filter]);
    assert_eq!(within(blocks).await.expect("the filter is the client's").len(), 1);
}

#[tokio::test]
async fn a_call_to_where_there_is_no_contract_says_so_inside_a_batch_too() {
    let stage = stage().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let mut batch = BatchRequest::new(provider.client());
    let call = json!({"to": POOR, "input": create_call()});
    let empty = batch.add_call::<_, Value>("eth_call", &(call, "latest")).expect("it is JSON");
    let id = batch.add_call::<_, U64>("eth_chainId", &()).expect("it is JSON");
    let error = within(batch.send()).await.expect_err("there is no contract");
    assert!(matches!(ours(&error).kind(), backstay::ErrorKind::NoContractCode { .. }), "{error:?}");
    empty.await.expect_err("there is no contract");
    id.await.expect_err("alloy has no place for one element's error");
}
