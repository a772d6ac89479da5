//! Transactions whose fate an endpoint leaves open: one nonce, and an outcome.

use std::time::Duration;

use backstay::alloy::{
    network::Ethereum, primitives::U256, providers::Provider, signers::local::PrivateKeySigner,
};
use backstay_testkit::{Action, Fleet, Program, RpcError, Rule};
use serde_json::{Value, json};

use crate::{
    setup::{TARGET, distinct, signed, unblamed},
    stage::{SOON, Stage, eventually, status, within},
};

const SEND: &str = "eth_sendRawTransaction";

/// A node whose first answer to a lookup by hash is that it knows of no such transaction, as an index that is
/// late says.
fn forgetful(rule: Rule) -> Program {
    let lookup = Rule::on("eth_getTransactionByHash").times(1);
    Program::new().rule(rule).rule(lookup.then(Action::RpcResult(Value::Null)))
}

/// Registers once over the fleet, and holds that it took one transaction, sent so often to A and B.
async fn one_effect(
    stage: &Stage,
    fleet: &Fleet,
    signer: &PrivateKeySigner,
    sent: [u64; 2],
) -> backstay::Client {
    let client = stage.client(fleet, signer).await;
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    let outcome = within(intent.outcome()).await.expect("it ends well");
    let hash = outcome.included().expect("it is included").hash;
    assert_eq!(Vec::from_iter(distinct(fleet)), vec![hash], "the same bytes, wherever they went");
    assert_eq!(["A", "B"].map(|name| fleet.count(name, SEND)), sent);
    assert_eq!(stage.registrations(signer.address()).await, 1);
    client
}

#[tokio::test]
async fn b29_a_receipt_that_is_null_while_the_transaction_waits_is_asked_for_at_one_endpoint() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    stage.rpc("evm_setAutomine", json!([false])).await;
    let fleet = stage.fleet([("A", Program::new()), ("B", Program::new()), ("C", Program::new())]).await;
    let client = stage.client(&fleet, &signer).await;
    let payment = client.intent("payment").to(TARGET, Vec::new()).value(U256::ONE);
    let payment = payment.send().await.expect("it is written down");
    let receipts = |name| fleet.count(name, "eth_getTransactionReceipt");
    eventually("its receipt was asked for ten times", async || receipts("A") >= 10).await;
    stage.chain.mine(1).await.expect("anvil mines");
    within(payment.outcome()).await.expect("it ends well").included().expect("it is included");
    let [a, b, c] = ["A", "B", "C"].map(receipts);
    assert!((b + c) * 4 <= a, "{a} at A, {b} at B, {c} at C");
    for name in ["A", "B", "C"] {
        unblamed(&client, name);
    }
    assert_eq!(distinct(&fleet).len(), 1);
}

#[tokio::test]
async fn b40_already_known_and_nonce_too_low_are_success_for_bytes_that_are_out() {
    for words in ["already known", "nonce too low"] {
        let stage = Stage::new().await;
        let signer = stage.account_allowing(1).await;
        // A takes it, and says so long after anybody waits for that.
        let late = Rule::on(SEND).then(Action::LateReply(Duration::from_secs(4)));
        let known = Rule::on(SEND).then(Action::error(-32_000, words));
        let fleet = stage.fleet([("A", forgetful(late)), ("B", forgetful(known))]).await;
        let client = one_effect(&stage, &fleet, &signer, [1, 1]).await;
        unblamed(&client, "B");
    }
}

#[tokio::test]
async fn b41_a_slow_receipt_of_a_synchronous_send_is_not_beaten_by_a_fast_error() {
    let stage = Stage::new().await;
    let own = stage.account().await;
    let method = "eth_sendRawTransactionSync";
    let slow = Rule::on(method).then(Action::LateReply(Duration::from_millis(300)));
    let fast = Rule::on(method).then(Action::error(-32_000, "already known"));
    let fleet = stage.fleet([("A", slow.into()), ("B", fast.into())]).await;
    let client = stage.reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let raw = signed(&own, 0);
    let receipt: Value = within(provider.raw_request(method.into(), (raw,))).await.expect("A answers");
    assert_eq!(receipt["status"], "0x1", "{receipt}");
    assert_eq!((fleet.count("A", method), fleet.count("B", method)), (1, 0), "one after another");
    assert_eq!(stage.nonce(own.address()).await, 1);
}

#[tokio::test]
async fn b53_already_known_under_http_400_is_already_known() {
    let stage = Stage::new().await;
    let signer = stage.account_allowing(1).await;
    let lost = Rule::on(SEND).times(1).then(Action::LoseReply);
    let known = RpcError::new(-32_000, "already known");
    let odd = Rule::on(SEND).then(Action::RpcErrorUnder(400, known));
    let fleet = stage.fleet([("A", forgetful(lost)), ("B", forgetful(odd))]).await;
    let client = one_effect(&stage, &fleet, &signer, [1, 1]).await;
    unblamed(&client, "B");
}

#[tokio::test]
async fn b54_a_connection_that_ends_during_a_send_leaves_its_outcome_open_and_its_nonce_used() {
    // Whether A had taken it, and so how often B is sent it: what is found by its hash is not sent again.
    let broken = [(Action::LoseReply, 0), (Action::CutReply, 0), (Action::Reset, 1)];
    for (action, sent_to_b) in broken {
        let stage = Stage::new().await;
        let signer = stage.account_allowing(1).await;
        let breaks = Rule::on(SEND).times(1).then(action);
        let hits = breaks.hits();
        let fleet = stage.fleet([("A", breaks.into()), ("B", Program::new())]).await;
        let client = one_effect(&stage, &fleet, &signer, [1, sent_to_b]).await;
        assert_eq!(hits.get(), 1);
        assert_eq!(stage.nonce(signer.address()).await, 2, "the approve, and the registration");
        assert_eq!(status(&client, "A").faults, 1);
        fleet.wait_until_idle(SOON).await.expect("nothing is under way for ever");
    }
}
