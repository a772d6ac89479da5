//! An endpoint over WebSocket, with faults.

use std::{
    fmt,
    io::Write as _,
    net::{Ipv4Addr, Shutdown, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{SinkExt as _, StreamExt as _};
use http::HeaderMap;
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::{
        self,
        handshake::server::{ErrorResponse, Request, Response},
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};
use url::Url;

use crate::{
    Error,
    upstream::{Answer, Upstream},
};

/// A WebSocket endpoint on loopback in front of a chain. It ends when it is dropped.
///
/// Each message is answered by itself, so that replies may overtake each other.
pub struct SocketServer {
    address: SocketAddr,
    site: Arc<Site>,
    task: AbortHandle,
}

/// What happens to a connection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Upgrade {
    /// It becomes a WebSocket.
    #[default]
    Accept,
    /// It is refused with this HTTP answer.
    Refuse {
        /// The status code; one that HTTP does not allow is sent as 500.
        status: u16,
        /// Additional headers; those that HTTP does not allow are left out.
        headers: Vec<(String, String)>,
        /// The body.
        body: String,
    },
    /// It becomes a WebSocket, and is closed with this code at once.
    CloseWith(u16),
    /// Nothing is ever written.
    Hang,
}

/// What happens to a message.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Message {
    /// Forwarded to the chain and answered.
    #[default]
    Pass,
    /// Forwarded to the chain; the answer comes this much later.
    Late(Duration),
    /// Not forwarded; these texts are sent, one message each.
    Texts(Vec<String>),
    /// Forwarded; these texts are sent before the answer, one message each.
    After(Vec<String>),
    /// Not forwarded; bytes that are no UTF-8 are sent as a text.
    NotText,
    /// Not forwarded, never answered.
    Hang,
    /// Not forwarded; the connection is closed with this code.
    CloseWith(u16),
    /// Not forwarded; a message is begun, and the connection ends in the middle of it.
    Cut,
}

type Script = Arc<dyn Fn(&Value) -> Message + Send + Sync>;

struct Site {
    upstream: Upstream,
    upgrade: Mutex<Upgrade>,
    script: Mutex<Script>,
    record: Mutex<Record>,
    connections: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Record {
    upgrades: Vec<HeaderMap>,
    messages: Vec<Value>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What runs under these locks moves values and does not panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SocketServer {
    /// Starts one in front of a chain, given by its HTTP URL.
    ///
    /// # Errors
    ///
    /// Where no port can be taken.
    pub async fn start(chain: &Url) -> Result<Self, Error> {
        let deaf = |source| Error::Listen { endpoint: "over WebSocket".to_owned(), source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(deaf)?;
        let address = listener.local_addr().map_err(deaf)?;
        let site = Arc::new(Site {
            upstream: Upstream::new(chain.clone()),
            upgrade: Mutex::default(),
            script: Mutex::new(Arc::new(|_| Message::Pass)),
            record: Mutex::default(),
            connections: Mutex::default(),
        });
        let task = tokio::spawn(accept(Arc::clone(&site), listener)).abort_handle();
        Ok(Self { address, site, task })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("ws://{}/", self.address)
    }

    /// Sets what happens to connections from now on.
    pub fn upgrade(&self, upgrade: Upgrade) {
        *locked(&self.site.upgrade) = upgrade;
    }

    /// Sets what happens to messages from now on. A message is the JSON of a request, or an array of them.
    pub fn on_message(&self, script: impl Fn(&Value) -> Message + Send + Sync + 'static) {
        *locked(&self.site.script) = Arc::new(script);
    }

    /// Ends every connection; new ones are taken.
    pub fn disconnect(&self) {
        locked(&self.site.connections).abort_all();
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        let mut connections = locked(&self.site.connections);
        while connections.try_join_next().is_some() {}
        connections.len()
    }

    /// The headers of every upgrade that was asked for, oldest first.
    pub fn upgrades(&self) -> Vec<HeaderMap> {
        locked(&self.site.record).upgrades.clone()
    }

    /// Every message that was received, oldest first.
    pub fn messages(&self) -> Vec<Value> {
        locked(&self.site.record).messages.clone()
    }

    /// How often a method was asked for, elements of batches too.
    pub fn count(&self, method: &str) -> usize {
        let calls = |message: &Value| match message {
            Value::Array(calls) => calls.iter().filter(|call| call["method"] == method).count(),
            call => usize::from(call["method"] == method),
        };
        locked(&self.site.record).messages.iter().map(calls).sum()
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        self.task.abort();
        locked(&self.site.connections).abort_all();
    }
}

impl fmt::Debug for SocketServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketServer").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn accept(site: Arc<Site>, listener: TcpListener) {
    loop {
        // Out of descriptors, or the client left: the next accept tells.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let mut connections = locked(&site.connections);
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(Arc::clone(&site), stream));
    }
}

/// What a connection writes.
enum Out {
    Text(String),
    Close(u16),
    Raw(&'static [u8]),
    Cut,
}

async fn serve(site: Arc<Site>, stream: TcpStream) {
    let upgrade = locked(&site.upgrade).clone();
    if matches!(upgrade, Upgrade::Hang) {
        return std::future::pending().await;
    }
    // A second handle writes what is no frame.
    let Ok((stream, mut raw)) = stream.into_std().and_then(|stream| {
        let raw = stream.try_clone()?;
        Ok((TcpStream::from_std(stream)?, raw))
    }) else {
        return;
    };
    #[expect(clippy::result_large_err, reason = "the type is that of the handshake")]
    let answer = |request: &Request, response: Response| answer(&site, &upgrade, request, response);
    let Ok(socket) = accept_hdr_async(stream, answer).await else { return };
    let (mut sink, mut messages) = socket.split();
    let (out, mut outgoing) = mpsc::unbounded_channel();
    if let Upgrade::CloseWith(code) = upgrade {
        let _ = out.send(Out::Close(code));
    }
    let mut answers = JoinSet::new();
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(Ok(message)) = message else { return };
                let tungstenite::Message::Text(text) = message else { continue };
                let Ok(value) = serde_json::from_str::<Value>(&text) else { continue };
                let script = Arc::clone(&locked(&site.script));
                let what = script(&value);
                locked(&site.record).messages.push(value);
                answers.spawn(carry_out(Arc::clone(&site), what, text.to_string(), out.clone()));
            }
            Some(what) = outgoing.recv() => {
                let message = match what {
                    Out::Text(text) => tungstenite::Message::text(text),
                    Out::Close(code) => tungstenite::Message::Close(Some(CloseFrame {
                        code: CloseCode::from(code),
                        reason: "".into(),
                    })),
                    Out::Raw(bytes) => {
                        let _ = raw.write_all(bytes);
                        continue;
                    }
                    Out::Cut => {
                        // A text of 4096 bytes is announced.
                        let _ = raw.write_all(&[0x81, 126, 0x10, 0x00]);
                        let _ = raw.write_all(br#"{"jsonrpc":"2.0","#);
                        let _ = raw.shutdown(Shutdown::Both);
                        return;
                    }
                };
                if sink.send(message).await.is_err() {
                    return;
                }
            }
            Some(_) = answers.join_next() => {}
        }
    }
}

#[expect(clippy::result_large_err, reason = "the type is that of the handshake")]
fn answer(
    site: &Site,
    upgrade: &Upgrade,
    request: &Request,
    response: Response,
) -> Result<Response, ErrorResponse> {
    locked(&site.record).upgrades.push(request.headers().clone());
    let Upgrade::Refuse { status, headers, body } = upgrade else { return Ok(response) };
    let mut refused = ErrorResponse::new(Some(body.clone()));
    *refused.status_mut() =
        http::StatusCode::from_u16(*status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (http::HeaderName::try_from(name), http::HeaderValue::try_from(value))
        {
            refused.headers_mut().insert(name, value);
        }
    }
    Err(refused)
}

async fn carry_out(site: Arc<Site>, what: Message, text: String, out: mpsc::UnboundedSender<Out>) {
    let tell = |what| {
        // A client that has left hears nothing.
        let _ = out.send(what);
    };
    let pass = async |text: String| match site.upstream.post(text.into()).await {
        Answer::Rpc { body: Some(body), .. } | Answer::Http { body, .. } => {
            tell(Out::Text(String::from_utf8_lossy(&body).into_owned()));
        }
        Answer::Rpc { body: None, .. } | Answer::Unreachable(_) => tell(Out::Close(1011)),
    };
    match what {
        Message::Pass => pass(text).await,
        Message::Late(delay) => {
            tokio::time::sleep(delay).await;
            pass(text).await;
        }
        Message::Texts(texts) => texts.into_iter().map(Out::Text).for_each(tell),
        Message::After(texts) => {
            texts.into_iter().map(Out::Text).for_each(tell);
            pass(text).await;
        }
        // A text of two bytes that are none.
        Message::NotText => tell(Out::Raw(&[0x81, 2, 0xff, 0xfe])),
        Message::Hang => {}
        Message::CloseWith(code) => tell(Out::Close(code)),
        Message::Cut => tell(Out::Cut),
    }
}
