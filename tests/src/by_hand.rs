//! The same story over plain alloy: `FallbackLayer` over the same endpoints, written as adapters write it.

use std::time::Duration;

use alloy::{
    network::EthereumWallet,
    primitives::{B256, TxHash, U256},
    providers::{DynProvider, Provider, ProviderBuilder},
    rpc::client::RpcClient,
    signers::local::PrivateKeySigner,
    transports::{http::Http, layers::FallbackLayer},
};
use anyhow::{Context, bail, ensure};
use backstay_testkit::sample::{ContextGraphs, Deployment, Parameters, Token};
use tower::ServiceBuilder;
use url::Url;

/// How long it may take in all. The SDK needs a tenth of it.
pub const CAP: Duration = Duration::from_secs(25);

/// Registers, approving the deposit when the contract says that the allowance is too low. With a `past`, first reads
/// the deposit at that block, which must be this.
pub async fn register(
    endpoints: &[(String, Url)],
    signer: PrivateKeySigner,
    contracts: &Deployment,
    key: B256,
    past: Option<(u64, U256)>,
) -> anyhow::Result<()> {
    match tokio::time::timeout(CAP, attempt(endpoints, signer, contracts, key, past)).await {
        Ok(result) => result,
        Err(_) => bail!("not done after {} s", CAP.as_secs()),
    }
}

async fn attempt(
    endpoints: &[(String, Url)],
    signer: PrivateKeySigner,
    contracts: &Deployment,
    key: B256,
    past: Option<(u64, U256)>,
) -> anyhow::Result<()> {
    let owner = signer.address();
    let transports: Vec<_> = endpoints.iter().map(|(_, url)| Http::new(url.clone())).collect();
    // As a careful adapter does: raced sends answer "already imported" for what another endpoint has just taken.
    let layer = FallbackLayer::default().with_sequential_method("eth_sendRawTransaction");
    let transport = ServiceBuilder::new().layer(layer).service(transports);
    let client = RpcClient::new(transport, true);
    let provider =
        ProviderBuilder::new().wallet(EthereumWallet::from(signer)).connect_client(client).erased();

    let parameters = Parameters::new(contracts.parameters, &provider);
    if let Some((block, was)) = past {
        let deposit = parameters.deposit().block(block.into()).call().await.context("the old deposit")?;
        ensure!(deposit == was, "the old deposit reads {deposit}, it was {was}");
    }
    let deposit = parameters.deposit().call().await.context("deposit")?;
    let graphs = ContextGraphs::new(contracts.graphs, &provider);
    let pending = match graphs.createContextGraph(key).send().await {
        Ok(pending) => pending,
        Err(error) if error.as_decoded_error::<ContextGraphs::TooLowAllowance>().is_some() => {
            let token = Token::new(contracts.token, &provider);
            let approve = token.approve(contracts.graphs, deposit).send().await.context("approve")?;
            let succeeded = included(&provider, *approve.tx_hash()).await.context("the approve's receipt")?;
            ensure!(succeeded, "the approve reverted");
            let allowance = token.allowance(owner, contracts.graphs).call().await.context("allowance")?;
            ensure!(allowance >= deposit, "the allowance reads {allowance} after the approve");
            graphs.createContextGraph(key).send().await.context("register, after the approve")?
        }
        Err(error) => return Err(error).context("register"),
    };
    let succeeded = included(&provider, *pending.tx_hash()).await.context("the registration's receipt")?;
    ensure!(succeeded, "the registration reverted");
    Ok(())
}

/// Waits for a receipt, and tells whether the transaction succeeded. Alloy's own `get_receipt` waits for a block
/// that it has seen; over endpoints that are raced it can miss that block, and then waits for ever.
async fn included(provider: &DynProvider, hash: TxHash) -> anyhow::Result<bool> {
    loop {
        if let Some(receipt) = provider.get_transaction_receipt(hash).await? {
            return Ok(receipt.status());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
