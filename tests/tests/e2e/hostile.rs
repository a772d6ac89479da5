//! Endpoints that lie about transactions: balancers, shallow forks, full pools, forged receipts and blocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use backstay::{
    AllowanceFlow, Client, Config, Delivery, EndpointConfig, ErrorKind, Grant, Outcome,
    alloy::{
        consensus::{Transaction, TxEnvelope},
        eips::{BlockNumberOrTag, Decodable2718},
        network::Ethereum,
        primitives::{Address, B256, Bytes, U256},
        providers::Provider,
        signers::local::PrivateKeySigner,
    },
};
use backstay_testkit::{Action, Anvil, Call, Fleet, Program, Rule, View};
use e2e::story::CHAIN_ID;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    identity::private_branch,
    stage::{SOON, Stage, block_number, caught_up, eventually, says, sends, status, within},
};

/// The nonces at which each call was sent, by its target and input.
fn nonces_of_calls(fleet: &Fleet) -> BTreeMap<(Option<Address>, Bytes), BTreeSet<u64>> {
    let mut calls = BTreeMap::<_, BTreeSet<u64>>::new();
    for raw in sends(fleet).into_iter().filter_map(|call| call.raw_tx) {
        let sent = TxEnvelope::decode_2718(&mut raw.as_ref()).expect("it is a transaction");
        calls.entry((sent.to(), sent.input().clone())).or_default().insert(sent.nonce());
    }
    calls
}

/// Fails unless an account has approved once and registered once, and each call was sent at one nonce.
async fn both_once(stage: &Stage, fleet: &Fleet, account: Address) {
    let done = (stage.approvals(account).await, stage.registrations(account).await);
    assert_eq!(done, (1, 1), "approvals and registrations on the live chain");
    assert_eq!(stage.nonce(account).await, 2);
    let calls = nonces_of_calls(fleet);
    assert_eq!(calls.len(), 2, "approve and register: {calls:?}");
    assert!(calls.values().all(|nonces| nonces.len() == 1), "a call was sent at two nonces: {calls:?}");
}

async fn connected(config: Config, signer: &PrivateKeySigner) -> Client {
    let builder = Client::builder(config).signer(signer.clone()).flow(AllowanceFlow::new());
    within(builder.connect()).await.expect("it connects")
}

/// Hands bytes to a node past the fleet, and waits for its answer. For hooks, which are not async.
fn forward(chain: &url::Url, raw: &Bytes) {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransaction", "params": [raw]});
    let body = body.to_string();
    let address = (chain.host_str().expect("it has a host"), chain.port().expect("it has a port"));
    let mut stream = TcpStream::connect(address).expect("the node listens");
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("the node reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the node answers");
    assert!(answer.contains("\"result\""), "{answer}");
}

#[tokio::test]
async fn a_balancer_that_takes_a_send_and_calls_its_nonce_too_low_gets_no_second_one() {
    // The first lookup meets a replica that has not seen it yet; or all of them do.
    for blind in [1, u64::MAX] {
        let stage = Stage::new().await;
        let chain = stage.chain.url().clone();
        let taken = Rule::on("eth_sendRawTransaction")
            .to(stage.contracts.token)
            .times(1)
            .before(move |call| forward(&chain, call.raw_tx.as_ref().expect("it is a send")))
            .then(Action::error(-32_000, "nonce too low"));
        let hits = taken.hits();
        let null = |method: &str, times| Rule::on(method).times(times).then(Action::RpcResult(Value::Null));
        let program = Program::new()
            .rule(taken)
            .rule(null("eth_getTransactionByHash", blind))
            .rule(null("eth_getTransactionReceipt", 2));
        let fleet = stage.fleet([("balancer", program)]).await;
        let signer = stage.account().await;
        let mut config = stage.config(&fleet);
        config.provider.lookup_budget = Duration::from_millis(500);
        let client = connected(config, &signer).await;
        stage.registered(&client, "a").await;
        assert_eq!(hits.get(), 1);
        both_once(&stage, &fleet, signer.address()).await;
    }
}

#[tokio::test]
async fn a_fork_a_few_blocks_back_is_not_sent_to() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    stage.chain.mine(8).await.expect("anvil mines");
    let at = stage.chain.head().await.expect("anvil answers") - 5;
    let fork = Anvil::builder().fork_at(stage.chain.url(), at).launch().await.expect("anvil forks");
    let fleet = Fleet::builder()
        .endpoint("primary", fork.url(), Program::new())
        .endpoint("second", stage.chain.url(), Program::new())
        .endpoint("third", stage.chain.url(), Program::new());
    let fleet = fleet.start().await.expect("the fleet starts");
    let mut config = stage.config(&fleet);
    config.provider.pool.max_lag = Some(64);
    let client = connected(config, &signer).await;
    caught_up(&client, &stage.chain).await;
    assert_eq!(status(&client, "primary").excluded, None, "it shares the history that it has");
    stage.registered(&client, "a").await;
    assert_eq!(fleet.count("primary", "eth_sendRawTransaction"), 0);
    assert_eq!(nonce_at(&fork, signer.address()).await, "0x0");
    both_once(&stage, &fleet, signer.address()).await;
}

async fn nonce_at(chain: &Anvil, account: Address) -> Value {
    let count = chain.rpc("eth_getTransactionCount", json!([account, "latest"])).await;
    count.expect("anvil answers")
}

#[tokio::test]
async fn a_private_branch_stays_out_when_every_sound_endpoint_is_dead() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let branch = private_branch(&stage).await;
    let fleet = Fleet::builder()
        .endpoint("primary", branch.url(), Program::new())
        .endpoint("second", stage.chain.url(), Program::new())
        .endpoint("third", stage.chain.url(), Program::new());
    let fleet = fleet.start().await.expect("the fleet starts");
    let mut config = stage.config(&fleet);
    config.provider.identity_recheck = Duration::from_millis(100);
    config.provider.operation_timeout = Duration::from_secs(2);
    config.provider.pool.breaker.cooldown = Duration::from_millis(100);
    config.tx.inclusion_timeout = Duration::from_secs(3);
    let client = connected(config, &signer).await;
    says(&status(&client, "primary").excluded.expect("it is left out"), &["another branch"]);
    for name in ["second", "third"] {
        fleet.endpoint(name).kill().await;
    }
    eventually("both breakers are open", async || {
        ["second", "third"].iter().all(|name| status(&client, name).excluded.is_some())
    })
    .await;
    let looked = |call: &Call| {
        call.endpoint == "primary" && call.method == "eth_getBlockByNumber" && call.params[0] == "0x0"
    };
    // More than once it has the word alone.
    for _ in 0..4 {
        fleet.wait_for(fleet.mark(), SOON, looked).await.expect("its identity is looked at");
    }
    says(&status(&client, "primary").excluded.expect("it is left out still"), &["another branch"]);
    let intent = stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("no sound endpoint is there");
    assert_eq!(error.delivery(), Delivery::NotSent, "{error}");
    assert!(sends(&fleet).is_empty());
    assert_eq!(nonce_at(&branch, signer.address()).await, "0x0");

    for name in ["second", "third"] {
        fleet.endpoint(name).revive().await.expect("the port is ours");
    }
    eventually("the sound ones are in use again", async || {
        ["second", "third"].iter().all(|name| status(&client, name).excluded.is_none())
    })
    .await;
    stage.registered(&client, "a").await;
    both_once(&stage, &fleet, signer.address()).await;
    assert_eq!(fleet.count("primary", "eth_sendRawTransaction"), 0);
}

#[tokio::test]
async fn a_pool_that_is_full_for_a_moment_does_not_end_an_intent() {
    let full = || Rule::on("eth_sendRawTransaction").then(Action::error(-32_000, "txpool is full"));
    for of_effect in [false, true] {
        let stage = Stage::new().await;
        let to = if of_effect { stage.contracts.graphs } else { stage.contracts.token };
        let program = || full().to(to).times(1).into();
        let fleet = stage.fleet([("primary", program()), ("second", program())]).await;
        let signer = stage.account().await;
        let client = stage.client(&fleet, &signer).await;
        stage.registered(&client, "a").await;
        assert_eq!(fleet.faults_fired(), 2, "both were full");
        both_once(&stage, &fleet, signer.address()).await;
    }
}

#[tokio::test]
async fn a_pool_that_is_full_for_two_blocks_does_not_end_an_intent() {
    let stage = Stage::new().await;
    let full = Arc::new(AtomicBool::new(true));
    let program = || {
        let full = full.clone();
        let rule = Rule::on("eth_sendRawTransaction").when(move |_| full.load(Ordering::SeqCst));
        rule.then(Action::error(-32_000, "txpool is full")).into()
    };
    let fleet = stage.fleet([("primary", program()), ("second", program())]).await;
    let signer = stage.account_allowing(1).await;
    let client = stage.client(&fleet, &signer).await;
    let mut mark = fleet.mark();
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    for blocks in 0..=2 {
        for name in ["primary", "second"] {
            let refused = |call: &Call| call.endpoint == name && call.raw_tx.is_some() && call.fault;
            fleet.wait_for(mark, SOON, refused).await.expect("it is sent, and refused");
        }
        if blocks < 2 {
            mark = fleet.mark();
            stage.chain.mine(1).await.expect("anvil mines");
        }
    }
    full.store(false, Ordering::SeqCst);
    let outcome = within(intent.outcome()).await.expect("it ends well");
    outcome.included().expect("it is included");
    let again = stage.register(&client, "a").send().await.expect("it has ended");
    assert_eq!(within(again.outcome()).await.expect("it has ended"), outcome);
    assert_eq!(stage.registrations(signer.address()).await, 1);
    assert_eq!(stage.nonce(signer.address()).await, 2);
    let sent: BTreeSet<_> = sends(&fleet).iter().filter_map(Call::tx_hash).collect();
    assert_eq!(sent.len(), 1, "only the same bytes were ever sent");
}

#[tokio::test]
async fn a_forged_receipt_is_not_believed() {
    let without_status: fn(&mut Value) = |receipt| {
        receipt.as_object_mut().expect("it is an object").remove("status");
    };
    let of_another: fn(&mut Value) = |receipt| receipt["transactionHash"] = json!(B256::repeat_byte(7));
    let not_canonical: fn(&mut Value) = |receipt| receipt["blockHash"] = json!(B256::repeat_byte(7));
    for forge in [without_status, of_another, not_canonical] {
        let stage = Stage::new().await;
        let receipts = || Rule::on("eth_getTransactionReceipt");
        let none = || receipts().then(Action::RpcResult(Value::Null)).into();
        let fleet = stage.fleet([("primary", none()), ("second", none())]).await;
        let signer = stage.account_allowing(1).await;
        let client = stage.client(&fleet, &signer).await;
        let mark = fleet.mark();
        let intent = stage.register(&client, "a").send().await.expect("it is written down");
        let taken = |call: &Call| call.raw_tx.is_some() && call.upstream.is_some();
        let sent = fleet.wait_for(mark, SOON, taken).await.expect("it is sent");
        assert_eq!(sent.endpoint, "primary");
        let hash = sent.tx_hash().expect("it is a send");
        let mut receipt = Value::Null;
        eventually("it is mined", async || {
            receipt = stage.rpc("eth_getTransactionReceipt", json!([hash])).await;
            !receipt.is_null()
        })
        .await;
        assert_eq!(receipt["status"], "0x1");
        let mut forged = receipt.clone();
        forge(&mut forged);
        let forged = receipts().then(Action::RpcResult(forged));
        let hits = forged.hits();
        fleet.endpoint("primary").set(forged);
        // Were it believed, nobody would ask a third time.
        eventually("it is asked for again and again", async || hits.get() >= 6).await;

        fleet.endpoint("second").heal();
        stage.chain.mine(1).await.expect("anvil mines");
        let outcome = within(intent.outcome()).await.expect("it ends well");
        let included = outcome.included().expect("it is included");
        assert_eq!(
            (json!(included.hash), json!(included.block.hash)),
            (json!(hash), receipt["blockHash"].clone())
        );
        assert_eq!(stage.registrations(signer.address()).await, 1);
        assert_eq!(stage.nonce(signer.address()).await, 2);
    }
}

#[tokio::test]
async fn an_error_after_the_effect_was_sent_leaves_its_delivery_open() {
    let stage = Stage::new().await;
    let none = || Rule::on("eth_getTransactionReceipt").then(Action::RpcResult(Value::Null)).into();
    let fleet = stage.fleet([("primary", none()), ("second", none())]).await;
    let signer = stage.account_allowing(1).await;
    let mut config = stage.config(&fleet);
    config.provider.operation_timeout = Duration::from_secs(2);
    config.provider.pool.breaker.cooldown = Duration::from_millis(100);
    config.tx.inclusion_timeout = Duration::from_secs(2);
    let client = connected(config, &signer).await;
    let mark = fleet.mark();
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    let taken = |call: &Call| call.raw_tx.is_some() && call.upstream.is_some();
    fleet.wait_for(mark, SOON, taken).await.expect("it is sent");
    for name in ["primary", "second"] {
        fleet.endpoint(name).kill().await;
    }
    let error = within(intent.outcome()).await.expect_err("nobody is there");
    assert_eq!((error.kind(), error.delivery()), (&ErrorKind::Timeout, Delivery::Unknown), "{error}");
    // A run that reaches nobody has sent nothing itself; its bytes are out all the same.
    let again = stage.register(&client, "a").send().await.expect("it is open");
    let error = within(again.outcome()).await.expect_err("nobody is there");
    assert_eq!(error.delivery(), Delivery::Unknown, "{error}");

    for name in ["primary", "second"] {
        fleet.endpoint(name).heal();
        fleet.endpoint(name).revive().await.expect("the port is ours");
    }
    eventually("they are in use again", async || {
        client.status().endpoints.iter().all(|status| status.excluded.is_none())
    })
    .await;
    let again = stage.register(&client, "a").send().await.expect("it is open");
    within(again.outcome()).await.expect("it ends well").included().expect("it is included");
    assert_eq!(stage.registrations(signer.address()).await, 1);
    assert_eq!(stage.nonce(signer.address()).await, 2);
}

#[tokio::test]
async fn an_inclusion_that_a_second_endpoint_contradicts_stays_open_until_they_agree() {
    let stage = Stage::new().await;
    let signer = stage.account_allowing(1).await;
    let head = stage.chain.head().await.expect("anvil answers");
    // The second endpoint has another block where the effect will be.
    let next = format!("{:#x}", head + 1);
    let mut other = stage.rpc("eth_getBlockByNumber", json!(["latest", false])).await;
    other["number"] = json!(next);
    other["parentHash"] = other["hash"].clone();
    other["hash"] = json!(B256::repeat_byte(7));
    let contradicts = Rule::on("eth_getBlockByNumber")
        .when(move |call| call.params[0] == next.as_str())
        .then(Action::RpcResult(other));
    let hits = contradicts.hits();
    let contradicts = Program::new().rule(contradicts).view(View::Frozen { at: head });
    let fleet = stage.fleet([("primary", Program::new()), ("second", contradicts)]).await;
    let mut config = stage.config(&fleet);
    config.tx.corroboration_wait = Some(Duration::from_secs(1));
    let client = connected(config, &signer).await;
    let intent = stage.register(&client, "a").send().await.expect("it is written down");
    let error = within(intent.outcome()).await.expect_err("the endpoints disagree");
    assert_eq!((error.kind(), error.delivery()), (&ErrorKind::Contradiction, Delivery::Unknown), "{error}");
    says(&error, &[&(head + 1).to_string(), "0x07070707", "stays open"]);
    assert!(hits.get() > 0);

    fleet.endpoint("second").heal();
    let again = stage.register(&client, "a").send().await.expect("it is open");
    let outcome = within(again.outcome()).await.expect("it ends well");
    assert!(matches!(outcome, Outcome::Included { corroborated: true, .. }), "{outcome:?}");
    assert_eq!(outcome.included().expect("it is included").block.number, head + 1);
    assert_eq!(stage.registrations(signer.address()).await, 1);
    assert_eq!(stage.nonce(signer.address()).await, 2);
    let sent: BTreeSet<_> = sends(&fleet).iter().filter_map(Call::tx_hash).collect();
    assert_eq!(sent.len(), 1);
}

#[tokio::test]
async fn grants_that_were_narrowed_bind_a_plan_that_was_written_down_before() {
    let stage = Stage::new().await;
    let estimates = |stage: &Stage| Rule::on("eth_estimateGas").to(stage.contracts.token).then(Action::Hang);
    let fleet =
        stage.fleet([("primary", estimates(&stage).into()), ("second", estimates(&stage).into())]).await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    let mark = fleet.mark();
    let Grant { token, spender, cap } = stage.grant();
    let intent = stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down");
    // It is planned, and not signed.
    let planned = |call: &Call| call.method == "eth_estimateGas" && call.fault;
    fleet.wait_for(mark, SOON, planned).await.expect("the approve is simulated");
    drop(client);
    let error = within(intent.outcome()).await.expect_err("nobody works on it");
    assert_eq!(*error.kind(), ErrorKind::Closed, "{error}");
    for name in ["primary", "second"] {
        fleet.endpoint(name).heal();
    }

    let client = stage.client(&fleet, &signer).await;
    let small = Grant { cap: cap - U256::ONE, ..stage.grant() };
    // Without a grant nobody says who the spender was to be.
    for (grants, spender, held) in [(vec![small], spender, Some(small.cap)), (vec![], spender, None)] {
        let again =
            grants.into_iter().fold(stage.register(&client, "a"), |intent, grant| intent.grant(grant));
        let again = again.send().await.expect("it is open");
        let error = within(again.outcome()).await.expect_err("it is not granted any more");
        let kind = ErrorKind::NotGranted { token, spender, amount: cap, cap: held };
        assert_eq!((error.kind(), error.delivery()), (&kind, Delivery::NotSent), "{error}");
        assert!(sends(&fleet).is_empty());
    }
    assert_eq!(stage.approvals(signer.address()).await, 0);
    stage.registered(&client, "a").await;
    let done = (stage.approvals(signer.address()).await, stage.registrations(signer.address()).await);
    assert_eq!(done, (1, 1));
}

#[tokio::test]
async fn connecting_beside_a_slow_endpoint_is_quick_with_default_timeouts() {
    let stage = Stage::new().await;
    let slow = Rule::any().then(Action::Stall(Duration::from_secs(11))).into();
    let fleet = stage.fleet([("slow", slow), ("second", Program::new()), ("third", Program::new())]).await;
    let endpoints = fleet.urls().into_iter().map(|(name, url)| EndpointConfig::new(name, url.as_str()));
    let config = Config::new(CHAIN_ID, endpoints.collect());
    let begun = Instant::now();
    let client = within(Client::builder(config).connect()).await.expect("two are enough");
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    for name in ["second", "third"] {
        assert_eq!(status(&client, name).excluded, None);
    }
    block_number(&client).await.expect("the others answer");
}

#[tokio::test]
async fn a_tag_that_an_endpoint_does_not_serve_says_nothing_about_the_method() {
    let stage = Stage::new().await;
    let unsupported = Rule::on("eth_getBlockByNumber")
        .containing("safe")
        .then(Action::error(-32_602, "safe is not a supported commitment level"));
    let hits = unsupported.hits();
    let fleet = stage.fleet([("primary", unsupported.into()), ("second", Program::new())]).await;
    let client = stage.reader(&fleet).await;
    let provider = client.provider::<Ethereum>();
    // In full, as the tracker does not ask for them.
    let block = async |tag| within(provider.get_block_by_number(tag).full()).await;
    block(BlockNumberOrTag::Safe).await.expect("the second serves it");
    assert_eq!(hits.get(), 1);
    let mark = fleet.mark();
    for _ in 0..2 {
        block(BlockNumberOrTag::Latest).await.expect("it is served").expect("there is one");
    }
    let calls = fleet.records_since(mark).into_iter().filter(|call| call.params[1] == true);
    let asked: Vec<_> = calls.map(|call| call.endpoint).collect();
    assert_eq!(asked, ["primary", "primary"], "it serves the method still");
}
