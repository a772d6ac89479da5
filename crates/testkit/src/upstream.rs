//! The chain behind an endpoint.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use url::Url;

use crate::{Error, Reply, lens, view::Seen};

/// The largest body of a request or a reply.
pub(crate) const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

const POLL_PERIOD: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Upstream {
    url: Url,
    client: Client<HttpConnector, Full<Bytes>>,
    seen: Mutex<Seen>,
}

/// What the chain answered to one request, or why it did not.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A JSON-RPC reply, with the body it came in while nothing was changed.
    Rpc { reply: Reply, body: Option<Bytes> },
    /// Anything else.
    Http { status: StatusCode, body: Bytes },
    /// Nothing.
    Unreachable(String),
}

impl Upstream {
    pub(crate) fn new(url: Url) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Self { url, client, seen: Mutex::default() }
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        // Nothing that can panic runs under this lock.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a body as it is.
    pub(crate) async fn post(&self, body: Bytes) -> Answer {
        match self.exchange(body).await {
            Err(reason) => Answer::Unreachable(reason),
            Ok((status, body)) => {
                let reply = (status == StatusCode::OK)
                    .then(|| serde_json::from_slice::<Value>(&body).ok())
                    .flatten()
                    .and_then(|envelope| Reply::from_envelope(&envelope));
                match reply {
                    Some(reply) => Answer::Rpc { reply, body: Some(body) },
                    None => Answer::Http { status, body },
                }
            }
        }
    }

    async fn exchange(&self, body: Bytes) -> Result<(StatusCode, Bytes), String> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.url.as_str())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let response = self.client.request(request).await.map_err(|error| chain_of(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY_BYTES)
            .collect()
            .await
            .map_err(|error| error.to_string())?
            .to_bytes();
        Ok((status, body))
    }

    /// Asks the chain something on the testkit's own account.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Result<Reply, String> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        match self.post(body.into()).await {
            Answer::Rpc { reply, .. } => Ok(reply),
            Answer::Http { status, .. } => Err(format!("HTTP {status}")),
            Answer::Unreachable(reason) => Err(reason),
        }
    }

    /// The same, where only a result is of use.
    pub(crate) async fn result_of(&self, method: &str, params: Value) -> Result<Value, Error> {
        match self.ask(method, params).await {
            Ok(Reply::Result(value)) => Ok(value),
            Ok(Reply::Error(error)) => Err(Error::Refused { method: method.to_owned(), error }),
            Err(reason) => Err(Error::Unreachable { url: self.url.to_string(), reason }),
        }
    }

    /// The number of a field of a block or receipt; `None` where there is no such thing.
    pub(crate) async fn number_in(
        &self,
        method: &str,
        params: Value,
        field: &str,
    ) -> Result<Option<u64>, Error> {
        Ok(self.result_of(method, params).await?.get(field).and_then(lens::quantity))
    }

    /// The chain's head, noted with the time.
    pub(crate) async fn head(&self) -> Result<u64, Error> {
        let value = self.result_of("eth_blockNumber", json!([])).await?;
        let head = lens::quantity(&value).ok_or_else(|| Error::Unreachable {
            url: self.url.to_string(),
            reason: format!("eth_blockNumber answered {value}"),
        })?;
        self.seen().note(head, Instant::now());
        Ok(head)
    }

    /// Notes new heads for ever.
    pub(crate) async fn watch_heads(&self) {
        let mut ticks = tokio::time::interval(POLL_PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // A chain that is down has no new heads; a request that needs it tells the client so.
            let _ = self.head().await;
        }
    }
}

fn chain_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
