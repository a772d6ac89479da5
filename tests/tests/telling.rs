//! What a service finds in its log. A process has one subscriber, so this has a process of its own; each test has
//! endpoints of its own names.

use std::{
    fmt::{self, Write as _},
    sync::{LazyLock, Mutex, PoisonError},
    time::Duration,
};

use backstay::{
    Class, Client, Config, DataKind, EndpointConfig, Role, Row, SendPublic,
    alloy::{network::Ethereum, providers::Provider},
};
use backstay_testkit::{Action, Anvil, Fleet, Program, Rule};
use e2e::story::CHAIN_ID;
use serde_json::json;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// What was told: the level, and everything in one line.
static TOLD: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

static LISTENING: LazyLock<()> = LazyLock::new(|| {
    tracing::subscriber::set_global_default(Listener).expect("nobody listens yet");
});

fn told() -> Vec<(Level, String)> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn tell(level: Level, line: String) {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).push((level, line));
}

/// Keeps every event of Backstay, and what spans are made and given.
struct Listener;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("backstay")
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut line = Line(format!("span {}", attributes.metadata().name()));
        attributes.record(&mut line);
        tell(*attributes.metadata().level(), line.0);
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        let mut line = Line("span has".to_owned());
        values.record(&mut line);
        tell(Level::DEBUG, line.0);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        tell(*event.metadata().level(), line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

async fn fleet(chain: &Anvil, names: [&str; 2]) -> Fleet {
    let mut fleet = Fleet::builder();
    for name in names {
        fleet = fleet.endpoint(name, chain.url(), Program::new());
    }
    fleet.start().await.expect("the fleet starts")
}

fn config(fleet: &Fleet) -> Config {
    LazyLock::force(&LISTENING);
    let endpoints = fleet.urls().into_iter().map(|(name, url)| EndpointConfig::new(name, url)).collect();
    let mut config = Config::new(CHAIN_ID, endpoints);
    config.provider.head_poll = Some(Duration::from_millis(20));
    config.provider.identity_recheck = Duration::from_millis(100);
    config
}

#[tokio::test]
async fn a_client_whose_endpoints_are_well_tells_nothing_at_info() {
    let chain = Anvil::builder().launch().await.expect("anvil starts");
    let fleet = fleet(&chain, ["calm", "serene"]).await;
    let mut config = config(&fleet);
    for (name, role) in [("placid", Role::SendOnly), ("tranquil", Role::Private)] {
        let mut endpoint = EndpointConfig::new(name, &config.endpoints[1].url);
        endpoint.role = role;
        config.endpoints.push(endpoint);
    }
    config.provider.pool.send_public = SendPublic::Also;
    let client = Client::builder(config).connect().await.expect("it connects");
    let looks = || fleet.count("calm", "eth_chainId");
    client.provider::<Ethereum>().get_gas_price().await.expect("it is answered");
    let before = looks();
    // Through several checks of its identity.
    while looks() < before + 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let names = ["calm", "serene", "placid", "tranquil"];
    let about = |line: &str| names.iter().any(|name| line.contains(name));
    let loud: Vec<_> =
        told().into_iter().filter(|(level, line)| *level <= Level::INFO && about(line)).collect();
    assert!(loud.is_empty(), "{loud:?}");
    assert!(
        told().iter().any(|(level, line)| *level == Level::DEBUG && line.contains("calm")),
        "it told nothing"
    );
}

#[tokio::test]
async fn an_operation_is_a_span_with_its_method_and_outcome() {
    let chain = Anvil::builder().launch().await.expect("anvil starts");
    let fleet = fleet(&chain, ["spanned", "spanned-2"]).await;
    let client = Client::builder(config(&fleet)).connect().await.expect("it connects");
    client.provider::<Ethereum>().get_max_priority_fee_per_gas().await.expect("it is answered");
    let lines = told();
    let span = "span operation method=\"eth_maxPriorityFeePerGas\" calls=1 chain=31337";
    assert!(lines.iter().any(|(level, line)| *level == Level::DEBUG && line == span), "{lines:?}");
    assert!(lines.iter().any(|(_, line)| line == "span has outcome=\"ok\""), "{lines:?}");
}

#[tokio::test]
async fn an_endpoint_that_flaps_does_not_fill_the_log() {
    let chain = Anvil::builder().launch().await.expect("anvil starts");
    let fleet = fleet(&chain, ["flapping", "steady"]).await;
    let client = Client::builder(config(&fleet)).connect().await.expect("it connects");
    let provider = client.provider::<Ethereum>();
    // It asks us to wait, for no time at all, whenever it is asked.
    fleet.endpoint("flapping").set(Rule::on("eth_gasPrice").then(Action::too_many_requests(0)));
    for _ in 0..50 {
        provider.get_gas_price().await.expect("the other one answers");
    }
    assert!(fleet.count("flapping", "eth_gasPrice") >= 10, "it was asked again and again");
    let told = told();
    let asks = |at: fn(Level) -> bool| {
        let about = |line: &str| line.contains("flapping") && line.contains("it asks us to wait");
        told.iter().filter(|(level, line)| at(*level) && about(line)).count()
    };
    assert_eq!(asks(|level| level <= Level::INFO), 1);
    assert!(asks(|level| level == Level::DEBUG) >= 9);
}

#[tokio::test]
async fn a_wording_that_no_row_knows_is_told_once_and_without_what_it_smuggles() {
    let chain = Anvil::builder().launch().await.expect("anvil starts");
    let fleet = fleet(&chain, ["odd", "plain"]).await;
    let client = Client::builder(config(&fleet)).connect().await.expect("it connects");
    let blocks = std::sync::atomic::AtomicU64::new(0);
    let odd = Action::scripted(move |_| {
        let block = blocks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let message = format!(
            "the flux of block {block} is off\u{1b}[31m\nWARN forged line, see https://rpc.example/v1/hush-key"
        );
        backstay_testkit::Reply::Error(backstay_testkit::RpcError::new(-39_999, message))
    });
    fleet.endpoint("odd").set(Rule::on("eth_gasPrice").then(odd));
    for _ in 0..5 {
        client.provider::<Ethereum>().get_gas_price().await.expect("the other one answers");
    }
    let lines: Vec<_> = told().into_iter().filter(|(_, line)| line.contains("flux")).collect();
    let [(Level::WARN, line)] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.contains("the flux of block # is off") && line.contains("-39999"), "{line}");
    assert!(line.contains("odd") && line.contains("see <…>"), "{line}");
    assert!(!line.contains("hush") && !line.contains('\u{1b}') && !line.contains("\\n"), "{line}");
}

#[tokio::test]
async fn an_operators_row_says_what_an_error_means() {
    let chain = Anvil::builder().launch().await.expect("anvil starts");
    let fleet = fleet(&chain, ["firewalled", "walled"]).await;
    let wall = Rule::on("eth_gasPrice").then(Action::error(-39_998, "The wall is up"));
    fleet.endpoint("firewalled").set(wall);
    let price = async |rows: Vec<Row>| {
        let mut config = config(&fleet);
        config.provider.rows = rows;
        let client = Client::builder(config).connect().await.expect("it connects");
        client.provider::<Ethereum>().get_gas_price().await
    };
    price(Vec::new()).await.expect("nobody knows what that means, and the next one is asked");
    assert_eq!(fleet.count("walled", "eth_gasPrice"), 1);
    let error =
        price(vec![Row::new(Class::Invalid, "wall is up")]).await.expect_err("it is the caller's mistake");
    assert_eq!(error.as_error_resp().map(|error| error.code), Some(-39_998), "{error}");
    assert_eq!(fleet.count("walled", "eth_gasPrice"), 1, "which is the same everywhere");
}

#[tokio::test]
async fn a_probe_of_history_that_every_endpoint_fails_is_said_to_be_suspect_once() {
    let chain = Anvil::builder().launch().await.expect("anvil starts");
    let [one, other, ..] = chain.accounts() else { unreachable!("anvil has ten accounts") };
    let payment = json!([{ "from": one, "to": other, "value": "0x1" }]);
    chain.rpc("eth_sendTransaction", payment).await.expect("it is mined");
    chain.mine(200).await.expect("anvil mines");
    let fleet = fleet(&chain, ["odd", "even"]).await;
    for endpoint in ["odd", "even"] {
        // The latest count at any height, as if nothing was ever pruned.
        let latest = Rule::on("eth_getTransactionCount").then(Action::RpcResult(json!("0x64")));
        fleet.endpoint(endpoint).set(latest);
    }
    let client = Client::builder(config(&fleet)).connect().await.expect("it connects");
    let suspected = || {
        let told = told();
        let about = |line: &str| line.contains("is suspect") && line.contains("State");
        told.iter().filter(|(level, line)| *level == Level::WARN && about(line)).count()
    };
    let looking = async {
        while suspected() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Identity is looked at again meanwhile, and nobody is probed for it.
        let looks = fleet.count("odd", "eth_chainId");
        while fleet.count("odd", "eth_chainId") < looks + 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looking).await.expect("it is told, and time goes on");
    assert_eq!(suspected(), 1);
    assert_eq!(fleet.count("odd", "eth_getTransactionCount"), 2);
    let shown = client.status().endpoints;
    assert!(shown.iter().all(|endpoint| !endpoint.oldest.contains_key(&DataKind::State)), "{shown:?}");
}
