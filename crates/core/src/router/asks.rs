//! What a request asks for: which kind of data, at which height.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::failure::DataKind;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Something that has no height, or the head's.
    Current,
    /// Data of a kind at a height.
    At {
        /// The kind.
        kind: DataKind,
        /// The height.
        height: u64,
    },
    /// Something that is looked up by its hash: its height is not known.
    ByHash,
    /// Something of a block that is named by its hash, such as its logs: an endpoint that does not know the block
    /// has no answer.
    OfBlock,
}

/// The shape of a method that Backstay does not know, as the config declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// The index of the parameter that holds the height, from 0.
    pub height_param: usize,
    /// The kind of data that it reads.
    pub kind: DataKind,
}

/// What a request asks for. `params` gives its parameters, and is called only where they matter; `declared` has
/// the shapes of the methods that are not known here.
pub fn asks<'a>(
    method: &str,
    params: impl FnOnce() -> Vec<&'a RawValue>,
    declared: &BTreeMap<String, Declared>,
) -> Asks {
    let Some((index, kind)) = shape(method, declared) else {
        return if by_hash(method) { Asks::ByHash } else { Asks::Current };
    };
    match params().get(index).and_then(|param| height(param)) {
        Some(height) => Asks::At { kind, height },
        None => Asks::Current,
    }
}

/// Whether it is known here what a method asks for, so that a declared shape changes nothing.
pub fn is_known(method: &str) -> bool {
    shape(method, &BTreeMap::new()).is_some() || by_hash(method)
}

fn shape(method: &str, declared: &BTreeMap<String, Declared>) -> Option<(usize, DataKind)> {
    Some(match method {
        "eth_call"
        | "eth_getBalance"
        | "eth_getCode"
        | "eth_getTransactionCount"
        | "eth_estimateGas"
        | "eth_createAccessList"
        | "eth_getAccount"
        | "eth_getAccountInfo"
        | "eth_simulateV1"
        | "debug_traceCall" => (1, DataKind::State),
        "eth_getStorageAt" | "eth_getProof" | "trace_call" => (2, DataKind::State),
        "eth_getBlockByNumber"
        | "eth_getHeaderByNumber"
        | "eth_getBlockTransactionCountByNumber"
        | "debug_getRawBlock"
        | "debug_getRawHeader" => (0, DataKind::Blocks),
        // Not the lookups by index: past the end of a block their null is the answer.
        "eth_getBlockReceipts" | "debug_getRawReceipts" => (0, DataKind::Transactions),
        // The state of the block, with what it touched: as deep as state.
        "debug_traceBlockByNumber" | "debug_executionWitness" | "trace_block" => (0, DataKind::State),
        other => {
            let declared = declared.get(other)?;
            (declared.height_param, declared.kind)
        }
    })
}

fn by_hash(method: &str) -> bool {
    matches!(
        method,
        "eth_getTransactionByHash"
            | "eth_getTransactionReceipt"
            | "eth_getRawTransactionByHash"
            | "eth_getBlockByHash"
            | "eth_getHeaderByHash"
            | "eth_getBlockTransactionCountByHash"
            | "eth_getTransactionByBlockHashAndIndex"
    )
}

/// The height in a parameter: a hexadecimal quantity, a number, or an object with `blockNumber`. A tag or a hash
/// is none.
fn height(param: &RawValue) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Block<'a> {
        Text(&'a str),
        Number(u64),
        Object {
            #[serde(rename = "blockNumber")]
            number: &'a str,
        },
    }
    match serde_json::from_str(param.get()).ok()? {
        Block::Number(number) => Some(number),
        // A hash is longer than any height.
        Block::Text(text) | Block::Object { number: text } => quantity(text),
    }
}

/// A hexadecimal quantity that fits a height.
pub(super) fn quantity(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() <= 16)?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = r#"[{},"0xabababababababababababababababababababababababababababababababab"]"#;

    #[test]
    fn the_height_is_where_the_method_has_it() {
        let declared = BTreeMap::from([(
            "zks_getBlockDetails".to_owned(),
            Declared { height_param: 0, kind: DataKind::Blocks },
        )]);
        let check = |method, params: Option<&'static str>, expected: Option<(DataKind, u64)>| {
            let expected = expected.map_or(Asks::Current, |(kind, height)| Asks::At { kind, height });
            let list = || serde_json::from_str(params.unwrap_or("[]")).expect("an array");
            assert_eq!(asks(method, list, &declared), expected, "{method} {params:?}");
        };
        check("eth_call", Some(r#"[{"to":"0x1"},"0x10"]"#), Some((DataKind::State, 16)));
        check("eth_call", Some(r#"[{"to":"0x1"},{"blockNumber":"0x10"}]"#), Some((DataKind::State, 16)));
        check("eth_call", Some(r#"[{"to":"0x1"},"latest"]"#), None);
        check("eth_call", Some(r#"[{"to":"0x1"}]"#), None);
        check("eth_getStorageAt", Some(r#"["0x1","0x0","0x5"]"#), Some((DataKind::State, 5)));
        check("eth_getBlockByNumber", Some(r#"["0x5",false]"#), Some((DataKind::Blocks, 5)));
        check("eth_getBlockReceipts", Some(r#"["0x5"]"#), Some((DataKind::Transactions, 5)));
        check("debug_executionWitness", Some("[7]"), Some((DataKind::State, 7)));
        check("zks_getBlockDetails", Some("[7]"), Some((DataKind::Blocks, 7)));
        check("zks_other", Some("[7]"), None);
        check("eth_blockNumber", None, None);
        check("eth_call", Some(HASH), None);
        assert_eq!(asks("eth_getTransactionReceipt", Vec::new, &declared), Asks::ByHash);
        for (method, known) in
            [("eth_call", true), ("eth_getTransactionReceipt", true), ("zks_getBlockDetails", false)]
        {
            assert_eq!(is_known(method), known, "{method}");
        }
    }
}
