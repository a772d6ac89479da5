//! What only shows from inside: the connections' settings, and a store that runs full.

use alloy_primitives::{Address, B256, Bytes, U256};
use backstay_core::tx::{Attempt, Content, Intent, Record, StepId};
use sqlx::Connection as _;
use sqlx::{
    ConnectOptions, Executor,
    migrate::Migrator,
    sqlite::{SqliteConnectOptions, SqliteConnection},
};
use tempfile::TempDir;

use super::*;
use crate::{Author, Claiming, IntentId, Journal, Line, NewIntent, Owner, Query, State, envelope};

#[tokio::test]
async fn commits_are_synced_and_readers_cannot_write() {
    let (_dir, journal) = fresh().await;
    // The first connection, which the journal was opened with, and one that replaced it.
    for _ in 0..2 {
        let mut writer = journal.writers.lease().await.unwrap();
        assert_eq!(text(&mut writer, "PRAGMA journal_mode").await, "wal");
        assert_eq!(number(&mut writer, "PRAGMA synchronous").await, 2, "FULL");
        assert_eq!(number(&mut writer, "PRAGMA foreign_keys").await, 1);
        assert_eq!(number(&mut writer, "PRAGMA busy_timeout").await, 5_000);
        assert_eq!(number(&mut writer, "PRAGMA application_id").await, 0x426b_5374);
        drop(writer);
    }
    let mut reader = journal.readers.lease().await.unwrap();
    assert_eq!(number(&mut reader, "PRAGMA query_only").await, 1);
    let written = sqlx::query("DELETE FROM records").execute(&mut *reader).await.unwrap_err();
    let error = journal.place.failure(written);
    assert!(matches!(error, JournalError::ReadOnly { .. }), "{error:?}");
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_writing_goes_on_when_there_is_space() {
    let (_dir, journal) = fresh().await;
    let id = journal.open(intent("pay", 10)).await.unwrap().id;
    let mut writer = journal.writers.lease().await.unwrap();
    let pages = number(&mut writer, "PRAGMA page_count").await;
    limit(&mut writer, pages + 2).await;
    writer.keep();

    let big = [Record::Granted { grants: vec![] }, opened(1 << 20)];
    let full = append(&journal, id, 1, &big).await;
    assert!(matches!(full, Err(JournalError::Full { .. })), "{full:?}");
    let core = backstay_core::Error::from(full.unwrap_err());
    assert_eq!(core.retry(), backstay_core::Retry::Later);
    assert_eq!(journal.load(1, "pay").await.unwrap().unwrap().seen(), 1, "nothing of it is written");

    // A new connection has no such limit: there is space again.
    append(&journal, id, 1, &big).await.unwrap();
    assert_eq!(journal.load(1, "pay").await.unwrap().unwrap().seen(), 3);
}

#[tokio::test]
async fn a_refusal_keeps_the_connection_and_a_dropped_write_does_not() {
    let (_dir, journal) = fresh().await;
    let id = journal.open(intent("pay", 10)).await.unwrap().id;
    let mut writer = journal.writers.lease().await.unwrap();
    limit(&mut writer, 1_000).await;
    writer.keep();

    append(&journal, id, 9, &[]).await.unwrap_err();
    let mut writer = journal.writers.lease().await.unwrap();
    assert_eq!(number(&mut writer, "PRAGMA max_page_count").await, 1_000, "the same connection");
    writer.keep();

    let mut lease = journal.begin(Guard::Nothing).await.unwrap();
    sqlx::query("DELETE FROM records").execute(&mut *lease).await.unwrap();
    drop(lease);
    let mut writer = journal.writers.lease().await.unwrap();
    assert_ne!(number(&mut writer, "PRAGMA max_page_count").await, 1_000, "another connection");
    writer.keep();
    append(&journal, id, 1, &[opened(10)]).await.unwrap();
    assert_eq!(journal.load(1, "pay").await.unwrap().unwrap().seen(), 2);
}

#[tokio::test]
async fn a_file_that_may_not_be_written_is_said_to_be_read_only() {
    let (_dir, journal) = fresh().await;
    let mut reader = opening::writing(&journal.place).read_only(true).connect().await.unwrap();
    let refused = reader.execute("DELETE FROM records").await.unwrap_err();
    let error = journal.place.failure(refused);
    assert!(matches!(error, JournalError::ReadOnly { .. }), "{error:?}");
}

#[tokio::test]
async fn what_is_asked_often_uses_an_index() {
    let (_dir, journal) = fresh().await;
    let mut reader = journal.readers.lease().await.unwrap();
    for query in [
        "SELECT id FROM intents WHERE chain_id = 1 AND key = 'k'",
        "SELECT r.seq FROM intents i LEFT JOIN records r ON r.intent = i.id \
         WHERE i.chain_id = 1 AND i.key = 'k' ORDER BY r.seq",
        "SELECT id FROM intents WHERE state IN (0) AND id > 0 AND state < 2 AND chain_id = 1 \
         AND account = x'00' ORDER BY id LIMIT 9",
        "SELECT id FROM intents WHERE chain_id = 1 AND changed <= 5 AND (state = 2 OR (state = 1 AND signed = 0)) \
         ORDER BY changed, id LIMIT 9",
        "SELECT max(nonce) FROM slots WHERE chain_id = 1 AND account = x'00'",
        "SELECT max(nonce) FROM slots WHERE intent = 1",
        "SELECT nonce FROM slots WHERE chain_id = 1 AND account = x'00' AND nonce >= 5",
    ] {
        let plan: Vec<(i64, i64, i64, String)> =
            sqlx::query_as(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {query}")))
                .fetch_all(&mut *reader)
                .await
                .unwrap();
        assert!(plan.iter().all(|(.., step)| step.starts_with("SEARCH")), "{query}: {plan:?}");
        // Many may have stopped: what is due is found without them.
        let passed_over =
            query.contains("state IN") && !plan.iter().any(|(.., step)| step.contains("state=?"));
        assert!(!passed_over, "{query}: {plan:?}");
    }
}

#[tokio::test]
async fn a_journal_of_the_first_version_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut old =
        SqliteConnectOptions::new().filename(&path).create_if_missing(true).connect().await.unwrap();
    old.execute("PRAGMA application_id = 0x426b5374").await.unwrap();
    let first: Vec<_> = opening::migrator().iter().take(1).cloned().collect();
    Migrator::with_migrations(first).run_direct(None, &mut old, false).await.unwrap();
    let attempt = Attempt {
        nonce: 3,
        unused_at: 0,
        hash: B256::ZERO,
        raw: Bytes::new(),
        gas_limit: 21_000,
        max_fee_per_gas: 1,
    };
    let signed = Record::Signed { step: StepId::Effect, attempt };
    let intents: [(&str, u8, &[Record]); 3] = [
        ("open", 0, &[opened(10), signed.clone()]),
        ("failed", 0, &[opened(10)]),
        ("done", 1, &[opened(10), signed]),
    ];
    for (id, (key, finished, records)) in (1..).zip(intents) {
        let insert = format!(
            "INSERT INTO intents (id, chain_id, key, account, records, finished) \
             VALUES ({id}, 1, '{key}', zeroblob(20), {}, {finished})",
            records.len()
        );
        old.execute(sqlx::AssertSqlSafe(insert)).await.unwrap();
        for (seq, record) in (1..).zip(records) {
            let body = envelope::seal(record).unwrap();
            let insert = format!(
                "INSERT INTO records (intent, seq, at, body) VALUES ({id}, {seq}, 1700000000000, '{body}'); \
                 INSERT OR IGNORE INTO slots (chain_id, account, nonce, intent, step) \
                 VALUES (1, zeroblob(20), {id}, {id}, '')"
            );
            old.execute(sqlx::AssertSqlSafe(insert)).await.unwrap();
        }
    }
    old.close().await.unwrap();

    let journal = SqliteJournal::open(&path).await.unwrap();
    let listed = journal.list(&Query::default()).await.unwrap();
    let states: Vec<_> =
        listed.iter().map(|listed| (listed.key.as_str(), listed.state, listed.signed)).collect();
    let expected =
        [("open", State::Stopped, true), ("failed", State::Stopped, false), ("done", State::Finished, true)];
    assert_eq!(states, expected);
    let at = std::time::SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_000);
    assert!(listed.iter().all(|listed| (listed.opened, listed.changed) == (at, at)), "{listed:?}");
    assert_eq!(
        journal.line(Line { chain_id: 1, account: Address::ZERO }, 0).await.unwrap().accounted,
        Some(4)
    );
    // What may be out goes on by itself; whoever sent the other was told that it failed.
    for (key, goes_on) in [("open", true), ("failed", false)] {
        let stored = journal.load(1, key).await.unwrap().unwrap();
        assert_eq!(Intent::fold(stored.records()).unwrap().goes_on(), goes_on, "{key}");
        append(&journal, stored.id, stored.seen(), &[Record::Requested]).await.unwrap();
    }
}

async fn fresh() -> (TempDir, SqliteJournal) {
    let dir = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(dir.path().join("journal.db")).await.unwrap();
    (dir, journal)
}

fn intent(key: &str, size: usize) -> NewIntent {
    let Record::Opened { account, content } = opened(size) else { unreachable!("that is what it makes") };
    NewIntent { chain_id: 1, key: key.to_owned(), account, content, grants: vec![] }
}

async fn append(
    journal: &SqliteJournal,
    intent: IntentId,
    after: u64,
    records: &[Record],
) -> Result<(), JournalError> {
    let line = Line { chain_id: 1, account: Address::ZERO };
    let claimed = journal.claim(line, &Owner::new("owner"), Duration::from_secs(60)).await.unwrap();
    let Claiming::Held(claim) = claimed else { panic!("{claimed:?}") };
    journal.append(Author::Owner(claim), intent, after, records).await
}

fn opened(size: usize) -> Record {
    let content = Content { to: Address::ZERO, value: U256::ZERO, input: Bytes::from(vec![1; size]) };
    Record::Opened { account: Address::ZERO, content }
}

async fn limit(connection: &mut SqliteConnection, pages: i64) {
    let pragma = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
    sqlx::query(pragma).execute(connection).await.unwrap();
}

async fn number(connection: &mut SqliteConnection, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(connection).await.unwrap()
}

async fn text(connection: &mut SqliteConnection, query: &'static str) -> String {
    sqlx::query_scalar(query).fetch_one(connection).await.unwrap()
}
