//! What is measured: every metric by its name.
//!
//! The numbers go to the recorder of the crate `metrics`; without one they cost an atomic read each. Install the
//! recorder **before** [`connect`](crate::Endpoints::connect): each client takes its handles once, for all of its
//! life, so that a call costs an atomic add and no look-up.
//!
//! Labels are `chain` (the chain id), `endpoint` (its name) and one more where [`Metric::label`] names it, always
//! of a small set of words. URLs, headers, hosts, accounts, hashes and method names are in no label.
//! `docs/metrics.md` lists the same, with the log events.

use std::sync::OnceLock;

use metrics::{Counter, Gauge, Histogram, Label, Unit};

/// Exchanges with an endpoint: HTTP requests or WebSocket messages. A batch is one.
pub const REQUESTS: &str = "backstay_endpoint_requests_total";
/// What an endpoint's replies meant, by `verdict`; each element of a batch counts.
pub const VERDICTS: &str = "backstay_endpoint_verdicts_total";
/// How long exchanges with an endpoint took, whatever came of them.
pub const LATENCY: &str = "backstay_endpoint_latency_seconds";
/// How many blocks an endpoint's head is behind the frontier, as of its last look.
pub const HEAD_LAG: &str = "backstay_endpoint_head_lag_blocks";
/// 1 while an endpoint may be read from, or sent to where its role is that alone; 0 while it is passed over.
pub const IN_USE: &str = "backstay_endpoint_in_use";
/// Changes of an endpoint's circuit breaker, by the state that it went `to`.
pub const BREAKER_CHANGES: &str = "backstay_endpoint_breaker_changes_total";
/// Changes of what is known of an endpoint's identity, by what it went `to`.
pub const IDENTITY_CHANGES: &str = "backstay_endpoint_identity_changes_total";
/// Errors of an endpoint in words that no row of the classifier knows.
pub const UNCLASSIFIED: &str = "backstay_endpoint_unclassified_total";
/// WebSocket messages of an endpoint that nobody waited for.
pub const STRAYS: &str = "backstay_endpoint_stray_messages_total";
/// Calls that went on to another endpoint, by the `reason`: the verdict before.
pub const FAILOVERS: &str = "backstay_failovers_total";
/// Times that another endpoint became the one that serves until it cannot.
pub const STICKY_MOVES: &str = "backstay_sticky_moves_total";
/// Misses in the deep that were held against another endpoint.
pub const SECOND_OPINIONS: &str = "backstay_deep_second_opinions_total";
/// Lookups at the frontier that were waited for, by `outcome`: `came`, or `ended` with the grace.
pub const GRACES: &str = "backstay_frontier_graces_total";
/// How long a block at the frontier was waited for until it came.
pub const FRONTIER_LAG: &str = "backstay_frontier_lag_seconds";
/// Times that a read waited before it asked again.
pub const WAITS: &str = "backstay_read_waits_total";
/// Heights that were given although a higher one had been shown.
pub const REGRESSIONS: &str = "backstay_regressions_total";
/// Sends that one endpoint accepted and another refused for good.
pub const CONTRADICTIONS: &str = "backstay_send_contradictions_total";
/// Log ranges that were split.
pub const LOG_SPLITS: &str = "backstay_log_splits_total";
/// Empty lists of logs that a block's bloom filter contradicted.
pub const BLOOM_DOUBTS: &str = "backstay_log_bloom_doubts_total";
/// Hedges, by `outcome`: `won` when the second endpoint was first, else `lost`.
pub const HEDGES: &str = "backstay_hedges_total";

/// How a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// Whom a metric is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// One endpoint: labels `chain` and `endpoint`.
    Endpoint,
    /// All endpoints of a client: label `chain`.
    Pool,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it counts.
    pub kind: MetricKind,
    /// Whom it is about.
    pub scope: Scope,
    /// The label that it has besides those of its scope.
    pub label: Option<&'static str>,
    /// What it counts.
    pub about: &'static str,
    unit: Unit,
}

/// Every metric there is.
pub const METRICS: [Metric; 20] = {
    use MetricKind::{Counter, Gauge, Histogram};
    use Scope::{Endpoint, Pool};
    [
        metric(
            REQUESTS,
            Counter,
            Endpoint,
            None,
            "exchanges: HTTP requests, WebSocket messages; a batch is one",
        ),
        metric(
            VERDICTS,
            Counter,
            Endpoint,
            Some("verdict"),
            "what its replies meant; each call of a batch counts",
        ),
        metric(
            LATENCY,
            Histogram,
            Endpoint,
            None,
            "how long exchanges took, in seconds, whatever came of them",
        ),
        metric(HEAD_LAG, Gauge, Endpoint, None, "blocks behind the frontier, as of its last look"),
        metric(IN_USE, Gauge, Endpoint, None, "1 while it may serve by its role, 0 while it is passed over"),
        metric(BREAKER_CHANGES, Counter, Endpoint, Some("to"), "its breaker: `open`, `half-open`, `closed`"),
        metric(
            IDENTITY_CHANGES,
            Counter,
            Endpoint,
            Some("to"),
            "its identity: `verified`, `unverified`, `wrong`, `unknown`",
        ),
        metric(UNCLASSIFIED, Counter, Endpoint, None, "errors in words that no row of the classifier knows"),
        metric(STRAYS, Counter, Endpoint, None, "WebSocket messages that nobody waited for"),
        metric(
            FAILOVERS,
            Counter,
            Pool,
            Some("reason"),
            "calls that went on, by the verdict before; `miss` for null",
        ),
        metric(
            STICKY_MOVES,
            Counter,
            Pool,
            None,
            "another endpoint became the one that serves until it cannot",
        ),
        metric(SECOND_OPINIONS, Counter, Pool, None, "misses in the deep held against another endpoint"),
        metric(GRACES, Counter, Pool, Some("outcome"), "lookups waited for at the frontier: `came`, `ended`"),
        metric(FRONTIER_LAG, Histogram, Pool, None, "seconds until what was waited for at the frontier came"),
        metric(WAITS, Counter, Pool, None, "times that a read waited before it asked again"),
        metric(REGRESSIONS, Counter, Pool, None, "heights given although a higher one had been shown"),
        metric(
            CONTRADICTIONS,
            Counter,
            Pool,
            None,
            "sends that one endpoint accepted and another refused for good",
        ),
        metric(LOG_SPLITS, Counter, Pool, None, "log ranges that were split"),
        metric(
            BLOOM_DOUBTS,
            Counter,
            Pool,
            None,
            "empty lists of logs that a block's bloom filter contradicted",
        ),
        metric(
            HEDGES,
            Counter,
            Pool,
            Some("outcome"),
            "hedges: `won` when the second endpoint was first, else `lost`",
        ),
    ]
};

const fn metric(
    name: &'static str,
    kind: MetricKind,
    scope: Scope,
    label: Option<&'static str>,
    about: &'static str,
) -> Metric {
    let unit = match kind {
        MetricKind::Histogram => Unit::Seconds,
        MetricKind::Counter | MetricKind::Gauge => Unit::Count,
    };
    Metric { name, kind, scope, label, about, unit }
}

/// Tells the recorder what each metric is.
pub(crate) fn describe() {
    for Metric { name, kind, about, unit, .. } in METRICS {
        match kind {
            MetricKind::Counter => metrics::describe_counter!(name, unit, about),
            MetricKind::Gauge => metrics::describe_gauge!(name, unit, about),
            MetricKind::Histogram => metrics::describe_histogram!(name, unit, about),
        }
    }
}

/// The handles of one endpoint.
pub(crate) struct EndpointMeter {
    pub(crate) requests: Counter,
    pub(crate) verdicts: Family,
    pub(crate) latency: Histogram,
    pub(crate) head_lag: Gauge,
    pub(crate) in_use: Gauge,
    pub(crate) breaker_changes: Family,
    pub(crate) identity_changes: Family,
    pub(crate) unclassified: Counter,
    #[cfg_attr(not(feature = "ws"), expect(dead_code, reason = "only WebSocket has them"))]
    pub(crate) strays: Counter,
}

impl EndpointMeter {
    pub(crate) fn new(chain_id: u64, endpoint: &str) -> Self {
        let labels = vec![chain(chain_id), Label::new("endpoint", endpoint.to_owned())];
        let counter = |name| metrics::counter!(name, labels.clone());
        let gauge = |name| metrics::gauge!(name, labels.clone());
        let family = |name, key| Family::new(name, labels.clone(), key);
        Self {
            requests: counter(REQUESTS),
            verdicts: family(VERDICTS, "verdict"),
            latency: metrics::histogram!(LATENCY, labels.clone()),
            head_lag: gauge(HEAD_LAG),
            in_use: gauge(IN_USE),
            breaker_changes: family(BREAKER_CHANGES, "to"),
            identity_changes: family(IDENTITY_CHANGES, "to"),
            unclassified: counter(UNCLASSIFIED),
            strays: counter(STRAYS),
        }
    }
}

/// The handles of one pool.
pub(crate) struct PoolMeter {
    pub(crate) failovers: Family,
    pub(crate) sticky_moves: Counter,
    pub(crate) second_opinions: Counter,
    pub(crate) graces: Family,
    pub(crate) frontier_lag: Histogram,
    pub(crate) waits: Counter,
    pub(crate) regressions: Counter,
    pub(crate) contradictions: Counter,
    pub(crate) log_splits: Counter,
    pub(crate) bloom_doubts: Counter,
    pub(crate) hedges: Family,
}

impl PoolMeter {
    pub(crate) fn new(chain_id: u64) -> Self {
        let labels = vec![chain(chain_id)];
        let counter = |name| metrics::counter!(name, labels.clone());
        let family = |name, key| Family::new(name, labels.clone(), key);
        Self {
            failovers: family(FAILOVERS, "reason"),
            sticky_moves: counter(STICKY_MOVES),
            second_opinions: counter(SECOND_OPINIONS),
            graces: family(GRACES, "outcome"),
            frontier_lag: metrics::histogram!(FRONTIER_LAG, labels.clone()),
            waits: counter(WAITS),
            regressions: counter(REGRESSIONS),
            contradictions: counter(CONTRADICTIONS),
            log_splits: counter(LOG_SPLITS),
            bloom_doubts: counter(BLOOM_DOUBTS),
            hedges: family(HEDGES, "outcome"),
        }
    }
}

fn chain(chain_id: u64) -> Label {
    Label::new("chain", chain_id.to_string())
}

/// Counters of one name that differ in one label. Each is registered when it first counts, so that an endpoint
/// that never faults has no series for its faults.
pub(crate) struct Family {
    name: &'static str,
    labels: Vec<Label>,
    key: &'static str,
    members: [OnceLock<(Box<str>, Counter)>; MEMBERS],
}

/// More than there are verdicts.
const MEMBERS: usize = 48;

impl Family {
    fn new(name: &'static str, labels: Vec<Label>, key: &'static str) -> Self {
        Self { name, labels, key, members: [const { OnceLock::new() }; MEMBERS] }
    }

    /// Counts one more of a value, which must be one of a small set.
    pub(crate) fn count(&self, value: &str) {
        for member in &self.members {
            let (known, counter) = member.get_or_init(|| {
                let mut labels = self.labels.clone();
                labels.push(Label::new(self.key, value.to_owned()));
                (value.into(), metrics::counter!(self.name, labels))
            });
            if **known == *value {
                return counter.increment(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;

    #[test]
    fn the_docs_list_what_there_is() {
        let docs = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md"));
        let rows: Vec<&str> = docs.lines().filter(|line| line.starts_with("| `backstay_")).collect();
        let expected: Vec<String> = METRICS.iter().map(row).collect();
        assert_eq!(rows, expected, "docs/metrics.md should have these rows:\n{}", expected.join("\n"));
    }

    fn row(metric: &Metric) -> String {
        let scope = match metric.scope {
            Scope::Endpoint => "`chain`, `endpoint`",
            Scope::Pool => "`chain`",
        };
        let label = metric.label.map(|label| format!(", `{label}`")).unwrap_or_default();
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        format!("| `{}` | {kind} | {scope}{label} | {} |", metric.name, metric.about)
    }

    #[test]
    fn every_handle_is_of_a_metric_that_is_listed_and_every_metric_has_one() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || {
            describe();
            let endpoint = EndpointMeter::new(1, "own-node");
            let pool = PoolMeter::new(1);
            let EndpointMeter { verdicts, breaker_changes, identity_changes, .. } = &endpoint;
            let PoolMeter { failovers, graces, hedges, .. } = &pool;
            for family in [verdicts, breaker_changes, identity_changes, failovers, graces, hedges] {
                family.count("word");
            }
        });
        let mut found = BTreeSet::new();
        for (key, unit, about, value) in snapshotter.snapshot().into_vec() {
            let kind = match value {
                DebugValue::Counter(_) => MetricKind::Counter,
                DebugValue::Gauge(_) => MetricKind::Gauge,
                DebugValue::Histogram(_) => MetricKind::Histogram,
            };
            let metric = METRICS.into_iter().find(|metric| metric.name == key.key().name());
            let metric = metric.unwrap_or_else(|| panic!("{} is not listed", key.key().name()));
            assert_eq!((kind, unit), (metric.kind, Some(metric.unit)), "{}", metric.name);
            assert_eq!(about.as_deref(), Some(metric.about));
            let labels: Vec<&str> = key.key().labels().map(Label::key).collect();
            let expected = match metric.scope {
                Scope::Endpoint => vec!["chain", "endpoint"],
                Scope::Pool => vec!["chain"],
            };
            assert_eq!(
                labels,
                expected.into_iter().chain(metric.label).collect::<Vec<_>>(),
                "{}",
                metric.name
            );
            assert!(found.insert(metric.name), "{} is there twice", metric.name);
        }
        assert_eq!(found, METRICS.iter().map(|metric| metric.name).collect());
    }

    #[test]
    fn a_family_counts_each_word_by_itself_and_is_bounded() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || {
            let family = Family::new(VERDICTS, Vec::new(), "verdict");
            for word in 0..1000 {
                family.count(&word.to_string());
            }
            family.count("7");
        });
        let counts = snapshotter.snapshot().into_vec();
        assert_eq!(counts.len(), MEMBERS);
        let seven = counts.iter().find(|(key, ..)| key.key().labels().any(|label| label.value() == "7"));
        assert_eq!(seven.map(|(.., value)| value), Some(&DebugValue::Counter(2)));
    }
}
