//! Revert bytes: where they are and what they say.

use alloy_primitives::{Bytes, U256, address, hex};
use alloy_sol_types::{Panic, Revert as ErrorString, SolError, sol};

use super::*;
use crate::failure::Revert;

#[test]
fn a_contract_cannot_choose_another_verdict() {
    for reason in
        ["nonce too low", "rate limit exceeded", "missing trie node", "already known", "header not found"]
    {
        let data = format!("\"{}\"", hex::encode_prefixed(ErrorString::from(reason).abi_encode()));
        for message in [
            format!("execution reverted: {reason}"),
            format!("VM Exception while processing transaction: reverted with reason string '{reason}'"),
            format!("VM Exception while processing transaction: revert {reason}"),
        ] {
            for (code, data) in [(3, Some(&*data)), (-32000, Some(&*data)), (-32000, None)] {
                let Verdict::Reverted(revert) = verdict(&error_with("eth_call", code, &message, data)) else {
                    panic!("{message} is no revert");
                };
                assert_eq!(revert.reason().as_deref(), Some(reason), "{message}");
            }
        }
    }
}

#[test]
fn revert_bytes_are_found_wherever_they_are() {
    let selector = "0x82b42900";
    let check = |code, message: &str, data: Option<&str>, expect: &str| {
        let Verdict::Reverted(revert) = verdict(&error_with("eth_call", code, message, data)) else {
            panic!("{message} {data:?} is no revert");
        };
        assert_eq!(revert.data.to_string(), expect, "{message} {data:?}");
    };
    let hash = format!("0x{}", "ab".repeat(32));
    let keyed =
        format!(r#"{{"{hash}":{{"error":"revert","program_counter":9,"return":"{selector}"}},"stack":"x"}}"#);
    let sent = format!(r#"{{"message":"x","txHash":"{hash}","data":"{selector}"}}"#);
    let vm = "VM Exception while processing transaction: revert";
    check(3, "execution reverted", Some(&format!("\"{selector}\"")), selector);
    check(-32000, "execution reverted", Some(r#"{"data":"0x82b42900"}"#), selector);
    check(-32000, "execution reverted", Some(r#"{"data":{"data":"0x82b42900"}}"#), selector);
    check(
        -32603,
        "Internal JSON-RPC error.",
        Some(r#"{"code":3,"message":"execution reverted","data":"0x82b42900"}"#),
        selector,
    );
    check(-32603, "Internal error", Some(r#"{"originalError":{"code":3,"data":"0x82b42900"}}"#), selector);
    check(
        -32000,
        vm,
        Some(r#"{"hash":null,"programCounter":1,"result":"0x82b42900","message":"revert"}"#),
        selector,
    );
    check(-32000, vm, Some(&keyed), selector);
    check(3, vm, Some(&sent), selector);
    check(-32015, "VM execution error.", Some(r#""Reverted 0x82b42900""#), selector);
    check(-32015, "VM execution error.", Some(r#""Reverted 0x""#), "0x");
    check(-32015, "Reverted 0x82b42900", None, selector);
    check(-32000, "execution reverted: 0x82b42900", None, selector);
    check(
        3,
        "VM Exception while processing transaction: reverted with an unrecognized custom error (return data: 0x82b42900)",
        None,
        selector,
    );
    let words = "00".repeat(32);
    check(
        3,
        &format!("execution reverted: custom error 0x82b42900: {words}"),
        None,
        &format!("{selector}{words}"),
    );
    check(3, &format!("execution reverted: custom error 0x82b42900: {words}…"), None, selector);
    check(3, "execution reverted: custom error 0x82b42900", Some(r#""0x""#), selector);
    check(3, "execution reverted: custom error 0x82b4", None, "0x");
    // A hash or an address in a message is no revert data.
    check(3, "execution reverted at 0x1111111111111111111111111111111111111111", None, "0x");
    check(3, "execution reverted", Some(r#""0xzz""#), "0x");
    check(3, "execution reverted", Some(r#""0x123""#), "0x");
    check(3, "execution reverted", Some("{not json"), "0x");
}

#[test]
fn a_revert_in_answer_to_a_send_is_told_as_one() {
    let data = r#"{"message":"x","txHash":"0x5a50c00d","data":"0x82b42900"}"#;
    let message = "VM Exception while processing transaction: reverted with an unrecognized custom error";
    let Verdict::Reverted(revert) = verdict(&error_with("eth_sendRawTransaction", 3, message, Some(data)))
    else {
        panic!("it is no revert");
    };
    assert_eq!(revert.selector(), Some([0x82, 0xb4, 0x29, 0x00]));
}

#[test]
fn an_error_returned_as_a_result_of_eth_call_is_a_revert() {
    let encoded = ErrorString::from("Solutions closed").abi_encode();
    let check = |method, bytes: &[u8], reverted| {
        let raw = format!("\"{}\"", hex::encode_prefixed(bytes));
        let reply = Reply { method, status: Some(200), retry_after: None, content: Content::Result(&raw) };
        assert_eq!(matches!(verdict(&reply), Verdict::Reverted(_)), reverted, "{method} {raw}");
    };
    check("eth_call", &encoded, true);
    check("eth_getCode", &encoded, false);
    check("eth_call", &encoded[4..], false);
    check("eth_call", &[&encoded[..], &[0; 32]].concat(), false);
    check("eth_call", &encoded[..encoded.len() - 1], false);
    // A function that returns bytes4(0x08c379a0): padded to a word.
    check("eth_call", &[&encoded[..4], &[0; 28]].concat(), false);
    let mut unclean = encoded;
    *unclean.last_mut().expect("it is not empty") = 1;
    check("eth_call", &unclean, false);
}

#[test]
fn a_result_is_an_answer() {
    for raw in ["null", "\"0x\"", "\"0x5\"", "{}", "[]", "", "\"", "\"0x08c379a0", "\"0x08c379aé\""] {
        let reply =
            Reply { method: "eth_call", status: None, retry_after: None, content: Content::Result(raw) };
        assert_eq!(verdict(&reply), Verdict::Answer, "{raw}");
    }
}

#[test]
fn reasons_are_read_in_every_dialect() {
    let check = |message: &str, expect: Option<&str>| {
        let revert = Revert { data: Bytes::new(), message: message.to_owned() };
        assert_eq!(revert.reason().as_deref(), expect, "{message}");
    };
    check("execution reverted: nope", Some("nope"));
    check("execution reverted: Dai/insufficient-allowance", Some("Dai/insufficient-allowance"));
    check(
        "VM Exception while processing transaction: reverted with reason string 'it's no'",
        Some("it's no"),
    );
    check("VM Exception while processing transaction: revert nope", Some("nope"));
    check("Reverted ERC721: invalid token", Some("ERC721: invalid token"));
    check("err: execution reverted: nope (supplied gas 50000000)", Some("nope"));
    check("execution reverted", None);
    check("execution reverted: ", None);
    check("execution reverted: revert", None);
    check("execution reverted (unknown custom error)", None);
    check("execution reverted: custom error 0x5a50c00d: 00", None);
    check("execution reverted: panic: division or modulo by zero (0x12)", None);
    check("VM Exception while processing transaction: reverted with panic code 0x12 (x)", None);
    check("VM Exception while processing transaction: reverted with custom error 'A(1)'", None);
    check("Transaction reverted without a reason string", None);
    check("VM Exception while processing transaction: revert", None);
    check("", None);
}

sol! {
    error TooLowAllowance(address token, uint256 allowance, uint256 needed);
    error ERC20InsufficientAllowance(address spender, uint256 allowance, uint256 needed);
}

#[test]
fn errors_are_described() {
    let check = |data: Vec<u8>, message: &str, expect: &str| {
        let revert = Revert { data: data.into(), message: message.to_owned() };
        assert_eq!(revert.describe(), expect);
    };
    let spender = address!("1111111111111111111111111111111111111111");
    check(ErrorString::from("nope").abi_encode(), "execution reverted", "nope");
    check(
        Panic { code: U256::from(0x12) }.abi_encode(),
        "execution reverted",
        "panic: division or modulo by zero (0x12)",
    );
    let low = ERC20InsufficientAllowance { spender, allowance: U256::ZERO, needed: U256::from(5) };
    check(
        low.abi_encode(),
        "execution reverted",
        "ERC20InsufficientAllowance(spender: 0x1111111111111111111111111111111111111111, allowance: 0, needed: 5)",
    );
    check(
        low.abi_encode()[..40].to_vec(),
        "",
        &format!("custom error 0xfb8f41b2 with 36 bytes: {}", hex::encode_prefixed(&low.abi_encode()[4..40])),
    );
    check(vec![0x82, 0xb4, 0x29, 0x00], "execution reverted", "custom error 0x82b42900");
    check(vec![0x82], "execution reverted", "unknown revert data 0x82");
    check(vec![], "execution reverted", "no reason given");
    check(vec![], "Reverted ERC721: invalid token", "ERC721: invalid token");
    check(
        vec![],
        "… reverted with custom error 'TooLowAllowance(\"0x11\", 0, 1)'",
        "TooLowAllowance(\"0x11\", 0, 1)",
    );
    check(ErrorString::from("a\nb\x1b[31m").abi_encode(), "", "a b [31m");
}

#[test]
fn an_error_of_the_callers_own_is_decoded() {
    let error = TooLowAllowance {
        token: address!("1111111111111111111111111111111111111111"),
        allowance: U256::from(0),
        needed: U256::from(5),
    };
    let data = format!(r#"{{"data":"{}"}}"#, hex::encode_prefixed(error.abi_encode()));
    let rpc =
        RpcError { code: -32000, message: "execution reverted (unknown custom error)", data: Some(&data) };
    let revert = Revert::from_error(&rpc);
    assert_eq!(revert.selector(), Some(TooLowAllowance::SELECTOR));
    assert_eq!(revert.decode::<TooLowAllowance>().map(|error| error.needed), Some(U256::from(5)));
    assert!(revert.decode::<ERC20InsufficientAllowance>().is_none());
    assert_eq!(revert.reason(), None);
}
