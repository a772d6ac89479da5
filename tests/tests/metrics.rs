//! What a service sees in its metrics. A process has one recorder, so this has a process of its own.

use std::time::Duration;

use backstay::{
    Client, Config, EndpointConfig,
    alloy::{network::Ethereum, providers::Provider},
    meter,
};
use backstay_testkit::{Action, Anvil, Fleet, Program, Rule};
use e2e::story::CHAIN_ID;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// The whole value of a counter or gauge with these labels, and of no other.
fn value(snapshot: &[(metrics::Key, DebugValue)], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let has = |key: &metrics::Key| {
        let mut own: Vec<(&str, &str)> = key.labels().map(|label| (label.key(), label.value())).collect();
        own.retain(|(key, value)| (*key, *value) != ("chain", "31337"));
        key.name() == name && own == labels
    };
    snapshot.iter().find(|(key, _)| has(key)).map(|(_, value)| match value {
        DebugValue::Counter(count) => *count as f64,
        DebugValue::Gauge(value) => value.0,
        DebugValue::Histogram(values) => values.len() as f64,
    })
}

/// Reading a snapshot takes counters back to zero: this adds up.
#[derive(Default)]
struct Seen(Vec<(metrics::Key, DebugValue)>);

impl Seen {
    fn look(&mut self, snapshotter: &Snapshotter) {
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let key = key.key().clone();
            match self.0.iter_mut().find(|(known, _)| *known == key) {
                Some((_, DebugValue::Counter(sum))) => {
                    if let DebugValue::Counter(more) = value {
                        *sum += more;
                    }
                }
                Some((_, DebugValue::Histogram(sum))) => {
                    if let DebugValue::Histogram(more) = value {
                        sum.extend(more);
                    }
                }
                Some((_, known)) => *known = value,
                None => self.0.push((key, value)),
            }
        }
    }
}

#[tokio::test]
async fn a_service_sees_in_its_metrics_which_endpoint_failed_how_and_what_was_done() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().expect("it is the only one of this process");

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
    let mut seen = Seen::default();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        seen.look(&snapshotter);
        let opened = value(&seen.0, meter::BREAKER_CHANGES, &with("to", "open"));
        if opened.is_some() && value(&seen.0, meter::IN_USE, &broken) == Some(0.0) {
            break;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "the breaker of `broken` does not open: {:?}",
            seen.0
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    provider.get_gas_price().await.expect("the third answers");
    seen.look(&snapshotter);
    let value = |name, labels: &[(&str, &str)]| value(&seen.0, name, labels);

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

    for (key, _) in &seen.0 {
        let text = format!("{key:?}");
        for secret in ["hush", "127.0.0.1", "eth_", "flux"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(meter::METRICS.iter().any(|metric| metric.name == key.name()), "{text} is not documented");
    }
}
