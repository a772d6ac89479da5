//! One signed transaction, with its three outcomes (T3).

pub(crate) mod gate;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use alloy::{
    primitives::{Bytes, TxHash},
    rpc::json_rpc::{ErrorPayload, ResponsePayload},
};
use backstay_core::{
    EndpointName,
    endpoint::{EndpointId, Need, Resting, Role},
    error::Attempt,
    failure::{RefusalKind, Verdict},
    tx::SendAnswer,
};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};

use crate::{
    endpoints::{CallReport, Exchange, Log, Shared, attempt, now},
    link::wire::{Call, Reply},
    reads::route::backoff,
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
    /// To all that are healthy, at once.
    AllHealthy,
    /// To everybody: the first to take them may have lost them since.
    Everybody,
}

/// How long the others are heard once one has taken the bytes that all were sent.
const STRAGGLERS: Duration = Duration::from_millis(500);

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
        let call = self.call("eth_sendRawTransaction", &format!("[\"{raw}\"]"));
        let mut tried = Vec::new();
        let mut said = Said::default();
        if spread == Spread::AllHealthy {
            self.broadcast(&call, hash, (prefer, &mut tried), admit, &mut said, &log).await;
        }
        // Those that rest come last, as for any send.
        while said.goes_on(spread)
            && let Some(started) = self.begin(Need::Send, &call.method, prefer, &tried, Resting::Ask).await
        {
            let id = started.id;
            tried.push(id);
            if !admit(id).await {
                continue;
            }
            let exchange = self.exchange(started, &[&call], self.config.attempt_timeout, Some(&log)).await;
            // Sent to everybody by choice, nobody has failed anybody.
            if let (Some((from, verdict)), Spread::First) = (&said.last, spread) {
                self.notice_failover(&call.method, from, &exchange.by, verdict);
            }
            let Some(search) = said.hear(id, hash, exchange) else { continue };
            // The budget is that of the whole submission.
            let search = if said.searched { Search::Once } else { search };
            said.searched |= search == Search::Budget;
            if said.by.is_none() && self.knows(hash, id, search, Some(&log)).await {
                said.by = Some(id);
            }
        }
        if said.by.is_some() && said.refused_for_good {
            self.meter.contradictions.increment(1);
            tracing::debug!(%hash, "one endpoint accepted what another refused for good");
        }
        Submission {
            answer: if said.by.is_some() { SendAnswer::Accepted } else { said.answer() },
            by: said.by.map(|id| self.name(id)),
            attempts: attempts.into_inner().unwrap_or_else(PoisonError::into_inner),
            unanimous: said.refusals >= self.pool().senders(),
            refusal: said.error,
        }
    }

    /// Sends the same bytes to every healthy endpoint at once, and hears them until one has taken them and the
    /// others have had [`STRAGGLERS`] (T4). Where one is private, only those that are.
    ///
    /// A slow acceptance beats a fast error. What one says of bytes that another may have taken by then proves
    /// nothing against them, so a doubtful refusal is looked up at the end, when nobody took them.
    async fn broadcast(
        &self,
        call: &Call,
        hash: TxHash,
        (prefer, tried): (Option<EndpointId>, &mut Vec<EndpointId>),
        admit: Admit<'_>,
        said: &mut Said,
        log: &(dyn Fn(CallReport) + Send + Sync),
    ) {
        let mut wave = Vec::new();
        let mut role = None;
        loop {
            // One whose budget is used up is not waited for.
            let pick = self.pool().begin(Need::Send, &call.method, prefer, tried, Resting::Leave, now());
            let Some(pick) = pick else { break };
            let started = self.started(pick);
            let own = self.pool().get(started.id).role();
            if *role.get_or_insert(own) == Role::Private && own != Role::Private {
                break;
            }
            tried.push(started.id);
            wave.push(started);
        }
        let mut open: FuturesUnordered<_> = wave
            .into_iter()
            .map(async |started| {
                let id = started.id;
                if !admit(id).await {
                    return None;
                }
                let timeout = self.config.attempt_timeout;
                Some((id, self.exchange(started, &[call], timeout, Some(log)).await))
            })
            .collect();
        let mut until = None;
        let mut search = None;
        loop {
            let next = match until {
                None => open.next().await,
                Some(until) => tokio::time::timeout_at(until, open.next()).await.unwrap_or_default(),
            };
            let Some(heard) = next else { break };
            let Some((id, exchange)) = heard else { continue };
            search = said.hear(id, hash, exchange).map(|search| (id, search)).or(search);
            if said.by.is_some() {
                until.get_or_insert(tokio::time::Instant::now() + STRAGGLERS);
            }
        }
        drop(open);
        if let (None, Some((id, search))) = (said.by, search) {
            said.searched = search == Search::Budget;
            if self.knows(hash, id, search, Some(log)).await {
                said.by = Some(id);
            }
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

/// What endpoints said of bytes.
#[derive(Default)]
struct Said {
    /// Who has them.
    by: Option<EndpointId>,
    unknown: bool,
    refused: Option<RefusalKind>,
    refused_for_good: bool,
    refusals: usize,
    /// Whether the same holds at every endpoint of the chain, so that no more is asked.
    over: bool,
    /// Whether the budget to look for them is used up.
    searched: bool,
    /// Who spoke last, and what.
    last: Option<(EndpointName, &'static str)>,
    error: Option<ErrorPayload>,
}

impl Said {
    /// Whether a further endpoint is asked.
    fn goes_on(&self, spread: Spread) -> bool {
        !self.over && (self.by.is_none() || spread == Spread::Everybody)
    }

    /// Notes what one endpoint said. The bytes are looked for where it is not clear what became of them.
    fn hear(&mut self, id: EndpointId, hash: TxHash, exchange: Exchange) -> Option<Search> {
        let Exchange { replies, sent, by, .. } = exchange;
        let reply = replies.into_iter().next()?;
        self.last = Some((by, reply.verdict.label()));
        // A hash that is not ours says that it has taken something else.
        let named = reply.result().and_then(|named| serde_json::from_str::<TxHash>(named).ok());
        if let Some(ResponsePayload::Failure(error)) = reply.payload {
            self.error = Some(error);
        }
        match reply.verdict {
            Verdict::Answer if named == Some(hash) => {
                self.by = self.by.or(Some(id));
                None
            }
            Verdict::TxRefused(RefusalKind::AlreadyKnown) => {
                self.by = self.by.or(Some(id));
                None
            }
            Verdict::TxRefused(kind) => {
                self.refused(kind);
                self.over |= kind == RefusalKind::SenderRateLimit;
                doubtful(kind).then_some(Search::Budget)
            }
            // Not looked at: the endpoint would not have it, or could not.
            Verdict::RateLimited { .. } | Verdict::Unsupported | Verdict::WrongIdentity => None,
            Verdict::Fault(_) if !sent => None,
            // Some nodes mine what they answer with a revert, and an error that nobody knows says nothing about
            // the bytes.
            Verdict::Answer
            | Verdict::Fault(_)
            | Verdict::Reverted(_)
            | Verdict::NotYet
            | Verdict::Missing { .. }
            | Verdict::RangeTooLarge { .. }
            | Verdict::Invalid
            | Verdict::Unclassified => {
                self.unknown = true;
                Some(Search::Once)
            }
        }
    }

    /// One refusal that may pass outweighs those that are final.
    fn refused(&mut self, kind: RefusalKind) {
        self.refusals += 1;
        self.refused_for_good |= kind.is_final();
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
