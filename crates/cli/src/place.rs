//! Which journal is meant.

use std::{collections::BTreeSet, env, fs, path::Path, sync::Arc};

use anyhow::{Context, bail};
use backstay::{
    Config,
    journal::{self, Journal, JournalLocation, PostgresConfig, Query, Stored},
};

use crate::{args::Place, output::clean};

/// The variable that names the journal where nothing else does.
const JOURNAL: &str = "BACKSTAY_JOURNAL";

/// A journal that was found, and the chain that is meant, where one is.
pub(crate) struct Found {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) chain: Option<u64>,
}

impl Place {
    /// Opens the journal. It must be there.
    pub(crate) async fn open(&self) -> anyhow::Result<Found> {
        let config = self.config.as_deref().map(config).transpose()?;
        let journal = open(self.journal.as_deref(), config.as_ref()).await?;
        Ok(Found { journal, chain: self.chain.or(config.map(|config| config.chain_id)) })
    }
}

impl Found {
    /// The intent under a key.
    pub(crate) async fn intent(&self, key: &str) -> anyhow::Result<Stored> {
        let shown = clean(key);
        let chain_id = match self.chain {
            Some(chain_id) => chain_id,
            None => {
                let query = Query { key: Some(key.to_owned()), ..Query::default() };
                match &self.journal.list(&query).await.map_err(backstay::Error::from)?[..] {
                    [] => bail!(
                        "the journal has no intent under the key `{shown}`; `backstay journal list` lists them"
                    ),
                    [only] => only.chain_id,
                    several => {
                        let chains: BTreeSet<String> =
                            several.iter().map(|summary| summary.chain_id.to_string()).collect();
                        let chains = Vec::from_iter(chains).join(", ");
                        bail!("the key `{shown}` is used on the chains {chains}: say which with --chain");
                    }
                }
            }
        };
        let stored = self.journal.load(chain_id, key).await.map_err(backstay::Error::from)?;
        stored.with_context(|| {
            format!(
                "the journal has no intent under the key `{shown}` on chain {chain_id}; `backstay journal list` lists \
                 them"
            )
        })
    }
}

/// Reads a configuration. What is wrong with it is named with its key; no value is quoted.
pub(crate) fn config(path: &Path) -> anyhow::Result<Config> {
    let named = || clean(&path.display().to_string());
    let text =
        fs::read_to_string(path).with_context(|| format!("the configuration {} cannot be read", named()))?;
    Config::from_toml(&text).with_context(|| format!("in {}", named()))
}

/// Opens the journal that is said on the command line, or by the configuration, or by the environment. It must be there.
pub(crate) async fn open(said: Option<&Path>, config: Option<&Config>) -> anyhow::Result<Arc<dyn Journal>> {
    let configured = || config.and_then(|config| config.journal.clone());
    let of_environment = || env::var_os(JOURNAL).filter(|value| !value.is_empty());
    let location = said.map(JournalLocation::from).or_else(configured);
    let location = location.or_else(|| of_environment().map(|value| Path::new(&value).into()));
    let location = location.with_context(|| {
        format!(
            "no journal is named: give --journal FILE, or --config FILE with the key `journal`, or set {JOURNAL}"
        )
    })?;
    let postgres = config.map_or_else(PostgresConfig::default, |config| config.postgres.clone());
    Ok(journal::open_existing(location, &postgres).await?)
}
