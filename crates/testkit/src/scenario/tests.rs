use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{Action, Call, RpcError, record::Log};

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let error = Scenario::from_toml(text).expect_err("it is wrong").to_string();
    for part in expected {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
}

/// A file of one endpoint `A` with these rules.
fn of_a(rules: &[&str]) -> String {
    let rule = |rule: &&str| format!("[[endpoints.script]]\n{rule}\n");
    format!("[[endpoints]]\nname = \"A\"\n{}", rules.iter().map(rule).collect::<String>())
}

const CALL: &str = "method = \"eth_call\"\nrespond = { result = \"0x\" }";

#[test]
fn what_is_wrong_with_a_rule_is_named_by_its_endpoint_and_number() {
    let check = |rule: &str, expected: &[&str]| {
        let place = ["the scenario, endpoint `A`, rule 2: "];
        refused(&of_a(&["method = \"web3_clientVersion\"\nrespond = { pass = true }", rule]), &place);
        refused(&of_a(&["method = \"web3_clientVersion\"\nrespond = { pass = true }", rule]), expected);
    };
    let call = |rest: &str| format!("{CALL}\n{rest}");
    let responds = |respond: &str| format!("method = \"eth_call\"\nrespond = {{ {respond} }}");
    check("respond = { hang = true }", &["missing field `method`"]);
    check("method = \"eth_call\"", &["missing field `respond`"]);
    check("method = 7\nrespond = { hang = true }", &["`method`", "\"*\""]);
    check("method = []\nrespond = { hang = true }", &["`method` is empty"]);
    check("method = \" \"\nrespond = { hang = true }", &["`method` is empty"]);
    check(&call("metod = \"eth_call\""), &["unknown field `metod`", "`method`"]);
    check(&call("times = 0"), &["`times` is 0", "leave it out"]);
    check(&call("every = 0"), &["`every` is 0"]);
    check(&call("times = -1"), &["-1"]);
    check(&call("before_ms = 0"), &["`before_ms`", "no moment"]);
    check(&call("before_ms = 5\nafter_ms = 5"), &["`before_ms`", "`after_ms`"]);
    check(&call("match = {}"), &["`match` is empty", "leave it out"]);
    check(&call("match = \"all\""), &["`match` is neither conditions nor \"*\""]);
    check(&call("match = { block_le = 5 }"), &["`match`", "unknown field `block_le`", "`block_lt`"]);
    check(&call("match = { block = \"5\" }"), &["`match`", "\"5\"", "\"0x10\""]);
    check(&call("match = { block_lt = 0 }"), &["nothing is below 0"]);
    check(&call("match = { to = \"0x22\" }"), &["`match`"]);
    check(&call("match = { data_prefix = \"0x\" }"), &["`data_prefix` has no bytes"]);
    check(&call("match = { contains = \"\" }"), &["`contains` is empty"]);
    check(&responds(""), &["`respond` says nothing", "`result`", "`hang`"]);
    check(&responds("delay_ms = 5"), &["`respond` says nothing"]);
    check(&responds("hang = true, reset = true"), &["more than one of"]);
    check(&responds("result = 1, error = { code = 1, message = \"\" }"), &["more than one of"]);
    check(&responds("hang = false"), &["`false` means nothing here"]);
    check(&responds("hangs = true"), &["unknown field `hangs`"]);
    check(&responds("error = { code = 1 }"), &["missing field `message`"]);
    check(&responds("error = { code = 1, message = \"no\", dta = 1 }"), &["unknown field `dta`"]);
    check(&responds("result = 1, status = 400"), &["`status` stands beside `error`"]);
    check(&responds("http = { status = 42 }"), &["`status` is 42", "from 200"]);
    check(&responds("error = { code = 1, message = \"no\" }, status = 100"), &["`status` is 100"]);
}

#[test]
fn what_is_wrong_with_a_file_is_named() {
    refused("", &["the scenario: missing field `endpoints`"]);
    refused("endpoints = []", &["`endpoints` is empty"]);
    refused("endpoints = 7", &["invalid type"]);
    refused("[[endpoints]\nname = 1", &["line 1"]);
    refused("[[endpoint]]\nname = \"A\"", &["unknown field `endpoint`", "`endpoints`"]);
    refused("[[endpoints]]\nscript = []", &["endpoint 1: missing field `name`"]);
    refused("[[endpoints]]\nname = \" \"", &["endpoint 1: `name` is empty"]);
    refused("[[endpoints]]\nname = \"A\"\n[[endpoints]]\nname = \"A\"", &["endpoint 2", "named `A`"]);
    refused("[[endpoints]]\nname = \"A\"\nhead = 7", &["endpoint 1: unknown field `head`"]);
    let error = Scenario::from_json("{").expect_err("it is no JSON").to_string();
    assert!(error.contains("line 1"), "{error}");
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().expect("there is room for a directory");
    let error =
        Scenario::read(folder.path().join("none.toml")).expect_err("there is no such file").to_string();
    assert!(error.contains("none.toml: "), "{error}");
    for (name, text) in [("a.toml", "endpoints = []"), ("a.json", r#"{"endpoints":[]}"#)] {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("the directory takes files");
        let error = Scenario::read(&path).expect_err("it is empty").to_string();
        assert_eq!(error, format!("{}: `endpoints` is empty; name at least one", path.display()));
    }
}

#[test]
fn a_rule_that_no_request_reaches_is_refused() {
    let any = "method = \"*\"\nrespond = { hang = true }";
    let latest = format!("{CALL}\nmatch = {{ tag = \"latest\" }}");
    let both = "method = [\"eth_call\", \"eth_getCode\"]\nrespond = { hang = true }";
    let narrower = format!("{CALL}\nmatch = {{ tag = \"latest\", to = \"0x{}\" }}", "22".repeat(20));
    for (earlier, later) in [
        (any, CALL),
        (any, any),
        ("method = [\"eth_call\", \"*\"]\nrespond = { hang = true }", CALL),
        (both, CALL),
        (CALL, latest.as_str()),
        (latest.as_str(), narrower.as_str()),
        (CALL, &format!("{CALL}\nafter_ms = 5")),
        (&format!("{CALL}\nafter_ms = 5"), &format!("{CALL}\nafter_ms = 6")),
        (CALL, &format!("{CALL}\nmatch = \"*\"\ntimes = 3")),
    ] {
        let reason =
            ["endpoint `A`, rule 3: no request reaches it: rule 2 takes them all", "`match` or `times`"];
        refused(&of_a(&["method = \"a\"\nrespond = { pass = true }", earlier, later]), &reason);
    }
    for (earlier, later) in [
        (CALL, any),
        (CALL, both),
        (latest.as_str(), CALL),
        (narrower.as_str(), latest.as_str()),
        (&format!("{CALL}\ntimes = 1"), CALL),
        (&format!("{CALL}\nskip = 1"), CALL),
        (&format!("{CALL}\nevery = 2"), CALL),
        (&format!("{CALL}\nbefore_ms = 5"), CALL),
        (&format!("{CALL}\nafter_ms = 5"), CALL),
    ] {
        Scenario::from_toml(&of_a(&[earlier, later])).expect("both are reached");
    }
    // A rule of one endpoint hides none of another's.
    let two = format!("{}{}", of_a(&[any]), of_a(&[CALL]).replace("\"A\"", "\"B\""));
    Scenario::from_toml(&two).expect("they are others");
}

fn call(method: &str, params: Value) -> Call {
    let started = std::time::Instant::now();
    let entry = Log::new(started).enter("A", method, params, started + Duration::from_millis(50));
    entry.call().clone()
}

/// Whether the only rule of a file takes a request.
fn takes(rule: &str, method: &str, params: Value) -> bool {
    let scenario = Scenario::from_toml(&of_a(&[rule])).expect("it is right");
    scenario.program("A").rules[0].takes(&call(method, params))
}

#[test]
fn conditions_are_held_against_the_request() {
    let to = format!("0x{}", "22".repeat(20));
    let hash = format!("0x{}", "ab".repeat(32));
    let read = |block: Value| json!([{ "to": to, "input": "0xdeadbeef01" }, block]);
    let check = |condition: &str, params: Value, expected: bool| {
        let rule = format!("{CALL}\nmatch = {{ {condition} }}");
        assert_eq!(takes(&rule, "eth_call", params.clone()), expected, "{condition} {params}");
    };
    check(&format!("to = \"{to}\""), read(json!("latest")), true);
    check(&format!("to = \"0x{}\"", "33".repeat(20)), read(json!("latest")), false);
    check("data_prefix = \"0xdeadbeef\"", read(json!("latest")), true);
    check("data_prefix = \"0xdeadbeef02\"", read(json!("latest")), false);
    check("tag = \"latest\"", read(json!("latest")), true);
    check("tag = \"latest\"", read(json!("pending")), false);
    check("block = 16", read(json!("0x10")), true);
    check("block = \"0x11\"", read(json!("0x10")), false);
    check("block_lt = 17", read(json!("0x10")), true);
    check("block_lt = 16", read(json!("0x10")), false);
    check("block_lt = 16", read(json!("latest")), false);
    check("block_gt = 15", read(json!({ "blockNumber": "0x10" })), true);
    check("block_gt = 16", read(json!("0x10")), false);
    check(&format!("blockHash = \"{hash}\""), read(json!({ "blockHash": hash })), true);
    check(&format!("hash = \"{hash}\""), read(json!("latest")), false);
    check("contains = \"DEADBEEF\"", read(json!("latest")), true);
    check("tag = \"latest\", block = 16", read(json!("0x10")), false);

    let logs = |from: &str, to: &str| json!([{ "fromBlock": from, "toBlock": to }]);
    let wide = "method = \"eth_getLogs\"\nmatch = { span_gt = 10 }\nrespond = { result = [] }";
    assert!(takes(wide, "eth_getLogs", logs("0x1", "0xb")));
    assert!(!takes(wide, "eth_getLogs", logs("0x1", "0xa")));
    assert!(!takes(wide, "eth_getLogs", logs("0x1", "latest")));
}

#[test]
fn transactions_are_known_by_nonce_and_type() {
    // A signed legacy transaction with nonce 9: the example of EIP-155.
    let raw = "0xf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83";
    let check = |condition: &str, expected: bool| {
        let rule = format!("method = \"*\"\nmatch = {{ {condition} }}\nrespond = {{ hang = true }}");
        assert_eq!(takes(&rule, "eth_sendRawTransaction", json!([raw])), expected, "{condition}");
        assert!(!takes(&rule, "eth_call", json!([{}, "latest"])), "{condition}");
    };
    check("tx_nonce = 9", true);
    check("tx_nonce = 8", false);
    check("tx_nonce_lt = 10", true);
    check("tx_nonce_lt = 9", false);
    check("tx_type = 0", true);
    check("tx_type = 2", false);
}

#[test]
fn the_time_and_the_count_of_a_request_matter() {
    // The requests of these tests arrive after 50 ms.
    let check = |rest: &str, expected: bool| {
        assert_eq!(takes(&format!("{CALL}\n{rest}"), "eth_call", json!([])), expected, "{rest}");
    };
    check("after_ms = 50", true);
    check("after_ms = 51", false);
    check("before_ms = 51", true);
    check("before_ms = 50", false);

    let counted = format!("{CALL}\nskip = 1\nevery = 2\ntimes = 1");
    let program = Scenario::from_toml(&of_a(&[&counted])).expect("it is right").program("A");
    let taken: Vec<bool> = (0..6).map(|_| program.rules[0].takes(&call("eth_call", json!([])))).collect();
    assert_eq!(taken, [false, false, true, false, false, false]);
}

#[test]
fn what_happens_is_what_the_file_says() {
    let check = |respond: &str, expected: Action| {
        let text = of_a(&[&format!("method = \"eth_call\"\nrespond = {{ {respond} }}")]);
        let program = Scenario::from_toml(&text).expect("it is right").program("A");
        assert_eq!(format!("{:?}", program.rules[0].action), format!("{expected:?}"), "{respond}");
    };
    let no = || RpcError::new(-5, "no");
    check("result = { a = [1] }", Action::RpcResult(json!({ "a": [1] })));
    check("null = true", Action::RpcResult(Value::Null));
    check("error = { code = -5, message = \"no\" }", Action::RpcError(no()));
    let with_data = no().with_data(json!("0x01"));
    check("error = { code = -5, message = \"no\", data = \"0x01\" }", Action::RpcError(with_data));
    check("error = { code = -5, message = \"no\" }, status = 400", Action::RpcErrorUnder(400, no()));
    check(
        "http = { status = 429, content_type = \"text/plain\", headers = { retry-after = \"1\" }, body = \"no\" }",
        Action::Http {
            status: 429,
            headers: vec![("content-type".into(), "text/plain".into()), ("retry-after".into(), "1".into())],
            body: b"no".to_vec(),
        },
    );
    check("hang = true", Action::Hang);
    check("reset = true", Action::Reset);
    check("drop = true", Action::DropBefore);
    check("lose_reply = true", Action::LoseReply);
    check("cut_reply = true", Action::CutReply);
    check("pass = true, delay_ms = 5", Action::Pass);
}

#[test]
fn json_has_null_and_the_same_keys() {
    let text = r#"{ "endpoints": [
        { "name": "A", "script": [
            { "method": ["eth_call"], "match": "*", "respond": { "result": null, "delay_ms": 7 }, "name": "nothing" }
        ] },
        { "name": "B", "script": [] }
    ] }"#;
    let scenario = Scenario::from_json(text).expect("it is right");
    assert_eq!(scenario.endpoints().collect::<Vec<_>>(), ["A", "B"]);
    let rule = &scenario.program("A").rules[0];
    assert_eq!(rule.label(), "nothing");
    assert_eq!(rule.delay, Duration::from_millis(7));
    assert!(matches!(rule.action, Action::RpcResult(Value::Null)));
    assert!(scenario.program("B").rules.is_empty());
}

#[test]
fn rules_without_a_name_are_numbered() {
    let scenario = Scenario::from_toml(&of_a(&[CALL, "method = [\"a\", \"*\"]\nrespond = { hang = true }"]));
    let program = scenario.expect("it is right").program("A");
    let labels: Vec<&str> = program.rules.iter().map(crate::Rule::label).collect();
    assert_eq!(labels, ["A rule 1: eth_call", "A rule 2: a|*"]);
}

#[test]
#[should_panic(expected = "no endpoint named B")]
fn an_endpoint_that_is_not_in_the_file_is_a_mistake_of_the_test() {
    let _ = Scenario::from_toml(&of_a(&[CALL])).expect("it is right").program("B");
}

#[test]
fn the_example_in_the_docs_can_be_read() {
    let docs = include_str!("../scenario.rs");
    let example = docs.split("/// ```toml\n").nth(1).and_then(|rest| rest.split("/// ```").next());
    let text: String = example
        .expect("there is one")
        .lines()
        .map(|line| format!("{}\n", line.trim_start_matches("///")))
        .collect();
    let scenario = Scenario::from_toml(&text).expect("it is right");
    assert_eq!(scenario.program("A").rules.len(), 2);
}
