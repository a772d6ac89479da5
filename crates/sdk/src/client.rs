//! The client: endpoints, signers, flows and a journal, connected.

use std::{fmt, sync::Arc, time::Duration};

use alloy::{
    network::TxSigner,
    primitives::{Address, BlockHash, Signature, TxHash},
    providers::{Network, RootProvider},
    rpc::client::RpcClient,
};
use backstay_core::{EndpointName, Error, ErrorKind, Result, endpoint::PoolStatus, router::Lookup};
use backstay_intents::{Dispatcher, Intent};
use backstay_journal::{Journal, Line, MemoryJournal};
use backstay_provider::{EndpointConfig, Endpoints, Failover};
use backstay_recovery::{Flow, Runner};
use backstay_tx::{Driver, TxSignerBox};

use crate::{config::Config, intent::IntentBuilder, opening};

/// A client for one chain. A cheap handle: clones are the same client.
///
/// Its background work (the head tracker, the intents that run) ends when the last handle is dropped, and the
/// last provider that it gave. An intent that had not ended goes on in another process, or when a client is connected to
/// the same journal again.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) endpoints: Endpoints,
    pub(crate) journal: Arc<dyn Journal>,
    /// Whether it was given one.
    pub(crate) has_journal: bool,
    pub(crate) runner: Arc<Runner>,
    /// The accounts that there are signers for, in the order in which they were given.
    pub(crate) accounts: Vec<Address>,
    /// Runs the intents.
    pub(crate) dispatcher: Dispatcher,
}

/// Makes a [`Client`].
#[must_use = "a builder does nothing until it is connected"]
pub struct Builder {
    config: Config,
    signers: Vec<TxSignerBox>,
    flows: Vec<Arc<dyn Flow>>,
    journal: Option<Arc<dyn Journal>>,
}

impl Client {
    /// Begins a client.
    pub fn builder(config: Config) -> Builder {
        Builder { config, signers: Vec::new(), flows: Vec::new(), journal: None }
    }

    /// An alloy provider over all endpoints: reads and sends fail over. Bindings of `sol!`, multicalls and pollers
    /// work over it unchanged; fillers and wallets are put on it by
    /// `ProviderBuilder::new().connect_provider(client.provider::<Ethereum>())`.
    ///
    /// `N` is how blocks and transactions are read. `Ethereum` fails to read a block with a transaction type that
    /// Ethereum does not have, such as a deposit of a rollup: ask through `AnyNetwork`, or through a network of
    /// that rollup. The client itself reads none of them.
    ///
    /// A raw transaction of an account that this client signs for is refused there
    /// ([`ErrorKind::ManagedAccount`]): send it as an intent.
    pub fn provider<N: Network>(&self) -> RootProvider<N> {
        self.over(self.shared.endpoints.transport())
    }

    /// The same provider, with reads hedged: where an endpoint is slower than it mostly is, a second one is asked while
    /// the first call is open, and the first answer counts. For reads whose latency matters more than a tenth more
    /// calls; `provider.read.hedge` turns it on for all of them, and sets its bounds.
    ///
    /// Sends and filters are never hedged.
    pub fn hedged_provider<N: Network>(&self) -> RootProvider<N> {
        self.over(self.shared.endpoints.hedged_transport())
    }

    fn over<N: Network>(&self, transport: Failover) -> RootProvider<N> {
        let poll = self.shared.endpoints.block_time() / 2;
        RootProvider::new(RpcClient::new(transport, true).with_poll_interval(poll))
    }

    /// The block at a height, without the bodies of its transactions; where it is absent, why. Through
    /// [`Client::provider`] what is absent is `null`.
    ///
    /// # Errors
    ///
    /// Where no endpoint answers.
    pub async fn block<N: Network>(&self, number: u64) -> Result<Lookup<N::BlockResponse>> {
        self.shared.endpoints.block::<N>(number).await
    }

    /// The block with a hash, without the bodies of its transactions; where it is absent, why. With its height, where
    /// that is known, old and fresh blocks are told from unknown ones.
    ///
    /// # Errors
    ///
    /// Where no endpoint answers.
    pub async fn block_by_hash<N: Network>(
        &self,
        hash: BlockHash,
        height: Option<u64>,
    ) -> Result<Lookup<N::BlockResponse>> {
        self.shared.endpoints.block_by_hash::<N>(hash, height).await
    }

    /// The transaction with a hash; where it is absent, why. Without its height, at most one further endpoint is
    /// asked, once for each hash.
    ///
    /// # Errors
    ///
    /// Where no endpoint answers.
    pub async fn transaction<N: Network>(
        &self,
        hash: TxHash,
        height: Option<u64>,
    ) -> Result<Lookup<N::TransactionResponse>> {
        self.shared.endpoints.transaction::<N>(hash, height).await
    }

    /// The receipt of a transaction; where it is absent, why. Without its height, at most one further endpoint is
    /// asked, once for each hash.
    ///
    /// # Errors
    ///
    /// Where no endpoint answers.
    pub async fn receipt<N: Network>(
        &self,
        hash: TxHash,
        height: Option<u64>,
    ) -> Result<Lookup<N::ReceiptResponse>> {
        self.shared.endpoints.receipt::<N>(hash, height).await
    }

    /// Begins an intent under an idempotency key: a name for the effect, such as `register:<what>`. The same
    /// key with the same content is the same intent, in this process and after a restart, as far as the
    /// journal reaches.
    pub fn intent(&self, key: impl Into<String>) -> IntentBuilder {
        IntentBuilder::new(self.clone(), key.into())
    }

    /// The intent that was sent under a key, by whichever process and however long ago; `None` where the journal has
    /// none. It does not make it go on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Journal`]; [`ErrorKind::Config`] where the client was given no journal.
    pub async fn find_intent(&self, key: &str) -> Result<Option<Intent>> {
        if !self.shared.has_journal {
            return Err(Error::config(
                "this client has no journal, so it cannot tell what was sent; name the one of the service with `journal`",
            ));
        }
        self.shared.dispatcher.find(key).await
    }

    /// Makes every intent of this client's accounts go on that has not ended, also those that have stopped with an error,
    /// and returns them in the order in which they were opened. With `resume = "on_start"`, the default, those that were
    /// interrupted go on by themselves when the client is connected.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Journal`]; [`ErrorKind::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves some of them as they were: call it again.
    pub async fn resume(&self) -> Result<Vec<Intent>> {
        self.shared.dispatcher.resume().await
    }

    /// Makes the intent go on that was sent under a key, by whichever process and however long ago, also where it has
    /// stopped with an error; `None` where the journal has none. One that has ended is left as it is. With
    /// `resume = "on_demand"`, no other goes on.
    ///
    /// The grants stay those that were given last.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SignerMissing`] where it has not ended, and this client has no signer for its account;
    /// [`ErrorKind::Journal`]; [`ErrorKind::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves open whether it goes on: call it again.
    pub async fn resume_intent(&self, key: &str) -> Result<Option<Intent>> {
        self.shared.dispatcher.resume_intent(key).await
    }

    /// Accepts every transaction of an account that is mined, whoever has sent it, and returns the nonce that comes
    /// next. For after [`ErrorKind::ChainAhead`], once it is clear who sent them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] when no endpoint tells; [`ErrorKind::Journal`].
    pub async fn accept_external(&self, account: Address) -> Result<u64> {
        let line = Line { chain_id: self.chain_id(), account };
        self.shared.runner.driver().accept_external(&*self.shared.journal, line).await
    }

    /// Removes the records of intents that ended longer ago than `older_than`, as `retention` does in the background,
    /// and returns how many there were.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Journal`].
    pub async fn prune(&self, older_than: Duration) -> Result<u64> {
        self.shared.dispatcher.prune(older_than).await
    }

    /// Stops the work on intents, as if the process had been killed, and lets other processes have the accounts at once
    /// instead of when the claims end. What had not ended goes on there, or when a client is connected again.
    /// Dropping the last handle does the same in the background, where the runtime lives on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Journal`] when a claim could not be released: it ends by itself.
    pub async fn close(&self) -> Result<()> {
        self.shared.dispatcher.close().await
    }

    /// The chain id.
    pub fn chain_id(&self) -> u64 {
        self.shared.endpoints.chain_id()
    }

    /// The accounts that this client signs for.
    pub fn accounts(&self) -> &[Address] {
        &self.shared.accounts
    }

    /// Adds an endpoint while the client runs, as the least preferred. It returns at once: the endpoint is identified in
    /// the background, and serves from then on; [`Client::status`] tells.
    ///
    /// # Errors
    ///
    /// A configuration error when its name is empty or taken, or its URL or a header is not valid.
    pub fn add_endpoint(&self, endpoint: &EndpointConfig) -> Result<()> {
        self.shared.endpoints.add(endpoint)
    }

    /// Removes an endpoint while the client runs. Calls that are under way there end as they end; a session that is
    /// pinned there moves on.
    ///
    /// # Errors
    ///
    /// A configuration error when there is no endpoint of that name, or it is the last that is read from, or the last
    /// of those that was seen to serve this chain.
    pub fn remove_endpoint(&self, name: &str) -> Result<()> {
        self.shared.endpoints.remove(&EndpointName::from(name))
    }

    /// Puts an endpoint in the place of the one of the same name: another URL, other headers, another key. It is
    /// identified first; until then the old one serves, and it goes on where the new one does not prove to be of this
    /// chain.
    ///
    /// # Errors
    ///
    /// A configuration error when there is no endpoint of that name, or its URL or a header is not valid;
    /// [`ErrorKind::Unavailable`] when it does not answer within `connect_timeout`, or nothing decides on its branch;
    /// [`ErrorKind::WrongChain`] when it serves another chain. Nothing has changed then.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the old one in place.
    pub async fn replace_endpoint(&self, endpoint: &EndpointConfig) -> Result<()> {
        self.shared.endpoints.replace(endpoint).await
    }

    /// A snapshot of the pool and every endpoint: who serves, who does not and why, heads, breakers, budgets. It
    /// serialises, and holds no URL and no header.
    pub fn status(&self) -> PoolStatus {
        self.shared.endpoints.status()
    }

    /// How many calls went on to a further endpoint because the one before it failed them.
    pub fn failovers(&self) -> u64 {
        self.shared.endpoints.failovers()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.shared.endpoints)
            .field("accounts", &self.shared.accounts)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// A signer: any of alloy's. The client manages its account from then on.
    pub fn signer(mut self, signer: impl TxSigner<Signature> + Send + Sync + 'static) -> Self {
        self.signers.push(Arc::new(signer));
        self
    }

    /// A recovery flow. Flows are asked in the order in which they are given.
    pub fn flow(mut self, flow: impl Flow) -> Self {
        self.flows.push(Arc::new(flow));
        self
    }

    /// A journal, in place of the SQLite file that the configuration names.
    pub fn journal(mut self, journal: impl Journal) -> Self {
        self.journal = Some(Arc::new(journal));
        self
    }

    /// Connects: opens the journal, and asks every endpoint who it is. An endpoint that does not answer does
    /// not stop it.
    ///
    /// # Errors
    ///
    /// A configuration error; [`ErrorKind::Journal`]; [`ErrorKind::Unavailable`] when no endpoint answers;
    /// [`ErrorKind::WrongChain`] and [`ErrorKind::IdentityAmbiguous`].
    pub async fn connect(self) -> Result<Client> {
        let Self { config, signers, flows, journal } = self;
        config.validate()?;
        let mut accounts: Vec<Address> = Vec::new();
        for signer in &signers {
            if !accounts.contains(&signer.address()) {
                accounts.push(signer.address());
            }
        }
        let has_journal = journal.is_some() || config.journal.is_some();
        let journal = match journal {
            Some(journal) => journal,
            None => open_journal(&config, accounts.is_empty()).await?,
        };
        let recorded = journal.genesis(config.chain_id).await?;
        let endpoints =
            Endpoints::connect(config.chain_id, &config.endpoints, config.provider, recorded).await?;
        if let Some(genesis) = endpoints.genesis() {
            let recorded = journal.record_genesis(config.chain_id, genesis).await?;
            if recorded != genesis {
                return Err(Error::config(format!(
                    "the journal was written for a chain {} whose block 0 is {recorded}, and `provider.genesis` \
                     says {genesis}; use another journal for another chain",
                    config.chain_id
                )));
            }
        }
        let driver = Driver::new(endpoints.clone(), config.tx, signers);
        let runner = Arc::new(Runner::new(driver, flows, config.recovery));
        let (claims, retention) = (config.claims, config.retention);
        let dispatcher =
            Dispatcher::start(runner.clone(), journal.clone(), &accounts, claims, retention, config.resume)
                .await?;
        Ok(Client {
            shared: Arc::new(Shared { endpoints, journal, has_journal, runner, accounts, dispatcher }),
        })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("config", &self.config)
            .field("flows", &self.flows)
            .finish_non_exhaustive()
    }
}

async fn open_journal(config: &Config, reads_only: bool) -> Result<Arc<dyn Journal>> {
    match &config.journal {
        Some(location) => opening::open(location, &config.postgres).await,
        // Nothing is sent without a signer, so there is nothing to write down.
        None if reads_only => Ok(Arc::new(MemoryJournal::new())),
        None => Err(Error::new(
            ErrorKind::Config,
            "a client that signs needs a journal, so that nothing is sent twice after a restart; set `journal` to \
             a file or to the address of a database, or give the builder one with `journal`",
        )),
    }
}
