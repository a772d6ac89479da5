//! What a reader of the incidents would think of next: the same kind of fault in other words, at other methods, in
//! batches, at two endpoints at once, and a while after connecting.

use std::time::Duration;

use backstay::{
    Client, ErrorKind,
    alloy::{
        network::Ethereum,
        primitives::{Address, B256, Bytes, U256},
        providers::Provider,
        rpc::client::BatchRequest,
        signers::local::PrivateKeySigner,
        transports::TransportError,
    },
};
use backstay_testkit::{Action, Fleet, Program, Reply, RpcError, Rule};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    paper::{Paper, word},
    setup::{TARGET, asked, distinct, reader, reader_with, scripted, signed, unblamed},
    stage::{ATTEMPT, SOON, Stage, block_number, config, eventually, ours, status, within},
};

const SEND: &str = "eth_sendRawTransaction";

/// Any method, with any parameters.
async fn ask(client: &Client, method: &'static str, params: Value) -> Result<Value, TransportError> {
    within(client.provider::<Ethereum>().raw_request(method.into(), params)).await
}

fn counts<const N: usize>(fleet: &Fleet, names: [&str; N], method: &str) -> [u64; N] {
    names.map(|name| fleet.count(name, method))
}

/// The reads that a dapp makes most, at the head.
fn reads() -> [(&'static str, Value); 4] {
    let call = json!({"to": TARGET, "input": "0xdeadbeef"});
    [
        ("eth_call", json!([call, "latest"])),
        ("eth_estimateGas", json!([call])),
        ("eth_getStorageAt", json!([TARGET, "0x0", "latest"])),
        ("eth_gasPrice", json!([])),
    ]
}

#[tokio::test]
async fn b01_two_endpoints_that_stand_still_do_not_outvote_one_that_moves() {
    for order in [["A", "B", "C"], ["C", "A", "B"], ["A", "C", "B"]] {
        let (still, moving) = (Paper::at(0x64), Paper::at(0x1f4));
        let view = |name: &str| if name == "C" { moving.node() } else { still.node() };
        let fleet = scripted(order.map(|name| (name, view(name)))).await;
        let client = reader(&fleet).await;
        moving.move_to(0x1f5);
        eventually("C's new block is seen", async || {
            within(block_number(&client)).await.expect("C answers") == 0x1f5
        })
        .await;
        assert_eq!(counts(&fleet, ["A", "B"], "eth_blockNumber"), [0, 0], "{order:?}");
    }
}

#[tokio::test]
async fn b01_an_endpoint_that_stops_long_after_connecting_is_left() {
    let (stops, moving) = (Paper::at(0x64), Paper::at(0x64));
    let fleet = scripted([("A", stops.node()), ("B", moving.node())]).await;
    let client = reader(&fleet).await;
    assert_eq!(within(block_number(&client)).await.expect("A answers"), 0x64);
    assert_eq!(counts(&fleet, ["A", "B"], "eth_blockNumber"), [1, 0]);
    moving.move_to(0x100);
    eventually("A is left", async || status(&client, "A").excluded.is_some()).await;
    assert_eq!(within(block_number(&client)).await.expect("B answers"), 0x100);
    unblamed(&client, "B");
}

#[tokio::test]
async fn b02_two_endpoints_that_hang_cost_one_attempt_of_connecting_and_not_two() {
    let node = Paper::at(0x64);
    let hangs = || Program::from(Rule::any().then(Action::Hang));
    let fleet = scripted([("A", hangs()), ("B", hangs()), ("C", node.node())]).await;
    let begun = Instant::now();
    let client = within(Client::builder(config(&fleet.urls())).connect()).await.expect("C is enough");
    assert_eq!(within(block_number(&client)).await.expect("C answers"), 0x64);
    let took = begun.elapsed();
    assert!(took < 3 * ATTEMPT, "one attempt takes {ATTEMPT:?}, all of it {took:?}");
    assert_eq!(counts(&fleet, ["A", "B", "C"], "eth_blockNumber"), [0, 0, 1]);
}

#[tokio::test]
async fn b02_an_endpoint_that_begins_to_hang_costs_one_attempt_and_later_reads_nothing() {
    for (method, params) in reads() {
        let node = Paper::at(0x64);
        let answers = || Rule::on(method).then(Action::RpcResult(json!(word(7))));
        let fleet = scripted([("A", node.behind(answers())), ("B", node.behind(answers()))]).await;
        let client = reader(&fleet).await;
        fleet.endpoint("A").set(Rule::any().then(Action::Hang));
        for _ in 0..5 {
            assert_eq!(ask(&client, method, params.clone()).await.expect("B answers"), json!(word(7)));
        }
        let [a, b] = counts(&fleet, ["A", "B"], method);
        assert!(a <= 1 && b == 5, "{method}: {a} at A, {b} at B");
    }
}

#[tokio::test]
async fn b04_a_revert_is_final_under_any_code_and_for_any_method() {
    let reverts = [
        RpcError::new(3, "execution reverted"),
        RpcError::new(3, "execution reverted").with_data(json!("0x")),
        RpcError::new(-32_000, "execution reverted"),
        RpcError::new(-32_000, "execution reverted: ERC20: transfer amount exceeds balance"),
        RpcError::new(-32_015, "VM execution error.").with_data(json!("Reverted 0x")),
        RpcError::new(-32_603, "VM Exception while processing transaction: reverted with panic code 0x11"),
        RpcError::new(-32_000, "VM Exception while processing transaction: revert"),
    ];
    for revert in reverts {
        for (method, params) in reads().into_iter().take(2) {
            let node = Paper::at(0x64);
            let fails = Rule::on(method).then(Action::RpcError(revert.clone()));
            let fleet = scripted([("A", node.behind(fails)), ("B", node.node())]).await;
            let client = reader(&fleet).await;
            let error = ask(&client, method, params).await.expect_err("it reverts");
            let said = error.as_error_resp().expect("it is the node's own error");
            assert_eq!((said.code, said.message.as_ref()), (revert.code, revert.message.as_str()));
            assert_eq!(counts(&fleet, ["A", "B"], method), [1, 0], "{method}: {revert:?}");
            unblamed(&client, "A");
        }
    }
}

#[tokio::test]
async fn b05_what_a_node_says_against_a_transaction_is_never_held_against_the_node() {
    for (code, words) in [
        (-32_000, "insufficient funds for gas * price + value: balance 0, tx cost 21000, overshot 21000"),
        (-32_603, "insufficient funds for gas * price + value"),
        (-32_000, "replacement transaction underpriced"),
        (-32_000, "intrinsic gas too low: have 20000, want 21000"),
        (-32_603, "nonce too high: address 0x22, tx: 9 state: 1"),
        (-32_000, "exceeds block gas limit"),
        (-32_000, "max fee per gas less than block base fee: address 0x22, maxFeePerGas: 1, baseFee: 7"),
        (
            -32_010,
            "Transaction gas price is too low. There is another transaction with same nonce in the queue.",
        ),
        (-32_602, "transaction type not supported"),
    ] {
        let node = Paper::at(0x64);
        let refuses = || node.behind(Rule::on(SEND).then(Action::error(code, words)));
        let fleet = scripted([("A", refuses()), ("B", refuses())]).await;
        let client = reader(&fleet).await;
        let raw = signed(&PrivateKeySigner::random(), 7);
        let error = within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await;
        let error = error.expect_err("it is refused");
        let said = error.as_error_resp().unwrap_or_else(|| panic!("{words}: {error:?}"));
        assert_eq!((said.code, said.message.as_ref()), (code, words));
        for name in ["A", "B"] {
            assert!(fleet.count(name, SEND) <= 1, "{words}: sent {name} more than once");
            unblamed(&client, name);
        }
    }
}

#[tokio::test]
async fn b06_trouble_inside_a_node_goes_on_to_the_next_under_any_code_and_for_any_method() {
    for (code, words) in [
        (-32_603, "Internal error"),
        (-32_000, "context deadline exceeded"),
        (-32_603, "upstream request timeout"),
        (-32_000, "connection refused"),
        (-32_603, "dial tcp 10.0.0.1:8545: connect: connection refused"),
        (-32_000, "no available upstreams"),
        (-32_002, "request timed out"),
    ] {
        for (method, params) in reads() {
            let node = Paper::at(0x64);
            let broken = Rule::on(method).then(Action::error(code, words));
            let sound = Rule::on(method).then(Action::RpcResult(json!(word(7))));
            let fleet = scripted([("A", node.behind(broken)), ("B", node.behind(sound))]).await;
            let client = reader(&fleet).await;
            let answer = ask(&client, method, params).await;
            assert_eq!(answer.unwrap_or_else(|error| panic!("{method}: {words}: {error}")), json!(word(7)));
            assert_eq!(counts(&fleet, ["A", "B"], method), [1, 1], "{method}: {words}");
        }
    }
}

#[tokio::test]
async fn b07_two_endpoints_that_throttle_are_passed_over_in_every_dialect() {
    let text = |status, body: &str| Action::http(status, body);
    let throttles = [
        Action::error(-32_005, "limit exceeded"),
        Action::error(-32_029, "Too Many Requests"),
        Action::error(-32_000, "Your app has exceeded its compute units per second capacity."),
        Action::RpcErrorUnder(429, RpcError::new(429, "rate limited")),
        Action::too_many_requests(1),
        text(429, ""),
        text(429, "<html>429 Too Many Requests</html>"),
        text(200, r#"{"error":"rate limit exceeded"}"#),
        text(429, r#"{"message":"API rate limit exceeded"}"#),
        text(
            429,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"daily request count exceeded"}}"#,
        ),
    ];
    for (place, throttle) in throttles.iter().enumerate() {
        let other = throttles[(place + 1) % throttles.len()].clone();
        let node = Paper::at(0x64);
        let limits = |action: &Action| node.behind(Rule::on("eth_getBalance").then(action.clone()));
        let fleet = scripted([("A", limits(throttle)), ("B", limits(&other)), ("C", node.node())]).await;
        let client = reader(&fleet).await;
        for _ in 0..2 {
            let balance = within(client.provider::<Ethereum>().get_balance(TARGET)).await;
            assert_eq!(
                balance.unwrap_or_else(|error| panic!("{throttle:?}, {other:?}: {error}")),
                U256::from(10).pow(U256::from(19))
            );
        }
        assert_eq!(counts(&fleet, ["A", "B", "C"], "eth_getBalance"), [1, 1, 2], "{throttle:?}, {other:?}");
        for name in ["A", "B"] {
            assert_eq!(status(&client, name).faults, 0, "{throttle:?}, {other:?}");
        }
    }
}

#[tokio::test]
async fn b10_a_page_in_answer_to_a_send_leaves_its_fate_open() {
    // Whether A took it, the page that comes instead of its hash, and so how often B is sent it.
    for (http_status, page) in
        [(502, "<html>502 Bad Gateway</html>"), (200, "<!DOCTYPE html><html></html>"), (504, "")]
    {
        let stage = Stage::new().await;
        let signer = stage.account_allowing(1).await;
        let paged = Rule::on(SEND).times(1).then(Action::http(http_status, page));
        let fleet = stage.fleet([("A", paged.into()), ("B", Program::new())]).await;
        let client = stage.client(&fleet, &signer).await;
        let intent = stage.register(&client, "a").send().await.expect("it is written down");
        within(intent.outcome()).await.expect("it ends well").included().expect("it is included");
        assert_eq!(distinct(&fleet).len(), 1, "the same bytes, wherever they went");
        assert_eq!(stage.registrations(signer.address()).await, 1);
        assert_eq!(stage.nonce(signer.address()).await, 2, "the approve, and the registration");
    }
}

#[tokio::test]
async fn b11_what_is_no_whole_reply_is_asked_for_elsewhere() {
    let bodies = [
        "",
        " ",
        "null",
        "[]",
        "{}",
        "\"0x7\"",
        r#"{"jsonrpc":"2.0","id":0,"resul"#,
        r#"{"jsonrpc":"2.0","id":0}"#,
        r#"{"jsonrpc":"2.0","id":4242,"result":"0x7"}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":"0x7"}{"jsonrpc":"2.0","id":0,"result":"0x8"}"#,
        r#"[{"jsonrpc":"2.0","id":0,"result":"0x7"}]"#,
    ];
    for body in bodies {
        let node = Paper::at(0x64);
        let broken = Rule::on("eth_getBalance").then(Action::http(200, body));
        let fleet = scripted([("A", node.behind(broken)), ("B", node.node())]).await;
        let client = reader(&fleet).await;
        let balance = within(client.provider::<Ethereum>().get_balance(TARGET)).await;
        let balance = balance.unwrap_or_else(|error| panic!("{body}: {error}"));
        assert_eq!(balance, U256::from(10).pow(U256::from(19)), "{body}");
        assert_eq!(counts(&fleet, ["A", "B"], "eth_getBalance"), [1, 1], "{body}");
        assert_eq!(status(&client, "A").faults, 1, "{body}");
    }
}

#[tokio::test]
async fn b12_an_endpoint_whose_block_0_changes_later_gets_no_transaction() {
    let stage = Stage::new().await;
    let other_genesis = Program::from(
        Rule::on("eth_getBlockByNumber")
            .when(|call| call.params[0] == "0x0")
            .then(Action::RpcResult(Paper::at(0x64).block(Some(0)))),
    );
    let fleet = stage.fleet([("A", Program::new()), ("B", Program::new())]).await;
    let signer = stage.account().await;
    let mut config = stage.config(&fleet);
    config.provider.identity_recheck = Duration::from_millis(100);
    let client = within(Client::builder(config).signer(signer.clone()).connect()).await.expect("it connects");
    fleet.endpoint("A").set(other_genesis);
    eventually("A is quarantined", async || status(&client, "A").excluded.is_some()).await;
    let payment = client.intent("payment").to(TARGET, Vec::new()).value(U256::ONE);
    let payment = payment.send().await.expect("it is written down");
    within(payment.outcome()).await.expect("it ends well").included().expect("it is included");
    assert_eq!(counts(&fleet, ["A", "B"], SEND), [0, 1]);
}

/// What a batch of these balances came to.
async fn balances(client: &Client, accounts: std::ops::Range<u8>) -> Result<Vec<u64>, TransportError> {
    let provider = client.provider::<Ethereum>();
    let mut batch = BatchRequest::new(provider.client());
    let mut waiters = Vec::new();
    for account in accounts {
        let params = (Address::with_last_byte(account), "latest");
        waiters.push(batch.add_call::<_, U256>("eth_getBalance", &params).expect("it is JSON"));
    }
    within(batch.send()).await?;
    let mut values = Vec::new();
    for waiter in waiters {
        values.push(within(waiter).await?.to());
    }
    Ok(values)
}

#[tokio::test]
async fn b14_whatever_is_wrong_with_a_batch_no_call_gets_another_ones_answer() {
    let result = |id: Value, result: &str| json!({"jsonrpc": "2.0", "id": id, "result": result});
    let own = |id: u64| result(json!(id), &format!("0xa{id}"));
    // What A answers to a batch of three, and what the calls come to: A's own where it can be told, else B's.
    let cases = [
        (json!([own(0), own(1), own(2)]), [0xa0, 0xa1, 0xa2]),
        (json!([own(2), own(1), own(0)]), [0xa0, 0xa1, 0xa2]),
        (json!([own(1)]), [0xb0, 0xa1, 0xb2]),
        (json!([]), [0xb0, 0xb1, 0xb2]),
        (json!([own(1), null, own(0)]), [0xa0, 0xa1, 0xb2]),
        (json!([own(0), own(1), own(2), own(7)]), [0xa0, 0xa1, 0xa2]),
        (json!([own(0), {"jsonrpc": "2.0", "id": 1}, own(2)]), [0xa0, 0xb1, 0xa2]),
        (
            json!([own(0), {"jsonrpc": "2.0", "id": 1, "error": null, "result": "0xa1"}, own(2)]),
            [0xa0, 0xa1, 0xa2],
        ),
        (
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_600, "message": "batch limit"}}),
            [0xb0, 0xb1, 0xb2],
        ),
        (
            json!([own(0), own(1), {"jsonrpc": "2.0", "id": 2, "error": {"code": -32_603, "message": "Internal error"}}]),
            [0xa0, 0xa1, 0xb2],
        ),
    ];
    for (reply, expected) in cases {
        let node = Paper::at(0x64);
        let a = Rule::on("eth_getBalance").times(1).then(Action::http(200, reply.to_string()));
        let b = Rule::on("eth_getBalance").then(Action::scripted(|call| {
            let last = call.params[0].as_str().and_then(|account| account.chars().last());
            Reply::Result(json!(format!("0xb{}", last.expect("an account"))))
        }));
        let fleet = scripted([("A", node.behind(a)), ("B", node.behind(b))]).await;
        let client = reader(&fleet).await;
        let values = balances(&client, 0..3).await.unwrap_or_else(|error| panic!("{reply}: {error}"));
        assert_eq!(values, expected, "{reply}");
        let at_b = expected.iter().filter(|value| **value >= 0xb0).count() as u64;
        assert_eq!(counts(&fleet, ["A", "B"], "eth_getBalance"), [3, at_b], "{reply}");
    }
}

#[tokio::test]
async fn b16_nothing_is_a_true_answer_for_other_methods_too() {
    let hash = B256::repeat_byte(0x77);
    for (method, params, empty) in [
        ("eth_getStorageAt", json!([TARGET, "0x0", "latest"]), json!(B256::ZERO)),
        ("eth_getBlockReceipts", json!(["latest"]), json!([])),
        ("eth_getTransactionCount", json!([TARGET, "latest"]), json!("0x0")),
        ("eth_getTransactionReceipt", json!([hash]), Value::Null),
        ("eth_accounts", json!([]), json!([])),
        ("eth_getUncleCountByBlockNumber", json!(["latest"]), json!("0x0")),
    ] {
        let node = Paper::at(0x64);
        let says = || node.behind(Rule::on(method).then(Action::RpcResult(empty.clone())));
        let fleet = scripted([("A", says()), ("B", says())]).await;
        let client = reader(&fleet).await;
        assert_eq!(ask(&client, method, params).await.expect("it is answered"), empty, "{method}");
        assert_eq!(counts(&fleet, ["A", "B"], method), [1, 0], "{method}");
        unblamed(&client, "A");
    }
}

#[tokio::test]
async fn b19_above_its_head_an_endpoint_is_believed_in_no_words_and_at_no_method() {
    let call = json!({"to": TARGET});
    let methods = [
        ("eth_getBlockByNumber", json!(["0x65", false])),
        ("eth_getBlockReceipts", json!(["0x65"])),
        ("eth_call", json!([call, "0x65"])),
        ("eth_getBalance", json!([TARGET, "0x65"])),
    ];
    let says = [
        Action::error(-32_000, "header not found"),
        Action::error(-32_602, "BlockOutOfRangeError: block height is 100 but requested was 101"),
        Action::error(-32_000, "Received invalid block tag 101. Latest block number is 100"),
        Action::error(-32_603, "block not found with number 101"),
        Action::error(-39_001, "Unknown block"),
        Action::error(-32_700, "we have never heard of such a thing"),
        Action::RpcResult(Value::Null),
    ];
    for (method, params) in methods {
        for action in &says {
            // No state is null.
            if matches!(action, Action::RpcResult(_)) && !method.contains("Block") {
                continue;
            }
            let (behind, ahead) = (Paper::at(0x64), Paper::at(0x66));
            let above = Rule::on(method).containing("\"0x65\"").then(action.clone());
            let found = Rule::on(method).containing("\"0x65\"").then(Action::RpcResult(json!([])));
            let fleet = scripted([("A", behind.behind(above)), ("B", ahead.behind(found))]).await;
            let client = reader(&fleet).await;
            let mark = fleet.mark();
            let answer = ask(&client, method, params.clone()).await;
            assert_eq!(answer.unwrap_or_else(|error| panic!("{method}: {action:?}: {error}")), json!([]));
            let of_block = |name: &str| {
                let calls = fleet.records_since(mark).into_iter();
                calls.filter(|call| call.endpoint == name && call.params == params).count()
            };
            assert!(of_block("A") <= 1, "{method}: {action:?}");
            assert_eq!(of_block("B"), 1, "{method}: {action:?}");
            unblamed(&client, "A");
        }
    }
}

#[tokio::test]
async fn b23_a_height_that_has_just_come_is_waited_for_at_any_method_that_names_it() {
    let late = || Action::error(-32_000, "header not found");
    let null = || Action::RpcResult(Value::Null);
    for (method, params, early) in [
        ("eth_getBalance", json!([TARGET, "0x65"]), late()),
        ("eth_getStorageAt", json!([TARGET, "0x0", "0x65"]), late()),
        ("eth_getBlockByNumber", json!(["0x65", true]), null()),
        ("eth_getBlockReceipts", json!(["0x65"]), null()),
        ("eth_getBlockReceipts", json!(["0x65"]), late()),
        ("debug_traceBlockByNumber", json!(["0x65", {}]), Action::error(-32_000, "block #101 not found")),
    ] {
        let node = Paper::at(0x65);
        let at = || Rule::on(method).containing("\"0x65\"");
        let wanted = params.clone();
        let rules = Program::new()
            .rule(at().when(move |call| call.params == wanted).times(2).then(early.clone()))
            .rule(at().when(|call| call.params[1] != false).then(Action::RpcResult(json!(word(42)))));
        let fleet = scripted([("A", node.behind(rules))]).await;
        let client = reader(&fleet).await;
        let answer = ask(&client, method, params.clone()).await;
        assert_eq!(answer.unwrap_or_else(|error| panic!("{method}: {early:?}: {error}")), json!(word(42)));
        let asked = fleet.records().into_iter().filter(|call| call.method == method && call.params == params);
        assert_eq!(asked.count(), 3, "{method}: {early:?}");
        unblamed(&client, "A");
    }
}

#[tokio::test]
async fn b24_old_state_is_found_whatever_the_pruned_say_and_whichever_state_it_is() {
    for (code, words) in [
        (-32_000, "missing trie node 0xabab (path 00) state 0xcdcd is not available"),
        (-32_000, "historical state 0xabab is not available"),
        (-32_603, "distance to target block exceeds maximum proof window"),
        (-32_000, "state recreation l2 gas depth limit exceeded"),
        (4444, "pruned history unavailable"),
        (-32_000, "required historical state unavailable (reexec=128)"),
        (-32_002, "No state available for block 0x64"),
        (-32_000, "method handler crashed"),
    ] {
        for (method, params) in [
            ("eth_getBalance", json!([TARGET, "0x64"])),
            ("eth_getStorageAt", json!([TARGET, "0x0", "0x64"])),
            ("eth_getCode", json!([TARGET, "0x64"])),
        ] {
            let node = Paper::at(0x2710);
            let deep = || Rule::on(method).containing("\"0x64\"");
            let gone = || node.behind(deep().then(Action::error(code, words)));
            let holds = node.behind(deep().then(Action::RpcResult(json!(word(7)))));
            let fleet = scripted([("A", gone()), ("B", gone()), ("C", holds)]).await;
            let client = reader(&fleet).await;
            let mark = fleet.mark();
            for _ in 0..2 {
                let answer = ask(&client, method, params.clone()).await;
                let answer = answer.unwrap_or_else(|error| panic!("{method}: {words}: {error}"));
                assert_eq!(answer, json!(word(7)));
            }
            let [a, b, c] = ["A", "B", "C"].map(|name| asked(&fleet, mark, name, method));
            // An error that may be a crash is no proof that the next one crashes too.
            let again = if words.contains("crashed") { 2 } else { 1 };
            assert!(a <= again && b <= again && c == 2, "{method}: {words}: {a}, {b}, {c}");
        }
    }
}

#[tokio::test]
async fn b40_other_words_for_known_bytes_are_success_too() {
    for (code, words) in [
        (-32_000, "already known"),
        (-32_000, "known transaction: 0xabab"),
        (-32_003, "transaction already imported"),
        (-32_010, "Transaction with the same hash was already imported."),
        (-32_000, "AlreadyKnown"),
        (-32_000, "ALREADY_EXISTS: already known"),
        (-32_603, "tx already in mempool"),
    ] {
        for http_status in [200, 400, 500] {
            let node = Paper::at(0x64);
            let vanishes = Rule::on(SEND).then(Action::DropBefore);
            let known = Action::RpcErrorUnder(http_status, RpcError::new(code, words));
            let knows = Rule::on(SEND).then(known);
            let fleet = scripted([("A", node.behind(vanishes)), ("B", node.behind(knows))]).await;
            let client = reader(&fleet).await;
            let raw = signed(&PrivateKeySigner::random(), 7);
            let sent = within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await;
            let sent = sent.unwrap_or_else(|error| panic!("{words} under {http_status}: {error}"));
            assert_eq!(distinct(&fleet), [*sent.tx_hash()].into());
            assert_eq!(counts(&fleet, ["A", "B"], SEND), [1, 1], "{words} under {http_status}");
            unblamed(&client, "B");
        }
    }
}

#[tokio::test]
async fn b54_two_endpoints_that_both_lose_their_replies_make_one_effect() {
    for actions in [
        [Action::LoseReply, Action::LoseReply],
        [Action::Reset, Action::LoseReply],
        [Action::LoseReply, Action::Reset],
        [Action::CutReply, Action::DropBefore],
    ] {
        let stage = Stage::new().await;
        let signer = stage.account_allowing(1).await;
        let [a, b] = actions.clone().map(|action| Rule::on(SEND).times(1).then(action));
        let fleet = stage.fleet([("A", a.into()), ("B", b.into())]).await;
        let client = stage.client(&fleet, &signer).await;
        let intent = stage.register(&client, "a").send().await.expect("it is written down");
        let outcome = within(intent.outcome()).await;
        outcome.unwrap_or_else(|error| panic!("{actions:?}: {error}")).included().expect("it is included");
        assert_eq!(distinct(&fleet).len(), 1, "{actions:?}");
        assert_eq!(stage.nonce(signer.address()).await, 2, "the approve, and the registration");
        fleet.wait_until_idle(SOON).await.expect("nothing is under way for ever");
    }
}

#[tokio::test]
async fn b78_revert_bytes_are_found_wherever_a_node_puts_them() {
    let bytes = Bytes::from_static(&[0x82, 0xb4, 0x29, 0x00]);
    let hex = "0x82b42900";
    for error in [
        RpcError::new(3, "execution reverted").with_data(json!(hex)),
        RpcError::new(-32_000, "execution reverted").with_data(json!({"data": hex})),
        RpcError::new(-32_603, "Internal JSON-RPC error.")
            .with_data(json!({"code": 3, "message": "execution reverted", "data": hex})),
        RpcError::new(-32_603, "execution reverted").with_data(json!({"originalError": {"data": hex}})),
        RpcError::new(-32_000, "VM Exception while processing transaction: revert")
            .with_data(json!({"hash": null, "programCounter": 7, "result": hex, "message": "revert"})),
        RpcError::new(-32_015, "VM execution error.").with_data(json!(format!("Reverted {hex}"))),
        RpcError::new(-32_015, "VM execution error.").with_data(json!("Reverted 0x82B42900")),
        RpcError::new(-32_000, format!("execution reverted: {hex}")),
    ] {
        let stage = Stage::new().await;
        let signer = stage.account().await;
        let fleet = stage.fleet([("A", Program::new()), ("B", Program::new())]).await;
        let builder = Client::builder(stage.config(&fleet)).signer(signer);
        let client = within(builder.connect()).await.expect("it connects");
        let simulated = Rule::on_any_of(["eth_call", "eth_estimateGas"]).to(stage.contracts.graphs);
        fleet.endpoint("A").set(simulated.then(Action::RpcError(error.clone())));
        let intent = stage.register(&client, "a").send().await.expect("it is written down");
        let failed = within(intent.outcome()).await.expect_err("it reverts");
        assert!(matches!(failed.kind(), ErrorKind::Reverted(_)), "{error:?}: {failed:?}");
        assert_eq!(failed.revert().expect("it is a revert").data, bytes, "{error:?}");
        unblamed(&client, "A");
    }
}

#[tokio::test]
async fn b09_two_endpoints_that_ask_for_time_are_asked_again_when_the_first_has_had_its_time() {
    let node = Paper::at(0x64);
    let busy =
        |seconds| node.behind(Rule::on("eth_blockNumber").times(1).then(Action::too_many_requests(seconds)));
    for (a, b) in [(1, 30), (30, 1)] {
        let fleet = scripted([("A", busy(a)), ("B", busy(b))]).await;
        let client = reader_with(&fleet, |config| config.provider.operation_timeout = SOON).await;
        let begun = Instant::now();
        assert_eq!(within(block_number(&client)).await.expect("one has rested"), 0x64);
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(20), "{took:?}");
        assert_eq!(counts(&fleet, ["A", "B"], "eth_blockNumber"), if a < b { [2, 1] } else { [1, 2] });
    }

    // Longer than the operation may take: nobody waits for that.
    let fleet = scripted([("A", busy(30)), ("B", busy(30))]).await;
    let client =
        reader_with(&fleet, |config| config.provider.operation_timeout = Duration::from_secs(5)).await;
    let begun = Instant::now();
    let error = ours(&within(block_number(&client)).await.expect_err("both are busy"));
    assert_eq!(*error.kind(), ErrorKind::RateLimited, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(counts(&fleet, ["A", "B"], "eth_blockNumber"), [1, 1]);
}
