//! Endpoints that serve another chain, another history or another branch get nothing to do.

use std::time::Duration;

use backstay::{
    BlockRef, Client, EndpointConfig, ErrorKind, Standing,
    alloy::{network::Ethereum, providers::Provider, signers::local::PrivateKeySigner},
};
use backstay_testkit::{Action, Anvil, Fleet, Program, Rule};
use e2e::fleets::used_after;
use serde_json::json;

use crate::{
    stage::{Stage, block_number, caught_up, config, eventually, says, status, within},
    wiretap::Wiretap,
};

/// The genesis time of a chain that is not the stage's.
const OTHER_GENESIS: u64 = 1_700_000_000;

/// A chain that shares the stage's history up to its head, and has gone on by itself since, as the stage
/// has.
pub(crate) async fn private_branch(stage: &Stage) -> Anvil {
    let fork = Anvil::builder().fork(stage.chain.url()).launch().await.expect("anvil forks");
    for chain in [&fork, &stage.chain] {
        // Blocks without a difference would be the same blocks.
        let coinbase = format!("0x{:040x}", chain.pid());
        chain.rpc("anvil_setCoinbase", json!([coinbase])).await.expect("anvil takes a coinbase");
        chain.mine(3).await.expect("anvil mines");
    }
    assert_eq!(fork.head().await.expect("it answers"), stage.chain.head().await.expect("it answers"));
    fork
}

async fn fleet(endpoints: &[(&str, &Anvil)]) -> Fleet {
    let mut fleet = Fleet::builder();
    for (name, chain) in endpoints {
        fleet = fleet.endpoint(*name, chain.url(), Program::new());
    }
    fleet.start().await.expect("the fleet starts")
}

/// Reads and registers through a client, and holds that one endpoint had no part in it.
async fn works_without(stage: &Stage, fleet: &Fleet, left_out: &str, why: &[&str]) {
    let signer = stage.account().await;
    let client = stage.client(fleet, &signer).await;
    let connected = fleet.mark();
    says(&status(&client, left_out).excluded.expect("it is left out"), why);
    block_number(&client).await.expect("the others answer");
    let provider = client.provider::<Ethereum>();
    provider.get_balance(signer.address()).await.expect("the others answer");
    stage.registered(&client, "a").await;
    // Its identity has been looked at again meanwhile.
    fleet
        .wait_for(connected, Duration::from_secs(10), |call| call.endpoint == left_out)
        .await
        .expect("it is");
    says(&status(&client, left_out).excluded.expect("it is left out still"), why);
    assert_eq!(used_after(fleet, connected, left_out), Vec::<String>::new());
    assert_eq!(stage.registrations(signer.address()).await, 1, "on the right chain");
}

#[tokio::test]
async fn an_endpoint_of_another_chain_id_is_never_used() {
    let stage = Stage::new().await;
    let other = Anvil::builder().chain_id(1_337).launch().await.expect("anvil starts");
    let fleet = fleet(&[("wrong", &other), ("right", &stage.chain)]).await;
    works_without(&stage, &fleet, "wrong", &["1337", "31337"]).await;
}

#[tokio::test]
async fn another_history_of_the_same_chain_id_is_out_by_majority() {
    let stage = Stage::new().await;
    let other = Anvil::builder().timestamp(OTHER_GENESIS).launch().await.expect("anvil starts");
    let fleet = fleet(&[("wrong", &other), ("one", &stage.chain), ("two", &stage.chain)]).await;
    works_without(&stage, &fleet, "wrong", &["another history", "block 0"]).await;
}

#[tokio::test]
async fn a_private_branch_is_out_by_majority() {
    let stage = Stage::new().await;
    let branch = private_branch(&stage).await;
    let fleet = fleet(&[("wrong", &branch), ("one", &stage.chain), ("two", &stage.chain)]).await;
    works_without(&stage, &fleet, "wrong", &["another branch"]).await;
}

#[tokio::test]
async fn one_against_one_is_ambiguous_and_names_both() {
    let stage = Stage::new().await;
    let history = Anvil::builder().timestamp(OTHER_GENESIS).launch().await.expect("anvil starts");
    let branch = private_branch(&stage).await;
    for (other, what_to_do) in [(&history, "set `provider.genesis`"), (&branch, "add a third")] {
        let fleet = fleet(&[("mine", &stage.chain), ("theirs", other)]).await;
        let error =
            within(Client::builder(config(&fleet.urls())).connect()).await.expect_err("nothing decides");
        let ErrorKind::IdentityAmbiguous { left, right } = error.kind() else { panic!("{error:?}") };
        assert_ne!(left.0, right.0);
        let mut names = [left.1.as_str(), right.1.as_str()];
        names.sort_unstable();
        assert_eq!(names, ["mine", "theirs"]);
        says(&error, &["`mine`", "`theirs`", &left.0.to_string(), &right.0.to_string(), what_to_do]);
    }
}

#[tokio::test]
async fn the_configured_genesis_and_then_the_journal_decide_between_two() {
    let stage = Stage::new().await;
    let other = Anvil::builder().timestamp(OTHER_GENESIS).launch().await.expect("anvil starts");
    let fleet = fleet(&[("theirs", &other), ("mine", &stage.chain)]).await;
    let genesis = stage.rpc("eth_getBlockByNumber", json!(["0x0", false])).await;
    let mut config = stage.config(&fleet);
    config.provider.genesis = Some(serde_json::from_value(genesis["hash"].clone()).expect("a hash"));
    let signer = PrivateKeySigner::random();
    let connect = async |config| within(Client::builder(config).signer(signer.clone()).connect()).await;
    let client = connect(config.clone()).await.expect("the configured one is right");
    assert!(status(&client, "theirs").excluded.is_some());
    drop(client);
    config.provider.genesis = None;
    let client = connect(config).await.expect("the journal remembers it");
    assert!(status(&client, "theirs").excluded.is_some());
    assert_eq!(status(&client, "mine").excluded, None);
}

#[tokio::test]
async fn an_endpoint_that_comes_later_with_a_private_branch_is_not_used() {
    let stage = Stage::new().await;
    let branch = private_branch(&stage).await;
    let fleet = fleet(&[("late", &branch), ("right", &stage.chain)]).await;
    fleet.endpoint("late").kill().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    assert!(status(&client, "late").excluded.is_some(), "it has not answered yet");
    caught_up(&client, &stage.chain).await;
    let mark = fleet.mark();
    fleet.endpoint("late").revive().await.expect("the port is ours");
    let looked = |call: &backstay_testkit::Call| {
        call.endpoint == "late" && call.method == "eth_getBlockByNumber" && call.params[0] != "latest"
    };
    fleet.wait_for(mark, Duration::from_secs(20), looked).await.expect("its identity is looked at");
    stage.registered(&client, "a").await;
    assert_eq!(used_after(&fleet, mark, "late"), Vec::<String>::new());
    assert!(status(&client, "late").excluded.is_some(), "one against one decides nothing");
}

#[tokio::test]
async fn an_endpoint_that_comes_later_with_the_right_chain_is_used() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    fleet.endpoint("primary").kill().await;
    let client = stage.reader(&fleet).await;
    assert!(status(&client, "primary").excluded.is_some(), "it has not answered yet");
    fleet.endpoint("primary").revive().await.expect("the port is ours");
    eventually("the late endpoint is in use", async || status(&client, "primary").excluded.is_none()).await;
}

#[tokio::test]
async fn a_wrong_endpoint_is_looked_at_less_and_less_often() {
    let stage = Stage::new().await;
    let other = Anvil::builder().chain_id(1_337).launch().await.expect("anvil starts");
    let fleet = fleet(&[("wrong", &other), ("right", &stage.chain)]).await;
    let client = stage.reader(&fleet).await;
    let connected = fleet.mark();
    let looks = |endpoint: &str| {
        let calls = fleet.records_since(connected).into_iter();
        calls.filter(|call| call.endpoint == endpoint && call.params[0] == "latest").count()
    };
    eventually("the right one is looked at often", async || looks("right") >= 40).await;
    let wrong = looks("wrong");
    assert!((1..20).contains(&wrong), "it was looked at {wrong} times");
    drop(client);
}

#[tokio::test]
async fn an_endpoint_that_turns_into_another_chain_is_left() {
    let stage = Stage::new().await;
    let other = Anvil::builder().timestamp(OTHER_GENESIS).launch().await.expect("anvil starts");
    let fleet = fleet(&[("right", &stage.chain)]).await;
    let tap = Wiretap::start(stage.chain.url()).await;
    let mut config = stage.config(&fleet);
    let turned = EndpointConfig::new("turned", format!("http://127.0.0.1:{}", tap.port()));
    config.endpoints.insert(0, turned);
    config.provider.identity_recheck = Duration::from_millis(100);
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    assert_eq!(status(&client, "turned").excluded, None);
    tap.lead_to(other.url());
    eventually("it is left", async || {
        status(&client, "turned").excluded.is_some_and(|why| why.contains("another history"))
    })
    .await;
    tap.lead_to(stage.chain.url());
    eventually("it is in use again", async || status(&client, "turned").excluded.is_none()).await;
}

/// An endpoint that no longer holds block 0.
fn without_block_0() -> Program {
    let first = Rule::on("eth_getBlockByNumber").when(|call| call.params[0] == "0x0");
    first.then(Action::RpcResult(json!(null))).into()
}

async fn hash_of(stage: &Stage, number: &str) -> backstay::alloy::primitives::B256 {
    let block = stage.rpc("eth_getBlockByNumber", json!([number, false])).await;
    serde_json::from_value(block["hash"].clone()).expect("a hash")
}

#[tokio::test]
async fn one_that_holds_no_block_0_is_read_from_last_and_not_sent_to_until_something_tells_its_history() {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("pruned", without_block_0()), ("right", Program::new())]).await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    assert_eq!(status(&client, "pruned").standing, Standing::Unverified);
    says(&status(&client, "pruned").excluded.expect("it is left out"), &["block 0", "checkpoint"]);
    let mark = fleet.mark();
    stage.registered(&client, "a").await;
    assert_eq!(used_after(&fleet, mark, "pruned"), Vec::<String>::new());
    fleet.endpoint("right").kill().await;
    eventually("it is asked when nobody else answers", async || block_number(&client).await.is_ok()).await;
    fleet.endpoint("right").revive().await.expect("the port is ours");

    // Sixty-four blocks on, the chain has a finalized block that both hold.
    stage.chain.mine(70).await.expect("anvil mines");
    eventually("the finalized block tells", async || status(&client, "pruned").standing == Standing::Serving)
        .await;
}

#[tokio::test]
async fn a_configured_checkpoint_tells_the_history_of_one_that_holds_no_block_0() {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("pruned", without_block_0())]).await;
    let mut config = stage.config(&fleet);
    config.provider.genesis = Some(hash_of(&stage, "0x0").await);
    let connect = async |config| within(Client::builder(config).connect()).await;
    let client = connect(config.clone()).await.expect("it may be read from");
    assert_eq!(status(&client, "pruned").standing, Standing::Unverified);
    block_number(&client).await.expect("it is all there is");
    drop(client);

    let right = BlockRef { number: 1, hash: hash_of(&stage, "0x1").await };
    config.provider.checkpoint = Some(right);
    let client = connect(config.clone()).await.expect("it is of this chain");
    assert_eq!(status(&client, "pruned").standing, Standing::Serving);
    drop(client);

    config.provider.checkpoint = Some(BlockRef { number: 2, ..right });
    let error = connect(config).await.expect_err("it is another chain");
    assert_eq!(error.kind(), &ErrorKind::WrongChain, "{error}");
    says(&error, &["block 2", "checkpoint"]);
}

#[tokio::test]
async fn a_head_of_the_future_is_not_believed_and_its_endpoint_not_used() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let number = stage.chain.head().await.expect("anvil answers") + 1_000;
    let mut forged = stage.rpc("eth_getBlockByNumber", json!(["latest", false])).await;
    forged["number"] = json!(format!("0x{number:x}"));
    forged["timestamp"] = json!("0xffffffff");
    let latest = Rule::on("eth_getBlockByNumber").when(|call| call.params[0] == "latest");
    fleet.endpoint("primary").set(latest.then(Action::RpcResult(forged)));
    eventually("it is not believed", async || status(&client, "primary").standing == Standing::Doubted).await;
    says(&client.status().degraded.join("; "), &["the head of primary", "ahead of the clock"]);
    assert!(client.status().frontier.expect("there is one").number < number);
    assert_eq!(status(&client, "second").standing, Standing::Serving, "it is not the stale one");
    let mark = fleet.mark();
    block_number(&client).await.expect("the second answers");
    assert_eq!(used_after(&fleet, mark, "primary"), Vec::<String>::new());
    fleet.endpoint("primary").heal();
}
