//! Rules that are read from a file.

mod condition;
mod entry;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

use self::entry::Entry;
use crate::{Error, Program};

/// The endpoints of an incident with the rules of each, read from a file: what happened can be kept as data, and
/// told again with one line of code.
///
/// The file is TOML or JSON of the same shape. Rules are tried in order, as in a [`Program`]; what none takes goes
/// to the chain behind, or to the rules that are put behind them.
///
/// ```toml
/// [[endpoints]]
/// name = "A"
///
/// [[endpoints.script]]
/// method = "eth_call"
/// match = { to = "0x2222222222222222222222222222222222222222", block_lt = 128 }
/// respond = { error = { code = -32000, message = "missing trie node" } }
///
/// [[endpoints.script]]
/// method = ["eth_blockNumber", "eth_getBalance"]
/// times = 1
/// respond = { http = { status = 429, headers = { retry-after = "1" }, body = "slow down" } }
///
/// [[endpoints]]
/// name = "B"                       # without rules: sound
/// ```
///
/// ```no_run
/// # async fn test(chain: &backstay_testkit::Anvil) -> Result<(), backstay_testkit::Error> {
/// use backstay_testkit::{Fleet, Scenario};
///
/// let scenario = Scenario::read("scenarios/throttled.toml")?;
/// let fleet = Fleet::builder()
///     .endpoint("A", chain.url(), scenario.program("A"))
///     .endpoint("B", chain.url(), scenario.program("B"))
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// # Keys of a rule
///
/// | key | what it is |
/// |---|---|
/// | `method` | a method, several, or `"*"` for any |
/// | `match` | conditions, all of which must hold; left out, or `"*"`: none |
/// | `respond` | what happens to the request |
/// | `skip`, `every`, `times` | as [`Rule::skip`](crate::Rule::skip), [`Rule::every`](crate::Rule::every) and [`Rule::times`](crate::Rule::times) |
/// | `after_ms`, `before_ms` | only requests that arrive so long after the start of the fleet, or less |
/// | `name` | what the records call it; by default the endpoint, the number of the rule and its methods |
///
/// # Keys of `match`
///
/// | key | the request |
/// |---|---|
/// | `to` | is about this address: see [`Rule::to`](crate::Rule::to) |
/// | `data_prefix` | is a call or a transaction whose input starts with these bytes |
/// | `hash`, `blockHash` | has this hash in its parameters |
/// | `tag` | has this tag in its parameters, such as `"latest"` |
/// | `block`, `block_lt`, `block_gt` | reads at this height, below it, above it; of logs, from there |
/// | `span_gt` | is for logs over more blocks than that, both ends counted by number |
/// | `tx_nonce`, `tx_nonce_lt`, `tx_type` | is a raw transaction with this nonce, one below it, of this type |
/// | `contains` | has this text in its parameters: see [`Rule::containing`](crate::Rule::containing) |
///
/// Numbers are numbers, or text such as `"0x10"`.
///
/// # Keys of `respond`
///
/// One of these, and `delay_ms` where it comes that much later:
///
/// | key | what happens |
/// |---|---|
/// | `result` | this result; `null = true` stands for null, which TOML does not have |
/// | `error` | `{ code, message, data }`, and beside it `status` where it comes under another HTTP status than 200 |
/// | `http` | `{ status, headers, content_type, body }` |
/// | `hang`, `reset`, `drop` | `true`: [`Hang`](crate::Action::Hang), [`Reset`](crate::Action::Reset), [`DropBefore`](crate::Action::DropBefore) |
/// | `lose_reply`, `cut_reply` | `true`: [`LoseReply`](crate::Action::LoseReply), [`CutReply`](crate::Action::CutReply) |
/// | `pass` | `true`: the chain answers |
///
/// # What is refused
///
/// Keys that do not exist, values that make no sense, and rules that no request can reach, because they begin
/// after they end or an earlier rule takes all that they would. The error names the file, the entry and what is
/// wrong with it.
#[derive(Clone, Debug)]
pub struct Scenario {
    endpoints: Vec<(String, Vec<Entry>)>,
}

impl Scenario {
    /// Reads a file: JSON where its name ends in `.json`, else TOML.
    ///
    /// # Errors
    ///
    /// [`Error::Scenario`] when it cannot be read, or something in it is wrong.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let read = || {
            let text = fs::read_to_string(path).map_err(|error| Wrong::whole(error.to_string()))?;
            if path.extension().is_some_and(|extension| extension == "json") {
                json(&text)
            } else {
                toml(&text)
            }
        };
        read().map_err(|wrong| wrong.in_file(Some(path.to_owned())))
    }

    /// Reads TOML.
    ///
    /// # Errors
    ///
    /// [`Error::Scenario`] when something in it is wrong.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        toml(text).map_err(|wrong| wrong.in_file(None))
    }

    /// Reads JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Scenario`] when something in it is wrong.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        json(text).map_err(|wrong| wrong.in_file(None))
    }

    /// The names of the endpoints, in the order of the file.
    pub fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.endpoints.iter().map(|(name, _)| name.as_str())
    }

    /// The rules of an endpoint, with their counts at zero.
    ///
    /// # Panics
    ///
    /// If there is no endpoint of this name.
    pub fn program(&self, endpoint: &str) -> Program {
        let Some((name, entries)) = self.endpoints.iter().find(|(name, _)| name == endpoint) else {
            panic!("the scenario has no endpoint named {endpoint}")
        };
        let rules = entries.iter().enumerate().map(|(index, entry)| entry.rule(name, index + 1));
        rules.fold(Program::new(), Program::rule)
    }
}

/// What is wrong, and in which entry.
struct Wrong {
    entry: Option<String>,
    problem: String,
}

impl Wrong {
    fn whole(problem: impl Into<String>) -> Self {
        Self { entry: None, problem: problem.into() }
    }

    fn at(entry: String, problem: impl Into<String>) -> Self {
        Self { entry: Some(entry), problem: problem.into() }
    }

    fn in_file(self, path: Option<PathBuf>) -> Error {
        Error::Scenario { path, entry: self.entry, problem: self.problem }
    }
}

fn toml(text: &str) -> Result<Scenario, Wrong> {
    // The parser's own text quotes the line.
    toml::from_str::<Value>(text).map_err(|error| Wrong::whole(error.to_string())).and_then(scenario)
}

fn json(text: &str) -> Result<Scenario, Wrong> {
    serde_json::from_str::<Value>(text).map_err(|error| Wrong::whole(error.to_string())).and_then(scenario)
}

fn scenario(value: Value) -> Result<Scenario, Wrong> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        endpoints: Vec<Value>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct OfEndpoint {
        name: String,
        #[serde(default)]
        script: Vec<Value>,
    }

    let file: File = serde_json::from_value(value).map_err(|error| Wrong::whole(error.to_string()))?;
    if file.endpoints.is_empty() {
        return Err(Wrong::whole("`endpoints` is empty; name at least one"));
    }
    let mut names = BTreeSet::new();
    let mut endpoints = Vec::with_capacity(file.endpoints.len());
    for (index, value) in file.endpoints.into_iter().enumerate() {
        let place = format!("endpoint {}", index + 1);
        let endpoint: OfEndpoint =
            serde_json::from_value(value).map_err(|error| Wrong::at(place.clone(), error.to_string()))?;
        if endpoint.name.trim().is_empty() {
            return Err(Wrong::at(place, "`name` is empty; tests ask for an endpoint by its name"));
        }
        if !names.insert(endpoint.name.clone()) {
            return Err(Wrong::at(place, format!("another endpoint is named `{}`", endpoint.name)));
        }
        endpoints.push((endpoint.name.clone(), entries(&endpoint.name, endpoint.script)?));
    }
    Ok(Scenario { endpoints })
}

/// The rules of an endpoint.
fn entries(endpoint: &str, values: Vec<Value>) -> Result<Vec<Entry>, Wrong> {
    let mut entries: Vec<Entry> = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let wrong =
            |problem: String| Wrong::at(format!("endpoint `{endpoint}`, rule {}", index + 1), problem);
        let entry: Entry = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        entry.check().map_err(wrong)?;
        if let Some(earlier) = entries.iter().position(|earlier| earlier.takes_all_of(&entry)) {
            let earlier = earlier + 1;
            let problem = format!(
                "no request reaches it: rule {earlier} takes them all; put it before rule {earlier}, or \
                 give that one a `match` or `times`"
            );
            return Err(wrong(problem));
        }
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
