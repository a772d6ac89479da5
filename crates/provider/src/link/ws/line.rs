//! The task of one connection: it dials, writes, reads, pings, and ends.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ::http::{Request, Uri, header, uri::Scheme};
use backstay_core::failure::FaultKind;
use bytes::Bytes;
use futures::{FutureExt, SinkExt, StreamExt, future::poll_fn};
use hyper_util::rt::TokioIo;
use metrics::Counter;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        Error, Message, Utf8Bytes,
        client::IntoClientRequest,
        protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
    },
};
use tower::ServiceExt;

use super::{Ask, Heard, Naming, Order};
use crate::{
    link::http::{self, Broken, HttpReply, Target},
    link::wire::Object,
};

/// How long making a connection may take: name, TCP, TLS and upgrade.
const DIAL: Duration = Duration::from_secs(10);
/// After how long without a frame the endpoint is pinged.
const QUIET: Duration = Duration::from_secs(15);
/// How long a ping may go without any frame, or what is to be written without being written, before the connection
/// counts as dead.
const DEAD: Duration = Duration::from_secs(10);
/// How many requests may stay unanswered that nobody waits for. A connection with more is given up.
const MOST_FORGOTTEN: usize = 1024;

/// How connections to one endpoint are made.
pub(super) struct Dial {
    pub(super) target: Target,
    /// Frames that nobody asked for.
    pub(super) strays: Counter,
}

/// Serves a connection until it ends. Whoever waits by then is told.
pub(super) async fn serve(dial: Arc<Dial>, limit: usize, mut orders: mpsc::UnboundedReceiver<Order>) {
    let dialed = match timeout(DIAL, dial.dial(limit)).await {
        Ok(dialed) => dialed,
        Err(_) => Err(Heard::Broken(Broken { kind: FaultKind::Timeout, sent: false })),
    };
    let last = match dialed {
        Ok(stream) => {
            let mut line = Line { waiting: BTreeMap::new(), forgotten: 0, strays: dial.strays.clone() };
            let end = line.run(stream, &mut orders).await;
            line.fail(end);
            Heard::Unwritten
        }
        Err(heard) => heard,
    };
    orders.close();
    while let Ok(order) = orders.try_recv() {
        if let Order::Ask(ask) = order {
            let _ = ask.reply.send(last.clone());
        }
    }
}

impl Dial {
    /// Makes a connection whose messages are of at most `limit` bytes.
    async fn dial(
        &self,
        limit: usize,
    ) -> Result<WebSocketStream<impl AsyncRead + AsyncWrite + Unpin + use<>>, Heard> {
        let broken = |kind| Heard::Broken(Broken { kind, sent: false });
        let stream = self.target.connector().clone().oneshot(self.door()).await.map_err(|error| {
            broken(if http::is_tls(error.as_ref()) { FaultKind::Tls } else { FaultKind::Refused })
        })?;
        let mut config = WebSocketConfig::default();
        config.max_message_size = Some(limit);
        config.max_frame_size = Some(limit);
        let request = self.request().map_err(|_| broken(FaultKind::Refused))?;
        match client_async_with_config(request, TokioIo::new(stream), Some(config)).await {
            Ok((stream, _)) => Ok(stream),
            // The same words mean the same as over HTTP; the request itself was never written.
            Err(Error::Http(response)) => {
                let (head, body) = response.into_parts();
                let reply = HttpReply {
                    status: Some(head.status.as_u16()),
                    retry_after: head.headers.get(header::RETRY_AFTER).and_then(http::seconds),
                    body: body.unwrap_or_default().into(),
                    sent: false,
                };
                Err(Heard::Reply(reply, Naming::Named))
            }
            Err(Error::Io(_) | Error::ConnectionClosed | Error::AlreadyClosed) => {
                Err(broken(FaultKind::Reset))
            }
            // It speaks something else.
            Err(_) => Err(broken(FaultKind::NotJson)),
        }
    }

    /// Where the connection is made to: as for HTTP, whose connector knows no other schemes.
    fn door(&self) -> Uri {
        let uri = self.target.address();
        let mut parts = uri.clone().into_parts();
        parts.scheme = Some(match uri.scheme_str() {
            Some("wss") => Scheme::HTTPS,
            Some(_) | None => Scheme::HTTP,
        });
        // It differs from one that is right in its scheme only.
        Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
    }

    fn request(&self) -> Result<Request<()>, Error> {
        let mut request = self.target.address().clone().into_client_request()?;
        // That of a body; an upgrade has none.
        for (name, value) in self.target.headers().iter().filter(|(name, _)| **name != header::CONTENT_TYPE) {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        Ok(request)
    }
}

/// Requests of a connection that are not answered.
struct Line {
    /// By the number of the first call.
    waiting: BTreeMap<u64, Waiting>,
    /// How many of them nobody waits for any more. Their replies may still come.
    forgotten: usize,
    strays: Counter,
}

struct Waiting {
    count: u64,
    /// `None` when it was given up.
    reply: Option<oneshot::Sender<Heard>>,
}

/// What the writing side does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Write,
    Flush,
}

/// Why a connection ended.
type End = FaultKind;

impl Line {
    async fn run<S>(&mut self, stream: WebSocketStream<S>, orders: &mut mpsc::UnboundedReceiver<Order>) -> End
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (mut sink, mut frames) = stream.split();
        // A message that the connection is not ready for.
        let mut held: Option<Message> = None;
        // Since when something is unwritten.
        let mut writing: Option<Instant> = None;
        let mut heard_at = Instant::now();
        let mut pinged = false;
        loop {
            let due = match (writing, pinged) {
                (Some(since), _) => since + DEAD,
                (None, true) => heard_at + QUIET + DEAD,
                (None, false) => heard_at + QUIET,
            };
            let step = if held.is_some() { Step::Write } else { Step::Flush };
            tokio::select! {
                order = orders.recv(), if held.is_none() => {
                    // The owner is gone; so is the connection.
                    let Some(order) = order else { return FaultKind::Reset };
                    held = self.take(order);
                    if self.forgotten > MOST_FORGOTTEN {
                        return FaultKind::Timeout;
                    }
                }
                (step, done) = poll_fn(|cx| match step {
                    Step::Write => sink.poll_ready_unpin(cx).map(|done| (step, done)),
                    Step::Flush => sink.poll_flush_unpin(cx).map(|done| (step, done)),
                }), if step == Step::Write || writing.is_some() => {
                    if done.is_err() {
                        return FaultKind::Reset;
                    }
                    match (step, held.take()) {
                        (Step::Write, Some(message)) => {
                            if sink.start_send_unpin(message).is_err() {
                                return FaultKind::Reset;
                            }
                            // What else is there goes out with it.
                            while held.is_none() && let Ok(order) = orders.try_recv() {
                                held = self.take(order);
                            }
                            writing.get_or_insert_with(Instant::now);
                        }
                        (Step::Write | Step::Flush, _) => writing = None,
                    }
                }
                frame = frames.next() => {
                    heard_at = Instant::now();
                    pinged = false;
                    match frame {
                        Some(Ok(Message::Text(text))) => {
                            if let Told::Garbage = self.hear(text.into()) {
                                let bye = CloseFrame { code: CloseCode::Invalid, reason: Utf8Bytes::default() };
                                let _ = sink.send(Message::Close(Some(bye))).now_or_never();
                                return FaultKind::NotJson;
                            }
                        }
                        Some(Ok(Message::Binary(bytes))) => {
                            if let Told::Garbage = self.hear(bytes) {
                                return FaultKind::NotJson;
                            }
                        }
                        // The answer to a ping is written with the next flush.
                        Some(Ok(Message::Ping(_))) => { writing.get_or_insert_with(Instant::now); }
                        Some(Ok(Message::Pong(_) | Message::Frame(_))) => {}
                        Some(Ok(Message::Close(_))) | None => return FaultKind::Reset,
                        Some(Err(Error::Capacity(_))) => return FaultKind::TooLarge,
                        Some(Err(Error::Utf8(_))) => return FaultKind::NotJson,
                        Some(Err(_)) => return FaultKind::Reset,
                    }
                }
                () = sleep_until(due) => {
                    if writing.is_some() || pinged {
                        return FaultKind::Timeout;
                    }
                    pinged = true;
                    held.get_or_insert(Message::Ping(Bytes::new()));
                }
            }
        }
    }

    /// Takes an order, and says what is to be written for it.
    fn take(&mut self, order: Order) -> Option<Message> {
        match order {
            Order::Ask(Ask { first, count, text, left, reply }) => {
                left.set();
                // In this order: whoever gave up before sees that nothing left, or is seen here to be gone.
                if reply.is_closed() {
                    return None;
                }
                self.waiting.insert(first, Waiting { count, reply: Some(reply) });
                // Our own text, and requests that alloy wrote, are UTF-8.
                Some(Message::Text(Utf8Bytes::try_from(text).ok()?))
            }
            Order::Forget(first) => {
                let given_up = self.waiting.get_mut(&first).and_then(|waiting| waiting.reply.take());
                self.forgotten += usize::from(given_up.is_some());
                None
            }
        }
    }

    /// Gives a frame to whoever waits for it.
    fn hear(&mut self, frame: Bytes) -> Told {
        // What does not say to what it is can only be told apart when nothing else is to come.
        let alone = self.waiting.len() == 1 && self.forgotten == 0;
        let whose = match read(&frame) {
            Some(whose) => whose,
            // Somebody who waits alone may be told in words: of a limit, mostly.
            None if alone => Whose::Anybody,
            None => return Told::Garbage,
        };
        let (first, naming) = match whose {
            Whose::Call(number) => {
                let near = self.waiting.range(..=number).next_back();
                let near = near.filter(|(first, waiting)| number - **first < waiting.count);
                (near.map(|(first, _)| *first), Naming::Named)
            }
            Whose::Anybody if alone => (self.waiting.keys().next().copied(), Naming::Guessed),
            Whose::Anybody | Whose::Nobody => (None, Naming::Guessed),
        };
        match first.and_then(|first| self.waiting.remove(&first)) {
            Some(Waiting { reply: Some(reply), .. }) => {
                let heard = HttpReply { status: None, retry_after: None, body: frame, sent: true };
                // Whoever gave up in this moment does not need it.
                let _ = reply.send(Heard::Reply(heard, naming));
            }
            Some(Waiting { reply: None, .. }) => {
                self.forgotten -= 1;
                self.strays.increment(1);
            }
            None => self.strays.increment(1),
        }
        Told::Sense
    }

    /// Tells everybody that the connection has ended.
    fn fail(&mut self, end: End) {
        self.forgotten = 0;
        for reply in std::mem::take(&mut self.waiting).into_values().filter_map(|waiting| waiting.reply) {
            let _ = reply.send(Heard::Broken(Broken { kind: end, sent: true }));
        }
    }
}

/// Whether a frame was JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Sense,
    /// Frames cannot be told apart from here on.
    Garbage,
}

/// To whom a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// To the call of this number.
    Call(u64),
    /// An error that does not say to what.
    Anybody,
    /// A notification, or something else that was not asked for.
    Nobody,
}

/// As much of a frame as tells to whom it is.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// To whom a frame is; `None` for what is no JSON-RPC.
fn read(frame: &[u8]) -> Option<Whose> {
    if let Ok(Object(head)) = serde_json::from_slice::<Object<Head<'_>>>(frame) {
        return Some(head.whose());
    }
    let heads: Vec<Option<Object<Head<'_>>>> = serde_json::from_slice(frame).ok()?;
    let call =
        heads.iter().flatten().map(|Object(head)| head.whose()).find(|whose| matches!(whose, Whose::Call(_)));
    Some(call.unwrap_or(Whose::Nobody))
}

impl Head<'_> {
    fn whose(&self) -> Whose {
        let id = self.id.filter(|id| id.get() != "null");
        match (self.method, id) {
            (Some(_), _) => Whose::Nobody,
            (None, Some(id)) => id.get().parse().map_or(Whose::Nobody, Whose::Call),
            (None, None) if self.error.is_some() => Whose::Anybody,
            (None, None) => Whose::Nobody,
        }
    }
}

#[cfg(test)]
mod tests;
