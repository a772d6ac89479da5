//! A read, on one endpoint after another.

use std::time::{Duration, Instant};

use alloy::rpc::json_rpc::ResponsePayload;
use backstay_core::{
    Delivery, EndpointName, Error, ErrorKind, Retry,
    endpoint::{EndpointId, Need},
    error::Attempt,
    failure::Verdict,
    router::{Asks, Done, Holding, Read, Step, Told, asks},
};
use futures::future::join_all;

use crate::{
    endpoints::{Log, Shared, now},
    link::wire::{Call, Reply},
    reads::filters::FilterCall,
    reads::hedge::Hedged,
    reads::logs::LogQuery,
    sends::gate::{Sends, sends},
};

/// How a reply is looked at before it is believed.
#[derive(Clone, Copy)]
pub(crate) enum Look<'a> {
    /// As it is.
    AtIt,
    /// As logs.
    Logs(&'a LogQuery),
    /// As what a contract returns.
    Returned,
}

/// How many elements of a batch go on by themselves at once.
const AT_ONCE: usize = 16;

/// Why a read found no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// No endpoint is left to ask.
    NobodyLeft,
    /// The operation's time is over.
    Late,
}

/// How calls travel.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) need: Need,
    pub(crate) prefer: Option<EndpointId>,
    pub(crate) hedged: Hedged,
    pub(crate) log: Log<'a>,
}

impl<'a> Way<'a> {
    /// A read that must be current.
    pub(crate) const fn current(hedged: Hedged) -> Self {
        Self { need: Need::Current, prefer: None, hedged, log: None }
    }

    /// Something that sends.
    pub(crate) const fn send() -> Self {
        Self { need: Need::Send, prefer: None, hedged: Hedged::Never, log: None }
    }

    /// A read of a session, at its pin.
    pub(crate) const fn pinned(pin: EndpointId, log: Log<'a>) -> Self {
        Self { need: Need::Current, prefer: Some(pin), hedged: Hedged::Never, log }
    }
}

impl Shared {
    /// Asks for several calls at once. They go out as one batch; those that are not answered there go on, each by
    /// itself (V4). The results are in the order of the calls.
    pub(crate) async fn route(&self, calls: &[Call], way: Way<'_>) -> Vec<Result<ResponsePayload, Error>> {
        if let [call] = calls {
            return vec![self.one(call, way).await];
        }
        let until = now() + self.config.operation_timeout;
        let plain = |call| match Special::of(call) {
            Special::No | Special::Height => Some(Journey::plain(self, call, way)),
            Special::Logs | Special::Filter(_) | Special::Stream => None,
        };
        let mut journeys: Vec<Option<Journey<'_>>> = calls.iter().map(plain).collect();
        self.together(journeys.iter_mut().flatten().collect(), way).await;
        let mut answers = Vec::with_capacity(journeys.len());
        let mut open = calls.iter().zip(journeys);
        loop {
            let go_on = async |(call, journey): (&Call, Option<Journey<'_>>)| match journey {
                Some(journey) => self.plainly(journey, way).await,
                None => self.in_time(call, way, until).await,
            };
            let some: Vec<_> = open.by_ref().take(AT_ONCE).map(go_on).collect();
            if some.is_empty() {
                return answers;
            }
            answers.extend(join_all(some).await);
        }
    }

    async fn one(&self, call: &Call, way: Way<'_>) -> Result<ResponsePayload, Error> {
        match Special::of(call) {
            // It is several questions, each of which may take its time.
            Special::Filter(_) => self.in_time(call, way, now() + self.config.operation_timeout).await,
            Special::No | Special::Height | Special::Logs | Special::Stream => {
                self.by_its_way(call, way).await
            }
        }
    }

    /// One deadline covers it all (R8), whatever it comes to.
    async fn in_time(&self, call: &Call, way: Way<'_>, until: Instant) -> Result<ResponsePayload, Error> {
        let left = until.saturating_duration_since(now());
        let late = |_| Err(self.exhausted(&call.method, way.need, Vec::new(), End::Late));
        tokio::time::timeout(left, self.by_its_way(call, way)).await.unwrap_or_else(late)
    }

    async fn by_its_way(&self, call: &Call, way: Way<'_>) -> Result<ResponsePayload, Error> {
        match Special::of(call) {
            Special::No | Special::Height => self.plainly(Journey::plain(self, call, way), way).await,
            Special::Logs => Box::pin(self.logs(call, way)).await,
            Special::Filter(asked) => Box::pin(self.filters(asked, call, way)).await,
            Special::Stream => Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{}: streams are not served over several endpoints; poll with `watch_blocks`, `watch_logs` or \
                     `watch_pending_transactions`, which live on when an endpoint dies",
                    call.method
                ),
            )),
        }
    }

    async fn plainly(&self, mut journey: Journey<'_>, way: Way<'_>) -> Result<ResponsePayload, Error> {
        let payload = self.travel(&mut journey, way).await?;
        match Special::of(journey.call) {
            Special::Height => self.no_lower(journey.call, (payload, journey.by), way).await,
            Special::No | Special::Logs | Special::Filter(_) | Special::Stream => Ok(payload),
        }
    }

    /// Asks for one call, and says who answered.
    pub(crate) async fn ask(
        &self,
        call: &Call,
        way: Way<'_>,
    ) -> Result<(ResponsePayload, Option<EndpointId>), Error> {
        let mut journey = Journey::plain(self, call, way);
        let payload = self.travel(&mut journey, way).await?;
        Ok((payload, journey.by))
    }

    /// Sends calls as one batch to whoever the first would go to: those that this endpoint may serve.
    async fn together(&self, mut journeys: Vec<&mut Journey<'_>>, way: Way<'_>) {
        if journeys.len() < 2 {
            return;
        }
        let first = journeys.remove(0);
        let Step::Ask(pick, timeout) = first.read.next(&mut self.pool(), now()) else { return };
        let mut batch = vec![first];
        for other in journeys {
            if self.pool().may_serve(pick.id, other.read.need()) {
                other.read.asked(pick.id);
                batch.push(other);
            }
        }
        let calls: Vec<&Call> = batch.iter().map(|journey| journey.call).collect();
        let exchange = self.exchange(self.started(pick), &calls, timeout, way.log).await;
        for (journey, reply) in batch.into_iter().zip(exchange.replies) {
            journey.receive(self, pick.id, &exchange.by, reply, (exchange.sent, exchange.took)).await;
        }
    }

    /// Takes one call to its end.
    pub(crate) async fn travel(
        &self,
        journey: &mut Journey<'_>,
        way: Way<'_>,
    ) -> Result<ResponsePayload, Error> {
        loop {
            if let Some(answer) = journey.answer.take() {
                return answer;
            }
            let step = journey.read.next(&mut self.pool(), now());
            match step {
                Step::Ask(pick, timeout) => {
                    let (id, exchange) = match self.hedge_after(pick.id, journey, way.hedged) {
                        None => {
                            let started = self.started(pick);
                            (pick.id, self.exchange(started, &[journey.call], timeout, way.log).await)
                        }
                        Some(delay) => Box::pin(self.hedge(pick, (delay, timeout), journey, way)).await,
                    };
                    if let Some(last) = journey.attempts.last().filter(|last| last.endpoint != exchange.by) {
                        let method = &journey.call.method;
                        self.notice_failover(method, &last.endpoint, &exchange.by, &last.verdict);
                    }
                    if let Some(reply) = exchange.replies.into_iter().next() {
                        journey.receive(self, id, &exchange.by, reply, (exchange.sent, exchange.took)).await;
                    }
                }
                Step::Wait(wait) => {
                    self.meter.waits.increment(1);
                    tokio::time::sleep(wait).await;
                }
                Step::Done(done) => return journey.end(self, done),
            }
        }
    }

    /// The error when no endpoint is left.
    pub(crate) fn exhausted(&self, method: &str, need: Need, attempts: Vec<Attempt>, end: End) -> Error {
        let excluded = {
            let pool = self.pool();
            let reason = |id: EndpointId| {
                let name = &pool.get(id).name;
                let tried = attempts.iter().any(|attempt| attempt.endpoint == *name);
                let reason = pool.excluded(id, need, now()).filter(|_| !tried)?;
                Some(format!("{name}: {reason}"))
            };
            pool.ids().filter_map(reason).collect::<Vec<_>>()
        };
        let all =
            |label: &str| !attempts.is_empty() && attempts.iter().all(|attempt| attempt.verdict == label);
        let (kind, why) = if end == End::Late {
            (ErrorKind::Timeout, format!("no answer within {:?}", self.config.operation_timeout))
        } else if all("rate limited") {
            (ErrorKind::RateLimited, "every endpoint asks us to wait".to_owned())
        } else if all("unsupported") {
            (ErrorKind::Unsupported, "no endpoint serves this method".to_owned())
        } else if attempts.is_empty() {
            (ErrorKind::Unavailable, "no endpoint can be asked".to_owned())
        } else {
            (ErrorKind::Unavailable, "every endpoint failed".to_owned())
        };
        let retry = if kind == ErrorKind::Unsupported { Retry::Never } else { Retry::Later };
        let passed_over =
            if excluded.is_empty() { String::new() } else { format!("; not asked: {}", excluded.join(", ")) };
        Error::new(kind, format!("{method}: {why}{passed_over}")).with_retry(retry).with_attempts(attempts)
    }
}

/// What goes another way than from endpoint to endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// Nothing does.
    No,
    /// Its reply carries the height of the head.
    Height,
    /// It is asked for piece by piece.
    Logs,
    /// It is asked at the endpoint that has the filter.
    Filter(FilterCall),
    /// It is not asked at all.
    Stream,
}

impl Special {
    fn of(call: &Call) -> Self {
        match &*call.method {
            "eth_blockNumber" => Self::Height,
            "eth_getBlockByNumber" | "eth_getHeaderByNumber" if call.names_latest() => Self::Height,
            "eth_getLogs" => Self::Logs,
            "eth_newFilter" => Self::Filter(FilterCall::NewLogs),
            "eth_newBlockFilter" => Self::Filter(FilterCall::NewBlocks),
            "eth_newPendingTransactionFilter" => Self::Filter(FilterCall::NewPending),
            "eth_getFilterChanges" => Self::Filter(FilterCall::Changes),
            "eth_getFilterLogs" => Self::Filter(FilterCall::Logs),
            "eth_uninstallFilter" => Self::Filter(FilterCall::Uninstall),
            "eth_subscribe" | "eth_unsubscribe" => Self::Stream,
            _ => Self::No,
        }
    }
}

/// One call on its way.
pub(crate) struct Journey<'a> {
    pub(crate) call: &'a Call,
    pub(crate) read: Read,
    /// Whose reply was the answer.
    pub(crate) by: Option<EndpointId>,
    /// That the answer was that the range is too large, and which would work.
    pub(crate) too_large: Option<Option<(u64, u64)>>,
    need: Need,
    look: Look<'a>,
    attempts: Vec<Attempt>,
    kept: Option<ResponsePayload>,
    answer: Option<Result<ResponsePayload, Error>>,
    /// The first endpoint that showed no contract there, and what that comes to.
    no_code: Option<(EndpointId, Error)>,
}

impl<'a> Journey<'a> {
    fn plain(shared: &Shared, call: &'a Call, way: Way<'_>) -> Self {
        let shapes = &shared.config.shapes;
        let asks = match call.ends_at_latest() && !shapes.contains_key(&*call.method) {
            true => Asks::Current,
            false => asks(&call.method, || call.param_list(), shapes),
        };
        let look = if call.method == "eth_call" { Look::Returned } else { Look::AtIt };
        Self::new(shared, (call, asks, look), way, shared.config.operation_timeout)
    }

    /// A call that asks for this, whose replies are looked at so, and that may take this long.
    pub(crate) fn new(
        shared: &Shared,
        (call, asks, look): (&'a Call, Asks, Look<'a>),
        way: Way<'_>,
        at_most: Duration,
    ) -> Self {
        let config = &shared.config;
        let times = (config.attempt_timeout, at_most);
        let method = call.method.clone();
        let read = Read::new(&shared.pool(), method, asks, way.need, way.prefer, &config.read, times, now());
        Self {
            call,
            read,
            by: None,
            too_large: None,
            need: way.need,
            look,
            attempts: Vec::new(),
            kept: None,
            answer: None,
            no_code: None,
        }
    }

    /// Looks at a reply, and tells the read what it holds.
    async fn receive(
        &mut self,
        shared: &Shared,
        id: EndpointId,
        endpoint: &EndpointName,
        reply: Reply,
        times: (bool, Duration),
    ) {
        let (reply, holding) = match self.look {
            Look::AtIt | Look::Returned if reply.is_null() => (reply, Holding::Nothing),
            Look::AtIt => (reply, Holding::All),
            Look::Logs(query) if reply.verdict == Verdict::Answer => {
                Box::pin(shared.examine_logs(query, id, self.read.depth(), reply)).await
            }
            Look::Returned if reply.verdict == Verdict::Answer && reply.result() == Some("\"0x\"") => {
                let Some(error) = Box::pin(shared.examine_call(self.call, id, &reply)).await else {
                    return self.told(shared, (id, endpoint), reply, Holding::All, times);
                };
                let other = |other: EndpointId| other != id && shared.pool().may_serve(other, self.need);
                let ids: Vec<EndpointId> = shared.pool().ids().collect();
                let alone = !ids.into_iter().any(other);
                // One that is merely behind has no code either: a second one decides.
                if alone || self.no_code.as_ref().is_some_and(|(first, _)| *first != id) {
                    self.answer = Some(Err(error));
                    return;
                }
                self.no_code = Some((id, error));
                (reply, Holding::Doubtful)
            }
            Look::Logs(_) | Look::Returned => (reply, Holding::All),
        };
        self.told(shared, (id, endpoint), reply, holding, times);
    }

    fn told(
        &mut self,
        shared: &Shared,
        (id, endpoint): (EndpointId, &EndpointName),
        reply: Reply,
        holding: Holding,
        (sent, took): (bool, Duration),
    ) {
        let told = self.read.told(&mut shared.pool(), id, &reply.verdict, holding, now());
        if told != Told::Answer || reply.payload.is_none() {
            let verdict = reply.verdict.label().to_owned();
            self.attempts.push(Attempt { endpoint: endpoint.clone(), verdict, took });
        }
        if told == Told::Answer {
            self.by = Some(id);
            if let Some(since) = self.read.waiting_since() {
                shared.meter.graces.count("came");
                shared.meter.frontier_lag.record(now().saturating_duration_since(since));
            }
            if let Verdict::RangeTooLarge { hint } = reply.verdict {
                self.too_large = Some(hint);
            }
        }
        match (told, reply.payload) {
            (Told::Answer, Some(payload)) => {
                if self.read.second_opinions() > 0 {
                    shared.meter.second_opinions.increment(1);
                    tracing::info!(method = %self.call.method, by = %endpoint, "an endpoint holds what others do not");
                }
                self.answer = Some(Ok(payload));
            }
            // A send that may have been received is not repeated.
            (Told::Answer | Told::Keep | Told::Drop, _)
                if sent && sends(&self.call.method) == Sends::Once =>
            {
                self.answer = Some(Err(sent_once(self.call, std::mem::take(&mut self.attempts))));
            }
            (Told::Keep, Some(payload)) => self.kept = Some(payload),
            (Told::Answer | Told::Keep | Told::Drop, _) => {}
        }
    }

    fn end(&mut self, shared: &Shared, done: Done) -> Result<ResponsePayload, Error> {
        if self.read.waiting_since().is_some() {
            // The end of a grace is no fault and no missed deadline.
            shared.meter.graces.count("ended");
        }
        if let Some((_, error)) = self.no_code.take_if(|_| done == Done::Kept) {
            return Err(error);
        }
        let attempts = std::mem::take(&mut self.attempts);
        match (done, self.kept.take()) {
            (Done::Pruned { height, oldest }, _) => {
                let held = oldest.map_or_else(String::new, |oldest| format!("; the lowest held is {oldest}"));
                let message =
                    format!("{}: no endpoint holds block {height} any more{held}", self.call.method);
                Err(Error::new(ErrorKind::Pruned { height, oldest }, message).with_attempts(attempts))
            }
            (Done::Kept | Done::Answered, Some(payload)) => Ok(payload),
            (Done::Late, _) => Err(shared.exhausted(&self.call.method, self.need, attempts, End::Late)),
            (Done::Kept | Done::Answered | Done::NobodyLeft, _) => {
                Err(shared.exhausted(&self.call.method, self.need, attempts, End::NobodyLeft))
            }
        }
    }
}

fn sent_once(call: &Call, attempts: Vec<Attempt>) -> Error {
    let message = format!(
        "{}: the reply was lost; it may have been taken, so it was not sent again; look for it on chain first",
        call.method
    );
    Error::new(ErrorKind::Unavailable, message).with_delivery(Delivery::Unknown).with_attempts(attempts)
}

/// Waits between rounds over all endpoints: 20 ms, doubling to a second.
pub(crate) fn backoff() -> impl Iterator<Item = Duration> {
    use backon::BackoffBuilder;
    backon::ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(Duration::from_secs(1))
        .with_factor(2.0)
        .without_max_times()
        .build()
}
