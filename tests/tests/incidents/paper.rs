//! A chain that is made up: an endpoint needs no node behind it to have a head, blocks and plain answers.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use backstay::alloy::primitives::{Address, B64, B256, Bloom, U256};
use backstay_testkit::{Action, Call, Program, Reply, RpcError, Rule};
use e2e::story::CHAIN_ID;
use serde_json::{Value, json};

/// The time of block 0, in seconds.
const GENESIS_TIME: u64 = 1_700_000_000;

/// One node's view of the chain: blocks up to a head, whose hashes follow from their numbers. Two views with
/// different heads are of the same chain. A clone is the same view.
#[derive(Clone)]
pub(crate) struct Paper {
    head: Arc<AtomicU64>,
    /// Seconds between two blocks.
    spacing: u64,
    /// The blocks that hold logs, once for each log.
    logs: Arc<Vec<u64>>,
}

/// What emits the logs, and their only topic.
pub(crate) const EMITTER: Address = Address::repeat_byte(0x22);
pub(crate) const TOPIC: B256 = B256::repeat_byte(0x48);

impl Paper {
    /// A chain of one block a second, at this head.
    pub(crate) fn at(head: u64) -> Self {
        Self::spaced(head, 1)
    }

    /// The same with so many seconds between two blocks.
    pub(crate) fn spaced(head: u64, spacing: u64) -> Self {
        Self { head: Arc::new(AtomicU64::new(head)), spacing, logs: Arc::default() }
    }

    /// The same with logs in these blocks, in order; as many as the block is named.
    pub(crate) fn with_logs(mut self, blocks: impl IntoIterator<Item = u64>) -> Self {
        self.logs = Arc::new(blocks.into_iter().collect());
        self
    }

    /// The logs from one block to another, as a node lists them.
    pub(crate) fn logs(&self, first: u64, last: u64) -> Vec<Value> {
        let mut index = 0;
        let mut before = None;
        let numbered = self.logs.iter().map(|number| {
            index = if before.replace(*number) == Some(*number) { index + 1 } else { 0 };
            (*number, index)
        });
        let listed = numbered.filter(|(number, _)| (first..=last).contains(number));
        let log = |(number, index): (u64, u64)| {
            json!({
                "address": EMITTER,
                "topics": [TOPIC],
                "data": word(number),
                "blockNumber": format!("{number:#x}"),
                "blockHash": hash_of(number),
                "transactionHash": word(number * 1_000 + index),
                "transactionIndex": "0x0",
                "logIndex": format!("{index:#x}"),
                "removed": false,
            })
        };
        listed.map(log).collect()
    }

    /// The blocks that a log filter covers, up to the head.
    pub(crate) fn span(&self, call: &Call) -> (u64, u64) {
        let filter = &call.params[0];
        if let Some(number) = filter["blockHash"].as_str().and_then(|hash| number_of(hash.parse().ok()?)) {
            return (number, number);
        }
        let edge = |key: &str| filter[key].as_str().map_or(Some(self.head()), |block| self.number(block));
        let (first, last) = (edge("fromBlock"), edge("toBlock"));
        (first.unwrap_or_default(), last.unwrap_or_default().min(self.head()))
    }

    pub(crate) fn head(&self) -> u64 {
        self.head.load(Ordering::SeqCst)
    }

    pub(crate) fn move_to(&self, head: u64) {
        self.head.store(head, Ordering::SeqCst);
    }

    /// A node that shows this view.
    pub(crate) fn node(&self) -> Program {
        self.behind(Program::new())
    }

    /// A node that shows this view where these rules leave it to.
    pub(crate) fn behind(&self, rules: impl Into<Program>) -> Program {
        let view = self.clone();
        let answer = Action::scripted(move |call| view.answer(call));
        rules.into().rule(Rule::any().named("paper").then(answer))
    }

    fn answer(&self, call: &Call) -> Reply {
        let text = |index: usize| call.params[index].as_str().unwrap_or_default();
        Reply::Result(match call.method.as_str() {
            "eth_chainId" => json!(format!("{CHAIN_ID:#x}")),
            "net_version" => json!(CHAIN_ID.to_string()),
            "eth_blockNumber" => json!(format!("{:#x}", self.head())),
            "eth_syncing" => json!(false),
            "eth_getBlockByNumber" => self.block(self.number(text(0))),
            "eth_getBlockByHash" => self.block(self.number_of(text(0))),
            "eth_getBalance" => json!(U256::from(10) * U256::from(10).pow(U256::from(18))),
            "eth_getTransactionCount" => json!("0x0"),
            "eth_getCode" => json!("0x6001"),
            "eth_call" => json!(word(1)),
            "eth_getLogs" => {
                let (first, last) = self.span(call);
                json!(self.logs(first, last))
            }
            "eth_getTransactionByHash" | "eth_getTransactionReceipt" => Value::Null,
            other => {
                return Reply::Error(RpcError::new(-32_601, format!("the method {other} does not exist")));
            }
        })
    }

    /// The number that a block parameter stands for.
    pub(crate) fn number(&self, block: &str) -> Option<u64> {
        match block {
            "latest" | "pending" => Some(self.head()),
            "safe" | "finalized" => Some(self.head().saturating_sub(64)),
            "earliest" => Some(0),
            number => u64::from_str_radix(number.strip_prefix("0x")?, 16).ok(),
        }
    }

    /// The number of the block with this hash.
    pub(crate) fn number_of(&self, hash: &str) -> Option<u64> {
        hash.parse().ok().and_then(number_of)
    }

    /// A block, without its transactions.
    pub(crate) fn block(&self, number: Option<u64>) -> Value {
        let Some(number) = number.filter(|number| *number <= self.head()) else { return Value::Null };
        let parent = number.checked_sub(1).map_or(B256::ZERO, hash_of);
        let mut bloom = Bloom::ZERO;
        if self.logs.contains(&number) {
            bloom.accrue_raw_log(EMITTER, &[TOPIC]);
        }
        json!({
            "number": format!("{number:#x}"),
            "hash": hash_of(number),
            "parentHash": parent,
            "timestamp": format!("{:#x}", GENESIS_TIME + number * self.spacing),
            "baseFeePerGas": "0x3b9aca00",
            "gasLimit": "0x1c9c380",
            "gasUsed": "0x0",
            "logsBloom": bloom,
            "miner": Address::ZERO,
            "difficulty": "0x0",
            "extraData": "0x",
            "mixHash": B256::ZERO,
            "nonce": B64::ZERO,
            "sha3Uncles": B256::ZERO,
            "stateRoot": B256::ZERO,
            "transactionsRoot": B256::ZERO,
            "receiptsRoot": B256::ZERO,
            "size": "0x200",
            "uncles": [],
            "transactions": [],
        })
    }
}

/// A result of one word.
pub(crate) fn word(value: u64) -> B256 {
    B256::left_padding_from(&value.to_be_bytes())
}

const MARK: [u8; 2] = [0xb1, 0x0c];

pub(crate) fn hash_of(number: u64) -> B256 {
    let mut hash = word(number);
    hash[..2].copy_from_slice(&MARK);
    hash
}

fn number_of(hash: B256) -> Option<u64> {
    let number = u64::from_be_bytes(*hash.last_chunk()?);
    (hash == hash_of(number)).then_some(number)
}
