//! What a reply means: its content decides, whatever its code, status or envelope.

use std::time::Duration;

use backstay::{
    Client, EndpointConfig, ErrorKind,
    alloy::{
        network::{Ethereum, TransactionBuilder},
        primitives::{Address, Bytes, U256},
        providers::Provider,
        rpc::types::{Filter, TransactionRequest},
        signers::local::PrivateKeySigner,
        sol_types::{Revert as Reason, SolError},
        transports::TransportError,
    },
};
use backstay_testkit::{Action, Program, RpcError, Rule};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    paper::{Paper, word},
    setup::{TARGET, asked, reader, reader_with, script, scripted, scripted_by, signed, unblamed},
    stage::{Stage, block_number, config, eventually, ours, says, status, within},
};

async fn call(client: &Client) -> Result<Bytes, TransportError> {
    let request = TransactionRequest::default().with_to(TARGET).with_input(vec![0xde, 0xad, 0xbe, 0xef]);
    within(client.provider::<Ethereum>().call(request).into_future()).await
}

/// What each attempt of a failed call came to.
fn verdicts(error: &backstay::Error) -> Vec<&str> {
    error.attempts().iter().map(|attempt| attempt.verdict.as_str()).collect()
}

#[tokio::test]
async fn b04_a_revert_is_an_answer_and_nobody_else_is_asked() {
    let node = Paper::at(0x64);
    let data = Bytes::from(Reason::from("nope").abi_encode());
    let revert = RpcError::new(3, "execution reverted: nope").with_data(json!(data));
    let reverts = Rule::on("eth_call").then(Action::RpcError(revert));
    let fleet = scripted([("A", node.behind(reverts)), ("B", node.node())]).await;
    let client = reader(&fleet).await;
    let error = call(&client).await.expect_err("it reverts");
    let found = error.as_error_resp().and_then(|error| error.as_revert_data()).expect("it has its bytes");
    assert_eq!(found, data);
    assert_eq!(Reason::abi_decode(&found).expect("it is a reason").reason, "nope");
    assert_eq!((fleet.count("A", "eth_call"), fleet.count("B", "eth_call")), (1, 0));
    assert_eq!(client.failovers(), 0);
    unblamed(&client, "A");
}

#[tokio::test]
async fn b05_a_nonce_that_is_too_low_is_no_fault_under_the_code_of_an_internal_error() {
    let node = Paper::at(0x64);
    let refuses = || {
        let rule = Rule::on("eth_sendRawTransaction");
        node.behind(rule.then(Action::error(-32_603, "Transaction nonce too low")))
    };
    let fleet = scripted([("A", refuses()), ("B", refuses())]).await;
    let client = reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let raw = signed(&PrivateKeySigner::random(), 7);
    let error = within(provider.send_raw_transaction(&raw)).await.expect_err("it is refused");
    let refusal = error.as_error_resp().expect("it is the node's own error");
    assert_eq!((refusal.code, refusal.message.as_ref()), (-32_603, "Transaction nonce too low"));
    for name in ["A", "B"] {
        assert_eq!(fleet.count(name, "eth_sendRawTransaction"), 1, "{name}");
        assert!(
            fleet.count(name, "eth_getTransactionByHash") >= 1,
            "{name} is asked whether it was this one"
        );
        unblamed(&client, name);
    }
    let mark = fleet.mark();
    within(block_number(&client)).await.expect("it is answered");
    assert_eq!(asked(&fleet, mark, "A", "eth_blockNumber"), 1, "the next read goes where it always did");
}

#[tokio::test]
async fn b06_an_internal_error_under_http_200_that_says_timed_out_goes_on_to_the_next() {
    let node = Paper::at(0x64);
    let slow = Rule::on("eth_getBalance").then(Action::error(-32_603, "request failed or timed out"));
    let fleet = scripted([("A", node.behind(slow)), ("B", node.node())]).await;
    let client = reader(&fleet).await;
    let balance = within(client.provider::<Ethereum>().get_balance(TARGET)).await.expect("B answers");
    assert_eq!(balance, U256::from(10).pow(U256::from(19)));
    assert_eq!((fleet.count("A", "eth_getBalance"), fleet.count("B", "eth_getBalance")), (1, 1));
    assert_eq!(status(&client, "A").faults, 1);
}

#[tokio::test]
async fn b07_a_rate_limit_and_a_paywall_are_neither_reverts_nor_empty_results() {
    let (node, incident) = (Paper::at(0x64), script("b07"));
    let balance = word(42);
    let fleet = scripted_by(&incident, &node).await;
    let client = reader(&fleet).await;
    assert_eq!(call(&client).await.expect("B answers").as_ref(), balance.as_slice());
    says(&status(&client, "A").excluded.expect("it rests"), &["asked us to wait"]);
    eventually("A has rested", async || status(&client, "A").excluded.is_none()).await;
    assert_eq!(call(&client).await.expect("B answers").as_ref(), balance.as_slice());
    assert_eq!((fleet.count("A", "eth_call"), fleet.count("B", "eth_call")), (2, 2));
    assert_eq!(status(&client, "A").faults, 0);

    // Alone, the error shows what each was taken for.
    let fleet = scripted([("A", node.behind(incident.program("A")))]).await;
    let client = reader(&fleet).await;
    let error = ours(&call(&client).await.expect_err("it has nothing to say"));
    assert_eq!(verdicts(&error), ["rate limited", "missing"], "{error}");
}

#[tokio::test]
async fn b08_a_throttle_without_an_envelope_is_a_throttle_under_any_status() {
    let body = r#"{"code":-32007,"message":"20/second request limit reached - reduce calls per second"}"#;
    for http_status in [200, 429] {
        let node = Paper::at(0x64);
        let throttles = Rule::on("eth_blockNumber").then(Action::http(http_status, body));
        let fleet = scripted([("A", node.behind(throttles)), ("B", node.node())]).await;
        let client = reader(&fleet).await;
        assert_eq!(within(block_number(&client)).await.expect("B answers"), 0x64);
        assert_eq!((fleet.count("A", "eth_blockNumber"), fleet.count("B", "eth_blockNumber")), (1, 1));
        let throttled = status(&client, "A");
        says(&throttled.excluded.expect("it rests"), &["asked us to wait"]);
        assert_eq!(throttled.faults, 0, "HTTP {http_status}");
    }
}

#[tokio::test]
async fn b09_the_only_endpoint_is_asked_again_after_the_time_that_it_asked_for() {
    let node = Paper::at(0x64);
    let busy = |times| {
        let body = b"Too many connections. Please try again later.".to_vec();
        let headers = vec![("retry-after".to_owned(), "1".to_owned())];
        let action = Action::Http { status: 429, headers, body };
        node.behind(Rule::on("eth_blockNumber").times(times).then(action))
    };
    let fleet = scripted([("A", busy(1))]).await;
    let client = reader(&fleet).await;
    assert_eq!(within(block_number(&client)).await.expect("it has waited"), 0x64);
    let asked: Vec<_> = fleet
        .records()
        .into_iter()
        .filter(|call| call.method == "eth_blockNumber")
        .map(|call| call.at)
        .collect();
    assert_eq!(asked.len(), 2);
    assert!(asked[1] - asked[0] >= Duration::from_secs(1), "{asked:?}");
    assert_eq!(status(&client, "A").faults, 0);

    // Where there is no time to wait, the error says so at once.
    let fleet = scripted([("A", busy(u64::MAX))]).await;
    let client = reader_with(&fleet, |config| {
        config.provider.attempt_timeout = Duration::from_millis(500);
        config.provider.operation_timeout = Duration::from_millis(500);
    })
    .await;
    let begun = Instant::now();
    let error = ours(&within(block_number(&client)).await.expect_err("it is busy"));
    assert_eq!(*error.kind(), ErrorKind::RateLimited, "{error}");
    assert_eq!(verdicts(&error), ["rate limited"]);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn b10_a_page_in_place_of_json_is_a_fault_of_the_endpoint() {
    let challenge = "<!DOCTYPE html><html><title>Just a moment...</title></html>";
    let gateway = "<html>502 Bad Gateway</html>";
    for (http_status, page, verdict) in [(200, challenge, "not json"), (502, gateway, "server error")] {
        let node = Paper::at(0x64);
        let paged = Rule::on("eth_blockNumber").then(Action::http(http_status, page));
        let fleet = scripted([("A", node.behind(paged)), ("B", node.node())]).await;
        let client = reader(&fleet).await;
        assert_eq!(within(block_number(&client)).await.expect("B answers"), 0x64);
        assert_eq!((fleet.count("A", "eth_blockNumber"), fleet.count("B", "eth_blockNumber")), (1, 1));
        assert_eq!(status(&client, "A").faults, 1);

        // Alone, the error shows what it was taken for, and not the key in the address.
        let address = fleet.url("A").join("v1/SECRET").expect("it is an address");
        let mut alone = config(&[]);
        alone.endpoints = vec![EndpointConfig::new("A", address.as_str())];
        let client = within(Client::builder(alone).connect()).await.expect("it connects");
        let error = ours(&within(block_number(&client)).await.expect_err("it is no answer"));
        assert_eq!((error.kind(), verdicts(&error)), (&ErrorKind::Unavailable, vec![verdict]), "{error}");
        for shown in [error.to_string(), format!("{error:?}")] {
            assert!(!shown.contains("SECRET") && !shown.contains(address.as_str()), "{shown}");
            assert!(shown.len() < 1_000, "{} characters", shown.len());
        }
    }
}

#[tokio::test]
async fn b11_a_reply_that_is_cut_off_or_empty_is_asked_for_elsewhere() {
    let stage = Stage::new().await;
    // Each is minted tokens: one log to it.
    let accounts = [stage.account().await, stage.account().await];
    let cut = Rule::on("eth_getLogs").times(1).then(Action::CutReply);
    let empty = Rule::on("eth_getLogs").then(Action::http(200, ""));
    let fleet = stage.fleet([("A", Program::new().rule(cut).rule(empty)), ("B", Program::new())]).await;
    let client = stage.reader(&fleet).await;
    let minted: Vec<_> = accounts.iter().map(|account| account.address().into_word()).collect();
    let filter = Filter::new().address(stage.contracts.token).from_block(0).topic2(minted);
    for round in 1..=2 {
        let logs = within(client.provider::<Ethereum>().get_logs(&filter)).await.expect("B answers");
        assert_eq!(logs.len(), accounts.len());
        assert_eq!(status(&client, "A").faults, round);
    }
    assert_eq!((fleet.count("A", "eth_getLogs"), fleet.count("B", "eth_getLogs")), (2, 2));
    assert_eq!(status(&client, "A").excluded, None, "two faults open no breaker");
}

#[tokio::test]
async fn b16_an_empty_answer_that_is_true_is_an_answer() {
    let node = Paper::at(0x64);
    let empty = |method: &str, value| Rule::on(method).then(Action::RpcResult(value));
    let program = || {
        let rules = Program::new()
            .rule(empty("eth_getLogs", json!([])))
            .rule(empty("eth_getBalance", json!("0x0")))
            .rule(empty("eth_getCode", json!("0x")));
        node.behind(rules)
    };
    let fleet = scripted([("A", program()), ("B", program())]).await;
    let client = reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let filter = Filter::new().from_block(0x10).to_block(0x20);
    assert!(within(provider.get_logs(&filter)).await.expect("it is answered").is_empty());
    let nobody = Address::repeat_byte(0x77);
    assert_eq!(within(provider.get_balance(nobody)).await.expect("it is answered"), U256::ZERO);
    assert!(within(provider.get_code_at(nobody)).await.expect("it is answered").is_empty());
    for method in ["eth_getLogs", "eth_getBalance", "eth_getCode"] {
        assert_eq!((fleet.count("A", method), fleet.count("B", method)), (1, 0), "{method}");
    }
}
