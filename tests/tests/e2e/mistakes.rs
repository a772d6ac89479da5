//! Mistakes of callers, and what else they run into: nothing is sent that should not be, and the way out is open.

use std::time::Duration;

use backstay::{
    Client, Delivery, ErrorKind, Grant, RefusalKind,
    alloy::primitives::{Address, U256},
};
use backstay_testkit::{
    Action, Mark, Program, Rule,
    sample::{ContextGraphs, Token},
};
use serde_json::json;

use super::stage::{SOON, Stage, block_number, eventually, key, says, sends, status, within};

#[tokio::test]
async fn a_call_to_where_there_is_no_contract_is_not_sent() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    let nowhere = Address::repeat_byte(0x55);
    let call = ContextGraphs::createContextGraphCall { key: key("a") };
    let intent = client.intent("a").call(nowhere, &call).value(U256::ONE).send().await.expect("written down");
    let error = within(intent.outcome()).await.expect_err("nobody is there");
    assert!(
        matches!(error.kind(), ErrorKind::NoContractCode { address, .. } if *address == nowhere),
        "{error:?}"
    );
    says(&error, &[&nowhere.to_string(), "check the address"]);
    assert!(sends(&fleet).is_empty());
    // Ether alone goes to any account.
    let gift =
        client.intent("gift").to(nowhere, Vec::new()).value(U256::ONE).send().await.expect("written down");
    within(gift.outcome()).await.expect("it ends well").included().expect("it is included");
}

#[tokio::test]
async fn a_fee_cap_below_the_base_fee_signs_nothing_and_blocks_nothing() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account_allowing(2).await;
    let mut config = stage.config(&fleet);
    config.tx.max_fee_per_gas = Some(1);
    let capped = within(Client::builder(config).signer(signer.clone()).connect()).await.expect("it connects");
    let intent = stage.register(&capped, "a").send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("gas costs more");
    assert_eq!(*error.kind(), ErrorKind::TxRefused(RefusalKind::FeeBelowBaseFee));
    says(&error, &["max_fee_per_gas", "nothing was signed"]);
    assert!(sends(&fleet).is_empty());
    drop(capped);
    let client = stage.client(&fleet, &signer).await;
    stage.registered(&client, "a").await;
    stage.registered(&client, "b").await;
}

#[tokio::test]
async fn a_grant_for_another_spender_is_named_and_can_be_corrected_under_the_same_key() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    let wrong = Grant { spender: Address::repeat_byte(7), ..stage.grant() };
    let intent = stage.register(&client, "a").grant(wrong).send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("somebody else may spend now");
    says(&error, &[&wrong.spender.to_string(), "the grant's spender"]);
    stage.registered(&client, "a").await;
    assert_eq!(stage.registrations(signer.address()).await, 1);
}

#[tokio::test]
async fn a_nonce_that_went_to_another_transaction_is_signed_anew_once_that_is_final() {
    let stage = Stage::new().await;
    let swallow = || Program::new().rule(Rule::on("eth_sendRawTransaction").then(Action::DropBefore));
    let fleet = stage.fleet([("primary", swallow()), ("second", swallow())]).await;
    let signer = stage.account_allowing(1).await;
    let mut config = stage.config(&fleet);
    config.tx.inclusion_timeout = Duration::from_secs(8);
    let connect = async || {
        within(Client::builder(config.clone()).signer(signer.clone()).connect()).await.expect("it connects")
    };
    let client = connect().await;
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    fleet.wait_for(Mark::START, SOON, |call| call.raw_tx.is_some()).await.expect("it is sent");
    drop((client, intent));
    // From outside, with the same nonce.
    let nothing = Token::approveCall { spender: Address::repeat_byte(9), value: U256::ZERO };
    stage.act_as(signer.address(), stage.contracts.token, &nothing).await;
    for name in ["primary", "second"] {
        fleet.endpoint(name).heal();
    }
    let client = connect().await;
    let intent = stage.register(&client, "a").send().await.expect("it is open");
    let error = within(intent.outcome()).await.expect_err("that could be reorganised away");
    says(&error, &["was used by", "once that is final"]);
    assert_eq!(error.delivery(), Delivery::Unknown);
    // Two epochs later it is final.
    stage.rpc("anvil_mine", json!(["0x50"])).await;
    stage.registered(&client, "a").await;
    assert_eq!(stage.registrations(signer.address()).await, 1);
}

#[tokio::test]
async fn an_endpoint_that_hangs_later_costs_no_call_once_the_tracker_has_noticed() {
    let stage = Stage::with_blocks_every(Duration::from_secs(1)).await;
    let fleet = stage.sound().await;
    let mut config = stage.config(&fleet);
    config.provider.attempt_timeout = Duration::from_secs(20);
    config.provider.operation_timeout = Duration::from_secs(60);
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    fleet.endpoint("primary").set(Rule::any().then(Action::Hang));
    eventually("the tracker has noticed", async || status(&client, "primary").excluded.is_some()).await;
    let mark = fleet.mark();
    block_number(&client).await.expect("the second answers");
    let asked = fleet.records_since(mark);
    assert!(asked.iter().all(|call| call.endpoint == "second" || call.method == "eth_getBlockByNumber"));
}
