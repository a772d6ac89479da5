//! Named endpoints over one or several chains.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use url::Url;

use crate::{
    Call, Error, Mark, Program, View,
    proxy::Site,
    record::{Log, Outcome},
    upstream::Upstream,
};

/// Collects the endpoints of a [`Fleet`].
#[derive(Debug, Default)]
pub struct FleetBuilder {
    endpoints: Vec<(String, Option<Url>, Program)>,
}

impl FleetBuilder {
    /// Adds an endpoint in front of the chain at `chain`, which other endpoints may share.
    pub fn endpoint(mut self, name: impl Into<String>, chain: &Url, program: impl Into<Program>) -> Self {
        self.endpoints.push((name.into(), Some(chain.clone()), program.into()));
        self
    }

    /// Adds an endpoint without a chain. What no rule answers gets HTTP 502.
    pub fn scripted(mut self, name: impl Into<String>, program: impl Into<Program>) -> Self {
        self.endpoints.push((name.into(), None, program.into()));
        self
    }

    /// Opens the listeners.
    ///
    /// # Errors
    ///
    /// If a name is there twice, a listener cannot be opened, or a chain does not answer.
    pub async fn start(self) -> Result<Fleet, Error> {
        let log = Log::new(Instant::now());
        // From here on its Drop ends what has been opened.
        let mut fleet = Fleet { endpoints: Vec::new(), log: Arc::clone(&log), watchers: JoinSet::new() };
        let mut chains: Vec<Arc<Upstream>> = Vec::new();
        for (name, chain, program) in self.endpoints {
            if fleet.endpoints.iter().any(|endpoint| endpoint.name() == name) {
                return Err(Error::DuplicateName(name));
            }
            let upstream = chain.map(|url| match chains.iter().find(|known| *known.url() == url) {
                Some(known) => Arc::clone(known),
                None => {
                    let upstream = Arc::new(Upstream::new(url));
                    chains.push(Arc::clone(&upstream));
                    upstream
                }
            });
            let site = Site::open(name.clone(), Arc::clone(&log), upstream, program)
                .await
                .map_err(|source| Error::Listen { endpoint: name, source })?;
            fleet.endpoints.push(Endpoint { site });
        }
        for chain in chains {
            // The first look is part of the start: what is there now is old.
            chain.head().await?;
            fleet.watchers.spawn(async move { chain.watch_heads().await });
        }
        Ok(fleet)
    }
}

/// A set of endpoints on loopback, each with its own fault program, and the log of all that they were asked.
///
/// Dropping it closes the listeners and ends every task.
#[derive(Debug)]
pub struct Fleet {
    endpoints: Vec<Endpoint>,
    log: Arc<Log>,
    /// One per chain, ended with the fleet.
    watchers: JoinSet<()>,
}

impl Fleet {
    /// An empty fleet to be filled.
    pub fn builder() -> FleetBuilder {
        FleetBuilder::default()
    }

    /// The address of an endpoint: all that the code under test is to know.
    ///
    /// # Panics
    ///
    /// If there is no endpoint of this name.
    pub fn url(&self, name: &str) -> Url {
        self.endpoint(name).url()
    }

    /// The names and addresses in order.
    pub fn urls(&self) -> Vec<(String, Url)> {
        self.endpoints.iter().map(|endpoint| (endpoint.name().to_owned(), endpoint.url())).collect()
    }

    /// A handle to an endpoint.
    ///
    /// # Panics
    ///
    /// If there is no endpoint of this name.
    pub fn endpoint(&self, name: &str) -> Endpoint {
        match self.endpoints.iter().find(|endpoint| endpoint.name() == name) {
            Some(endpoint) => endpoint.clone(),
            None => panic!("the fleet has no endpoint named {name}"),
        }
    }

    /// All calls so far, in the order of their arrival.
    pub fn records(&self) -> Vec<Call> {
        self.log.since(Mark::START)
    }

    /// The calls that arrived from `mark` on.
    pub fn records_since(&self, mark: Mark) -> Vec<Call> {
        self.log.since(mark)
    }

    /// The place in the log where the next call will be.
    pub fn mark(&self) -> Mark {
        self.log.mark()
    }

    /// How often an endpoint was asked for a method; `*` is any.
    pub fn count(&self, endpoint: &str, method: &str) -> u64 {
        self.log.count(|call| call.endpoint == endpoint && (method == "*" || call.method == method))
    }

    /// How often each endpoint was asked for each method. Endpoints that were asked nothing are there too.
    pub fn calls_by_endpoint(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        self.log.by_endpoint(self.endpoints.iter().map(Endpoint::name))
    }

    /// How many calls met a fault: a rule with one, or a view that changed the reply.
    pub fn faults_fired(&self) -> u64 {
        self.log.count(|call| call.fault)
    }

    /// Waits for a call, arrived from `mark` on, that is as `wanted`. The function is not to ask the fleet for
    /// its records: it runs while they are locked.
    ///
    /// # Errors
    ///
    /// If there is none `within` that time.
    pub async fn wait_for(
        &self,
        mark: Mark,
        within: Duration,
        wanted: impl Fn(&Call) -> bool,
    ) -> Result<Call, Error> {
        self.log.seen(mark, within, wanted).await
    }

    /// Waits until no call is being served.
    ///
    /// # Errors
    ///
    /// If some still are after that time.
    pub async fn wait_until_idle(&self, within: Duration) -> Result<(), Error> {
        self.log.idle(within, |call| call.outcome == Outcome::Pending).await
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for endpoint in &self.endpoints {
            endpoint.site.close();
        }
    }
}

/// A handle to one endpoint of a [`Fleet`]. A clone is the same endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    site: Arc<Site>,
}

impl Endpoint {
    /// Its name.
    pub fn name(&self) -> &str {
        self.site.name()
    }

    /// Its address.
    pub fn url(&self) -> Url {
        format!("http://{}/", self.site.address()).parse().expect("a socket address makes a URL")
    }

    /// Replaces the program. Requests that have arrived before go on under the old one.
    pub fn set(&self, program: impl Into<Program>) {
        self.site.load(program.into());
    }

    /// Replaces the view and keeps the history, and the rules with their counts.
    pub fn set_view(&self, view: View) {
        self.site.set_view(view);
    }

    /// Replaces the program by one that passes everything, and shows all of the live chain.
    pub fn heal(&self) {
        self.set(Program::new());
    }

    /// Closes the listener and the open connections, and gives up what is under way: on return connections are
    /// refused. The port stays reserved.
    pub async fn kill(&self) {
        self.site.kill().await;
    }

    /// Listens again on the same port.
    ///
    /// # Errors
    ///
    /// If the system does not give the port back.
    pub async fn revive(&self) -> Result<(), Error> {
        self.site.revive().await.map_err(|source| Error::Listen { endpoint: self.name().to_owned(), source })
    }

    /// How many calls met a fault here.
    pub fn faults_fired(&self) -> u64 {
        self.site.log().count(|call| call.fault && call.endpoint == self.name())
    }
}
