//! Approve, then register, as a service would write it.

use std::time::Duration;

use backstay::{
    AllowanceFlow, Client, Config, EndpointConfig, Grant, Intent,
    alloy::{
        network::Ethereum,
        primitives::{Address, B256, U256},
        signers::local::PrivateKeySigner,
    },
};
use backstay_testkit::sample::{ContextGraphs, Deployment, Parameters};
use url::Url;

/// The chain id of anvil.
pub const CHAIN_ID: u64 = 31_337;

/// Endpoints in order of preference, with the demo's attempt timeout. The journal is still to be named.
pub fn config(endpoints: &[(String, Url)]) -> Config {
    let endpoint = |(name, url): &(String, Url)| EndpointConfig::new(name, url.as_str());
    let mut config = Config::new(CHAIN_ID, endpoints.iter().map(endpoint).collect());
    config.provider.attempt_timeout = Duration::from_secs(2);
    config.tx.inclusion_timeout = Duration::from_secs(60);
    config
}

/// A client's builder with one signer, the allowance flow, and a reader of the deposit.
pub fn builder(config: Config, signer: PrivateKeySigner, parameters: Address) -> backstay::Builder {
    let deposit = move |view| async move { Parameters::new(parameters, view).deposit().call().await };
    Client::builder(config).signer(signer).flow(AllowanceFlow::new().needed_by(deposit))
}

/// Reads the deposit through the client, makes it the grant's cap, and sends the registration.
pub async fn register(client: &Client, contracts: &Deployment, key: B256) -> anyhow::Result<Intent> {
    let parameters = Parameters::new(contracts.parameters, client.provider::<Ethereum>());
    let deposit: U256 = parameters.deposit().call().await?;
    let intent = client
        .intent(self::key(key))
        .call(contracts.graphs, &ContextGraphs::createContextGraphCall { key })
        .grant(Grant { token: contracts.token, spender: contracts.graphs, cap: deposit })
        .send()
        .await?;
    Ok(intent)
}

/// The key of the intent that registers.
pub fn key(graph: B256) -> String {
    format!("register:{graph}")
}
