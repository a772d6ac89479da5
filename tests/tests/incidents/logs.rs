//! Logs: those that are there although the list is empty, and those that are too many for one reply.

use std::time::Duration;

use backstay::{
    Client, ErrorKind,
    alloy::{
        network::Ethereum,
        primitives::U64,
        providers::Provider,
        rpc::types::{Filter, Log},
        transports::TransportError,
    },
};
use backstay_testkit::{Action, Call, Fleet, Program, Reply, Rule};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    paper::{EMITTER, Paper, TOPIC, hash_of},
    setup::{reader, reader_with, scripted, unblamed},
    stage::{caught_up_to, ours, within},
};

async fn logs(client: &Client, filter: &Filter) -> Result<Vec<Log>, TransportError> {
    within(client.provider::<Ethereum>().get_logs(filter)).await
}

fn emitted() -> Filter {
    Filter::new().address(EMITTER).event_signature(TOPIC)
}

/// Where each log stands: its block and its place there.
fn places(logs: &[Log]) -> Vec<(u64, u64)> {
    let place = |log: &Log| (log.block_number.expect("mined"), log.log_index.expect("mined"));
    logs.iter().map(place).collect()
}

/// The calls for logs, by endpoint.
fn asked(fleet: &Fleet) -> String {
    let calls = fleet.records().into_iter().filter(|call| call.method == "eth_getLogs");
    calls.map(|call| call.endpoint).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn b21_an_empty_list_for_a_block_that_the_endpoint_does_not_know_is_not_believed() {
    let (behind, ahead) = (Paper::at(0x64), Paper::at(0x65).with_logs([0x65]));
    let empty = Rule::on("eth_getLogs").then(Action::RpcResult(json!([])));
    let unknown = Rule::on("eth_getLogs").then(Action::error(-32_000, "unknown block")).times(1);
    let fleet = scripted([("A", behind.behind(empty)), ("B", ahead.behind(unknown))]).await;
    let client = reader(&fleet).await;
    let filter = emitted().at_block_hash(hash_of(0x65));
    let found = logs(&client, &filter).await.expect("B has it");
    assert_eq!(places(&found), [(0x65, 0)]);
    assert_eq!(asked(&fleet), "A B A B");
    assert_eq!(fleet.count("A", "eth_getBlockByHash"), 2, "each empty list is looked into");
    assert_eq!(fleet.count("B", "eth_getBlockByHash"), 0);
    unblamed(&client, "A");
    unblamed(&client, "B");

    // An empty list from one that knows the block is the answer.
    let fleet = scripted([("A", Paper::at(0x65).node()), ("B", Paper::at(0x65).node())]).await;
    let client = reader(&fleet).await;
    assert!(logs(&client, &filter).await.expect("A knows the block").is_empty());
    assert_eq!(asked(&fleet), "A");

    // What nobody knows is an error, not an empty list.
    let empty = || Rule::on("eth_getLogs").then(Action::RpcResult(json!([])));
    let fleet = scripted([("A", behind.behind(empty())), ("B", behind.behind(empty()))]).await;
    let client =
        reader_with(&fleet, |config| config.provider.read.frontier_grace = Duration::from_millis(300)).await;
    let error = logs(&client, &filter).await.expect_err("nobody knows the block");
    let error = error.as_error_resp().expect("as a node says it");
    assert_eq!(error.message, "unknown block");
}

#[tokio::test]
async fn b22_an_empty_list_for_a_fresh_block_is_asked_for_again_where_its_bloom_speaks_for_logs() {
    let node = Paper::at(0x65).with_logs([0x65]);
    let empty = || Rule::on("eth_getLogs").then(Action::RpcResult(json!([])));
    let fleet = scripted([("A", node.behind(empty().times(2)))]).await;
    let client = reader(&fleet).await;
    let filter = emitted().from_block(0x65).to_block(0x65);
    let found = logs(&client, &filter).await.expect("A has it in the end");
    assert_eq!(places(&found), [(0x65, 0)]);
    assert_eq!(fleet.count("A", "eth_getLogs"), 3);
    unblamed(&client, "A");

    // The same by hash, and up to whatever is latest.
    for filter in [emitted().at_block_hash(hash_of(0x65)), emitted().from_block(0x64)] {
        let fleet = scripted([("A", node.behind(empty().times(2)))]).await;
        let found = logs(&reader(&fleet).await, &filter).await.expect("A has it in the end");
        assert_eq!((places(&found).as_slice(), fleet.count("A", "eth_getLogs")), (&[(0x65, 0)][..], 3));
    }

    // Another endpoint may have indexed it already.
    let fleet = scripted([("A", node.behind(empty())), ("B", node.node())]).await;
    let found = logs(&reader(&fleet).await, &filter).await.expect("B has it");
    assert_eq!((places(&found).len(), asked(&fleet).as_str()), (1, "A B"));

    // A bloom that speaks for what is not there costs the grace, and the list stays empty.
    let fleet = scripted([("A", node.behind(empty()))]).await;
    let client =
        reader_with(&fleet, |config| config.provider.read.bloom_grace = Duration::from_millis(300)).await;
    let begun = Instant::now();
    assert!(logs(&client, &filter).await.expect("A answers").is_empty());
    assert!((Duration::from_millis(300)..Duration::from_secs(2)).contains(&begun.elapsed()));
    assert!(fleet.count("A", "eth_getLogs") > 2);

    // A bloom that has no such log ends it at once.
    let other = Filter::new().address(backstay::alloy::primitives::Address::ZERO).from_block(0x65);
    let mark = fleet.mark();
    assert!(logs(&client, &other).await.expect("A answers").is_empty());
    assert_eq!(crate::setup::asked(&fleet, mark, "A", "eth_getLogs"), 1);
}

/// A node that takes so many blocks a call, or ten where they lie close, and says so in these words.
fn limited(chain: &Paper, code: i64, words: &'static str, most: u64) -> Program {
    let span = |chain: &Paper, call: &Call| chain.span(call);
    let (one, two) = (chain.clone(), chain.clone());
    let wide = Rule::on("eth_getLogs").when(move |call| {
        let (first, last) = span(&one, call);
        last - first >= most
    });
    let dense = Rule::on("eth_getLogs").when(move |call| {
        let (first, last) = span(&two, call);
        first <= 0x80f && last >= 0x800 && last - first > 10
    });
    let many = "query returned more than 10000 results";
    let rules = Program::new().rule(wide.then(Action::error(code, words)));
    chain.behind(rules.rule(dense.then(Action::error(-32_005, many))))
}

#[tokio::test]
async fn b27_ranges_that_are_too_large_are_split_and_every_log_comes_once_in_order() {
    // 150 logs from 0x800 to 0x80f, and one far before and one far behind them.
    let model = || [3].into_iter().chain((0..150).map(|log| 0x800 + log * 16 / 150)).chain([0xffe]);
    let chain = Paper::at(0x10_0000).with_logs(model());
    let expected: Vec<u64> = model().collect();
    for (code, words) in [
        (-32_602, "range 1048576 exceeds limit of 1000"),
        (35, "ranges over 10000 blocks are not supported on freetier"),
        (-32_602, "query exceeds max block range 100000"),
        (-32_603, "eth_getLogs range is too large, max is 1k blocks"),
        (-32_000, "block range is larger than max block range, block range = 5120, max block range = 5000"),
    ] {
        let fleet = scripted([
            ("A", limited(&chain, code, words, 1_000)),
            ("B", limited(&chain, 35, "ranges over 10000 blocks are not supported on freetier", 1_000)),
        ])
        .await;
        let client = reader(&fleet).await;
        let filter = emitted().from_block(0).to_block(0x1000);
        let found = logs(&client, &filter).await.expect("A has them");
        let blocks: Vec<u64> = places(&found).into_iter().map(|(block, _)| block).collect();
        assert_eq!(blocks, expected, "{words}");
        // The last piece ends at the end of the range, empty or not.
        let calls = fleet.records().into_iter().filter(|call| call.method == "eth_getLogs");
        let last = calls.last().expect("it was asked");
        assert_eq!(
            serde_json::from_value::<U64>(last.params[0]["toBlock"].clone()).ok(),
            Some(U64::from(0x1000))
        );
        assert!(fleet.count("A", "eth_getLogs") < 80, "{}", fleet.count("A", "eth_getLogs"));
        assert_eq!(fleet.count("B", "eth_getLogs"), 0, "a limit is no reason to leave A");
        unblamed(&client, "A");
    }
}

#[tokio::test]
async fn b27_the_range_that_a_node_names_is_taken() {
    let chain = Paper::at(0x10_0000).with_logs([0x10, 0x900]);
    let node = chain.clone();
    let named = Rule::on("eth_getLogs").when(move |call| {
        let (first, last) = node.span(call);
        last - first > 0x7ff
    });
    let words = "query exceeds max results 20000, retry with the range 0-2047";
    let fleet = scripted([("A", chain.behind(named.then(Action::error(-32_602, words))))]).await;
    let client = reader(&fleet).await;
    let found = logs(&client, &emitted().from_block(0).to_block(0xfff)).await.expect("A has them");
    assert_eq!(places(&found), [(0x10, 0), (0x900, 0)]);
    assert_eq!(fleet.count("A", "eth_getLogs"), 3, "the whole, and two halves");
}

#[tokio::test]
async fn b27_one_block_that_is_too_large_is_the_nodes_error() {
    let chain = Paper::at(0x10_0000);
    let too_many =
        Rule::on("eth_getLogs").then(Action::error(-32_005, "query returned more than 10000 results"));
    let fleet = scripted([("A", chain.behind(too_many))]).await;
    let client = reader(&fleet).await;
    let error = logs(&client, &emitted().from_block(0).to_block(0x1000)).await.expect_err("A has limits");
    assert_eq!(error.as_error_resp().map(|error| error.code), Some(-32_005));
    assert!(fleet.count("A", "eth_getLogs") < 20);
    unblamed(&client, "A");
}

#[tokio::test]
async fn logs_come_only_from_an_endpoint_that_has_come_so_far() {
    let (behind, ahead) = (Paper::at(0x64), Paper::at(0x66).with_logs([0x66]));
    let fleet = scripted([("A", behind.node()), ("B", ahead.node())]).await;
    let client = reader(&fleet).await;
    caught_up_to(&client, 0x66).await;
    for filter in [emitted().from_block(0x60).to_block(0x66), emitted().from_block(0x60)] {
        let mark = fleet.mark();
        let found = logs(&client, &filter).await.expect("B has it");
        assert_eq!(places(&found), [(0x66, 0)]);
        assert_eq!(["A", "B"].map(|name| crate::setup::asked(&fleet, mark, name, "eth_getLogs")), [0, 1]);
    }
    // What is not there yet at anybody is not an empty list either.
    let client =
        reader_with(&fleet, |config| config.provider.read.frontier_grace = Duration::from_millis(200)).await;
    for ahead in [0x67, 0x10_0000] {
        let error = logs(&client, &emitted().from_block(0x60).to_block(ahead)).await;
        let error = ours(&error.expect_err("nobody is there"));
        assert_eq!(error.kind(), &ErrorKind::NotYet { height: ahead, head: Some(0x66) });
    }
    // It is waited for.
    let mark = fleet.mark();
    let node = ahead.clone();
    let moved = async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        node.move_to(0x67);
    };
    let client = reader(&fleet).await;
    let filter = emitted().from_block(0x66).to_block(0x67);
    let (found, ()) = tokio::join!(logs(&client, &filter), moved);
    assert_eq!(places(&found.expect("B is there soon")), [(0x66, 0)]);
    assert_eq!(crate::setup::asked(&fleet, mark, "A", "eth_getLogs"), 0);
}

#[tokio::test]
async fn an_old_range_is_not_believed_of_a_node_that_does_not_hold_it() {
    let chain = Paper::at(0x1000).with_logs([0x10, 0x800]);
    let node = chain.clone();
    // It lists what it has, as if there was no more.
    let pruned = Rule::on("eth_getLogs").then(Action::scripted(move |call| {
        let (first, last) = node.span(call);
        Reply::Result(Value::Array(node.logs(first.max(0x400), last)))
    }));
    let fleet = scripted([("pruned", chain.behind(pruned)), ("archive", chain.node())]).await;
    let client = reader(&fleet).await;
    let between = async |first: u64, last: u64| {
        let mark = fleet.mark();
        let found = logs(&client, &emitted().from_block(first).to_block(last)).await.expect("it is held");
        let blocks: Vec<u64> = places(&found).into_iter().map(|(block, _)| block).collect();
        (blocks, ["pruned", "archive"].map(|name| crate::setup::asked(&fleet, mark, name, "eth_getLogs")))
    };
    // A list that does not show by itself how deep its node goes costs a look, once.
    assert_eq!(between(0x8, 0x20).await, (vec![0x10], [1 + 1, 1]));
    assert_eq!(between(0x8, 0x900).await, (vec![0x10, 0x800], [0, 1]), "it is known by now");
    assert_eq!(between(0x11, 0x200).await, (vec![], [1, 1]), "an archive's empty list is the answer");
    assert_eq!(
        between(0x11, 0x20).await,
        (vec![], [1, 0]),
        "by their blooms there are none, whoever holds them"
    );
    assert_eq!(between(0x800, 0x810).await, (vec![0x800], [1, 0]), "what it holds, it is asked for");
}

#[tokio::test]
async fn a_bloom_of_an_old_block_that_speaks_for_what_is_not_there_costs_one_look() {
    let chain = Paper::at(0x1000).with_logs([0x10, 0x20]);
    let none = Rule::on("eth_getLogs").when(|call| !call.params[0]["address"].is_null());
    let fleet =
        scripted([("A", chain.behind(none.then(Action::RpcResult(json!([]))))), ("B", chain.node())]).await;
    let client = reader(&fleet).await;
    let begun = Instant::now();
    for (block, calls) in [(0x10, 2), (0x20, 3)] {
        let found = logs(&client, &emitted().at_block_hash(hash_of(block))).await.expect("A answers");
        assert!(found.is_empty());
        assert_eq!((fleet.count("A", "eth_getLogs"), fleet.count("B", "eth_getLogs")), (calls, 0));
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}
