//! What a service sees in its metrics. A process has one recorder, so this has a process of its own.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use backstay::{
    Client, Config, EndpointConfig, HedgeConfig,
    alloy::{network::Ethereum, primitives::Address, providers::Provider, rpc::types::Filter},
    meter,
};
use backstay_testkit::{Action, Anvil, Fleet, Program, Rule};
use e2e::story::CHAIN_ID;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::registry::{AtomicStorage, Registry};
use serde_json::json;

/// Keeps what is measured. That of the crate `metrics-util` takes gauges back to zero when it is looked at.
#[derive(Clone)]
struct Kept(Arc<Registry<Key, AtomicStorage>>);

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.0.get_or_create_counter(key, |counter| Counter::from_arc(counter.clone()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.0.get_or_create_gauge(key, |gauge| Gauge::from_arc(gauge.clone()))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.get_or_create_histogram(key, |histogram| Histogram::from_arc(histogram.clone()))
    }
}

impl Kept {
    /// Every metric with its value, and of a histogram how many values it has; not those that were never counted.
    fn all(&self) -> Vec<(Key, f64)> {
        let count = |value: &Arc<AtomicU64>| value.load(Ordering::Relaxed);
        let mut all = Vec::new();
        self.0.visit_counters(|key, counter| all.push((key.clone(), count(counter) as f64)));
        all.retain(|(_, count)| *count > 0.0);
        self.0.visit_gauges(|key, gauge| all.push((key.clone(), f64::from_bits(count(gauge)))));
        self.0.visit_histograms(|key, values| all.push((key.clone(), values.data().len() as f64)));
        all
    }

    /// The recorder of this process.
    fn installed() -> Self {
        static KEPT: LazyLock<Kept> = LazyLock::new(|| {
            let kept = Kept(Arc::new(Registry::atomic()));
            metrics::set_global_recorder(kept.clone()).expect("it is the only one of this process");
            kept
        });
        KEPT.clone()
    }

    /// The value of the metric of a chain with these labels, and no other.
    fn value(&self, chain: u64, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let chain = chain.to_string();
        let has = |key: &Key| {
            let mut own: Vec<(&str, &str)> = key.labels().map(|label| (label.key(), label.value())).collect();
            own.retain(|(key, value)| (*key, *value) != ("chain", &*chain));
            key.name() == name && own == labels
        };
        self.all().into_iter().find(|(key, _)| has(key)).map(|(_, value)| value)
    }
}

#[tokio::test]
async fn a_service_sees_in_its_metrics_which_endpoint_failed_how_and_what_was_done() {
    let kept = Kept::installed();
    let value = |name, labels: &[(&str, &str)]| kept.value(CHAIN_ID, name, labels);

    let chain = Anvil::builder().launch().await.expect("anvil starts");
    let fleet = Fleet::builder()
        .endpoint("broken", chain.url(), Program::new())
        .endpoint("odd", chain.url(), Program::new())
        .endpoint("sound", chain.url(), Program::new())
        .start()
        .await
        .expect("the fleet starts");
    let mut endpoints: Vec<EndpointConfig> =
        fleet.urls().into_iter().map(|(name, url)| EndpointConfig::new(name, url)).collect();
    for endpoint in &mut endpoints {
        endpoint.url.push_str("?apikey=hush-hush");
        endpoint.headers.insert("x-api-key".into(), "hush-hush".into());
    }
    let mut config = Config::new(CHAIN_ID, endpoints);
    config.provider.head_poll = Some(Duration::from_millis(50));
    let client = Client::builder(config).connect().await.expect("it connects");
    let provider = client.provider::<Ethereum>();

    let bad = Rule::on("eth_gasPrice").then(Action::http(502, "bad gateway"));
    fleet.endpoint("broken").set(bad);
    let odd = Rule::on("eth_gasPrice").then(Action::error(-39_999, "the flux is out of phase"));
    fleet.endpoint("odd").set(odd);
    for _ in 0..3 {
        provider.get_gas_price().await.expect("the third answers");
    }
    fleet.endpoint("broken").kill().await;

    let broken = [("endpoint", "broken")];
    let with = |key: &'static str, value: &'static str| [("endpoint", "broken"), (key, value)];
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let opened = value(meter::BREAKER_CHANGES, &with("to", "open"));
        if opened.is_some() && value(meter::IN_USE, &broken) == Some(0.0) {
            break;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "the breaker of `broken` does not open: {:?}",
            kept.all()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    provider.get_gas_price().await.expect("the third answers");

    assert!(value(meter::VERDICTS, &with("verdict", "server error")) >= Some(3.0));
    assert!(value(meter::VERDICTS, &with("verdict", "answer")) >= Some(3.0), "it was asked who it is");
    assert_eq!(value(meter::VERDICTS, &[("endpoint", "sound"), ("verdict", "server error")]), None);
    let odd = value(meter::VERDICTS, &[("endpoint", "odd"), ("verdict", "unclassified")]);
    assert!(odd >= Some(3.0), "{odd:?}");
    assert_eq!(value(meter::UNCLASSIFIED, &[("endpoint", "odd")]), odd);
    assert_eq!(value(meter::FAILOVERS, &[("reason", "server error")]), Some(3.0));
    assert!(value(meter::FAILOVERS, &[("reason", "unclassified")]) >= Some(3.0));
    assert_eq!(value(meter::IDENTITY_CHANGES, &with("to", "verified")), Some(1.0));
    assert!(value(meter::STICKY_MOVES, &[]) >= Some(1.0));
    let requests = value(meter::REQUESTS, &broken).expect("it was asked");
    assert_eq!(value(meter::LATENCY, &broken), Some(requests), "each exchange was timed");
    assert_eq!(value(meter::HEAD_LAG, &[("endpoint", "sound")]), Some(0.0));
    assert_eq!(value(meter::IN_USE, &[("endpoint", "sound")]), Some(1.0));

    for (key, _) in kept.all() {
        let text = format!("{key:?}");
        for secret in ["hush", "127.0.0.1", "eth_", "flux"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(meter::METRICS.iter().any(|metric| metric.name == key.name()), "{text} is not documented");
    }
}

#[tokio::test]
async fn a_service_sees_in_its_metrics_what_its_reads_met() {
    /// Its counters are those of no other test.
    const OTHER_CHAIN: u64 = 31_338;
    let kept = Kept::installed();
    let value = |name, labels: &[(&str, &str)]| kept.value(OTHER_CHAIN, name, labels);

    let chain = Anvil::builder().chain_id(OTHER_CHAIN).launch().await.expect("anvil starts");
    chain.mine(40).await.expect("it mines");
    let number =
        |number: u64| Rule::on("eth_blockNumber").then(Action::RpcResult(json!(format!("{number:#x}"))));
    let slow = Program::new()
        .rule(Rule::on("eth_getBalance").every(20).then(Action::LateReply(Duration::from_millis(300))))
        .rule(
            Rule::on("eth_getLogs")
                .times(1)
                .then(Action::error(-32_005, "query returned more than 10000 results")),
        )
        .rule(number(40).times(1))
        .rule(number(38));
    let fleet = Fleet::builder()
        .endpoint("slow", chain.url(), slow)
        .endpoint("other", chain.url(), number(38))
        .start()
        .await
        .expect("the fleet starts");
    let endpoints = fleet.urls().into_iter().map(|(name, url)| EndpointConfig::new(name, url)).collect();
    let mut config = Config::new(OTHER_CHAIN, endpoints);
    config.provider.pool.block_time = Some(Duration::from_millis(200));
    config.provider.read.frontier_grace = Duration::from_millis(300);
    config.provider.read.hedge = Some(HedgeConfig::default());
    let client = Client::builder(config).connect().await.expect("it connects");
    let provider = client.provider::<Ethereum>();

    let range = Filter::new().from_block(1).to_block(20);
    assert!(provider.get_logs(&range).await.expect("it is split").is_empty());
    assert!(value(meter::LOG_SPLITS, &[]) >= Some(1.0));

    assert_eq!(provider.get_block_number().await.expect("it answers"), 40);
    assert_eq!(provider.get_block_number().await.expect("it answers"), 38);
    assert_eq!(value(meter::REGRESSIONS, &[]), Some(1.0));

    assert!(provider.get_block_by_number(45.into()).await.expect("it answers").is_none());
    assert_eq!(value(meter::GRACES, &[("outcome", "ended")]), Some(1.0));
    assert!(value(meter::WAITS, &[]) >= Some(1.0));

    for _ in 0..80 {
        provider.get_balance(Address::ZERO).await.expect("somebody answers");
    }
    assert!(value(meter::HEDGES, &[("outcome", "won")]) >= Some(1.0), "{:?}", kept.all());

    client.remove_endpoint("slow").expect("there is another");
    assert_eq!(value(meter::IN_USE, &[("endpoint", "slow")]), Some(0.0), "it is not there any more");
}
