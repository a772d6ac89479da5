//! One key, one effect; and authority that recovery cannot widen.

use backstay::{
    ErrorKind, Grant,
    alloy::{
        primitives::{Address, U256},
        signers::local::PrivateKeySigner,
    },
};
use serde_json::json;

use crate::stage::{Stage, caught_up, says, sends, within};

#[tokio::test]
async fn an_account_without_funds_signs_nothing_and_goes_on_under_its_key_once_it_has_some() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = PrivateKeySigner::random();
    let client = stage.client(&fleet, &signer).await;
    let intent = stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("it cannot pay");
    let ErrorKind::InsufficientFunds { account, balance, needed } = error.kind() else { panic!("{error:?}") };
    assert_eq!((*account, *balance), (signer.address(), U256::ZERO));
    assert!(*needed > U256::ZERO, "it says how much is needed");
    says(&error, &[&signer.address().to_string(), "nothing was sent", "same key"]);
    assert!(sends(&fleet).is_empty());

    stage.contracts.fund(&stage.chain, signer.address()).await.expect("it is funded");
    caught_up(&client, &stage.chain).await;
    stage.registered(&client, "a").await;
    assert_eq!(stage.registrations(signer.address()).await, 1);
}

#[tokio::test]
async fn a_key_used_again_for_something_else_is_refused_and_nothing_is_sent() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    stage.registered(&client, "a").await;
    let sent = sends(&fleet).len();
    let other = Address::repeat_byte(9);

    let conflict = async |client: &backstay::Client| {
        let error = client.intent("register:a").to(other, vec![1]).send().await.expect_err("it is used");
        assert_eq!(*error.kind(), ErrorKind::KeyConflict { key: "register:a".into() });
        says(&error, &["`register:a`", &other.to_string(), "another key"]);
        // The value is part of the content, too.
        let error = stage.register(client, "a").value(U256::ONE).send().await.expect_err("it is used");
        assert_eq!(*error.kind(), ErrorKind::KeyConflict { key: "register:a".into() });
    };
    conflict(&client).await;
    drop(client);
    conflict(&stage.client(&fleet, &signer).await).await;
    assert_eq!(sends(&fleet).len(), sent, "nothing was sent");
}

#[tokio::test]
async fn a_key_used_for_something_else_while_its_intent_runs_is_refused() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.client(&fleet, &stage.account().await).await;
    let intent = stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down");
    let error = client.intent("register:a").to(Address::ZERO, vec![1]).send().await.expect_err("it is used");
    assert_eq!(*error.kind(), ErrorKind::KeyConflict { key: "register:a".into() });
    within(intent.outcome()).await.expect("the first one goes on");
}

#[tokio::test]
async fn approves_beyond_the_grants_are_refused_and_nothing_is_mined() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    let Grant { token, spender, cap } = stage.grant();
    let (too_small, other) = (cap - U256::ONE, Address::repeat_byte(9));
    let check = async |name: &str, grants: Vec<Grant>, held: Option<U256>| {
        let mut intent = stage.register(&client, name);
        for grant in grants {
            intent = intent.grant(grant);
        }
        let intent = intent.send().await.expect("it is written down");
        let error = within(intent.outcome()).await.expect_err("it is not granted");
        let expected = ErrorKind::NotGranted { token, spender, amount: cap, cap: held };
        assert_eq!(*error.kind(), expected, "{error}");
        says(&error, &[&token.to_string(), &spender.to_string(), &cap.to_string(), "grant"]);
    };
    check("too small", vec![Grant { token, spender, cap: too_small }], Some(too_small)).await;
    assert!(sends(&fleet).is_empty());
    assert_eq!(stage.nonce(signer.address()).await, 0);

    // Without a fitting grant, the spender is not known to the flow; the error names what it can.
    for (name, grants) in [("none", vec![]), ("of another token", vec![Grant { token: other, spender, cap }])]
    {
        let mut intent = stage.register(&client, name);
        for grant in grants {
            intent = intent.grant(grant);
        }
        let intent = intent.send().await.expect("it is written down");
        let error = within(intent.outcome()).await.expect_err("it is not granted");
        let ErrorKind::NotGranted { token: named, amount, cap: None, .. } = error.kind() else {
            panic!("{error:?}")
        };
        assert_eq!((*named, *amount), (token, cap));
        says(&error, &[&token.to_string(), "grant"]);
    }
    assert!(sends(&fleet).is_empty(), "nothing was sent");
    assert_eq!(stage.nonce(signer.address()).await, 0);
    assert_eq!(stage.approvals(signer.address()).await, 0);

    // A grant that is given later, under the same key, counts.
    stage.registered(&client, "none").await;
    assert_eq!(stage.approvals(signer.address()).await, 1);
    let allowance = json!([{"to": token, "input": allowance(signer.address(), spender)}, "latest"]);
    let left = stage.rpc("eth_call", allowance).await;
    assert_eq!(left, format!("0x{}", "0".repeat(64)), "the approve was exact, and is used up");
}

fn allowance(owner: Address, spender: Address) -> backstay::alloy::primitives::Bytes {
    use backstay::alloy::sol_types::SolCall;
    backstay_testkit::sample::Token::allowanceCall { owner, spender }.abi_encode().into()
}
