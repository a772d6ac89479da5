//! What the endpoints of a fleet were asked, and what the client got.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use alloy::primitives::{B256, Bytes, keccak256};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Error;

/// One JSON-RPC request that reached an endpoint. An element of a batch is a call of its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Call {
    /// The name of the endpoint.
    pub endpoint: String,
    /// The place in the fleet's log: calls are numbered from 0 in the order in which they arrived, over all
    /// endpoints.
    pub seq: u64,
    /// When it arrived, counted from the start of the fleet.
    pub at: Duration,
    /// The method; empty for a body that is no JSON-RPC request.
    pub method: String,
    /// The parameters as sent; `Null` where the request had none.
    pub params: Value,
    /// The signed transaction of an `eth_sendRawTransaction` (or one of its kin).
    pub raw_tx: Option<Bytes>,
    /// The label of the rule that matched.
    pub rule: Option<String>,
    /// The head that the endpoint showed; `None` where the view was live or the call not subject to it.
    pub height: Option<u64>,
    /// Which of [`View::Replicas`](crate::View::Replicas) answered.
    pub replica: Option<usize>,
    /// Whether the client got anything else than the chain's own answer at once: a rule with a fault matched,
    /// or the view changed the reply.
    pub fault: bool,
    /// What the chain behind answered, where it was asked. With [`Outcome::Lost`] this is what the client
    /// never learnt.
    pub upstream: Option<Reply>,
    /// What the client got.
    pub outcome: Outcome,
}

impl Call {
    /// The hash of the signed transaction, for sends.
    pub fn tx_hash(&self) -> Option<B256> {
        self.raw_tx.as_ref().map(keccak256)
    }
}

/// What the client got for a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// Nothing yet.
    Pending,
    /// A JSON-RPC reply.
    Reply(Reply),
    /// An HTTP answer that holds no JSON-RPC reply for this call.
    Http(u16),
    /// The connection was closed before anything was forwarded.
    Dropped,
    /// The connection was reset before anything was forwarded.
    Reset,
    /// The chain answered, and the connection was closed without passing the reply on.
    Lost,
    /// The chain answered, and the connection was closed in the middle of the reply.
    Cut,
    /// Nothing, on a connection that stays open.
    Hung,
    /// The client left, or the endpoint was killed, before there was an answer.
    Abandoned,
    /// HTTP 502: there is no chain behind the endpoint, or it did not answer. A sign of a broken test, not a
    /// fault of a program.
    Unreachable(String),
}

impl Outcome {
    /// The result, where the client got one.
    pub fn result(&self) -> Option<&Value> {
        match self {
            Self::Reply(Reply::Result(value)) => Some(value),
            _ => None,
        }
    }

    /// The JSON-RPC error, where the client got one.
    pub fn error(&self) -> Option<&RpcError> {
        match self {
            Self::Reply(Reply::Error(error)) => Some(error),
            _ => None,
        }
    }
}

/// A JSON-RPC reply without its envelope.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `result`.
    Result(Value),
    /// `error`.
    Error(RpcError),
}

impl Reply {
    pub(crate) fn null() -> Self {
        Self::Result(Value::Null)
    }

    /// Reads an envelope; `None` where it holds neither a result nor an error.
    pub(crate) fn from_envelope(envelope: &Value) -> Option<Self> {
        match envelope.get("error") {
            Some(error) if !error.is_null() => Some(Self::Error(RpcError {
                code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
                message: error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
                data: error.get("data").cloned(),
            })),
            _ => envelope.get("result").cloned().map(Self::Result),
        }
    }

    pub(crate) fn to_envelope(&self, id: &Value) -> Value {
        match self {
            Self::Result(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Self::Error(error) => {
                let mut object = json!({ "code": error.code, "message": error.message });
                if let Some(data) = &error.data {
                    object["data"] = data.clone();
                }
                json!({ "jsonrpc": "2.0", "id": id, "error": object })
            }
        }
    }
}

/// A JSON-RPC error object.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    /// `code`.
    pub code: i64,
    /// `message`.
    pub message: String,
    /// `data`, left out of the reply where `None`.
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The same error with `data`.
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

/// A place in a fleet's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(pub(crate) usize);

impl Mark {
    /// The start of the log.
    pub const START: Self = Self(0);
}

/// The calls of a fleet in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Log {
    started: Instant,
    calls: Mutex<Vec<Call>>,
    changed: watch::Sender<()>,
}

impl Log {
    pub(crate) fn new(started: Instant) -> Arc<Self> {
        Arc::new(Self { started, calls: Mutex::default(), changed: watch::Sender::new(()) })
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        // Only predicates of a test can panic under this lock, and they change nothing.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an arrival.
    pub(crate) fn enter(
        self: &Arc<Self>,
        endpoint: &str,
        method: &str,
        params: Value,
        now: Instant,
    ) -> Entry {
        let raw_tx = is_send(method)
            .then(|| params.get(0).and_then(Value::as_str).and_then(|raw| raw.parse().ok()))
            .flatten();
        let mut calls = self.calls();
        let seq = calls.len();
        let call = Call {
            endpoint: endpoint.to_owned(),
            seq: seq as u64,
            at: now.saturating_duration_since(self.started),
            method: method.to_owned(),
            params,
            raw_tx,
            rule: None,
            height: None,
            replica: None,
            fault: false,
            upstream: None,
            outcome: Outcome::Pending,
        };
        calls.push(call.clone());
        drop(calls);
        self.changed.send_replace(());
        Entry { log: Arc::clone(self), call }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark(self.calls().len())
    }

    pub(crate) fn since(&self, mark: Mark) -> Vec<Call> {
        self.calls().get(mark.0..).unwrap_or_default().to_vec()
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Call) -> bool) -> u64 {
        self.calls().iter().filter(|call| wanted(call)).count() as u64
    }

    pub(crate) fn by_endpoint<'a>(
        &self,
        endpoints: impl Iterator<Item = &'a str>,
    ) -> BTreeMap<String, BTreeMap<String, u64>> {
        let mut counts: BTreeMap<String, BTreeMap<String, u64>> =
            endpoints.map(|name| (name.to_owned(), BTreeMap::new())).collect();
        for call in self.calls().iter() {
            *counts.entry(call.endpoint.clone()).or_default().entry(call.method.clone()).or_default() += 1;
        }
        counts
    }

    /// Waits until some call from `mark` on is as `wanted`.
    pub(crate) async fn seen(
        &self,
        mark: Mark,
        within: Duration,
        wanted: impl Fn(&Call) -> bool,
    ) -> Result<Call, Error> {
        self.until(within, |calls| calls.iter().skip(mark.0).find(|call| wanted(call)).cloned()).await
    }

    /// Waits until no call is `busy`.
    pub(crate) async fn idle(&self, within: Duration, busy: impl Fn(&Call) -> bool) -> Result<(), Error> {
        self.until(within, |calls| (!calls.iter().any(&busy)).then_some(())).await
    }

    async fn until<T>(&self, within: Duration, found: impl Fn(&[Call]) -> Option<T>) -> Result<T, Error> {
        let mut changed = self.changed.subscribe();
        let search = async {
            loop {
                changed.borrow_and_update();
                let found = found(&self.calls());
                if let Some(found) = found {
                    return found;
                }
                // The sender lives in `self`, so this never fails.
                let _ = changed.changed().await;
            }
        };
        tokio::time::timeout(within, search)
            .await
            .map_err(|_| Error::NotSeen { waited: within, recorded: self.calls().len() })
    }
}

/// A call that is being served. Dropped without an outcome it counts as abandoned.
#[derive(Debug)]
pub(crate) struct Entry {
    log: Arc<Log>,
    call: Call,
}

impl Entry {
    pub(crate) fn call(&self) -> &Call {
        &self.call
    }

    /// Changes the call here and in the log.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut Call)) {
        change(&mut self.call);
        let mut calls = self.log.calls();
        if let Some(slot) = calls.get_mut(self.call.seq as usize) {
            slot.clone_from(&self.call);
        }
        drop(calls);
        self.log.changed.send_replace(());
    }

    pub(crate) fn end(&mut self, outcome: Outcome) {
        self.update(|call| call.outcome = outcome);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.call.outcome == Outcome::Pending {
            self.end(Outcome::Abandoned);
        }
    }
}

fn is_send(method: &str) -> bool {
    matches!(
        method,
        "eth_sendRawTransaction" | "eth_sendRawTransactionSync" | "eth_sendRawTransactionConditional"
    )
}
