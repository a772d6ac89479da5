//! What goes wrong while a journal is open: the error is clear, nothing is lost, and work goes on afterwards.

use std::time::Instant;

use backstay_core::Retry;
use backstay_testkit::Fsync;

use super::{
    link::{Fate, Link},
    *,
};

#[tokio::test]
async fn a_server_that_was_killed_and_restarted_has_everything_and_costs_no_error() {
    let mut server = Postgres::builder().launch().await.unwrap();
    let url = server.database().await.unwrap();
    let journal = opened(&url).await;
    let id = journal.open(intent("pay")).await.unwrap().id;
    let claim = claimed(&journal).await;
    let mut written = 1;
    for _ in 0..3 {
        // Several connections lie idle when the server dies.
        let line = || journal.line(HERE, 0);
        tokio::try_join!(line(), line(), line()).unwrap();
        journal.append(owner(claim), id, written, &[fenced(written)]).await.unwrap();
        written += 1;
        server.kill();
        server.restart().await.unwrap();
        assert_eq!(seen(&journal, "pay").await, written, "what was acknowledged is there");
        journal.append(owner(claim), id, written, &[fenced(written)]).await.unwrap();
        written += 1;
    }
    server.restart().await.unwrap();
    journal.append(owner(claim), id, written, &[fenced(written)]).await.unwrap();
    assert_eq!(seen(&journal, "pay").await, written + 1);
}

#[tokio::test]
async fn while_the_server_is_down_nothing_is_written_and_the_error_says_so() {
    let mut server = Postgres::builder().fsync(Fsync::Off).launch().await.unwrap();
    let url = server.database().await.unwrap();
    let journal = PostgresJournal::open_with(url.as_str(), &impatient()).await.unwrap();
    let id = journal.open(intent("pay")).await.unwrap().id;
    let claim = claimed(&journal).await;
    server.kill();
    for _ in 0..2 {
        let error = journal.append(owner(claim), id, 1, &[fenced(1)]).await.unwrap_err();
        assert!(matches!(error, JournalError::Unreachable { .. }), "{error:?}");
        assert_eq!(error.retry(), Retry::Later);
        assert!(error.to_string().contains("nothing was written"), "{error}");
        assert_secret(&server, &error);
        let error = journal.load(CHAIN, "pay").await.unwrap_err();
        assert!(matches!(error, JournalError::Unreachable { .. }), "{error:?}");
    }
    server.restart().await.unwrap();
    journal.append(owner(claim), id, 1, &[fenced(1)]).await.unwrap();
    assert_eq!(seen(&journal, "pay").await, 2);
}

#[tokio::test]
async fn a_server_that_comes_back_in_time_is_waited_for() {
    let mut server = Postgres::builder().fsync(Fsync::Off).launch().await.unwrap();
    let url = server.database().await.unwrap();
    let mut config = PostgresConfig::default();
    config.connect_timeout = Duration::from_secs(30);
    let journal = PostgresJournal::open_with(url.as_str(), &config).await.unwrap();
    let id = journal.open(intent("pay")).await.unwrap().id;
    let claim = claimed(&journal).await;
    server.kill();
    let append = async { journal.append(owner(claim), id, 1, &[fenced(1)]).await };
    let (appended, restarted) = tokio::join!(append, server.restart());
    restarted.unwrap();
    appended.unwrap();
}

#[tokio::test]
async fn a_connection_that_is_cut_around_a_commit_leaves_all_of_it_or_nothing() {
    let (server, url) = database().await;
    let link = Link::to(&url).await;
    let journal = opened(link.url()).await;
    let id = journal.open(intent("pay")).await.unwrap().id;
    let claim = claimed(&journal).await;
    let batch = [fenced(1), fenced(2)];
    for (fate, then) in [(Fate::CutBefore, 1), (Fate::CutAfter, 3)] {
        link.set(fate);
        let error = journal.append(owner(claim), id, 1, &batch).await.unwrap_err();
        assert!(matches!(error, JournalError::Backend { .. }), "{fate:?}: {error:?}");
        assert_secret(server, &error);
        link.set(Fate::Passes);
        // What was sent is not sent once more by itself: the journal cannot know.
        settled(&journal, then).await;
    }
    assert_eq!(link.struck(), 2);
    let again = journal.append(owner(claim), id, 1, &batch).await;
    assert!(matches!(again, Err(JournalError::Conflict { after: 1, found: 3 })), "{again:?}");
    journal.append(owner(claim), id, 3, &batch).await.unwrap();
    assert_eq!(seen(&journal, "pay").await, 5);
}

/// The server may still be at the commit whose connection has gone.
async fn settled(journal: &PostgresJournal, records: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while seen(journal, "pay").await != records {
        assert!(Instant::now() < deadline, "{} records", seen(journal, "pay").await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_answer_that_never_comes_is_not_waited_for_for_ever() {
    let (_, url) = database().await;
    let link = Link::to(&url).await;
    let journal = PostgresJournal::open_with(link.url().as_str(), &impatient()).await.unwrap();
    let id = journal.open(intent("pay")).await.unwrap().id;
    let claim = claimed(&journal).await;
    link.set(Fate::Stalls);
    let error = journal.append(owner(claim), id, 1, &[fenced(1)]).await.unwrap_err();
    assert!(matches!(error, JournalError::Backend { .. }), "{error:?}");
    assert!(all_of(&error).contains("no answer within"), "{error:?}");
    link.set(Fate::Passes);
    journal.append(owner(claim), id, 1, &[fenced(1)]).await.unwrap();
    assert_eq!(seen(&journal, "pay").await, 2);
}

#[tokio::test]
async fn connections_are_used_again_after_a_refusal() {
    let (_, url) = database().await;
    let link = Link::to(&url).await;
    let journal = opened(link.url()).await;
    let id = journal.open(intent("pay")).await.unwrap().id;
    let claim = claimed(&journal).await;
    let before = link.connections();
    for _ in 0..5 {
        let refused = journal.append(owner(claim), id, 9, &[fenced(1)]).await;
        assert!(matches!(refused, Err(JournalError::Conflict { .. })), "{refused:?}");
        seen(&journal, "pay").await;
    }
    assert_eq!(link.connections(), before);
}

#[tokio::test]
async fn a_table_that_is_locked_for_too_long_is_busy_and_reads_go_on() {
    let (_, url) = database().await;
    let journal = PostgresJournal::open_with(url.as_str(), &impatient()).await.unwrap();
    let id = journal.open(intent("pay")).await.unwrap().id;
    let claim = claimed(&journal).await;

    let mut other = raw(&url).await;
    sqlx::raw_sql("BEGIN; LOCK TABLE backstay.records IN EXCLUSIVE MODE").execute(&mut other).await.unwrap();
    let error = journal.append(owner(claim), id, 1, &[fenced(1)]).await.unwrap_err();
    assert!(matches!(error, JournalError::Busy { .. }), "{error:?}");
    assert!(error.to_string().contains("200ms"), "{error}");
    assert_eq!(error.retry(), Retry::Later);
    assert_eq!(seen(&journal, "pay").await, 1);
    assert!(!journal.open(intent("pay")).await.unwrap().created, "what is there needs no lock");

    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    journal.append(owner(claim), id, 1, &[fenced(1)]).await.unwrap();
}

#[tokio::test]
async fn a_database_that_is_read_only_for_a_while_is_written_again_afterwards() {
    let (server, url) = database().await;
    let journal = opened(&url).await;
    let id = journal.open(intent("pay")).await.unwrap().id;
    let claim = claimed(&journal).await;
    let name = url.path().trim_start_matches('/');
    let close = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let superuser = server.superuser(&url);
    let set = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    server.sql(&superuser, &set).await.unwrap();
    server.sql(&superuser, close).await.unwrap();

    let error = journal.append(owner(claim), id, 1, &[fenced(1)]).await.unwrap_err();
    assert!(matches!(error, JournalError::ReadOnly { .. }), "{error:?}");
    assert!(matches!(refused(&url).await, JournalError::ReadOnly { .. }));
    assert_eq!(seen(&journal, "pay").await, 1);

    let reset = format!("ALTER DATABASE {name} RESET ALL");
    server.sql(&server.url(), &reset).await.unwrap();
    journal.append(owner(claim), id, 1, &[fenced(1)]).await.unwrap();
    assert_eq!(seen(&journal, "pay").await, 2);
}

/// What PostgreSQL says of a full disk and the like cannot all be had from a sound one, so a trigger says it.
#[tokio::test]
async fn what_the_server_says_of_its_troubles_is_understood() {
    let (server, url) = database().await;
    let journal = opened(&url).await;
    let id = journal.open(intent("pay")).await.unwrap().id;
    let claim = claimed(&journal).await;
    type Is = fn(&JournalError) -> bool;
    let cases: [(&str, Is); 8] = [
        ("53100", |e| matches!(e, JournalError::Full { .. })),
        ("25006", |e| matches!(e, JournalError::ReadOnly { .. })),
        ("40P01", |e| matches!(e, JournalError::Busy { .. })),
        ("57014", |e| matches!(e, JournalError::Busy { .. })),
        ("42501", |e| matches!(e, JournalError::Refused { .. })),
        ("XX001", |e| matches!(e, JournalError::Corrupt { .. })),
        ("XX002", |e| matches!(e, JournalError::Corrupt { .. })),
        ("58030", |e| matches!(e, JournalError::Backend { .. })),
    ];
    for (code, is) in cases {
        let trouble = format!(
            "CREATE OR REPLACE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 RAISE EXCEPTION 'trouble' USING ERRCODE = '{code}'; END $$; \
             CREATE OR REPLACE TRIGGER trouble BEFORE INSERT ON backstay.records \
                 FOR EACH ROW EXECUTE FUNCTION trouble()"
        );
        server.sql(&server.superuser(&url), &trouble).await.unwrap();
        let error = journal.append(owner(claim), id, 1, &[fenced(1)]).await.unwrap_err();
        assert!(is(&error), "{code}: {error:?}");
        assert_eq!(seen(&journal, "pay").await, 1, "{code}");
    }
    server.sql(&server.superuser(&url), "DROP FUNCTION trouble CASCADE").await.unwrap();
    journal.append(owner(claim), id, 1, &[fenced(1)]).await.unwrap();
}

#[tokio::test]
async fn a_damaged_journal_says_so_and_serves_the_rest() {
    let (server, url) = database().await;
    let journal = opened(&url).await;
    let claim = claimed(&journal).await;
    for key in ["lost", "garbled", "bare", "newer", "whole"] {
        let id = journal.open(intent(key)).await.unwrap().id;
        journal.append(owner(claim), id, 1, &[fenced(1), fenced(2)]).await.unwrap();
    }
    let of = |key: &str| format!("intent = (SELECT id FROM intents WHERE key = '{key}')");
    let damage = format!(
        "SET search_path TO backstay; DELETE FROM records WHERE seq = 3 AND {}; \
         UPDATE records SET body = 'x' WHERE {}; DELETE FROM records WHERE {}; \
         UPDATE records SET body = '{{\"v\":2,\"record\":null}}' WHERE {}",
        of("lost"),
        of("garbled"),
        of("bare"),
        of("newer")
    );
    server.sql(&url, &damage).await.unwrap();
    for (key, wanted) in [("lost", "record 3"), ("garbled", "record 1"), ("bare", "record 1")] {
        let error = journal.load(CHAIN, key).await.unwrap_err();
        let JournalError::Corrupt { what, .. } = &error else { panic!("{error:?}") };
        assert!(what.contains(wanted), "{what}");
        assert_eq!(error.retry(), Retry::Never);
    }
    let newer = journal.load(CHAIN, "newer").await;
    assert!(matches!(newer, Err(JournalError::NewerSchema { found: 2, .. })), "{newer:?}");
    assert_eq!(seen(&journal, "whole").await, 3);

    server.sql(&url, "DROP TABLE backstay.slots").await.unwrap();
    let error = journal.line(HERE, 0).await.unwrap_err();
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error:?}");
}

async fn raw(url: &Url) -> sqlx::PgConnection {
    <sqlx::PgConnection as sqlx::Connection>::connect(url.as_str()).await.unwrap()
}
