//! What only shows from inside: the connections' settings, and a store that runs full.

use alloy_primitives::{Bytes, U256};
use backstay_core::tx::{Content, Record};
use sqlx::{ConnectOptions, Executor};
use tempfile::TempDir;

use super::*;

#[tokio::test]
async fn commits_are_synced_and_readers_cannot_write() {
    let (_dir, journal) = fresh().await;
    // The first connection, which the journal was opened with, and one that replaced it.
    for _ in 0..2 {
        let mut writer = journal.writer.lease().await.unwrap();
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
    let mut writer = journal.writer.lease().await.unwrap();
    let pages = number(&mut writer, "PRAGMA page_count").await;
    limit(&mut writer, pages + 2).await;
    writer.keep();

    let big = [Record::Granted { grants: vec![] }, opened(1 << 20)];
    let full = journal.append(id, 1, &big).await;
    assert!(matches!(full, Err(JournalError::Full { .. })), "{full:?}");
    let core = backstay_core::Error::from(full.unwrap_err());
    assert_eq!(core.retry(), backstay_core::Retry::Later);
    assert_eq!(journal.load(1, "pay").await.unwrap().unwrap().seen(), 1, "nothing of it is written");

    // A new connection has no such limit: there is space again.
    journal.append(id, 1, &big).await.unwrap();
    assert_eq!(journal.load(1, "pay").await.unwrap().unwrap().seen(), 3);
}

#[tokio::test]
async fn a_refusal_keeps_the_connection_and_a_dropped_write_does_not() {
    let (_dir, journal) = fresh().await;
    let id = journal.open(intent("pay", 10)).await.unwrap().id;
    let mut writer = journal.writer.lease().await.unwrap();
    limit(&mut writer, 1_000).await;
    writer.keep();

    journal.append(id, 9, &[]).await.unwrap_err();
    let mut writer = journal.writer.lease().await.unwrap();
    assert_eq!(number(&mut writer, "PRAGMA max_page_count").await, 1_000, "the same connection");
    writer.keep();

    let mut lease = journal.begin().await.unwrap();
    sqlx::query("DELETE FROM records").execute(&mut *lease).await.unwrap();
    drop(lease);
    let mut writer = journal.writer.lease().await.unwrap();
    assert_ne!(number(&mut writer, "PRAGMA max_page_count").await, 1_000, "another connection");
    writer.keep();
    journal.append(id, 1, &[opened(10)]).await.unwrap();
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
        "SELECT id FROM intents i LEFT JOIN records r ON r.intent = i.id \
         WHERE i.chain_id = 1 AND i.finished = 0 ORDER BY i.id, r.seq",
        "SELECT nonce FROM slots WHERE chain_id = 1 AND account = x'00' AND nonce >= 5",
    ] {
        let plan: Vec<(i64, i64, i64, String)> =
            sqlx::query_as(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {query}")))
                .fetch_all(&mut *reader)
                .await
                .unwrap();
        assert!(plan.iter().all(|(.., step)| step.starts_with("SEARCH")), "{query}: {plan:?}");
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
