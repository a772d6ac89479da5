//! One HTTP exchange: the requests in its body, the rules they meet, and how it ends.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::Value;
use tokio::{sync::oneshot, time::Instant};

use crate::{
    Action, Call, Outcome, Reply, RpcError, Rule, View,
    history::{self, Pruned},
    lens::{self, Horizon, Sight},
    program::Hook,
    proxy::{Loaded, Payload, Site},
    record::Entry,
    upstream::{Answer, Upstream},
};

/// How an exchange ends for the connection it came over.
#[derive(Debug)]
pub(crate) enum Ending {
    Answer(Response<Payload>),
    /// Closed without an answer.
    Close,
    /// Closed with a reset.
    Reset,
    /// Left open without an answer.
    Hang,
}

/// What is told to the connection.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) ending: Ending,
    /// To be called when the client has got what it gets.
    pub(crate) hooks: Vec<Due>,
}

/// A hook whose time has come.
pub(crate) struct Due {
    hook: Hook,
    call: Call,
}

impl Due {
    pub(crate) fn run(&self) {
        (self.hook)(&self.call);
    }
}

impl fmt::Debug for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Due").field("call", &self.call).finish_non_exhaustive()
    }
}

/// A JSON-RPC request and what is known of it.
struct Asked {
    request: Value,
    /// The request as it goes to the chain if nothing is changed.
    body: Bytes,
    entry: Entry,
    /// Its place among the rules.
    rule: Option<usize>,
}

/// An exchange whose requests are recorded and have met their rules.
pub(crate) struct Exchange {
    site: Arc<Site>,
    loaded: Arc<Loaded>,
    turn: u64,
    asked: Vec<Asked>,
    shape: Shape,
}

#[derive(Clone, Copy)]
enum Shape {
    Single,
    Batch,
}

impl Exchange {
    /// Records the requests of a body and finds their rules.
    pub(crate) fn read(site: Arc<Site>, body: Bytes) -> Self {
        let (loaded, turn) = site.next_turn();
        let (shape, requests) = match serde_json::from_slice::<Value>(&body) {
            Ok(Value::Array(requests)) if !requests.is_empty() => {
                let with_bodies = requests.into_iter().map(|request| {
                    let body = Bytes::from(request.to_string());
                    (request, body)
                });
                (Shape::Batch, with_bodies.collect())
            }
            Ok(request @ Value::Object(_)) => (Shape::Single, vec![(request, body)]),
            // Not JSON-RPC: the chain has its own words for that.
            Ok(_) | Err(_) => (Shape::Single, vec![(Value::Null, body)]),
        };
        let asked = requests
            .into_iter()
            .map(|(request, body)| {
                let method = request.get("method").and_then(Value::as_str).unwrap_or_default();
                let params = request.get("params").cloned().unwrap_or_default();
                let mut entry = site.enter(method, params);
                let rule = loaded.rules.iter().position(|rule| rule.takes(entry.call()));
                if let Some(rule) = rule.and_then(|place| loaded.rules.get(place)) {
                    entry.update(|call| {
                        call.rule = Some(rule.label().to_owned());
                        call.fault = rule.is_fault();
                    });
                }
                Asked { request, body, entry, rule }
            })
            .collect();
        Self { site, loaded, turn, asked, shape }
    }

    /// Runs to the end and tells the connection, if it is still there.
    pub(crate) async fn run(mut self, client: oneshot::Sender<Told>) {
        let delays = self.asked.iter().filter_map(|asked| self.rule_of(asked)).map(|rule| rule.delay);
        if let Some(delay) = delays.max().filter(|delay| !delay.is_zero()) {
            tokio::time::sleep(delay).await;
        }
        let (ending, outcomes) = match self.end_before() {
            Some((ending, outcome)) => (ending, vec![outcome; self.asked.len()]),
            None => self.forward().await,
        };
        // Without a client the entries are dropped as abandoned.
        if client.is_closed() {
            return;
        }
        for (asked, outcome) in self.asked.iter_mut().zip(outcomes) {
            asked.entry.end(outcome);
        }
        let due = |asked: &Asked| {
            let hook = self.rule_of(asked)?.after_answer.clone()?;
            Some(Due { hook, call: asked.entry.call().clone() })
        };
        let hooks = self.asked.iter().filter_map(due).collect();
        // The client may leave at this very moment; that it was answered is then as true as over any network.
        let _ = client.send(Told { ending, hooks });
    }

    /// The first action that ends the whole exchange before anything is forwarded.
    fn end_before(&self) -> Option<(Ending, Outcome)> {
        self.asked.iter().find_map(|asked| {
            let rule = self.rule_of(asked)?;
            let end = match &rule.action {
                Action::Hang => (Ending::Hang, Outcome::Hung),
                Action::Reset => (Ending::Reset, Outcome::Reset),
                Action::DropBefore => (Ending::Close, Outcome::Dropped),
                Action::Http { status, headers, body } => {
                    let response = http_answer(*status, headers, body);
                    let outcome = Outcome::Http(response.status().as_u16());
                    (Ending::Answer(response), outcome)
                }
                Action::Pass
                | Action::Stall(_)
                | Action::LateReply(_)
                | Action::LoseReply
                | Action::CutReply
                | Action::RpcError(_)
                | Action::RpcErrorUnder(..)
                | Action::RpcResult(_)
                | Action::Scripted(_) => return None,
            };
            if let Some(hook) = &rule.before {
                hook(asked.entry.call());
            }
            Some(end)
        })
    }

    async fn forward(&mut self) -> (Ending, Vec<Outcome>) {
        let arrived = Instant::now();
        let loaded = Arc::clone(&self.loaded);
        let rules: Vec<Option<&Rule>> =
            self.asked.iter().map(|asked| asked.rule.and_then(|place| loaded.rules.get(place))).collect();
        let actions = || rules.iter().flatten().map(|rule| &rule.action);
        let longest = |delay: fn(&Action) -> Option<Duration>| actions().filter_map(delay).max();

        if let Some(stall) = longest(|action| match action {
            Action::Stall(stall) => Some(*stall),
            _ => None,
        }) {
            tokio::time::sleep_until(arrived + stall).await;
        }
        let horizon = self.horizon().await;
        let mut answers = Vec::with_capacity(self.asked.len());
        for (asked, rule) in self.asked.iter_mut().zip(&rules) {
            if let Some(hook) = rule.and_then(|rule| rule.before.as_ref()) {
                hook(asked.entry.call());
            }
            let answer = match rule.map(|rule| &rule.action) {
                Some(Action::RpcError(error) | Action::RpcErrorUnder(_, error)) => {
                    Answer::Rpc { reply: Reply::Error(error.clone()), body: None }
                }
                Some(Action::RpcResult(value)) => {
                    Answer::Rpc { reply: Reply::Result(value.clone()), body: None }
                }
                Some(Action::Scripted(script)) => {
                    Answer::Rpc { reply: script.reply(asked.entry.call()), body: None }
                }
                _ => self.site.answer(&loaded, asked, horizon.as_ref()).await,
            };
            if let Some(hook) = rule.and_then(|rule| rule.after_reply.as_ref()) {
                hook(asked.entry.call());
            }
            answers.push(answer);
        }
        if let Some(late) = longest(|action| match action {
            Action::LateReply(late) => Some(*late),
            _ => None,
        }) {
            tokio::time::sleep(late).await;
        }

        if actions().any(|action| matches!(action, Action::LoseReply)) {
            return (Ending::Close, vec![Outcome::Lost; self.asked.len()]);
        }
        let (mut response, outcomes) = self.assemble(answers);
        if let Some(status) = actions().find_map(|action| match action {
            Action::RpcErrorUnder(status, _) => Some(*status),
            _ => None,
        }) {
            *response.status_mut() =
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        }
        if actions().any(|action| matches!(action, Action::CutReply)) {
            return (Ending::Answer(response.map(Payload::cut)), vec![Outcome::Cut; self.asked.len()]);
        }
        (Ending::Answer(response), outcomes)
    }

    fn rule_of(&self, asked: &Asked) -> Option<&Rule> {
        asked.rule.and_then(|place| self.loaded.rules.get(place))
    }

    /// The head that this exchange is shown, or why it cannot be known; `None` for the live chain.
    async fn horizon(&self) -> Option<Result<Seat, String>> {
        let (replica, view) = self.loaded.view.at_turn(self.turn);
        let upstream = self.site.upstream()?;
        if *view == View::Live {
            return replica.map(|replica| Ok(Seat { replica: Some(replica), horizon: None }));
        }
        Some(match upstream.head().await {
            Ok(head) => {
                let height = view.height(head, &upstream.seen(), std::time::Instant::now());
                let horizon = height.map(|height| Horizon { height, head, ..Horizon::default() });
                Ok(Seat { replica, horizon })
            }
            Err(error) => Err(error.to_string()),
        })
    }

    fn assemble(&self, answers: Vec<Answer>) -> (Response<Payload>, Vec<Outcome>) {
        // One answer that is no JSON-RPC reply stands for the whole exchange.
        let odd = answers.iter().find_map(|answer| match answer {
            Answer::Http { status, body } if !(status.is_success() && body.is_empty()) => {
                Some((*status, body.clone(), Outcome::Http(status.as_u16())))
            }
            Answer::Unreachable(reason) => Some((
                StatusCode::BAD_GATEWAY,
                Bytes::from(reason.clone()),
                Outcome::Unreachable(reason.clone()),
            )),
            Answer::Http { .. } | Answer::Rpc { .. } => None,
        });
        if let Some((status, body, outcome)) = odd {
            let kind = if status == StatusCode::BAD_GATEWAY { "text/plain" } else { "application/json" };
            return (response(status, kind, body), vec![outcome; self.asked.len()]);
        }
        let mut bodies = Vec::with_capacity(answers.len());
        let mut outcomes = Vec::with_capacity(answers.len());
        for (asked, answer) in self.asked.iter().zip(answers) {
            match answer {
                Answer::Rpc { reply, body } => {
                    let id = asked.request.get("id").unwrap_or(&Value::Null);
                    bodies.push(body.unwrap_or_else(|| reply.to_envelope(id).to_string().into()));
                    outcomes.push(Outcome::Reply(reply));
                }
                // A notification has no reply.
                Answer::Http { status, .. } => outcomes.push(Outcome::Http(status.as_u16())),
                Answer::Unreachable(reason) => outcomes.push(Outcome::Unreachable(reason)),
            }
        }
        let whole = match self.shape {
            _ if bodies.is_empty() => {
                return (response(StatusCode::NO_CONTENT, "application/json", Bytes::new()), outcomes);
            }
            Shape::Single => bodies.concat(),
            Shape::Batch => [&b"["[..], &bodies.join(&b","[..]), &b"]"[..]].concat(),
        };
        (response(StatusCode::OK, "application/json", whole.into()), outcomes)
    }
}

/// Where an exchange meets the chain.
struct Seat {
    replica: Option<usize>,
    /// `None` for the live chain.
    horizon: Option<Horizon>,
}

impl Site {
    /// Asks the chain through the view, and records what it said and what became of it.
    async fn answer(
        &self,
        loaded: &Loaded,
        asked: &mut Asked,
        seat: Option<&Result<Seat, String>>,
    ) -> Answer {
        let Some(upstream) = self.upstream() else {
            return Answer::Unreachable(format!(
                "endpoint {} has no chain and no rule for this",
                self.name()
            ));
        };
        let method = asked.entry.call().method.clone();
        let horizon = match seat {
            _ if loaded.live_for.contains(&method) => None,
            Some(Ok(seat)) => {
                asked.entry.update(|call| {
                    call.replica = seat.replica;
                    call.height = seat.horizon.as_ref().map(Horizon::shown);
                });
                seat.horizon
            }
            Some(Err(reason)) => return Answer::Unreachable(reason.clone()),
            None => None,
        };
        let pruned = match upstream.pruned(loaded, asked.entry.call(), horizon.as_ref()).await {
            Ok(Some(Pruned::Reply(reply))) => {
                asked.entry.update(|call| call.fault = true);
                return Answer::Rpc { reply, body: None };
            }
            Ok(pruned) => pruned,
            Err(error) => return Answer::Unreachable(error.to_string()),
        };
        let answered = match horizon {
            Some(horizon) => upstream.answer_below(&method, asked, horizon).await,
            None => {
                let answer = upstream.post(asked.body.clone()).await;
                note(asked, &answer);
                Ok((answer, false))
            }
        };
        match answered {
            Ok((mut answer, mut altered)) => {
                if let (Some(Pruned::LogsFrom(lowest)), Answer::Rpc { reply, body }) = (pruned, &mut answer)
                    && history::drop_logs(reply, lowest)
                {
                    *body = None;
                    altered = true;
                }
                asked.entry.update(|call| call.fault |= altered);
                answer
            }
            Err(error) => Answer::Unreachable(error.to_string()),
        }
    }
}

impl Upstream {
    /// What becomes of a request that reads what the endpoint no longer holds; `None` for any other.
    async fn pruned(
        &self,
        loaded: &Loaded,
        call: &Call,
        horizon: Option<&Horizon>,
    ) -> Result<Option<Pruned>, crate::Error> {
        let Some((bound, place)) = loaded.history.bound(&call.method, &call.params) else { return Ok(None) };
        let height = match place.lookup() {
            Ok(height) => Some(height),
            Err((method, params, field)) => self.number_in(method, params, field).await?,
        };
        let Some(height) = height else { return Ok(None) };
        let head = match horizon {
            Some(horizon) => horizon.shown(),
            None => self.head().await?,
        };
        Ok(bound.at(height, head))
    }

    /// The answer of a node with this head, and whether it differs from the chain's own.
    async fn answer_below(
        &self,
        method: &str,
        asked: &mut Asked,
        mut horizon: Horizon,
    ) -> Result<(Answer, bool), crate::Error> {
        let params = asked.entry.call().params.clone();
        for (tag, named) in lens::depth_tags(&params) {
            if named {
                let block = serde_json::json!([tag, false]);
                let number = self.number_in("eth_getBlockByNumber", block, "number").await?.unwrap_or(0);
                match tag {
                    "safe" => horizon.safe = number,
                    _ => horizon.finalized = number,
                }
            }
        }
        let (above, otherwise) = match lens::look(method, &params, &horizon) {
            Sight::Refuse { reply, altered } => return Ok((Answer::Rpc { reply, body: None }, altered)),
            Sight::Ask { params } => {
                let mut request = asked.request.clone();
                request["params"] = params;
                let answer = self.post(request.to_string().into()).await;
                note(asked, &answer);
                let altered = horizon.shown() < horizon.head && {
                    let live = self.post(asked.body.clone()).await;
                    reply_of(&live) != reply_of(&answer)
                };
                return Ok((answer, altered));
            }
            Sight::Mask(mask) => {
                let mut answer = self.post(asked.body.clone()).await;
                note(asked, &answer);
                let mut altered = false;
                if let Answer::Rpc { reply, body } = &mut answer {
                    altered = lens::mask(mask, reply, &horizon);
                    if altered {
                        *body = None;
                    }
                }
                return Ok((answer, altered));
            }
            Sight::Pass => (None, None),
            Sight::BelowBlock { hash, otherwise } => {
                let block = serde_json::json!([hash, false]);
                (self.number_in("eth_getBlockByHash", block, "number").await?, Some(otherwise))
            }
            Sight::BelowTransaction { hash, otherwise } => {
                let hash = serde_json::json!([hash]);
                (self.number_in("eth_getTransactionReceipt", hash, "blockNumber").await?, Some(otherwise))
            }
        };
        match otherwise {
            Some(reply) if above.is_some_and(|number| number > horizon.height) => {
                Ok((Answer::Rpc { reply, body: None }, true))
            }
            Some(_) | None => {
                let answer = self.post(asked.body.clone()).await;
                note(asked, &answer);
                Ok((answer, false))
            }
        }
    }
}

fn reply_of(answer: &Answer) -> Option<&Reply> {
    match answer {
        Answer::Rpc { reply, .. } => Some(reply),
        Answer::Http { .. } | Answer::Unreachable(_) => None,
    }
}

fn note(asked: &mut Asked, answer: &Answer) {
    if let Some(reply) = reply_of(answer) {
        asked.entry.update(|call| call.upstream = Some(reply.clone()));
    }
}

fn http_answer(status: u16, headers: &[(String, String)], body: &[u8]) -> Response<Payload> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = Response::new(Payload::whole(Bytes::copy_from_slice(body)));
    *answer.status_mut() = status;
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            answer.headers_mut().append(name, value);
        }
    }
    answer
}

pub(crate) fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Payload> {
    let mut answer = Response::new(Payload::whole(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// The answer to a body that is larger than the testkit takes.
pub(crate) fn too_large() -> Response<Payload> {
    let reply = Reply::Error(RpcError::new(-32600, "request body too large"));
    let body = reply.to_envelope(&Value::Null).to_string();
    response(StatusCode::PAYLOAD_TOO_LARGE, "application/json", body.into())
}
