//! The pool: every call to an endpoint goes through here.

mod connect;
pub(crate) mod notice;
mod probe;
mod roster;
pub(crate) mod track;

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use alloy::{
    primitives::{Address, B256},
    rpc::json_rpc::Id,
};
use backstay_core::{
    BlockRef, EndpointName, Result,
    endpoint::{EndpointId, Header, Need, Phase, Pick, Pool, PoolStatus, Probes, Resting, Role},
    error::Attempt,
    failure::{Classifier, FaultKind, Verdict, Wordings},
    router::{Filters, Hedging, Mark, Opinions},
};
use tokio::{sync::Notify, task::AbortHandle};

use crate::{
    config::{EndpointConfig, ProviderConfig},
    endpoints::notice::Seldom,
    link::http::{self, Connector},
    link::wire::{Call, Reply},
    link::{Left, Link},
    meter::{self, PoolMeter},
    reads::filters::Shelf,
};

/// The endpoints of one chain, identified and tracked.
///
/// A cheap handle. The head tracker ends when the last handle is dropped.
#[derive(Clone)]
pub struct Endpoints {
    pub(crate) shared: Arc<Shared>,
    /// Ends the tracker with the last handle. The tracker itself holds only `shared`.
    _tracker: Arc<Tracker>,
}

pub(crate) struct Shared {
    pub(crate) chain_id: u64,
    pub(crate) config: ProviderConfig,
    pub(crate) classifier: Classifier,
    /// Errors that no row knows, as they were told.
    pub(crate) wordings: Mutex<Wordings>,
    pub(crate) managed: RwLock<HashSet<Address>>,
    pub(crate) failovers: AtomicU64,
    filters: Mutex<Filters<Shelf>>,
    pub(crate) mark: Mutex<Mark>,
    pub(crate) opinions: Mutex<Opinions>,
    /// How fast endpoints answer; nothing while no read is hedged.
    pub(crate) hedging: OnceLock<Mutex<Hedging>>,
    /// The hash of block 0, once it is agreed on; `None` inside when no endpoint holds it.
    pub(crate) genesis: OnceLock<Option<B256>>,
    pool: Mutex<Pool>,
    /// The way to each endpoint, by its id; `None` where it was removed. Taken with the pool's lock held, never the
    /// other way round.
    pub(crate) links: RwLock<Vec<Option<Arc<Link>>>>,
    /// Makes connections to those that are added.
    pub(crate) connector: Connector,
    /// Told when endpoints come or go.
    pub(crate) roster: Arc<Notify>,
    /// What is asked of the past, and was.
    pub(crate) probes: Mutex<Probes>,
    /// Told when an endpoint is to be asked.
    pub(crate) probes_due: Arc<Notify>,
    pub(crate) meter: PoolMeter,
    /// The endpoint that was last seen to serve.
    pub(crate) sticky: AtomicUsize,
    /// When a move was last told of.
    pub(crate) moves_told: Seldom,
    ids: AtomicU64,
}

struct Tracker(AbortHandle);

impl Drop for Tracker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One call to one endpoint, as it is logged.
#[derive(Clone, Debug)]
pub(crate) struct CallReport {
    pub(crate) endpoint: EndpointName,
    pub(crate) method: String,
    pub(crate) verdict: String,
    pub(crate) took: Duration,
}

/// Where calls are logged: a session's trail, or nowhere.
pub(crate) type Log<'a> = Option<&'a (dyn Fn(CallReport) + Send + Sync)>;

/// What an endpoint said to some calls, in their order.
pub(crate) struct Exchange {
    pub(crate) replies: Vec<Reply>,
    /// Whether bytes may have reached the endpoint.
    pub(crate) sent: bool,
    pub(crate) took: Duration,
    /// Which endpoint.
    pub(crate) by: EndpointName,
}

impl Endpoints {
    pub(crate) fn new(shared: Arc<Shared>, tracker: AbortHandle) -> Self {
        Self { shared, _tracker: Arc::new(Tracker(tracker)) }
    }

    /// The chain id.
    pub fn chain_id(&self) -> u64 {
        self.shared.chain_id
    }

    /// How they are used.
    pub fn config(&self) -> &ProviderConfig {
        &self.shared.config
    }

    /// A snapshot of the pool and every endpoint.
    pub fn status(&self) -> PoolStatus {
        self.shared.pool().status(now())
    }

    /// The highest head of an identified endpoint.
    pub fn frontier(&self) -> Option<Header> {
        self.shared.pool().frontier()
    }

    /// The chain's block time, configured or measured.
    pub fn block_time(&self) -> Duration {
        self.shared.pool().block_time()
    }

    /// How many calls went on to a second endpoint, or further, because the one before it failed them.
    pub fn failovers(&self) -> u64 {
        self.shared.failovers.load(Ordering::Relaxed)
    }

    /// Takes an account under management: what it sends must go through the client's nonce line, and raw sends
    /// for it are refused from here on.
    pub fn manage(&self, account: Address) {
        self.shared.managed.write().unwrap_or_else(PoisonError::into_inner).insert(account);
    }

    /// What the endpoints other than the one that reported it say of a block (T8): from the tracked heads where
    /// they show it, else asked for.
    pub async fn corroborate(&self, block: BlockRef, by: Option<&EndpointName>) -> Corroboration {
        let groups: [Vec<EndpointId>; 2] = {
            let pool = self.shared.pool();
            let first = pool.ids().find(|id| by == Some(&pool.get(*id).name));
            if pool.corroborations(block, first) > 0 {
                return Corroboration::Shown;
            }
            let other = |id: &EndpointId| {
                Some(*id) != first && pool.get(*id).is_well() && pool.get(*id).role() != Role::Private
            };
            let resting = pool.resting(Need::Current, now());
            let (resting, awake) = pool.ids().filter(other).partition(|id| resting.contains(id));
            [awake, resting]
        };
        let mut found = Corroboration::Alone;
        for group in groups {
            // One that rests might hang: it is asked only when nobody else speaks.
            if found != Corroboration::Alone {
                break;
            }
            for id in group {
                match self.shared.header(id, &format!("\"0x{:x}\"", block.number)).await {
                    Ok(Some(header)) if header.hash == block.hash => return Corroboration::Shown,
                    Ok(Some(header)) => found = Corroboration::Contradicted(header.block()),
                    // It cannot be reached at all.
                    Err(Verdict::Fault(FaultKind::Refused | FaultKind::Tls)) => {}
                    // It is there, and may show it in a moment.
                    Ok(None) | Err(_) if found == Corroboration::Alone => found = Corroboration::Absent,
                    Ok(None) | Err(_) => {}
                }
            }
        }
        found
    }
}

/// What other endpoints say of a block that one has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corroboration {
    /// One shows it as canonical.
    Shown,
    /// None has come that far.
    Absent,
    /// One shows another block at that height, and none shows this one.
    Contradicted(BlockRef),
    /// There is no other endpoint that is well and can be reached.
    Alone,
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = self.shared.pool();
        let names: Vec<_> = pool.ids().map(|id| pool.get(id).name.clone()).collect();
        f.debug_struct("Endpoints")
            .field("chain_id", &self.shared.chain_id)
            .field("endpoints", &names)
            .finish()
    }
}

impl Shared {
    pub(crate) fn new(chain_id: u64, endpoints: &[EndpointConfig], config: ProviderConfig) -> Result<Self> {
        config.validate()?;
        roster::check(endpoints)?;
        meter::describe();
        let connector = http::connector();
        let link = |endpoint| Ok(Some(Arc::new(Link::new(&connector, chain_id, endpoint)?)));
        let links = endpoints.iter().map(link).collect::<Result<_>>()?;
        let members = endpoints.iter().map(EndpointConfig::member);
        let hedging = OnceLock::new();
        if let Some(hedge) = config.read.hedge {
            let _ = hedging.set(Mutex::new(Hedging::new(hedge)));
        }
        Ok(Self {
            chain_id,
            hedging,
            pool: Mutex::new(Pool::new(config.pool, (seed(), chain_id), members)),
            mark: Mutex::default(),
            opinions: Mutex::default(),
            // Below 2^53, which some clients take for the largest number.
            filters: Mutex::new(Filters::new(seed() >> 12)),
            classifier: config.classifier()?,
            wordings: Mutex::default(),
            config,
            managed: RwLock::default(),
            failovers: AtomicU64::new(0),
            genesis: OnceLock::new(),
            links: RwLock::new(links),
            roster: Arc::default(),
            probes: Mutex::default(),
            probes_due: Arc::default(),
            connector,
            meter: PoolMeter::new(chain_id),
            sticky: AtomicUsize::new(0),
            moves_told: Seldom::default(),
            ids: AtomicU64::new(0),
        })
    }

    /// The decisions' state. Locked to ask or to tell, never across an await.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The filters of this client.
    pub(crate) fn filters_open(&self) -> MutexGuard<'_, Filters<Shelf>> {
        self.filters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request of our own.
    pub(crate) fn call(&self, method: impl Into<std::borrow::Cow<'static, str>>, params: &str) -> Call {
        Call::new(Id::Number(self.ids.fetch_add(1, Ordering::Relaxed)), method, params)
    }

    pub(crate) fn name(&self, id: EndpointId) -> EndpointName {
        self.pool().get(id).name.clone()
    }

    /// Chooses the endpoint for the next try. It must be given to [`Shared::exchange`]. Where all that are left have
    /// used up their budget, it waits for one, at most an attempt's time (E10).
    pub(crate) async fn begin(
        &self,
        need: Need,
        method: &str,
        prefer: Option<EndpointId>,
        tried: &[EndpointId],
        resting: Resting,
    ) -> Option<Started<'_>> {
        let until = now() + self.config.attempt_timeout;
        loop {
            let wait = {
                let mut pool = self.pool();
                match pool.begin(need, method, prefer, tried, resting, now()) {
                    Some(pick) => {
                        drop(pool);
                        return Some(self.started(pick));
                    }
                    None => pool.wait(need, tried, resting, now())?,
                }
            };
            if now() + wait >= until {
                return None;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// A call that the pool has admitted.
    pub(crate) fn started(&self, pick: Pick) -> Started<'_> {
        if pick.probe {
            self.notice_breaker(pick.id, &self.name(pick.id), Phase::Open, Phase::HalfOpen);
        }
        Started { shared: self, pick: Some(pick), id: pick.id, lesson: Lesson::Health, tracking: None }
    }

    /// Admits a call of the tracker.
    pub(crate) fn begin_tracking(&self, id: EndpointId) -> Option<Started<'_>> {
        let now = now();
        let pick = self.pool().begin_tracking(id, now)?;
        let mut started = self.started(pick);
        started.tracking = Some(now);
        Some(started)
    }

    /// Admits a call to this very endpoint, such as a second question about its own answer.
    pub(crate) fn begin_at(&self, id: EndpointId) -> Started<'_> {
        let pick = self.pool().begin_at(id, now());
        self.started(pick)
    }

    /// A call that the pool has admitted and that nothing is learned from.
    pub(crate) fn begun_aside(&self, pick: Pick) -> Started<'_> {
        Started { shared: self, pick: Some(pick), id: pick.id, lesson: Lesson::None, tracking: None }
    }

    /// Sends calls to the endpoint that was chosen, and tells the pool how it went.
    ///
    /// # Cancel safety
    ///
    /// Dropping it abandons the call and frees the breaker's probe; the request may have been received.
    pub(crate) async fn exchange(
        &self,
        mut started: Started<'_>,
        calls: &[&Call],
        timeout: Duration,
        log: Log<'_>,
    ) -> Exchange {
        let begun = now();
        let id = started.id;
        let Some(link) = self.link(id) else {
            // It was removed meanwhile, and nothing has left.
            started.abandon();
            let replies = calls.iter().map(|_| Reply::fault(FaultKind::Refused)).collect();
            return Exchange { replies, sent: false, took: Duration::ZERO, by: self.name(id) };
        };
        link.meter.requests.increment(1);
        if let Some(more @ 1..) = u32::try_from(calls.len()).ok().and_then(|calls| calls.checked_sub(1)) {
            self.pool().charge(id, more, now());
        }
        let left = Left::default();
        let mut unheard = false;
        let answered = tokio::time::timeout(timeout, link.ask(self, calls, &left)).await;
        let (replies, sent) = match answered {
            Ok(Ok(answered)) => answered,
            Ok(Err(broken)) => (calls.iter().map(|_| Reply::fault(broken.kind)).collect(), broken.sent),
            Err(_) => {
                // One that had nearly all its time had it: a read may take no longer than one attempt.
                if timeout < self.config.attempt_timeout.mul_f64(0.9) {
                    // We cut it short: that it did not answer by then is not held against it.
                    started.abandon();
                } else {
                    unheard = true;
                }
                (calls.iter().map(|_| Reply::fault(FaultKind::Timeout)).collect(), left.maybe())
            }
        };
        let took = now().saturating_duration_since(begun);
        link.meter.latency.record(took);
        let name = started.end(calls, &replies);
        if unheard {
            self.pool().unheard(id, begun);
        }
        for (call, reply) in calls.iter().zip(&replies) {
            link.meter.verdicts.count(reply.verdict.label());
            if reply.verdict == Verdict::Unclassified {
                self.notice_unclassified(id, &name, reply);
            }
            let verdict = if reply.is_null() { "null" } else { reply.verdict.label() };
            tracing::debug!(endpoint = %name, method = %call.method, verdict, took_ms = took.as_millis(), "call");
            if let Some(log) = log {
                let (endpoint, method) = (name.clone(), call.method.to_string());
                log(CallReport { endpoint, method, verdict: verdict.to_owned(), took });
            }
        }
        Exchange { replies, sent, took, by: name }
    }

    /// The header of a block at one endpoint, by number or tag (JSON text). Counts as tracking.
    pub(crate) async fn header(&self, id: EndpointId, block: &str) -> Result<Option<Header>, Verdict> {
        let call = self.call("eth_getBlockByNumber", &format!("[{block},false]"));
        let reply = self.track(id, &call).await?;
        match reply.result().map(crate::endpoints::track::parse_header) {
            Some(Ok(header)) => Ok(header),
            Some(Err(_)) | None => Err(Verdict::Fault(FaultKind::NotJson)),
        }
    }

    /// One call of the tracker to one endpoint.
    pub(crate) async fn track(&self, id: EndpointId, call: &Call) -> Result<Reply, Verdict> {
        let Some(started) = self.begin_tracking(id) else { return Err(Verdict::Fault(FaultKind::Refused)) };
        let timeout = self.config.attempt_timeout;
        let reply = self.exchange(started, &[call], timeout, None).await.replies.remove(0);
        match reply.verdict {
            Verdict::Answer => Ok(reply),
            other => Err(other),
        }
    }
}

/// An admitted call. Dropped before it ends, it is abandoned: a probe frees its place.
pub(crate) struct Started<'a> {
    shared: &'a Shared,
    pick: Option<Pick>,
    pub(crate) id: EndpointId,
    lesson: Lesson,
    /// When it began, where it is the tracker's.
    tracking: Option<Instant>,
}

/// What is learned of an endpoint from how a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lesson {
    /// How it is.
    Health,
    /// Nothing, except that it asks us to wait.
    None,
}

impl Started<'_> {
    fn abandon(&mut self) {
        if let Some(pick) = self.pick.take() {
            let (name, before, after) = {
                let mut pool = self.shared.pool();
                let before = pool.get(pick.id).phase();
                match self.tracking {
                    Some(begun) => pool.abandon_tracking(pick, begun, now()),
                    None => pool.abandon(pick, now()),
                }
                let endpoint = pool.get(pick.id);
                (endpoint.name.clone(), before, endpoint.phase())
            };
            self.shared.notice_breaker(pick.id, &name, before, after);
        }
    }

    fn end(&mut self, calls: &[&Call], replies: &[Reply]) -> EndpointName {
        let mut pool = self.shared.pool();
        let before = pool.get(self.id).phase();
        // One exchange counts once, by the worst of its replies.
        let worst = calls.iter().zip(replies).max_by_key(|(_, reply)| weight(&reply.verdict));
        if let (Some(pick), Some((call, reply))) = (self.pick, worst) {
            self.pick = None;
            // That a tag is not served says nothing about the method.
            let verdict = match &reply.verdict {
                Verdict::Unsupported if call.names_tag() => &Verdict::Invalid,
                other => other,
            };
            match (self.lesson, verdict) {
                (Lesson::Health, _) | (Lesson::None, Verdict::RateLimited { .. }) => {
                    pool.end(pick, &call.method, verdict, now());
                }
                (Lesson::None, _) => pool.abandon(pick, now()),
            }
        }
        let endpoint = pool.get(self.id);
        let (name, after, sticky) = (endpoint.name.clone(), endpoint.phase(), pool.sticky());
        drop(pool);
        self.shared.notice_breaker(self.id, &name, before, after);
        self.shared.notice_sticky(sticky);
        if let Some((_, reply)) = worst {
            self.shared.notice_rest(self.id, &name, &reply.verdict);
        }
        name
    }
}

/// How much a verdict says about the endpoint.
const fn weight(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::WrongIdentity => 4,
        Verdict::Fault(_) => 3,
        Verdict::RateLimited { .. } => 2,
        Verdict::Unsupported => 1,
        Verdict::Answer
        | Verdict::Reverted(_)
        | Verdict::NotYet
        | Verdict::Missing { .. }
        | Verdict::TxRefused(_)
        | Verdict::RangeTooLarge { .. }
        | Verdict::Invalid
        | Verdict::Unclassified => 0,
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// An attempt, as errors list it.
pub(crate) fn attempt(report: &CallReport) -> Attempt {
    Attempt { endpoint: report.endpoint.clone(), verdict: report.verdict.clone(), took: report.took }
}

/// The monotonic clock that decisions are given.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time of day, that the times in headers are held against.
pub(crate) fn time_of_day() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Something that differs from process to process, to keep their probes apart.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
