//! What is left: words that many messages contain, then codes, then the HTTP status.

use super::*;
use Class::{Fault, Invalid, Missing, NotYet, RangeTooLarge, RateLimited, Reverted, Unsupported};
use FaultKind::{Auth, Billing, NotJson, Server, Timeout, TooLarge, Truncated};
use RefusalKind::{IntrinsicGas, Policy, Underpriced};

pub(super) static WORDS: &[Entry] = &[
    row(Reverted, &["vm execution error"])
        .says("parity, nethermind", -32015, "VM execution error.")
        .seen_in(ERPC),
    row(Reverted, &["evm error"])
        .only(SIMULATE)
        .says("reth", -32000, "EVM error: NonceOverflow")
        .seen_in(ERPC),
    row(RateLimited, &["rate limit"])
        .says("alchemy, op", -32016, "rate limit exceeded, try again in 4ms")
        .seen_in(ALLOY),
    row(RateLimited, &["rate exceeded"]).says("hosted nodes", -32000, "request rate exceeded").seen_in(ALLOY),
    row(RateLimited, &["rate-limit"]).says("hosted nodes", -32000, "request was rate-limited").seen_in(ALLOY),
    row(RateLimited, &["too many requests"])
        .says("proxyd", -32024, "too many requests")
        .under(429)
        .seen_in(PROXYD),
    row(RateLimited, &["request limit"]).says("hosted nodes", -32000, "request limit hit").seen_in(ALLOY),
    row(RateLimited, &["limit exceeded"]).says("EIP-1474 servers", -32005, "limit exceeded").seen_in(ERPC),
    row(RateLimited, &["has exceeded"])
        .says("hosted nodes", -32000, "Your key has exceeded its share")
        .seen_in(ERPC),
    row(Fault(Auth), &["unauthorized"]).says("hosted nodes", -32000, "unauthorized").under(401).seen_in(ERPC),
    tx(IntrinsicGas, &["gas too low"]).only(SEND).says("routers", -32000, "gas too low").seen_in(ERPC),
    tx(Underpriced, &["underpriced"])
        .only(SEND)
        .says("erigon", -32000, "INTERNAL_ERROR: underpriced")
        .seen_in(CHAINLINK),
    tx(Policy, &["transaction rejected"])
        .only(SEND)
        .says("proxyd", -32100, "transaction rejected")
        .seen_in(PROXYD),
    tx(Policy, &["rejected"]).only(SEND).says("monad", -32603, "rejected").seen_in(ERPC),
    row(Fault(Timeout), &["timed out"]).says("gateways", -32603, "upstream timed out").seen_in(ERPC),
    row(Fault(Server), &["service unavailable"])
        .answers("gateways", 503, "Service Unavailable")
        .seen_in(CHAINLINK),
    row(Fault(Server), &["temporarily unavailable"])
        .says("gateways", -32603, "service temporarily unavailable, please try again later")
        .seen_in("hosted nodes, quoted by a user"),
    // Bytes say more than words that say nothing.
    row(Reverted, &[])
        .shape(Shape::Selector)
        .only(SIMULATE)
        .says("nodes that nest the revert", -32603, "Internal error")
        .data(r#"{"originalError":{"code":3,"data":"0x5a50c00d"}}"#)
        .seen_in(ERPC),
    row(Fault(Server), &["internal error"]).says("nodes", -32603, "Internal error").seen_in("JSON-RPC 2.0"),
    row(Fault(Server), &["internal json-rpc error"])
        .says("metamask", -32603, "Internal JSON-RPC error.")
        .seen_in(VIEM),
    row(Fault(Server), &["internal server error"])
        .answers("gateways", 500, "Internal Server Error")
        .seen_in("HTTP"),
    row(Unsupported, &["eth_", "is not supported"])
        .to("eth_foo")
        .says("hosted nodes", -32600, "eth_foo is not supported on this network")
        .seen_in(ERPC),
    // A key that is too weak, not a method: the words stand in pages of gateways too.
    row(Fault(Auth), &["forbidden"]).answers("gateways", 403, "403 Forbidden").seen_in("HTTP"),
    row(NotYet, &["resource not found"])
        .says("EIP-1474 servers", -32000, "Resource not found")
        .seen_in("EIP-1474"),
    row(Invalid, &["invalid argument"])
        .says("geth", -32602, "invalid argument 0: hex string has length 38, want 40 for common.Address")
        .seen_in(ERPC),
    row(Invalid, &["missing value for required argument"])
        .says("geth", -32602, "missing value for required argument 1")
        .seen_in(GETH),
    row(Invalid, &["cannot unmarshal"])
        .says("geth", -32602, "json: cannot unmarshal string into Go value of type uint64")
        .seen_in(ERPC),
    row(Invalid, &["invalid type: "])
        .to("eth_feeHistory")
        .says("anvil, reth", -32602, "invalid type: map, expected a string")
        .seen_in(ANVIL),
    row(Invalid, &["as a json-rpc type"])
        .says("ganache", -32700, "Cannot wrap a \"object\" as a json-rpc type")
        .seen_in(GANACHE),
    row(Invalid, &["expected a 8 byte hex string"])
        .says("hardhat", -32602, "expected a 8 byte hex string")
        .seen_in(HARDHAT),
    row(Invalid, &["odd number of digits"])
        .to("eth_getProof")
        .says("anvil", -32602, "odd number of digits")
        .seen_in(ANVIL),
    row(Invalid, &["invalid params"]).says("nodes", -32602, "Invalid params").seen_in("JSON-RPC 2.0"),
    row(Invalid, &["invalid request"])
        .codes(&[-32600])
        .says("anvil", -32600, "Invalid request")
        .seen_in(ANVIL),
    row(Invalid, &["parse error"])
        .codes(&[-32700])
        .says("nodes", -32700, "Parse error")
        .seen_in("JSON-RPC 2.0"),
];

/// A message that no row knows, under a code that has one meaning wherever it was seen.
pub(super) static CODES: &[Entry] = &[
    row(Reverted, &[])
        .codes(&[3])
        .only(SIMULATE)
        .says("geth", 3, "the contract said no")
        .seen_in("EIP-1474 draft for code 3"),
    row(RateLimited, &[]).codes(&[429]).says("alchemy", 429, "slow down").seen_in(ALLOY),
    row(RateLimited, &[]).codes(&[1008]).says("hosted nodes", 1008, "slow down").seen_in(ALLOY),
    row(RateLimited, &[]).codes(&[-32005]).says("infura, besu", -32005, "slow down").seen_in(ALLOY),
    row(RateLimited, &[])
        .codes(&[-32055])
        .says("cloudflare", -32055, "slow down")
        .seen_in("foundry issue 11667"),
    row(RangeTooLarge, &[])
        .codes(&[-32614])
        .only(LOGS)
        .to("eth_getLogs")
        .says("quicknode", -32614, "range")
        .seen_in(ERPC),
    row(Missing, &[]).codes(&[4444]).says("geth", 4444, "not here any more").seen_in(GETH),
    row(Missing, &[]).codes(&[-32043]).says("cloudflare", -32043, "not here any more").seen_in(WEB3_PROXY),
    row(Unsupported, &[]).codes(&[-32601]).to("eth_foo").says("nodes", -32601, "no").seen_in("JSON-RPC 2.0"),
    row(Unsupported, &[]).codes(&[-32004]).to("eth_foo").says("nodes", -32004, "no").seen_in("EIP-1474"),
    row(Unsupported, &[])
        .codes(&[-32612, -32613])
        .to("eth_foo")
        .says("quicknode", -32613, "no")
        .seen_in(LASSO),
];

/// A body that says nothing. Of a JSON-RPC error with an unknown message, only a status that gateways give
/// says more than the body did.
pub(super) static STATUS: &[Entry] = &[
    row(RateLimited, &[]).status(&[429]).answers("gateways", 429, "Too many connections.").seen_in("HTTP"),
    row(Fault(Billing), &[]).status(&[402]).answers("gateways", 402, "Payment Required").seen_in("HTTP"),
    row(Fault(Auth), &[]).status(&[401, 403]).answers("gateways", 401, "no").seen_in("HTTP"),
    row(Fault(Timeout), &[])
        .status(&[504, 524])
        .answers("cloudflare", 524, "error code: 524")
        .seen_in("HTTP"),
    row(Fault(Server), &[]).status(&[502, 503]).answers("gateways", 502, "").seen_in("HTTP"),
    row(Fault(Timeout), &[]).status(&[408]).shape(Shape::NotRpc).answers("gateways", 408, "").seen_in("HTTP"),
    row(RangeTooLarge, &[])
        .status(&[413])
        .shape(Shape::NotRpc)
        .only(LOGS)
        .to("eth_getLogs")
        .answers("gateways", 413, "Payload Too Large")
        .seen_in("HTTP"),
    row(Fault(TooLarge), &[])
        .status(&[413])
        .shape(Shape::NotRpc)
        .answers("gateways", 413, "Payload Too Large")
        .seen_in("HTTP"),
    row(Unsupported, &[])
        .status(&[405, 415, 501])
        .shape(Shape::NotRpc)
        .answers("gateways", 405, "Method Not Allowed")
        .seen_in(ERPC),
    row(Fault(Server), &[])
        .status(&[404, 410, 425, 500, 505, 507, 508, 520, 521, 522, 523, 525, 526, 527, 530])
        .shape(Shape::NotRpc)
        .answers("gateways", 404, "404 page not found")
        .seen_in("HTTP"),
    row(Fault(Truncated), &[])
        .shape(Shape::CutShort)
        .answers("proxies", 200, r#"{"jsonrpc":"2.0","id":1,"result":"0x00"#)
        .seen_in("a public incident report"),
    row(Fault(NotJson), &[])
        .shape(Shape::NotRpc)
        .answers("cloudflare", 200, "<!DOCTYPE html><html><title>Just a moment...</title></html>")
        .seen_in("a public incident report"),
];
