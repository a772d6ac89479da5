//! Tells an incident again that is kept as a file, with a service of your own in it: `incident.toml` says what the
//! endpoints do, and the records say what they were asked.

use backstay::{
    Client, Config, EndpointConfig,
    alloy::{network::Ethereum, primitives::U256, providers::Provider},
};
use backstay_testkit::{Anvil, Fleet, Scenario};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let chain = Anvil::builder().launch().await?;
    let incident = Scenario::from_toml(include_str!("incident.toml"))?;
    let mut fleet = Fleet::builder();
    for name in incident.endpoints() {
        fleet = fleet.endpoint(name, chain.url(), incident.program(name));
    }
    let fleet = fleet.start().await?;

    let endpoint = |(name, url): &(String, _)| EndpointConfig::new(name, format!("{url}"));
    let endpoints = fleet.urls().iter().map(endpoint).collect();
    let client = Client::builder(Config::new(31_337, endpoints)).connect().await?;
    let account = chain.accounts()[0];
    for _ in 0..3 {
        let balance = client.provider::<Ethereum>().get_balance(account).await?;
        anyhow::ensure!(balance > U256::ZERO, "an account of the node has no ether");
    }

    for call in fleet.records().iter().filter(|call| call.method == "eth_getBalance") {
        let rule = call.rule.as_deref().unwrap_or("the chain's own answer");
        println!("{:5} ms  {:7} {rule}", call.at.as_millis(), call.endpoint);
    }
    anyhow::ensure!(fleet.count("first", "eth_getBalance") >= 2, "the incident did not happen");
    println!("three reads, {} failovers, no error", client.failovers());
    Ok(())
}
