//! A journal in a file that fails: nothing is sent that is not written down, the error says what to do, nothing is lost,
//! and work goes on when the file is back.

mod disk;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use backstay::{
    AllowanceFlow, Builder, Client, Delivery, Error, ErrorKind, Intent, Retry,
    alloy::{primitives::Address, signers::local::PrivateKeySigner},
    journal::{Journal, Line, Query, SqliteConfig, SqliteJournal, State},
};
use backstay_testkit::{Fleet, Program, Rule};

use sqlx::{ConnectOptions, Connection, Executor, SqliteConnection, sqlite::SqliteConnectOptions};

use self::disk::{Disk, Trouble};
use crate::stage::{Stage, eventually, says, sends, within};

/// When trouble comes: as the first call of a method arrives at an endpoint.
#[derive(Clone, Copy, Debug)]
struct When {
    method: &'static str,
    /// How many transactions have been sent by then.
    sent: usize,
}

/// Before anything is signed, with the approve on its way, and while its receipt is looked for.
const MOMENTS: [When; 3] = [
    When { method: "eth_estimateGas", sent: 0 },
    When { method: "eth_sendRawTransaction", sent: 1 },
    When { method: "eth_getTransactionReceipt", sent: 1 },
];

/// A stage whose endpoints call `strike` at a moment, once.
async fn struck(stage: &Stage, when: When, strike: impl Fn() + Send + Sync + 'static) -> Fleet {
    let rule = Rule::on(when.method).times(1).before(move |_| strike());
    stage.fleet([("primary", Program::new().rule(rule)), ("second", Program::new())]).await
}

/// A client that looks often whether its journal is back.
fn quick(stage: &Stage, fleet: &Fleet, signer: &PrivateKeySigner) -> Builder {
    let mut config = stage.config(fleet);
    config.claims.poll = Duration::from_millis(20);
    Client::builder(config).signer(signer.clone()).flow(AllowanceFlow::new())
}

/// Sends a registration that the store's failure stops, and returns why.
async fn stopped(stage: &Stage, client: &Client, name: &str) -> Error {
    match stage.register(client, name).grant(stage.grant()).send().await {
        Ok(intent) => within(intent.outcome()).await.expect_err("nothing can be written"),
        Err(error) => error,
    }
}

/// Waits until an intent that goes on by itself has ended well.
async fn goes_on(intent: &Intent) {
    eventually(&format!("{intent:?} goes on"), async || match intent.outcome().await {
        Ok(outcome) => outcome.included().is_ok(),
        Err(error) => {
            assert_eq!(*error.kind(), ErrorKind::Journal, "{error}");
            false
        }
    })
    .await;
}

/// The chain has one approve and one registration of the account, and the journal agrees with it.
async fn agree(stage: &Stage, account: Address) {
    assert_eq!((stage.approvals(account).await, stage.registrations(account).await), (1, 1));
    let used = stage.nonce(account).await;
    assert_eq!(used, 2);
    let journal = SqliteJournal::open(journal_file(stage)).await.expect("it is sound");
    let all = journal.list(&Query::default()).await.expect("it can be read");
    let mine = all.iter().filter(|intent| intent.account == account);
    for intent in mine {
        let stored = journal.load(intent.chain_id, &intent.key).await.expect("it can be read");
        assert_eq!(intent.state, State::Finished, "{stored:#?}");
    }
    let line = Line { chain_id: e2e::story::CHAIN_ID, account };
    let known = journal.line(line, 0).await.expect("it can be read");
    assert_eq!(known.slots.into_keys().collect::<Vec<_>>(), [0, 1], "no nonce is left open");
}

fn journal_file(stage: &Stage) -> PathBuf {
    stage.folder.path().join("journal.db")
}

#[tokio::test]
async fn a_disk_that_fails_stops_sending_until_it_is_sound_again() {
    let cases = [
        (Trouble::Full, "has no space left: free some, then resume; what was recorded is intact"),
        (Trouble::ReadOnly, "could not be read or written: try again, and look at its disk if this persists"),
        (Trouble::Unsynced, "could not be read or written: try again, and look at its disk if this persists"),
    ];
    for (trouble, words) in cases {
        for when in MOMENTS {
            let stage = Stage::new().await;
            let disk = Disk::under(stage.folder.path());
            let failing = disk.clone();
            let fleet = struck(&stage, when, move || failing.fails(trouble)).await;
            let signer = stage.account().await;
            let client = within(quick(&stage, &fleet, &signer).connect()).await.expect("it connects");
            let intent = stage.register(&client, "a").grant(stage.grant()).send().await;
            let intent = intent.expect("it is written down");
            let error = within(intent.outcome()).await.expect_err("nothing can be written");
            assert_eq!(*error.kind(), ErrorKind::Journal, "{trouble:?} at {when:?}: {error}");
            says(&error, &["journal.db", words, "register:a"]);
            assert_eq!(error.retry(), Retry::Later);
            let delivery = if when.sent == 0 { Delivery::NotSent } else { Delivery::Unknown };
            assert_eq!(error.delivery(), delivery, "{trouble:?} at {when:?}: {error}");

            // Neither this one nor another goes on.
            for name in ["a", "b"] {
                let error = stopped(&stage, &client, name).await;
                assert_eq!(*error.kind(), ErrorKind::Journal, "{trouble:?} at {when:?}: {error}");
            }
            assert_eq!(sends(&fleet).len(), when.sent, "{trouble:?} at {when:?}");

            disk.heals();
            goes_on(&intent).await;
            drop(client);
            agree(&stage, signer.address()).await;
        }
    }
}

#[tokio::test]
async fn a_disk_that_stays_read_only_is_said_to_be() {
    let stage = Stage::new().await;
    let disk = Disk::under(stage.folder.path());
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    drop(stage.client(&fleet, &signer).await);
    disk.fails(Trouble::ReadOnly);
    let error = within(stage.builder(&fleet, &signer).connect()).await.expect_err("it cannot be written");
    assert_eq!((error.kind(), error.retry()), (&ErrorKind::Journal, Retry::Later));
    says(&error, &["journal.db", "cannot be opened for writing: check the permissions"]);
    disk.heals();
    let client = stage.client(&fleet, &signer).await;
    stage.registered(&client, "a").await;
    drop(client);
    agree(&stage, signer.address()).await;
}

/// A process of its own that holds the journal's write lock until it is killed: this very test, started again.
#[tokio::test]
async fn a_journal_that_another_process_locks_is_waited_for_and_then_named() {
    if let Some(path) = std::env::var_os("JOURNAL_TO_LOCK") {
        return hold_the_lock(Path::new(&path)).await;
    }
    for when in MOMENTS {
        let stage = Stage::new().await;
        let (lock, locked) = std::sync::mpsc::channel();
        let lock = std::sync::Mutex::new(lock);
        let path = journal_file(&stage);
        let fleet = struck(&stage, when, move || {
            let lock = lock.lock().expect("nobody panics");
            lock.send(Locker::start(&path)).expect("the test waits for it");
        });
        let (fleet, signer) = (fleet.await, stage.account().await);
        let mut patience = SqliteConfig::default();
        patience.busy_timeout = Duration::from_millis(150);
        let journal = SqliteJournal::open_with(journal_file(&stage), &patience).await.expect("it is new");
        let client = within(quick(&stage, &fleet, &signer).journal(journal).connect()).await;
        let client = client.expect("it connects");
        let intent = stage.register(&client, "a").grant(stage.grant()).send().await;
        let intent = intent.expect("it is written down");
        let error = within(intent.outcome()).await.expect_err("nothing can be written");
        assert_eq!((error.kind(), error.retry()), (&ErrorKind::Journal, Retry::Later));
        says(
            &error,
            &["journal.db", "was locked by another process for 150ms", "find the process that holds it"],
        );
        assert_eq!(sends(&fleet).len(), when.sent, "{when:?}");

        drop(locked.recv().expect("it was locked"));
        goes_on(&intent).await;
        drop(client);
        agree(&stage, signer.address()).await;
    }
}

/// Another process with the lock. Dropped, it is killed.
struct Locker(Child);

impl Locker {
    fn start(path: &Path) -> Self {
        let name = "store_faults::a_journal_that_another_process_locks_is_waited_for_and_then_named";
        let mut child = Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", name, "--nocapture"])
            .env("JOURNAL_TO_LOCK", path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts again");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let locked = lines.map_while(Result::ok).any(|line| line == "locked");
        assert!(locked, "the other process has the lock");
        Self(child)
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }
}

async fn hold_the_lock(path: &Path) {
    let mut connection = raw(path).await;
    connection.execute("BEGIN IMMEDIATE").await.expect("its writes are short");
    println!("\nlocked");
    std::future::pending().await
}

async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.expect("it is a database")
}

#[tokio::test]
async fn a_journal_that_is_deleted_or_replaced_under_a_client_stops_it_until_it_is_put_back() {
    for (another, words) in [(false, "is gone now"), (true, "is another file now")] {
        for when in MOMENTS {
            let stage = Stage::new().await;
            let (path, aside) = (journal_file(&stage), stage.folder.path().join("aside.db"));
            let there = path.clone();
            let kept = aside.clone();
            let fleet = struck(&stage, when, move || {
                fs::rename(&there, &kept).expect("it is there");
                if another {
                    fs::write(&there, "").expect("there is room");
                }
            });
            let (fleet, signer) = (fleet.await, stage.account().await);
            let client = within(quick(&stage, &fleet, &signer).connect()).await.expect("it connects");
            let intent = stage.register(&client, "a").grant(stage.grant()).send().await;
            let intent = intent.expect("it is written down");
            let error = within(intent.outcome()).await.expect_err("nothing is written to another file");
            assert_eq!((error.kind(), error.retry()), (&ErrorKind::Journal, Retry::Never));
            says(&error, &["journal.db", words, "not the file that was opened: stop, put that file back"]);
            let error = stopped(&stage, &client, "b").await;
            says(&error, &["journal.db", words]);
            assert_eq!(sends(&fleet).len(), when.sent, "{when:?}");
            if another {
                assert_eq!(fs::read(&path).expect("it is there"), b"", "nothing is written to another file");
            }

            fs::rename(&aside, &path).expect("there is room");
            goes_on(&intent).await;
            drop(client);
            agree(&stage, signer.address()).await;
        }
    }
}

#[tokio::test]
async fn a_journal_with_a_broken_page_is_not_worked_with_until_it_is_restored() {
    let stage = Stage::new().await;
    let (fleet, signer) = (stage.sound().await, stage.account().await);
    let client = within(quick(&stage, &fleet, &signer).connect()).await.expect("it connects");
    stage.registered(&client, "a").await;
    within(client.close()).await.expect("it is written");
    drop(client);
    // The last one that has it open folds the log into it.
    eventually("it is one file", async || !stage.folder.path().join("journal.db-wal").exists()).await;
    let path = journal_file(&stage);
    let sound = fs::read(&path).expect("it is there");
    let sent = sends(&fleet).len();

    for (page, bytes) in pages_of(&path).await {
        let mut broken = sound.clone();
        let at = (page - 1) * bytes;
        broken[at..at + bytes].fill(0xa5);
        fs::write(&path, &broken).expect("there is room");
        let error = match within(quick(&stage, &fleet, &signer).connect()).await {
            Err(error) => error,
            Ok(client) => {
                let error = stopped(&stage, &client, "a").await;
                drop(client);
                error
            }
        };
        assert_eq!(
            (error.kind(), error.retry()),
            (&ErrorKind::Journal, Retry::Never),
            "page {page}: {error}"
        );
        says(&error, &["journal.db", "damaged", "keep a copy of it, and restore it from a backup"]);
        assert_eq!(sends(&fleet).len(), sent, "page {page}");
    }

    for rest in ["journal.db-wal", "journal.db-shm"] {
        let _ = fs::remove_file(stage.folder.path().join(rest));
    }
    fs::write(&path, &sound).expect("there is room");
    let client = within(quick(&stage, &fleet, &signer).connect()).await.expect("it connects");
    stage.registered(&client, "a").await;
    drop(client);
    assert_eq!(sends(&fleet).len(), sent);
    agree(&stage, signer.address()).await;
}

/// The pages without which intents cannot be read, and their size.
async fn pages_of(path: &Path) -> Vec<(usize, usize)> {
    let mut connection = raw(path).await;
    let bytes: i64 =
        sqlx::query_scalar("PRAGMA page_size").fetch_one(&mut connection).await.expect("it is sound");
    let pages: Vec<i64> =
        sqlx::query_scalar("SELECT rootpage FROM sqlite_schema WHERE name IN ('intents', 'records')")
            .fetch_all(&mut connection)
            .await
            .expect("it is sound");
    connection.close().await.expect("it is sound");
    pages.into_iter().map(|page| (page as usize, bytes as usize)).collect()
}

#[tokio::test]
async fn a_journal_of_a_newer_version_is_left_alone_and_nothing_is_sent() {
    let stage = Stage::new().await;
    let (fleet, signer) = (stage.sound().await, stage.account().await);
    let client = within(quick(&stage, &fleet, &signer).connect()).await.expect("it connects");
    within(client.close()).await.expect("it is written");
    drop(client);
    eventually("it is one file", async || !stage.folder.path().join("journal.db-wal").exists()).await;
    let path = journal_file(&stage);
    let sound = fs::read(&path).expect("it is there");
    let mut newer = raw(&path).await;
    let step = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                VALUES (99, 'more', TRUE, x'00', 0)";
    newer.execute(step).await.expect("it is written");
    newer.close().await.expect("it is written");
    let before = fs::read(&path).expect("it is there");

    let error = within(quick(&stage, &fleet, &signer).connect()).await.expect_err("it is newer");
    assert_eq!((error.kind(), error.retry()), (&ErrorKind::Journal, Retry::Never));
    says(&error, &["journal.db", "newer version of Backstay (format 99", "upgrade this program"]);
    assert_eq!(fs::read(&path).expect("it is there"), before);
    assert!(sends(&fleet).is_empty());

    fs::write(&path, sound).expect("there is room");
    let client = within(quick(&stage, &fleet, &signer).connect()).await.expect("it connects");
    stage.registered(&client, "a").await;
    drop(client);
    agree(&stage, signer.address()).await;
}
