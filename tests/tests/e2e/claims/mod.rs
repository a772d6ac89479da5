//! Who runs what: several clients over one journal, and clients that come and go.

mod allowances;
mod closing;
mod events;
mod external;
mod fencing;
mod finding;
mod following;
mod resting;
mod retention;
mod starting;
mod trouble;
mod watched;

use std::{path::PathBuf, time::Duration};

use backstay::{
    AllowanceFlow, Builder, Client, Config, IntentBuilder,
    alloy::{
        primitives::{Address, U256, keccak256},
        signers::local::PrivateKeySigner,
    },
    journal::{Journal, Record, SqliteJournal, Stored},
};
use backstay_testkit::{Action, Fleet, Rule};
use e2e::story::CHAIN_ID;
use serde_json::json;

use crate::stage::{SOON, Stage, eventually, within};

/// How long the claims of these tests last, unless it matters.
const TTL: Duration = Duration::from_secs(1);
/// How often their clients look.
const POLL: Duration = Duration::from_millis(50);
/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3_600);

const SEND: &str = "eth_sendRawTransaction";

/// The stage's configuration with claims that end soon.
fn config(stage: &Stage, fleet: &Fleet) -> Config {
    let mut config = stage.config(fleet);
    (config.claims.ttl, config.claims.poll) = (TTL, POLL);
    config
}

fn builder(config: Config, signer: &PrivateKeySigner) -> Builder {
    Client::builder(config).signer(signer.clone()).flow(AllowanceFlow::new())
}

async fn connect(stage: &Stage, fleet: &Fleet, signer: &PrivateKeySigner) -> Client {
    connect_with(config(stage, fleet), signer).await
}

async fn connect_with(config: Config, signer: &PrivateKeySigner) -> Client {
    within(builder(config, signer).connect()).await.expect("it connects")
}

/// A client without signers, which sees the journal.
async fn reader(stage: &Stage, fleet: &Fleet) -> Client {
    within(Client::builder(config(stage, fleet)).connect()).await.expect("it connects")
}

/// A wei to somebody who is paid under this name alone.
fn pay(client: &Client, name: &str) -> IntentBuilder {
    client.intent(name).to(payee(name), Vec::new()).value(U256::ONE)
}

fn payee(name: &str) -> Address {
    Address::from_word(keccak256(name))
}

/// What was paid under a name.
async fn paid(stage: &Stage, name: &str) -> U256 {
    let balance = stage.rpc("eth_getBalance", json!([payee(name), "latest"])).await;
    serde_json::from_value(balance).expect("a balance is a number")
}

/// Blocks come only when they are asked for.
async fn no_blocks(stage: &Stage) {
    stage.rpc("evm_setAutomine", json!([false])).await;
}

/// Waits for something while the chain mines a block now and then.
async fn while_mining<T>(stage: &Stage, future: impl IntoFuture<Output = T>) -> T {
    let mining = async {
        loop {
            stage.chain.mine(1).await.expect("anvil mines");
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::select! {
        value = within(future) => value,
        () = mining => unreachable!("it mines for ever"),
    }
}

/// Waits until an endpoint of a fleet was sent a transaction.
async fn sent(fleet: &Fleet) {
    eventually("a transaction was sent", async || !crate::stage::sends(fleet).is_empty()).await;
}

/// Endpoints that lose every transaction on its way.
async fn deaf(stage: &Stage) -> Fleet {
    let lost = || Rule::on(SEND).then(Action::DropBefore).into();
    stage.fleet([("primary", lost()), ("second", lost())]).await
}

fn file(stage: &Stage) -> PathBuf {
    stage.folder.path().join("journal.db")
}

/// The stage's journal, to look into.
async fn journal(stage: &Stage) -> SqliteJournal {
    SqliteJournal::open(file(stage)).await.expect("it opens")
}

async fn stored(journal: &impl Journal, key: &str) -> Stored {
    journal.load(CHAIN_ID, key).await.expect("it reads").expect("it is there")
}

async fn records(journal: &impl Journal, key: &str) -> Vec<Record> {
    stored(journal, key).await.records().cloned().collect()
}

/// Waits until an intent has a record that is so.
async fn recorded(journal: &impl Journal, key: &str, so: impl Fn(&Record) -> bool) {
    eventually("it is recorded", async || records(journal, key).await.iter().any(&so)).await;
}

/// Waits until nobody has the journal's file open, and it is in one piece.
async fn let_go(stage: &Stage) {
    let log = file(stage).with_extension("db-wal");
    eventually("the journal is closed", async || {
        // The last one to close it folds its log into it, unless others close it at the same moment.
        journal(stage).await.close().await.expect("it closes");
        !log.exists()
    })
    .await;
}

/// A process of its own, as far as its tasks go: when it is killed, nothing of it is told or released.
struct Process(Option<tokio::runtime::Runtime>);

impl Process {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self(Some(runtime.expect("there is room for a thread")))
    }

    async fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let runtime = self.0.as_ref().expect("it lives");
        tokio::time::timeout(SOON, runtime.spawn(future)).await.expect("in time").expect("it does not panic")
    }

    fn kill(mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
