//! Rows of the table: the operator's and the built-in ones.

use alloy_primitives::Bytes;
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    DataKind, FaultKind, RefusalKind, Revert, Verdict, hints,
    reply::{Body, Seen, Text},
};
use crate::{Error, Result};

/// What a row says about a reply. [`Verdict`] without what only the reply can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Class {
    /// The EVM said no.
    Reverted,
    /// Above what the endpoint has seen.
    NotYet,
    /// History that the endpoint does not hold. The kind of data follows from the method.
    Missing,
    /// `NotYet` or `Missing`: the height asked for and the head, both in the message, tell which.
    OutOfRange,
    /// The transaction was refused.
    TxRefused(RefusalKind),
    /// Refused for its nonce, too low or too high: the two nonces in the message tell which.
    NonceMismatch,
    /// A rate limit or quota.
    RateLimited,
    /// The method or tag is not served.
    Unsupported,
    /// A log range or result limit.
    RangeTooLarge,
    /// The endpoint failed.
    Fault(FaultKind),
    /// Another chain, history or branch.
    WrongIdentity,
    /// The caller's own mistake.
    Invalid,
}

/// A row that an operator adds in front of the built-in table, for a wording that it does not know.
///
/// It goes before everything that the table knows, reverts included, and a contract may choose a part of a revert's
/// message: give `codes`, or words that no contract would use.
///
/// In answer to a send, a class is a claim about the transaction. `already_known` says that it was taken.
/// `rate_limited`, `unsupported`, `wrong_identity` and `tx_refused` say that it was not: where all endpoints say so
/// for good, its nonce is given to another transaction. For an error that may come although the transaction was taken,
/// there is `{ fault = "server" }`: it is looked up.
///
/// ```toml
/// class = { tx_refused = "policy" }
/// contains = ["rejected by the firewall", "rule"]
/// codes = [-32000]
/// methods = ["eth_sendRawTransaction*"]
/// example = "Rejected by the firewall: rule 7"
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What the reply means.
    pub class: Class,
    /// Texts that must all be in the message (or in a text inside `data`), in any case. One text or a list.
    #[serde(default, deserialize_with = "one_or_many")]
    pub contains: Vec<String>,
    /// JSON-RPC codes; none: any.
    #[serde(default)]
    pub codes: Vec<i64>,
    /// HTTP statuses; none: any.
    #[serde(default)]
    pub status: Vec<u16>,
    /// Methods, where a trailing `*` stands for any ending; none: any.
    #[serde(default)]
    pub methods: Vec<String>,
    /// A message of the kind that the row is for. Checked against `contains` when the row is loaded.
    #[serde(default)]
    pub example: Option<String>,
}

impl Row {
    /// A row for messages that contain a text.
    pub fn new(class: Class, contains: impl Into<String>) -> Self {
        Self {
            class,
            contains: vec![contains.into()],
            codes: Vec::new(),
            status: Vec::new(),
            methods: Vec::new(),
            example: None,
        }
    }

    /// The row in the form that is matched: patterns in lower case.
    ///
    /// # Errors
    ///
    /// Where the row would match everything, or not its own example.
    pub(super) fn checked(mut self, position: usize) -> Result<Self> {
        // Two letters are in almost every message.
        const SHORTEST: usize = 3;
        let wrong = |what: String| Error::config(format!("classifier row {position}: {what}"));
        for pattern in &mut self.contains {
            if pattern.trim().chars().filter(|c| c.is_alphanumeric()).count() < SHORTEST {
                return Err(wrong(format!(
                    "the pattern {pattern:?} would match almost everything; give at least {SHORTEST} letters \
                     or digits of the message"
                )));
            }
            *pattern = pattern.to_ascii_lowercase();
        }
        if let Some(status) = self.status.iter().find(|status| !(100..600).contains(*status)) {
            return Err(wrong(format!("{status} is no HTTP status")));
        }
        // JSON-RPC errors normally come under 200.
        let telling_status = !self.status.is_empty() && self.status.iter().all(|status| *status >= 400);
        if self.contains.is_empty() && self.codes.is_empty() && !telling_status {
            return Err(wrong(
                "it would match every error; give `contains`, `codes`, or `status` of 400 and above"
                    .to_owned(),
            ));
        }
        if self.methods.iter().any(|method| method.trim().is_empty()) {
            return Err(wrong("a method is empty; leave `methods` out to match any".to_owned()));
        }
        if let Some(example) = &self.example {
            let example = example.to_ascii_lowercase();
            if let Some(pattern) = self.contains.iter().find(|pattern| !example.contains(*pattern)) {
                return Err(wrong(format!("its own example does not contain {pattern:?}")));
            }
        }
        Ok(self)
    }

    pub(super) fn matches(&self, seen: &Seen<'_>, text: &Text<'_>) -> bool {
        self.contains.iter().all(|pattern| text.lower.contains(pattern))
            && (self.codes.is_empty() || seen.code.is_some_and(|code| self.codes.contains(&code)))
            && (self.status.is_empty() || seen.status.is_some_and(|status| self.status.contains(&status)))
            && (self.methods.is_empty() || self.methods.iter().any(|m| method_matches(m, seen.method)))
    }
}

/// A built-in row, with its evidence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) class: Class,
    /// Lower-case texts that must all be there. None: codes, shape or status alone decide.
    pub(super) contains: &'static [&'static str],
    pub(super) codes: &'static [i64],
    pub(super) status: &'static [u16],
    pub(super) methods: &'static [&'static str],
    pub(super) shape: Shape,
    /// Whose wording it is.
    pub(super) client: &'static str,
    /// Where it was seen.
    pub(super) source: &'static str,
    pub(super) example: Example,
}

/// What else must be true of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Nothing.
    Any,
    /// Revert bytes are in `data`, if only `0x`.
    Bytes,
    /// At least a selector is in `data`.
    Selector,
    /// The body is not JSON-RPC.
    NotRpc,
    /// The body begins as JSON and ends too early.
    CutShort,
}

/// A reply that was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Example {
    pub(super) method: &'static str,
    pub(super) status: Option<u16>,
    /// `None` for a body that is not JSON-RPC.
    pub(super) code: Option<i64>,
    pub(super) message: &'static str,
    pub(super) data: Option<&'static str>,
}

/// Starts a row for messages that contain all of these texts.
pub(super) const fn row(class: Class, contains: &'static [&'static str]) -> Entry {
    Entry {
        class,
        contains,
        codes: &[],
        status: &[],
        methods: &[],
        shape: Shape::Any,
        client: "",
        source: "",
        example: Example { method: "eth_call", status: Some(200), code: None, message: "", data: None },
    }
}

/// A row for a refused transaction.
pub(super) const fn tx(kind: RefusalKind, contains: &'static [&'static str]) -> Entry {
    row(Class::TxRefused(kind), contains).to("eth_sendRawTransaction")
}

impl Entry {
    /// Only under these codes.
    pub(super) const fn codes(mut self, codes: &'static [i64]) -> Self {
        self.codes = codes;
        self
    }

    /// Only under these HTTP statuses. For rows at the end only: the same body gets the same verdict under
    /// any status.
    pub(super) const fn status(mut self, status: &'static [u16]) -> Self {
        self.status = status;
        self
    }

    /// Only for these methods.
    pub(super) const fn only(mut self, methods: &'static [&'static str]) -> Self {
        self.methods = methods;
        self
    }

    pub(super) const fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// The method of the example.
    pub(super) const fn to(mut self, method: &'static str) -> Self {
        self.example.method = method;
        self
    }

    /// The example: a JSON-RPC error.
    pub(super) const fn says(mut self, client: &'static str, code: i64, message: &'static str) -> Self {
        self.client = client;
        self.example.code = Some(code);
        self.example.message = message;
        self
    }

    /// The raw `data` of the example.
    pub(super) const fn data(mut self, data: &'static str) -> Self {
        self.example.data = Some(data);
        self
    }

    /// The example: a body that is not JSON-RPC.
    pub(super) const fn answers(mut self, client: &'static str, status: u16, body: &'static str) -> Self {
        self.client = client;
        self.example.status = Some(status);
        self.example.message = body;
        self
    }

    /// The HTTP status of the example.
    pub(super) const fn under(mut self, status: u16) -> Self {
        self.example.status = Some(status);
        self
    }

    /// Where it was seen. Ends the row.
    pub(super) const fn seen_in(mut self, source: &'static str) -> Self {
        self.source = source;
        self
    }

    pub(super) fn matches(&self, seen: &Seen<'_>, text: &Text<'_>, bytes: Option<&Bytes>) -> bool {
        let shaped = match self.shape {
            Shape::Any => true,
            Shape::Bytes => bytes.is_some(),
            Shape::Selector => bytes.is_some_and(|bytes| bytes.len() >= 4),
            Shape::NotRpc => seen.body != Body::Rpc,
            Shape::CutShort => seen.body != Body::Rpc && hints::is_cut_short(&text.original),
        };
        shaped
            && (seen.body != Body::Page || self.class.is_about_service())
            && (self.codes.is_empty() || seen.code.is_some_and(|code| self.codes.contains(&code)))
            && (self.status.is_empty() || seen.status.is_some_and(|status| self.status.contains(&status)))
            && (self.methods.is_empty() || self.methods.iter().any(|m| method_matches(m, seen.method)))
            && self.contains.iter().all(|pattern| text.lower.contains(pattern))
    }
}

impl Class {
    /// Whether a page (HTML, long text) can say it: such a body comes from what stands in front of a node.
    const fn is_about_service(self) -> bool {
        match self {
            Self::RateLimited
            | Self::Unsupported
            | Self::Fault(_)
            | Self::WrongIdentity
            | Self::RangeTooLarge => true,
            Self::Reverted
            | Self::NotYet
            | Self::Missing
            | Self::OutOfRange
            | Self::TxRefused(_)
            | Self::NonceMismatch
            | Self::Invalid => false,
        }
    }

    /// The verdict: the class and what the reply tells beyond it.
    pub(super) fn verdict(self, seen: &Seen<'_>, text: &Text<'_>, bytes: Option<Bytes>) -> Verdict {
        match self {
            Self::Reverted => Verdict::Reverted(Revert::found(bytes, &text.original)),
            Self::NotYet => Verdict::NotYet,
            Self::Missing => Verdict::Missing {
                kind: DataKind::of_method(seen.method),
                oldest: hints::oldest_block(&text.lower),
            },
            Self::OutOfRange => match hints::asked_and_head(&text.lower) {
                Some((asked, head)) if asked <= head => {
                    Verdict::Missing { kind: DataKind::of_method(seen.method), oldest: None }
                }
                // A hash in place of the height asked for is one that the endpoint does not know.
                Some(_) | None => Verdict::NotYet,
            },
            Self::TxRefused(kind) => Verdict::TxRefused(kind),
            Self::NonceMismatch => match hints::expected_and_given(&text.lower) {
                Some((expected, given)) if given > expected => Verdict::TxRefused(RefusalKind::NonceTooHigh),
                // Too low is the reading that makes the sender look up who used the nonce.
                Some(_) | None => Verdict::TxRefused(RefusalKind::NonceTooLow),
            },
            Self::RateLimited => Verdict::RateLimited { after: hints::wait(seen) },
            Self::Unsupported => Verdict::Unsupported,
            Self::RangeTooLarge => Verdict::RangeTooLarge { hint: hints::range(seen) },
            Self::Fault(kind) => Verdict::Fault(kind),
            Self::WrongIdentity => Verdict::WrongIdentity,
            Self::Invalid => Verdict::Invalid,
        }
    }
}

impl DataKind {
    /// The kind of data that a method reads.
    pub fn of_method(method: &str) -> Self {
        match method {
            "eth_getLogs" | "eth_getFilterLogs" | "eth_getFilterChanges" | "eth_newFilter" => Self::Logs,
            // An account's count is state, although it is named after transactions.
            "eth_getTransactionCount" => Self::State,
            _ if method.starts_with("eth_getTransaction")
                || method.starts_with("eth_getRawTransaction")
                || method == "eth_getBlockReceipts" =>
            {
                Self::Transactions
            }
            _ if method.starts_with("eth_getBlock")
                || method.starts_with("eth_getHeader")
                || method.starts_with("eth_getUncle")
                || method == "eth_feeHistory" =>
            {
                Self::Blocks
            }
            _ => Self::State,
        }
    }
}

fn method_matches(pattern: &str, method: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => method.starts_with(prefix),
        None => method == pattern,
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    })
}
