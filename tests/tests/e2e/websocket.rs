//! Endpoints over WebSocket, alone and beside others.

use std::time::Duration;

use backstay::{
    AllowanceFlow, Client, Config, Delivery, EndpointConfig, ErrorKind,
    alloy::{
        consensus::{SignableTransaction, TxEip1559, TxEnvelope},
        eips::Encodable2718,
        network::{Ethereum, TxSignerSync},
        primitives::{Address, Bytes, TxKind, U256, hex},
        providers::Provider,
        rpc::client::BatchRequest,
        signers::local::PrivateKeySigner,
    },
};
use backstay_testkit::{Fleet, Message, Program, SocketServer, Upgrade};
use e2e::story::CHAIN_ID;
use serde_json::{Value, json};

use crate::stage::{Stage, block_number, config, eventually, ours, status, within};

/// A chain, an endpoint over WebSocket in front of it, and one over HTTP.
struct Mixed {
    stage: Stage,
    socket: SocketServer,
    fleet: Fleet,
}

impl Mixed {
    async fn new() -> Self {
        let stage = Stage::new().await;
        let socket = SocketServer::start(stage.chain.url()).await.expect("it starts");
        let fleet = stage.fleet([("http", Program::new())]).await;
        Self { stage, socket, fleet }
    }

    /// The WebSocket endpoint is preferred.
    fn config(&self) -> Config {
        let mut config = config(&self.fleet.urls());
        config.endpoints.insert(0, EndpointConfig::new("ws", self.socket.url()));
        config
    }

    /// Of the WebSocket endpoint alone.
    fn alone(&self) -> Config {
        let mut config = self.config();
        config.endpoints.truncate(1);
        config
    }
}

async fn connect(config: Config) -> Client {
    within(Client::builder(config).connect()).await.expect("it connects")
}

/// What happens to messages that ask for a method; others pass.
fn on(method: &'static str, what: Message) -> impl Fn(&Value) -> Message {
    move |message| if message["method"] == method { what.clone() } else { Message::Pass }
}

#[tokio::test]
async fn the_story_runs_over_websocket_alone_and_over_one_connection() {
    let mixed = Mixed::new().await;
    let signer = mixed.stage.account().await;
    let mut config = mixed.alone();
    config.journal = Some(mixed.stage.folder.path().join("journal.db").into());
    let client = Client::builder(config).signer(signer.clone()).flow(AllowanceFlow::new());
    let client = within(client.connect()).await.expect("it connects");
    mixed.stage.registered(&client, "over-ws").await;
    assert_eq!(mixed.stage.registrations(signer.address()).await, 1);
    assert_eq!(mixed.stage.approvals(signer.address()).await, 1);
    assert_eq!((mixed.socket.upgrades().len(), mixed.socket.connections()), (1, 1));

    drop(client);
    eventually("the connection ends with the client", async || mixed.socket.connections() == 0).await;
}

#[tokio::test]
async fn replies_that_overtake_each_other_find_the_call_that_they_answer() {
    let mixed = Mixed::new().await;
    let client = connect(mixed.alone()).await;
    let accounts: Vec<Address> = (1..=20).map(Address::with_last_byte).collect();
    for account in &accounts {
        let balance = U256::from(account.as_slice()[19]);
        mixed.stage.rpc("anvil_setBalance", json!([account, balance])).await;
    }
    // The earlier they were asked, the later they are answered.
    mixed.socket.on_message(|message| {
        let account = message["params"][0].as_str().and_then(|account| hex::decode(account).ok());
        let last = account.and_then(|account| account.last().copied());
        last.map_or(Message::Pass, |last| Message::Late(Duration::from_millis(10 * (21 - u64::from(last)))))
    });
    // Each of these numbers its requests from 0.
    let asked = accounts.iter().map(async |account| {
        within(client.provider::<Ethereum>().get_balance(*account)).await.expect("it is answered")
    });
    let balances = futures::future::join_all(asked).await;
    let expected: Vec<_> = (1..=20).map(U256::from).collect();
    assert_eq!(balances, expected);
    assert_eq!(mixed.socket.upgrades().len(), 1);
}

#[tokio::test]
async fn a_batch_is_one_message() {
    let mixed = Mixed::new().await;
    let client = connect(mixed.alone()).await;
    let provider = client.provider::<Ethereum>();
    let mut batch = BatchRequest::new(provider.client());
    let chain = batch.add_call::<_, U256>("eth_chainId", &()).expect("it is JSON");
    let price = batch.add_call::<_, U256>("eth_gasPrice", &()).expect("it is JSON");
    within(batch.send()).await.expect("it is answered");
    assert_eq!(within(chain).await.expect("it is answered"), U256::from(31_337));
    assert!(within(price).await.expect("it is answered") > U256::ZERO);
    let arrays = mixed.socket.messages().into_iter().filter(Value::is_array).count();
    assert_eq!((arrays, mixed.socket.count("eth_gasPrice")), (1, 1));
}

#[tokio::test]
async fn messages_that_nobody_asked_for_are_ignored() {
    let mixed = Mixed::new().await;
    let client = connect(mixed.alone()).await;
    let strays = [
        r#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","result":"0x2"}}"#,
        r#"{"jsonrpc":"2.0","id":9999999,"result":"0x63"}"#,
        r#"{"jsonrpc":"2.0","id":"text","result":"0x63"}"#,
        r#"{"jsonrpc":"2.0","id":-1,"result":"0x63"}"#,
        r#"{"jsonrpc":"2.0","id":1e3,"result":"0x63"}"#,
        r#"[{"jsonrpc":"2.0","id":9999999,"result":"0x63"}]"#,
        "[]",
        "{}",
    ];
    let strays = Message::After(strays.map(str::to_owned).to_vec());
    mixed.socket.on_message(on("eth_gasPrice", strays));
    let price = within(client.provider::<Ethereum>().get_gas_price()).await.expect("it is answered");
    assert!(price > 0x63, "{price}");
    assert_eq!(mixed.socket.upgrades().len(), 1, "the connection goes on");
    assert_eq!(status(&client, "ws").faults, 0);
}

#[tokio::test]
async fn whatever_ends_a_connection_the_call_goes_on_at_once_to_an_endpoint_of_the_other_kind() {
    let big = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#, "x".repeat(200_000));
    let faults = [
        ("closed", Message::CloseWith(1013)),
        ("cut", Message::Cut),
        ("no text", Message::NotText),
        ("garbage", Message::Texts(vec!["<html>busy</html>".into()])),
        ("too large", Message::Texts(vec![big])),
    ];
    let mixed = Mixed::new().await;
    for (what, fault) in faults {
        let mut config = mixed.config();
        config.provider.attempt_timeout = Duration::from_secs(20);
        config.provider.operation_timeout = Duration::from_secs(60);
        config.provider.max_reply = 100_000;
        let client = connect(config).await;
        mixed.socket.on_message(on("eth_gasPrice", fault));
        let (mark, begun) = (mixed.fleet.mark(), tokio::time::Instant::now());
        within(client.provider::<Ethereum>().get_gas_price()).await.expect(what);
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}: nothing was waited for");
        let asked =
            mixed.fleet.records_since(mark).iter().filter(|call| call.method == "eth_gasPrice").count();
        assert_eq!(asked, 1, "{what}");
        assert!(status(&client, "ws").faults >= 1, "{what}");
        mixed.socket.on_message(|_| Message::Pass);
        eventually("it is back", async || {
            within(block_number(&client)).await.is_ok() && status(&client, "ws").excluded.is_none()
        })
        .await;
    }
}

#[tokio::test]
async fn an_endpoint_that_comes_back_is_found_by_the_tracker_alone() {
    let mixed = Mixed::new().await;
    let client = connect(mixed.config()).await;
    mixed.socket.upgrade(Upgrade::Refuse { status: 503, headers: Vec::new(), body: "away".into() });
    mixed.socket.disconnect();
    eventually("its breaker opens", async || {
        status(&client, "ws").excluded.is_some_and(|why| why.contains("breaker"))
    })
    .await;
    let tries = mixed.socket.upgrades().len();
    tokio::time::timeout(Duration::from_secs(1), async {
        while mixed.socket.upgrades().len() < tries + 5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect_err("it is tried as often as its breaker allows, not as often as it is looked at");
    mixed.socket.upgrade(Upgrade::Accept);
    eventually("it is back", async || status(&client, "ws").excluded.is_none()).await;
    assert_eq!(mixed.socket.count("eth_gasPrice"), 0, "nobody called");
}

#[tokio::test]
async fn an_upgrade_that_is_refused_means_what_it_means_over_http() {
    let check = async |code: u16, headers: &[(&str, &str)], body: &str, why: &str| {
        let mixed = Mixed::new().await;
        let client = connect(mixed.config()).await;
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        mixed.socket.upgrade(Upgrade::Refuse { status: code, headers, body: body.into() });
        mixed.socket.disconnect();
        within(client.provider::<Ethereum>().get_gas_price()).await.expect("the other one answers");
        eventually("it is passed over for this", async || {
            status(&client, "ws").excluded.is_some_and(|found| found.contains(why))
        })
        .await;
    };
    check(429, &[("retry-after", "60")], "slow down", "asked us to wait").await;
    check(
        429,
        &[],
        r#"{"error":{"code":429,"message":"too many requests, try again in 60s"}}"#,
        "asked us to wait",
    )
    .await;
    check(401, &[], "who are you", "breaker").await;
    check(502, &[], "<html>bad gateway</html>", "breaker").await;
}

#[tokio::test]
async fn keys_go_out_with_the_upgrade() {
    let mixed = Mixed::new().await;
    let mut config = mixed.alone();
    let endpoint = &mut config.endpoints[0];
    endpoint.url = endpoint.url.replacen("ws://", "ws://user:word@", 1);
    endpoint.headers.insert("x-api-key".into(), "the-key".into());
    connect(config).await;
    let upgrades = mixed.socket.upgrades();
    let header = |name: &str| upgrades[0].get(name).and_then(|value| value.to_str().ok());
    assert_eq!(header("authorization"), Some("Basic dXNlcjp3b3Jk"));
    assert_eq!(header("x-api-key"), Some("the-key"));
}

#[tokio::test]
async fn a_send_says_whether_its_bytes_may_have_left() {
    let mixed = Mixed::new().await;
    let signer = mixed.stage.account().await;
    let mut config = mixed.alone();
    config.provider.attempt_timeout = Duration::from_millis(300);
    config.provider.lookup_budget = Duration::from_millis(300);
    let client = connect(config).await;
    let raw = transfer(&signer);
    let send = async || {
        let provider = client.provider::<Ethereum>();
        let error = within(provider.send_raw_transaction(&raw)).await.expect_err("nobody has it");
        ours(&error)
    };
    // Said to nobody in particular, while the bytes may be on their way.
    let limit = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"rate limit exceeded"}}"#;
    let refusal = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"intrinsic gas too low"}}"#;
    let nameless = [limit, refusal].map(|text| Message::Texts(vec![text.to_owned()]));
    for fault in [Message::Hang, Message::CloseWith(1013), Message::Cut].into_iter().chain(nameless) {
        mixed.socket.on_message(on("eth_sendRawTransaction", fault));
        assert_eq!(send().await.delivery(), Delivery::Unknown);
    }
    mixed.socket.on_message(|_| Message::Pass);
    let before = mixed.socket.count("eth_sendRawTransaction");
    for away in [Upgrade::Refuse { status: 503, headers: Vec::new(), body: String::new() }, Upgrade::Hang] {
        let upgrades = mixed.socket.upgrades().len();
        mixed.socket.upgrade(away.clone());
        mixed.socket.disconnect();
        // What is written to a connection before its end is noticed may have left.
        eventually("the end is noticed", async || match away {
            Upgrade::Hang => mixed.socket.connections() > 0,
            _ => mixed.socket.upgrades().len() > upgrades,
        })
        .await;
        let error = send().await;
        assert_eq!(error.delivery(), Delivery::NotSent, "{error}");
        assert_ne!(*error.kind(), ErrorKind::Invalid);
    }
    assert_eq!(mixed.socket.count("eth_sendRawTransaction"), before);
}

/// A signed transfer of nothing.
pub(crate) fn transfer(signer: &PrivateKeySigner) -> Bytes {
    let mut transfer = TxEip1559 {
        chain_id: CHAIN_ID,
        gas_limit: 21_000,
        max_fee_per_gas: 20_000_000_000,
        max_priority_fee_per_gas: 1_000_000_000,
        to: TxKind::Call(Address::repeat_byte(0x22)),
        ..TxEip1559::default()
    };
    let signature = signer.sign_transaction_sync(&mut transfer).expect("it signs");
    TxEnvelope::from(transfer.into_signed(signature)).encoded_2718().into()
}
