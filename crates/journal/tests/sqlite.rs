//! SQLite journals as files: which are opened, which are left alone, and what survives.
#![cfg(feature = "sqlite")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use alloy_primitives::{Address, Bytes, U256};
use backstay_core::tx::{Content, Grant, Record};
use backstay_journal::{Author, Journal, JournalError, NewIntent, Query, SqliteConfig, SqliteJournal};
use sqlx::{ConnectOptions, Connection, Executor, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

const CHAIN: u64 = 1;

#[tokio::test]
async fn a_file_that_is_no_database_is_left_as_it_is() {
    let (dir, path) = place();
    let long: String = (0..2_000).map(|i| format!("line {i}\n")).collect();
    for text in ["x", "a note, not a journal\n", "SQLite format 3", &long] {
        fs::write(&path, text).unwrap();
        let error = refused(&path).await;
        let JournalError::NotAJournal { found, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*found, "no SQLite database");
        let said = error.to_string();
        assert!(said.contains(path.to_str().unwrap()) && said.contains("another path"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(files(&dir), ["journal.db"]);
    }
}

#[tokio::test]
async fn the_database_of_another_program_is_left_as_it_is() {
    for pragma in ["PRAGMA application_id = 0", "PRAGMA application_id = 7", "PRAGMA journal_mode = WAL"] {
        let (_dir, path) = place();
        let mut other = raw(&path).await;
        other.execute(pragma).await.unwrap();
        other.execute("CREATE TABLE records (id INTEGER); INSERT INTO records VALUES (1)").await.unwrap();
        other.close().await.unwrap();
        let before = fs::read(&path).unwrap();

        let error = refused(&path).await;
        let JournalError::NotAJournal { found, .. } = error else { panic!("{error:?}") };
        assert_eq!(found, "a SQLite database of another program");
        assert_eq!(fs::read(&path).unwrap(), before, "{pragma}");
    }
}

#[tokio::test]
async fn a_database_that_is_only_marked_is_not_taken_either() {
    let (_dir, path) = place();
    let mut other = raw(&path).await;
    // Somebody's number, and no table yet.
    other.execute("PRAGMA application_id = 7").await.unwrap();
    other.close().await.unwrap();
    let before = fs::read(&path).unwrap();
    let error = refused(&path).await;
    assert!(matches!(error, JournalError::NotAJournal { .. }), "{error:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_newer_journal_is_left_as_it_is() {
    let (_dir, path) = place();
    SqliteJournal::open(&path).await.unwrap().close().await.unwrap();
    let mut newer = raw(&path).await;
    newer
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (99, 'more', TRUE, x'00', 0); CREATE TABLE more (id INTEGER)",
        )
        .await
        .unwrap();
    newer.close().await.unwrap();
    let before = fs::read(&path).unwrap();

    let error = refused(&path).await;
    let JournalError::NewerSchema { found: 99, known: 2, .. } = error else { panic!("{error:?}") };
    assert!(error.to_string().contains("upgrade this program"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_journal_whose_schema_was_changed_is_left_as_it_is() {
    let (_dir, path) = place();
    SqliteJournal::open(&path).await.unwrap().close().await.unwrap();
    let mut other = raw(&path).await;
    other.execute("UPDATE _sqlx_migrations SET checksum = x'00'").await.unwrap();
    other.close().await.unwrap();
    let before = fs::read(&path).unwrap();
    let error = refused(&path).await;
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_journal_that_is_only_looked_into_must_be_there() {
    let (dir, path) = place();
    let error = SqliteJournal::open_existing(&path).await.expect_err("there is none");
    assert!(matches!(error, JournalError::Missing { .. }), "{error:?}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(files(&dir).is_empty());

    fs::write(&path, "").unwrap();
    let error = SqliteJournal::open_existing(&path).await.expect_err("it is empty");
    assert!(matches!(error, JournalError::NotAJournal { found: "empty", .. }), "{error:?}");
    fs::write(&path, "a note, not a journal\n").unwrap();
    let error = SqliteJournal::open_existing(&path).await.expect_err("it is a text");
    assert!(matches!(error, JournalError::NotAJournal { .. }), "{error:?}");
    assert_eq!(files(&dir), ["journal.db"]);
}

#[tokio::test]
async fn looking_into_a_journal_does_not_bring_it_up_to_date() {
    let (_dir, path) = place();
    SqliteJournal::open(&path).await.unwrap().close().await.unwrap();
    let mut older = raw(&path).await;
    older.execute("DELETE FROM _sqlx_migrations WHERE version > 1").await.unwrap();
    older.close().await.unwrap();
    let before = fs::read(&path).unwrap();
    let error = SqliteJournal::open_existing(&path).await.expect_err("it is older");
    assert!(matches!(error, JournalError::OlderSchema { found: 1, .. }), "{error:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_journal_is_looked_into_and_written_while_another_process_has_it() {
    let (_dir, path) = place();
    let service = SqliteJournal::open(&path).await.unwrap();
    service.open(intent("pay")).await.unwrap();
    let looking = SqliteJournal::open_existing(&path).await.unwrap();
    assert_eq!(looking.list(&Query::default()).await.unwrap().len(), 1);
    service.open(intent("pay again")).await.unwrap();
    assert_eq!(looking.list(&Query::default()).await.unwrap().len(), 2);
    assert!(looking.open(intent("of the other")).await.unwrap().created);
    assert!(service.load(CHAIN, "of the other").await.unwrap().is_some());
}

#[tokio::test]
async fn a_record_of_a_newer_version_is_not_guessed_at() {
    let (_dir, path) = place();
    let journal = SqliteJournal::open(&path).await.unwrap();
    journal.open(intent("pay")).await.unwrap();
    let mut newer = raw(&path).await;
    newer.execute(r#"UPDATE records SET body = '{"v":2,"record":{"opened":null}}'"#).await.unwrap();
    let read = journal.load(CHAIN, "pay").await;
    assert!(matches!(read, Err(JournalError::NewerSchema { found: 2, known: 1, .. })), "{read:?}");
}

#[tokio::test]
async fn a_damaged_journal_says_so_and_serves_the_rest() {
    let (_dir, path) = place();
    let journal = SqliteJournal::open(&path).await.unwrap();
    for key in ["lost", "garbled", "bare", "whole"] {
        let id = journal.open(intent(key)).await.unwrap().id;
        journal.append(Author::Caller, id, 1, &[wished(1), wished(2)]).await.unwrap();
    }
    let mut other = raw(&path).await;
    other
        .execute(
            "PRAGMA foreign_keys = OFF; \
             DELETE FROM records WHERE seq = 3 AND intent = (SELECT id FROM intents WHERE key = 'lost'); \
             UPDATE records SET body = 'x' WHERE intent = (SELECT id FROM intents WHERE key = 'garbled'); \
             DELETE FROM records WHERE intent = (SELECT id FROM intents WHERE key = 'bare')",
        )
        .await
        .unwrap();

    for (key, wanted) in [("lost", "record 3"), ("garbled", "record 1"), ("bare", "record 1")] {
        let error = journal.load(CHAIN, key).await.unwrap_err();
        let JournalError::Corrupt { what, .. } = &error else { panic!("{error:?}") };
        assert!(what.contains(wanted), "{what}");
    }
    assert_eq!(journal.load(CHAIN, "whole").await.unwrap().unwrap().seen(), 3);
}

#[tokio::test]
async fn a_truncated_journal_says_so() {
    let (_dir, path) = place();
    let journal = SqliteJournal::open(&path).await.unwrap();
    for i in 0..200 {
        journal.open(intent(&format!("pay-{i}"))).await.unwrap();
    }
    journal.close().await.unwrap();
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let before = fs::read(&path).unwrap();

    let error = refused(&path).await;
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let (dir, _) = place();
    let path = dir.path().join("not").join("here").join("journal.db");
    let error = refused(&path).await;
    assert!(matches!(error, JournalError::NoDirectory { .. }), "{error:?}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(files(&dir).is_empty());

    assert!(matches!(refused(Path::new("")).await, JournalError::NoDirectory { .. }));
    assert!(matches!(refused(dir.path()).await, JournalError::NotAJournal { found: "a directory", .. }));
}

#[tokio::test]
async fn a_file_that_cannot_be_created_is_said_to_be_read_only() {
    // No one creates files there, root included.
    if cfg!(target_os = "linux") {
        let error = refused(Path::new("/proc/self/journal.db")).await;
        assert!(matches!(error, JournalError::ReadOnly { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn an_empty_file_becomes_a_journal() {
    let (_dir, path) = place();
    fs::write(&path, "").unwrap();
    let journal = SqliteJournal::open(&path).await.unwrap();
    assert!(journal.open(intent("pay")).await.unwrap().created);
}

#[tokio::test]
async fn names_that_sqlite_reads_otherwise_are_files() {
    let (dir, _) = place();
    for name in [":memory:", "file:a?mode=memory", "with space and ?#%20"] {
        let path = dir.path().join(name);
        SqliteJournal::open(&path).await.unwrap().close().await.unwrap();
        assert!(path.is_file(), "{name}");
    }
}

#[tokio::test]
async fn a_closed_journal_is_one_file() {
    let (dir, path) = place();
    let journal = SqliteJournal::open(&path).await.unwrap();
    journal.open(intent("pay")).await.unwrap();
    journal.load(CHAIN, "pay").await.unwrap();
    journal.close().await.unwrap();
    assert_eq!(files(&dir), ["journal.db"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_open_a_new_file_at_once() {
    for _ in 0..5 {
        let (_dir, path) = place();
        let mut openers = tokio::task::JoinSet::new();
        for i in 0..8 {
            let path = path.clone();
            openers.spawn(async move {
                let journal = SqliteJournal::open(path).await.unwrap();
                journal.open(intent(&format!("from-{i}"))).await.unwrap();
                journal
            });
        }
        let journals = openers.join_all().await;
        assert_eq!(journals[0].list(&Query::default()).await.unwrap().len(), 8);
    }
}

#[tokio::test]
async fn a_lock_that_is_held_too_long_is_busy_and_reads_go_on() {
    let (_dir, path) = place();
    let mut config = SqliteConfig::default();
    config.busy_timeout = Duration::from_millis(150);
    let journal = SqliteJournal::open_with(&path, &config).await.unwrap();
    let id = journal.open(intent("pay")).await.unwrap().id;

    let mut other = raw(&path).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let started = Instant::now();
    let append = journal.append(Author::Caller, id, 1, &[wished(1)]).await;
    assert!(matches!(append, Err(JournalError::Busy { .. })), "{append:?}");
    let opened = SqliteJournal::open_with(&path, &config).await;
    assert!(matches!(opened, Err(JournalError::Busy { .. })), "{opened:?}");
    let took = started.elapsed();
    assert!(took >= config.busy_timeout && took < Duration::from_secs(3), "{took:?}");

    assert_eq!(journal.load(CHAIN, "pay").await.unwrap().unwrap().seen(), 1);
    assert!(!journal.open(intent("pay")).await.unwrap().created, "what is there needs no lock");

    other.execute("ROLLBACK").await.unwrap();
    journal.append(Author::Caller, id, 1, &[wished(1)]).await.unwrap();
    SqliteJournal::open_with(&path, &config).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_replaced_is_neither_written_nor_read_until_it_is_put_back() {
    let (dir, path) = place();
    let journal = SqliteJournal::open(&path).await.unwrap();
    let id = journal.open(intent("pay")).await.unwrap().id;
    let aside = dir.path().join("aside.db");
    fs::rename(&path, &aside).unwrap();
    for (found, another) in [("gone", None), ("another file", Some(b"x"))] {
        if let Some(bytes) = another {
            fs::write(&path, bytes).unwrap();
        }
        let written = journal.append(Author::Caller, id, 1, &[wished(1)]).await;
        let read = journal.load(CHAIN, "pay").await.map(|_| ());
        for refused in [written, read] {
            assert!(
                matches!(&refused, Err(JournalError::Replaced { found: is, .. }) if *is == found),
                "{refused:?}"
            );
        }
    }
    assert_eq!(fs::read(&path).unwrap(), b"x");

    fs::rename(&aside, &path).unwrap();
    journal.append(Author::Caller, id, 1, &[wished(1)]).await.unwrap();
    assert_eq!(journal.load(CHAIN, "pay").await.unwrap().unwrap().seen(), 2);
}

#[tokio::test]
async fn an_error_keeps_its_cause_and_shows_no_type_of_the_backend() {
    let (_dir, path) = place();
    fs::write(&path, "text").unwrap();
    let error = backstay_core::Error::from(refused(&path).await);
    let cause = std::error::Error::source(&error).expect("what SQLite said");
    assert!(cause.to_string().contains("not a database"), "{cause}");
}

/// A child process, this very test started again, appends and says so until it is killed. Whatever it said is
/// there.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_what_it_had_written() {
    if let Some(path) = std::env::var_os("JOURNAL_OF_CHILD") {
        return append_until_killed(Path::new(&path)).await;
    }
    for said_at_kill in [1, 10, 40] {
        let (_dir, path) = place();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_process_leaves_what_it_had_written", "--nocapture"])
            .env("JOURNAL_OF_CHILD", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said =
            lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("wrote ")?.parse().ok());
        let mut last: u64 = 0;
        while last < said_at_kill {
            last = said.next().expect("the child goes on until it is killed");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        last = said.last().unwrap_or(last);

        let journal = SqliteJournal::open(&path).await.unwrap();
        let stored = journal.load(CHAIN, "child").await.unwrap().unwrap();
        let written = stored.seen() - 1;
        assert!(written >= last, "{written} of {last}");
        assert!(stored.records().skip(1).cloned().eq((1..=written).map(wished)));
        journal.append(Author::Caller, stored.id, stored.seen(), &[wished(0)]).await.unwrap();
    }
}

async fn append_until_killed(path: &Path) {
    let journal = SqliteJournal::open(path).await.unwrap();
    let id = journal.open(intent("child")).await.unwrap().id;
    for number in 1.. {
        journal.append(Author::Caller, id, number, &[wished(number)]).await.unwrap();
        println!("\nwrote {number}");
    }
}

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.db");
    (dir, path)
}

fn files(dir: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(dir.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap()
}

async fn refused(path: &Path) -> JournalError {
    SqliteJournal::open(path).await.expect_err("it is not to be opened")
}

fn intent(key: &str) -> NewIntent {
    let content =
        Content { to: Address::repeat_byte(2), value: U256::from(5), input: Bytes::from_static(&[1, 2]) };
    NewIntent {
        chain_id: CHAIN,
        key: key.to_owned(),
        account: Address::repeat_byte(1),
        content,
        grants: vec![],
    }
}

fn wished(number: u64) -> Record {
    let grant = Grant { token: Address::ZERO, spender: Address::ZERO, cap: U256::from(number) };
    Record::Granted { grants: vec![grant] }
}
