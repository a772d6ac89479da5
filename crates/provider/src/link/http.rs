//! One HTTP exchange with one endpoint, over connections of our own.
//!
//! They are kept here, not in a client's pool, for what only the connection knows: whether bytes of a request have
//! left (T3). It also spares each call the pool's bookkeeping, which costs more than everything else in this crate.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use alloy::transports::Authorization;
use backstay_core::{Error, Result, failure::FaultKind};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    client::conn::http1::{self, SendRequest},
    rt::{Read, ReadBufCursor, Write},
};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use tower::ServiceExt;

use crate::{
    config::{EndpointConfig, Kind},
    endpoints::now,
    link::Left,
};

/// How long a connection without a request is kept. Servers close theirs after 60 s and more, mostly; a request on
/// one that the server has just closed is made again on another.
const IDLE: Duration = Duration::from_secs(50);

/// A reply, whatever its status.
#[derive(Clone, Debug)]
pub(crate) struct HttpReply {
    /// The HTTP status; `None` for a message of a WebSocket.
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
    /// Whether the request may have reached the endpoint.
    pub(crate) sent: bool,
}

/// Why there is no reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Broken {
    pub(crate) kind: FaultKind,
    /// Whether bytes of the request may have reached the endpoint.
    pub(crate) sent: bool,
}

/// Makes connections, for WebSocket too; shared by all endpoints.
pub(crate) type Connector = HttpsConnector<HttpConnector>;

/// One connection.
struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// Whether the server takes no more bytes for now.
    stuck: Arc<AtomicBool>,
}

pub(crate) fn connector() -> Connector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(Duration::from_secs(30)));
    hyper_rustls::HttpsConnectorBuilder::new()
        .with_webpki_roots()
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector)
}

/// Where one endpoint's requests go, and the connections to it. Holds keys: it is never shown.
pub(crate) struct Target {
    connector: Connector,
    /// The whole address, to connect to.
    address: Uri,
    /// What is asked for there.
    path: Uri,
    headers: HeaderMap,
    kind: Kind,
    /// The connections without a request, and since when; the last used is the last.
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl Target {
    pub(crate) fn new(connector: Connector, config: &EndpointConfig) -> Result<Self> {
        let name = &config.name;
        let mut url = config.parse()?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = Authorization::extract_from_url(&url) {
            let value = HeaderValue::try_from(authorization.to_string()).map_err(|_| {
                Error::config(format!("endpoint `{name}`: user and password of its url make no valid header"))
            })?;
            headers.insert(header::AUTHORIZATION, value);
            // They are in the header now.
            let _ = url.set_username("");
            let _ = url.set_password(None);
        }
        let kind = EndpointConfig::kind(&url);
        let invalid = || Error::config(format!("endpoint `{name}`: its url is not a valid HTTP address"));
        let address: Uri = url.as_str().parse().map_err(|_| invalid())?;
        // The port is part of it only where it is not the scheme's own.
        let host = address.authority().ok_or_else(invalid)?.as_str();
        headers.insert(header::HOST, HeaderValue::try_from(host).map_err(|_| invalid())?);
        for (key, value) in &config.headers {
            let wrong = |part: &str| {
                Error::config(format!("endpoint `{name}`: the {part} of its header `{key}` is not valid"))
            };
            let header = HeaderName::try_from(key.as_str()).map_err(|_| wrong("name"))?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| wrong("value"))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        let path = address.path_and_query().ok_or_else(invalid)?.as_str().parse().map_err(|_| invalid())?;
        Ok(Self { connector, address, path, headers, kind, idle: Mutex::default() })
    }

    /// How it is spoken to.
    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    #[cfg(feature = "ws")]
    pub(crate) const fn connector(&self) -> &Connector {
        &self.connector
    }

    #[cfg(feature = "ws")]
    pub(crate) const fn address(&self) -> &Uri {
        &self.address
    }

    #[cfg(feature = "ws")]
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Posts a body and reads the reply, at most `limit` bytes of it.
    ///
    /// # Cancel safety
    ///
    /// Dropping it closes the connection; `left` says whether the request may have been received.
    pub(crate) async fn post(&self, body: Bytes, limit: usize, left: &Left) -> Result<HttpReply, Broken> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = self.headers.clone();
        loop {
            let (mut connection, age) = self.connection().await?;
            left.set();
            let response = match connection.requests.try_send_request(request).await {
                Ok(response) => response,
                Err(mut error) => match (error.take_message(), age) {
                    // The server had closed it before anything was written.
                    (Some(unsent), Age::Used) => {
                        left.unset();
                        request = unsent;
                        continue;
                    }
                    (unsent, _) => return Err(Broken { kind: FaultKind::Reset, sent: unsent.is_none() }),
                },
            };
            let status = response.status().as_u16();
            let retry_after = response.headers().get(header::RETRY_AFTER).and_then(seconds);
            let body = Limited::new(response.into_body(), limit).collect().await.map_err(|error| {
                let kind =
                    if error.is::<LengthLimitError>() { FaultKind::TooLarge } else { FaultKind::Truncated };
                Broken { kind, sent: true }
            })?;
            self.keep(connection);
            return Ok(HttpReply { status: Some(status), retry_after, body: body.to_bytes(), sent: true });
        }
    }

    /// A connection that takes a request: the last used that is free, or a new one.
    async fn connection(&self) -> Result<(Connection, Age), Broken> {
        loop {
            let last = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some((mut connection, since)) = last else { break };
            let fresh = now().saturating_duration_since(since) < IDLE;
            let requests = &mut connection.requests;
            // Its last request is written and answered, so this is a moment at most.
            if fresh && (requests.is_ready() || requests.ready().await.is_ok()) {
                return Ok((connection, Age::Used));
            }
        }
        let io = self.connector.clone().oneshot(self.address.clone()).await.map_err(|error| {
            let kind = if is_tls(error.as_ref()) { FaultKind::Tls } else { FaultKind::Refused };
            Broken { kind, sent: false }
        })?;
        let stuck = Arc::default();
        let io = Watched { io, stuck: Arc::clone(&stuck) };
        let (requests, driver) =
            http1::handshake(io).await.map_err(|_| Broken { kind: FaultKind::Reset, sent: false })?;
        // It ends when `requests` is dropped, or the server closes it. What went wrong is told to the request.
        tokio::spawn(async move { drop(driver.await) });
        Ok((Connection { requests, stuck }, Age::New))
    }

    /// Keeps a connection for the next request, unless the server answered without reading this one: the next would
    /// wait behind the rest of it.
    fn keep(&self, connection: Connection) {
        if connection.requests.is_closed() || connection.stuck.load(Ordering::SeqCst) {
            return;
        }
        let now = now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // The first has been idle for longest.
        while idle.first().is_some_and(|(_, since)| now.saturating_duration_since(*since) >= IDLE) {
            idle.remove(0);
        }
        idle.push((connection, now));
    }
}

/// Whether a connection has carried a request before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    New,
    Used,
}

/// A stream that notes when it takes no more bytes.
struct Watched<T> {
    io: T,
    stuck: Arc<AtomicBool>,
}

impl<T> Watched<T> {
    fn note<R>(&self, written: Poll<R>) -> Poll<R> {
        self.stuck.store(written.is_pending(), Ordering::SeqCst);
        written
    }
}

impl<T: Read + Unpin> Read for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: Write + Unpin> Write for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.note(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// `Retry-After` in seconds. The form with a date needs a clock that agrees with the server's, and hosted
/// endpoints do not use it.
pub(crate) fn seconds(value: &HeaderValue) -> Option<Duration> {
    let seconds: f64 = value.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Whether a connection failed for TLS.
pub(crate) fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let Some(io) = error.downcast_ref::<std::io::Error>() else {
            cause = error.source();
            continue;
        };
        if io.kind() == std::io::ErrorKind::InvalidData {
            return true;
        }
        // Its `source` is that of the error within, not the error within.
        cause = io.get_ref().map(|within| within as _);
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

    /// A server that answers so many requests on each connection and then closes it, and the number of connections that it took.
    async fn server(each: usize) -> (Target, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let taken = Arc::new(AtomicUsize::new(0));
        let count = taken.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let mut answered = 0;
                    while stream.read(&mut request).await.is_ok_and(|read| read > 0) && answered < each {
                        stream.write_all(REPLY).await.expect("the client listens");
                        answered += 1;
                        if answered == each {
                            return;
                        }
                    }
                });
            }
        });
        (Target::new(connector(), &EndpointConfig::new("a", url)).expect("a valid url"), taken)
    }

    async fn ask(target: &Target) -> Result<HttpReply, Broken> {
        target.post(Bytes::from_static(b"{}"), 1024, &Left::default()).await
    }

    #[tokio::test]
    async fn a_connection_is_used_again() {
        let (target, taken) = server(usize::MAX).await;
        for _ in 0..5 {
            assert_eq!(ask(&target).await.expect("a reply").status, Some(200));
        }
        assert_eq!(taken.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn what_was_not_written_to_a_closed_connection_goes_over_another() {
        let (target, taken) = server(1).await;
        for _ in 0..3 {
            ask(&target).await.expect("a reply");
            // Until this side has noticed that the server closed it.
            let idle = || target.idle.lock().expect("no panic");
            let open = || idle().iter().any(|(idle, _)| !idle.requests.is_closed());
            let closed = async {
                while open() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), closed).await.expect("the server closes it");
        }
        assert_eq!(taken.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_request_that_was_cut_off_may_have_arrived() {
        let (target, _) = server(0).await;
        let broken = ask(&target).await.expect_err("it is closed");
        assert_eq!((broken.kind, broken.sent), (FaultKind::Reset, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_rested_for_long_is_not_used_again() {
        let (target, taken) = server(usize::MAX).await;
        ask(&target).await.expect("a reply");
        tokio::time::advance(IDLE).await;
        ask(&target).await.expect("a reply");
        assert_eq!(taken.load(Ordering::SeqCst), 2);
    }

    /// A server that hands each connection to this.
    async fn served<F>(serve: impl Fn(TcpStream, usize) -> F + Send + 'static) -> Target
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::spawn(serve(stream, number));
            }
        });
        Target::new(connector(), &EndpointConfig::new("a", url)).expect("a valid url")
    }

    #[tokio::test]
    async fn a_connection_whose_request_was_answered_before_it_was_read_is_not_waited_for() {
        let target = served(async |mut stream, number| {
            let mut request = vec![0; 1024];
            let _ = stream.read(&mut request).await;
            stream.write_all(REPLY).await.expect("the client listens");
            // The first one reads no further.
            while number > 0 && stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                let _ = stream.write_all(REPLY).await;
            }
            std::future::pending().await
        })
        .await;
        let large = Bytes::from(vec![b' '; 64 << 20]);
        target.post(large, 1024, &Left::default()).await.expect("a reply");
        let next = tokio::time::timeout(Duration::from_secs(20), ask(&target)).await;
        next.expect("the next call goes over another connection").expect("a reply");
    }

    #[tokio::test]
    async fn while_tls_is_being_set_up_nothing_has_left() {
        let mut target = served(async |_stream, _| std::future::pending().await).await;
        let mut parts = target.address.into_parts();
        parts.scheme = Some(http::uri::Scheme::HTTPS);
        target.address = Uri::from_parts(parts).expect("it differs in its scheme");
        let left = Left::default();
        let asked = target.post(Bytes::from_static(b"{}"), 1024, &left);
        tokio::time::timeout(Duration::from_millis(200), asked).await.expect_err("it never answers");
        assert!(!left.maybe());
    }

    #[tokio::test]
    async fn a_request_that_is_not_read_to_its_end_may_have_left_and_dropping_it_ends_the_connection() {
        let (ended, end) = tokio::sync::oneshot::channel();
        let ended = Mutex::new(Some(ended));
        let target = served(move |mut stream, _| {
            let ended = ended.lock().expect("no panic").take();
            async move {
                let _ = stream.read(&mut [0; 1024]).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
                // Whatever is on its way, and then the end.
                while stream.read(&mut [0; 65536]).await.is_ok_and(|read| read > 0) {}
                let _ = ended.expect("there is one connection").send(());
            }
        })
        .await;
        let left = Left::default();
        let asked = target.post(Bytes::from(vec![b' '; 64 << 20]), 1024, &left);
        tokio::time::timeout(Duration::from_millis(100), asked).await.expect_err("it never answers");
        assert!(left.maybe());
        tokio::time::timeout(Duration::from_secs(20), end).await.expect("it ends").expect("it is told");
    }

    #[tokio::test]
    async fn a_reply_that_is_cut_off_or_out_of_order_may_be_to_what_arrived() {
        let check = async |text: &'static str, expected: FaultKind| {
            let target = served(async move |mut stream, _| {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(text.as_bytes()).await;
            })
            .await;
            let broken = ask(&target).await.expect_err(text);
            assert_eq!((broken.kind, broken.sent), (expected, true), "{text}");
        };
        check("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{", FaultKind::Truncated).await;
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n", FaultKind::Truncated).await;
        check("HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n{", FaultKind::Truncated).await;
        check("HTTP/1.1 200", FaultKind::Reset).await;
        check("what?\r\n\r\n", FaultKind::Reset).await;
        check("HTTP/1.1 100 Continue\r\n\r\n", FaultKind::Reset).await;
    }

    #[tokio::test]
    async fn interim_replies_are_passed_over_and_a_closing_connection_is_not_used_again() {
        let target = served(async |mut stream, number| {
            let _ = stream.read(&mut [0; 1024]).await;
            let reply = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
                         HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\n";
            let _ = stream.write_all(format!("{reply}{number}").as_bytes()).await;
            std::future::pending().await
        })
        .await;
        for body in ["0", "1", "2"] {
            let reply = ask(&target).await.expect("a reply");
            assert_eq!((reply.status, &*reply.body), (Some(200), body.as_bytes()));
        }
    }
}
