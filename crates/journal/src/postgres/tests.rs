//! What only shows from inside: the sessions' settings, and locks that are held.

use std::time::Instant;

use alloy_primitives::{Address, B256, Bytes, U256};
use backstay_core::{
    BlockRef,
    tx::{Content, Record},
};
use backstay_testkit::{Fsync, Postgres};

use super::*;
use crate::lane::Guard;

const LINE: Line = Line { chain_id: 1, account: Address::repeat_byte(1) };

#[tokio::test]
async fn commits_wait_for_the_disk_whatever_the_servers_default_and_readers_cannot_write() {
    let server = Postgres::builder()
        .fsync(Fsync::Off)
        .setting("synchronous_commit", "off")
        .setting("default_transaction_isolation", "serializable")
        .launch()
        .await
        .unwrap();
    let journal = PostgresJournal::open(server.database().await.unwrap().as_str()).await.unwrap();
    // The first connection, which the journal was opened with, and one that replaced it.
    for _ in 0..2 {
        let mut writer = journal.backend.begin(Guard::Nothing).await.unwrap();
        assert_eq!(setting(&mut writer, "synchronous_commit").await, "on");
        assert_eq!(setting(&mut writer, "transaction_isolation").await, "read committed");
        assert_eq!(setting(&mut writer, "search_path").await, "backstay, pg_temp");
        assert_eq!(setting(&mut writer, "lock_timeout").await, "5s");
        assert_eq!(setting(&mut writer, "statement_timeout").await, "10s");
        assert_eq!(setting(&mut writer, "idle_in_transaction_session_timeout").await, "4s");
        assert_eq!(setting(&mut writer, "transaction_read_only").await, "off");
        drop(writer);
    }
    let mut reader = journal.backend.read().await.unwrap();
    let refused = sqlx::query("DELETE FROM genesis").execute(&mut *reader).await.unwrap_err();
    assert_eq!(place::sqlstate(&refused).as_deref(), Some("25006"));
}

/// A process that stands still in the middle of a write holds the line, until the server ends its session.
#[tokio::test]
async fn a_process_that_is_halted_in_a_write_holds_a_line_up_for_a_moment_only() {
    let config = PostgresConfig { lock_timeout: Duration::from_secs(2), ..PostgresConfig::default() };
    let server = Postgres::shared().await.unwrap();
    let url = server.database().await.unwrap();
    let journal = PostgresJournal::open_with(url.as_str(), &config).await.unwrap();
    let other = PostgresJournal::open_with(url.as_str(), &config).await.unwrap();
    let id = journal.open(intent("pay")).await.unwrap().id;
    let ann = held(journal.claim(LINE, &Owner::new("ann"), Duration::ZERO).await.unwrap());

    let mut lease = journal.backend.begin(Guard::Shared(LINE)).await.unwrap();
    let begun = Instant::now();
    let bob = held(other.claim(LINE, &Owner::new("bob"), Duration::from_secs(60)).await.unwrap());
    assert!(begun.elapsed() > Duration::from_secs(1), "the lock was not waited for");
    assert!(bob.token > ann.token);
    // When it wakes up, nothing of it is there any more.
    sqlx::raw_sql("SELECT 1").execute(&mut *lease).await.expect_err("its session was ended");
    drop(lease);
    let late = journal.append(Author::Owner(ann), id, 1, &[fenced(1)]).await;
    assert!(matches!(late, Err(JournalError::ClaimLost { .. })), "{late:?}");
}

/// The take-over waits for a write that is under way, and what comes after it is refused.
#[tokio::test]
async fn a_take_over_waits_for_a_write_that_is_under_way() {
    let server = Postgres::shared().await.unwrap();
    let url = server.database().await.unwrap();
    let journal = PostgresJournal::open(url.as_str()).await.unwrap();
    let other = PostgresJournal::open(url.as_str()).await.unwrap();
    let id = journal.open(intent("pay")).await.unwrap().id;
    let ann = held(journal.claim(LINE, &Owner::new("ann"), Duration::ZERO).await.unwrap());

    // Somebody else keeps the write from going on, half way.
    let mut block = other.backend.begin(Guard::Nothing).await.unwrap();
    sqlx::raw_sql("LOCK TABLE records IN SHARE MODE").execute(&mut *block).await.unwrap();
    let append = async { journal.append(Author::Owner(ann), id, 1, &[fenced(1)]).await };
    let take_over = async {
        // Not before the write has begun.
        waiting(server, &url, 1).await;
        other.claim(LINE, &Owner::new("bob"), Duration::from_secs(60)).await
    };
    let unblock = async {
        waiting(server, &url, 2).await;
        sqlx::raw_sql("ROLLBACK").execute(&mut *block).await.unwrap();
    };
    let (appended, taken, ()) = tokio::join!(append, take_over, unblock);
    appended.expect("it came first");
    let bob = held(taken.unwrap());
    assert!(bob.token > ann.token);
    let late = journal.append(Author::Owner(ann), id, 2, &[fenced(2)]).await;
    assert!(matches!(late, Err(JournalError::ClaimLost { .. })), "{late:?}");
    let stored = other.load(1, "pay").await.unwrap().unwrap();
    assert_eq!(stored.seen(), 2, "what it wrote in time is there");
}

/// Waits until this many sessions of a database wait for locks.
async fn waiting(server: &Postgres, database: &url::Url, sessions: usize) {
    let superuser = server.superuser(database);
    let query = "SELECT count(*) FROM pg_stat_activity \
                 WHERE wait_event_type = 'Lock' AND datname = current_database()";
    let deadline = Instant::now() + Duration::from_secs(4);
    while server.value(&superuser, query).await.unwrap() != sessions.to_string() {
        assert!(Instant::now() < deadline, "{sessions} sessions should wait");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn setting(connection: &mut Connection, name: &str) -> String {
    let (value,): (String,) =
        sqlx::query_as("SELECT current_setting($1)").bind(name).fetch_one(connection).await.unwrap();
    value
}

fn held(claiming: Claiming) -> Claim {
    match claiming {
        Claiming::Held(claim) => claim,
        Claiming::Elsewhere { .. } => panic!("{claiming:?}"),
    }
}

fn intent(key: &str) -> NewIntent {
    let content = Content { to: Address::repeat_byte(2), value: U256::from(5), input: Bytes::new() };
    NewIntent { chain_id: 1, key: key.to_owned(), account: LINE.account, content, grants: vec![] }
}

fn fenced(number: u64) -> Record {
    Record::Fenced { block: BlockRef { number, hash: B256::repeat_byte(number as u8) } }
}
