//! A chain with the contracts on it, endpoints in front of it, and a configuration that is quick on it.

use std::time::Duration;

use backstay::{
    AllowanceFlow, Builder, Client, Config, EndpointConfig, EndpointStatus, Error, Grant, Intent,
    IntentBuilder,
    alloy::{
        primitives::{Address, B256, U256},
        providers::Provider,
        signers::local::PrivateKeySigner,
        transports::TransportError,
    },
};
use backstay_testkit::{
    Anvil, AnvilBuilder, Call, Fleet, Program,
    sample::{ContextGraphs, Deployment},
};
use e2e::story::CHAIN_ID;
use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;

/// No test waits longer for something that must come.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// The attempt timeout of the stage's clients.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(1);

/// A chain that mines each transaction at once, with the contracts on it, and a place for a journal.
pub(crate) struct Stage {
    pub(crate) chain: Anvil,
    pub(crate) contracts: Deployment,
    pub(crate) folder: TempDir,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::on(Anvil::builder()).await
    }

    /// A chain that mines at an interval.
    pub(crate) async fn with_blocks_every(interval: Duration) -> Self {
        Self::on(Anvil::builder().block_time(interval)).await
    }

    async fn on(chain: AnvilBuilder) -> Self {
        let chain = chain.launch().await.expect("anvil starts");
        let contracts = Deployment::deploy(&chain, U256::from(1_000)).await.expect("the contracts deploy");
        Self { chain, contracts, folder: tempfile::tempdir().expect("there is room for a directory") }
    }

    /// Endpoints in front of the chain, in this order.
    pub(crate) async fn fleet<const N: usize>(&self, endpoints: [(&str, Program); N]) -> Fleet {
        let mut fleet = Fleet::builder();
        for (name, program) in endpoints {
            fleet = fleet.endpoint(name, self.chain.url(), program);
        }
        fleet.start().await.expect("the fleet starts")
    }

    /// Two sound endpoints.
    pub(crate) async fn sound(&self) -> Fleet {
        self.fleet([("primary", Program::new()), ("second", Program::new())]).await
    }

    /// Over a fleet, with the stage's journal.
    pub(crate) fn config(&self, fleet: &Fleet) -> Config {
        let mut config = config(&fleet.urls());
        config.journal = Some(self.folder.path().join("journal.db").into());
        config
    }

    /// A client that reads.
    pub(crate) async fn reader(&self, fleet: &Fleet) -> Client {
        Client::builder(self.config(fleet)).connect().await.expect("it connects")
    }

    /// A client with one signer and the allowance flow.
    pub(crate) async fn client(&self, fleet: &Fleet, signer: &PrivateKeySigner) -> Client {
        self.builder(fleet, signer).connect().await.expect("it connects")
    }

    pub(crate) fn builder(&self, fleet: &Fleet, signer: &PrivateKeySigner) -> Builder {
        Client::builder(self.config(fleet)).signer(signer.clone()).flow(AllowanceFlow::new())
    }

    /// A fresh account with ether and tokens.
    pub(crate) async fn account(&self) -> PrivateKeySigner {
        let signer = PrivateKeySigner::random();
        self.contracts.fund(&self.chain, signer.address()).await.expect("the account is funded");
        signer
    }

    /// The same, which lets the registry take so much of its tokens.
    pub(crate) async fn account_allowing(&self, deposits: u64) -> PrivateKeySigner {
        let signer = self.account().await;
        let amount = self.contracts.deposit * U256::from(deposits);
        let approve =
            backstay_testkit::sample::Token::approveCall { spender: self.contracts.graphs, value: amount };
        self.act_as(signer.address(), self.contracts.token, &approve).await;
        signer
    }

    /// Calls a contract in the name of any account, past the fleet and the SDK.
    pub(crate) async fn act_as(
        &self,
        from: Address,
        to: Address,
        call: &impl backstay::alloy::sol_types::SolCall,
    ) {
        let input = backstay::alloy::primitives::Bytes::from(call.abi_encode());
        self.rpc("anvil_impersonateAccount", json!([from])).await;
        let hash = self.rpc("eth_sendTransaction", json!([{"from": from, "to": to, "input": input}])).await;
        self.rpc("anvil_stopImpersonatingAccount", json!([from])).await;
        eventually("the transaction is mined", async || {
            let receipt = self.rpc("eth_getTransactionReceipt", json!([hash])).await;
            assert!(receipt.is_null() || receipt["status"] == "0x1", "it reverted: {receipt}");
            !receipt.is_null()
        })
        .await;
    }

    pub(crate) async fn rpc(&self, method: &str, params: Value) -> Value {
        self.chain.rpc(method, params).await.expect("anvil answers")
    }

    /// How many transactions of an account the chain has included.
    pub(crate) async fn nonce(&self, account: Address) -> u64 {
        let count = self.rpc("eth_getTransactionCount", json!([account, "latest"])).await;
        serde_json::from_value::<U256>(count).expect("a count is a number").to()
    }

    pub(crate) async fn approvals(&self, account: Address) -> u64 {
        self.contracts.approvals(&self.chain, account).await.expect("anvil answers")
    }

    pub(crate) async fn registrations(&self, account: Address) -> u64 {
        self.contracts.registrations(&self.chain, account).await.expect("anvil answers")
    }

    /// The grant of one deposit.
    pub(crate) fn grant(&self) -> Grant {
        Grant { token: self.contracts.token, spender: self.contracts.graphs, cap: self.contracts.deposit }
    }

    /// An intent to register, named after what it registers.
    pub(crate) fn register(&self, client: &Client, name: &str) -> IntentBuilder {
        let call = ContextGraphs::createContextGraphCall { key: key(name) };
        client.intent(format!("register:{name}")).call(self.contracts.graphs, &call)
    }

    /// Sends a registration that must succeed.
    pub(crate) async fn registered(&self, client: &Client, name: &str) -> Intent {
        let intent =
            self.register(client, name).grant(self.grant()).send().await.expect("it is written down");
        let outcome = within(intent.outcome()).await.expect("it ends well");
        outcome.included().expect("it is included");
        intent
    }
}

/// A configuration over these endpoints without a journal, quick on a chain that mines at once.
pub(crate) fn config(endpoints: &[(String, Url)]) -> Config {
    let endpoint = |(name, url): &(String, Url)| EndpointConfig::new(name, url.as_str());
    let mut config = Config::new(CHAIN_ID, endpoints.iter().map(endpoint).collect());
    config.provider.attempt_timeout = ATTEMPT;
    config.provider.operation_timeout = Duration::from_secs(10);
    config.provider.head_poll = Some(Duration::from_millis(50));
    // Tests count calls, and decide what an endpoint has shown of its history.
    config.provider.history_probes = false;
    config.provider.pool.block_time = Some(Duration::from_millis(200));
    config.tx.inclusion_timeout = SOON;
    config.tx.fence_patience = Some(Duration::from_millis(500));
    config
}

pub(crate) fn key(name: &str) -> B256 {
    Deployment::key(name)
}

/// What must come, within a bound.
pub(crate) async fn within<T>(future: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(SOON, future.into_future()).await.expect("it takes no longer than half a minute")
}

/// Looks until something is so.
pub(crate) async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, looking)
        .await
        .unwrap_or_else(|_| panic!("in half a minute it was not so: {what}"));
}

/// Waits until a client has seen the chain's head.
pub(crate) async fn caught_up(client: &Client, chain: &Anvil) {
    caught_up_to(client, chain.head().await.expect("anvil answers")).await;
}

/// Waits until a client has seen a height.
pub(crate) async fn caught_up_to(client: &Client, head: u64) {
    eventually("the client has seen the head", async || {
        client.status().endpoints.iter().any(|status| status.head.is_some_and(|seen| seen.number >= head))
    })
    .await;
}

/// An endpoint as the client sees it.
pub(crate) fn status(client: &Client, name: &str) -> EndpointStatus {
    let found = client.status().endpoints.into_iter().find(|status| status.name.as_str() == name);
    found.unwrap_or_else(|| panic!("there is no endpoint {name}"))
}

/// Backstay's error inside alloy's.
pub(crate) fn ours(error: &TransportError) -> Error {
    backstay::error_of(error).unwrap_or_else(|| panic!("it is not ours: {error:?}")).clone()
}

/// Fails unless a message holds each of these texts.
pub(crate) fn says(error: &impl std::fmt::Display, texts: &[&str]) {
    let message = error.to_string();
    for text in texts {
        assert!(message.contains(text), "`{text}` is missing in: {message}");
    }
}

/// The raw sends that reached any endpoint.
pub(crate) fn sends(fleet: &Fleet) -> Vec<Call> {
    fleet.records().into_iter().filter(|call| call.method.starts_with("eth_send")).collect()
}

/// The head, asked through a provider.
pub(crate) async fn block_number(client: &Client) -> Result<u64, TransportError> {
    client.provider::<backstay::alloy::network::Ethereum>().get_block_number().await
}
