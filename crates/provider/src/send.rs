//! One signed transaction, with its three outcomes (T3).

use std::sync::{Mutex, PoisonError};

use alloy::{
    primitives::{Bytes, TxHash},
    rpc::json_rpc::{ErrorPayload, ResponsePayload},
};
use backstay_core::{
    EndpointName,
    endpoint::{EndpointId, Need, Resting},
    error::Attempt,
    failure::{RefusalKind, Verdict},
    tx::SendAnswer,
};

use futures::future::BoxFuture;

use crate::{
    endpoints::{CallReport, Log, Shared, attempt, now},
    route::backoff,
    wire::Reply,
};

/// What became of a send.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Submission {
    /// What the endpoints said, taken together.
    pub answer: SendAnswer,
    /// Which endpoint took it, where one said so.
    pub by: Option<EndpointName>,
    /// Whether every endpoint that may be sent to has refused it.
    pub unanimous: bool,
    /// Each call, oldest first.
    pub attempts: Vec<Attempt>,
    /// The node's error, where it was refused.
    pub(crate) refusal: Option<ErrorPayload>,
}

/// Who may be sent to, asked just before.
pub(crate) type Admit<'a> = &'a (dyn Fn(EndpointId) -> BoxFuture<'a, bool> + Send + Sync);

/// To whom bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// To one endpoint after another, until one has taken them.
    First,
    /// To everybody: the first to take them may have lost them since.
    Everybody,
}

/// How long a hash is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// Each endpoint once. The same bytes are sent again afterwards, which does no harm.
    Once,
    /// Again and again until the budget is used up: what follows rests on the answer.
    Budget,
}

impl Shared {
    /// Sends signed bytes to one endpoint after another until one has taken them.
    ///
    /// A send that may have been received is looked up by its hash before the same bytes go anywhere else.
    /// Only endpoints inside `max_lag` are asked, and of those the ones that `admit` lets through: a fork that
    /// lags mines what it is sent.
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
        (prefer, spread): (Option<EndpointId>, Spread),
        admit: Admit<'_>,
        log: Log<'_>,
    ) -> Submission {
        self.opinions().sends(hash);
        let attempts = Mutex::new(Vec::new());
        let log = |report: CallReport| {
            attempts.lock().unwrap_or_else(PoisonError::into_inner).push(attempt(&report));
            if let Some(log) = log {
                log(report);
            }
        };
        let mut tried = Vec::new();
        let mut failed: Option<(EndpointName, &'static str)> = None;
        let mut searched = false;
        let mut said = Said::default();
        let mut by = None;
        let call = self.call("eth_sendRawTransaction", &format!("[\"{raw}\"]"));
        while let Some(started) = self.begin(Need::Send, &call.method, prefer, &tried, Resting::Ask).await {
            let id = started.id;
            tried.push(id);
            if !admit(id).await {
                continue;
            }
            let exchange = self.exchange(started, &[&call], self.config.attempt_timeout, Some(&log)).await;
            let Some(reply) = exchange.replies.into_iter().next() else { continue };
            // Sent to everybody by choice, nobody has failed anybody.
            if let (Some((from, verdict)), Spread::First) = (&failed, spread) {
                self.notice_failover(&call.method, from, &exchange.by, verdict);
            }
            failed = Some((exchange.by, reply.verdict.label()));
            let reply_hash = reply.result().and_then(|hash| serde_json::from_str::<TxHash>(hash).ok());
            if let Some(ResponsePayload::Failure(error)) = reply.payload {
                said.error = Some(error);
            }
            let taken = match &reply.verdict {
                // A hash that is not ours says that it has taken something else.
                Verdict::Answer => reply_hash == Some(hash),
                Verdict::TxRefused(kind) => *kind == RefusalKind::AlreadyKnown,
                Verdict::Reverted(_)
                | Verdict::NotYet
                | Verdict::Missing { .. }
                | Verdict::RateLimited { .. }
                | Verdict::Unsupported
                | Verdict::RangeTooLarge { .. }
                | Verdict::Fault(_)
                | Verdict::WrongIdentity
                | Verdict::Invalid
                | Verdict::Unclassified => false,
            };
            if taken {
                by = by.or(Some(id));
                match spread {
                    Spread::First => break,
                    Spread::Everybody => continue,
                }
            }
            let search = match reply.verdict {
                Verdict::Answer => {
                    said.unknown = true;
                    Search::Once
                }
                Verdict::TxRefused(kind) => {
                    said.refused(kind);
                    if kind == RefusalKind::SenderRateLimit {
                        // The same at every endpoint of the chain.
                        break;
                    }
                    if !doubtful(kind) {
                        continue;
                    }
                    Search::Budget
                }
                // Not looked at: the endpoint would not have it, or could not.
                Verdict::RateLimited { .. } | Verdict::Unsupported | Verdict::WrongIdentity => continue,
                Verdict::Fault(_) if !exchange.sent => continue,
                // Some nodes mine what they answer with a revert, and an error that nobody knows says
                // nothing about the bytes.
                Verdict::Fault(_)
                | Verdict::Reverted(_)
                | Verdict::NotYet
                | Verdict::Missing { .. }
                | Verdict::RangeTooLarge { .. }
                | Verdict::Invalid
                | Verdict::Unclassified => {
                    said.unknown = true;
                    Search::Once
                }
            };
            // The budget is that of the whole submission.
            let search = if searched { Search::Once } else { search };
            searched |= search == Search::Budget;
            if by.is_none() && self.knows(hash, id, search, Some(&log)).await {
                by = Some(id);
                if spread == Spread::First {
                    break;
                }
            }
        }
        Submission {
            answer: if by.is_some() { SendAnswer::Accepted } else { said.answer() },
            by: by.map(|id| self.name(id)),
            attempts: attempts.into_inner().unwrap_or_else(PoisonError::into_inner),
            unanimous: said.refusals >= self.pool().senders(),
            refusal: said.error,
        }
    }

    /// Whether any endpoint knows a transaction by its hash, asked under a time budget of its own: first
    /// the one that may have taken it, then the others.
    async fn knows(&self, hash: TxHash, first: EndpointId, search: Search, log: Log<'_>) -> bool {
        let call = self.call("eth_getTransactionByHash", &format!("[\"{hash}\"]"));
        let until = now() + self.config.lookup_budget;
        for wait in backoff() {
            let mut tried = Vec::new();
            let mut resting = Resting::Ask;
            while let Some(started) =
                self.begin(Need::Current, &call.method, Some(first), &tried, resting).await
            {
                tried.push(started.id);
                let left = until.saturating_duration_since(now()).min(self.config.attempt_timeout);
                if left.is_zero() {
                    return false;
                }
                let exchange = self.exchange(started, &[&call], left, log).await;
                let found = |reply: &Reply| reply.verdict == Verdict::Answer && !reply.is_null();
                if exchange.replies.first().is_some_and(found) {
                    return true;
                }
                if exchange.replies.first().is_some_and(|reply| reply.verdict == Verdict::Answer) {
                    resting = Resting::Leave;
                }
            }
            if search == Search::Once || now() + wait >= until {
                break;
            }
            tokio::time::sleep(wait).await;
        }
        false
    }
}

/// What endpoints said of bytes that none has taken.
#[derive(Default)]
struct Said {
    unknown: bool,
    refused: Option<RefusalKind>,
    refusals: usize,
    error: Option<ErrorPayload>,
}

impl Said {
    /// One refusal that may pass outweighs those that are final.
    fn refused(&mut self, kind: RefusalKind) {
        self.refusals += 1;
        if self.refused.is_none_or(|known| known.is_final()) {
            self.refused = Some(kind);
        }
    }

    /// `Unknown` is never downgraded by a refusal (T0).
    fn answer(&self) -> SendAnswer {
        match (self.unknown, self.refused) {
            (true, _) => SendAnswer::Unknown,
            (false, Some(kind)) => SendAnswer::Refused(kind),
            (false, None) => SendAnswer::NotSent,
        }
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
