//! Replays of the table, and of replies that vary its wordings.

mod dialects;
mod properties;
mod reverts;
mod rows;

use super::{
    Classifier, Content, DataKind, Reply, RpcError, Verdict,
    row::{Entry, Example},
    table,
};

fn entries() -> impl Iterator<Item = &'static Entry> {
    [table::SPECIFIC, table::GENERIC].into_iter().flatten().copied().flatten()
}

fn reply_of(example: &Example) -> Reply<'_> {
    let content = match example.code {
        Some(code) => Content::Error(RpcError { code, message: example.message, data: example.data }),
        None => Content::Text(example.message),
    };
    Reply { method: example.method, status: example.status, retry_after: None, content }
}

fn error<'a>(method: &'a str, code: i64, message: &'a str) -> Reply<'a> {
    error_with(method, code, message, None)
}

fn error_with<'a>(method: &'a str, code: i64, message: &'a str, data: Option<&'a str>) -> Reply<'a> {
    let content = Content::Error(RpcError { code, message, data });
    Reply { method, status: Some(200), retry_after: None, content }
}

fn text(status: u16, body: &str) -> Reply<'_> {
    Reply { method: "eth_call", status: Some(status), retry_after: None, content: Content::Text(body) }
}

fn verdict(reply: &Reply<'_>) -> Verdict {
    Classifier::default().classify(reply)
}

fn missing(kind: DataKind, oldest: Option<u64>) -> Verdict {
    Verdict::Missing { kind, oldest }
}

const LIMITED: Verdict = Verdict::RateLimited { after: None };
const SEND: &str = "eth_sendRawTransaction";
