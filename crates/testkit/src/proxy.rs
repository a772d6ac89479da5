//! The HTTP server in front of a chain: connections, and the tasks that serve them.

use std::{
    collections::BTreeSet,
    future::{pending, poll_fn},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::oneshot,
    task::{JoinHandle, JoinSet},
};

use crate::{
    History, Program, Rule, View,
    exchange::{Due, Ending, Exchange, Told, response, too_large},
    record::{Entry, Log},
    upstream::{MAX_BODY_BYTES, Upstream},
};

/// The program that an endpoint runs now.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) rules: Arc<Vec<Rule>>,
    pub(crate) view: View,
    pub(crate) live_for: BTreeSet<String>,
    pub(crate) history: History,
    turns: AtomicU64,
}

impl From<Program> for Loaded {
    fn from(program: Program) -> Self {
        let Program { rules, view, live_for, history } = program;
        Self { rules: Arc::new(rules), view, live_for, history, turns: AtomicU64::new(0) }
    }
}

/// One endpoint of a fleet.
#[derive(Debug)]
pub(crate) struct Site {
    name: String,
    address: SocketAddr,
    log: Arc<Log>,
    upstream: Option<Arc<Upstream>>,
    loaded: Mutex<Arc<Loaded>>,
    /// What was received is carried out even if its client leaves.
    exchanges: Mutex<JoinSet<()>>,
    /// Held over the awaits of closing and opening, so that these do not overlap.
    door: tokio::sync::Mutex<Door>,
    closer: Mutex<Option<Closer>>,
}

#[derive(Debug)]
enum Door {
    Open(JoinHandle<()>),
    /// Nobody listens; the socket keeps the port from being given to another.
    Closed(Option<TcpSocket>),
}

/// Ends the listener when it is sent to or dropped.
#[derive(Debug)]
struct Closer(#[expect(dead_code, reason = "dropping it is the signal")] oneshot::Sender<()>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What runs under these locks moves values and does not panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Site {
    pub(crate) async fn open(
        name: String,
        log: Arc<Log>,
        upstream: Option<Arc<Upstream>>,
        program: Program,
    ) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let site = Arc::new(Self {
            name,
            address: listener.local_addr()?,
            log,
            upstream,
            loaded: Mutex::new(Arc::new(program.into())),
            exchanges: Mutex::default(),
            door: tokio::sync::Mutex::new(Door::Closed(None)),
            closer: Mutex::default(),
        });
        let mut door = site.door.lock().await;
        *door = site.listen(listener);
        drop(door);
        Ok(site)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) fn upstream(&self) -> Option<&Upstream> {
        self.upstream.as_deref()
    }

    pub(crate) fn enter(&self, method: &str, params: Value) -> Entry {
        self.log.enter(&self.name, method, params, Instant::now())
    }

    /// The program for one exchange, and the exchange's number under it.
    pub(crate) fn next_turn(&self) -> (Arc<Loaded>, u64) {
        let loaded = Arc::clone(&locked(&self.loaded));
        let turn = loaded.turns.fetch_add(1, Ordering::SeqCst);
        (loaded, turn)
    }

    pub(crate) fn load(&self, program: Program) {
        *locked(&self.loaded) = Arc::new(program.into());
    }

    /// Changes the view; the rules keep their counts, and the history stays.
    pub(crate) fn set_view(&self, view: View) {
        let mut loaded = locked(&self.loaded);
        *loaded = Arc::new(Loaded {
            rules: Arc::clone(&loaded.rules),
            view,
            live_for: loaded.live_for.clone(),
            history: loaded.history.clone(),
            turns: AtomicU64::new(0),
        });
    }

    fn listen(self: &Arc<Self>, listener: TcpListener) -> Door {
        let (closer, closed) = oneshot::channel();
        *locked(&self.closer) = Some(Closer(closer));
        Door::Open(tokio::spawn(accept(Arc::clone(self), listener, closed)))
    }

    /// Closes the listener, the connections and what is under way. New connections are refused on return.
    pub(crate) async fn kill(&self) {
        let mut door = self.door.lock().await;
        let Door::Open(task) = &mut *door else { return };
        locked(&self.closer).take();
        // A kill that was given up half-way may have seen it end.
        if !task.is_finished() {
            // It ends by itself; a panic in it has been reported by the runtime.
            let _ = task.await;
        }
        let mut exchanges = std::mem::take(&mut *locked(&self.exchanges));
        exchanges.shutdown().await;
        *door = Door::Closed(hold(self.address).ok());
    }

    /// Listens again on the same port.
    pub(crate) async fn revive(self: &Arc<Self>) -> io::Result<()> {
        let mut door = self.door.lock().await;
        let Door::Closed(held) = &mut *door else { return Ok(()) };
        let socket = match held.take() {
            Some(socket) => socket,
            None => hold(self.address)?,
        };
        *door = self.listen(socket.listen(1024)?);
        Ok(())
    }

    /// Ends every task without waiting.
    pub(crate) fn close(&self) {
        locked(&self.closer).take();
        locked(&self.exchanges).abort_all();
    }

    fn spawn(&self, exchange: Exchange, client: oneshot::Sender<Told>) {
        let mut exchanges = locked(&self.exchanges);
        while exchanges.try_join_next().is_some() {}
        exchanges.spawn(exchange.run(client));
    }
}

/// Takes a port without listening on it: connections to it are refused.
fn hold(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept(site: Arc<Site>, listener: TcpListener, closed: oneshot::Receiver<()>) {
    let mut closed = pin!(closed);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut closed => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(Arc::clone(&site), stream));
                }
                // Out of descriptors, or the client left: the next accept tells.
                Err(_) => tokio::task::yield_now().await,
            },
        }
    }
    // A process that another thread is starting holds a copy of the socket until it runs its program, and
    // the port would go on taking connections for that long. Where a listener cannot be shut down, that is so.
    let _ = socket2::SockRef::from(&listener).shutdown(std::net::Shutdown::Both);
    drop(listener);
    connections.shutdown().await;
}

async fn serve(site: Arc<Site>, stream: TcpStream) {
    // Small replies are not to wait for acknowledgements; a failure costs time only.
    let _ = stream.set_nodelay(true);
    let end = Arc::new(End::default());
    let service = service_fn(|request| {
        let (site, end) = (Arc::clone(&site), Arc::clone(&end));
        // hyper hands the socket back only where the future can be moved.
        Box::pin(async move { exchange(site, request, &end).await })
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // An error is a client that left or a fault of the program: in both cases the connection is over.
    let _ = poll_fn(|context| {
        let polled = connection.poll_without_shutdown(context);
        if polled.is_pending() {
            // What was answered in this poll was written in it too.
            end.run_hooks();
        }
        polled
    })
    .await;
    let stream = connection.into_parts().io.into_inner();
    if end.reset.load(Ordering::SeqCst) {
        // Without it the close is an orderly one, which the client tells apart by its own wait only.
        let _ = stream.set_zero_linger();
    }
    drop(stream);
    end.run_hooks();
}

/// What the exchanges of a connection leave to it.
#[derive(Debug, Default)]
struct End {
    /// It is to end with a reset.
    reset: AtomicBool,
    /// To be called when what was answered has been written.
    hooks: Mutex<Vec<Due>>,
}

impl End {
    fn run_hooks(&self) {
        let due = std::mem::take(&mut *locked(&self.hooks));
        due.iter().for_each(Due::run);
    }
}

/// Makes hyper close the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("closed by the fault program")]
pub(crate) struct Closed;

async fn exchange(
    site: Arc<Site>,
    request: Request<Incoming>,
    end: &End,
) -> Result<Response<Payload>, Closed> {
    if request.method() != Method::POST {
        return Ok(response(StatusCode::METHOD_NOT_ALLOWED, "text/plain", Bytes::new()));
    }
    let body = match Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => return Ok(too_large()),
        Err(_) => return Err(Closed),
    };
    let (tell, told) = oneshot::channel();
    let exchange = Exchange::read(Arc::clone(&site), body);
    site.spawn(exchange, tell);
    // Otherwise the exchange was aborted, or a hook or a predicate of the test panicked in it.
    let Told { ending, hooks } = told.await.map_err(|_| Closed)?;
    if !matches!(ending, Ending::Hang) {
        locked(&end.hooks).extend(hooks);
    }
    match ending {
        Ending::Answer(answer) => Ok(answer),
        Ending::Hang => pending().await,
        Ending::Reset => {
            end.reset.store(true, Ordering::SeqCst);
            Err(Closed)
        }
        Ending::Close => Err(Closed),
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Payload {
    rest: Bytes,
    /// How much of what was announced is held back for ever.
    missing: u64,
    sent: bool,
}

impl Payload {
    pub(crate) fn whole(body: Bytes) -> Self {
        Self { rest: body, missing: 0, sent: false }
    }

    /// Announces the whole and holds back the second half.
    pub(crate) fn cut(mut self) -> Self {
        let kept = self.rest.len() / 2;
        self.missing = (self.rest.len() - kept) as u64;
        self.rest.truncate(kept);
        self
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Closed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Closed>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest)))));
        }
        if self.missing == 0 {
            return Poll::Ready(None);
        }
        if !self.sent {
            // What is written goes out to the client before the connection ends.
            self.sent = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(Closed)))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.missing == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64 + self.missing)
    }
}
