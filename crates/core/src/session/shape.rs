//! How a request is fenced: which parameter of which method names the block, and what is put there (S3, S4).
//!
//! A state read is asked at the view's block **by hash** (EIP-1898, canonical required). That proves itself:
//! an endpoint that has not got the block, or no longer has it on its canonical chain, must refuse. `latest`,
//! `pending` and an omitted block are replaced; explicit blocks, `safe` and `finalized` pass.
//!
//! A contract that is asked at block N sees N, not N + 1, as its own block number and time.

use serde_json::value::RawValue;
use thiserror::Error;

use crate::units::BlockRef;

/// What becomes of a request in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// It does not depend on state, or names its block itself: sent as it is.
    Free,
    /// It is asked at the view.
    At {
        /// The method, where it changes.
        method: Option<&'static str>,
        /// The new parameters, as JSON.
        params: String,
        /// Whether `null` means that the endpoint has not got the block yet.
        null_is_lag: bool,
    },
    /// The session knows the answer: this JSON.
    Known(String),
    /// It reads or writes in a way that a session cannot fence.
    Refused,
}

/// Parameters that are not what JSON-RPC allows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the parameters of {method} are not a JSON array")]
pub struct ParamsError {
    method: String,
}

/// Where a method's block parameter is.
enum Shape {
    /// At this index, as a number, tag or EIP-1898 object.
    Block(usize),
    /// At index 0; the lookup by hash that answers the same for a block by number.
    Lookup(&'static str),
    /// The number of the newest block.
    Height,
    /// A log filter at index 0.
    Logs,
    /// Not about state, or about something that names its own block or hash.
    Free,
}

fn shape(method: &str) -> Option<Shape> {
    Some(match method {
        "eth_call"
        | "eth_estimateGas"
        | "eth_createAccessList"
        | "eth_getBalance"
        | "eth_getCode"
        | "eth_getTransactionCount"
        | "eth_getAccount"
        | "eth_getAccountInfo"
        | "eth_simulateV1"
        | "debug_traceCall" => Shape::Block(1),
        "eth_getStorageAt" | "eth_getProof" | "trace_call" => Shape::Block(2),
        "eth_getBlockReceipts" => Shape::Block(0),
        "eth_getBlockByNumber" => Shape::Lookup("eth_getBlockByHash"),
        "eth_getBlockTransactionCountByNumber" => Shape::Lookup("eth_getBlockTransactionCountByHash"),
        "eth_getTransactionByBlockNumberAndIndex" => Shape::Lookup("eth_getTransactionByBlockHashAndIndex"),
        "eth_blockNumber" => Shape::Height,
        "eth_getLogs" => Shape::Logs,
        // Fee advice is no state and needs no fence.
        "eth_feeHistory" | "eth_gasPrice" | "eth_maxPriorityFeePerGas" | "eth_blobBaseFee" => Shape::Free,
        "eth_chainId"
        | "net_version"
        | "web3_clientVersion"
        | "web3_sha3"
        | "eth_syncing"
        | "eth_getBlockByHash"
        | "eth_getBlockTransactionCountByHash"
        | "eth_getTransactionByHash"
        | "eth_getTransactionByBlockHashAndIndex"
        | "eth_getRawTransactionByHash"
        | "eth_getTransactionReceipt" => Shape::Free,
        _ => return None,
    })
}

/// Fences one request at the view. `params` is the JSON text of its parameters, `None` where it has none.
///
/// # Errors
///
/// [`ParamsError`] when the parameters are not an array.
pub fn fence(method: &str, params: Option<&str>, view: BlockRef) -> Result<Fenced, ParamsError> {
    let Some(shape) = shape(method) else { return Ok(Fenced::Refused) };
    if matches!(shape, Shape::Free) {
        return Ok(Fenced::Free);
    }
    let params: Vec<&RawValue> = match params {
        None | Some("") => Vec::new(),
        Some(text) => serde_json::from_str(text).map_err(|_| ParamsError { method: method.to_owned() })?,
    };
    Ok(match shape {
        Shape::Free => Fenced::Free,
        Shape::Height => Fenced::Known(format!("\"0x{:x}\"", view.number)),
        Shape::Block(index) => match params.get(index) {
            Some(block) if !floats(block) => Fenced::Free,
            // An argument before it is missing: the node will say which.
            None if params.len() < index => Fenced::Free,
            Some(_) | None => {
                let at = format!("{{\"blockHash\":\"{}\",\"requireCanonical\":true}}", view.hash);
                Fenced::At { method: None, params: splice(&params, index, &at), null_is_lag: index == 0 }
            }
        },
        Shape::Lookup(by_hash) => match params.first() {
            Some(block) if floats(block) => {
                let hash = format!("\"{}\"", view.hash);
                Fenced::At { method: Some(by_hash), params: splice(&params, 0, &hash), null_is_lag: true }
            }
            Some(_) | None => Fenced::Free,
        },
        Shape::Logs => {
            let filter = params.first().map_or("{}", |filter| filter.get());
            let by_hash = serde_json::from_str::<LogFilter<'_>>(filter).is_ok_and(|f| f.block_hash.is_some());
            // A range is answered by a lagging replica without a word about what it lacks.
            if by_hash { Fenced::Free } else { Fenced::Refused }
        }
    })
}

#[derive(serde::Deserialize)]
struct LogFilter<'a> {
    #[serde(rename = "blockHash", borrow)]
    block_hash: Option<&'a RawValue>,
}

/// Whether a block parameter means something else at each moment and endpoint.
fn floats(block: &RawValue) -> bool {
    matches!(block.get(), "\"latest\"" | "\"pending\"" | "null")
}

fn splice(params: &[&RawValue], index: usize, value: &str) -> String {
    let mut parts: Vec<&str> = params.iter().map(|param| param.get()).collect();
    match parts.get_mut(index) {
        Some(part) => *part = value,
        None => parts.push(value),
    }
    format!("[{}]", parts.join(","))
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;

    const VIEW: BlockRef = BlockRef { number: 18, hash: B256::repeat_byte(0xab) };

    fn at(method: &str, params: &str) -> String {
        match fence(method, Some(params), VIEW).expect("an array") {
            Fenced::At { method: renamed, params, .. } => {
                let params = params.replace(&VIEW.hash.to_string(), "HASH");
                let params = params.replace(r#"{"blockHash":"HASH","requireCanonical":true}"#, "VIEW");
                format!("{}{params}", renamed.map(|name| format!("{name} ")).unwrap_or_default())
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn floating_blocks_are_replaced_by_the_view() {
        let check = |method, params, expected: &str| assert_eq!(at(method, params), expected);
        check("eth_call", r#"[{"to":"0x1"},"latest"]"#, r#"[{"to":"0x1"},VIEW]"#);
        check("eth_call", r#"[{"to":"0x1"}]"#, r#"[{"to":"0x1"},VIEW]"#);
        check("eth_estimateGas", r#"[{"to":"0x1"},"pending",{}]"#, r#"[{"to":"0x1"},VIEW,{}]"#);
        check("eth_getStorageAt", r#"["0x1","0x0","latest"]"#, r#"["0x1","0x0",VIEW]"#);
        check("eth_getTransactionCount", r#"["0x1","pending"]"#, r#"["0x1",VIEW]"#);
        check("eth_getBalance", r#"["0x1",null]"#, r#"["0x1",VIEW]"#);
        check("eth_getBlockByNumber", r#"["latest",false]"#, r#"eth_getBlockByHash ["HASH",false]"#);
    }

    #[test]
    fn what_names_its_block_passes() {
        let check = |method, params| assert_eq!(fence(method, Some(params), VIEW), Ok(Fenced::Free));
        check("eth_call", r#"[{"to":"0x1"},"0x5"]"#);
        check("eth_call", r#"[{"to":"0x1"},"finalized"]"#);
        check("eth_call", r#"[{"to":"0x1"},{"blockHash":"0x1"}]"#);
        check("eth_getStorageAt", r#"["0x1"]"#);
        check("eth_getBlockByNumber", r#"["0x5",false]"#);
        check("eth_getTransactionReceipt", r#"["0x1"]"#);
        check("eth_feeHistory", r#"["0xa","latest",[20.0]]"#);
        check("eth_getLogs", r#"[{"blockHash":"0x1"}]"#);
    }

    #[test]
    fn what_cannot_be_fenced_is_refused() {
        let check = |method, params| assert_eq!(fence(method, params, VIEW), Ok(Fenced::Refused));
        check("eth_getLogs", Some(r#"[{"fromBlock":"0x1"}]"#));
        check("eth_sendRawTransaction", Some(r#"["0x1"]"#));
        check("some_newStateMethod", None);
    }

    #[test]
    fn the_height_of_a_session_is_its_view() {
        assert_eq!(fence("eth_blockNumber", None, VIEW), Ok(Fenced::Known("\"0x12\"".into())));
    }

    #[test]
    fn parameters_by_name_are_an_error() {
        assert!(fence("eth_call", Some(r#"{"to":"0x1"}"#), VIEW).is_err());
    }
}
