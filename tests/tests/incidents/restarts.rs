//! Processes that end while transactions are under way, and what they find when they start again.

use std::{
    fs::{self, File},
    os::unix::{fs::FileExt as _, process::ExitStatusExt as _},
    process::Stdio,
    sync::{Arc, OnceLock},
    time::Duration,
};

use backstay::{
    Client, ErrorKind, Intent,
    alloy::{
        primitives::{Address, B256, U256, keccak256},
        signers::local::PrivateKeySigner,
    },
    journal::{Journal as _, Record, SqliteJournal},
};
use backstay_testkit::{Action, Call, Fleet, Mark, Program, Rule, sample::Deployment};
use e2e::{
    crash::child::{self, Orders, Store},
    story::CHAIN_ID,
};
use futures::future::{join_all, join3};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use tokio::{process::Command, time::Instant};

use crate::{
    setup::distinct,
    stage::{Stage, config, eventually, sends, within},
};

const SEND: &str = "eth_sendRawTransaction";
/// The environment variable with the orders of a child process, which is this program, started for one test again.
const ORDERS: &str = "ORDERS_OF_CHILD";

/// Where the process is killed.
#[derive(Clone, Copy, Debug)]
enum Killed {
    /// What was signed is written down, and nothing was sent.
    BeforeTheSend,
    /// The chain has it, and has said so to nobody.
    BeforeTheReply,
    /// The reply is written down.
    AfterTheReply,
}

impl Killed {
    const ALL: [Self; 3] = [Self::BeforeTheSend, Self::BeforeTheReply, Self::AfterTheReply];
}

/// What has happened to the end of the journal's log by the time of the restart.
#[derive(Clone, Copy, Debug)]
enum Log {
    Whole,
    /// The last bytes are missing.
    Cut,
    /// The last bytes were never written.
    Zeroed,
}

/// How many bytes at the end of the log are damaged.
const TORN: u64 = 7;

/// An account with an intent of its own, a journal and endpoints.
struct Case {
    killed: Killed,
    log: Log,
    folder: TempDir,
    fleet: Fleet,
    signer: PrivateKeySigner,
    graph: B256,
    before: u64,
}

impl Case {
    async fn new(stage: &Stage, killed: Killed, log: Log) -> Self {
        let signer = stage.account_allowing(1).await;
        Self {
            killed,
            log,
            folder: tempfile::tempdir().expect("there is room for a directory"),
            fleet: stage.sound().await,
            graph: Deployment::key(&format!("{killed:?} {log:?}")),
            before: stage.nonce(signer.address()).await,
            signer,
        }
    }

    fn journal(&self) -> std::path::PathBuf {
        self.folder.path().join("journal.db")
    }

    /// Lets a process send its intent until it is killed.
    async fn live(&self, stage: &Stage, test: &str) {
        let mut orders = Orders::new(&stage.contracts, self.fleet.urls(), Store::Sqlite(self.journal()));
        (orders.key, orders.graph) = (self.signer.to_bytes(), self.graph);
        let point = |text: &str| Some(text.parse().expect("it is a point"));
        let process = Arc::new(OnceLock::<Pid>::new());
        match self.killed {
            Killed::BeforeTheSend => orders.kill = point("journal.append.signed-effect/1/after"),
            Killed::AfterTheReply => orders.kill = point("journal.append.submitted/1/after"),
            Killed::BeforeTheReply => {
                for name in ["primary", "second"] {
                    let process = process.clone();
                    let kill = move |_: &_| {
                        let process = process.get().expect("it was started before it sends");
                        kill_process(*process, Signal::KILL).expect("it lives");
                    };
                    let lost = Rule::on(SEND).then(Action::LoseReply).after_reply(kill);
                    self.fleet.endpoint(name).set(lost);
                }
            }
        }
        let mut child = Command::new(std::env::current_exe().expect("it has a name"))
            .args(["--exact", test, "--nocapture"])
            .env(ORDERS, serde_json::to_string(&orders).expect("they are JSON"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let id = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).expect("it has a number");
        process.set(id).expect("there is one");
        let ended = within(child.wait()).await.expect("it ends");
        assert_eq!(ended.signal(), Some(Signal::KILL.as_raw()), "{:?}: {ended}", self.killed);
        for name in ["primary", "second"] {
            self.fleet.endpoint(name).heal();
        }
        self.tear();
    }

    /// Damages the end of the journal's log.
    fn tear(&self) {
        let log = self.folder.path().join("journal.db-wal");
        let length = fs::metadata(&log).expect("nobody has folded it into the journal").len();
        assert!(length > TORN);
        let file = File::options().write(true).open(&log).expect("it opens");
        match self.log {
            Log::Whole => {}
            Log::Cut => file.set_len(length - TORN).expect("it is cut"),
            Log::Zeroed => file.write_all_at(&[0; TORN as usize], length - TORN).expect("it is written"),
        }
    }

    /// Starts again over the same journal, and returns the intent once its bytes were sent in this life.
    async fn start_again(&self) -> (Client, Intent) {
        let mark = self.fleet.mark();
        let mut config = config(&self.fleet.urls());
        config.journal = Some(self.journal().into());
        let client = Client::builder(config).signer(self.signer.clone()).connect();
        let client = within(client).await.expect("it connects");
        let key = format!("register:{}", self.graph);
        let intent = client.find_intent(&key).await.expect("the journal reads").expect("it is there");
        eventually("it was sent", async || {
            self.fleet.records_since(mark).iter().any(|call| call.raw_tx.is_some())
        })
        .await;
        (client, intent)
    }

    /// Holds that the intent took effect once, by the same bytes in both lives.
    async fn holds(&self, stage: &Stage, intent: &Intent) {
        let outcome = within(intent.outcome()).await.expect("it ends well");
        let hash = outcome.included().expect("it is included").hash;
        let case = (self.killed, self.log);
        assert_eq!(Vec::from_iter(distinct(&self.fleet)), [hash], "{case:?}");
        let account = self.signer.address();
        assert_eq!(stage.nonce(account).await, self.before + 1, "{case:?}");
        assert_eq!(stage.registrations(account).await, 1, "{case:?}");
    }
}

/// Kills a process at each point, damages its log, starts it again, and mines.
async fn killed_and_started_again(logs: &[Log], test: &str) {
    if let Ok(orders) = std::env::var(ORDERS) {
        let orders = serde_json::from_str(&orders).expect("they are orders");
        return child::run(orders).await.expect("it is killed before it ends");
    }
    let stage = Stage::new().await;
    let mut cases = Vec::new();
    for killed in Killed::ALL {
        for log in logs {
            cases.push(Case::new(&stage, killed, *log).await);
        }
    }
    stage.rpc("evm_setAutomine", json!([false])).await;
    join_all(cases.iter().map(|case| case.live(&stage, test))).await;
    let restarted = join_all(cases.iter().map(Case::start_again)).await;
    let ended = join_all(restarted.iter().map(|(_, intent)| intent.outcome()));
    while_mining(&stage, ended).await;
    for (case, (_, intent)) in cases.iter().zip(&restarted) {
        case.holds(&stage, intent).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b85_a_process_that_is_killed_around_its_send_sends_the_same_bytes_when_it_is_started_again() {
    let test = "restarts::b85_a_process_that_is_killed_around_its_send_sends_the_same_bytes_when_it_is_started_again";
    killed_and_started_again(&[Log::Whole], test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b85_a_journal_whose_last_record_is_torn_is_taken_up_where_it_is_whole() {
    let test = "restarts::b85_a_journal_whose_last_record_is_torn_is_taken_up_where_it_is_whole";
    killed_and_started_again(&[Log::Cut, Log::Zeroed], test).await;
}

#[tokio::test]
async fn b87_what_the_pool_has_lost_is_sent_again_from_the_stored_bytes() {
    lost_by_the_pool(&[1, 2]).await;
}

#[tokio::test]
async fn b87_whichever_of_three_the_pool_has_lost_it_is_sent_again() {
    for lost in [&[0][..], &[1], &[0, 2], &[0, 1, 2]] {
        lost_by_the_pool(lost).await;
    }
}

/// Three payments are sent, the pool loses some of them, and the client starts again.
async fn lost_by_the_pool(lost: &[usize]) {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let before = stage.nonce(signer.address()).await;
    stage.rpc("evm_setAutomine", json!([false])).await;
    let fleet = stage.sound().await;
    let client = stage.client(&fleet, &signer).await;
    let mut hashes: Vec<B256> = Vec::new();
    for index in 0..3 {
        pay(&client, index).await;
        eventually("it was sent", async || distinct(&fleet).len() > index).await;
        hashes.extend(distinct(&fleet).into_iter().filter(|hash| !hashes.contains(hash)).collect::<Vec<_>>());
    }
    within(client.close()).await.expect("it closes");
    drop(client);
    for index in lost {
        stage.rpc("anvil_dropTransaction", json!([hashes[*index]])).await;
    }
    stage.chain.mine(1).await.expect("anvil mines");

    let mark = fleet.mark();
    let client = stage.client(&fleet, &signer).await;
    let intents = join_all((0..3).map(async |index| {
        client.find_intent(&name(index)).await.expect("the journal reads").expect("it is there")
    }))
    .await;
    let ended = join_all(intents.iter().map(Intent::outcome));
    for (index, outcome) in while_mining(&stage, ended).await.into_iter().enumerate() {
        let inclusion = *outcome.expect("it ends well").included().expect("it is included");
        assert_eq!(inclusion.hash, hashes[index], "lost: {lost:?}");
        let mined = stage.rpc("eth_getTransactionByHash", json!([inclusion.hash])).await;
        assert_eq!(mined["nonce"], json!(format!("{:#x}", before + index as u64)));
    }
    assert_eq!(distinct(&fleet).len(), 3, "nothing was signed anew; lost: {lost:?}");
    assert_eq!(stage.nonce(signer.address()).await, before + 3);
    let again = sent_since(&fleet, mark);
    for index in lost {
        assert!(again.contains(&hashes[*index]), "lost: {lost:?}");
    }
    if !lost.contains(&0) {
        assert!(!again.contains(&hashes[0]), "it was mined, and its receipt is there; lost: {lost:?}");
    }
}

#[tokio::test]
async fn b88_a_request_that_is_made_three_times_across_a_restart_is_one_transaction_for_all() {
    let stage = Stage::new().await;
    let signer = stage.account().await;
    let before = stage.nonce(signer.address()).await;
    // Right after it has taken the transaction, the endpoint answers no question about it for a second.
    let taken = Arc::new(OnceLock::new());
    let takes = taken.clone();
    let send = Rule::on(SEND).after_reply(move |_| {
        takes.get_or_init(Instant::now);
    });
    let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":429,"message":"rate limited"}}"#;
    let fresh = move |_: &_| taken.get().is_some_and(|at| at.elapsed() < Duration::from_secs(1));
    let limited = Rule::on("eth_getTransactionReceipt").when(fresh).then(Action::http(429, body));
    let hits = limited.hits();
    let fleet = stage.fleet([("A", Program::new().rule(send).rule(limited))]).await;

    let (client, other) = (stage.client(&fleet, &signer).await, stage.client(&fleet, &signer).await);
    let (first, second, third) = join3(pay(&client, 7), pay(&client, 7), pay(&other, 7)).await;
    eventually("it was sent", async || !sends(&fleet).is_empty()).await;
    drop(client);
    for gone in [first, second] {
        let told = within(gone.outcome()).await;
        // It ran in either of the two.
        assert!(
            told.is_ok() || *told.as_ref().expect_err("it is not").kind() == ErrorKind::Closed,
            "{told:?}"
        );
    }
    let client = stage.client(&fleet, &signer).await;
    let (first, second) = (pay(&client, 7).await, pay(&client, 7).await);
    let outcome = within(third.outcome()).await.expect("it ends well");
    let hash = outcome.included().expect("it is included").hash;
    for intent in [first, second] {
        assert_eq!(within(intent.outcome()).await.expect("it ends well"), outcome);
    }
    assert!(hits.get() > 0, "nobody was told to wait");
    assert_eq!(Vec::from_iter(distinct(&fleet)), [hash]);
    assert_eq!(stage.nonce(signer.address()).await, before + 1);

    let records = recorded(&stage, &name(7)).await;
    let count = |is: fn(&Record) -> bool| records.iter().filter(|record| is(record)).count();
    assert_eq!(count(|record| matches!(record, Record::Signed { .. })), 1, "{records:?}");
    assert_eq!(count(|record| matches!(record, Record::Included { .. })), 1, "{records:?}");
    assert!(matches!(records.last(), Some(Record::Finished { .. })), "{records:?}");

    // What has ended stays as it is, whoever starts and asks again.
    drop((client, other));
    let client = stage.client(&fleet, &signer).await;
    assert_eq!(within(pay(&client, 7).await.outcome()).await.expect("it has ended"), outcome);
    assert_eq!(client.resume().await.expect("there is nothing").len(), 0);
    assert_eq!(recorded(&stage, &name(7)).await, records);
}

#[tokio::test]
async fn b88_a_transaction_that_was_taken_under_a_rate_limit_is_confirmed_after_a_restart() {
    let stage = Arc::new(Stage::new().await);
    let signer = stage.account().await;
    stage.rpc("evm_setAutomine", json!([false])).await;
    // The endpoint passes it on, and says that it was asked too often.
    let chain = stage.clone();
    let taken = move |call: &Call| {
        let (chain, raw) = (chain.clone(), call.params.clone());
        tokio::spawn(async move { chain.chain.rpc(SEND, raw).await });
    };
    let limited = || Rule::on(SEND).before(taken.clone()).then(Action::too_many_requests(1)).into();
    let fleet = stage.fleet([("A", limited())]).await;
    let client = stage.client(&fleet, &signer).await;
    pay(&client, 7).await;
    eventually("the pool has it", async || {
        stage.rpc("txpool_status", json!([])).await["pending"] == json!("0x1")
    })
    .await;
    drop(client);

    let client = stage.client(&fleet, &signer).await;
    let intent = client.find_intent(&name(7)).await.expect("the journal reads").expect("it is there");
    let outcome = while_mining(&stage, intent.outcome()).await.expect("it ends well");
    let hash = outcome.included().expect("it is included").hash;
    assert_eq!(Vec::from_iter(distinct(&fleet)), [hash]);
    assert_eq!(stage.nonce(signer.address()).await, 1);
    let records = recorded(&stage, &name(7)).await;
    assert!(matches!(records.last(), Some(Record::Finished { .. })), "{records:?}");
}

fn name(index: usize) -> String {
    format!("op-{index}")
}

async fn pay(client: &Client, index: usize) -> Intent {
    let payee = Address::from_word(keccak256(name(index)));
    let payment = client.intent(name(index)).to(payee, Vec::new()).value(U256::ONE);
    payment.send().await.expect("it is written down")
}

async fn recorded(stage: &Stage, key: &str) -> Vec<Record> {
    let journal = SqliteJournal::open(stage.folder.path().join("journal.db")).await.expect("it opens");
    let stored = journal.load(CHAIN_ID, key).await.expect("it reads").expect("it is there");
    stored.records().cloned().collect()
}

fn sent_since(fleet: &Fleet, mark: Mark) -> Vec<B256> {
    fleet.records_since(mark).iter().filter_map(Call::tx_hash).collect()
}

/// Waits for something while the chain mines a block now and then.
async fn while_mining<T>(stage: &Stage, future: impl Future<Output = T>) -> T {
    let mining = async {
        loop {
            stage.chain.mine(1).await.expect("anvil mines");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        value = within(future) => value,
        () = mining => unreachable!("it mines for ever"),
    }
}
