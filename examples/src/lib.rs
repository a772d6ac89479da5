//! Runnable examples, one file per story: `cargo run -p examples --example register`.
//!
//! This library is what they share: a chain with the contracts on it and an account that can pay.

use std::time::Duration;

use backstay::{
    Config, EndpointConfig,
    alloy::{primitives::U256, signers::local::PrivateKeySigner},
};
use backstay_testkit::{Anvil, sample::Deployment};

/// A local chain of one-second blocks, with the contracts on it.
#[derive(Debug)]
pub struct Local {
    /// The chain.
    pub chain: Anvil,
    /// The contracts on it.
    pub contracts: Deployment,
    /// An account with ether and tokens.
    pub signer: PrivateKeySigner,
    folder: tempfile::TempDir,
}

impl Local {
    /// Launches it.
    ///
    /// # Errors
    ///
    /// When there is no anvil, or it does not start.
    pub async fn launch() -> anyhow::Result<Self> {
        let chain = Anvil::builder().block_time(Duration::from_secs(1)).launch().await?;
        let contracts = Deployment::deploy(&chain, U256::from(1_000)).await?;
        let signer = PrivateKeySigner::random();
        contracts.fund(&chain, signer.address()).await?;
        Ok(Self { chain, contracts, signer, folder: tempfile::tempdir()? })
    }

    /// A configuration with the chain as its only endpoint.
    pub fn config(&self) -> Config {
        let endpoint = EndpointConfig::new("anvil", self.chain.url().as_str());
        let mut config = Config::new(31_337, vec![endpoint]);
        config.journal = Some(self.folder.path().join("journal.db").into());
        config
    }
}
