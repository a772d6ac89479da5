//! Heights that do not fall, and calls to where there is no contract.

use std::time::Duration;

use backstay::{
    Client, ErrorKind,
    alloy::{
        eips::BlockNumberOrTag,
        network::{Ethereum, TransactionBuilder},
        primitives::{Address, Bytes, address},
        providers::Provider,
        rpc::types::{Filter, TransactionRequest},
        transports::TransportError,
    },
};
use backstay_testkit::{Action, Fleet, Program, Rule};
use serde_json::json;
use tokio::time::Instant;

use super::{
    paper::Paper,
    stage::{config, ours, within},
};

async fn scripted<const N: usize>(endpoints: [(&str, Program); N]) -> Fleet {
    let mut fleet = Fleet::builder();
    for (name, program) in endpoints {
        fleet = fleet.scripted(name, program);
    }
    fleet.start().await.expect("the fleet starts")
}

async fn connect(fleet: &Fleet) -> Client {
    within(Client::builder(config(&fleet.urls())).connect()).await.expect("it connects")
}

async fn number(client: &Client) -> u64 {
    within(client.provider::<Ethereum>().get_block_number()).await.expect("it answers")
}

fn says_number(number: u64) -> Rule {
    Rule::on("eth_blockNumber").then(Action::RpcResult(json!(format!("{number:#x}"))))
}

#[tokio::test]
async fn a_height_does_not_fall_where_another_endpoint_has_come_so_far() {
    let chain = Paper::at(0x66);
    let falls = Program::new().rule(says_number(0x66).times(1)).rule(says_number(0x64));
    let fleet = scripted([("falls", chain.behind(falls)), ("other", chain.node())]).await;
    let client = connect(&fleet).await;
    assert_eq!((number(&client).await, number(&client).await), (0x66, 0x66));
    assert_eq!((fleet.count("falls", "eth_blockNumber"), fleet.count("other", "eth_blockNumber")), (2, 1));
    // Blocks as well: they share the mark.
    let latest = within(client.provider::<Ethereum>().get_block_by_number(BlockNumberOrTag::Latest)).await;
    assert_eq!(latest.expect("it answers").expect("a block").header.number, 0x66);
}

#[tokio::test]
async fn a_height_that_fell_is_waited_for_and_then_given() {
    // A replica that is two blocks behind answers in between.
    let replica = Program::new().rule(says_number(0x66).times(1)).rule(says_number(0x64).times(2));
    let chain = Paper::at(0x66);
    let fleet = scripted([("one", chain.behind(replica))]).await;
    let client = connect(&fleet).await;
    assert_eq!((number(&client).await, number(&client).await), (0x66, 0x66));
    assert_eq!(fleet.count("one", "eth_blockNumber"), 4);

    let stuck = Program::new().rule(says_number(0x66).times(1)).rule(says_number(0x64));
    let fleet = scripted([("one", chain.behind(stuck))]).await;
    let client = connect(&fleet).await;
    assert_eq!(number(&client).await, 0x66);
    let begun = Instant::now();
    assert_eq!(number(&client).await, 0x64, "nobody has another");
    let two_block_times = Duration::from_millis(400);
    assert!((two_block_times..two_block_times * 5).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

/// A client that looks at heads so seldom that it has to learn of new blocks from replies.
async fn seldom_looking(fleet: &Fleet) -> Client {
    let mut config = config(&fleet.urls());
    config.provider.head_poll = Some(Duration::from_secs(30));
    within(Client::builder(config).connect()).await.expect("it connects")
}

#[tokio::test]
async fn logs_up_to_the_head_are_served_in_the_moment_in_which_the_head_was_told() {
    let chain = Paper::at(0x66).with_logs([0x66]);
    let fleet = scripted([("one", chain.node()), ("two", chain.node())]).await;
    let client = seldom_looking(&fleet).await;
    chain.move_to(0x67);
    assert_eq!(number(&client).await, 0x67);
    let found = within(client.provider::<Ethereum>().get_logs(&Filter::new().from_block(0x60))).await;
    assert_eq!(found.expect("it answers").len(), 1);
}

#[tokio::test]
async fn a_range_of_logs_above_the_head_is_one_call() {
    let chain = Paper::at(0x66).with_logs([0x66]);
    let fleet = scripted([("one", chain.node()), ("two", chain.node())]).await;
    let client = connect(&fleet).await;
    let found = within(client.provider::<Ethereum>().get_logs(&Filter::new().from_block(0x67))).await;
    assert!(found.expect("it answers").is_empty());
    assert_eq!(["one", "two"].map(|name| fleet.count(name, "eth_getLogs")), [1, 0]);
}

#[tokio::test]
async fn logs_up_to_the_head_come_from_who_is_a_block_behind_when_the_first_dies() {
    let (ahead, behind) = (Paper::at(0x66), Paper::at(0x65).with_logs([0x65]));
    let dead = Program::new().rule(Rule::on("eth_getLogs").then(Action::Reset));
    let fleet = scripted([("dies", ahead.behind(dead)), ("other", behind.node())]).await;
    let client = connect(&fleet).await;
    let soon = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        behind.move_to(0x66);
    };
    let filter = Filter::new().from_block(0x60);
    let provider = client.provider::<Ethereum>();
    let (found, ()) = tokio::join!(within(provider.get_logs(&filter)), soon);
    assert_eq!(found.expect("the other has come there").len(), 1);
}

#[tokio::test]
async fn logs_up_to_the_head_do_not_wait_for_one_that_is_only_sent_to() {
    let (ahead, behind) = (Paper::at(0x67), Paper::at(0x66).with_logs([0x66]));
    let fleet = scripted([("sends", ahead.node()), ("reads", behind.node())]).await;
    let mut config = config(&fleet.urls());
    config.endpoints[0].role = backstay::Role::SendOnly;
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    let found = within(client.provider::<Ethereum>().get_logs(&Filter::new().from_block(0x60))).await;
    assert_eq!(found.expect("it answers").len(), 1);
}

#[tokio::test]
async fn a_height_that_no_chain_can_have_is_no_mark_for_what_follows() {
    for absurd in [u64::MAX, 0x66 + 1_000_000] {
        let chain = Paper::at(0x66).with_logs([0x66]);
        let lies = Program::new().rule(says_number(absurd).times(1));
        let fleet = scripted([("lies", chain.behind(lies)), ("other", chain.node())]).await;
        let client = connect(&fleet).await;
        number(&client).await;
        let begun = Instant::now();
        assert_eq!(number(&client).await, 0x66);
        assert!(begun.elapsed() < Duration::from_millis(300), "nothing is waited for: {:?}", begun.elapsed());
        let found = within(client.provider::<Ethereum>().get_logs(&Filter::new().from_block(0x60))).await;
        assert_eq!(found.expect("it answers").len(), 1);
    }
}

#[tokio::test]
async fn a_height_that_fell_for_good_is_waited_for_once() {
    let chain = Paper::at(0x66);
    let stuck = Program::new().rule(says_number(0x66).times(1)).rule(says_number(0x64));
    let fleet = scripted([("one", chain.behind(stuck))]).await;
    let client = connect(&fleet).await;
    assert_eq!((number(&client).await, number(&client).await), (0x66, 0x64));
    let asked = fleet.count("one", "eth_blockNumber");
    for _ in 0..3 {
        assert_eq!(number(&client).await, 0x64);
    }
    assert_eq!(fleet.count("one", "eth_blockNumber"), asked + 3);
}

#[tokio::test]
async fn an_endpoint_that_hangs_holds_up_a_height_for_two_block_times_at_most() {
    let chain = Paper::at(0x66);
    let falls = Program::new().rule(says_number(0x66).times(1)).rule(says_number(0x64));
    let hangs = Program::new().rule(Rule::on("eth_blockNumber").then(Action::Hang));
    let fleet = scripted([("falls", chain.behind(falls)), ("hangs", chain.behind(hangs))]).await;
    let mut config = config(&fleet.urls());
    config.provider.attempt_timeout = Duration::from_secs(8);
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    assert_eq!(number(&client).await, 0x66);
    let begun = Instant::now();
    assert_eq!(number(&client).await, 0x64);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

const SELECTOR: [u8; 4] = [1, 2, 3, 4];

async fn call(client: &Client, to: Address) -> Result<Bytes, TransportError> {
    let request = TransactionRequest::default().with_to(to).with_input(SELECTOR);
    within(client.provider::<Ethereum>().call(request).latest().into_future()).await
}

fn empty(method: &str) -> Rule {
    Rule::on(method).then(Action::RpcResult(json!("0x")))
}

/// A node without the contract.
fn without(chain: &Paper) -> Program {
    chain.behind(Program::new().rule(empty("eth_call")).rule(empty("eth_getCode")))
}

const CONTRACT: Address = Address::repeat_byte(0x22);

#[tokio::test]
async fn an_empty_answer_of_a_contract_stands_and_costs_one_look() {
    let chain = Paper::at(0x66);
    let fleet = scripted([("one", chain.behind(empty("eth_call"))), ("two", chain.node())]).await;
    let client = connect(&fleet).await;
    assert_eq!(call(&client, CONTRACT).await.expect("it is the answer"), Bytes::new());
    assert_eq!((fleet.count("one", "eth_call"), fleet.count("one", "eth_getCode")), (1, 1));
    assert_eq!((fleet.count("two", "eth_call"), fleet.count("two", "eth_getCode")), (0, 0));
    // Precompiles have no code.
    let sha256 = address!("0000000000000000000000000000000000000002");
    assert_eq!(call(&client, sha256).await.expect("it is the answer"), Bytes::new());
    assert_eq!(fleet.count("one", "eth_getCode"), 1);
}

#[tokio::test]
async fn an_endpoint_that_has_not_seen_the_contract_yet_is_not_believed() {
    let chain = Paper::at(0x66);
    let fleet = scripted([("behind", without(&chain)), ("other", chain.node())]).await;
    let client = connect(&fleet).await;
    assert_eq!(call(&client, CONTRACT).await.expect("the other has it").len(), 32);
    assert_eq!((fleet.count("behind", "eth_call"), fleet.count("other", "eth_call")), (1, 1));
}

#[tokio::test]
async fn where_there_is_no_contract_the_error_says_so_after_two_endpoints() {
    let chain = Paper::at(0x66);
    let three = [("one", without(&chain)), ("two", without(&chain)), ("three", without(&chain))];
    let fleet = scripted(three).await;
    let client = connect(&fleet).await;
    let error = ours(&call(&client, CONTRACT).await.expect_err("nobody is there"));
    let ErrorKind::NoContractCode { address, block, endpoint } = error.kind() else { panic!("{error:?}") };
    assert_eq!((*address, block.number, endpoint.as_str()), (CONTRACT, 0x66, "two"));
    assert_eq!(["one", "two", "three"].map(|name| fleet.count(name, "eth_call")), [1, 1, 0]);
    // One endpoint decides where there is no other, or none that answers.
    for other in [None, Some(Rule::on("eth_call").then(Action::http(503, "no")))] {
        let mut fleet = Fleet::builder().scripted("one", without(&chain));
        if let Some(broken) = other {
            fleet = fleet.scripted("two", chain.behind(broken));
        }
        let fleet = fleet.start().await.expect("the fleet starts");
        let error = ours(&call(&connect(&fleet).await, CONTRACT).await.expect_err("nobody is there"));
        assert!(matches!(error.kind(), ErrorKind::NoContractCode { .. }), "{error:?}");
        assert_eq!(fleet.count("one", "eth_call"), 1);
    }
}
