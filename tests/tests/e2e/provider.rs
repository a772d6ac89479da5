//! Alloy over the client: bindings, fillers, wallets and errors are alloy's own, and the endpoints fail over.

use backstay::{
    Delivery, ErrorKind,
    alloy::{
        consensus::{SignableTransaction, TxEip1559, TxEnvelope},
        eips::{BlockId, Encodable2718},
        network::{Ethereum, EthereumWallet, TransactionBuilder, TxSignerSync},
        primitives::{Address, Bytes, TxKind, U256},
        providers::{Provider, ProviderBuilder},
        rpc::{client::BatchRequest, types::TransactionRequest},
        signers::local::PrivateKeySigner,
    },
    error_of,
};
use backstay_testkit::{
    Action, Rule,
    sample::{ContextGraphs, Parameters, Token},
};
use e2e::story::CHAIN_ID;

use crate::stage::{Stage, eventually, key, ours, says, sends, within};

#[tokio::test]
async fn bindings_read_through_the_client_over_a_primary_that_fails() {
    let stage = Stage::new().await;
    let failing = Rule::on("eth_call").then(Action::http(500, "out of order"));
    let hits = failing.hits();
    let fleet = stage.fleet([("primary", failing.into()), ("second", Default::default())]).await;
    let client = stage.reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    let deposit = Parameters::new(stage.contracts.parameters, &provider).deposit().call().await;
    assert_eq!(deposit.expect("the second answers"), stage.contracts.deposit);
    let token = Token::new(stage.contracts.token, &provider);
    assert_eq!(token.symbol().call().await.expect("the second answers"), "DEP");
    assert_eq!(token.totalSupply().call().block(BlockId::number(1)).await.expect("history too"), U256::ZERO);
    let transfers = token.Transfer_filter().from_block(0).query().await.expect("logs too");
    assert!(transfers.is_empty());
    assert!(hits.get() > 0);
}

#[tokio::test]
async fn a_wallet_and_fillers_over_the_client_send_for_an_account_of_their_own() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.client(&fleet, &PrivateKeySigner::random()).await;
    fleet.endpoint("primary").kill().await;
    let own = stage.account().await;
    let provider = ProviderBuilder::new()
        .wallet(EthereumWallet::from(own.clone()))
        .connect_provider(client.provider::<Ethereum>());
    let token = Token::new(stage.contracts.token, &provider);
    let approve = token.approve(stage.contracts.graphs, stage.contracts.deposit);
    let receipt = within(within(approve.send()).await.expect("it is taken").get_receipt()).await;
    assert!(receipt.expect("it is mined").status());
    let graphs = ContextGraphs::new(stage.contracts.graphs, &provider);
    let pending = within(graphs.createContextGraph(key("a")).send()).await.expect("it is taken");
    assert!(within(pending.get_receipt()).await.expect("it is mined").status());
    assert_eq!(stage.registrations(own.address()).await, 1);
    let payment = TransactionRequest::default().with_to(Address::repeat_byte(5)).with_value(U256::ONE);
    let pending = within(provider.send_transaction(payment)).await.expect("it is taken");
    assert!(within(pending.get_receipt()).await.expect("it is mined").status());
    assert_eq!(stage.nonce(own.address()).await, 3);
}

#[tokio::test]
async fn a_lost_reply_to_a_raw_send_is_looked_up_and_not_an_error() {
    let stage = Stage::new().await;
    let lost = Rule::on("eth_sendRawTransaction").then(Action::LoseReply);
    let hits = lost.hits();
    let fleet = stage.fleet([("primary", lost.into()), ("second", Default::default())]).await;
    let client = stage.reader(&fleet).await;
    let signer = stage.account().await;
    let (raw, hash) = payment(&signer, 0);
    let pending = within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await;
    let pending = pending.expect("it is found on chain");
    assert_eq!(*pending.tx_hash(), hash);
    assert!(within(pending.get_receipt()).await.expect("it is mined").status());
    assert_eq!(hits.get(), 1);
    assert_eq!(sends(&fleet).len(), 1, "it was found, so it was not sent again");
}

#[tokio::test]
async fn a_send_by_the_nodes_own_key_is_never_repeated_once_it_may_have_arrived() {
    let stage = Stage::new().await;
    let lost = Rule::on("eth_sendTransaction").then(Action::LoseReply);
    let fleet = stage.fleet([("primary", lost.into()), ("second", Default::default())]).await;
    let client = stage.reader(&fleet).await;
    let (from, to) = (stage.chain.accounts()[5], Address::repeat_byte(6));
    let request = TransactionRequest::default().with_from(from).with_to(to).with_value(U256::ONE);
    let error = within(client.provider::<Ethereum>().send_transaction(request)).await;
    let error = ours(&error.expect_err("the reply is lost"));
    assert_eq!(error.delivery(), Delivery::Unknown, "{error}");
    says(&error, &["eth_sendTransaction", "may have been taken", "not sent again"]);
    assert_eq!(sends(&fleet).len(), 1);
    eventually("it was taken, and is mined", async || stage.nonce(from).await == 1).await;
}

#[tokio::test]
async fn a_raw_send_that_reaches_nobody_says_that_nothing_left() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let (raw, _) = payment(&stage.account().await, 0);
    for name in ["primary", "second"] {
        fleet.endpoint(name).kill().await;
    }
    let error = within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await;
    let error = ours(&error.expect_err("nobody is there"));
    assert_eq!((error.kind(), error.delivery()), (&ErrorKind::Unavailable, Delivery::NotSent), "{error}");
}

#[tokio::test]
async fn a_raw_send_whose_fate_nobody_can_tell_says_so() {
    let stage = Stage::new().await;
    let vanishes = || Rule::on("eth_sendRawTransaction").then(Action::DropBefore).into();
    let fleet = stage.fleet([("primary", vanishes()), ("second", vanishes())]).await;
    let client = stage.reader(&fleet).await;
    let (raw, hash) = payment(&stage.account().await, 0);
    let error = within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await;
    let error = ours(&error.expect_err("both took it, as far as anyone can tell"));
    assert_eq!(error.delivery(), Delivery::Unknown, "{error}");
    says(&error, &[&hash.to_string(), "treat it as sent"]);
}

#[tokio::test]
async fn a_custom_error_reaches_alloy_and_can_be_decoded() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let graphs = ContextGraphs::new(stage.contracts.graphs, client.provider::<Ethereum>());
    let call = graphs.createContextGraph(key("a")).from(Address::repeat_byte(3));
    for error in [
        within(call.call()).await.err().expect("there is no allowance"),
        within(call.estimate_gas()).await.expect_err("there is no allowance"),
    ] {
        let decoded = error.as_decoded_error::<ContextGraphs::TooLowAllowance>().expect("it says which");
        assert_eq!(decoded.token, stage.contracts.token);
        assert_eq!((decoded.allowance, decoded.expected), (U256::ZERO, stage.contracts.deposit));
        let backstay::alloy::contract::Error::TransportError(error) = error else { panic!("{error:?}") };
        assert!(error_of(&error).is_none(), "what a contract says stays alloy's own error");
    }
    assert_eq!((fleet.count("primary", "eth_call"), fleet.count("second", "eth_call")), (1, 0));
    assert_eq!(client.failovers(), 0);
}

#[tokio::test]
async fn sends_for_a_managed_account_are_refused_and_nothing_reaches_the_chain() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let account = signer.address();
    let client = stage.client(&fleet, &signer).await;
    let provider = client.provider::<Ethereum>();
    let (raw, _) = payment(&signer, 0);

    let check = |error: backstay::alloy::transports::TransportError, method: &str| {
        let error = ours(&error);
        assert_eq!(*error.kind(), ErrorKind::ManagedAccount { account });
        says(&error, &[method, &account.to_string(), "intent"]);
    };
    let error = within(provider.send_raw_transaction(&raw)).await.expect_err("raw bytes");
    check(error, "eth_sendRawTransaction");
    let error = within(provider.send_raw_transaction_sync(&raw)).await.expect_err("raw bytes, waited for");
    check(error, "eth_sendRawTransactionSync");
    let request = TransactionRequest::default().with_from(account).with_to(Address::ZERO);
    let error = within(provider.send_transaction(request)).await.expect_err("by the node's own key");
    check(error, "eth_sendTransaction");
    let wallet =
        ProviderBuilder::new().wallet(EthereumWallet::from(signer.clone())).connect_provider(provider);
    let request = TransactionRequest::default().with_to(Address::ZERO).with_value(U256::ONE);
    let error = within(wallet.send_transaction(request)).await.expect_err("through a wallet");
    check(error, "eth_sendRawTransaction");
    let request = serde_json::json!([{"from": account, "to": Address::ZERO}, "password"]);
    for method in ["personal_sendTransaction", "wallet_sendTransaction"] {
        let sent = within(wallet.raw_request::<_, String>(method.into(), &request)).await;
        check(sent.expect_err("by another name"), method);
    }
    // Beside a read, in a batch.
    let provider = client.provider::<Ethereum>();
    let mut batch = BatchRequest::new(provider.client());
    let _id = batch.add_call::<_, String>("eth_chainId", &()).expect("it is JSON");
    let _sent = batch.add_call::<_, String>("eth_sendRawTransaction", &(raw,)).expect("it is JSON");
    check(within(batch.send()).await.expect_err("in a batch"), "eth_sendRawTransaction");

    let asked = fleet.records().into_iter().map(|call| call.method);
    let sends: Vec<_> = asked.filter(|method| method.contains("_send")).collect();
    assert!(sends.is_empty(), "endpoints were sent {sends:?}");
    assert_eq!(stage.nonce(account).await, 0);
    stage.registered(&client, "a").await;
    assert_eq!(stage.nonce(account).await, 2, "the nonce line was not disturbed");
}

#[tokio::test]
async fn a_refused_raw_send_is_the_nodes_own_error_and_not_asked_for_in_vain() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let (raw, _) = payment(&PrivateKeySigner::random(), 0);
    let error = within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await;
    let error = error.expect_err("it cannot pay");
    let said = error.as_error_resp().unwrap_or_else(|| panic!("{error:?}"));
    assert!(said.message.to_lowercase().contains("insufficient funds"), "{said:?}");
}

/// One wei to somebody, signed.
pub(crate) fn payment(signer: &PrivateKeySigner, nonce: u64) -> (Bytes, backstay::alloy::primitives::B256) {
    let mut transaction = TxEip1559 {
        chain_id: CHAIN_ID,
        nonce,
        gas_limit: 21_000,
        max_fee_per_gas: 10_000_000_000,
        max_priority_fee_per_gas: 1,
        to: TxKind::Call(Address::repeat_byte(4)),
        value: U256::ONE,
        ..TxEip1559::default()
    };
    let signature = signer.sign_transaction_sync(&mut transaction).expect("a key in memory signs");
    let signed: TxEnvelope = transaction.into_signed(signature).into();
    (signed.encoded_2718().into(), *signed.tx_hash())
}
