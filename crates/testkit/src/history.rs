//! How much of the chain's past an endpoint holds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{Reply, RpcError, lens};

/// A kind of data that nodes prune by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Data {
    /// Accounts, code, storage, calls and estimates, and what is traced by running it again.
    State,
    /// Blocks and headers, and what is looked up by its place in a block.
    Blocks,
    /// Receipts, and transactions by hash.
    Receipts,
    /// Logs over a range or of a block.
    Logs,
}

impl Data {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::State, Self::Blocks, Self::Receipts, Self::Logs];
}

/// Which blocks are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// This block and all above it.
    From(u64),
    /// The shown head and this many blocks below it.
    Last(u64),
}

impl Kept {
    fn lowest(self, head: u64) -> u64 {
        match self {
            Self::From(lowest) => lowest,
            Self::Last(blocks) => head.saturating_sub(blocks),
        }
    }
}

/// What is said of data that is not held.
#[derive(Clone, Debug, PartialEq)]
pub enum Gone {
    /// `null`; of logs, those that are held, as if there were no others.
    Null,
    /// This error.
    Error(RpcError),
}

impl Gone {
    /// An error without data.
    pub fn error(code: i64, message: impl Into<String>) -> Self {
        Self::Error(RpcError::new(code, message))
    }
}

/// How much of the chain's past an endpoint holds, by kind of data. By default all.
///
/// Heights are found wherever a request names them: by number, by the hash of a block or of a transaction, and by
/// the range of a log filter. Tags other than `earliest`, which is block 0, are always held. Block 0 is pruned
/// like any other.
///
/// ```
/// use backstay_testkit::{Data, Gone, History, Kept, Program};
///
/// // A node with the state of 128 blocks, and bodies and receipts from block 1000 on.
/// let history = History::whole()
///     .without(Data::State, Kept::Last(128), Gone::error(-32000, "missing trie node"))
///     .without(Data::Blocks, Kept::From(1_000), Gone::Null)
///     .without(Data::Receipts, Kept::From(1_000), Gone::Null);
/// let program = Program::new().history(history);
/// # let _ = program;
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    bounds: BTreeMap<Data, (Kept, Gone)>,
}

impl History {
    /// All of it: an archive.
    pub fn whole() -> Self {
        Self::default()
    }

    /// The same bound for every kind of data.
    pub fn pruned(kept: Kept, gone: Gone) -> Self {
        Self { bounds: Data::ALL.into_iter().map(|data| (data, (kept, gone.clone()))).collect() }
    }

    /// Holds only these blocks of one kind of data, and says this of the others.
    pub fn without(mut self, data: Data, kept: Kept, gone: Gone) -> Self {
        self.bounds.insert(data, (kept, gone));
        self
    }

    /// The bound that a request may fall below, and where it reads.
    pub(crate) fn bound(&self, method: &str, params: &Value) -> Option<(Bound<'_>, Place)> {
        if self.bounds.is_empty() {
            return None;
        }
        let (data, place) = place(method, params)?;
        let (kept, gone) = self.bounds.get(&data)?;
        Some((Bound { data, kept: *kept, gone }, place))
    }
}

/// The bound of one kind of data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound<'a> {
    data: Data,
    kept: Kept,
    gone: &'a Gone,
}

/// What becomes of a request that reads below a bound.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pruned {
    /// It gets this reply.
    Reply(Reply),
    /// It gets the logs of this block and above.
    LogsFrom(u64),
}

impl Bound<'_> {
    /// What becomes of a request at this height, where the shown head is `head`; `None` when it is held.
    pub(crate) fn at(&self, height: u64, head: u64) -> Option<Pruned> {
        let lowest = self.kept.lowest(head);
        (height < lowest).then(|| match (self.gone, self.data) {
            (Gone::Error(error), _) => Pruned::Reply(Reply::Error(error.clone())),
            (Gone::Null, Data::Logs) => Pruned::LogsFrom(lowest),
            (Gone::Null, Data::State | Data::Blocks | Data::Receipts) => Pruned::Reply(Reply::null()),
        })
    }
}

/// Leaves the logs below a block out of a reply; `true` if there were any.
pub(crate) fn drop_logs(reply: &mut Reply, lowest: u64) -> bool {
    let Reply::Result(Value::Array(logs)) = reply else { return false };
    let before = logs.len();
    logs.retain(|log| log.get("blockNumber").and_then(lens::quantity).is_none_or(|number| number >= lowest));
    logs.len() < before
}

/// Where a request reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Height(u64),
    /// In the block with this hash.
    Block(String),
    /// In the block of the transaction with this hash.
    Transaction(String),
}

impl Place {
    /// How the chain is asked for the height, and the field that has it.
    pub(crate) fn lookup(&self) -> Result<u64, (&'static str, Value, &'static str)> {
        match self {
            Self::Height(height) => Ok(*height),
            Self::Block(hash) => Err(("eth_getBlockByHash", json!([hash, false]), "number")),
            Self::Transaction(hash) => Err(("eth_getTransactionReceipt", json!([hash]), "blockNumber")),
        }
    }
}

/// Which kind of data a request reads, and where, if it names a height or a hash.
pub(crate) fn place(method: &str, params: &Value) -> Option<(Data, Place)> {
    let block = |data: Data, index: usize| Some((data, in_block(params.get(index)?)?));
    match method {
        "eth_call"
        | "eth_estimateGas"
        | "eth_createAccessList"
        | "eth_getBalance"
        | "eth_getCode"
        | "eth_getTransactionCount"
        | "eth_getAccount"
        | "eth_getAccountInfo"
        | "eth_simulateV1"
        | "debug_traceCall" => block(Data::State, 1),
        "eth_getStorageAt" | "eth_getProof" | "trace_call" => block(Data::State, 2),
        "debug_traceBlockByNumber" | "debug_traceBlockByHash" | "trace_block" => block(Data::State, 0),
        "eth_getBlockByNumber"
        | "eth_getBlockByHash"
        | "eth_getHeaderByNumber"
        | "eth_getHeaderByHash"
        | "eth_getBlockTransactionCountByNumber"
        | "eth_getBlockTransactionCountByHash"
        | "eth_getUncleCountByBlockNumber"
        | "eth_getUncleCountByBlockHash"
        | "eth_getUncleByBlockNumberAndIndex"
        | "eth_getUncleByBlockHashAndIndex"
        | "eth_getTransactionByBlockNumberAndIndex"
        | "eth_getTransactionByBlockHashAndIndex"
        | "eth_getRawTransactionByBlockNumberAndIndex"
        | "eth_getRawTransactionByBlockHashAndIndex" => block(Data::Blocks, 0),
        "eth_getBlockReceipts" => block(Data::Receipts, 0),
        "eth_getTransactionReceipt" | "eth_getTransactionByHash" | "eth_getRawTransactionByHash" => {
            Some((Data::Receipts, transaction(params)?))
        }
        "debug_traceTransaction" | "trace_transaction" => Some((Data::State, transaction(params)?)),
        "eth_getLogs" => {
            let filter = params.get(0)?;
            let lowest = filter.get("blockHash").or_else(|| filter.get("fromBlock"))?;
            Some((Data::Logs, in_block(lowest)?))
        }
        _ => None,
    }
}

fn transaction(params: &Value) -> Option<Place> {
    Some(Place::Transaction(params.get(0)?.as_str()?.to_owned()))
}

fn in_block(param: &Value) -> Option<Place> {
    match param {
        Value::String(text) if text == "earliest" => Some(Place::Height(0)),
        Value::String(text) if text.len() == 66 => Some(Place::Block(text.clone())),
        Value::Object(object) => in_block(object.get("blockHash").or_else(|| object.get("blockNumber"))?),
        other => lens::quantity(other).map(Place::Height),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_found_where_the_method_has_them() {
        let hash = format!("0x{}", "ab".repeat(32));
        let at = |height| Some(Place::Height(height));
        let by_hash = || Some(Place::Block(hash.clone()));
        for (method, params, data, expected) in [
            ("eth_call", json!([{}, "0x5"]), Data::State, at(5)),
            ("eth_call", json!([{}, { "blockNumber": "0x5" }]), Data::State, at(5)),
            ("eth_call", json!([{}, { "blockHash": hash }]), Data::State, by_hash()),
            ("eth_getStorageAt", json!(["0x1", "0x2", "0x5"]), Data::State, at(5)),
            ("eth_getBlockByNumber", json!(["earliest", false]), Data::Blocks, at(0)),
            ("eth_getBlockByHash", json!([hash, false]), Data::Blocks, by_hash()),
            ("eth_getBlockReceipts", json!(["0x5"]), Data::Receipts, at(5)),
            (
                "eth_getTransactionReceipt",
                json!([hash]),
                Data::Receipts,
                Some(Place::Transaction(hash.clone())),
            ),
            ("eth_getLogs", json!([{ "fromBlock": "0x5", "toBlock": "latest" }]), Data::Logs, at(5)),
            ("eth_getLogs", json!([{ "blockHash": hash }]), Data::Logs, by_hash()),
        ] {
            assert_eq!(place(method, &params), expected.map(|place| (data, place)), "{method} {params}");
        }
        for (method, params) in [
            ("eth_call", json!([{}])),
            ("eth_call", json!([{}, "latest"])),
            ("eth_getBlockByNumber", json!(["finalized", false])),
            ("eth_getLogs", json!([{}])),
            ("eth_blockNumber", json!([])),
            ("eth_chainId", Value::Null),
        ] {
            assert_eq!(place(method, &params), None, "{method} {params}");
        }
    }

    #[test]
    fn what_is_kept_moves_with_the_head_or_stays() {
        let gone = Gone::Null;
        let bound = |kept| Bound { data: Data::State, kept, gone: &gone };
        let null = Some(Pruned::Reply(Reply::null()));
        assert_eq!(bound(Kept::Last(2)).at(7, 10), null);
        assert_eq!(bound(Kept::Last(2)).at(8, 10), None);
        assert_eq!(bound(Kept::Last(2)).at(8, 11), null);
        assert_eq!(bound(Kept::Last(20)).at(0, 10), None);
        assert_eq!(bound(Kept::From(8)).at(7, 100), null);
        assert_eq!(bound(Kept::From(8)).at(8, 100), None);
    }

    #[test]
    fn a_kind_without_a_bound_is_held() {
        let history = History::whole().without(Data::Logs, Kept::From(9), Gone::Null);
        assert!(history.bound("eth_call", &json!([{}, "0x1"])).is_none());
        let (bound, place) = history.bound("eth_getLogs", &json!([{ "fromBlock": "0x1" }])).expect("bound");
        assert_eq!((place, bound.at(1, 20)), (Place::Height(1), Some(Pruned::LogsFrom(9))));
    }
}
