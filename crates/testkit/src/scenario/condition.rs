//! When a rule of a file takes a request.

use std::fmt;

use alloy::{
    consensus::{Transaction as _, Typed2718 as _},
    primitives::{Address, B256, Bytes},
};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::{
    Call, Rule,
    history::{self, Place},
    lens,
    program::{decoded, input},
};

/// The conditions of a rule. All that are there must hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Condition {
    to: Option<Address>,
    data_prefix: Option<Bytes>,
    hash: Option<B256>,
    #[serde(rename = "blockHash")]
    block_hash: Option<B256>,
    tag: Option<String>,
    block: Option<Number>,
    block_lt: Option<Number>,
    block_gt: Option<Number>,
    span_gt: Option<Number>,
    tx_nonce: Option<Number>,
    tx_nonce_lt: Option<Number>,
    tx_type: Option<Number>,
    contains: Option<String>,
}

impl Condition {
    /// Puts the conditions on a rule.
    pub(super) fn on(&self, mut rule: Rule) -> Rule {
        // Taken apart, so that a condition that is forgotten here does not compile.
        let Self {
            to,
            data_prefix,
            hash,
            block_hash,
            tag,
            block,
            block_lt,
            block_gt,
            span_gt,
            tx_nonce,
            tx_nonce_lt,
            tx_type,
            contains,
        } = self.clone();
        if let Some(address) = to {
            rule = rule.to(address);
        }
        if let Some(prefix) = data_prefix {
            rule = rule.when(move |call| input(call).is_some_and(|input| input.starts_with(&prefix)));
        }
        for text in [hash, block_hash].into_iter().flatten().map(|hash| hash.to_string()).chain(contains) {
            rule = rule.containing(text);
        }
        if let Some(tag) = tag {
            rule = rule.when(move |call| has_text(&call.params, &tag));
        }
        if let Some(Number(at)) = block {
            rule = rule.when(move |call| height(call) == Some(at));
        }
        if let Some(Number(bound)) = block_lt {
            rule = rule.when(move |call| height(call).is_some_and(|height| height < bound));
        }
        if let Some(Number(bound)) = block_gt {
            rule = rule.when(move |call| height(call).is_some_and(|height| height > bound));
        }
        if let Some(Number(bound)) = span_gt {
            rule = rule.when(move |call| span(call).is_some_and(|span| span > bound));
        }
        if let Some(Number(nonce)) = tx_nonce {
            rule = rule.when(move |call| decoded(call).is_some_and(|tx| tx.nonce() == nonce));
        }
        if let Some(Number(bound)) = tx_nonce_lt {
            rule = rule.when(move |call| decoded(call).is_some_and(|tx| tx.nonce() < bound));
        }
        if let Some(Number(kind)) = tx_type {
            rule = rule.when(move |call| decoded(call).is_some_and(|tx| u64::from(tx.ty()) == kind));
        }
        rule
    }

    /// Whether each of these conditions is among the other's, so that what fits the other fits this.
    pub(super) fn is_part_of(&self, other: &Self) -> bool {
        fn part<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
            one.is_none() || one == other
        }
        part(&self.to, &other.to)
            && part(&self.data_prefix, &other.data_prefix)
            && part(&self.hash, &other.hash)
            && part(&self.block_hash, &other.block_hash)
            && part(&self.tag, &other.tag)
            && part(&self.block, &other.block)
            && part(&self.block_lt, &other.block_lt)
            && part(&self.block_gt, &other.block_gt)
            && part(&self.span_gt, &other.span_gt)
            && part(&self.tx_nonce, &other.tx_nonce)
            && part(&self.tx_nonce_lt, &other.tx_nonce_lt)
            && part(&self.tx_type, &other.tx_type)
            && part(&self.contains, &other.contains)
    }

    /// What about it makes no sense.
    pub(super) fn check(&self) -> Result<(), String> {
        if *self == Self::default() {
            return Err("`match` is empty, so it matches everything; leave it out to say so".into());
        }
        if self.block_lt == Some(Number(0)) || self.tx_nonce_lt == Some(Number(0)) {
            return Err("nothing is below 0: give `block_lt` or `tx_nonce_lt` a larger bound".into());
        }
        for (key, text) in [("tag", &self.tag), ("contains", &self.contains)] {
            if text.as_ref().is_some_and(String::is_empty) {
                return Err(format!("`{key}` is empty; leave it out, or say what is looked for"));
            }
        }
        if self.data_prefix.as_ref().is_some_and(|prefix| prefix.is_empty()) {
            return Err("`data_prefix` has no bytes; leave it out, or begin with a selector".into());
        }
        Ok(())
    }
}

/// A number, or a quantity in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(pub(super) u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or text such as \"0x10\"")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
                let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
                let digits = text.strip_prefix("0x").ok_or_else(wrong)?;
                u64::from_str_radix(digits, 16).map(Number).map_err(|_| wrong())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

fn height(call: &Call) -> Option<u64> {
    match history::place(&call.method, &call.params)? {
        (_, Place::Height(height)) => Some(height),
        (_, Place::Block(_) | Place::Transaction(_)) => None,
    }
}

/// How many blocks a log filter covers.
fn span(call: &Call) -> Option<u64> {
    let filter = call.params.get(0)?;
    let bound = |key: &str| filter.get(key).and_then(lens::quantity);
    Some(bound("toBlock")?.checked_sub(bound("fromBlock")?)?.saturating_add(1))
}

/// Whether a text is anywhere in a value, as a whole.
fn has_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => found == text,
        Value::Array(values) => values.iter().any(|value| has_text(value, text)),
        Value::Object(fields) => fields.values().any(|value| has_text(value, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
