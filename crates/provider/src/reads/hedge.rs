//! Hedging (R10): where an endpoint is slower than it mostly is, another one is asked while the first call is open.

use std::{
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use backstay_core::{
    endpoint::{EndpointId, Pick, Resting},
    failure::Verdict,
    router::{Hedging, ReadDepth, Spent},
};
use futures::future::{Either, select};

use crate::{
    endpoints::{Exchange, Shared, Started, now},
    reads::route::{Journey, Way},
};

/// Whether a read is hedged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hedged {
    /// Where the config says so.
    AsConfigured,
    /// It is.
    Always,
    /// It is not.
    Never,
}

impl Shared {
    /// What is known for hedging, from now on.
    pub(crate) fn hedging(&self) -> MutexGuard<'_, Hedging> {
        let begin = || Mutex::new(Hedging::new(self.config.read.hedge.unwrap_or_default()));
        self.hedging.get_or_init(begin).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long this call to an endpoint may take before another one is asked; `None` where it is not hedged.
    pub(crate) fn hedge_after(
        &self,
        id: EndpointId,
        journey: &Journey<'_>,
        hedged: Hedged,
    ) -> Option<Option<Duration>> {
        match hedged {
            Hedged::Never => return None,
            Hedged::AsConfigured => self.config.read.hedge.is_some().then_some(())?,
            Hedged::Always => {}
        }
        // What one endpoint lacks in the deep, the next one lacks as well, mostly.
        let fit = may_be_hedged(&journey.call.method) && journey.read.depth() != ReadDepth::Deep;
        fit.then(|| self.hedging().begin(id))
    }

    /// Asks the endpoint that was picked, and another one when `delay` is over and there is a hedge to spend. The first
    /// answer counts; the other call is abandoned, and nothing is learned from it.
    pub(crate) async fn hedge(
        &self,
        pick: Pick,
        (delay, timeout): (Option<Duration>, Duration),
        journey: &Journey<'_>,
        way: Way<'_>,
    ) -> (EndpointId, Exchange) {
        let begun = now();
        let calls = [journey.call];
        let mut first = pin!(self.exchange(self.started(pick), &calls, timeout, way.log));
        let alone = |exchange: Exchange| {
            if exchange.replies.first().is_some_and(|reply| reply.verdict == Verdict::Answer) {
                self.hedging().took(pick.id, exchange.took);
            }
            (pick.id, exchange)
        };
        let lost = |exchange: Exchange| {
            self.meter.hedges.count("lost");
            alone(exchange)
        };
        let Some(delay) = delay else { return alone(first.await) };
        if let Either::Left((exchange, _)) = select(&mut first, pin!(tokio::time::sleep(delay))).await {
            return alone(exchange);
        }
        let Some(hedge) = self.second(pick.id, journey, way) else { return alone(first.await) };
        // Shorter than an attempt: that it does not answer by then is not held against it.
        let left = timeout.min(self.config.attempt_timeout.saturating_sub(Duration::from_millis(1)));
        let second = hedge.id;
        let hedge = pin!(self.exchange(hedge, &calls, left, way.log));
        match select(&mut first, hedge).await {
            Either::Left((exchange, _)) => lost(exchange),
            Either::Right((exchange, _)) if exchange.replies.first().is_some_and(settles) => {
                tracing::debug!(method = %journey.call.method, by = %exchange.by, "a hedge was faster");
                self.meter.hedges.count("won");
                // It takes at least this long.
                self.hedging().took(pick.id, now().saturating_duration_since(begun));
                (second, exchange)
            }
            Either::Right(_) => lost(first.await),
        }
    }

    /// The endpoint to hedge with, where one is well and there is a hedge to spend.
    fn second(&self, first: EndpointId, journey: &Journey<'_>, way: Way<'_>) -> Option<Started<'_>> {
        if self.hedging().spend() == Spent::Nothing {
            return None;
        }
        let mut tried = journey.read.tried().to_vec();
        tried.push(first);
        let need = journey.read.need();
        let second = {
            let mut pool = self.pool();
            let pick = pool.begin(need, &journey.call.method, way.prefer, &tried, Resting::Leave, now());
            // A probe is for a call whose end is told.
            pick.and_then(|pick| match pick.probe {
                true => {
                    pool.abandon(pick, now());
                    None
                }
                false => Some(pick),
            })
        };
        if second.is_none() {
            self.hedging().give_back();
        }
        second.map(|pick| self.begun_aside(pick))
    }
}

/// Whether a hedge's reply ends the read. A miss does not: the first endpoint may have it.
fn settles(reply: &crate::link::wire::Reply) -> bool {
    match &reply.verdict {
        Verdict::Answer => !reply.is_null(),
        Verdict::Reverted(_) => true,
        Verdict::NotYet
        | Verdict::Missing { .. }
        | Verdict::TxRefused(_)
        | Verdict::RateLimited { .. }
        | Verdict::Unsupported
        | Verdict::RangeTooLarge { .. }
        | Verdict::Fault(_)
        | Verdict::WrongIdentity
        | Verdict::Invalid
        | Verdict::Unclassified => false,
    }
}

/// By name: reads that change nothing at the endpoint and that any of them can answer. What is not known here is not
/// hedged.
fn may_be_hedged(method: &str) -> bool {
    match method {
        "eth_call"
        | "eth_estimateGas"
        | "eth_createAccessList"
        | "eth_simulateV1"
        | "eth_blockNumber"
        | "eth_chainId"
        | "eth_gasPrice"
        | "eth_maxPriorityFeePerGas"
        | "eth_blobBaseFee"
        | "eth_feeHistory" => true,
        "eth_getWork" => false,
        other => other.starts_with("eth_get") && !other.contains("Filter"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sends_and_what_one_endpoint_alone_can_answer_is_not_hedged() {
        let check = |method, expected| assert_eq!(may_be_hedged(method), expected, "{method}");
        check("eth_call", true);
        check("eth_getBalance", true);
        check("eth_getLogs", true);
        check("eth_sendRawTransaction", false);
        check("eth_getFilterChanges", false);
        check("eth_getFilterLogs", false);
        check("eth_getWork", false);
        check("eth_newFilter", false);
        check("evm_mine", false);
        check("debug_traceCall", false);
    }
}
