//! Tests a service of your own against endpoints that misbehave, with the testkit: here one whose head is
//! frozen, in front of a sound one.

use std::time::Duration;

use backstay::{
    Client, Config, EndpointConfig,
    alloy::{network::Ethereum, providers::Provider},
};
use backstay_testkit::{Anvil, Fleet, Program, View};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let chain = Anvil::builder().launch().await?;
    chain.mine_spaced(50, Duration::from_secs(1)).await?;
    let fleet = Fleet::builder()
        .endpoint("frozen", chain.url(), View::Frozen { at: 10 })
        .endpoint("sound", chain.url(), Program::new())
        .start()
        .await?;

    let endpoint = |(name, url): &(String, _)| EndpointConfig::new(name, format!("{url}"));
    let endpoints = fleet.urls().iter().map(endpoint).collect();
    let client = Client::builder(Config::new(31_337, endpoints)).connect().await?;
    let connected = fleet.mark();

    let height = client.provider::<Ethereum>().get_block_number().await?;
    anyhow::ensure!(height == chain.head().await?, "it was answered by the endpoint that is stale");
    let asked = fleet.records_since(connected);
    anyhow::ensure!(asked.iter().any(|call| call.endpoint == "sound" && call.method == "eth_blockNumber"));
    for status in client.status().endpoints {
        println!("{:8} {}", status.name, status.excluded.as_deref().unwrap_or("in use"));
    }
    println!("the chain is at {height}");
    Ok(())
}
