//! A read, on one endpoint after another.

use std::time::Duration;

use alloy::rpc::json_rpc::ResponsePayload;
use backstay_core::{
    Delivery, EndpointName, Error, ErrorKind, Retry,
    endpoint::{EndpointId, Need},
    error::Attempt,
    router::{Done, Null, Read, Step, Told, asks},
};
use futures::future::join_all;

use crate::{
    endpoints::{Log, Shared, now},
    gate::{Sends, sends},
    wire::{Call, Reply},
};

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

impl Shared {
    /// Asks for several calls at once. They go out as one batch; those that are not answered there go on, each by
    /// itself (V4). The results are in the order of the calls.
    pub(crate) async fn route(
        &self,
        calls: &[Call],
        need: Need,
        prefer: Option<EndpointId>,
        log: Log<'_>,
    ) -> Vec<Result<ResponsePayload, Error>> {
        if let [call] = calls {
            return vec![self.travel(Journey::new(self, call, need, prefer), log).await];
        }
        let mut journeys: Vec<Journey<'_>> =
            calls.iter().map(|call| Journey::new(self, call, need, prefer)).collect();
        self.together(&mut journeys, log).await;
        let mut answers = Vec::with_capacity(journeys.len());
        let mut open = journeys.into_iter();
        loop {
            let some: Vec<_> = open.by_ref().take(AT_ONCE).map(|journey| self.travel(journey, log)).collect();
            if some.is_empty() {
                return answers;
            }
            answers.extend(join_all(some).await);
        }
    }

    /// Sends calls as one batch to whoever the first would go to: those that this endpoint may serve.
    async fn together(&self, journeys: &mut [Journey<'_>], log: Log<'_>) {
        let Some((first, others)) = journeys.split_first_mut() else { return };
        let Step::Ask(pick, timeout) = first.read.next(&mut self.pool(), now()) else { return };
        let mut batch = vec![first];
        for other in others {
            if self.pool().may_serve(pick.id, other.read.need()) {
                other.read.asked(pick.id);
                batch.push(other);
            }
        }
        let calls: Vec<&Call> = batch.iter().map(|journey| journey.call).collect();
        let exchange = self.exchange(self.started(pick), &calls, timeout, log).await;
        for (journey, reply) in batch.into_iter().zip(exchange.replies) {
            journey.told(self, pick.id, &exchange.by, reply, (exchange.sent, exchange.took));
        }
    }

    /// Takes one call to its end.
    async fn travel(&self, mut journey: Journey<'_>, log: Log<'_>) -> Result<ResponsePayload, Error> {
        loop {
            if let Some(answer) = journey.answer.take() {
                return answer;
            }
            let step = journey.read.next(&mut self.pool(), now());
            match step {
                Step::Ask(pick, timeout) => {
                    let exchange = self.exchange(self.started(pick), &[journey.call], timeout, log).await;
                    if let Some(last) = journey.attempts.last().filter(|last| last.endpoint != exchange.by) {
                        let method = &journey.call.method;
                        self.notice_failover(method, &last.endpoint, &exchange.by, &last.verdict);
                    }
                    if let Some(reply) = exchange.replies.into_iter().next() {
                        journey.told(self, pick.id, &exchange.by, reply, (exchange.sent, exchange.took));
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

/// One call on its way.
struct Journey<'a> {
    call: &'a Call,
    need: Need,
    read: Read,
    attempts: Vec<Attempt>,
    kept: Option<ResponsePayload>,
    answer: Option<Result<ResponsePayload, Error>>,
}

impl<'a> Journey<'a> {
    fn new(shared: &Shared, call: &'a Call, need: Need, prefer: Option<EndpointId>) -> Self {
        let config = &shared.config;
        let asks = asks(&call.method, || call.param_list(), &config.shapes);
        let times = (config.attempt_timeout, config.operation_timeout);
        let method = call.method.clone();
        let read = Read::new(&shared.pool(), method, asks, need, prefer, &config.read, times, now());
        Self { call, need, read, attempts: Vec::new(), kept: None, answer: None }
    }

    fn told(
        &mut self,
        shared: &Shared,
        id: EndpointId,
        endpoint: &EndpointName,
        reply: Reply,
        (sent, took): (bool, Duration),
    ) {
        let null = if reply.is_null() { Null::Yes } else { Null::No };
        let told = self.read.told(&mut shared.pool(), id, &reply.verdict, null, now());
        if told != Told::Answer || reply.payload.is_none() {
            let verdict = reply.verdict.label().to_owned();
            self.attempts.push(Attempt { endpoint: endpoint.clone(), verdict, took });
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

    fn end(mut self, shared: &Shared, done: Done) -> Result<ResponsePayload, Error> {
        let attempts = std::mem::take(&mut self.attempts);
        match (done, self.kept) {
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
