//! One signed transaction, with its three outcomes (T3).

use std::sync::Mutex;

use alloy::{
    primitives::{Bytes, TxHash},
    rpc::json_rpc::{ErrorPayload, ResponsePayload},
};
use backstay_core::{
    EndpointName,
    endpoint::{EndpointId, Need},
    error::Attempt,
    failure::{RefusalKind, Verdict},
    tx::SendAnswer,
};

use crate::endpoints::{CallReport, Log, Shared, attempt, now};

/// What became of a send.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Submission {
    /// What the endpoints said, taken together.
    pub answer: SendAnswer,
    /// Which endpoint took it, where one said so.
    pub by: Option<EndpointName>,
    /// Each call, oldest first.
    pub attempts: Vec<Attempt>,
    /// The node's error, where it was refused.
    pub(crate) refusal: Option<ErrorPayload>,
}

impl Shared {
    /// Sends signed bytes to one endpoint after another until one has taken them.
    ///
    /// A send that may have been received is looked up by its hash before the same bytes go anywhere else.
    /// Only endpoints inside `max_lag` are asked: a fork that lags mines what it is sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping it stops asking; the bytes may be out.
    ///
    /// # Replay safety
    ///
    /// The same bytes can be sent again at any time: they hold one nonce.
    pub(crate) async fn submit(
        &self,
        raw: &Bytes,
        hash: TxHash,
        prefer: Option<EndpointId>,
        log: Log<'_>,
    ) -> Submission {
        let attempts = Mutex::new(Vec::new());
        let log = |report: CallReport| {
            attempts.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(attempt(&report));
            log(report);
        };
        let mut tried = Vec::new();
        let mut answer = SendAnswer::NotSent;
        let mut refusal = None;
        let mut by = None;
        let call = self.call("eth_sendRawTransaction", &format!("[\"{raw}\"]"));
        while let Some(started) = self.begin(Need::Send, &call.method, prefer, &tried) {
            let id = started.id;
            tried.push(id);
            let exchange = self.exchange(started, &[&call], self.config.attempt_timeout, &log).await;
            let Some(reply) = exchange.replies.into_iter().next() else { continue };
            match reply.verdict {
                Verdict::Answer | Verdict::TxRefused(RefusalKind::AlreadyKnown) => {
                    answer = SendAnswer::Accepted;
                    by = Some(id);
                    break;
                }
                Verdict::TxRefused(kind) => {
                    // These very bytes may be what used the nonce, or what is in the pool already.
                    if doubtful(kind) && self.knows(hash, id, &log).await {
                        answer = SendAnswer::Accepted;
                        by = Some(id);
                        break;
                    }
                    // `Unknown` is never downgraded by a later refusal (T0).
                    if matches!(answer, SendAnswer::NotSent | SendAnswer::Refused(_)) {
                        answer = SendAnswer::Refused(kind);
                    }
                    if let Some(ResponsePayload::Failure(error)) = reply.payload {
                        refusal = Some(error);
                    }
                    if kind == RefusalKind::SenderRateLimit {
                        break;
                    }
                }
                // Not looked at: the endpoint would not have it, or could not.
                Verdict::RateLimited { .. } | Verdict::Unsupported | Verdict::WrongIdentity => {}
                Verdict::Fault(_) if !exchange.sent => {}
                // Some nodes mine what they answer with a revert, and an error that nobody knows says
                // nothing about the bytes.
                Verdict::Fault(_)
                | Verdict::Reverted(_)
                | Verdict::NotYet
                | Verdict::Missing { .. }
                | Verdict::RangeTooLarge { .. }
                | Verdict::Invalid
                | Verdict::Unclassified
                | _ => {
                    answer = SendAnswer::Unknown;
                    if let Some(ResponsePayload::Failure(error)) = reply.payload {
                        refusal = Some(error);
                    }
                    if self.knows(hash, id, &log).await {
                        answer = SendAnswer::Accepted;
                        by = Some(id);
                        break;
                    }
                }
            }
        }
        if tried.len() > 1 {
            self.failovers.fetch_add(tried.len() as u64 - 1, std::sync::atomic::Ordering::Relaxed);
        }
        let by = by.map(|id| self.name(id));
        let attempts = attempts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Submission { answer, by, attempts, refusal }
    }

    /// Whether any endpoint knows a transaction by its hash, asked under a time budget of its own: first
    /// the one that may have taken it, then the others.
    async fn knows(&self, hash: TxHash, first: EndpointId, log: Log<'_>) -> bool {
        let call = self.call("eth_getTransactionByHash", &format!("[\"{hash}\"]"));
        let until = now() + self.config.lookup_budget;
        let mut tried = Vec::new();
        while let Some(started) = self.begin(Need::Current, &call.method, Some(first), &tried) {
            tried.push(started.id);
            let left = until.saturating_duration_since(now()).min(self.config.attempt_timeout);
            if left.is_zero() {
                return false;
            }
            let exchange = self.exchange(started, &[&call], left, log).await;
            let found = |reply: &crate::wire::Reply| reply.verdict == Verdict::Answer && !reply.is_null();
            if exchange.replies.first().is_some_and(found) {
                return true;
            }
        }
        false
    }
}

/// Refusals that bytes meet when they are out already.
const fn doubtful(kind: RefusalKind) -> bool {
    matches!(
        kind,
        RefusalKind::NonceTooLow
            | RefusalKind::ReplacementUnderpriced
            | RefusalKind::Underpriced
            | RefusalKind::FeeAboveNodeCap
    )
}
