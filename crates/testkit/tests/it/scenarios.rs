//! Rules from a file, over sockets.

use std::time::Duration;

use backstay_testkit::{Fleet, Scenario};
use serde_json::json;

use crate::client::{Got, ask, chain, result};

const TEXT: &str = r#"
[[endpoints]]
name = "A"

[[endpoints.script]]
method = "eth_chainId"
times = 1
respond = { http = { status = 429, headers = { retry-after = "1" }, body = "slow down" } }

[[endpoints.script]]
method = "eth_getBlockByNumber"
match = { block_gt = 3 }
respond = { null = true, delay_ms = 200 }

[[endpoints]]
name = "B"
"#;

#[tokio::test]
async fn a_file_scripts_a_fleet() {
    let chain = chain().await;
    let scenario = Scenario::from_toml(TEXT).expect("it is right");
    let mut fleet = Fleet::builder();
    for name in scenario.endpoints() {
        fleet = fleet.endpoint(name, chain.url(), scenario.program(name));
    }
    let fleet = fleet.start().await.expect("the fleet starts");
    let a = fleet.url("A");
    let Got::Answer { status, head, body } = ask(&a, "eth_chainId", json!([])).await else {
        panic!("no answer")
    };
    assert_eq!((status, body.as_str()), (429, "slow down"));
    assert!(head.contains("retry-after: 1"), "{head}");
    assert_eq!(result(&a, "eth_chainId", json!([])).await, "0x7a69");
    chain.mine(5).await.expect("anvil mines");
    assert!(result(&a, "eth_getBlockByNumber", json!(["0x3", false])).await.is_object());
    let begun = tokio::time::Instant::now();
    assert!(result(&a, "eth_getBlockByNumber", json!(["0x4", false])).await.is_null());
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
    assert!(result(&fleet.url("B"), "eth_getBlockByNumber", json!(["0x4", false])).await.is_object());
    let rules: Vec<_> = fleet.records().into_iter().map(|call| (call.rule, call.fault)).collect();
    let by = |rule: &str| (Some(rule.to_owned()), true);
    assert_eq!(
        rules,
        [
            by("A rule 1: eth_chainId"),
            (None, false),
            (None, false),
            by("A rule 2: eth_getBlockByNumber"),
            (None, false),
        ]
    );
}
