//! Intents: at most one effect a key, one nonce line an account.

use std::{collections::BTreeSet, time::Duration};

use backstay::Client;
use backstay::alloy::{
    consensus::{Transaction, TxEnvelope},
    eips::Decodable2718,
    primitives::{Address, U256},
    sol_types::SolError,
};
use backstay_testkit::{
    Action, Fleet, Program, Rule, View,
    sample::{ContextGraphs, Token},
};
use futures::future::join_all;
use serde_json::json;

use crate::stage::{ATTEMPT, SOON, Stage, caught_up, key, says, sends, within};

/// The nonces of the transactions that were sent.
fn nonces(fleet: &Fleet) -> BTreeSet<u64> {
    let sent = sends(fleet).into_iter().filter_map(|call| call.raw_tx);
    sent.map(|raw| TxEnvelope::decode_2718(&mut raw.as_ref()).expect("it is a transaction").nonce()).collect()
}

#[tokio::test]
async fn one_key_sent_twice_at_once_is_one_transaction() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account_allowing(1).await;
    let client = stage.client(&fleet, &signer).await;
    let before = stage.nonce(signer.address()).await;
    let send = async || {
        let intent = stage.register(&client, "a").send().await.expect("it is written down");
        within(intent.outcome()).await.expect("it ends well")
    };
    let (one, other) = tokio::join!(send(), send());
    assert_eq!(one, other);
    one.included().expect("it is included");
    assert_eq!(send().await, one, "sent once more, it has ended already");
    assert_eq!(stage.nonce(signer.address()).await, before + 1);
    assert_eq!(stage.registrations(signer.address()).await, 1);
    assert_eq!(sends(&fleet).len(), 1);
}

#[tokio::test]
async fn ten_intents_at_once_take_consecutive_nonces_and_all_succeed() {
    const COUNT: u64 = 10;
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account_allowing(COUNT).await;
    let client = stage.client(&fleet, &signer).await;
    let first = stage.nonce(signer.address()).await;
    let one = async |index| {
        let intent = stage.register(&client, &format!("graph {index}")).send().await;
        let outcome = within(intent.expect("it is written down").outcome()).await.expect("it ends well");
        outcome.included().expect("it is included").hash
    };
    let hashes: BTreeSet<_> = join_all((0..COUNT).map(one)).await.into_iter().collect();
    assert_eq!(hashes.len() as u64, COUNT, "each has its own transaction");
    assert_eq!(nonces(&fleet), (first..first + COUNT).collect());
    assert_eq!(stage.nonce(signer.address()).await, first + COUNT);
    assert_eq!(stage.registrations(signer.address()).await, COUNT);
}

#[tokio::test]
async fn registrations_that_share_a_grant_run_one_after_another() {
    const COUNT: u64 = 4;
    // Blocks at an interval: one that waits must not go on with what it knew before.
    let stage = Stage::with_blocks_every(Duration::from_secs(1)).await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    join_all((0..COUNT).map(async |index| stage.registered(&client, &format!("graph {index}")).await)).await;
    assert_eq!(stage.registrations(signer.address()).await, COUNT);
    assert_eq!(stage.approvals(signer.address()).await, COUNT, "each approves exactly what it spends");
}

#[tokio::test]
async fn accounts_have_lines_of_their_own() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let (one, other) = (stage.account_allowing(2).await, stage.account_allowing(2).await);
    let client =
        within(stage.builder(&fleet, &one).signer(other.clone()).connect()).await.expect("it connects");
    let send = async |from: Address, name: &str| {
        let intent = stage.register(&client, name).from(from).send().await.expect("it is written down");
        within(intent.outcome()).await.expect("it ends well").included().expect("it is included");
    };
    let (a, b) = (one.address(), other.address());
    tokio::join!(send(a, "1"), send(b, "2"), send(a, "3"), send(b, "4"));
    assert_eq!((stage.registrations(a).await, stage.registrations(b).await), (2, 2));
    assert_eq!((stage.nonce(a).await, stage.nonce(b).await), (3, 3));
}

#[tokio::test]
async fn a_call_that_reverts_is_not_sent_and_its_error_can_be_decoded() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    stage.registered(&client, "a").await;
    let sent = sends(&fleet).len();
    let call = ContextGraphs::createContextGraphCall { key: key("a") };
    let again = client.intent("another key for the same").call(stage.contracts.graphs, &call);
    let intent = again.grant(stage.grant()).send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("it is registered already");
    let revert = error.revert().unwrap_or_else(|| panic!("{error:?}"));
    assert_eq!(revert.selector(), Some(ContextGraphs::AlreadyRegistered::SELECTOR));
    let decoded = revert.decode::<ContextGraphs::AlreadyRegistered>().expect("it is that error");
    assert_eq!(decoded.key, key("a"));
    assert_eq!(error.delivery(), backstay::Delivery::NotSent);
    says(&error, &[&stage.contracts.graphs.to_string(), "reverts", "nothing was sent"]);
    assert_eq!(sends(&fleet).len(), sent);
}

#[tokio::test]
async fn a_transaction_that_is_mined_and_reverts_ends_its_intent_and_says_why() {
    let stage = Stage::new().await;
    // The call is fine when it is simulated. Between that and its block another account takes the key: no
    // block is mined until both are in.
    stage.rpc("evm_setAutomine", json!([false])).await;
    let fleet = stage.sound().await;
    let rival = stage.account_allowing_by_mining().await.address();
    let signer = stage.account_allowing_by_mining().await;
    let client = stage.client(&fleet, &signer).await;
    caught_up(&client, &stage.chain).await;
    let mark = fleet.mark();
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    let sent = |call: &backstay_testkit::Call| call.raw_tx.is_some();
    fleet.wait_for(mark, SOON, sent).await.expect("it is sent");
    fleet.wait_until_idle(SOON).await.expect("the node has it");
    stage.bid_higher(rival, "a").await;
    stage.chain.mine(1).await.expect("anvil mines");
    let outcome = within(intent.outcome()).await.expect("it ends");
    let error = outcome.included().expect_err("it reverted");
    let revert = error.revert().unwrap_or_else(|| panic!("{error:?}"));
    assert_eq!(revert.selector(), Some(ContextGraphs::AlreadyRegistered::SELECTOR), "{error}");
    let (ours, theirs) = (stage.registrations(signer.address()).await, stage.registrations(rival).await);
    assert_eq!((ours, theirs), (0, 1));
    let again = stage.register(&client, "a").send().await.expect("it has ended");
    assert_eq!(within(again.outcome()).await.expect("it has ended"), outcome);
}

#[tokio::test]
async fn a_lost_reply_to_a_send_is_one_transaction() {
    let stage = Stage::new().await;
    let lost = || Program::new().rule(Rule::on("eth_sendRawTransaction").times(1).then(Action::LoseReply));
    let fleet = stage.fleet([("primary", lost()), ("second", lost())]).await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    stage.registered(&client, "a").await;
    assert!(fleet.faults_fired() > 0);
    assert_eq!(stage.nonce(signer.address()).await, 2);
    assert_eq!(
        (stage.approvals(signer.address()).await, stage.registrations(signer.address()).await),
        (1, 1)
    );
    let sent: BTreeSet<_> = sends(&fleet).iter().filter_map(|call| call.tx_hash()).collect();
    assert_eq!(sent.len(), 2, "only the same bytes were ever sent again");
}

#[tokio::test]
async fn a_send_that_hangs_or_arrives_late_is_one_transaction() {
    for slow in [Action::Hang, Action::Stall(2 * ATTEMPT), Action::LateReply(2 * ATTEMPT)] {
        let stage = Stage::new().await;
        let rule = Rule::on("eth_sendRawTransaction").then(slow.clone());
        let fleet = stage.fleet([("primary", rule.into()), ("second", Program::new())]).await;
        let signer = stage.account().await;
        let client = stage.client(&fleet, &signer).await;
        stage.registered(&client, "a").await;
        assert!(fleet.faults_fired() > 0, "{slow:?}");
        let sent: BTreeSet<_> = sends(&fleet).iter().filter_map(|call| call.tx_hash()).collect();
        assert_eq!(sent.len(), 2, "{slow:?}: only the same bytes were ever sent again");
        assert_eq!(stage.nonce(signer.address()).await, 2, "{slow:?}");
    }
}

#[tokio::test]
async fn a_nonce_that_somebody_else_used_is_given_up_and_the_intent_goes_on() {
    let stage = Stage::new().await;
    let signer = stage.account_allowing(1).await;
    // The endpoints have not seen the block of the other transaction yet, and so does the client not know.
    let behind = || View::Trailing { blocks: 1 }.into();
    let fleet = stage.fleet([("primary", behind()), ("second", behind())]).await;
    stage.act_as(signer.address(), stage.contracts.token, &Token::symbolCall {}).await;
    let before = stage.nonce(signer.address()).await;
    let mut config = stage.config(&fleet);
    config.tx.fence_patience = Some(SOON);
    let client = within(Client::builder(config).signer(signer.clone()).connect()).await.expect("it connects");
    let mark = fleet.mark();
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    let refused = |call: &backstay_testkit::Call| call.raw_tx.is_some() && call.upstream.is_some();
    let refused = fleet.wait_for(mark, SOON, refused).await.expect("it is sent");
    says(&format!("{:?}", refused.upstream), &["nonce too low"]);
    for name in ["primary", "second"] {
        fleet.endpoint(name).heal();
    }
    within(intent.outcome()).await.expect("it ends well").included().expect("it is included");
    assert_eq!(stage.nonce(signer.address()).await, before + 1);
    assert_eq!(stage.registrations(signer.address()).await, 1);
    assert_eq!(nonces(&fleet), BTreeSet::from([before - 1, before]));
}

#[tokio::test]
async fn ether_is_sent_along() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.client(&fleet, &stage.account().await).await;
    let payee = Address::repeat_byte(0x77);
    let intent = client.intent("pay").to(payee, vec![]).value(U256::from(5)).send().await;
    within(intent.expect("it is written down").outcome()).await.expect("it ends well");
    assert_eq!(stage.rpc("eth_getBalance", json!([payee, "latest"])).await, "0x5");
}

impl Stage {
    /// [`Stage::account_allowing`] one deposit, on a chain that mines only when it is told to.
    async fn account_allowing_by_mining(&self) -> backstay::alloy::signers::local::PrivateKeySigner {
        self.rpc("evm_setAutomine", json!([true])).await;
        let signer = self.account_allowing(1).await;
        self.rpc("evm_setAutomine", json!([false])).await;
        signer
    }

    /// Puts a registration of another account into the pool, for a price that goes before all others.
    async fn bid_higher(&self, from: Address, name: &str) {
        use backstay::alloy::sol_types::SolCall;
        let input = ContextGraphs::createContextGraphCall { key: key(name) }.abi_encode();
        let input = backstay::alloy::primitives::Bytes::from(input);
        self.rpc("anvil_impersonateAccount", json!([from])).await;
        let price = "0x174876e800";
        let call = json!({
            "from": from, "to": self.contracts.graphs, "input": input, "gas": "0x100000",
            "maxFeePerGas": price, "maxPriorityFeePerGas": price,
        });
        self.rpc("eth_sendTransaction", json!([call])).await;
    }
}
