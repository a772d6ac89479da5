//! Registers a context graph whose deposit was never approved: what a publishing service writes.
//!
//! ```text
//! cargo run -p examples --example register -- CONFIG.toml PARAMETERS GRAPHS TOKEN NAME
//! ```
//!
//! The signer's key is taken from `SIGNER_KEY`. Without arguments it brings a chain of its own.

use anyhow::Context;
use backstay::{
    AllowanceFlow, Client, Config, Grant,
    alloy::{
        network::Ethereum,
        primitives::{Address, keccak256},
        signers::local::PrivateKeySigner,
        sol,
    },
};
use examples::Local;

sol! {
    #[sol(rpc)]
    interface Parameters { function deposit() external view returns (uint256); }
    interface ContextGraphs { function createContextGraph(bytes32 key) external; }
}

async fn register(
    config: Config,
    signer: PrivateKeySigner,
    contracts: Contracts,
    name: &str,
) -> anyhow::Result<()> {
    let Contracts { parameters, graphs, token } = contracts;
    let needed = move |view| async move { Parameters::new(parameters, view).deposit().call().await };
    let client =
        Client::builder(config).signer(signer).flow(AllowanceFlow::new().needed_by(needed)).connect().await?;

    // The most that recovery may approve is what the chain says a registration costs.
    let deposit = Parameters::new(parameters, client.provider::<Ethereum>()).deposit().call().await?;
    let intent = client
        .intent(format!("register:{name}"))
        .call(graphs, &ContextGraphs::createContextGraphCall { key: keccak256(name) })
        .grant(Grant { token, spender: graphs, cap: deposit })
        .send()
        .await?;
    let outcome = intent.outcome().await?;

    println!("{}", intent.trail());
    println!("registered `{name}` in block {}", outcome.included()?.block);
    // The next start, or another process, need not wait for this one's claims to end.
    client.close().await?;
    Ok(())
}

/// The contracts that a service is configured with.
struct Contracts {
    parameters: Address,
    graphs: Address,
    token: Address,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, parameters, graphs, token, name] = arguments.as_slice() else {
        let local = Local::launch().await?;
        let contracts = Contracts {
            parameters: local.contracts.parameters,
            graphs: local.contracts.graphs,
            token: local.contracts.token,
        };
        return register(local.config(), local.signer.clone(), contracts, "example").await;
    };
    let config =
        Config::from_toml(&std::fs::read_to_string(config).with_context(|| format!("reading {config}"))?)?;
    let signer = std::env::var("SIGNER_KEY").context("SIGNER_KEY is not set")?.parse()?;
    let contracts =
        Contracts { parameters: parameters.parse()?, graphs: graphs.parse()?, token: token.parse()? };
    register(config, signer, contracts, name).await
}
