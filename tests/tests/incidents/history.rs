//! Blocks that are not there yet, and state that is not there any more.

use std::time::Duration;

use backstay::{
    Client, ErrorKind,
    alloy::{
        network::{Ethereum, TransactionBuilder},
        primitives::Bytes,
        providers::Provider,
        rpc::types::TransactionRequest,
        transports::TransportError,
    },
};
use backstay_testkit::{Action, Program, Rule};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    paper::{Paper, word},
    setup::{TARGET, asked, reader, reader_with, script, scripted, scripted_by, unblamed},
    stage::{ours, within},
};

async fn call_at(client: &Client, block: u64) -> Result<Bytes, TransportError> {
    let request = TransactionRequest::default().with_to(TARGET);
    within(client.provider::<Ethereum>().call(request).block(block.into()).into_future()).await
}

#[tokio::test]
async fn b19_whatever_an_endpoint_says_about_a_block_above_its_head_the_next_one_is_asked() {
    for words in ["requested height is beyond tip", "we have never heard of such a thing"] {
        let (behind, ahead) = (Paper::at(0x64), Paper::at(0x66));
        let block = Rule::on("eth_getBlockByNumber").containing("\"0x65\"");
        let above = block.then(Action::error(-32_001, words));
        let fleet = scripted([("A", behind.behind(above)), ("B", ahead.node())]).await;
        let client = reader(&fleet).await;
        let mark = fleet.mark();
        let found =
            within(client.provider::<Ethereum>().get_block_by_number(0x65.into()).into_future()).await;
        let block = found.expect("B answers").expect("B has it");
        assert_eq!(block.header.number, 0x65);
        let of_block = |endpoint: &str| {
            let calls = fleet.records_since(mark).into_iter();
            calls.filter(|call| call.endpoint == endpoint && call.params[0] == "0x65").count()
        };
        assert_eq!((of_block("A"), of_block("B")), (1, 1), "{words}");
        unblamed(&client, "A");
    }
}

#[tokio::test]
async fn b23_a_block_that_was_announced_before_it_can_be_read_is_waited_for() {
    let node = Paper::at(0x65);
    let unread = || Rule::on("eth_call").then(Action::error(-32_000, "header not found"));
    let read = Rule::on("eth_call").then(Action::RpcResult(json!(word(42))));
    let fleet = scripted([("A", node.behind(Program::new().rule(unread().times(2)).rule(read)))]).await;
    let client = reader(&fleet).await;
    let begun = Instant::now();
    let answer = call_at(&client, 0x65).await.expect("it is there in the end");
    assert_eq!(answer.as_ref(), word(42).as_slice());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(fleet.count("A", "eth_call"), 3);
    unblamed(&client, "A");

    // Deep below the head the same words mean that it will not come.
    let fleet = scripted([("A", node.behind(unread()))]).await;
    let client = reader_with(&fleet, |config| config.provider.read.frontier_blocks = 16).await;
    let begun = Instant::now();
    let error = ours(&call_at(&client, 0x10).await.expect_err("nobody has it"));
    assert!(matches!(error.kind(), ErrorKind::Pruned { height: 0x10, .. }), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(fleet.count("A", "eth_call"), 1);
}

#[tokio::test]
async fn b24_state_that_two_endpoints_have_pruned_is_read_at_the_third_and_then_at_once() {
    let fleet = scripted_by(&script("b24"), &Paper::at(0x2710)).await;
    let client = reader(&fleet).await;
    for counts in [[1, 1, 1], [1, 1, 2]] {
        let answer = call_at(&client, 0x64).await.expect("C has it");
        assert_eq!(answer.as_ref(), word(7).as_slice());
        assert_eq!(["A", "B", "C"].map(|name| fleet.count(name, "eth_call")), counts);
    }
    for name in ["A", "B"] {
        unblamed(&client, name);
    }
    let mark = fleet.mark();
    let request = TransactionRequest::default().with_to(TARGET);
    let now = within(client.provider::<Ethereum>().call(request).into_future()).await.expect("A answers");
    assert_eq!(now.as_ref(), word(1).as_slice());
    assert_eq!(["A", "B", "C"].map(|name| asked(&fleet, mark, name, "eth_call")), [1, 0, 0]);
}
