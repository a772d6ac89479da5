//! A read, on one endpoint after another.

use std::{sync::atomic::Ordering, time::Duration};

use alloy::rpc::json_rpc::ResponsePayload;
use backstay_core::{
    Delivery, Error, ErrorKind, Retry,
    endpoint::{EndpointId, Need},
    error::Attempt,
    failure::Verdict,
};

use crate::{
    endpoints::{Log, Shared, now},
    gate::{Sends, sends},
    wire::{Call, Reply},
};

/// What the next step is after one reply to a read.
enum Next {
    /// It is the answer.
    Answer,
    /// Another endpoint may know better; this is the answer if none does.
    Keep,
    /// Another endpoint must answer.
    GoOn,
}

/// Why a read found no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// No endpoint is left to ask.
    NobodyLeft,
    /// The operation's time is over.
    Late,
}

impl Shared {
    /// Asks for several calls at once, as one batch, and sends on only the elements that failed (V4). The
    /// results are in the order of the calls.
    pub(crate) async fn route(
        &self,
        calls: &[Call],
        need: Need,
        prefer: Option<EndpointId>,
        log: Log<'_>,
    ) -> Vec<Result<ResponsePayload, Error>> {
        let deadline = now() + self.config.operation_timeout;
        let mut attempts: Vec<Vec<Attempt>> = vec![Vec::new(); calls.len()];
        let mut outcomes: Vec<Option<Result<ResponsePayload, Error>>> = calls.iter().map(|_| None).collect();
        let mut kept: Vec<Option<Reply>> = calls.iter().map(|_| None).collect();
        let mut tried: Vec<EndpointId> = Vec::new();
        loop {
            let open: Vec<usize> = (0..calls.len()).filter(|index| outcomes[*index].is_none()).collect();
            let Some(first) = open.first() else { break };
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                break;
            }
            let Some(started) = self.begin(need, &calls[*first].method, prefer, &tried) else { break };
            if !tried.is_empty() {
                self.failovers.fetch_add(1, Ordering::Relaxed);
            }
            let id = started.id;
            tried.push(id);
            let asked: Vec<&Call> = open.iter().map(|index| &calls[*index]).collect();
            let exchange = self.exchange(started, &asked, self.config.attempt_timeout.min(left), log).await;
            let endpoint = self.name(id);
            for (index, reply) in open.into_iter().zip(exchange.replies) {
                let verdict = reply.verdict.label().to_owned();
                attempts[index].push(Attempt { endpoint: endpoint.clone(), verdict, took: exchange.took });
                match (next(&reply.verdict), reply.payload.clone()) {
                    (Next::Answer, Some(payload)) => outcomes[index] = Some(Ok(payload)),
                    (Next::Keep, Some(_)) => kept[index] = Some(reply),
                    // A send that may have been received is not repeated.
                    (Next::Answer | Next::Keep | Next::GoOn, _)
                        if exchange.sent && sends(&calls[index].method) == Sends::Once =>
                    {
                        let made = std::mem::take(&mut attempts[index]);
                        outcomes[index] = Some(Err(sent_once(&calls[index], made)));
                    }
                    (Next::Answer | Next::Keep | Next::GoOn, _) => {}
                }
            }
        }
        let finish = |(index, outcome): (usize, Option<Result<ResponsePayload, Error>>)| match outcome {
            Some(outcome) => outcome,
            None => match kept[index].take().and_then(|reply| reply.payload) {
                Some(payload) => Ok(payload),
                None => {
                    let end = if deadline <= now() { End::Late } else { End::NobodyLeft };
                    let made = std::mem::take(&mut attempts[index]);
                    Err(self.exhausted(&calls[index].method, need, made, end))
                }
            },
        };
        outcomes.into_iter().enumerate().map(finish).collect()
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

fn next(verdict: &Verdict) -> Next {
    match verdict {
        // Deterministic answers are never retried elsewhere (V2).
        Verdict::Answer
        | Verdict::Reverted(_)
        | Verdict::TxRefused(_)
        | Verdict::Invalid
        | Verdict::RangeTooLarge { .. } => Next::Answer,
        Verdict::NotYet | Verdict::Missing { .. } | Verdict::Unclassified | Verdict::Unsupported => {
            Next::Keep
        }
        Verdict::RateLimited { .. } | Verdict::Fault(_) | Verdict::WrongIdentity => Next::GoOn,
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
