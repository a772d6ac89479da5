//! What an endpoint does with the requests that reach it.

use std::{
    collections::BTreeSet,
    fmt,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use alloy::{
    consensus::{Transaction as _, TxEnvelope},
    eips::Decodable2718 as _,
    primitives::Address,
};
use serde_json::Value;

use crate::{Call, History, Reply, RpcError, View};

/// A function called with a request at a fixed point of its way: before it is forwarded, after the chain
/// replied and before the client gets an answer, or once the answer has left.
///
/// It runs on a task of the runtime and holds up that request only; it may block for as long as killing a
/// process takes.
pub type Hook = Arc<dyn Fn(&Call) + Send + Sync>;

/// The fault program of an endpoint: ordered rules, the [`View`] of the chain that it shows, and the [`History`]
/// that it holds.
///
/// The first rule that matches a request decides; without one the request passes. The default program passes
/// everything and shows the chain as it is.
#[derive(Debug, Default)]
pub struct Program {
    pub(crate) rules: Vec<Rule>,
    pub(crate) view: View,
    pub(crate) live_for: BTreeSet<String>,
    pub(crate) history: History,
}

impl Program {
    /// A program without rules over the live chain.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule behind those that are there.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets the view.
    pub fn view(mut self, view: View) -> Self {
        self.view = view;
        self
    }

    /// Leaves these methods out of the view: they are always answered from the live chain. With
    /// `eth_getTransactionReceipt` and a trailing view this is a node that pre-confirms: the receipt is there
    /// before the state.
    pub fn live_for<S: Into<String>>(mut self, methods: impl IntoIterator<Item = S>) -> Self {
        self.live_for.extend(methods.into_iter().map(Into::into));
        self
    }

    /// Sets how much of the past is held, below the head that the view shows.
    pub fn history(mut self, history: History) -> Self {
        self.history = history;
        self
    }
}

impl From<Rule> for Program {
    fn from(rule: Rule) -> Self {
        Self::new().rule(rule)
    }
}

impl From<View> for Program {
    fn from(view: View) -> Self {
        Self::new().view(view)
    }
}

impl From<History> for Program {
    fn from(history: History) -> Self {
        Self::new().history(history)
    }
}

/// What happens to a request that a [`Rule`] matches.
///
/// In a batch, the actions that concern a reply apply to their element; those that concern the connection or
/// the HTTP answer apply to the whole exchange.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Action {
    /// Forwarded and answered. The only action that is no fault; useful with hooks.
    #[default]
    Pass,
    /// Read, and never answered; the connection stays open. Not forwarded.
    Hang,
    /// Forwarded after this time, then answered. It is forwarded even if the client has left by then: a slow
    /// node still takes what it was sent.
    Stall(Duration),
    /// Forwarded at once; the reply comes this much later.
    LateReply(Duration),
    /// The connection is reset (RST) after the request was read. Not forwarded.
    Reset,
    /// The connection is closed (FIN) after the request was read. Not forwarded.
    DropBefore,
    /// Forwarded; once the chain has replied the connection is closed without an answer.
    LoseReply,
    /// Forwarded; the answer is announced in full length, and the connection is closed in the middle of it.
    CutReply,
    /// Answered with this HTTP answer. Not forwarded.
    Http {
        /// The status code. One that HTTP does not allow is sent as 500.
        status: u16,
        /// Additional headers; those that HTTP does not allow are left out.
        headers: Vec<(String, String)>,
        /// The body.
        body: Vec<u8>,
    },
    /// Answered with this JSON-RPC error. Not forwarded.
    RpcError(RpcError),
    /// Answered with this JSON-RPC error under this HTTP status. Not forwarded. A status that HTTP does not allow
    /// is sent as 500; in a batch, the first such status is that of the whole answer.
    RpcErrorUnder(u16, RpcError),
    /// Answered with this JSON-RPC result. Not forwarded.
    RpcResult(Value),
    /// Answered by a function of the request: an endpoint without a chain behind it can have one that is made up.
    /// Not forwarded.
    Scripted(Script),
}

/// What an [`Action::Scripted`] answers.
#[derive(Clone)]
pub struct Script(Arc<dyn Fn(&Call) -> Reply + Send + Sync>);

impl Script {
    pub(crate) fn reply(&self, call: &Call) -> Reply {
        (self.0)(call)
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").finish_non_exhaustive()
    }
}

impl Action {
    /// An HTTP answer with a plain text body.
    pub fn http(status: u16, body: impl Into<String>) -> Self {
        Self::Http { status, headers: Vec::new(), body: body.into().into_bytes() }
    }

    /// HTTP 429 with `Retry-After` in whole seconds.
    pub fn too_many_requests(retry_after_secs: u64) -> Self {
        Self::Http {
            status: 429,
            headers: vec![("retry-after".to_owned(), retry_after_secs.to_string())],
            body: b"too many requests".to_vec(),
        }
    }

    /// A JSON-RPC error without data.
    pub fn error(code: i64, message: impl Into<String>) -> Self {
        Self::RpcError(RpcError::new(code, message))
    }

    /// Answered by this function, which must not wait for anything.
    pub fn scripted(script: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        Self::Scripted(Script(Arc::new(script)))
    }

    pub(crate) fn is_fault(&self) -> bool {
        !matches!(self, Self::Pass)
    }
}

type Predicate = Arc<dyn Fn(&Call) -> bool + Send + Sync>;

/// Which requests, and what happens to them.
///
/// All conditions must hold. Requests that match are counted: the first [`skip`](Self::skip) are left to the
/// rules behind, of the others each [`every`](Self::every)-th, and at most [`times`](Self::times), are taken.
pub struct Rule {
    label: String,
    /// `None` is any method.
    methods: Option<BTreeSet<String>>,
    predicates: Vec<Predicate>,
    skip: u64,
    every: NonZeroU64,
    times: Option<u64>,
    pub(crate) delay: Duration,
    pub(crate) action: Action,
    pub(crate) before: Option<Hook>,
    pub(crate) after_reply: Option<Hook>,
    pub(crate) after_answer: Option<Hook>,
    matched: AtomicU64,
    hits: Hits,
}

impl Rule {
    /// A rule for all requests.
    pub fn any() -> Self {
        Self::with("*".to_owned(), None)
    }

    /// A rule for one method; `*` is any.
    pub fn on(method: impl Into<String>) -> Self {
        let method = method.into();
        if method == "*" { Self::any() } else { Self::with(method.clone(), Some(BTreeSet::from([method]))) }
    }

    /// A rule for several methods.
    pub fn on_any_of<S: Into<String>>(methods: impl IntoIterator<Item = S>) -> Self {
        let methods: BTreeSet<String> = methods.into_iter().map(Into::into).collect();
        let label = methods.iter().map(String::as_str).collect::<Vec<_>>().join("|");
        Self::with(label, Some(methods))
    }

    fn with(label: String, methods: Option<BTreeSet<String>>) -> Self {
        Self {
            label,
            methods,
            predicates: Vec::new(),
            skip: 0,
            every: NonZeroU64::MIN,
            times: None,
            delay: Duration::ZERO,
            action: Action::Pass,
            before: None,
            after_reply: None,
            after_answer: None,
            matched: AtomicU64::new(0),
            hits: Hits::default(),
        }
    }

    /// Names the rule in the records. By default it is named after its methods.
    pub fn named(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Only requests about this address: the `to` of a call or of a signed transaction, the account of
    /// `eth_getBalance` and its kin, the address of a log filter.
    pub fn to(self, address: Address) -> Self {
        self.when(move |call| targets(call).contains(&address))
    }

    /// Only calls and signed transactions whose input starts with these bytes.
    pub fn selector(self, selector: [u8; 4]) -> Self {
        self.when(move |call| input(call).is_some_and(|input| input.starts_with(&selector)))
    }

    /// Only requests whose parameters, written as compact JSON, contain this text. Case is ignored, as
    /// addresses may be written with a checksum.
    pub fn containing(self, text: impl Into<String>) -> Self {
        let text = text.into().to_ascii_lowercase();
        self.when(move |call| call.params.to_string().to_ascii_lowercase().contains(&text))
    }

    /// Only requests of which this is true. The function must not wait for anything.
    pub fn when(mut self, predicate: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Self {
        self.predicates.push(Arc::new(predicate));
        self
    }

    /// Leaves the first `count` matching requests alone.
    pub fn skip(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Takes only each `n`-th matching request, counted behind those that are skipped: with 2 the second, the
    /// fourth and so on. 0 is as 1: each.
    pub fn every(mut self, n: u64) -> Self {
        self.every = NonZeroU64::new(n).unwrap_or(NonZeroU64::MIN);
        self
    }

    /// Takes at most `count` requests, then none any more.
    pub fn times(mut self, count: u64) -> Self {
        self.times = Some(count);
        self
    }

    /// Takes the request up this much after it has arrived: whatever the action is, it comes that much later, even
    /// if the client has left by then. In a batch the longest delay is that of all.
    pub fn late_by(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the action; without it the request passes.
    pub fn then(mut self, action: Action) -> Self {
        self.action = action;
        self
    }

    /// Calls `hook` right before the request is forwarded, or right before the fault where it is not
    /// forwarded.
    pub fn before(mut self, hook: impl Fn(&Call) + Send + Sync + 'static) -> Self {
        self.before = Some(Arc::new(hook));
        self
    }

    /// Calls `hook` when the chain has replied, or the rule has made the reply up, and before the client gets
    /// anything. [`Call::upstream`] holds the chain's reply. Not called for actions that are never replied to
    /// ([`Hang`](Action::Hang), [`Reset`](Action::Reset), [`DropBefore`](Action::DropBefore),
    /// [`Http`](Action::Http)).
    pub fn after_reply(mut self, hook: impl Fn(&Call) + Send + Sync + 'static) -> Self {
        self.after_reply = Some(Arc::new(hook));
        self
    }

    /// Calls `hook` when the client has got all that it gets: the answer has been handed to the system, or the
    /// connection has been closed. Not called for [`Hang`](Action::Hang), nor when the client had left before. With
    /// [`CutReply`](Action::CutReply) the connection may still be open.
    pub fn after_answer(mut self, hook: impl Fn(&Call) + Send + Sync + 'static) -> Self {
        self.after_answer = Some(Arc::new(hook));
        self
    }

    /// A counter of the requests that this rule takes, to be kept when the rule goes into a program.
    pub fn hits(&self) -> Hits {
        self.hits.clone()
    }

    pub(crate) fn is_fault(&self) -> bool {
        self.action.is_fault() || !self.delay.is_zero()
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Whether this rule takes the request; counts it if so.
    pub(crate) fn takes(&self, call: &Call) -> bool {
        let fits = self.methods.as_ref().is_none_or(|methods| methods.contains(&call.method))
            && self.predicates.iter().all(|predicate| predicate(call));
        if !fits {
            return false;
        }
        let earlier = self.matched.fetch_add(1, Ordering::SeqCst);
        let Some(place) = (earlier + 1).checked_sub(self.skip).filter(|place| *place > 0) else {
            return false;
        };
        let taken = place.is_multiple_of(self.every.get())
            && self.times.is_none_or(|times| place / self.every <= times);
        if taken {
            self.hits.0.fetch_add(1, Ordering::SeqCst);
        }
        taken
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("label", &self.label)
            .field("action", &self.action)
            .field("skip", &self.skip)
            .field("every", &self.every)
            .field("times", &self.times)
            .field("delay", &self.delay)
            .field("hits", &self.hits.get())
            .finish_non_exhaustive()
    }
}

/// How many requests a [`Rule`] has taken.
#[derive(Clone, Debug, Default)]
pub struct Hits(Arc<AtomicU64>);

impl Hits {
    /// The number so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) fn decoded(call: &Call) -> Option<TxEnvelope> {
    TxEnvelope::decode_2718(&mut call.raw_tx.as_ref()?.as_ref()).ok()
}

fn targets(call: &Call) -> Vec<Address> {
    if call.raw_tx.is_some() {
        return decoded(call).and_then(|tx| tx.to()).into_iter().collect();
    }
    let read = |value: &Value| value.as_str().and_then(|text| text.parse::<Address>().ok());
    match call.params.get(0) {
        Some(Value::String(_)) => call.params.get(0).and_then(read).into_iter().collect(),
        Some(Value::Object(object)) => match object.get("to").or_else(|| object.get("address")) {
            Some(Value::Array(addresses)) => addresses.iter().filter_map(read).collect(),
            Some(one) => read(one).into_iter().collect(),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

pub(crate) fn input(call: &Call) -> Option<alloy::primitives::Bytes> {
    if call.raw_tx.is_some() {
        return decoded(call).map(|tx| tx.input().clone());
    }
    let request = call.params.get(0)?;
    request.get("input").or_else(|| request.get("data"))?.as_str()?.parse().ok()
}
