//! Whatever an endpoint sends: no panic, bounded work, bounded text.

use std::time::{Duration, Instant};

use alloy_primitives::hex;
use alloy_sol_types::{Panic, Revert as ErrorString, SolError};
use proptest::prelude::*;

use super::*;
use crate::failure::Revert;

#[test]
fn a_huge_or_deep_reply_takes_no_time() {
    let started = Instant::now();
    let long = "execution reverted: é".repeat(500_000);
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!("{}\"0x82b42900\"{}", r#"{"data":"#.repeat(100), "}".repeat(100));
    let hex = format!("\"0x{}\"", "ab".repeat(1_000_000));
    let wide = format!("{{{}}}", (0..50_000).map(|i| format!("\"k{i}\":{{}}")).collect::<Vec<_>>().join(","));
    for data in [&deep, &nested, &hex, &wide] {
        for message in ["execution reverted", &long, "what is this"] {
            let reply = error_with("eth_call", -32000, message, Some(data));
            if let Verdict::Reverted(revert) = verdict(&reply) {
                assert!(revert.describe().chars().count() <= 400);
                assert!(revert.message.len() <= 4096);
            }
        }
    }
    verdict(&text(200, &long));
    verdict(&text(200, &deep));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,40}".prop_map(Into::into),
        "(0x|Reverted 0x|0x08c379a0)[0-9a-fA-F]{0,200}".prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let key = prop_oneof![
            "data|result|originalError|error|message|rate|backoff_seconds|from|to|return|cause",
            ".{0,8}",
            "0x[0-9a-f]{64}"
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Whatever a node may write: words of the table, in any mixture with anything.
fn message() -> impl Strategy<Value = String> {
    let words: Vec<_> = entries().flat_map(|entry| entry.contains).copied().collect();
    let piece = prop_oneof![
        prop::sample::select(words).prop_map(str::to_owned),
        ".{0,60}",
        "custom error 0x[0-9a-f]{0,16}: [0-9a-f]{0,200}(…|\\.\\.\\.)?",
        "(range|try again in|earliest available is|requested was|got|expected) ?\\[?[0-9a-fx,. -]{0,40}",
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.join(" "))
}

proptest! {
    #[test]
    fn nothing_that_an_endpoint_sends_is_fatal(
        message in message(),
        data in json(),
        raw in ".{0,200}",
        code in prop_oneof![any::<i64>(), -32_100..-31_999_i64, Just(3)],
        status in prop::option::of(prop_oneof![any::<u16>(), 100..600_u16]),
        method in "eth_(call|getLogs|estimateGas|sendRawTransaction)|.{0,20}",
        seconds in prop::option::of(any::<u64>()),
    ) {
        let classifier = Classifier::default();
        let data = data.to_string();
        let retry_after = seconds.map(Duration::from_secs);
        for content in [
            Content::Error(RpcError { code, message: &message, data: None }),
            Content::Error(RpcError { code, message: &message, data: Some(&data) }),
            Content::Error(RpcError { code, message: &raw, data: Some(&raw) }),
            Content::Text(&message),
            Content::Text(&raw),
            Content::Result(&data),
            Content::Result(&raw),
        ] {
            let reply = Reply { method: &method, status, retry_after, content };
            let verdict = classifier.classify(&reply);
            classifier.explain(&reply);
            // The same reply, the same verdict.
            prop_assert_eq!(&verdict, &classifier.classify(&reply));
            match verdict {
                Verdict::Reverted(revert) => {
                    let text = revert.describe();
                    prop_assert!(text.chars().count() <= 400 && !text.contains('\n'), "{}", text);
                }
                Verdict::RangeTooLarge { hint: Some((first, last)) } => prop_assert!(first <= last),
                Verdict::RateLimited { after: Some(after) } => prop_assert!(after <= Duration::from_secs(86_400)),
                _ => {}
            }
        }
    }

    #[test]
    fn any_bytes_can_be_described(data in prop::collection::vec(any::<u8>(), 0..300), message in message()) {
        for head in [&[][..], &ErrorString::SELECTOR, &Panic::SELECTOR, &[0xfb, 0x8f, 0x41, 0xb2]] {
            let revert = Revert { data: [head, &data].concat().into(), message: message.clone() };
            prop_assert!(revert.describe().chars().count() <= 400);
            revert.reason();
        }
    }

    #[test]
    fn bytes_come_back_from_wherever_they_were_put(bytes in prop::collection::vec(any::<u8>(), 4..100)) {
        let hex = hex::encode_prefixed(&bytes);
        for data in [
            format!("\"{hex}\""),
            format!("\"Reverted {hex}\""),
            format!(r#"{{"message":"x","data":{{"originalError":{{"data":"{hex}"}}}}}}"#),
            format!(r#"{{"data":"0x","result":"{hex}"}}"#),
        ] {
            let error = RpcError { code: 3, message: "execution reverted", data: Some(&data) };
            prop_assert_eq!(&Revert::from_error(&error).data[..], &bytes[..], "{}", data);
        }
    }
}
