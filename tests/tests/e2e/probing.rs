//! What endpoints hold of the past is asked in the background once they are identified, without any read.

use std::{collections::BTreeMap, time::Duration};

use backstay::{
    Client, Config, DataKind,
    alloy::{eips::BlockNumberOrTag, network::Ethereum, primitives::Address, providers::Provider},
};
use backstay_testkit::{Action, Call, Data, Fleet, Gone, History, Kept, Mark, Program, Rule};
use serde_json::{Value, json};

use super::stage::{Stage, config, eventually, status, within};

/// A chain of some four hundred blocks: the first holds a transaction, the middle one a log. Returns its head.
async fn stage() -> (Stage, u64) {
    let stage = Stage::new().await;
    stage.chain.mine_spaced(200, Duration::from_secs(1)).await.expect("anvil mines");
    stage.account().await;
    let middle = stage.chain.head().await.expect("anvil answers");
    stage.chain.mine_spaced(middle, Duration::from_secs(1)).await.expect("anvil mines");
    (stage, 2 * middle)
}

/// A node without what is more than 200 blocks below the head, block 0 aside.
fn pruned(head: u64) -> Program {
    let kept = Kept::From(head - 200);
    let missing = Gone::error(-32_000, "missing trie node 7a5a (path ) state 0x7a5a is not available");
    let history = History::whole()
        .without(Data::State, kept, missing)
        .without(Data::Receipts, kept, Gone::Null)
        .without(Data::Logs, kept, Gone::Null);
    let old =
        move |call: &Call| number(&call.params[0]).is_some_and(|number| (1..head - 200).contains(&number));
    let blocks = Rule::on("eth_getBlockByNumber").when(old).then(Action::RpcResult(Value::Null));
    Program::new().rule(blocks).history(history)
}

fn number(block: &Value) -> Option<u64> {
    u64::from_str_radix(block.as_str()?.strip_prefix("0x")?, 16).ok()
}

fn probing(fleet: &Fleet) -> Config {
    let mut config = config(&fleet.urls());
    config.provider.history_probes = true;
    // Heads and identity are looked at in other calls; these are to be counted.
    config.provider.head_poll = Some(Duration::from_secs(30));
    config
}

async fn connect(config: Config) -> Client {
    within(Client::builder(config).connect()).await.expect("it connects")
}

fn oldest(client: &Client, endpoint: &str) -> BTreeMap<DataKind, u64> {
    status(client, endpoint).oldest
}

/// The lowest block with logs among those that are looked at.
async fn first_logs(stage: &Stage, head: u64) -> u64 {
    for height in [1, head / 64, head / 8, head / 2] {
        let block = format!("{height:#x}");
        let logs = stage.rpc("eth_getLogs", json!([{ "fromBlock": block, "toBlock": block }])).await;
        if logs.as_array().is_some_and(|logs| !logs.is_empty()) {
            return height;
        }
    }
    panic!("the middle block has a log")
}

/// What endpoints were asked at a height by its number, or for a receipt, since a mark.
fn probes(fleet: &Fleet, since: Mark, endpoint: &str) -> usize {
    let about_the_past = |call: &Call| match call.method.as_str() {
        "eth_chainId" => false,
        "eth_getBlockByNumber" => call.params[0] != "latest",
        _ => true,
    };
    let calls = fleet.records_since(since).into_iter().filter(|call| call.endpoint == endpoint);
    calls.filter(about_the_past).count()
}

#[tokio::test]
async fn the_status_shows_what_each_endpoint_holds_before_anything_is_read() {
    let (stage, head) = stage().await;
    let fleet = stage.fleet([("pruned", pruned(head)), ("archive", Program::new())]).await;
    let client = connect(probing(&fleet)).await;
    let connected = fleet.mark();
    let logs = first_logs(&stage, head).await;
    let archive = BTreeMap::from([
        (DataKind::State, 0),
        (DataKind::Blocks, 1),
        (DataKind::Transactions, 1),
        (DataKind::Logs, logs),
    ]);
    eventually("the archive is known", async || oldest(&client, "archive") == archive).await;
    let held = BTreeMap::from([(DataKind::State, head - 96), (DataKind::Blocks, head - 96)]);
    eventually("so is the pruned one", async || oldest(&client, "pruned") == held).await;
    for (endpoint, at_most) in [("pruned", 12), ("archive", 8)] {
        let asked = probes(&fleet, connected, endpoint);
        assert!((5..=at_most).contains(&asked), "{endpoint} was asked {asked} times");
        assert_eq!(status(&client, endpoint).faults, 0);
    }
}

#[tokio::test]
async fn the_first_read_of_old_data_goes_straight_to_the_archive() {
    let (stage, head) = stage().await;
    for (probed, expected) in [(true, [0, 1]), (false, [1, 1])] {
        let fleet = stage.fleet([("pruned", pruned(head)), ("archive", Program::new())]).await;
        let mut config = probing(&fleet);
        config.provider.history_probes = probed;
        let client = connect(config).await;
        let done = || oldest(&client, "pruned").len() == 2 && oldest(&client, "archive").len() == 4;
        eventually("the probes have ended", async || !probed || done()).await;
        let provider = client.provider::<Ethereum>();
        let asked = |since: Mark, method: &str| {
            let calls = fleet.records_since(since);
            ["pruned", "archive"].map(|name| {
                let of = |call: &&Call| {
                    call.endpoint == name && call.method == method && call.params[0] != "latest"
                };
                calls.iter().filter(of).count()
            })
        };
        let since = fleet.mark();
        within(provider.get_balance(Address::repeat_byte(0x99)).number(50))
            .await
            .expect("the archive has it");
        assert_eq!(asked(since, "eth_getBalance"), expected, "probed: {probed}");
        let since = fleet.mark();
        let block = within(provider.get_block_by_number(BlockNumberOrTag::Number(51))).await;
        assert_eq!(block.expect("it is answered").expect("the archive has it").header.number, 51);
        assert_eq!(asked(since, "eth_getBlockByNumber"), expected, "probed: {probed}");
    }
}

#[tokio::test]
async fn an_endpoint_that_answers_with_the_latest_state_at_any_height_is_not_taken_for_an_archive() {
    let (stage, _) = stage().await;
    let latest = || Rule::on("eth_getTransactionCount").then(Action::RpcResult(json!("0x64")));
    let fleet = stage.fleet([("careless", latest().into()), ("archive", Program::new())]).await;
    let client = connect(probing(&fleet)).await;
    eventually("both were asked", async || {
        oldest(&client, "archive").len() == 4 && oldest(&client, "careless").len() == 3
    })
    .await;
    assert_eq!(oldest(&client, "archive")[&DataKind::State], 0);
    assert!(!oldest(&client, "careless").contains_key(&DataKind::State));
    assert_eq!(fleet.count("careless", "eth_getTransactionCount"), 2);
}

#[tokio::test]
async fn an_endpoint_that_is_added_or_put_in_anothers_place_is_probed_too() {
    let (stage, head) = stage().await;
    let fleet =
        stage.fleet([("first", Program::new()), ("second", Program::new()), ("third", pruned(head))]).await;
    let mut config = probing(&fleet);
    let third = config.endpoints.pop().expect("there are three");
    let client = connect(config).await;
    eventually("the first two are known", async || {
        ["first", "second"].iter().all(|name| oldest(&client, name).len() == 4)
    })
    .await;
    client.add_endpoint(&third).expect("its name is free");
    eventually("the third is known", async || {
        client.status().endpoints.len() == 3 && oldest(&client, "third").len() == 2
    })
    .await;
    let mut other = third;
    other.name = "second".into();
    within(client.replace_endpoint(&other)).await.expect("it is of the same chain");
    eventually("it is known anew", async || oldest(&client, "second").len() == 2).await;
}

#[tokio::test]
async fn an_endpoint_that_fails_its_probes_is_not_blamed_for_it() {
    let (stage, _) = stage().await;
    let broken = || Rule::on("eth_getTransactionCount").then(Action::http(502, "bad gateway"));
    let fleet = stage.fleet([("broken", broken().into()), ("sound", Program::new())]).await;
    let client = connect(probing(&fleet)).await;
    eventually("the sound one is known", async || oldest(&client, "sound").len() == 4).await;
    eventually("the broken one was asked", async || fleet.count("broken", "eth_getTransactionCount") == 1)
        .await;
    assert_eq!(status(&client, "broken").faults, 0);
    assert_eq!(status(&client, "broken").excluded, None);
}
