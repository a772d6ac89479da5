//! Several processes on one journal and one account, killed and frozen while they work.
//!
//! A test starts itself again, several times, as the processes of the crowd. Each of them sends its share of the
//! intents, and every intent is sent by two of them. Meanwhile processes that follow from a seed are killed, and started
//! again, or stopped for longer than their claim of the account lasts.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use backstay::{
    Client, Retry,
    alloy::{
        consensus::{Transaction as _, TxEnvelope, transaction::SignerRecoverable as _},
        eips::Decodable2718 as _,
        primitives::{Address, B256, Bytes, keccak256},
        signers::local::PrivateKeySigner,
    },
    journal::{Claiming, Journal, Line, Owner, PostgresJournal, Query, SqliteJournal, State},
};
use backstay_testkit::{Fleet, Postgres, Program, sample::ContextGraphs};
use e2e::story::CHAIN_ID;
use futures::{StreamExt as _, stream};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{
    process::{Child, Command},
    time::Instant,
};
use url::Url;

use crate::stage::{Stage, config, eventually, key};

/// Where a process of the crowd finds its orders.
const ORDERS: &str = "BACKSTAY_CROWD";
/// How many intents there are.
const INTENTS: usize = 200;
/// How many of its intents a process waits for at a time.
const AT_ONCE: usize = 12;
/// How long a claim lasts.
const TTL: Duration = Duration::from_millis(1_500);
/// How long a process is stopped.
const FROZEN: Duration = Duration::from_millis(2_200);
/// How many kills and stops there are, spread over the intents.
const ACTIONS: usize = 14;
/// What is still to be worked on.
const OPEN: [State; 2] = [State::Due, State::Stopped];
/// How long the whole may take.
const LONGEST: Duration = Duration::from_secs(240);

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_on_postgresql_send_each_intent_once() {
    crowd("two_processes_on_postgresql_send_each_intent_once", Database::Postgres, 2, 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_processes_on_postgresql_send_each_intent_once() {
    crowd("four_processes_on_postgresql_send_each_intent_once", Database::Postgres, 4, 11).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_on_one_sqlite_file_send_each_intent_once() {
    crowd("two_processes_on_one_sqlite_file_send_each_intent_once", Database::Sqlite, 2, 3).await;
}

/// What the journal is kept in.
enum Database {
    Sqlite,
    Postgres,
}

/// What a process of the crowd is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Orders {
    endpoints: Vec<(String, Url)>,
    place: Place,
    key: B256,
    graphs: Address,
    /// The numbers of the intents that it sends.
    effects: Vec<usize>,
}

/// Where the journal is.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Place {
    Sqlite(PathBuf),
    Postgres(String),
}

impl Place {
    async fn open(&self) -> Arc<dyn Journal> {
        match self {
            Self::Sqlite(path) => Arc::new(SqliteJournal::open(path).await.expect("it opens")),
            Self::Postgres(url) => Arc::new(PostgresJournal::open(url).await.expect("it opens")),
        }
    }
}

async fn crowd(test: &str, database: Database, processes: usize, seed: u64) {
    if let Ok(orders) = env::var(ORDERS) {
        return member(serde_json::from_str(&orders).expect("they are the parent's")).await;
    }
    let stage = Stage::with_blocks_every(Duration::from_millis(250)).await;
    let fleet = stage.fleet([("primary", Program::new()), ("second", Program::new())]).await;
    let signer = stage.account_allowing(INTENTS as u64).await;
    let account = signer.address();
    for _ in 1..INTENTS.div_ceil(100) {
        stage.contracts.fund(&stage.chain, account).await.expect("there are deposits for all");
    }
    let before = stage.nonce(account).await;
    let place = match database {
        Database::Sqlite => Place::Sqlite(stage.folder.path().join("journal.db")),
        Database::Postgres => {
            let server = Postgres::shared().await.expect("a server starts");
            Place::Postgres(server.database().await.expect("it makes a database").to_string())
        }
    };
    let orders = |process: usize| Orders {
        endpoints: fleet.urls(),
        place: place.clone(),
        key: signer.to_bytes(),
        graphs: stage.contracts.graphs,
        effects: (0..INTENTS)
            .filter(|n| n % processes == process || (n + 1) % processes == process)
            .collect(),
    };
    let journal = place.open().await;

    let begun = Instant::now();
    let mut crowd: Vec<Member> = Vec::new();
    for process in 0..processes {
        crowd.push(Member::start(test, orders(process)));
    }
    let (mut draws, mut kills, mut freezes) = (Draws { seed, drawn: 0 }, 0, 0);
    while crowd.iter_mut().any(Member::lives) {
        assert!(
            begun.elapsed() < LONGEST,
            "the crowd does not come to an end: {:?}",
            keys(&*journal, &OPEN).await
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
        crowd.iter_mut().for_each(Member::thaw);
        // Not by time: a fast machine would be done before anything has happened.
        let ended = keys(&*journal, &[State::Finished]).await.len();
        let done = kills + freezes;
        if done == ACTIONS || ended < (done + 1) * INTENTS / (ACTIONS + 1) {
            continue;
        }
        let process = draws.below(processes);
        if !crowd[process].works() {
            continue;
        }
        if kills <= freezes {
            kills += 1;
            crowd[process].kill().await;
            crowd[process] = Member::start(test, orders(process));
        } else {
            freezes += 1;
            crowd[process].freeze();
        }
    }
    for member in &mut crowd {
        member.ended_well().await;
    }
    let line = Line { chain_id: CHAIN_ID, account };
    // The claim of one that was killed at the end lasts as long as it lasts.
    let judge = Owner::new("judge");
    let mut tokens = 0;
    eventually("nobody holds the line any more", async || {
        match journal.claim(line, &judge, Duration::from_secs(60)).await.expect("it is asked") {
            Claiming::Held(claim) => tokens = claim.token - 1,
            Claiming::Elsewhere { .. } => {}
        }
        tokens > 0
    })
    .await;
    println!("{kills} kills, {freezes} freezes, {tokens} owners in turn, {:?}", begun.elapsed());
    assert!(kills >= 2 && freezes >= 2 && tokens >= 2, "{kills} kills, {freezes} freezes, {tokens} owners");

    assert_eq!(stage.registrations(account).await, INTENTS as u64, "each intent took effect");
    assert_eq!(stage.nonce(account).await, before + INTENTS as u64, "and nothing else was mined");
    for (nonce, effects) in signed(&fleet, account) {
        assert_eq!(effects.len(), 1, "nonce {nonce} was signed for several intents");
    }
    assert!(keys(&*journal, &OPEN).await.is_empty());
    let state = journal.line(line, before + INTENTS as u64).await.expect("the journal is read");
    assert!(state.slots.is_empty(), "nonces are reserved and open: {:?}", state.slots);
    let pool = stage.rpc("txpool_status", json!([])).await;
    assert_eq!((&pool["pending"], &pool["queued"]), (&json!("0x0"), &json!("0x0")));
}

/// The life of a process: it sends its intents, and ends when all of them have ended.
async fn member(orders: Orders) {
    let mut config = config(&orders.endpoints);
    config.claims.ttl = TTL;
    config.claims.poll = Duration::from_millis(100);
    let signer = PrivateKeySigner::from_bytes(&orders.key).expect("it is a key");
    let client = Client::builder(config)
        .signer(signer)
        .journal(orders.place.open().await)
        .connect()
        .await
        .expect("it connects");
    let client = Arc::new(client);
    let work = orders.effects.into_iter().map(|effect| {
        let (client, graphs) = (client.clone(), orders.graphs);
        async move {
            while let Err(error) = registered(&client, graphs, effect).await {
                assert_ne!(error.retry(), Retry::Never, "intent {effect}: {error}");
                eprintln!("intent {effect}: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    });
    stream::iter(work).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    client.close().await.expect("the line is released");
}

async fn registered(client: &Client, graphs: Address, effect: usize) -> backstay::Result<()> {
    let name = format!("effect {effect}");
    let call = ContextGraphs::createContextGraphCall { key: key(&name) };
    let intent = client.intent(name).call(graphs, &call).send().await?;
    intent.outcome().await?.included().map(drop)
}

/// A process of the crowd.
struct Member {
    process: Child,
    pid: Pid,
    /// Until when it is stopped.
    frozen: Option<Instant>,
}

impl Member {
    fn start(test: &str, orders: Orders) -> Self {
        let process = Command::new(env::current_exe().expect("this test is a program"))
            .args(["--exact", &format!("crowd::{test}"), "--nocapture"])
            .env(ORDERS, serde_json::to_string(&orders).expect("they are plain"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let pid = process.id().and_then(|id| Pid::from_raw(id as i32)).expect("it lives");
        Self { process, pid, frozen: None }
    }

    fn lives(&mut self) -> bool {
        self.process.try_wait().expect("it is ours").is_none()
    }

    fn works(&mut self) -> bool {
        self.frozen.is_none() && self.lives()
    }

    fn freeze(&mut self) {
        self.signal(Signal::STOP);
        self.frozen = Some(Instant::now() + FROZEN);
    }

    /// Lets it go on, when it was stopped for long enough.
    fn thaw(&mut self) {
        if self.frozen.take_if(|until| Instant::now() >= *until).is_some() {
            self.signal(Signal::CONT);
        }
    }

    fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(self.pid, signal);
    }

    async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.process.wait().await.expect("it is ours");
    }

    async fn ended_well(&mut self) {
        let status = self.process.wait().await.expect("it is ours");
        assert!(status.success(), "a process gave up: {status}");
    }
}

/// To whom it is done: the same for the same seed.
struct Draws {
    seed: u64,
    drawn: u64,
}

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        let hash = keccak256([self.seed.to_be_bytes(), self.drawn.to_be_bytes()].concat());
        usize::from(hash[0]) % bound
    }
}

/// By nonce, what was signed for it, as the endpoints have seen it.
fn signed(fleet: &Fleet, account: Address) -> BTreeMap<u64, BTreeSet<Bytes>> {
    let mut signed: BTreeMap<u64, BTreeSet<Bytes>> = BTreeMap::new();
    for raw in fleet.records().into_iter().filter_map(|call| call.raw_tx) {
        let transaction =
            TxEnvelope::decode_2718(&mut raw.as_ref()).expect("a client sends whole transactions");
        if transaction.recover_signer().is_ok_and(|signer| signer == account) {
            signed.entry(transaction.nonce()).or_default().insert(transaction.input().clone());
        }
    }
    signed
}

/// The keys of the intents in some states.
async fn keys(journal: &dyn Journal, states: &[State]) -> Vec<String> {
    let query = Query { states: states.to_vec(), ..Query::default() };
    journal.list(&query).await.expect("the journal is read").into_iter().map(|intent| intent.key).collect()
}
