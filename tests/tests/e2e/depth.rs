//! Depth over real sockets: two pruned nodes and an archive, by kind of data and height, as a table of what it costs.

use std::{fmt::Write as _, time::Duration};

use backstay::{
    Client, ErrorKind,
    alloy::{
        eips::BlockNumberOrTag,
        network::Ethereum,
        primitives::{Address, U256},
        providers::Provider,
        rpc::types::Filter,
        transports::TransportError,
    },
};
use backstay_testkit::{Action, Call, Data, Fleet, Gone, History, Kept, Program, Rule};
use expect_test::expect;
use serde_json::Value;

use super::stage::{Stage, config, ours, within};

const BLOCKS: u64 = 600;
/// The lowest blocks of the pruned nodes.
const FIRST: u64 = 300;
const SECOND: u64 = 200;

/// A node without what lies below a block: an error for state, `null` or a shorter list for the rest.
fn pruned(below: u64) -> Program {
    let missing = Gone::error(-32_000, "missing trie node 7a5a (path ) state 0x7a5a is not available");
    let history = History::pruned(Kept::From(below), Gone::Null)
        .without(Data::State, Kept::From(below), missing)
        // Block 0 says which chain it is.
        .without(Data::Blocks, Kept::From(0), Gone::Null);
    let old = move |call: &Call| {
        let number =
            call.params[0].as_str().and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok());
        number.is_some_and(|number| (1..below).contains(&number))
    };
    let blocks = Rule::on("eth_getBlockByNumber").when(old).then(Action::RpcResult(Value::Null));
    Program::new().rule(blocks).history(history)
}

async fn connect(fleet: &Fleet) -> Client {
    let mut config = config(&fleet.urls());
    config.provider.read.frontier_blocks = 16;
    within(Client::builder(config).connect()).await.expect("it connects")
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    State,
    Block,
    Receipts,
    Logs,
}

/// What came of a read: the right answer, absent, or an error.
async fn ask(client: &Client, what: Asked, height: u64) -> String {
    let provider = client.provider::<Ethereum>();
    let at = BlockNumberOrTag::Number(height);
    let came = |came: Result<bool, TransportError>| match came {
        Ok(true) => "right".to_owned(),
        Ok(false) => "absent".to_owned(),
        Err(error) => match ours(&error).kind() {
            ErrorKind::Pruned { .. } => "pruned".to_owned(),
            kind => format!("{kind:?}"),
        },
    };
    match what {
        Asked::State => {
            let balance = within(provider.get_balance(Address::repeat_byte(0x99)).number(height)).await;
            came(balance.map(|balance| balance == U256::ZERO))
        }
        Asked::Block => {
            let block = within(provider.get_block_by_number(at)).await;
            came(block.map(|block| block.is_some_and(|block| block.header.number == height)))
        }
        Asked::Receipts => {
            let receipts = within(provider.get_block_receipts(at.into())).await;
            came(receipts.map(|receipts| receipts.is_some()))
        }
        Asked::Logs => {
            let filter = Filter::new().from_block(height).to_block(height);
            came(within(provider.get_logs(&filter)).await.map(|logs| logs.is_empty()))
        }
    }
}

const ASKED: [&str; 4] = ["eth_getBalance", "eth_getBlockByNumber", "eth_getBlockReceipts", "eth_getLogs"];

#[tokio::test]
async fn what_two_pruned_nodes_and_an_archive_answer_and_what_it_costs() {
    let stage = Stage::new().await;
    stage.chain.mine_spaced(BLOCKS, Duration::from_secs(1)).await.expect("anvil mines");
    let head = stage.chain.head().await.expect("anvil answers");
    let mut table = String::new();
    for (nodes, archive) in [("with an archive", true), ("without", false)] {
        writeln!(table, "\n{nodes}: calls to each node").expect("a text takes more");
        for (what, method) in
            [Asked::State, Asked::Block, Asked::Receipts, Asked::Logs].into_iter().zip(ASKED)
        {
            let mut endpoints = vec![("from 300", pruned(FIRST)), ("from 200", pruned(SECOND))];
            endpoints.extend(archive.then(|| ("archive", Program::new())));
            let mut fleet = Fleet::builder();
            for (name, program) in endpoints {
                fleet = fleet.endpoint(name, stage.chain.url(), program);
            }
            let fleet = fleet.start().await.expect("the fleet starts");
            let client = connect(&fleet).await;
            for (at, height) in
                [("tip", head), ("300", FIRST), ("299", FIRST - 1), ("199", SECOND - 1), ("50", 50)]
            {
                let hex = format!("{height:#x}");
                let mark = fleet.mark();
                let came = ask(&client, what, height).await;
                let calls = |name: &str| {
                    let about = |params: &Value| params.to_string().contains(&format!("\"{hex}\""));
                    let calls = fleet.records_since(mark).into_iter();
                    let calls = calls.filter(|call| call.endpoint == name && call.method == method);
                    calls.filter(|call| about(&call.params)).count()
                };
                let counts = ["from 300", "from 200", "archive"].map(calls);
                let what = format!("{what:?}");
                writeln!(table, "{what:<9}{at:>5}  {counts:?}  {came}").expect("a text takes more");
            }
        }
    }
    expect![[r#"

        with an archive: calls to each node
        State      tip  [1, 0, 0]  right
        State      300  [1, 0, 0]  right
        State      299  [1, 1, 0]  right
        State      199  [0, 1, 1]  right
        State       50  [0, 0, 1]  right
        Block      tip  [1, 0, 0]  right
        Block      300  [1, 0, 0]  right
        Block      299  [1, 1, 0]  right
        Block      199  [0, 1, 1]  right
        Block       50  [0, 0, 1]  right
        Receipts   tip  [1, 0, 0]  right
        Receipts   300  [1, 0, 0]  right
        Receipts   299  [1, 1, 0]  right
        Receipts   199  [0, 1, 1]  right
        Receipts    50  [0, 0, 1]  right
        Logs       tip  [1, 0, 0]  right
        Logs       300  [1, 0, 0]  right
        Logs       299  [1, 1, 0]  right
        Logs       199  [0, 1, 1]  right
        Logs        50  [0, 0, 1]  right

        without: calls to each node
        State      tip  [1, 0, 0]  right
        State      300  [1, 0, 0]  right
        State      299  [1, 1, 0]  right
        State      199  [1, 1, 0]  pruned
        State       50  [1, 1, 0]  pruned
        Block      tip  [1, 0, 0]  right
        Block      300  [1, 0, 0]  right
        Block      299  [1, 1, 0]  right
        Block      199  [1, 1, 0]  absent
        Block       50  [1, 1, 0]  absent
        Receipts   tip  [1, 0, 0]  right
        Receipts   300  [1, 0, 0]  right
        Receipts   299  [1, 1, 0]  right
        Receipts   199  [1, 1, 0]  absent
        Receipts    50  [1, 1, 0]  absent
        Logs       tip  [1, 0, 0]  right
        Logs       300  [1, 0, 0]  right
        Logs       299  [1, 1, 0]  right
        Logs       199  [1, 1, 0]  pruned
        Logs        50  [1, 1, 0]  pruned
    "#]]
    .assert_eq(&table);
}
