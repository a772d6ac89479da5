//! The same thing said in many ways.

use std::time::Duration;

use super::*;
use crate::failure::{FaultKind, RefusalKind, Revert};

#[test]
fn transactions_are_refused_in_every_dialect() {
    use RefusalKind::*;
    let check = |code, message: &str, kind| {
        assert_eq!(verdict(&error(SEND, code, message)), Verdict::TxRefused(kind), "{code} {message}");
    };
    check(-32603, "Transaction nonce too low", NonceTooLow);
    check(-32003, "nonce too low", NonceTooLow);
    check(-32000, "nonce too low: address 0x11 current nonce (7) > tx nonce (6)", NonceTooLow);
    check(-32000, "nonce too low. allowed nonce range: 5 - 55, actual: 4", NonceTooLow);
    check(
        -32000,
        "Nonce too low. Expected nonce to be 4 but got 1. Note that transactions can't be queued",
        NonceTooLow,
    );
    check(
        -32000,
        "the tx doesn't have the correct nonce. account has nonce of: 5 tx has nonce of: 9",
        NonceTooHigh,
    );
    check(-32000, "invalid nonce; got 9, expected 7: invalid sequence", NonceTooHigh);
    check(-32000, "invalid nonce; got 5, expected 7: invalid sequence", NonceTooLow);
    check(-32000, "NonceGap", NonceTooHigh);
    check(-32000, "block already known", AlreadyKnown);
    check(-32000, "ALREADY_EXISTS: already known", AlreadyKnown);
    check(-32000, "known transaction: 5a50c00d", AlreadyKnown);
    check(-32000, "known transaction. transaction with hash 0x5a is already in the system", AlreadyKnown);
    check(
        -32000,
        "Replacement transaction underpriced. A gasPrice/maxFeePerGas of at least 5 is necessary",
        ReplacementUnderpriced,
    );
    check(-32003, "transaction underpriced", Underpriced);
    check(-32000, "FeeTooLowToCompete", Underpriced);
    check(-32000, "FeeTooLow, EffectivePriorityFeePerGas too low 5 < 10", Underpriced);
    check(-32000, "failed to unmarshal tx: transaction type not supported", Malformed);
    check(-32003, "Insufficient funds for gas * price + value", InsufficientFunds);
    check(-32000, "insufficient funds for gas * price + value + gatewayFee", InsufficientFunds);
    check(-32000, "insufficient funds for gas + value. balance: 0, fee: 1, value: 0", InsufficientFunds);
    check(-32000, "Transaction gas limit exceeds block gas limit", BlockGasLimit);
    check(-32000, "Transaction gas limit '9' exceeds block gas limit '5'", BlockGasLimit);
    check(
        -32000,
        "tx fee (2.00 ether of currency celo) exceeds the configured cap (1.00 ether)",
        FeeAboveNodeCap,
    );
    check(-32017, "sender is over rate limit", SenderRateLimit);
    check(-32603, "Rejected", Policy);
}

#[test]
fn a_refusal_in_a_simulation_is_one_too() {
    let check = |method, message, kind| {
        assert_eq!(verdict(&error(method, -32000, message)), Verdict::TxRefused(kind), "{method} {message}");
    };
    check("eth_estimateGas", "insufficient funds for gas * price + value", RefusalKind::InsufficientFunds);
    check("eth_call", "Insufficient funds for gas * price + value", RefusalKind::InsufficientFunds);
    check("eth_estimateGas", "gas required exceeds allowance (0)", RefusalKind::InsufficientFunds);
    check("eth_call", "max fee per gas less than block base fee: baseFee 7", RefusalKind::FeeBelowBaseFee);
}

#[test]
fn a_code_says_nothing_that_the_message_denies() {
    let check = |code, message: &str, expect| {
        assert_eq!(verdict(&error("eth_call", code, message)), expect, "{code} {message}");
    };
    let refused = Verdict::TxRefused;
    check(-32603, "nonce too low", refused(RefusalKind::NonceTooLow));
    check(-32603, "request timed out", Verdict::Fault(FaultKind::Timeout));
    check(-32603, "Internal error", Verdict::Fault(FaultKind::Server));
    check(-32603, "what is this", Verdict::Unclassified);
    check(-32016, "over rate limit", LIMITED);
    check(-32016, "rate limit exceeded", LIMITED);
    check(-32016, "what is this", Verdict::Unclassified);
    check(-32012, "backend is over capacity", LIMITED);
    check(-32012, "credits limited to 6000/sec", LIMITED);
    check(-32012, "what is this", Verdict::Unclassified);
    check(-32015, "gateway timeout", Verdict::Fault(FaultKind::Timeout));
    check(-32015, "what is this", Verdict::Unclassified);
    check(-32001, "Resource not found", Verdict::NotYet);
    check(-32001, "requested height is beyond tip", Verdict::NotYet);
    check(-32001, "Exceeded the quota usage", LIMITED);
    check(-32005, "limit exceeded", LIMITED);
    check(-32005, "query returned more than 10000 results", Verdict::RangeTooLarge { hint: None });
    check(-32005, "condition not met", refused(RefusalKind::Policy));
    check(-32005, "what is this", LIMITED);
    check(-32602, "what is this", Verdict::Unclassified);
    check(-32602, "invalid argument 0: hex string has odd length", Verdict::Invalid);
    check(-32700, "The method eth_foo does not exist/is not available", Verdict::Unsupported);
    check(-32700, "header not found", Verdict::NotYet);
    check(-32004, "Upfront cost exceeds account balance", refused(RefusalKind::InsufficientFunds));
    check(-32003, "response too large", Verdict::Fault(FaultKind::TooLarge));
    check(3, "", Verdict::Reverted(Revert::default()));
}

#[test]
fn the_numbers_tell_a_pruned_block_from_one_to_come() {
    let check = |method, message: &str, expect| {
        assert_eq!(verdict(&error(method, -32602, message)), expect, "{message}");
    };
    let anvil =
        |head, asked| format!("BlockOutOfRangeError: block height is {head} but requested was {asked}");
    check("eth_call", &anvil(3, 8), Verdict::NotYet);
    check("eth_call", &anvil(41, 2), missing(DataKind::State, None));
    check("eth_getLogs", &anvil(41, 2), missing(DataKind::Logs, None));
    let hardhat = |asked: &str| format!("Received invalid block tag {asked}. Latest block number is 3");
    check("eth_call", &hardhat("8"), Verdict::NotYet);
    check("eth_call", &hardhat("2"), missing(DataKind::State, None));
    check("eth_call", &hardhat(&format!("0x{}", "ab".repeat(32))), Verdict::NotYet);
}

#[test]
fn a_missing_block_says_of_which_kind_and_since_when() {
    let check =
        |method, message, expect| assert_eq!(verdict(&error(method, -32000, message)), expect, "{method}");
    check("eth_getTransactionCount", "missing trie node ab (path )", missing(DataKind::State, None));
    check("debug_traceTransaction", "missing trie node ab (path )", missing(DataKind::State, None));
    check("eth_getLogs", "pruned history unavailable", missing(DataKind::Logs, None));
    check(
        "eth_getTransactionReceipt",
        "transaction indexing is in progress",
        missing(DataKind::Transactions, None),
    );
    check("eth_getBlockReceipts", "pruned history unavailable", missing(DataKind::Transactions, None));
    check("eth_getBlockByNumber", "pruned history unavailable", missing(DataKind::Blocks, None));
    check(
        "eth_getBlockByNumber",
        "block #5 has been pruned; earliest available is #18,000",
        missing(DataKind::Blocks, Some(18_000)),
    );
    check("eth_call", "height 5 is not available, lowest height is 0x12", missing(DataKind::State, Some(18)));
}

#[test]
fn a_range_that_would_do_is_read() {
    let check = |code, message, data, hint| {
        let reply = error_with("eth_getLogs", code, message, data);
        assert_eq!(verdict(&reply), Verdict::RangeTooLarge { hint }, "{message}");
    };
    let infura = "query returned more than 10000 results. Try with this block range [0x100E698, 0x100E6D4].";
    check(-32005, infura, None, Some((0x100_e698, 0x100_e6d4)));
    check(
        -32602,
        "Log response size exceeded, this block range should work: [0x0, 0xd043b8]",
        None,
        Some((0, 0xd0_43b8)),
    );
    check(
        -32602,
        "exceeds max results 20000, retry with the range 3600741-3620740",
        None,
        Some((3_600_741, 3_620_740)),
    );
    let data = r#"{"from":"0x10","to":"0x20","limit":10000}"#;
    check(-32005, "query returned more than 10000 results", Some(data), Some((16, 32)));
    check(-32602, "Try with this block range [0x20, 0x10]", None, None);
    check(-32602, "Try with this block range [latest, 0x10]", None, None);
    check(-32602, "Try with this block range [0xffffffffffffffffffff, 0x10]", None, None);
    check(-32614, "eth_getLogs is limited to a 10,000 range", None, None);
    check(-32000, "block range is larger than max block range, block range = 5120", None, None);
    check(-32000, "range 5-9 exceeds limit of 2", None, None);
    check(-32602, "invalid params", Some(r#""range 20000 is bigger than range limit 2000""#), None);
}

#[test]
fn how_long_to_wait_is_read() {
    let check = |header: Option<u64>, message, data, after: Option<u64>| {
        let retry_after = header.map(Duration::from_millis);
        let reply = Reply { retry_after, ..error_with("eth_call", 429, message, data) };
        assert_eq!(
            verdict(&reply),
            Verdict::RateLimited { after: after.map(Duration::from_millis) },
            "{message}"
        );
    };
    check(None, "rate limited, try again in 4ms", None, Some(4));
    check(None, "rate limit exceeded, retry in 1.5s", None, Some(1500));
    check(None, "slow down", None, None);
    check(Some(7000), "slow down", None, Some(7000));
    check(Some(7000), "too many requests, try again in 4ms", None, Some(7000));
    let infura = Some(r#"{"rate":{"allowed_rps":1,"backoff_seconds":30,"current_rps":1.1}}"#);
    check(None, "project ID request rate exceeded", infura, Some(30_000));
    check(None, "slow down", Some(r#"{"try_again_in":"250ms"}"#), Some(250));
    check(None, "slow down", Some(r#"{"rate":{"backoff_seconds":-1}}"#), None);
    check(None, "slow down", Some(r#"{"rate":{"backoff_seconds":1e300}}"#), None);
    check(Some(u64::MAX), "slow down", None, Some(86_400_000));
}

#[test]
fn a_body_that_is_no_json_rpc_is_read_as_far_as_it_goes() {
    use FaultKind::*;
    let check = |status, body, expect| assert_eq!(verdict(&text(status, body)), expect, "{status} {body}");
    let fault = Verdict::Fault;
    check(429, "Too many connections.", LIMITED);
    check(429, "<html>slow down</html>", LIMITED);
    check(200, "error code: 1015", LIMITED);
    check(401, "", fault(Auth));
    check(403, "no", fault(Auth));
    check(402, "pay", fault(Billing));
    check(403, "Archive requests require a paid plan", missing(DataKind::State, None));
    check(500, "oops", fault(Server));
    check(502, "<html>502 Bad Gateway</html>", fault(Server));
    check(503, "header not found", Verdict::NotYet);
    check(504, "", fault(Timeout));
    check(404, "404 page not found", fault(Server));
    check(405, "", Verdict::Unsupported);
    check(413, "", fault(TooLarge));
    check(400, "bad request", fault(NotJson));
    check(200, "", fault(NotJson));
    check(200, "<!DOCTYPE html><title>Just a moment...</title>", fault(NotJson));
    check(200, r#"{"jsonrpc":"2.0","id":1,"resu"#, fault(Truncated));
    check(200, r#"{"jsonrpc":"2.0"} x"#, fault(NotJson));
    // A page may quote anything; it is no node's word on a transaction.
    check(200, "<p>execution reverted, nonce too low, missing trie node</p>", fault(NotJson));
}

#[test]
fn a_status_speaks_where_an_error_says_nothing() {
    let check = |status, expect| {
        let reply = Reply { status: Some(status), ..error("eth_call", -32000, "what is this") };
        assert_eq!(verdict(&reply), expect, "{status}");
    };
    check(200, Verdict::Unclassified);
    check(400, Verdict::Unclassified);
    check(404, Verdict::Unclassified);
    check(500, Verdict::Unclassified);
    check(429, LIMITED);
    check(401, Verdict::Fault(FaultKind::Auth));
    check(402, Verdict::Fault(FaultKind::Billing));
    check(502, Verdict::Fault(FaultKind::Server));
    check(504, Verdict::Fault(FaultKind::Timeout));
}

#[test]
fn a_method_that_is_not_served_is_unsupported() {
    let check = |code, message, data| {
        assert_eq!(verdict(&error_with("eth_foo", code, message, data)), Verdict::Unsupported, "{message}");
    };
    check(-32601, "Method not found", Some(r#""The method eth_foo does not exist / is not available.""#));
    check(-32601, "the method eth_foo does not exist/is not available", None);
    check(-32601, "", None);
    check(
        -32004,
        "Method eth_foo is not supported",
        Some(r#"{"message":"Method eth_foo is not supported"}"#),
    );
    check(-32600, "Unsupported method: eth_foo on ETH_MAINNET", None);
    check(-32001, "rpc method is not whitelisted", None);
}
