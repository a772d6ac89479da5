//! Revert bytes, wherever a client puts them (V5), and what they say (V6).

use alloy_primitives::{Address, Bytes, U256, hex, keccak256};
use alloy_sol_types::{Panic, Revert as ErrorString, SolError};
use serde_json::{Map, Value};

use super::{Revert, RpcError, reply::clip};

/// The length of what [`Revert::describe`] returns, in characters.
const DESCRIPTION_LIMIT: usize = 400;

impl Revert {
    /// The revert in an error object: its bytes from `data` or, failing that, from the message.
    pub fn from_error(error: &RpcError<'_>) -> Self {
        let data = error.data.and_then(|raw| serde_json::from_str(raw).ok());
        Self::found(data.as_ref().and_then(in_data), error.message)
    }

    /// The revert of bytes that were found in `data` and a message.
    pub(super) fn found(in_data: Option<Bytes>, message: &str) -> Self {
        let message = clip(message);
        let data =
            in_data.filter(|data| !data.is_empty()).or_else(|| in_message(message)).unwrap_or_default();
        Self { data, message: message.to_owned() }
    }

    /// The first four bytes: which error it is. `None` where there are fewer.
    pub fn selector(&self) -> Option<[u8; 4]> {
        self.data.first_chunk().copied()
    }

    /// The revert as an error of a known type; `None` where it is another, or none.
    pub fn decode<E: SolError>(&self) -> Option<E> {
        E::abi_decode(&self.data).ok()
    }

    /// The reason given to `require` or `revert`: from the bytes or, where there are none, from the node's
    /// words.
    pub fn reason(&self) -> Option<String> {
        if self.data.is_empty() {
            return reason_in_message(&self.message).map(str::to_owned);
        }
        self.decode::<ErrorString>().map(|error| error.reason)
    }

    /// What the contract said, for people: the reason, the panic, the error of ERC-6093 with its arguments,
    /// or the selector and the bytes. One line of bounded length, whatever a contract or node put there.
    pub fn describe(&self) -> String {
        let text = self
            .reason()
            .or_else(|| self.decode::<Panic>().map(|panic| panic.to_string()))
            .or_else(|| self.describe_token_error())
            .or_else(|| custom_error_in_message(&self.message).map(str::to_owned))
            .unwrap_or_else(|| self.describe_bytes());
        one_line(&text)
    }

    fn describe_token_error(&self) -> Option<String> {
        let selector = self.selector()?;
        let arguments = &self.data[4..];
        let (name, fields) =
            TOKEN_ERRORS.iter().find(|(name, fields)| selector_of(name, fields) == selector)?;
        // All arguments are one word each.
        if arguments.len() != fields.len() * 32 {
            return None;
        }
        let fields: Vec<_> = fields
            .iter()
            .zip(arguments.chunks_exact(32))
            .map(|((name, kind), word)| match kind {
                Kind::Address => format!("{name}: {}", Address::from_slice(&word[12..])),
                Kind::Uint => format!("{name}: {}", U256::from_be_slice(word)),
            })
            .collect();
        Some(format!("{name}({})", fields.join(", ")))
    }

    fn describe_bytes(&self) -> String {
        const SHOWN: usize = 128;
        let Some(selector) = self.selector() else {
            return match self.data.len() {
                0 => "no reason given".to_owned(),
                _ => format!("unknown revert data {}", self.data),
            };
        };
        let arguments = &self.data[4..];
        let selector = hex::encode_prefixed(selector);
        match arguments.len() {
            0 => format!("custom error {selector}"),
            length => {
                let more = if length > SHOWN { "…" } else { "" };
                let shown = hex::encode_prefixed(&arguments[..length.min(SHOWN)]);
                format!("custom error {selector} with {length} bytes: {shown}{more}")
            }
        }
    }
}

/// Revert bytes in the `data` of an error, wherever it keeps them. `Some` of no bytes where it says `0x`.
///
/// Every value is looked at once at most; how deep they may lie is bounded by the JSON parser.
pub(super) fn in_data(data: &Value) -> Option<Bytes> {
    /// In this order: an object that holds both a hash and bytes names the bytes.
    const KEYS: [&str; 13] = [
        "data",
        "result",
        "return",
        "returnData",
        "return_data",
        "returnValue",
        "output",
        "originalError",
        "error",
        "cause",
        "inner",
        "innerError",
        "info",
    ];
    match data {
        Value::String(text) => bytes_of(text).or_else(|| in_message(text)),
        Value::Object(fields) => {
            let named = KEYS.iter().filter_map(|key| fields.get(*key));
            best(named.chain(by_transaction(fields)).filter_map(in_data))
        }
        Value::Array(values) => best(values.iter().filter_map(in_data)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The first that has bytes, else an empty one.
fn best(found: impl Iterator<Item = Bytes>) -> Option<Bytes> {
    let mut empty = None;
    for bytes in found {
        if !bytes.is_empty() {
            return Some(bytes);
        }
        empty = Some(bytes);
    }
    empty
}

/// Ganache and its kind: one object per transaction, under its hash.
fn by_transaction(fields: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    fields
        .iter()
        .filter(|(key, value)| key.len() == 66 && key.starts_with("0x") && value.is_object())
        .map(|(_, v)| v)
}

/// A string that is bytes in hex, and nothing else.
fn bytes_of(text: &str) -> Option<Bytes> {
    let digits = text.trim().strip_prefix("0x")?;
    hex::decode(digits).ok().map(Bytes::from)
}

/// Revert bytes in a text, behind one of the phrases that announce them. Addresses and hashes, which
/// messages are full of, are no revert bytes.
fn in_message(text: &str) -> Option<Bytes> {
    const PHRASES: [&str; 8] = [
        "custom error 0x",
        "return data: 0x",
        "reverted 0x",
        "reverted: 0x",
        "reverted with data: 0x",
        "revert: 0x",
        "revert data: 0x",
        "reverted, data: 0x",
    ];
    let text = clip(text);
    let lower = text.to_ascii_lowercase();
    PHRASES.iter().find_map(|phrase| {
        let rest = &lower[lower.find(phrase)? + phrase.len()..];
        let (first, rest) = split_hex(rest);
        let mut bytes = hex::decode(first).ok().filter(|bytes| bytes.len() >= 4)?;
        // Foundry writes the arguments behind the selector, after a colon.
        if let (4, Some(rest)) = (bytes.len(), rest.strip_prefix(": ")) {
            let (arguments, rest) = split_hex(rest.strip_prefix("0x").unwrap_or(rest));
            let whole = !rest.starts_with(['…', '.']) && arguments.len() % 64 == 0;
            if let (true, Ok(arguments)) = (whole, hex::decode(arguments)) {
                bytes.extend(arguments);
            }
        } else if rest.starts_with('…') || rest.starts_with("..") {
            // Cut off by the node: the selector is sure, the arguments are not.
            bytes.truncate(4);
        }
        Some(bytes.into())
    })
}

fn split_hex(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len()))
}

/// Revert bytes that a node returned as a *result*: an `eth_call` whose result is an `Error(string)`.
///
/// A function returns whole words of 32 bytes, so that only a revert is four bytes longer. It is believed
/// where it is a canonical encoding to the last byte.
pub(super) fn in_result(method: &str, raw: &str) -> Option<Bytes> {
    if method != "eth_call" {
        return None;
    }
    let text = raw.trim().strip_prefix('"')?.strip_suffix('"')?;
    if !text.get(..10)?.eq_ignore_ascii_case("0x08c379a0") {
        return None;
    }
    let bytes = bytes_of(text)?;
    let error = ErrorString::abi_decode(&bytes).ok()?;
    (error.abi_encode() == bytes).then_some(bytes)
}

/// The reason in the words of a node that sends no bytes.
fn reason_in_message(message: &str) -> Option<&str> {
    // ASCII letters only change case, so that positions agree.
    let lower = message.to_ascii_lowercase();
    let behind = |phrase: &str| lower.find(phrase).map(|at| &message[at + phrase.len()..]);
    if let Some(rest) = behind("reverted with reason string '") {
        return Some(rest.rfind('\'').map_or(rest, |end| &rest[..end])).filter(|reason| !reason.is_empty());
    }
    let rest = ["execution reverted: ", "processing transaction: revert ", "reverted: ", "reverted "]
        .iter()
        .find_map(|phrase| behind(phrase))?;
    // Old geth tells how much gas it ran with.
    let rest = rest.rfind(" (supplied gas ").map_or(rest, |end| &rest[..end]).trim();
    let words = rest.to_ascii_lowercase();
    // These are words of the node, or bytes, not of the contract.
    let node = ["custom error ", "panic: ", "0x", "with ", "without ", "(", "and hardhat", "in "];
    (!rest.is_empty() && words != "revert" && !node.iter().any(|start| words.starts_with(start)))
        .then_some(rest)
}

/// The error that Hardhat decoded and whose bytes it left out: `reverted with custom error 'Name(1, 2)'`.
fn custom_error_in_message(message: &str) -> Option<&str> {
    const PHRASE: &str = "reverted with custom error '";
    let rest = &message[message.find(PHRASE)? + PHRASE.len()..];
    rest.rfind('\'').map(|end| &rest[..end]).filter(|error| !error.is_empty())
}

/// Bounded, and without what would forge a line of a log or a terminal's colours.
fn one_line(text: &str) -> String {
    let clean = |c: char| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c };
    let mut line: String = text.chars().take(DESCRIPTION_LIMIT).map(clean).collect();
    if text.chars().nth(DESCRIPTION_LIMIT).is_some() {
        line.pop();
        line.push('…');
    }
    line
}

#[derive(Clone, Copy)]
enum Kind {
    Address,
    Uint,
}
use Kind::{Address as A, Uint as U};

type Fields = &'static [(&'static str, Kind)];

/// The errors of ERC-6093. All their arguments are single words.
const TOKEN_ERRORS: &[(&str, Fields)] = &[
    ("ERC20InsufficientAllowance", &[("spender", A), ("allowance", U), ("needed", U)]),
    ("ERC20InsufficientBalance", &[("sender", A), ("balance", U), ("needed", U)]),
    ("ERC20InvalidSender", &[("sender", A)]),
    ("ERC20InvalidReceiver", &[("receiver", A)]),
    ("ERC20InvalidApprover", &[("approver", A)]),
    ("ERC20InvalidSpender", &[("spender", A)]),
    ("ERC721InvalidOwner", &[("owner", A)]),
    ("ERC721NonexistentToken", &[("tokenId", U)]),
    ("ERC721IncorrectOwner", &[("sender", A), ("tokenId", U), ("owner", A)]),
    ("ERC721InvalidSender", &[("sender", A)]),
    ("ERC721InvalidReceiver", &[("receiver", A)]),
    ("ERC721InsufficientApproval", &[("operator", A), ("tokenId", U)]),
    ("ERC721InvalidApprover", &[("approver", A)]),
    ("ERC721InvalidOperator", &[("operator", A)]),
    ("ERC1155InsufficientBalance", &[("sender", A), ("balance", U), ("needed", U), ("tokenId", U)]),
    ("ERC1155InvalidSender", &[("sender", A)]),
    ("ERC1155InvalidReceiver", &[("receiver", A)]),
    ("ERC1155MissingApprovalForAll", &[("operator", A), ("owner", A)]),
    ("ERC1155InvalidApprover", &[("approver", A)]),
    ("ERC1155InvalidOperator", &[("operator", A)]),
    ("ERC1155InvalidArrayLength", &[("idsLength", U), ("valuesLength", U)]),
];

fn selector_of(name: &str, fields: Fields) -> [u8; 4] {
    let types: Vec<_> = fields
        .iter()
        .map(|(_, kind)| match kind {
            Kind::Address => "address",
            Kind::Uint => "uint256",
        })
        .collect();
    let hash = keccak256(format!("{name}({})", types.join(",")));
    [hash[0], hash[1], hash[2], hash[3]]
}
