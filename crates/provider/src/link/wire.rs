//! JSON-RPC envelopes: what is written and what is read.

use std::{borrow::Cow, collections::HashMap, fmt, marker::PhantomData};

use alloy::rpc::json_rpc::{ErrorPayload, Id, ResponsePayload, SerializedRequest};
use backstay_core::failure::{Classifier, Content, FaultKind, Reply as Shown, RpcError, Verdict};
use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

use crate::link::http::HttpReply;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: Id,
    pub(crate) method: Cow<'static, str>,
    /// The whole request object, as JSON.
    text: Bytes,
}

/// What one request came to at one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) verdict: Verdict,
    /// `None` where the endpoint gave nothing that a caller could be handed.
    pub(crate) payload: Option<ResponsePayload>,
}

impl Call {
    /// A request of our own. `params` is a JSON array.
    pub(crate) fn new(id: Id, method: impl Into<Cow<'static, str>>, params: &str) -> Self {
        let method = method.into();
        let (id_text, method_text) = (text_of(&id), text_of(&method));
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id_text},"method":{method_text},"params":{params}}}"#);
        Self { id, method, text: text.into() }
    }

    /// A request as alloy serialised it; its text is not copied.
    pub(crate) fn from_alloy(request: SerializedRequest) -> Self {
        let (meta, text) = request.decompose();
        let text = String::from(Box::<str>::from(text));
        Self { id: meta.id, method: meta.method, text: text.into() }
    }

    /// The same request under another id.
    #[cfg(feature = "ws")]
    pub(crate) fn renumbered(&self, id: Id) -> Self {
        let params = self.params().map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
        let (id_text, method) = (text_of(&id), text_of(&self.method));
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id_text},"method":{method}{params}}}"#);
        Self { id, method: self.method.clone(), text: text.into() }
    }

    /// Whether it asks at a block tag that not every node serves.
    pub(crate) fn names_tag(&self) -> bool {
        let tag = |param: &&RawValue| {
            matches!(param.get(), "\"safe\"" | "\"finalized\"" | "\"pending\"" | "\"earliest\"")
        };
        self.param_list().iter().any(tag)
    }

    /// Whether its last parameter is `latest`, as the text shows it: alloy writes the id after the parameters, and
    /// most reads need not be parsed for this.
    pub(crate) fn ends_at_latest(&self) -> bool {
        let end = self.text.iter().rposition(|byte| *byte == b']').unwrap_or(0);
        self.text[..end].ends_with(b",\"latest\"")
    }

    /// Whether its first parameter is `latest`.
    pub(crate) fn names_latest(&self) -> bool {
        self.param_list().first().is_some_and(|block| block.get() == "\"latest\"")
    }

    /// The JSON text of the parameters; `None` where there are none.
    pub(crate) fn params(&self) -> Option<&str> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        serde_json::from_slice::<Params<'_>>(&self.text).ok()?.params.map(RawValue::get)
    }

    /// The parameters one by one; none where they are not an array.
    pub(crate) fn param_list(&self) -> Vec<&RawValue> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, default)]
            params: Vec<&'a RawValue>,
        }
        serde_json::from_slice::<Params<'_>>(&self.text).map(|found| found.params).unwrap_or_default()
    }
}

impl Reply {
    pub(crate) const fn fault(kind: FaultKind) -> Self {
        Self { verdict: Verdict::Fault(kind), payload: None }
    }

    /// The JSON text of a result.
    pub(crate) fn result(&self) -> Option<&str> {
        match &self.payload {
            Some(ResponsePayload::Success(result)) => Some(result.get()),
            Some(ResponsePayload::Failure(_)) | None => None,
        }
    }

    /// Whether the result is `null`.
    pub(crate) fn is_null(&self) -> bool {
        self.result() == Some("null")
    }
}

/// JSON of what can always be written as JSON.
fn text_of(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}

/// The body of a request: an object, or an array of them.
pub(crate) fn body(calls: &[&Call]) -> Bytes {
    match calls {
        [call] => call.text.clone(),
        calls => {
            let texts: Vec<&[u8]> = calls.iter().map(|call| call.text.as_ref()).collect();
            let joined = texts.join(&b","[..]);
            Bytes::from([b"[", joined.as_slice(), b"]"].concat())
        }
    }
}

/// Reads the replies to `calls` out of an HTTP reply, in the order of the calls. Matched by id, never by
/// position (V4).
pub(crate) fn read(calls: &[&Call], http: &HttpReply, classifier: &Classifier) -> Vec<Reply> {
    let all = |reply: Reply| calls.iter().map(|_| reply.clone()).collect();
    let reader = Reader { http, classifier };
    match calls {
        [call] => match envelope(&http.body) {
            Ok(envelope) => vec![reader.one(call, &envelope)],
            Err(error) => vec![reader.unreadable(call, &error)],
        },
        // Some servers put null where they have nothing to say: only that element has failed.
        [first, ..] => match serde_json::from_slice::<Vec<Option<Object<Envelope<'_>>>>>(&http.body) {
            Ok(envelopes) => {
                let mut by_id: HashMap<Id, Option<&Envelope<'_>>> = HashMap::with_capacity(calls.len());
                for Object(envelope) in envelopes.iter().flatten() {
                    let Some(id) = envelope.own_id() else { continue };
                    by_id
                        .entry(id)
                        // Two answers to one call that differ are none.
                        .and_modify(|known| *known = known.filter(|known| known.says_as(envelope)))
                        .or_insert(Some(envelope));
                }
                let read = |call: &&Call| match by_id.get(&call.id) {
                    Some(Some(envelope)) => reader.one(call, envelope),
                    Some(None) | None => Reply::fault(FaultKind::WrongId),
                };
                calls.iter().map(read).collect()
            }
            // A single error object in answer to a batch speaks for all of it: a limit, mostly.
            Err(error) => match envelope(&http.body) {
                Ok(envelope) if envelope.error.is_some() => all(match reader.one(first, &envelope).verdict {
                    verdict @ (Verdict::RateLimited { .. } | Verdict::Fault(_)) => {
                        Reply { verdict, payload: None }
                    }
                    // A batch that is too large, mostly: its elements are asked for by themselves.
                    _ => Reply { verdict: Verdict::Unclassified, payload: None },
                }),
                Ok(_) | Err(_) => all(reader.unreadable(first, &error)),
            },
        },
        [] => Vec::new(),
    }
}

/// What a payload comes to, aside from how it came.
pub(crate) fn verdict_of(method: &str, payload: &ResponsePayload, classifier: &Classifier) -> Verdict {
    let content = match payload {
        ResponsePayload::Success(result) => Content::Result(result.get()),
        ResponsePayload::Failure(error) => Content::Error(shown(error)),
    };
    classifier.classify(&Shown { method, status: None, retry_after: None, content })
}

fn shown(error: &ErrorPayload) -> RpcError<'_> {
    RpcError { code: error.code, message: &error.message, data: error.data.as_deref().map(RawValue::get) }
}

struct Reader<'a> {
    http: &'a HttpReply,
    classifier: &'a Classifier,
}

impl Reader<'_> {
    fn one(&self, call: &Call, envelope: &Envelope<'_>) -> Reply {
        let error = envelope.error.filter(|error| error.get() != "null");
        match (error, envelope.result) {
            // An error may come without an id: the server could not read ours, or did not try.
            (Some(error), _) if envelope.is_to(call) || envelope.has_no_id() => {
                let payload = error_payload(error);
                let verdict = self.classify(&call.method, Content::Error(shown(&payload)));
                Reply { verdict, payload: Some(ResponsePayload::Failure(payload)) }
            }
            (None, Some(result)) if envelope.is_to(call) => Reply {
                verdict: self.classify(&call.method, Content::Result(result.get())),
                payload: Some(ResponsePayload::Success(result.to_owned())),
            },
            (Some(_), _) | (None, Some(_)) => Reply::fault(FaultKind::WrongId),
            (None, None) => self.text(call),
        }
    }

    fn unreadable(&self, call: &Call, error: &serde_json::Error) -> Reply {
        let starts_as_json = self.http.body.iter().find(|byte| !byte.is_ascii_whitespace());
        match starts_as_json {
            Some(b'{' | b'[') if error.is_eof() => Reply::fault(FaultKind::Truncated),
            _ => self.text(call),
        }
    }

    fn text(&self, call: &Call) -> Reply {
        let text = String::from_utf8_lossy(&self.http.body);
        Reply { verdict: self.classify(&call.method, Content::Text(&text)), payload: None }
    }

    fn classify(&self, method: &str, content: Content<'_>) -> Verdict {
        let shown = Shown { method, status: self.http.status, retry_after: self.http.retry_after, content };
        self.classifier.classify(&shown)
    }
}

/// A reply object, read leniently: `error` may be null, its code a string, the whole of it a text.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

impl Envelope<'_> {
    fn is_to(&self, call: &Call) -> bool {
        self.own_id().is_some_and(|id| id == call.id)
    }

    fn own_id(&self) -> Option<Id> {
        self.id.and_then(|id| serde_json::from_str(id.get()).ok())
    }

    fn says_as(&self, other: &Self) -> bool {
        let raw = |value: Option<&RawValue>| value.map(|value| value.get().to_owned());
        raw(self.result) == raw(other.result) && raw(self.error) == raw(other.error)
    }

    fn has_no_id(&self) -> bool {
        self.id.is_none_or(|id| id.get() == "null")
    }
}

/// An object that is read as one: a plain struct would take an array for its fields in their order.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }
        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// Reads a reply object.
fn envelope(body: &[u8]) -> serde_json::Result<Envelope<'_>> {
    serde_json::from_slice::<Object<Envelope<'_>>>(body).map(|object| object.0)
}

/// Tells `null` from absent, which `Option` alone does not.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The longest message of a node that an error keeps, in bytes.
const LONGEST_MESSAGE: usize = 4096;

/// A node's words, cut where they become a page.
fn bounded(mut message: String) -> Cow<'static, str> {
    if message.len() > LONGEST_MESSAGE {
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        message.push('…');
    }
    message.into()
}

fn error_payload(error: &RawValue) -> ErrorPayload {
    #[derive(Deserialize)]
    struct Lenient {
        #[serde(default)]
        code: serde_json::Value,
        #[serde(default)]
        message: Option<String>,
        #[serde(default)]
        data: Option<Box<RawValue>>,
    }
    let plain = |message: String| ErrorPayload { code: 0, message: bounded(message), data: None };
    match serde_json::from_str::<Lenient>(error.get()) {
        Ok(lenient) => {
            let code = match &lenient.code {
                serde_json::Value::String(text) => text.parse().ok(),
                other => other.as_i64(),
            };
            let message = bounded(lenient.message.unwrap_or_default());
            ErrorPayload { code: code.unwrap_or_default(), message, data: lenient.data }
        }
        Err(_) => {
            plain(serde_json::from_str::<String>(error.get()).unwrap_or_else(|_| error.get().to_owned()))
        }
    }
}

/// A result of our own. `json` is valid JSON by construction.
pub(crate) fn known(json: String) -> ResponsePayload {
    match RawValue::from_string(json) {
        Ok(result) => ResponsePayload::Success(result),
        Err(error) => {
            ResponsePayload::Failure(ErrorPayload::internal_error_message(error.to_string().into()))
        }
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: &str) -> HttpReply {
        HttpReply {
            status: Some(200),
            retry_after: None,
            sent: true,
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }

    fn one(body: &str) -> Reply {
        let call = Call::new(Id::Number(7), "eth_blockNumber", "[]");
        read(&[&call], &reply(body), &Classifier::default()).remove(0)
    }

    #[test]
    fn sloppy_envelopes_are_read_and_wrong_ones_are_faults() {
        let check = |body: &str, expected: &str| {
            let reply = one(body);
            let shown = match &reply.payload {
                Some(ResponsePayload::Success(result)) => result.get().to_owned(),
                Some(ResponsePayload::Failure(error)) => format!("{} {}", error.code, error.message),
                None => reply.verdict.label().to_owned(),
            };
            assert_eq!(shown, expected, "{body}");
        };
        check(r#"{"jsonrpc":"2.0","id":7,"result":"0x1"}"#, "\"0x1\"");
        check(r#"{"id":7,"result":"0x1","error":null}"#, "\"0x1\"");
        check(r#"{"id":7,"result":null}"#, "null");
        check(r#"{"id":7,"result":null,"error":{"code":"-32000","message":"odd"}}"#, "-32000 odd");
        check(r#"{"id":7,"error":"odd"}"#, "0 odd");
        check(r#"{"error":{"code":-32005,"message":"odd"}}"#, "-32005 odd");
        check(r#"{"id":8,"result":"0x1"}"#, "wrong id");
        check(r#"{"result":"0x1"}"#, "wrong id");
        check(r#"{"id":7,"result":"0x"#, "truncated");
        check(r#"[7,"0x1"]"#, "not json");
        check(r#"[{"id":7,"result":"0x1"}]"#, "not json");
        check(r#"[{"id":7,"result":"0x1"#, "truncated");
    }

    #[test]
    fn a_read_at_latest_is_known_by_its_text() {
        let check = |text: &str, expected: bool| {
            let text = Bytes::copy_from_slice(text.as_bytes());
            let call = Call { id: Id::Number(1), method: "eth_call".into(), text };
            assert_eq!(call.ends_at_latest(), expected, "{call:?}");
        };
        check(r#"{"method":"eth_call","params":[{},"latest"],"id":1,"jsonrpc":"2.0"}"#, true);
        check(r#"{"method":"eth_call","params":[{},"0x1"],"id":1,"jsonrpc":"2.0"}"#, false);
        check(r#"{"method":"eth_call","params":[{},"latest",{}],"id":1,"jsonrpc":"2.0"}"#, false);
        check(r#"{"method":"eth_chainId","id":1,"jsonrpc":"2.0"}"#, false);
        check("", false);
    }

    #[test]
    fn batches_are_matched_by_id() {
        let calls = [1, 2, 3].map(|id| Call::new(Id::Number(id), "eth_blockNumber", "[]"));
        let calls: Vec<&Call> = calls.iter().collect();
        let body = r#"[{"id":3,"result":"c"},{"id":1,"result":"a"}]"#;
        let replies = read(&calls, &reply(body), &Classifier::default());
        let results: Vec<_> =
            replies.iter().map(|reply| reply.result().unwrap_or(reply.verdict.label())).collect();
        assert_eq!(results, ["\"a\"", "wrong id", "\"c\""]);
    }
}
