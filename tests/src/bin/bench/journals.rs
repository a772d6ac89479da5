//! Journals beside the bare database: the same client library, the same durability, the same rows.

use std::{
    future::Future,
    path::Path,
    time::{Duration, Instant},
};

use alloy::primitives::{Address, B256, Bytes, U256};
use anyhow::{Context, bail};
use backstay::journal::{
    Author, Claim, Claiming, Content, Journal, Line, NewIntent, Owner, PostgresJournal, Query, Record,
    SignedAttempt, SqliteJournal, State, StepId,
};
use backstay_testkit::Postgres;
use futures::future::try_join_all;
use serde_json::{Value, json};
use sqlx::{
    AssertSqlSafe, Connection, PgConnection, SqliteConnection,
    postgres::PgConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::sync::{Mutex, Semaphore};

use crate::measure::{ROUNDS, Spread};

const CHAIN: u64 = 31_337;
const SLICE: Duration = Duration::from_millis(150);
/// How many append at once.
const CONCURRENCIES: [usize; 2] = [1, 16];
/// As many as the journal has for its writes.
const POSTGRES_CONNECTIONS: usize = 8;
const FEW: u64 = 1_000;
const MANY: u64 = 1_000_000;
/// A record's body, in the journals that are only looked through.
const BODY: &str = r#"{"v":1,"record":"resumed"}"#;

/// What was measured.
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) ratio: Spread,
}

impl Measured {
    pub(crate) fn json(&self) -> Value {
        let Spread { median, low, high } = self.ratio;
        json!({ "name": self.name, "ratio": median, "ci_low": low, "ci_high": high })
    }
}

/// Appends in a second, of the journal's to those of the bare database.
pub(crate) async fn appends(server: &Postgres) -> anyhow::Result<Vec<Measured>> {
    let mut all = Vec::new();
    for tasks in CONCURRENCIES {
        let folder = tempfile::tempdir()?;
        let ours = SqliteJournal::open(folder.path().join("ours.db")).await?;
        let bare = BareSqlite::new(&folder.path().join("bare.db")).await?;
        all.push(beside("SQLite", &ours, &bare, tasks).await?);

        let ours = PostgresJournal::open(server.database().await?.as_str()).await?;
        let bare = BarePostgres::new(server.database().await?.as_str()).await?;
        all.push(beside("PostgreSQL", &ours, &bare, tasks).await?);
    }
    Ok(all)
}

/// The time of a start on a million finished intents, to that of one on a thousand.
pub(crate) async fn starts(server: &Postgres) -> anyhow::Result<Vec<Measured>> {
    let folder = tempfile::tempdir()?;
    let file = |intents: u64| folder.path().join(format!("{intents}.db"));
    let database = [server.database().await?, server.database().await?];
    for (intents, url) in [FEW, MANY].into_iter().zip(&database) {
        SqliteJournal::open(file(intents)).await?.close().await?;
        let options = SqliteConnectOptions::new().filename(file(intents));
        let mut connection = SqliteConnection::connect_with(&options).await?;
        for statement in finished(intents, Dialect::Sqlite) {
            sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await?;
        }
        connection.close().await?;

        PostgresJournal::open(url.as_str()).await?.close().await?;
        let mut connection = PgConnection::connect(url.as_str()).await?;
        for statement in finished(intents, Dialect::Postgres) {
            sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await?;
        }
        connection.close().await?;
    }
    let sqlite = async |intents| start(SqliteJournal::open(file(intents))).await;
    let [few, many] = &database;
    let postgres = async |intents| {
        start(PostgresJournal::open(if intents == FEW { few.as_str() } else { many.as_str() })).await
    };
    let name = |database| format!("{database}, a start on {MANY} / on {FEW}");
    Ok(vec![
        Measured { name: name("SQLite"), ratio: many_beside_few(sqlite).await? },
        Measured { name: name("PostgreSQL"), ratio: many_beside_few(postgres).await? },
    ])
}

async fn many_beside_few(start: impl AsyncFn(u64) -> anyhow::Result<f64>) -> anyhow::Result<Spread> {
    for intents in [FEW, MANY] {
        // Caches are warm.
        start(intents).await?;
    }
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        ratios.push(match round % 2 {
            0 => {
                let few = start(FEW).await?;
                start(MANY).await? / few
            }
            _ => start(MANY).await? / start(FEW).await?,
        });
    }
    Ok(Spread::of(ratios.into_iter()))
}

/// What a client asks of its journal until it has begun to work, in seconds.
async fn start<J: Journal>(
    open: impl Future<Output = Result<J, backstay::journal::JournalError>>,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let journal = open.await?;
    journal.genesis(CHAIN).await?;
    journal.record_genesis(CHAIN, B256::ZERO).await?;
    let query = Query {
        chain_id: Some(CHAIN),
        account: Some(line().account),
        states: vec![State::Due, State::Stopped],
        ..Query::default()
    };
    let open = journal.list(&query).await?;
    anyhow::ensure!(open.is_empty(), "all have finished");
    journal.prune(CHAIN, Duration::from_secs(30 * 86_400), 100).await?;
    let Claiming::Held(claim) = journal.claim(line(), &Owner::new("bench"), Duration::from_secs(6)).await?
    else {
        bail!("nobody else claims it");
    };
    journal.line(line(), u64::from(u32::MAX)).await?;
    journal.release(claim).await?;
    Ok(begun.elapsed().as_secs_f64())
}

enum Dialect {
    Sqlite,
    Postgres,
}

/// Statements that fill a journal with finished intents, each with a record and a nonce.
fn finished(intents: u64, dialect: Dialect) -> [String; 3] {
    let (numbers, account, schema) = match dialect {
        Dialect::Sqlite => {
            let numbers = format!(
                "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {intents}) SELECT n FROM c)"
            );
            (numbers, format!("x'{:x}'", line().account), "")
        }
        Dialect::Postgres => (
            format!("generate_series(1, {intents}) AS c(n)"),
            format!("decode('{:x}', 'hex')", line().account),
            "backstay.",
        ),
    };
    // Lately: nothing is to be pruned.
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
    [
        format!(
            "INSERT INTO {schema}intents (chain_id, key, account, records, state, signed, opened, changed) \
             SELECT {CHAIN}, 'register:' || n, {account}, 1, 2, 1, {now}, {now} FROM {numbers}"
        ),
        format!(
            "INSERT INTO {schema}records (intent, seq, at, body) SELECT id, 1, {now}, '{BODY}' FROM {schema}intents"
        ),
        format!(
            "INSERT INTO {schema}slots (chain_id, account, nonce, intent, step) \
             SELECT {CHAIN}, account, id, id, '\"effect\"' FROM {schema}intents"
        ),
    ]
}

/// Rounds in which the journal and the bare database take turns.
async fn beside(
    database: &str,
    ours: &impl Journal,
    bare: &impl Bare,
    tasks: usize,
) -> anyhow::Result<Measured> {
    let claim = match ours.claim(line(), &Owner::new("bench"), Duration::from_secs(3_600)).await? {
        Claiming::Held(claim) => claim,
        Claiming::Elsewhere { .. } => bail!("nobody else claims it"),
    };
    let mut writers = Vec::new();
    for task in 0..tasks {
        let id = ours.open(intent(task)).await?.id;
        writers.push(Writer { task, tasks, id: id.get(), written: 0 });
    }
    let mut bare_writers = Vec::new();
    for task in 0..tasks {
        let id = bare.open(&intent(task)).await?;
        bare_writers.push(Writer { task, tasks, id: id as u64, written: 0 });
    }
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let (ours, bare) = match round % 2 {
            0 => {
                let ours = rate(&mut writers, async |writer| append(ours, claim, writer).await).await?;
                (ours, rate(&mut bare_writers, async |writer| bare.append(writer).await).await?)
            }
            _ => {
                let bare = rate(&mut bare_writers, async |writer| bare.append(writer).await).await?;
                (rate(&mut writers, async |writer| append(ours, claim, writer).await).await?, bare)
            }
        };
        // The first round warms the caches.
        if round > 0 {
            ratios.push(ours / bare);
        }
    }
    let name = format!("{database}, appends / bare inserts, {tasks} at once");
    Ok(Measured { name, ratio: Spread::of(ratios.into_iter()) })
}

/// Appends in a second, by all writers at once for a slice of time.
async fn rate(
    writers: &mut [Writer],
    append: impl AsyncFn(&Writer) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let append = &append;
    let tasks = writers.iter_mut().map(async |writer| {
        let before = writer.written;
        while begun.elapsed() < SLICE {
            append(writer).await?;
            writer.written += 1;
        }
        anyhow::Ok(writer.written - before)
    });
    let written: u64 = try_join_all(tasks).await?.into_iter().sum();
    Ok(written as f64 / begun.elapsed().as_secs_f64())
}

/// Who appends to one intent.
struct Writer {
    task: usize,
    tasks: usize,
    id: u64,
    written: u64,
}

impl Writer {
    /// What comes next: each of them takes a nonce, as a signature does.
    fn record(&self) -> Record {
        let attempt = SignedAttempt {
            nonce: self.nonce(),
            unused_at: 1,
            hash: B256::repeat_byte(7),
            raw: Bytes::from(vec![0xab; 180]),
            gas_limit: 100_000,
            max_fee_per_gas: 2_000_000_000,
        };
        Record::Signed { step: StepId::Effect, attempt }
    }

    fn nonce(&self) -> u64 {
        self.written * self.tasks as u64 + self.task as u64
    }

    /// The place of what comes next among the records of its intent.
    fn seq(&self) -> i64 {
        self.written as i64 + 2
    }

    /// What comes next, as the journal writes it.
    fn body(&self) -> anyhow::Result<String> {
        #[derive(serde::Serialize)]
        struct Sealed {
            v: i64,
            record: Record,
        }
        Ok(serde_json::to_string(&Sealed { v: 1, record: self.record() })?)
    }
}

async fn append(journal: &impl Journal, claim: Claim, writer: &Writer) -> anyhow::Result<()> {
    let id = backstay::journal::IntentId::new(writer.id);
    let after = writer.written + 1;
    Ok(journal.append(Author::Owner(claim), id, after, &[writer.record()]).await?)
}

fn line() -> Line {
    Line { chain_id: CHAIN, account: Address::repeat_byte(0xaa) }
}

fn intent(task: usize) -> NewIntent {
    NewIntent {
        chain_id: CHAIN,
        key: format!("register:{task}"),
        account: line().account,
        content: Content { to: Address::repeat_byte(1), value: U256::ZERO, input: Bytes::new() },
        grants: Vec::new(),
    }
}

/// A database without a journal over it: the same tables, and only what must be inserted.
trait Bare {
    async fn open(&self, intent: &NewIntent) -> anyhow::Result<i64>;
    async fn append(&self, writer: &Writer) -> anyhow::Result<()>;
}

const BEGIN: &str = "BEGIN";
const INTENT: &str = "INSERT INTO intents (chain_id, key, account, records, state, opened, changed) \
                      VALUES ($1, $2, $3, 1, 0, 0, 0) RETURNING id";
const RECORD: &str = "INSERT INTO records (intent, seq, at, body) VALUES ($1, $2, $3, $4)";
const SLOT: &str = "INSERT INTO slots (chain_id, account, nonce, intent, step) VALUES ($1, $2, $3, $4, $5)";

macro_rules! insert {
    ($connection:expr, $begin:expr, $writer:expr) => {{
        let (connection, writer): (_, &Writer) = ($connection, $writer);
        sqlx::raw_sql($begin).execute(&mut *connection).await?;
        sqlx::query(RECORD)
            .bind(writer.id as i64)
            .bind(writer.seq())
            .bind(0_i64)
            .bind(writer.body()?)
            .execute(&mut *connection)
            .await?;
        sqlx::query(SLOT)
            .bind(CHAIN as i64)
            .bind(line().account.as_slice())
            .bind(writer.nonce() as i64)
            .bind(writer.id as i64)
            .bind("\"effect\"")
            .execute(&mut *connection)
            .await?;
        sqlx::raw_sql("COMMIT").execute(&mut *connection).await?;
        anyhow::Ok(())
    }};
}

/// One connection: SQLite has one writer at a time.
struct BareSqlite(Mutex<SqliteConnection>);

impl BareSqlite {
    async fn new(path: &Path) -> anyhow::Result<Self> {
        SqliteJournal::open(path).await?.close().await?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true);
        Ok(Self(Mutex::new(SqliteConnection::connect_with(&options).await?)))
    }
}

impl Bare for BareSqlite {
    async fn open(&self, intent: &NewIntent) -> anyhow::Result<i64> {
        let asked = sqlx::query_scalar(INTENT).bind(CHAIN as i64).bind(&intent.key);
        Ok(asked.bind(intent.account.as_slice()).fetch_one(&mut *self.0.lock().await).await?)
    }

    async fn append(&self, writer: &Writer) -> anyhow::Result<()> {
        let mut connection = self.0.lock().await;
        insert!(&mut *connection, "BEGIN IMMEDIATE", writer)
    }
}

/// As many connections as the journal has.
struct BarePostgres {
    idle: std::sync::Mutex<Vec<PgConnection>>,
    places: Semaphore,
}

impl BarePostgres {
    async fn new(url: &str) -> anyhow::Result<Self> {
        PostgresJournal::open(url).await?.close().await?;
        let options: PgConnectOptions = url.parse()?;
        let options = options.options([("search_path", "backstay"), ("synchronous_commit", "on")]);
        let mut idle = Vec::new();
        for _ in 0..POSTGRES_CONNECTIONS {
            idle.push(PgConnection::connect_with(&options).await?);
        }
        Ok(Self { idle: std::sync::Mutex::new(idle), places: Semaphore::new(POSTGRES_CONNECTIONS) })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn take(&self) -> anyhow::Result<PgConnection> {
        self.idle().pop().context("there is one for each place")
    }
}

impl Bare for BarePostgres {
    async fn open(&self, intent: &NewIntent) -> anyhow::Result<i64> {
        let mut connection = self.take()?;
        let asked = sqlx::query_scalar(INTENT).bind(CHAIN as i64).bind(&intent.key);
        let id = asked.bind(intent.account.as_slice()).fetch_one(&mut connection).await?;
        self.idle().push(connection);
        Ok(id)
    }

    async fn append(&self, writer: &Writer) -> anyhow::Result<()> {
        let _place = self.places.acquire().await?;
        let mut connection = self.take()?;
        insert!(&mut connection, BEGIN, writer)?;
        self.idle().push(connection);
        Ok(())
    }
}
