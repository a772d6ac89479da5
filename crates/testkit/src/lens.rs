//! How a request is asked, and its reply changed, so that the endpoint answers like a node with a given head.
//!
//! Pure: what has to be looked up on the chain is named in the [`Sight`], and looked up by the proxy. The
//! refusals are anvil 1.7's, word for word.

use serde_json::{Value, json};

use crate::{Reply, RpcError};

/// The head that is shown, and the facts about the chain that a request needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Horizon {
    /// The highest block that the view admits.
    pub(crate) height: u64,
    /// The chain's own head.
    pub(crate) head: u64,
    /// The block that the chain calls safe, where the request names it.
    pub(crate) safe: u64,
    /// The block that the chain calls finalized, where the request names it.
    pub(crate) finalized: u64,
}

impl Horizon {
    pub(crate) fn shown(&self) -> u64 {
        self.height.min(self.head)
    }

    fn lagging(&self) -> bool {
        self.height < self.head
    }

    /// Where a node with the shown head sees a block that the chain sees at `number`: as deep below its head.
    fn as_deep(&self, number: u64) -> u64 {
        if number == 0 { 0 } else { self.shown().saturating_sub(self.head.saturating_sub(number)) }
    }
}

/// What to do with a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sight {
    /// Ask as it is.
    Pass,
    /// Ask with these parameters instead.
    Ask { params: Value },
    /// Do not ask.
    Refuse { reply: Reply, altered: bool },
    /// Ask as it is, unless the block with this hash is above the horizon.
    BelowBlock { hash: String, otherwise: Reply },
    /// Ask as it is, unless the transaction with this hash is mined above the horizon.
    BelowTransaction { hash: String, otherwise: Reply },
    /// Ask as it is, and pass the reply through the mask.
    Mask(Mask),
}

/// A change of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    Head,
    Block,
    Receipt,
    Transaction,
}

/// The depth tags that a request names: whether `safe`, whether `finalized`.
pub(crate) fn depth_tags(params: &Value) -> [(&'static str, bool); 2] {
    let names = |tag: &str| {
        let is = |value: &Value| value.as_str() == Some(tag);
        params.as_array().is_some_and(|params| {
            params.iter().any(|param| {
                is(param) || ["fromBlock", "toBlock"].iter().any(|field| param.get(field).is_some_and(is))
            })
        })
    };
    [("safe", names("safe")), ("finalized", names("finalized"))]
}

/// Decides how a request looks to a node whose head is the horizon.
pub(crate) fn look(method: &str, params: &Value, horizon: &Horizon) -> Sight {
    match method {
        "eth_blockNumber" => Sight::Mask(Mask::Head),
        "eth_call"
        | "eth_estimateGas"
        | "eth_createAccessList"
        | "eth_getBalance"
        | "eth_getCode"
        | "eth_getTransactionCount"
        | "eth_getAccount"
        | "eth_getAccountInfo"
        | "eth_simulateV1"
        | "debug_traceCall" => at_block(params, 1, horizon, Beyond::State),
        "eth_getStorageAt" | "eth_getProof" | "trace_call" => at_block(params, 2, horizon, Beyond::State),
        "eth_getBlockByNumber"
        | "eth_getHeaderByNumber"
        | "eth_getBlockReceipts"
        | "eth_getUncleByBlockNumberAndIndex"
        | "eth_getTransactionByBlockNumberAndIndex"
        | "eth_getRawTransactionByBlockNumberAndIndex" => at_block(params, 0, horizon, Beyond::Null),
        "eth_getBlockTransactionCountByNumber"
        | "eth_getUncleCountByBlockNumber"
        | "debug_traceBlockByNumber"
        | "trace_block" => at_block(params, 0, horizon, Beyond::State),
        "eth_feeHistory" => at_block(params, 1, horizon, Beyond::Clamp),
        "eth_getLogs" => logs(params, horizon),
        "eth_getBlockByHash" | "eth_getHeaderByHash" => Sight::Mask(Mask::Block),
        "eth_getBlockTransactionCountByHash"
        | "eth_getUncleCountByBlockHash"
        | "eth_getUncleByBlockHashAndIndex"
        | "eth_getTransactionByBlockHashAndIndex"
        | "eth_getRawTransactionByBlockHashAndIndex" => below_block(params, Reply::null()),
        "debug_traceBlockByHash" => below_block(params, not_found()),
        "eth_getTransactionReceipt" => Sight::Mask(Mask::Receipt),
        "eth_getTransactionByHash" | "eth_getTransactionBySenderAndNonce" => Sight::Mask(Mask::Transaction),
        "debug_traceTransaction" => below_transaction(
            params,
            Reply::Result(json!({ "failed": false, "gas": 0, "returnValue": "0x", "structLogs": [] })),
        ),
        "trace_transaction" => below_transaction(params, Reply::Result(json!([]))),
        // A filter remembers the chain's own height between its polls.
        "eth_newFilter" | "eth_newBlockFilter" | "eth_getFilterChanges" | "eth_getFilterLogs" => {
            Sight::Refuse { reply: Reply::Error(RpcError::new(-32601, "Method not found")), altered: true }
        }
        _ => Sight::Pass,
    }
}

/// Changes a reply; `true` if it is another one now.
pub(crate) fn mask(mask: Mask, reply: &mut Reply, horizon: &Horizon) -> bool {
    let Reply::Result(result) = reply else { return false };
    let above =
        |value: Option<&Value>| value.and_then(quantity).is_some_and(|number| number > horizon.height);
    match mask {
        Mask::Head if above(Some(result)) => *result = hex(horizon.height),
        Mask::Block if above(result.get("number")) => *result = Value::Null,
        Mask::Receipt if above(result.get("blockNumber")) => *result = Value::Null,
        Mask::Transaction if above(result.get("blockNumber")) => unmine(result),
        Mask::Head | Mask::Block | Mask::Receipt | Mask::Transaction => return false,
    }
    true
}

/// A mined transaction as it was in the pool.
fn unmine(transaction: &mut Value) {
    let Some(fields) = transaction.as_object_mut() else { return };
    for field in ["blockHash", "blockNumber", "transactionIndex"] {
        fields.insert(field.to_owned(), Value::Null);
    }
    fields.remove("blockTimestamp");
    if let Some(price) = fields.get("maxFeePerGas").cloned() {
        fields.insert("gasPrice".to_owned(), price);
    }
}

/// What a method answers about a block above the head.
#[derive(Clone, Copy)]
enum Beyond {
    /// An error.
    State,
    /// `null`.
    Null,
    /// What it answers about the head.
    Clamp,
}

/// A block parameter as the horizon sees it.
enum Block {
    /// Means the same to the chain.
    Same,
    /// Means this block.
    Number(u64),
    /// Names a block that is not there.
    Above(u64),
    /// Names a block by hash.
    Hash(String),
}

fn resolve(param: Option<&Value>, horizon: &Horizon) -> Block {
    let by_number = |number: u64| if number > horizon.height { Block::Above(number) } else { Block::Same };
    match param {
        None | Some(Value::Null) => Block::Number(horizon.shown()),
        Some(Value::String(text)) => match text.as_str() {
            "latest" => Block::Number(horizon.shown()),
            // Without a lag the pool counts as the chain's own.
            "pending" if horizon.lagging() => Block::Number(horizon.shown()),
            "safe" => Block::Number(horizon.as_deep(horizon.safe)),
            "finalized" => Block::Number(horizon.as_deep(horizon.finalized)),
            hash if hash.len() == 66 => Block::Hash(hash.to_owned()),
            _ => quantity(&Value::String(text.clone())).map_or(Block::Same, by_number),
        },
        Some(Value::Object(object)) => {
            match (object.get("blockHash").and_then(Value::as_str), object.get("blockNumber")) {
                (Some(hash), _) => Block::Hash(hash.to_owned()),
                (None, Some(number)) => resolve(Some(number), horizon),
                (None, None) => Block::Same,
            }
        }
        Some(number) => quantity(number).map_or(Block::Same, by_number),
    }
}

fn at_block(params: &Value, index: usize, horizon: &Horizon, beyond: Beyond) -> Sight {
    let empty = Vec::new();
    let list = match params {
        Value::Array(list) => list,
        Value::Null => &empty,
        // Named parameters, which no node of this kind takes.
        _ => return Sight::Pass,
    };
    // Too short for the block to be the one that is left out: the chain has its own words for that.
    if list.len() < index {
        return Sight::Pass;
    }
    let asked_at = |number: u64| {
        let mut list = list.clone();
        list.resize((index + 1).max(list.len()), Value::Null);
        list[index] = hex(number);
        Sight::Ask { params: Value::Array(list) }
    };
    match resolve(list.get(index), horizon) {
        Block::Same => Sight::Pass,
        Block::Number(number) => asked_at(number),
        Block::Above(number) => match beyond {
            Beyond::State => out_of_range(number, horizon),
            Beyond::Null => Sight::Refuse { reply: Reply::null(), altered: number <= horizon.head },
            Beyond::Clamp => asked_at(horizon.shown()),
        },
        Block::Hash(hash) => {
            let otherwise = match beyond {
                Beyond::State => not_found(),
                Beyond::Null | Beyond::Clamp => Reply::null(),
            };
            Sight::BelowBlock { hash, otherwise }
        }
    }
}

fn logs(params: &Value, horizon: &Horizon) -> Sight {
    let Some(Value::Object(filter)) = params.get(0) else { return Sight::Pass };
    if let Some(hash) = filter.get("blockHash").and_then(Value::as_str) {
        let otherwise = Reply::Error(RpcError::new(-32000, "unknown block"));
        return Sight::BelowBlock { hash: hash.to_owned(), otherwise };
    }
    let mut narrowed = filter.clone();
    match resolve(filter.get("fromBlock"), horizon) {
        Block::Above(number) => return out_of_range(number, horizon),
        Block::Number(number) => {
            narrowed.insert("fromBlock".to_owned(), hex(number));
        }
        Block::Same | Block::Hash(_) => {}
    }
    match resolve(filter.get("toBlock"), horizon) {
        Block::Above(_) => {
            narrowed.insert("toBlock".to_owned(), hex(horizon.shown()));
        }
        Block::Number(number) => {
            narrowed.insert("toBlock".to_owned(), hex(number));
        }
        Block::Same | Block::Hash(_) => {}
    }
    if narrowed == *filter { Sight::Pass } else { Sight::Ask { params: json!([narrowed]) } }
}

fn below_block(params: &Value, otherwise: Reply) -> Sight {
    match params.get(0).and_then(Value::as_str) {
        Some(hash) => Sight::BelowBlock { hash: hash.to_owned(), otherwise },
        None => Sight::Pass,
    }
}

fn below_transaction(params: &Value, otherwise: Reply) -> Sight {
    match params.get(0).and_then(Value::as_str) {
        Some(hash) => Sight::BelowTransaction { hash: hash.to_owned(), otherwise },
        None => Sight::Pass,
    }
}

fn not_found() -> Reply {
    Reply::Error(RpcError::new(-32001, "Resource not found"))
}

fn out_of_range(number: u64, horizon: &Horizon) -> Sight {
    let message =
        format!("BlockOutOfRangeError: block height is {} but requested was {number}", horizon.shown());
    Sight::Refuse { reply: Reply::Error(RpcError::new(-32602, message)), altered: number <= horizon.head }
}

/// A number as JSON-RPC writes it.
pub(crate) fn hex(number: u64) -> Value {
    Value::String(format!("{number:#x}"))
}

/// Reads a number: hexadecimal text, or a bare JSON number.
pub(crate) fn quantity(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        other => other.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEHIND: Horizon = Horizon { height: 10, head: 12, safe: 8, finalized: 0 };
    const LEVEL: Horizon = Horizon { height: 12, head: 12, safe: 8, finalized: 0 };

    #[test]
    fn tags_and_left_out_blocks_mean_the_shown_head() {
        for params in
            [json!(["0xaa"]), json!(["0xaa", null]), json!(["0xaa", "latest"]), json!(["0xaa", "pending"])]
        {
            assert_eq!(
                look("eth_getBalance", &params, &BEHIND),
                Sight::Ask { params: json!(["0xaa", "0xa"]) },
                "{params}"
            );
        }
        assert_eq!(look("eth_getBalance", &json!(["0xaa", "earliest"]), &BEHIND), Sight::Pass);
    }

    #[test]
    fn pending_stays_pending_on_a_node_that_is_level() {
        assert_eq!(look("eth_call", &json!([{}, "pending"]), &LEVEL), Sight::Pass);
        assert_eq!(
            look("eth_call", &json!([{}, "latest"]), &LEVEL),
            Sight::Ask { params: json!([{}, "0xc"]) }
        );
    }

    #[test]
    fn depth_tags_are_as_deep_below_the_shown_head() {
        let asked = |tag: &str| look("eth_getBlockByNumber", &json!([tag, false]), &BEHIND);
        assert_eq!(asked("safe"), Sight::Ask { params: json!(["0x6", false]) });
        assert_eq!(asked("finalized"), Sight::Ask { params: json!(["0x0", false]) });
        assert_eq!(depth_tags(&json!([{ "toBlock": "finalized" }])), [("safe", false), ("finalized", true)]);
    }

    #[test]
    fn overrides_behind_the_block_are_left_alone() {
        assert_eq!(
            look("eth_call", &json!([{}, "latest", { "0xaa": {} }]), &BEHIND),
            Sight::Ask { params: json!([{}, "0xa", { "0xaa": {} }]) }
        );
    }

    #[test]
    fn numbers_above_the_head_are_refused_as_anvil_does() {
        let refused = Sight::Refuse {
            reply: Reply::Error(RpcError::new(
                -32602,
                "BlockOutOfRangeError: block height is 10 but requested was 11",
            )),
            altered: true,
        };
        assert_eq!(look("eth_getBalance", &json!(["0xaa", "0xb"]), &BEHIND), refused);
        assert_eq!(look("eth_getBalance", &json!(["0xaa", { "blockNumber": "0xb" }]), &BEHIND), refused);
        assert_eq!(look("eth_getLogs", &json!([{ "fromBlock": "0xb" }]), &BEHIND), refused);
        assert_eq!(
            look("eth_getBlockByNumber", &json!(["0xd", false]), &BEHIND),
            Sight::Refuse { reply: Reply::null(), altered: false },
            "the chain does not have it either"
        );
    }

    #[test]
    fn log_ranges_end_at_the_head() {
        let asked = |filter: Value| look("eth_getLogs", &json!([filter]), &BEHIND);
        assert_eq!(
            asked(json!({ "fromBlock": "0x1", "toBlock": "0x63" })),
            Sight::Ask { params: json!([{ "fromBlock": "0x1", "toBlock": "0xa" }]) }
        );
        assert_eq!(
            asked(json!({})),
            Sight::Ask { params: json!([{ "fromBlock": "0xa", "toBlock": "0xa" }]) }
        );
        assert_eq!(asked(json!({ "fromBlock": "0x1", "toBlock": "0xa" })), Sight::Pass);
    }

    #[test]
    fn parameters_that_are_missing_do_not_matter() {
        assert_eq!(
            look("eth_getBlockByNumber", &Value::Null, &BEHIND),
            Sight::Ask { params: json!(["0xa"]) }
        );
        assert_eq!(look("eth_getBalance", &Value::Null, &BEHIND), Sight::Pass);
        assert_eq!(look("eth_chainId", &Value::Null, &BEHIND), Sight::Pass);
    }

    #[test]
    fn a_transaction_mined_above_the_head_looks_pooled() {
        let mined = json!({ "hash": "0x1", "blockHash": "0x2", "blockNumber": "0xb", "transactionIndex": "0x0",
            "blockTimestamp": "0x5", "maxFeePerGas": "0x9", "gasPrice": "0x7" });
        let mut reply = Reply::Result(mined.clone());
        assert!(mask(Mask::Transaction, &mut reply, &BEHIND));
        assert_eq!(
            reply,
            Reply::Result(json!({ "hash": "0x1", "blockHash": null, "blockNumber": null,
                "transactionIndex": null, "maxFeePerGas": "0x9", "gasPrice": "0x9" }))
        );
        let mut level = Reply::Result(mined.clone());
        assert!(!mask(Mask::Transaction, &mut level, &LEVEL));
        assert_eq!(level, Reply::Result(mined));
    }
}
