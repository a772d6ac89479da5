//! What the classifier is shown, and how much of it the classifier looks at.

use std::{borrow::Cow, time::Duration};

use serde_json::Value;

/// One reply to one call, as the transport read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The JSON-RPC method that was asked for.
    pub method: &'a str,
    /// The HTTP status; `None` where the transport has none.
    pub status: Option<u16>,
    /// The `Retry-After` header, where there was one.
    pub retry_after: Option<Duration>,
    /// The body.
    pub content: Content<'a>,
}

/// The body of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// The raw JSON of `result`.
    Result(&'a str),
    /// The `error` object.
    Error(RpcError<'a>),
    /// A body that is not JSON-RPC: an HTML page, plain text, half an answer, nothing.
    Text(&'a str),
}

/// A JSON-RPC error object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcError<'a> {
    /// Its `code`.
    pub code: i64,
    /// Its `message`; empty where there was none.
    pub message: &'a str,
    /// The raw JSON of its `data`.
    pub data: Option<&'a str>,
}

/// A wording stands at the start of a message. What follows is parameters, stack traces or a page.
const TEXT_LIMIT: usize = 4096;
/// How many texts inside `data` are looked at, and how deep they may lie.
const DATA_TEXTS: usize = 8;
const DATA_DEPTH: usize = 8;
/// Where vendors repeat or refine the message inside `data`. Links, stack traces and the revert reason,
/// which a contract chooses, are left out on purpose.
const TEXT_KEYS: [&str; 12] = [
    "message",
    "msg",
    "error",
    "details",
    "detail",
    "description",
    "payload",
    "data",
    "cause",
    "originalError",
    "inner",
    "innerError",
];

/// A reply made ready for matching.
pub(super) struct Seen<'a> {
    pub(super) method: &'a str,
    pub(super) status: Option<u16>,
    pub(super) retry_after: Option<Duration>,
    pub(super) code: Option<i64>,
    pub(super) body: Body,
    /// The message, or the text of a body that is not JSON-RPC.
    pub(super) message: Text<'a>,
    /// Texts found inside `data`.
    pub(super) inner: Vec<Text<'a>>,
    /// `data`, parsed; `None` where there is none or it is no JSON.
    pub(super) data: Option<Value>,
}

/// What kind of body is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// A JSON-RPC error.
    Rpc,
    /// Plain text, short enough to be a message.
    Plain,
    /// A page. Its text says something about the service, never about a transaction.
    Page,
}

/// A text, bounded, with its lower-case form.
pub(super) struct Text<'a> {
    pub(super) original: Cow<'a, str>,
    pub(super) lower: String,
}

impl<'a> Text<'a> {
    fn new(text: impl Into<Cow<'a, str>>) -> Self {
        let original = match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(clip(text)),
            Cow::Owned(text) => Cow::Owned(clip(&text).to_owned()),
        };
        let lower = original.to_ascii_lowercase();
        Self { original, lower }
    }
}

impl<'a> Seen<'a> {
    /// `None` for a result, which has no wording.
    pub(super) fn new(reply: &Reply<'a>) -> Option<Self> {
        match &reply.content {
            Content::Result(_) => None,
            Content::Error(error) => Some(Self::error(reply, error)),
            Content::Text(text) => Some(Self::text(reply, text)),
        }
    }

    fn error(reply: &Reply<'a>, error: &RpcError<'a>) -> Self {
        let data: Option<Value> = error.data.and_then(|raw| serde_json::from_str(raw).ok());
        let mut inner = Vec::new();
        if let Some(data) = &data {
            collect(data, 0, &mut inner);
        }
        Self {
            method: reply.method,
            status: reply.status,
            retry_after: reply.retry_after,
            code: Some(error.code),
            body: Body::Rpc,
            message: Text::new(error.message),
            inner,
            data,
        }
    }

    fn text(reply: &Reply<'a>, text: &'a str) -> Self {
        const MESSAGE_LIMIT: usize = 512;
        let text = text.trim();
        let plain = text.len() <= MESSAGE_LIMIT && !text.starts_with('<');
        Self {
            method: reply.method,
            status: reply.status,
            retry_after: reply.retry_after,
            code: None,
            body: if plain { Body::Plain } else { Body::Page },
            message: Text::new(text),
            inner: Vec::new(),
            data: None,
        }
    }

    /// The message, then what `data` says.
    pub(super) fn texts(&self) -> impl Iterator<Item = &Text<'a>> {
        std::iter::once(&self.message).chain(&self.inner)
    }
}

/// Collects the texts of `data`. Bytes are no text: they are looked for by `revert`.
fn collect(value: &Value, depth: usize, into: &mut Vec<Text<'_>>) {
    if depth > DATA_DEPTH || into.len() >= DATA_TEXTS {
        return;
    }
    match value {
        Value::String(text) if !text.starts_with("0x") => into.push(Text::new(text.clone())),
        Value::Object(fields) => {
            for key in TEXT_KEYS {
                if let Some(value) = fields.get(key) {
                    collect(value, depth + 1, into);
                }
            }
        }
        Value::Array(values) => {
            values.iter().take(DATA_TEXTS).for_each(|value| collect(value, depth + 1, into))
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The first `TEXT_LIMIT` bytes, at a character boundary.
pub(super) fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_LIMIT)]
}
