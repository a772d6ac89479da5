//! The configuration of a client.

use backstay_core::{Error, Result};
use backstay_intents::{ClaimsConfig, Resume, RetentionConfig};
use backstay_journal::PostgresConfig;
use backstay_provider::{EndpointConfig, ProviderConfig};
use backstay_recovery::RecoveryConfig;
use backstay_tx::TxConfig;
use serde::Deserialize;

use crate::opening::JournalLocation;

/// The configuration of a client: from TOML, or built in code and changed field by field.
///
/// ```
/// # fn main() -> Result<(), backstay::Error> {
/// let config = backstay::Config::from_toml(
///     r#"
///     chain_id = 1
///     [[endpoints]]
///     name = "own-node"
///     url = "http://127.0.0.1:8545"
///     [provider]
///     attempt_timeout = "5s"
///     "#,
/// )?;
/// assert_eq!(config.provider.attempt_timeout.as_secs(), 5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// The chain id that every endpoint must serve.
    pub chain_id: u64,
    /// The endpoints, in order of preference.
    pub endpoints: Vec<EndpointConfig>,
    /// The file of the SQLite journal, or the address of a PostgreSQL database (feature `postgres`). Needed by a client
    /// that signs, unless it is given a journal.
    #[serde(default)]
    pub journal: Option<JournalLocation>,
    /// How a journal in PostgreSQL is used.
    #[serde(default)]
    pub postgres: PostgresConfig,
    /// How endpoints are used.
    #[serde(default)]
    pub provider: ProviderConfig,
    /// How transactions are priced and waited for.
    #[serde(default)]
    pub tx: TxConfig,
    /// The bounds of recovery.
    #[serde(default)]
    pub recovery: RecoveryConfig,
    /// When intents go on that an earlier run has left open. Default: by themselves.
    #[serde(default)]
    pub resume: Resume,
    /// How the accounts are shared between processes.
    #[serde(default)]
    pub claims: ClaimsConfig,
    /// How long the journal keeps what has ended.
    #[serde(default)]
    pub retention: RetentionConfig,
}

impl Config {
    /// A configuration with every default.
    pub fn new(chain_id: u64, endpoints: Vec<EndpointConfig>) -> Self {
        Self {
            chain_id,
            endpoints,
            journal: None,
            postgres: PostgresConfig::default(),
            provider: ProviderConfig::default(),
            tx: TxConfig::default(),
            recovery: RecoveryConfig::default(),
            resume: Resume::default(),
            claims: ClaimsConfig::default(),
            retention: RetentionConfig::default(),
        }
    }

    /// Checks every value but those of endpoints; `connect()` does it first, and theirs.
    ///
    /// # Errors
    ///
    /// A configuration error that names the key, and says what to do.
    pub fn validate(&self) -> Result<()> {
        if self.chain_id == 0 {
            return Err(Error::config("`chain_id` is zero, which no chain has; Ethereum's is 1"));
        }
        self.journal.as_ref().map_or(Ok(()), JournalLocation::validate)?;
        self.postgres.validate()?;
        self.provider.validate()?;
        self.tx.validate()?;
        self.recovery.validate()?;
        self.claims.validate()?;
        self.retention.validate()
    }

    /// Reads TOML. Durations are written as `"6s"` or `"250ms"`.
    ///
    /// # Errors
    ///
    /// A configuration error that names the line, the key, and what was expected. It quotes nothing of the
    /// text: URLs and headers hold keys.
    pub fn from_toml(text: &str) -> Result<Self> {
        let unread = |error: &toml::de::Error, key: String| {
            let before = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.bytes().take(before).filter(|byte| *byte == b'\n').count() + 1;
            let message = without_values(error.message());
            let durations = match message.ends_with("expected a duration") {
                true => " such as \"6s\" or \"250ms\"",
                false => "",
            };
            let of = if key == "." { String::new() } else { format!(", in `{key}`") };
            Error::config(format!(
                "the configuration cannot be read, near line {line}{of}: {message}{durations}"
            ))
        };
        let parsed = toml::Deserializer::parse(text).map_err(|error| unread(&error, ".".to_owned()))?;
        serde_path_to_error::deserialize(parsed)
            .map_err(|error| unread(error.inner(), error.path().to_string()))
    }
}

/// A message of the parser without the values that it quotes: from the first quotation mark to the last, since a
/// string may hold quotation marks itself, and a number or word in backticks. The words that are allowed stay.
fn without_values(message: &str) -> String {
    let (quoted, rest) = match message.split_once(", expected") {
        Some((quoted, rest)) => (quoted, format!(", expected{rest}")),
        None => (message, String::new()),
    };
    let between = |text: &str, mark: char| match (text.find(mark), text.rfind(mark)) {
        (Some(first), Some(last)) if first < last => format!("{}{mark}…{}", &text[..first], &text[last..]),
        _ => text.to_owned(),
    };
    // The name of a key is no value, and the way to find it.
    let is_key = ["unknown field", "missing field", "duplicate"].iter().any(|word| quoted.starts_with(word));
    let shown = between(quoted, '"');
    if is_key { shown + &rest } else { between(&shown, '`') + &rest }
}
