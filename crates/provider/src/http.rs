//! One HTTP exchange with one endpoint.

use std::time::Duration;

use alloy::transports::Authorization;
use backstay_core::{Error, Result, failure::FaultKind};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

use crate::config::EndpointConfig;

/// A reply, whatever its status.
#[derive(Clone, Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

/// Why there is no reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Broken {
    pub(crate) kind: FaultKind,
    /// Whether bytes of the request may have reached the endpoint.
    pub(crate) sent: bool,
}

/// A connection pool shared by all endpoints.
pub(crate) type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

pub(crate) fn client() -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(Duration::from_secs(30)));
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_webpki_roots()
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(60))
        .build(connector)
}

/// Where one endpoint's requests go. Holds keys: it is never shown.
pub(crate) struct Target {
    uri: Uri,
    headers: HeaderMap,
}

impl Target {
    pub(crate) fn new(config: &EndpointConfig) -> Result<Self> {
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
        for (key, value) in &config.headers {
            let wrong = |part: &str| {
                Error::config(format!("endpoint `{name}`: the {part} of its header `{key}` is not valid"))
            };
            let header = HeaderName::try_from(key.as_str()).map_err(|_| wrong("name"))?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| wrong("value"))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        let uri = url
            .as_str()
            .parse()
            .map_err(|_| Error::config(format!("endpoint `{name}`: its url is not a valid HTTP address")))?;
        Ok(Self { uri, headers })
    }
}

/// Posts a body and reads the reply, at most `limit` bytes of it.
///
/// # Cancel safety
///
/// Dropping it closes the connection; the request may have been received.
pub(crate) async fn post(
    client: &HttpClient,
    target: &Target,
    body: Bytes,
    limit: usize,
) -> Result<HttpReply, Broken> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.uri.clone();
    *request.headers_mut() = target.headers.clone();
    let response = client.request(request).await.map_err(|error| {
        let kind = match error.is_connect() {
            true if is_tls(&error) => FaultKind::Tls,
            true => FaultKind::Refused,
            false => FaultKind::Reset,
        };
        Broken { kind, sent: !error.is_connect() }
    })?;
    let status = response.status().as_u16();
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(seconds);
    let body = Limited::new(response.into_body(), limit).collect().await.map_err(|error| {
        let kind = if error.is::<LengthLimitError>() { FaultKind::TooLarge } else { FaultKind::Truncated };
        Broken { kind, sent: true }
    })?;
    Ok(HttpReply { status, retry_after, body: body.to_bytes() })
}

/// `Retry-After` in seconds. The form with a date needs a clock that agrees with the server's, and hosted
/// endpoints do not use it.
fn seconds(value: &HeaderValue) -> Option<Duration> {
    let seconds: f64 = value.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn is_tls(error: &hyper_util::client::legacy::Error) -> bool {
    let mut cause = std::error::Error::source(error);
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
