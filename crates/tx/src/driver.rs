//! What all transactions of a client share.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use alloy::{
    network::TxSigner,
    primitives::{Address, Signature},
};
use backstay_core::{
    BlockRef, Error, ErrorKind, Result,
    limits::{Zero, durations},
};
use backstay_provider::Endpoints;
use serde::{Deserialize, Serialize};

/// A signer of transactions, as alloy's signers implement it.
pub type TxSignerBox = Arc<dyn TxSigner<Signature> + Send + Sync>;

/// How transactions are priced and waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TxConfig {
    /// Percent added to the estimated gas, because state moves between estimate and inclusion. Default 20.
    pub gas_margin: u64,
    /// The most that is paid for a unit of gas, in wei. Default: no cap.
    pub max_fee_per_gas: Option<u128>,
    /// How long one transaction is waited for, in one run. The intent stays open after that. Default 10 min.
    #[serde(with = "humantime_serde")]
    pub inclusion_timeout: Duration,
    /// How often receipts are asked for. Default: a quarter of the block time, between 100 ms and 3 s.
    #[serde(with = "humantime_serde")]
    pub receipt_poll: Option<Duration>,
    /// How long a second endpoint may take to show the block of an inclusion (T8). Default: three block
    /// times, at least 6 s.
    #[serde(with = "humantime_serde")]
    pub corroboration_wait: Option<Duration>,
    /// What to do when the chain has mined transactions of a managed account that the journal knows nothing of (T5).
    /// Default `"stop"`: nothing is signed for the account until that is accepted, since the journal may be an old copy,
    /// and what it has forgotten could be sent twice. `"accept"`: for accounts that others sign for too.
    pub external_use: ExternalUse,
    /// How long state at the fence may contradict a simulation, or a step's own condition, before that is
    /// believed (S6). Default: three block times, at least 3 s.
    #[serde(with = "humantime_serde")]
    pub fence_patience: Option<Duration>,
}

/// What to do when the chain is ahead of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExternalUse {
    /// Sign nothing for the account.
    #[default]
    Stop,
    /// Go on after what was mined.
    Accept,
}

impl Default for TxConfig {
    fn default() -> Self {
        Self {
            gas_margin: 20,
            max_fee_per_gas: None,
            external_use: ExternalUse::Stop,
            inclusion_timeout: Duration::from_secs(600),
            receipt_poll: None,
            corroboration_wait: None,
            fence_patience: None,
        }
    }
}

impl TxConfig {
    /// Checks the values.
    ///
    /// # Errors
    ///
    /// A configuration error that names the key.
    pub fn validate(&self) -> Result<()> {
        let optional = [
            ("tx.receipt_poll", self.receipt_poll, Zero::Refused),
            // A second endpoint is asked once and not waited for.
            ("tx.corroboration_wait", self.corroboration_wait, Zero::Meant),
            // A contradiction would be believed at once, and it is mostly lag.
            ("tx.fence_patience", self.fence_patience, Zero::Refused),
        ];
        let optional = optional.into_iter().filter_map(|(key, value, zero)| Some((key, value?, zero)));
        durations(optional.chain([("tx.inclusion_timeout", self.inclusion_timeout, Zero::Refused)]))?;
        if self.gas_margin > MOST_GAS_MARGIN {
            return Err(Error::config(format!(
                "`tx.gas_margin` is {}; it is in percent of the estimate, at most {MOST_GAS_MARGIN}",
                self.gas_margin
            )));
        }
        if self.max_fee_per_gas == Some(0) {
            return Err(Error::config(
                "`tx.max_fee_per_gas` is zero, so that nothing could be sent; it is in wei, and left out there is \
                 no cap",
            ));
        }
        Ok(())
    }
}

/// The most that is added to an estimate, in percent.
const MOST_GAS_MARGIN: u64 = 1_000;

/// Signs and sends for the accounts of one client.
pub struct Driver {
    pub(crate) endpoints: Endpoints,
    pub(crate) config: TxConfig,
    signers: HashMap<Address, TxSignerBox>,
    /// One lock an account: between choosing a nonce and writing down what was signed for it.
    lines: Mutex<HashMap<Address, Arc<tokio::sync::Mutex<()>>>>,
    /// The newest block that is known to hold a transaction of each account.
    newest: Mutex<HashMap<Address, BlockRef>>,
}

impl Driver {
    /// A driver for these signers. Their accounts are managed from here on: raw sends for them through a
    /// provider are refused.
    pub fn new(endpoints: Endpoints, config: TxConfig, signers: Vec<TxSignerBox>) -> Self {
        let signers: HashMap<_, _> = signers.into_iter().map(|signer| (signer.address(), signer)).collect();
        for account in signers.keys() {
            endpoints.manage(*account);
        }
        Self { endpoints, config, signers, lines: Mutex::default(), newest: Mutex::default() }
    }

    /// The endpoints.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// How long a contradiction at the fence is put down to lag.
    pub fn patience(&self) -> Duration {
        self.config.fence_patience.unwrap_or_else(|| self.three_blocks().max(Duration::from_secs(3)))
    }

    /// The time of three blocks. A chain that mines on demand has no block time worth waiting for: at most a
    /// minute.
    pub(crate) fn three_blocks(&self) -> Duration {
        self.endpoints.block_time().saturating_mul(3).min(Duration::from_secs(60))
    }

    /// How often the chain is looked at while something is waited for.
    pub fn poll(&self) -> Duration {
        self.config.receipt_poll.unwrap_or_else(|| {
            (self.endpoints.block_time() / 4).clamp(Duration::from_millis(100), Duration::from_secs(3))
        })
    }

    /// The newest block known to hold a transaction of an account: the least fence of its next session.
    pub fn newest_block(&self, account: Address) -> Option<BlockRef> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).get(&account).copied()
    }

    pub(crate) fn saw(&self, account: Address, block: BlockRef) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let known = newest.entry(account).or_insert(block);
        if known.number < block.number {
            *known = block;
        }
    }

    pub(crate) fn signer(&self, account: Address) -> Result<&TxSignerBox> {
        self.signers.get(&account).ok_or_else(|| {
            let message =
                format!("there is no signer for account {account}; give the client one with `signer`");
            Error::new(ErrorKind::SignerMissing { account: Some(account) }, message)
        })
    }

    pub(crate) fn line(&self, account: Address) -> Arc<tokio::sync::Mutex<()>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).entry(account).or_default().clone()
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accounts: Vec<_> = self.signers.keys().collect();
        f.debug_struct("Driver").field("endpoints", &self.endpoints).field("accounts", &accounts).finish()
    }
}
