//! The process that is killed: the story, over a journal that kills it where it is told to.

use std::{path::PathBuf, sync::Arc, time::Duration};

use alloy::{
    primitives::{Address, B256, U256},
    signers::local::PrivateKeySigner,
};
use backstay::{
    Client, Inclusion,
    journal::{Journal, PostgresConfig, PostgresJournal, SqliteJournal},
};
use backstay_testkit::sample::Deployment;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    journal::KillingJournal,
    point::{Calls, Point, Trap},
};
use crate::{by_hand, story};

/// The argument that makes a process the child.
pub const CHILD: &str = "story-child";

/// What the child is told: all that it needs, as JSON in one argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// Names and addresses.
    pub endpoints: Vec<(String, Url)>,
    /// Where the journal is.
    pub store: Store,
    /// The account's key.
    pub key: B256,
    /// The contracts.
    pub token: Address,
    /// Where the deposit is set.
    pub parameters: Address,
    /// The registry.
    pub graphs: Address,
    /// The key to register.
    pub graph: B256,
    /// Whom to pay a wei, as an intent of its own that is sent first.
    pub payee: Option<Address>,
    /// How to get at the intent.
    pub approach: Approach,
    /// Where the journal kills the process; `None` lets it live.
    pub kill: Option<Point>,
    /// Who tells the story.
    pub teller: Teller,
}

/// Where a journal is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Store {
    /// A file.
    Sqlite(PathBuf),
    /// A schema of a database.
    Postgres {
        /// The address of the database, with name and password.
        url: Url,
        /// The schema.
        schema: String,
    },
}

/// How a process gets at the intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Approach {
    /// It sends it, again where it was sent before.
    Send,
    /// It looks for it under its key, and waits for what comes of it by itself. It sends it only where there is none.
    Find,
}

/// Who tells the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Teller {
    /// The SDK.
    Backstay,
    /// Plain alloy.
    ByHand,
}

/// What the child tells when it has come to its end, as JSON in its last line.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Told {
    /// Where the registration is, as the handle says.
    pub inclusion: Option<Inclusion>,
    /// Where the payment is, as the handle says.
    pub payment: Option<Inclusion>,
    /// What the journal was asked to write.
    pub calls: Calls,
}

impl Store {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub async fn open(&self) -> anyhow::Result<Arc<dyn Journal>> {
        match self {
            Self::Sqlite(path) => Ok(Arc::new(SqliteJournal::open(path).await?)),
            Self::Postgres { url, schema } => {
                let mut config = PostgresConfig::default();
                config.schema.clone_from(schema);
                // Many processes share the server.
                config.connections = 4;
                Ok(Arc::new(PostgresJournal::open_with(url.as_str(), &config).await?))
            }
        }
    }
}

impl Orders {
    /// What to do over these contracts, without a payment, to the end.
    pub fn new(contracts: &Deployment, endpoints: Vec<(String, Url)>, store: Store) -> Self {
        Self {
            endpoints,
            store,
            key: B256::ZERO,
            token: contracts.token,
            parameters: contracts.parameters,
            graphs: contracts.graphs,
            graph: B256::ZERO,
            payee: None,
            approach: Approach::Send,
            kill: None,
            teller: Teller::Backstay,
        }
    }
}

/// Runs the story to its end, or to where it is killed. Prints what came of it.
///
/// # Errors
///
/// What stopped the intent.
pub async fn run(orders: Orders) -> anyhow::Result<()> {
    let told = match orders.teller {
        Teller::Backstay => with_sdk(&orders).await?,
        Teller::ByHand => {
            let (signer, contracts) = (signer(&orders)?, contracts(&orders)?);
            by_hand::register(&orders.endpoints, signer, &contracts, orders.graph, None).await?;
            Told::default()
        }
    };
    println!("{}", serde_json::to_string(&told)?);
    Ok(())
}

async fn with_sdk(orders: &Orders) -> anyhow::Result<Told> {
    let trap = Arc::new(Trap::at(orders.kill.clone()));
    let journal = KillingJournal { inner: orders.store.open().await?, trap: trap.clone() };
    let mut config = story::config(&orders.endpoints);
    // A restarted process waits for the end of the claim of the one that was killed.
    config.claims.ttl = Duration::from_secs(1);
    config.claims.poll = Duration::from_millis(100);
    let builder = story::builder(config, signer(orders)?, orders.parameters);
    let client = builder.journal(journal).connect().await?;
    let payment = match orders.payee {
        Some(payee) => Some(pay(&client, payee).await?),
        None => None,
    };
    let found = match orders.approach {
        Approach::Send => None,
        Approach::Find => client.find_intent(&story::key(orders.graph)).await?,
    };
    let intent = match found {
        Some(intent) => intent,
        None => story::register(&client, &contracts(orders)?, orders.graph).await?,
    };
    let outcome = intent.outcome().await;
    if outcome.as_ref().is_ok_and(|outcome| outcome.included().is_ok()) {
        let payment = match payment {
            Some(payment) => Some(*payment.outcome().await?.included()?),
            None => None,
        };
        client.close().await?;
        return Ok(Told { inclusion: Some(*outcome?.included()?), payment, calls: trap.calls() });
    }
    // For whoever looks into it.
    eprintln!("{}", intent.trail());
    outcome?.included()?;
    Ok(Told::default())
}

async fn pay(client: &Client, payee: Address) -> anyhow::Result<backstay::Intent> {
    let payment = client.intent(format!("pay:{payee}")).to(payee, Vec::new()).value(U256::ONE);
    Ok(payment.send().await?)
}

fn signer(orders: &Orders) -> anyhow::Result<PrivateKeySigner> {
    Ok(PrivateKeySigner::from_bytes(&orders.key)?)
}

fn contracts(orders: &Orders) -> anyhow::Result<Deployment> {
    let owner = signer(orders)?.address();
    Ok(Deployment::at(orders.token, orders.parameters, orders.graphs, U256::ZERO, owner))
}
