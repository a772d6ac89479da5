//! What is measured, and the servers that it asks.

use std::time::Duration;

use alloy::{
    network::Ethereum,
    providers::{DynProvider, Provider, ProviderBuilder, RootProvider},
    rpc::client::RpcClient,
    transports::{http::Http, layers::FallbackLayer},
};
use backstay::{Client, Config, EndpointConfig};
use backstay_provider::{Endpoints, ProviderConfig, Session};
use tower::ServiceBuilder;
use url::Url;

use crate::server::{self, Fault, Server};

/// How many sound servers there are.
const MOST: usize = 64;

/// All servers.
pub(crate) struct Farm {
    sound: Vec<Server>,
    dead: Server,
    hung: Server,
    slow: Server,
}

impl Farm {
    pub(crate) fn start() -> anyhow::Result<Self> {
        Ok(Self {
            sound: (0..MOST).map(|_| Server::start(Fault::None)).collect::<anyhow::Result<_>>()?,
            dead: Server::start(Fault::Dead)?,
            hung: Server::start(Fault::Hung)?,
            slow: Server::start(Fault::SlowTail)?,
        })
    }

    /// So many sound servers.
    pub(crate) fn sound(&self, count: usize) -> Vec<&Server> {
        self.sound.iter().take(count).collect()
    }

    /// How many of the measured reads some servers have answered.
    pub(crate) fn reads(&self, ports: &[u16]) -> u64 {
        let all = self.sound.iter().chain([&self.dead, &self.hung, &self.slow]);
        all.filter(|server| ports.contains(&server.port())).map(Server::reads).sum()
    }
}

/// Something that reads.
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) provider: DynProvider,
    /// The ports of the servers that its calls may go to, to count them.
    pub(crate) servers: Vec<u16>,
    /// Keeps the client and its tracker alive.
    _client: Option<Client>,
}

/// Whether a client hedges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hedged {
    Yes,
    No,
}

/// Raw alloy first, and what is measured beside it.
pub(crate) async fn beside_raw(farm: &Farm) -> anyhow::Result<Vec<Candidate>> {
    let alloy = |name: &str, client: RpcClient, servers: &[&Server]| Candidate {
        name: name.to_owned(),
        provider: ProviderBuilder::default().connect_client(client).erased(),
        servers: ports(servers),
        _client: None,
    };
    let three = farm.sound(3);
    let transports: Vec<_> = three.iter().map(|server| Http::new(server.url())).collect();
    let fallback = ServiceBuilder::new().layer(FallbackLayer::default()).service(transports);
    Ok(vec![
        alloy("raw alloy", RpcClient::new(Http::new(three[0].url()), true), &three[..1]),
        alloy("FallbackLayer, 3 endpoints", RpcClient::new(fallback, true), &three),
        Candidate::backstay("1 endpoint", farm.sound(1), Config::new).await?,
        Candidate::backstay("3 endpoints", three.clone(), Config::new).await?,
        Candidate::fenced("fenced, 3 endpoints", &three).await?,
        Candidate::backstay("primary dead", vec![&farm.dead, three[0], three[1]], Config::new).await?,
        Candidate::backstay("primary hung", vec![&farm.hung, three[0], three[1]], Config::new).await?,
    ])
}

impl Candidate {
    /// A client in the configuration that is given, its tracker running.
    pub(crate) async fn backstay(
        name: &str,
        servers: Vec<&Server>,
        config: impl Fn(u64, Vec<EndpointConfig>) -> Config,
    ) -> anyhow::Result<Self> {
        let client = Client::builder(config(server::CHAIN_ID, endpoints(&servers))).connect().await?;
        if name.contains("primary") {
            // It is known to be dead or hung since before.
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
        Ok(Self {
            name: name.to_owned(),
            provider: client.provider::<Ethereum>().erased(),
            servers: ports(&servers),
            _client: Some(client),
        })
    }

    /// Reads in a session: each is asked at the hash of the session's block.
    async fn fenced(name: &str, servers: &[&Server]) -> anyhow::Result<Self> {
        let config = ProviderConfig::default();
        let endpoints = Endpoints::connect(server::CHAIN_ID, &endpoints(servers), config, None).await?;
        // The provider keeps its session, and that the endpoints.
        let provider: RootProvider<Ethereum> = Session::begin(&endpoints, None)?.provider();
        Ok(Self {
            name: name.to_owned(),
            provider: provider.erased(),
            servers: ports(servers),
            _client: None,
        })
    }

    /// A primary with a slow tail before two sound endpoints.
    pub(crate) async fn slow_tail(farm: &Farm, hedged: Hedged) -> anyhow::Result<Self> {
        let servers = [&farm.slow].into_iter().chain(farm.sound(2)).collect();
        Self::backstay("slow tail", servers, |chain_id, endpoints| {
            let mut config = Config::new(chain_id, endpoints);
            config.provider.read.hedge = (hedged == Hedged::Yes).then(Default::default);
            config
        })
        .await
    }
}

fn endpoints(servers: &[&Server]) -> Vec<EndpointConfig> {
    let url = |server: &&Server| -> Url { server.url() };
    servers
        .iter()
        .map(url)
        .enumerate()
        .map(|(index, url)| EndpointConfig::new(format!("e{index}"), url.as_str()))
        .collect()
}

fn ports(servers: &[&Server]) -> Vec<u16> {
    servers.iter().map(|server| server.port()).collect()
}
