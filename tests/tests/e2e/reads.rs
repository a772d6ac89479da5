//! Reads that know depth and frontier: right answers, at a known number of calls.

use std::time::Duration;

use backstay::{
    Client, Config, DataKind, Declared, ErrorKind, Role,
    alloy::{
        eips::BlockNumberOrTag,
        network::Ethereum,
        primitives::{Address, U256},
        providers::Provider,
    },
};
use backstay_testkit::{Action, Fleet, Program, Rule, View};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    paper::Paper,
    stage::{Stage, caught_up, config, ours, says, within},
};

/// Blocks of the chain: more than the frontier's window.
const HISTORY: u64 = 400;

async fn deep_stage() -> Stage {
    let stage = Stage::new().await;
    stage.chain.mine_spaced(HISTORY, Duration::from_secs(1)).await.expect("anvil mines");
    stage
}

/// How a pruned node says that it does not hold something.
#[derive(Clone, Copy)]
enum Says {
    Null,
    MissingTrieNode,
}

/// A node that has pruned everything below a height.
fn pruned(below: u64, how: Says) -> Program {
    let height = |params: &Value| {
        let at = params.as_array().and_then(|params| {
            params.iter().rev().find_map(|param| {
                let digits = param.as_str()?.strip_prefix("0x").filter(|digits| digits.len() < 16)?;
                u64::from_str_radix(digits, 16).ok()
            })
        });
        at.unwrap_or(u64::MAX)
    };
    let blocks = Rule::on("eth_getBlockByNumber")
        .when(move |call| call.params != json!(["0x0", false]) && height(&call.params) < below);
    let state = Rule::on("eth_getBalance").when(move |call| height(&call.params) < below);
    let missing = || Action::error(-32000, "missing trie node 7a5a (path ) state 0x7a5a is not available");
    let blocks = blocks.then(match how {
        Says::Null => Action::RpcResult(Value::Null),
        Says::MissingTrieNode => missing(),
    });
    Program::new().rule(blocks).rule(state.then(missing()))
}

async fn connect(config: Config) -> Client {
    within(Client::builder(config).connect()).await.expect("it connects")
}

fn calls(fleet: &Fleet, method: &str, since: backstay_testkit::Mark) -> String {
    let asked = fleet
        .records_since(since)
        .into_iter()
        .filter(|call| call.method == method && call.params[0] != "latest");
    asked.map(|call| call.endpoint).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_pruned_nodes_miss_is_no_answer_and_is_paid_for_once() {
    let stage = deep_stage().await;
    let account = stage.account().await.address();
    for how in [Says::Null, Says::MissingTrieNode] {
        let fleet = stage.fleet([("pruned", pruned(300, how)), ("archive", Program::new())]).await;
        let mut config = config(&fleet.urls());
        // Heads and identity are looked at in other calls; these are to be counted.
        config.provider.head_poll = Some(Duration::from_secs(30));
        let client = connect(config).await;
        let provider = client.provider::<Ethereum>();
        let block = async |number: u64| {
            let since = fleet.mark();
            let block = within(provider.get_block_by_number(number.into())).await.expect("it is held");
            assert_eq!(block.expect("an archive has it").header.number, number);
            calls(&fleet, "eth_getBlockByNumber", since)
        };
        assert_eq!(block(50).await, "pruned archive");
        assert_eq!(block(50).await, "archive", "it is known by now");
        assert_eq!(block(20).await, "archive", "and deeper as well");
        assert_eq!(block(350).await, "pruned", "near the head nothing is paid");
        let balance = async |number: u64| {
            let since = fleet.mark();
            let balance = within(provider.get_balance(account).number(number)).await.expect("it is held");
            assert_eq!(balance, U256::ZERO, "it was funded later");
            calls(&fleet, "eth_getBalance", since)
        };
        assert_eq!(balance(60).await, "pruned archive", "state has a bound of its own");
        assert_eq!(balance(60).await, "archive");
    }
}

#[tokio::test]
async fn an_archives_null_is_believed_and_nobody_else_is_asked() {
    let stage = deep_stage().await;
    // It has shown that it goes deep, and says that there is no such block.
    let lost = Rule::on("eth_getBlockByNumber").containing("0x33").then(Action::RpcResult(Value::Null));
    let fleet = stage.fleet([("archive", lost.into()), ("other", Program::new())]).await;
    let client = connect(config(&fleet.urls())).await;
    let provider = client.provider::<Ethereum>();
    within(provider.get_block_by_number(10.into())).await.expect("it answers").expect("it is an archive");
    let since = fleet.mark();
    let block = within(provider.get_block_by_number(0x33.into())).await.expect("it answers");
    assert!(block.is_none());
    assert_eq!(fleet.records_since(since).iter().filter(|call| call.params[0] == "0x33").count(), 1);
}

#[tokio::test]
async fn when_nobody_holds_it_the_error_says_how_deep_anybody_goes() {
    let stage = deep_stage().await;
    let fleet = stage
        .fleet([("one", pruned(300, Says::MissingTrieNode)), ("two", pruned(200, Says::MissingTrieNode))])
        .await;
    let client = connect(config(&fleet.urls())).await;
    let provider = client.provider::<Ethereum>();
    let balance = async |number: u64| within(provider.get_balance(Address::ZERO).number(number)).await;
    balance(210).await.expect("two holds it");
    let error = ours(&balance(50).await.expect_err("nobody has it"));
    assert!(matches!(error.kind(), ErrorKind::Pruned { height: 50, .. }), "{error:?}");
    says(&error, &["block 50", "the lowest held is 210", "two"]);
}

#[tokio::test]
async fn a_block_that_the_origin_is_about_to_have_is_waited_for_there() {
    let stage = Stage::with_blocks_every(Duration::from_secs(1)).await;
    let fleet = stage.fleet([("origin", Program::new()), ("other", Program::new())]).await;
    let mut config = config(&fleet.urls());
    config.endpoints[0].role = Role::Origin;
    let client = connect(config).await;
    let provider = client.provider::<Ethereum>();
    let next = stage.chain.head().await.expect("anvil answers") + 1;
    let since = fleet.mark();
    let block = within(provider.get_block_by_number(next.into())).await.expect("it answers");
    assert_eq!(block.expect("it came").header.number, next);
    let asked = calls(&fleet, "eth_getBlockByNumber", since);
    assert!(asked.contains("origin") && !asked.contains("other"), "{asked}");
}

#[tokio::test]
async fn a_block_that_one_endpoint_is_late_with_comes_from_another() {
    let stage = Stage::new().await;
    stage.chain.mine(20).await.expect("anvil mines");
    let fleet = stage.fleet([("late", View::Trailing { blocks: 2 }.into()), ("other", Program::new())]).await;
    let client = connect(config(&fleet.urls())).await;
    caught_up(&client, &stage.chain).await;
    let head = stage.chain.head().await.expect("anvil answers");
    let block =
        within(client.provider::<Ethereum>().get_block_by_number(head.into())).await.expect("it answers");
    assert_eq!(block.expect("one has it").header.number, head);
    // State at an explicit height is no fault of the one that is late either.
    within(client.provider::<Ethereum>().get_balance(Address::ZERO).number(head)).await.expect("one has it");
    assert!(client.status().endpoints.iter().all(|endpoint| endpoint.faults == 0), "{:?}", client.status());
}

#[tokio::test]
async fn a_block_that_never_comes_costs_the_grace_and_stays_null() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let mut config = config(&fleet.urls());
    config.provider.read.frontier_grace = Duration::from_millis(400);
    let client = connect(config).await;
    let provider = client.provider::<Ethereum>();
    let absent = async |number: u64| {
        let begun = Instant::now();
        let block = within(provider.get_block_by_number(BlockNumberOrTag::Number(number))).await;
        assert!(block.expect("it answers").is_none());
        begun.elapsed()
    };
    let head = stage.chain.head().await.expect("anvil answers");
    assert!(absent(head + 5).await >= Duration::from_millis(400));
    let since = fleet.mark();
    absent(head + 10_000).await;
    let asked = fleet.records_since(since);
    let asked =
        asked.iter().filter(|call| call.method == "eth_getBlockByNumber" && call.params[0] != "latest");
    assert_eq!(asked.count(), 1, "far above the head nobody is waited for");
}

#[tokio::test]
async fn a_method_whose_shape_is_declared_or_known_is_waited_for_at_the_frontier() {
    for (method, declared) in [("zks_getBlockDetails", true), ("debug_executionWitness", false)] {
        let late = Program::new()
            .rule(Rule::on(method).times(2).then(Action::RpcResult(Value::Null)))
            .rule(Rule::on(method).then(Action::RpcResult(json!({ "of": "it" }))));
        let chain = Paper::at(0x66);
        let fleet = Fleet::builder().scripted("one", chain.behind(late)).start().await.expect("it starts");
        let mut settings = config(&fleet.urls());
        if declared {
            settings.provider.shapes =
                [(method.to_owned(), Declared { height_param: 0, kind: DataKind::Blocks })].into();
        }
        let provider = connect(settings).await.provider::<Ethereum>();
        let found: Value = within(provider.raw_request(method.into(), (0x67,))).await.expect("it comes");
        assert_eq!((found["of"].as_str(), fleet.count("one", method)), (Some("it"), 3), "{method}");
    }
}

#[tokio::test]
async fn a_method_whose_shape_is_declared_goes_where_the_deep_is_held() {
    let method = "zks_getBlockDetails";
    let says = |value: Value| Paper::at(0x1000).behind(Rule::on(method).then(Action::RpcResult(value)));
    let fleet = Fleet::builder()
        .scripted("pruned", says(Value::Null))
        .scripted("archive", says(json!({ "of": "it" })))
        .start()
        .await
        .expect("it starts");
    let ask = async |shapes| {
        let mut settings = config(&fleet.urls());
        settings.provider.shapes = shapes;
        let provider = connect(settings).await.provider::<Ethereum>();
        within(provider.raw_request::<_, Value>(method.into(), (0x10,))).await.expect("somebody answers")
    };
    let declared = Declared { height_param: 0, kind: DataKind::Blocks };
    assert_eq!(ask([(method.to_owned(), declared)].into()).await["of"], "it");
    assert_eq!(ask(Default::default()).await, Value::Null, "what is not declared has no height");
}
