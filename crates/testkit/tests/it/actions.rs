use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use alloy::{
    eips::Encodable2718 as _,
    network::{EthereumWallet, NetworkTransactionBuilder as _, TransactionBuilder as _},
    primitives::{Address, U256},
    rpc::types::TransactionRequest,
    signers::local::PrivateKeySigner,
};
use backstay_testkit::{Action, Anvil, Call, Fleet, Mark, Outcome, Program, Reply, RpcError, Rule};
use serde_json::{Value, json};

use crate::client::{Got, SOON, ask, chain, envelope, error, fleet, mined, post, request, result};

const SEND: &str = "eth_sendRawTransaction";

/// A signed payment of one wei to `to` with this nonce.
async fn signed(chain: &Anvil, to: Address, nonce: u64) -> String {
    let signer = PrivateKeySigner::from_bytes(&chain.keys()[0]).expect("anvil's keys are keys");
    let payment = TransactionRequest::default()
        .with_to(to)
        .with_value(U256::from(1))
        .with_nonce(nonce)
        .with_chain_id(31337)
        .with_gas_limit(21_000)
        .with_max_fee_per_gas(10_000_000_000)
        .with_max_priority_fee_per_gas(1_000_000_000)
        .build(&EthereumWallet::from(signer))
        .await
        .expect("a complete request can be signed");
    alloy::hex::encode_prefixed(payment.encoded_2718())
}

fn only(fleet: &Fleet) -> Call {
    let mut records = fleet.records();
    assert_eq!(records.len(), 1, "{records:#?}");
    records.remove(0)
}

#[tokio::test]
async fn without_rules_everything_passes() {
    let chain = chain().await;
    let fleet = fleet(&chain, Program::new()).await;
    assert_eq!(result(&fleet.url("a"), "eth_chainId", json!([])).await, "0x7a69");
    let call = only(&fleet);
    assert_eq!((call.endpoint.as_str(), call.method.as_str()), ("a", "eth_chainId"));
    assert_eq!(call.outcome, Outcome::Reply(Reply::Result(json!("0x7a69"))));
    assert!(!call.fault);
    assert_eq!(fleet.faults_fired(), 0);
}

#[tokio::test]
async fn errors_of_the_chain_pass_as_they_are() {
    let chain = chain().await;
    let fleet = fleet(&chain, Program::new()).await;
    let direct = ask(chain.url(), "eth_nonsense", json!([])).await;
    let Got::Answer { status, body, .. } = ask(&fleet.url("a"), "eth_nonsense", json!([])).await else {
        panic!("an error is an answer")
    };
    assert!(matches!(direct, Got::Answer { status: s, body: b, .. } if (s, &b) == (status, &body)));
    assert_eq!(only(&fleet).outcome.error().map(|error| error.code), Some(-32601));
}

#[tokio::test]
async fn made_up_replies_reach_the_client_and_not_the_chain() {
    let refusal = RpcError::new(3, "execution reverted").with_data(json!("0x1234"));
    let fleet = Fleet::builder()
        .scripted(
            "a",
            Program::new()
                .rule(Rule::on("eth_call").then(Action::RpcError(refusal.clone())))
                .rule(Rule::on("eth_chainId").then(Action::RpcResult(json!("0x1")))),
        )
        .start()
        .await
        .expect("the fleet starts");
    let url = fleet.url("a");
    let reply = envelope(&url, "eth_call", json!([{}])).await;
    assert_eq!(reply["error"], json!({ "code": 3, "message": "execution reverted", "data": "0x1234" }));
    assert_eq!(result(&url, "eth_chainId", json!([])).await, "0x1");
    // What no rule answers has no chain to go to.
    assert!(matches!(ask(&url, "eth_blockNumber", json!([])).await, Got::Answer { status: 502, .. }));

    let records = fleet.records();
    assert_eq!(records[0].outcome, Outcome::Reply(Reply::Error(refusal)));
    assert_eq!(records[0].rule.as_deref(), Some("eth_call"));
    assert!(records.iter().all(|call| call.upstream.is_none()));
    assert!(matches!(records[2].outcome, Outcome::Unreachable(_)));
    assert_eq!(fleet.faults_fired(), 2);
}

#[tokio::test]
async fn http_answers_keep_status_headers_and_body() {
    let program = Program::new()
        .rule(Rule::any().times(1).then(Action::too_many_requests(9)))
        .rule(Rule::any().then(Action::http(503, "<html>busy</html>")));
    let fleet = Fleet::builder().scripted("a", program).start().await.expect("the fleet starts");
    let url = fleet.url("a");
    let Got::Answer { status, head, .. } = ask(&url, "eth_chainId", json!([])).await else {
        panic!("HTTP is an answer")
    };
    assert_eq!(status, 429);
    assert!(head.contains("retry-after: 9"), "{head}");
    let Got::Answer { status, body, .. } = ask(&url, "eth_chainId", json!([])).await else {
        panic!("HTTP is an answer")
    };
    assert_eq!((status, body.as_str()), (503, "<html>busy</html>"));
    let outcomes: Vec<_> = fleet.records().into_iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [Outcome::Http(429), Outcome::Http(503)]);
}

#[tokio::test]
async fn closed_and_reset_connections_are_told_apart() {
    let chain = chain().await;
    let program = Program::new()
        .rule(Rule::any().times(1).then(Action::DropBefore))
        .rule(Rule::any().then(Action::Reset));
    let fleet = fleet(&chain, program).await;
    let url = fleet.url("a");
    assert_eq!(ask(&url, "eth_chainId", json!([])).await, Got::Closed);
    assert_eq!(ask(&url, "eth_chainId", json!([])).await, Got::Reset);
    let records = fleet.records();
    assert_eq!(records[0].outcome, Outcome::Dropped);
    assert_eq!(records[1].outcome, Outcome::Reset);
    assert!(records.iter().all(|call| call.upstream.is_none() && call.fault));
}

#[tokio::test]
async fn a_hung_request_is_recorded_at_once_and_never_answered() {
    let fleet = Fleet::builder()
        .scripted("a", Rule::any().then(Action::Hang))
        .start()
        .await
        .expect("the fleet starts");
    let url = fleet.url("a");
    let waiting = tokio::spawn(async move { ask(&url, "eth_chainId", json!([])).await });
    let call =
        fleet.wait_for(Mark::START, SOON, |call| call.outcome == Outcome::Hung).await.expect("it arrives");
    assert!(call.fault);
    assert!(!waiting.is_finished());
    // The connection ends with the endpoint.
    fleet.endpoint("a").kill().await;
    let got = tokio::time::timeout(SOON, waiting).await.expect("the connection ends").expect("no panic");
    assert!(matches!(got, Got::Closed | Got::Reset), "{got:?}");
    assert_eq!(only(&fleet).outcome, Outcome::Hung);
}

#[tokio::test]
async fn a_lost_reply_leaves_the_transaction_on_the_chain() {
    let chain = chain().await;
    let rule = Rule::on(SEND).times(1).then(Action::LoseReply);
    let hits = rule.hits();
    let fleet = fleet(&chain, rule).await;
    let url = fleet.url("a");
    let raw = signed(&chain, Address::repeat_byte(0x11), 0).await;
    assert_eq!(ask(&url, SEND, json!([raw])).await, Got::Closed);

    let call = only(&fleet);
    assert_eq!(call.outcome, Outcome::Lost);
    assert_eq!(call.raw_tx.as_ref().map(ToString::to_string), Some(raw.clone()));
    let hash = call.tx_hash().expect("it was a send");
    assert_eq!(call.upstream, Some(Reply::Result(json!(hash))));
    mined(&chain, 1).await;
    assert_eq!(result(&url, "eth_getTransactionReceipt", json!([hash])).await["status"], "0x1");
    assert_eq!((hits.get(), fleet.faults_fired()), (1, 1));

    // The rule is used up: now the chain itself speaks.
    assert_eq!(error(&url, SEND, json!([raw])).await, (-32003, "nonce too low".to_owned()));
}

#[tokio::test]
async fn a_cut_reply_ends_in_the_middle() {
    let chain = chain().await;
    let fleet = fleet(&chain, Rule::any().then(Action::CutReply)).await;
    match ask(&fleet.url("a"), "eth_getBlockByNumber", json!(["latest", false])).await {
        Got::Cut { announced, came } => assert!(came > 0 && came < announced, "{came} of {announced}"),
        other => panic!("{other:?}"),
    }
    let call = only(&fleet);
    assert_eq!(call.outcome, Outcome::Cut);
    assert!(call.upstream.is_some());
}

#[tokio::test]
async fn stalled_requests_are_late_for_the_chain_and_late_replies_are_not() {
    let chain = chain().await;
    let wait = Duration::from_millis(150);
    let fleet = fleet(&chain, Rule::on(SEND).times(1).then(Action::Stall(wait))).await;
    let url = fleet.url("a");
    let before = Instant::now();
    result(&url, SEND, json!([signed(&chain, Address::ZERO, 0).await])).await;
    assert!(before.elapsed() >= wait);

    fleet.endpoint("a").set(Rule::on(SEND).then(Action::LateReply(Duration::from_secs(600))));
    let raw = signed(&chain, Address::ZERO, 1).await;
    let waiting = tokio::spawn(async move { ask(&url, SEND, json!([raw])).await });
    let taken = fleet
        .wait_for(Mark::START, SOON, |call| call.seq == 1 && call.upstream.is_some())
        .await
        .expect("the chain takes it at once");
    assert_eq!(taken.outcome, Outcome::Pending);
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test]
async fn what_was_received_is_carried_out_though_the_client_has_left() {
    let chain = chain().await;
    let fleet = fleet(&chain, Rule::on(SEND).then(Action::Stall(Duration::from_millis(400)))).await;
    let url = fleet.url("a");
    let raw = signed(&chain, Address::ZERO, 0).await;
    let client = tokio::spawn(async move { ask(&url, SEND, json!([raw])).await });
    fleet.wait_for(Mark::START, SOON, |call| call.method == SEND).await.expect("it arrives");
    client.abort();
    let call =
        fleet.wait_for(Mark::START, SOON, |call| call.outcome == Outcome::Abandoned).await.expect("it ends");
    assert_eq!(call.upstream, Some(Reply::Result(json!(call.tx_hash()))));
    mined(&chain, 1).await;
}

#[tokio::test]
async fn rules_count_skip_and_give_way() {
    let program = Program::new()
        .rule(Rule::on("eth_call").skip(1).times(2).named("busy").then(Action::error(-32005, "busy")))
        .rule(Rule::on_any_of(["eth_call", "eth_chainId"]).then(Action::RpcResult(json!("0x"))));
    let fleet = Fleet::builder().scripted("a", program).start().await.expect("the fleet starts");
    let url = fleet.url("a");
    for method in ["eth_call", "eth_call", "eth_chainId", "eth_call", "eth_call"] {
        ask(&url, method, json!([{}])).await;
    }
    let labels: Vec<_> = fleet.records().into_iter().filter_map(|call| call.rule).collect();
    let other = "eth_call|eth_chainId";
    assert_eq!(labels, [other, "busy", other, "busy", other]);
}

#[tokio::test]
async fn a_rule_takes_each_nth_request_behind_those_that_it_skips() {
    let busy = || Rule::any().then(Action::error(-32005, "busy"));
    let rest = || Rule::any().then(Action::RpcResult(json!("0x1")));
    for (rule, expected) in [
        (busy().every(2), [false, true, false, true, false, true, false]),
        (busy().every(3).skip(1), [false, false, false, true, false, false, true]),
        (busy().every(2).times(1), [false, true, false, false, false, false, false]),
        (busy().every(0), [true; 7]),
    ] {
        let (hits, label) = (rule.hits(), format!("{rule:?}"));
        let program = Program::new().rule(rule).rule(rest());
        let fleet = Fleet::builder().scripted("a", program).start().await.expect("the fleet starts");
        let mut failed = Vec::new();
        for _ in expected {
            let reply = envelope(&fleet.url("a"), "eth_chainId", json!([])).await;
            failed.push(reply.get("error").is_some());
        }
        assert_eq!(failed, expected, "{label}");
        assert_eq!(hits.get(), failed.iter().filter(|failed| **failed).count() as u64);
    }
}

#[tokio::test]
async fn rules_find_their_target_in_calls_sends_accounts_and_filters() {
    let chain = chain().await;
    let (target, other) = (Address::repeat_byte(0xab), Address::repeat_byte(0xcd));
    let selector = [0xde, 0xad, 0xbe, 0xef];
    let program = Program::new()
        .rule(Rule::on("eth_call").selector(selector).named("selector"))
        .rule(Rule::any().to(target).named("target"))
        .rule(Rule::any().containing("CDCD").named("text"))
        .rule(Rule::any().when(|call| call.params.is_null()).named("predicate"));
    let fleet = fleet(&chain, program).await;
    let url = fleet.url("a");
    let checksummed = target.to_checksum(None);
    ask(&url, "eth_call", json!([{ "to": target, "data": "0xdeadbeef01" }, "latest"])).await;
    ask(&url, "eth_call", json!([{ "to": checksummed, "input": "0x" }, "latest"])).await;
    ask(&url, "eth_getBalance", json!([target, "latest"])).await;
    ask(&url, "eth_getLogs", json!([{ "address": [other, target] }])).await;
    ask(&url, SEND, json!([signed(&chain, target, 0).await])).await;
    ask(&url, "eth_getBalance", json!([other, "latest"])).await;
    post(&url, r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#).await;
    ask(&url, "eth_chainId", json!([])).await;
    let labels: Vec<_> = fleet.records().into_iter().map(|call| call.rule.unwrap_or_default()).collect();
    assert_eq!(labels, ["selector", "target", "target", "target", "target", "text", "predicate", ""]);
    assert_eq!(fleet.faults_fired(), 0, "passing is no fault");
}

#[tokio::test]
async fn hooks_run_before_the_chain_and_before_the_client() {
    let chain = chain().await;
    type Points = Vec<(&'static str, Option<Reply>)>;
    let seen: Arc<Mutex<Points>> = Arc::default();
    let note = |point: &'static str| {
        let seen = Arc::clone(&seen);
        move |call: &Call| seen.lock().expect("no panic").push((point, call.upstream.clone()))
    };
    let rule =
        Rule::on("eth_chainId").before(note("before")).after_reply(note("after")).then(Action::LoseReply);
    let fleet = fleet(&chain, rule).await;
    assert_eq!(ask(&fleet.url("a"), "eth_chainId", json!([])).await, Got::Closed);
    let reply = Reply::Result(json!("0x7a69"));
    assert_eq!(*seen.lock().expect("no panic"), [("before", None), ("after", Some(reply))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_after_the_answer_runs_when_the_client_has_got_what_it_gets() {
    let chain = chain().await;
    for action in [Action::Pass, Action::LoseReply, Action::Reset] {
        let (tell, told) = std::sync::mpsc::channel();
        let told = Mutex::new(told);
        let (seen, mut found) = tokio::sync::mpsc::unbounded_channel();
        // It holds the connection up until the client says that it got something.
        let wait = move |_: &Call| {
            let told = told.lock().expect("no panic").recv_timeout(SOON);
            seen.send(told.is_ok()).expect("the test waits for it");
        };
        let fleet = fleet(&chain, Rule::on("eth_chainId").after_answer(wait).then(action.clone())).await;
        ask(&fleet.url("a"), "eth_chainId", json!([])).await;
        tell.send(()).expect("the hook waits for it");
        assert_eq!(found.recv().await, Some(true), "{action:?}");
    }
}

#[tokio::test]
async fn a_hook_that_panics_closes_the_connection() {
    let chain = chain().await;
    let fleet = fleet(&chain, Rule::any().times(1).before(|_| panic!("as a test may"))).await;
    let url = fleet.url("a");
    assert_eq!(ask(&url, "eth_chainId", json!([])).await, Got::Closed);
    assert_eq!(only(&fleet).outcome, Outcome::Abandoned);
    result(&url, "eth_chainId", json!([])).await;
}

#[tokio::test]
async fn batches_meet_rules_element_by_element() {
    let chain = chain().await;
    let fleet = fleet(&chain, Rule::on("eth_gasPrice").then(Action::error(-32005, "busy"))).await;
    let url = fleet.url("a");
    let batch = r#"[{"jsonrpc":"2.0","id":"x","method":"eth_chainId"},
        {"jsonrpc":"2.0","id":2,"method":"eth_gasPrice","params":[]},
        {"jsonrpc":"2.0","method":"eth_chainId"},
        {"jsonrpc":"2.0","id":3,"method":"eth_nonsense","params":[]}]"#;
    let Got::Answer { status: 200, body, .. } = post(&url, batch).await else { panic!("it is answered") };
    let replies: Vec<Value> = serde_json::from_str(&body).expect("a batch is answered by a list");
    assert_eq!(replies.len(), 3, "a notification has no reply: {body}");
    assert_eq!((&replies[0]["id"], &replies[0]["result"]), (&json!("x"), &json!("0x7a69")));
    assert_eq!((&replies[1]["id"], &replies[1]["error"]["code"]), (&json!(2), &json!(-32005)));
    assert_eq!((&replies[2]["id"], &replies[2]["error"]["code"]), (&json!(3), &json!(-32601)));
    assert_eq!(fleet.records().len(), 4);
}

#[tokio::test]
async fn a_connection_fault_of_one_element_ends_the_whole_batch() {
    let chain = chain().await;
    let raw = signed(&chain, Address::ZERO, 0).await;
    let batch =
        |raw: &str| format!("[{},{}]", request(SEND, &json!([raw])), request("eth_chainId", &json!([])));
    let fleet = fleet(&chain, Rule::on("eth_chainId").times(1).then(Action::DropBefore)).await;
    let url = fleet.url("a");
    assert_eq!(post(&url, &batch(&raw)).await, Got::Closed);
    assert!(fleet.records().iter().all(|call| call.upstream.is_none()), "nothing of it went to the chain");

    fleet.endpoint("a").set(Rule::on("eth_chainId").times(1).then(Action::LoseReply));
    assert_eq!(post(&url, &batch(&raw)).await, Got::Closed);
    assert!(fleet.records()[2..].iter().all(|call| call.upstream.is_some()), "all of it went to the chain");
    mined(&chain, 1).await;
    let outcomes: Vec<_> = fleet.records().into_iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [Outcome::Dropped, Outcome::Dropped, Outcome::Lost, Outcome::Lost]);
}

#[tokio::test]
async fn bodies_that_are_no_requests_get_the_words_of_the_chain() {
    let chain = chain().await;
    let fleet = fleet(&chain, Program::new()).await;
    for body in ["nope", "[]", "{}", "3"] {
        let Got::Answer { status, body: direct, .. } = post(chain.url(), body).await else {
            panic!("anvil answers {body}")
        };
        match post(&fleet.url("a"), body).await {
            Got::Answer { status: through, body: words, .. } => {
                assert_eq!((through, words), (status, direct), "{body}");
            }
            other => panic!("{body} got {other:?}"),
        }
    }
    assert!(fleet.records().iter().all(|call| call.method.is_empty()));
}
