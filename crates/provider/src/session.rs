//! A line of dependent reads and writes (S). The fence is the safety; the pin is locality.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use alloy::{
    primitives::{B256, Bytes, TxHash, U64},
    providers::{Network, RootProvider},
    rpc::{client::RpcClient, json_rpc::ResponsePayload},
};
use backstay_core::{
    BlockRef, EndpointName, Error, ErrorKind, Result, Retry,
    endpoint::{EndpointId, Need, Resting},
    error::Attempt,
    failure::Verdict,
    session::{Event, Fenced, Trail, What, fence},
    tx::Inclusion,
};
use futures::future::BoxFuture;
use serde::Deserialize;

use crate::{
    endpoints::track::parse_header,
    endpoints::{CallReport, Endpoints, Started, attempt, now},
    link::wire::{Call, Reply, known, verdict_of},
    reads::route::{End, Way, backoff},
    sends::{Spread, Submission},
    transport::SessionTransport,
};

/// How often a question about a receipt is asked again at once: a load balancer may have handed it to a
/// replica that is a block behind.
const TRIES: usize = 3;

const RECEIPT: &str = "eth_getTransactionReceipt";

/// A session over the pool: pinned to one endpoint, fenced at a block, with a trail of what it did.
///
/// A cheap handle; clones are the same session.
#[derive(Clone)]
pub struct Session {
    endpoints: Endpoints,
    begun: Instant,
    state: Arc<Mutex<State>>,
}

struct State {
    pin: EndpointId,
    /// Nothing below this block is believed. Reads are asked at it.
    fence: BlockRef,
    step: String,
    /// Since when the pin has lacked the fence.
    lacking_since: Option<Instant>,
    trail: Trail,
}

/// A receipt, and who served it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundReceipt {
    /// What it says.
    pub inclusion: Inclusion,
    /// The endpoint that served it.
    pub by: EndpointName,
    id: EndpointId,
}

/// How far a receipt is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// At the pin; elsewhere only when the pin does not answer.
    Pin,
    /// Everywhere.
    Everywhere,
}

impl Session {
    /// Begins a session at the highest block that the client knows of, or at `fence` where that is higher:
    /// never at what the pin itself calls its latest.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] when no endpoint can be pinned.
    pub fn begin(endpoints: &Endpoints, fence: Option<BlockRef>) -> Result<Self> {
        let shared = &endpoints.shared;
        let (pin, frontier) = {
            let mut pool = shared.pool();
            (pool.favourite(now()), pool.frontier())
        };
        let unavailable = || shared.exhausted("session", Need::Current, Vec::new(), End::NobodyLeft);
        let pin = pin.ok_or_else(unavailable)?;
        let frontier = frontier.map(|head| head.block());
        let fence = match (frontier, fence) {
            (Some(frontier), Some(fence)) if fence.number > frontier.number => fence,
            (Some(frontier), _) => frontier,
            (None, Some(fence)) => fence,
            (None, None) => return Err(unavailable()),
        };
        let state = State { pin, fence, step: String::new(), lacking_since: None, trail: Trail::default() };
        let session = Self { endpoints: endpoints.clone(), begun: now(), state: Arc::new(Mutex::new(state)) };
        session.note(What::Pinned { from: None, to: shared.name(pin), why: "the preferred endpoint".into() });
        session.note(What::Fenced { block: fence });
        Ok(session)
    }

    /// The endpoints that it runs over.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The block that reads are asked at. Nothing below it is believed.
    pub fn fence(&self) -> BlockRef {
        self.lock().fence
    }

    /// The endpoint that it is pinned to.
    pub fn pin(&self) -> EndpointName {
        let pin = self.lock().pin;
        self.endpoints.shared.name(pin)
    }

    /// What it did so far.
    pub fn trail(&self) -> Trail {
        self.lock().trail.clone()
    }

    /// Begins a step: names it in the trail, and raises the fence to the newest block that the pin has
    /// shown, so that all reads of the step see one block. The pin's head counts only if its block at the
    /// fence is the fence.
    pub async fn step(&self, label: impl Into<String>) -> BlockRef {
        let (pin, fence) = {
            let mut state = self.lock();
            state.step = label.into();
            (state.pin, state.fence)
        };
        let newest = {
            let pool = self.endpoints.shared.pool();
            let endpoint = pool.get(pin);
            endpoint.head().filter(|head| endpoint.is_well() && head.number > fence.number)
        };
        if let Some(head) = newest
            && self.holds_fence(pin, fence).await
        {
            let mut state = self.lock();
            if head.number > state.fence.number {
                state.fence = head.block();
            }
        }
        self.fence()
    }

    /// Whether an endpoint's block at the fence's number is the fence: by what the tracker has seen, else by
    /// asking. An endpoint that cannot show it is not sent to, and its receipts do not count: a fork would
    /// mine what it is sent, and serve the receipt.
    async fn holds_fence(&self, id: EndpointId, fence: BlockRef) -> bool {
        let shared = &self.endpoints.shared;
        let seen = shared.pool().get(id).hash_at(fence.number);
        if let Some(hash) = seen {
            return hash == fence.hash;
        }
        let call = shared.call("eth_getBlockByNumber", &format!("[\"0x{:x}\",false]", fence.number));
        let log = |report: CallReport| self.report(report, Some(fence.number));
        let timeout = shared.config.attempt_timeout;
        let exchange = shared.exchange(shared.begin_at(id), &[&call], timeout, Some(&log)).await;
        let header = exchange.replies.first().and_then(Reply::result).map(parse_header);
        header.and_then(Result::ok).flatten().is_some_and(|header| header.hash == fence.hash)
    }

    /// Adds a line to the trail.
    pub fn note(&self, what: What) {
        let mut state = self.lock();
        let event = Event { at: now().saturating_duration_since(self.begun), step: state.step.clone(), what };
        state.trail.push(event);
    }

    /// Raises the fence to a block that what follows depends on, such as one with another transaction of the account.
    pub fn raise(&self, block: BlockRef) {
        let mut state = self.lock();
        if block.number > state.fence.number {
            state.fence = block;
            drop(state);
            self.note(What::Fenced { block });
        }
    }

    /// Raises the fence to a block that holds a transaction of this session, and pins the session to the
    /// endpoint that served its receipt (S2).
    pub fn carry(&self, receipt: &FoundReceipt) {
        let block = receipt.inclusion.block;
        let raised = {
            let mut state = self.lock();
            let raised = block.number > state.fence.number;
            if raised {
                state.fence = block;
            }
            raised
        };
        self.move_pin(receipt.id, "it served the receipt");
        if raised {
            self.note(What::Fenced { block });
        }
    }

    /// An alloy provider whose reads are fenced here. It cannot send.
    ///
    /// # Errors of its calls
    ///
    /// [`ErrorKind::UnfencedMethod`] for methods that read state in a way that cannot be fenced, and for
    /// sends; [`ErrorKind::SessionLost`] when no endpoint proves the fence before the operation's deadline.
    pub fn provider<N: Network>(&self) -> RootProvider<N> {
        RootProvider::new(RpcClient::new(SessionTransport::new(self.clone()), true))
    }

    /// One read, fenced. `params` is a JSON array. The result is the JSON text of the answer, or the
    /// node's JSON-RPC error.
    ///
    /// # Errors
    ///
    /// As for [`Session::provider`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it stops asking; nothing else happens.
    pub async fn read(&self, method: &'static str, params: &str) -> Result<Result<String, Verdict>> {
        let call = self.endpoints.shared.call(method, params);
        let (verdict, payload) = self.answer(&call).await?;
        match payload {
            ResponsePayload::Success(result) => Ok(Ok(result.get().to_owned())),
            ResponsePayload::Failure(_) => Ok(Err(verdict)),
        }
    }

    pub(crate) async fn answer(&self, call: &Call) -> Result<(Verdict, ResponsePayload)> {
        let view = self.fence();
        let fenced = fence(&call.method, call.params(), view)
            .map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        match fenced {
            Fenced::Free => {
                let pin = self.lock().pin;
                let one = std::slice::from_ref(call);
                let log = |report: CallReport| self.report(report, None);
                let shared = &self.endpoints.shared;
                let payload = shared.route(one, Way::pinned(pin, Some(&log))).await.remove(0)?;
                Ok((verdict_of(&call.method, &payload, &shared.classifier), payload))
            }
            Fenced::Known(json) => Ok((Verdict::Answer, known(json))),
            Fenced::Refused => Err(Error::new(
                ErrorKind::UnfencedMethod { method: call.method.to_string() },
                format!(
                    "{} cannot be fenced at the session's block, so it was not asked; read with a method that \
                     takes a block (logs by block hash), and leave sending to the intent",
                    call.method
                ),
            )),
            Fenced::At { method, params, null_is_lag } => {
                let method = method.map_or_else(|| call.method.clone(), std::borrow::Cow::Borrowed);
                let call = Call::new(call.id.clone(), method, &params);
                self.fenced(&call, view, null_is_lag).await
            }
        }
    }

    /// Asks at the view until somebody proves that it has it. An endpoint that has not is never believed,
    /// and never at fault.
    async fn fenced(
        &self,
        call: &Call,
        view: BlockRef,
        null_is_lag: bool,
    ) -> Result<(Verdict, ResponsePayload)> {
        let shared = &self.endpoints.shared;
        let need = Need::AtHeight(view.number);
        let deadline = now() + shared.config.operation_timeout;
        let attempts = Mutex::new(Vec::new());
        let log = |report: CallReport| {
            attempts.lock().unwrap_or_else(PoisonError::into_inner).push(attempt(&report));
            self.report(report, Some(view.number));
        };
        for wait in backoff() {
            let mut tried = Vec::new();
            let mut asked_pin_again = false;
            let mut somebody_lags = false;
            let mut resting = Resting::Ask;
            let mut kept = None;
            let pin = self.lock().pin;
            while let Some(started) = shared.begin(need, &call.method, Some(pin), &tried, resting).await {
                let left = deadline.saturating_duration_since(now());
                if left.is_zero() {
                    break;
                }
                let id = started.id;
                tried.push(id);
                let timeout = shared.config.attempt_timeout.min(left);
                let exchange = shared.exchange(started, &[call], timeout, Some(&log)).await;
                let Some(reply) = exchange.replies.into_iter().next() else { continue };
                match judge(reply, null_is_lag) {
                    Judged::Answer(verdict, payload) => {
                        if matches!(verdict, Verdict::Answer | Verdict::Reverted(_)) {
                            self.proved(id, view);
                        }
                        return Ok((verdict, payload));
                    }
                    Judged::Lag => {
                        somebody_lags = true;
                        resting = Resting::Leave;
                        if id == pin && !asked_pin_again {
                            // Another replica behind the same URL may have it.
                            asked_pin_again = true;
                            tried.pop();
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        if id == pin {
                            self.lock().lacking_since.get_or_insert_with(now);
                        }
                    }
                    Judged::Keep(verdict, payload) => kept = Some((verdict, payload)),
                    Judged::GoOn => {}
                }
            }
            // One that lags may have a better answer in a moment.
            if let Some(kept) = kept.filter(|_| !somebody_lags) {
                return Ok(kept);
            }
            if deadline <= now() + wait {
                break;
            }
            tokio::time::sleep(wait).await;
        }
        let attempts = attempts.into_inner().unwrap_or_else(PoisonError::into_inner);
        Err(self.lost(&call.method, view, attempts))
    }

    /// Sends signed bytes, at the pin first, and only where the session's fence is shown.
    ///
    /// # Cancel safety
    ///
    /// Dropping it stops asking; the bytes may be out.
    pub async fn submit(&self, raw: &Bytes, hash: TxHash, spread: Spread) -> Submission {
        let (pin, fence) = {
            let state = self.lock();
            (state.pin, state.fence)
        };
        let admit = |id| Box::pin(self.holds_fence(id, fence)) as BoxFuture<'_, bool>;
        let log = |report: CallReport| self.report(report, None);
        self.endpoints.shared.submit(raw, hash, (Some(pin), spread), &admit, Some(&log)).await
    }

    /// Looks for the receipt of a transaction: at the pin, then as far as `reach` says. It counts only when the
    /// same endpoint shows the fence, and shows the block at that number with that hash, listing the
    /// transaction; it is then read once more (S5).
    ///
    /// `None` when nobody has it: the transaction may be pending, or its block not yet served.
    pub async fn receipt(&self, hash: TxHash, reach: Reach) -> Option<FoundReceipt> {
        let shared = &self.endpoints.shared;
        let (pin, fence) = {
            let state = self.lock();
            (state.pin, state.fence)
        };
        let mut tried = Vec::new();
        let mut resting = Resting::Ask;
        while let Some(started) = shared.begin(Need::Current, RECEIPT, Some(pin), &tried, resting).await {
            let id = started.id;
            tried.push(id);
            let (verdict, found) = self.receipt_at(started, hash).await;
            if verdict == Verdict::Answer {
                resting = Resting::Leave;
            }
            if reach == Reach::Pin && id == pin && verdict == Verdict::Answer && found.is_none() {
                return None;
            }
            let Some(inclusion) = found else { continue };
            if self.holds_fence(id, fence).await
                && self.lists(id, &inclusion).await
                && self.repeats(id, &inclusion).await
            {
                return Some(FoundReceipt { inclusion, by: shared.name(id), id });
            }
        }
        None
    }

    /// Whether an endpoint serves the same receipt once more: that of a preconfirmation may change.
    async fn repeats(&self, id: EndpointId, inclusion: &Inclusion) -> bool {
        for wait in backoff().take(TRIES) {
            let started = self.endpoints.shared.begin_at(id);
            if let Some(again) = self.receipt_at(started, inclusion.hash).await.1 {
                return again == *inclusion;
            }
            tokio::time::sleep(wait).await;
        }
        false
    }

    async fn receipt_at(&self, started: Started<'_>, hash: TxHash) -> (Verdict, Option<Inclusion>) {
        let shared = &self.endpoints.shared;
        let call = shared.call(RECEIPT, &format!("[\"{hash}\"]"));
        let log = |report: CallReport| self.report(report, None);
        let exchange = shared.exchange(started, &[&call], shared.config.attempt_timeout, Some(&log)).await;
        match exchange.replies.into_iter().next() {
            Some(reply) => (reply.verdict.clone(), parse_receipt(&reply, hash)),
            None => (Verdict::Unclassified, None),
        }
    }

    /// Whether an endpoint shows the receipt's block as canonical, with the transaction in it.
    async fn lists(&self, id: EndpointId, inclusion: &Inclusion) -> bool {
        let shared = &self.endpoints.shared;
        let call =
            shared.call("eth_getBlockByNumber", &format!("[\"0x{:x}\",false]", inclusion.block.number));
        let log = |report: CallReport| self.report(report, Some(inclusion.block.number));
        for wait in backoff().take(TRIES) {
            let exchange = shared
                .exchange(shared.begin_at(id), &[&call], shared.config.attempt_timeout, Some(&log))
                .await;
            let block = exchange.replies.first().and_then(Reply::result).and_then(parse_listing);
            if let Some(block) = block {
                return block.hash == inclusion.block.hash && block.transactions.contains(&inclusion.hash);
            }
            tokio::time::sleep(wait).await;
        }
        false
    }

    /// An endpoint answered at the view, and so has the fence. When the pin is not well, or has lacked the
    /// fence for too long, the session moves there (S7).
    fn proved(&self, id: EndpointId, view: BlockRef) {
        let shared = &self.endpoints.shared;
        let why = {
            let mut state = self.lock();
            if state.pin == id {
                state.lacking_since = None;
                return;
            }
            let pool = shared.pool();
            let patience = shared
                .config
                .fence_patience
                .unwrap_or_else(|| (pool.block_time() * 3).max(Duration::from_secs(3)));
            let lacking =
                state.lacking_since.is_some_and(|since| now().saturating_duration_since(since) > patience);
            match pool.excluded(state.pin, Need::Current, now()) {
                Some(why) => why,
                None if lacking => "it lacks the fence".to_owned(),
                None => return,
            }
        };
        self.move_pin(id, &format!("{why}; the new one answered at block {}", view.number));
    }

    fn move_pin(&self, to: EndpointId, why: &str) {
        let from = {
            let mut state = self.lock();
            state.lacking_since = None;
            std::mem::replace(&mut state.pin, to)
        };
        if from != to {
            let (from, to) = (self.endpoints.shared.name(from), self.endpoints.shared.name(to));
            tracing::info!(%from, %to, why, "the session moved");
            self.note(What::Pinned { from: Some(from), to, why: why.to_owned() });
        }
    }

    fn lost(&self, method: &str, view: BlockRef, attempts: Vec<Attempt>) -> Error {
        let mut last: Vec<Attempt> = Vec::new();
        for attempt in attempts.into_iter().rev() {
            if last.iter().all(|other| other.endpoint != attempt.endpoint) {
                last.insert(0, attempt);
            }
        }
        let timeout = self.endpoints.shared.config.operation_timeout;
        let message = format!(
            "{method}: no endpoint proved block {view} within {timeout:?}; the intent stays open and can be resumed"
        );
        Error::new(ErrorKind::SessionLost { fence: view }, message)
            .with_retry(Retry::Later)
            .with_attempts(last)
    }

    fn report(&self, report: CallReport, height: Option<u64>) {
        let CallReport { endpoint, method, verdict, took } = report;
        self.note(What::Call { endpoint, method, height, verdict, took, times: 1 });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("pin", &self.pin())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

/// What one reply to a fenced read comes to.
enum Judged {
    Answer(Verdict, ResponsePayload),
    /// The endpoint has not got the view.
    Lag,
    /// The answer if nobody has a better one.
    Keep(Verdict, ResponsePayload),
    GoOn,
}

fn judge(reply: Reply, null_is_lag: bool) -> Judged {
    let null = null_is_lag && reply.is_null();
    match (reply.verdict, reply.payload) {
        (Verdict::Answer, Some(_)) if null => Judged::Lag,
        (
            verdict @ (Verdict::Answer | Verdict::Reverted(_) | Verdict::TxRefused(_) | Verdict::Invalid),
            Some(payload),
        ) => Judged::Answer(verdict, payload),
        (Verdict::NotYet | Verdict::Missing { .. }, _) => Judged::Lag,
        (
            verdict @ (Verdict::Unsupported | Verdict::Unclassified | Verdict::RangeTooLarge { .. }),
            Some(payload),
        ) => Judged::Keep(verdict, payload),
        (_, _) => Judged::GoOn,
    }
}

#[derive(Deserialize)]
struct Listing {
    hash: B256,
    transactions: Vec<TxHash>,
}

fn parse_listing(json: &str) -> Option<Listing> {
    serde_json::from_str::<Option<Listing>>(json).ok().flatten()
}

/// A receipt that is complete and for this very hash; anything else is no receipt yet.
fn parse_receipt(reply: &Reply, hash: TxHash) -> Option<Inclusion> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Receipt {
        transaction_hash: TxHash,
        block_hash: B256,
        block_number: U64,
        status: U64,
        gas_used: U64,
    }
    let receipt: Receipt = serde_json::from_str(reply.result()?).ok()?;
    (receipt.transaction_hash == hash).then(|| Inclusion {
        hash,
        block: BlockRef { number: receipt.block_number.to(), hash: receipt.block_hash },
        succeeded: receipt.status != U64::ZERO,
        gas_used: receipt.gas_used.to(),
    })
}
