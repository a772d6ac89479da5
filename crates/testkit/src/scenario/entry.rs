//! One rule of a file.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::condition::Condition;
use crate::{Action, RpcError, Rule};

/// One rule of a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    name: Option<String>,
    method: Methods,
    #[serde(default, rename = "match", deserialize_with = "condition")]
    condition: Option<Condition>,
    respond: Respond,
    #[serde(default)]
    skip: u64,
    every: Option<u64>,
    times: Option<u64>,
    after_ms: Option<u64>,
    before_ms: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "`method` is neither a method, nor a list of them, nor \"*\"")]
enum Methods {
    One(String),
    Several(Vec<String>),
}

/// What happens to a request: one of these.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Respond {
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    null: Option<True>,
    error: Option<NodeError>,
    status: Option<u16>,
    http: Option<Http>,
    hang: Option<True>,
    reset: Option<True>,
    drop: Option<True>,
    lose_reply: Option<True>,
    cut_reply: Option<True>,
    pass: Option<True>,
    delay_ms: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeError {
    code: i64,
    message: String,
    data: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Http {
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    content_type: Option<String>,
    #[serde(default)]
    body: String,
}

/// `true`: what is false is left out.
#[derive(Clone, Copy, Debug)]
struct True;

impl<'de> Deserialize<'de> for True {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if bool::deserialize(deserializer)? {
            Ok(Self)
        } else {
            Err(D::Error::custom("`false` means nothing here; leave the key out"))
        }
    }
}

/// A result that is there, even as null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Conditions, or `"*"` for none.
fn condition<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Condition>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(any) if any == "*" => Ok(None),
        Value::Object(fields) => {
            let condition = Condition::deserialize(Value::Object(fields));
            condition.map(Some).map_err(|error| D::Error::custom(format!("`match`: {error}")))
        }
        _ => Err(D::Error::custom("`match` is neither conditions nor \"*\"")),
    }
}

impl Entry {
    /// The rule, as the `number`-th of an endpoint.
    pub(super) fn rule(&self, endpoint: &str, number: usize) -> Rule {
        let rule = match &self.method {
            Methods::One(method) => Rule::on(method),
            Methods::Several(methods) if self.is_for_any() => Rule::any().named(methods.join("|")),
            Methods::Several(methods) => Rule::on_any_of(methods),
        };
        let name = match &self.name {
            Some(name) => name.clone(),
            None => format!("{endpoint} rule {number}: {}", rule.label()),
        };
        let mut rule = rule.named(name).skip(self.skip).every(self.every.unwrap_or(1));
        if let Some(times) = self.times {
            rule = rule.times(times);
        }
        if let Some(condition) = &self.condition {
            rule = condition.on(rule);
        }
        if self.after_ms.is_some() || self.before_ms.is_some() {
            let from = Duration::from_millis(self.after_ms.unwrap_or_default());
            let to = self.before_ms.map_or(Duration::MAX, Duration::from_millis);
            rule = rule.when(move |call| (from..to).contains(&call.at));
        }
        let delay = Duration::from_millis(self.respond.delay_ms.unwrap_or_default());
        rule.late_by(delay).then(self.respond.action().unwrap_or_default())
    }

    /// What about it makes no sense.
    pub(super) fn check(&self) -> Result<(), String> {
        let methods = self.methods();
        if methods.is_empty() || methods.iter().any(|method| method.trim().is_empty()) {
            return Err("`method` is empty; name one, several, or \"*\" for any".into());
        }
        if let Some(condition) = &self.condition {
            condition.check()?;
        }
        for (key, value) in [("times", self.times), ("every", self.every)] {
            if value == Some(0) {
                return Err(format!("`{key}` is 0, so it takes nothing; leave it out, or make it 1 or more"));
            }
        }
        if self.before_ms.is_some_and(|before| before <= self.after_ms.unwrap_or_default()) {
            return Err(
                "`before_ms` is not behind `after_ms`, so there is no moment at which it holds".into()
            );
        }
        self.respond.action().map(drop)
    }

    /// Whether no request that this has been asked about is left to the other.
    pub(super) fn takes_all_of(&self, other: &Self) -> bool {
        let always = self.skip == 0
            && self.every.unwrap_or(1) == 1
            && self.times.is_none()
            && self.after_ms.unwrap_or_default() <= other.after_ms.unwrap_or_default()
            && self.before_ms.unwrap_or(u64::MAX) >= other.before_ms.unwrap_or(u64::MAX);
        let methods = self.is_for_any()
            || (!other.is_for_any() && other.methods().iter().all(|method| self.methods().contains(method)));
        let conditions = match (&self.condition, &other.condition) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(one), Some(other)) => one.is_part_of(other),
        };
        always && methods && conditions
    }

    fn methods(&self) -> &[String] {
        match &self.method {
            Methods::One(method) => std::slice::from_ref(method),
            Methods::Several(methods) => methods,
        }
    }

    fn is_for_any(&self) -> bool {
        self.methods().iter().any(|method| method == "*")
    }
}

impl Respond {
    fn action(&self) -> Result<Action, String> {
        // Taken apart, so that a key that is forgotten here does not compile.
        let Self {
            result,
            null,
            error,
            status,
            http,
            hang,
            reset,
            drop,
            lose_reply,
            cut_reply,
            pass,
            delay_ms: _,
        } = self;
        let choices = [
            result.clone().map(Action::RpcResult),
            null.map(|True| Action::RpcResult(Value::Null)),
            error.as_ref().map(|error| error.action(*status)),
            http.as_ref().map(Http::action),
            hang.map(|True| Action::Hang),
            reset.map(|True| Action::Reset),
            drop.map(|True| Action::DropBefore),
            lose_reply.map(|True| Action::LoseReply),
            cut_reply.map(|True| Action::CutReply),
            pass.map(|True| Action::Pass),
        ];
        let mut chosen = choices.into_iter().flatten();
        let keys =
            "`result`, `null`, `error`, `http`, `hang`, `reset`, `drop`, `lose_reply`, `cut_reply` or `pass`";
        let action = match (chosen.next(), chosen.next()) {
            (Some(action), None) => action,
            (None, _) => return Err(format!("`respond` says nothing; it needs one of {keys}")),
            (Some(_), Some(_)) => return Err(format!("`respond` has more than one of {keys}")),
        };
        if status.is_some() && error.is_none() {
            return Err("`status` stands beside `error` alone; an answer without one is `http`".into());
        }
        let statuses = [*status, http.as_ref().map(|http| http.status)];
        if let Some(status) = statuses.into_iter().flatten().find(|status| !(200..=999).contains(status)) {
            return Err(format!("`status` is {status}, which ends no HTTP answer; it goes from 200 to 999"));
        }
        Ok(action)
    }
}

impl NodeError {
    fn action(&self, status: Option<u16>) -> Action {
        let error = RpcError::new(self.code, &self.message);
        let error = match &self.data {
            Some(data) => error.with_data(data.clone()),
            None => error,
        };
        match status {
            Some(status) => Action::RpcErrorUnder(status, error),
            None => Action::RpcError(error),
        }
    }
}

impl Http {
    fn action(&self) -> Action {
        let kind = self.content_type.iter().map(|kind| ("content-type".to_owned(), kind.clone()));
        let headers = kind.chain(self.headers.clone()).collect();
        Action::Http { status: self.status, headers, body: self.body.clone().into_bytes() }
    }
}
