//! What is opened, and what is left alone.

use super::*;

/// All rows of a schema's catalogue: what a refused open must not change.
async fn catalogue(server: &Postgres, url: &Url) -> String {
    let query = "SELECT string_agg(c.relname::text || c.relkind::text || c.xmin::text, ',' ORDER BY c.oid) FROM pg_class c \
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'backstay'";
    let rows = format!("SELECT coalesce(({query}), '')");
    server.value(url, &rows).await.unwrap()
}

#[tokio::test]
async fn the_schema_of_another_program_is_left_as_it_is() {
    let sqlx = "CREATE TABLE backstay._sqlx_migrations (version BIGINT, description TEXT, checksum BYTEA); \
                INSERT INTO backstay._sqlx_migrations VALUES (1, 'users', 'x')";
    for theirs in [
        "CREATE TABLE backstay.records (id INT)",
        "CREATE FUNCTION backstay.f() RETURNS INT LANGUAGE sql AS 'SELECT 1'",
        "CREATE TYPE backstay.mood AS ENUM ('sad')",
        "CREATE TABLE backstay._sqlx_migrations (id INT)",
        sqlx,
    ] {
        let (server, url) = database().await;
        server.sql(&url, &format!("CREATE SCHEMA backstay; {theirs}")).await.unwrap();
        let before = catalogue(server, &url).await;
        let error = refused(&url).await;
        let JournalError::NotAJournal { found, .. } = &error else { panic!("{theirs}: {error:?}") };
        assert_eq!(*found, "a schema of another program");
        let said = error.to_string();
        let database = url.path().trim_start_matches('/');
        assert!(said.contains(database) && said.contains("schema backstay"), "{said}");
        assert_eq!(catalogue(server, &url).await, before, "{theirs}");
    }
}

#[tokio::test]
async fn a_newer_journal_is_left_as_it_is() {
    let (server, url) = database().await;
    opened(&url).await.close().await.unwrap();
    let newer = "INSERT INTO backstay._sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (99, 'telepathy', TRUE, 'x', 0); CREATE TABLE backstay.thoughts (id INT)";
    server.sql(&url, newer).await.unwrap();
    let before = catalogue(server, &url).await;
    let error = refused(&url).await;
    assert!(matches!(error, JournalError::NewerSchema { found: 99, known: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("upgrade this program"), "{error}");
    assert_eq!(catalogue(server, &url).await, before);
}

#[tokio::test]
async fn a_journal_whose_schema_was_changed_is_left_as_it_is() {
    let (server, url) = database().await;
    opened(&url).await.close().await.unwrap();
    server.sql(&url, "UPDATE backstay._sqlx_migrations SET checksum = 'x'").await.unwrap();
    let error = refused(&url).await;
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_key_is_refused() {
    let (server, url) = database().await;
    let name = format!("{}_narrow", url.path().trim_start_matches('/'));
    let make = format!("CREATE DATABASE {name} OWNER journal ENCODING 'LATIN1' TEMPLATE template0");
    server.sql(&server.url(), &make).await.unwrap();
    let mut narrow = url.clone();
    narrow.set_path(&name);
    let error = refused(&narrow).await;
    assert!(error.to_string().contains("encoding is not UTF8"), "{error}");
}

#[tokio::test]
async fn an_empty_schema_that_somebody_else_made_is_taken() {
    let (server, url) = database().await;
    let name = url.path().trim_start_matches('/');
    let mine = format!(
        "CREATE SCHEMA backstay AUTHORIZATION journal; ALTER DATABASE {name} OWNER TO postgres; \
         REVOKE CREATE ON DATABASE {name} FROM PUBLIC"
    );
    server.sql(&server.superuser(&url), &mine).await.unwrap();
    for _ in 0..2 {
        opened(&url).await.close().await.unwrap();
    }
    let mut config = PostgresConfig::default();
    config.schema = "elsewhere".to_owned();
    let error = PostgresJournal::open_with(url.as_str(), &config).await.expect_err("it may not make one");
    assert!(matches!(error, JournalError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("what is granted"), "{error}");
}

#[tokio::test]
async fn who_is_not_let_in_is_told_so_without_the_password() {
    let (server, url) = database().await;
    let mut wrong = url.clone();
    wrong.set_password(Some("wr0ng-s3cret")).unwrap();
    let mut nobody = url.clone();
    nobody.set_username("nobody-of-that-name").unwrap();
    let mut nowhere = url.clone();
    nowhere.set_path("no_such_database");
    for bad in [&wrong, &nobody, &nowhere] {
        let error = refused(bad).await;
        assert!(matches!(error, JournalError::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains(&format!("127.0.0.1:{}", server.port())), "{error}");
        assert_secret(server, &error);
        assert!(!all_of(&error).contains("wr0ng-s3cret"), "{error:?}");
    }
}

#[tokio::test]
async fn where_no_server_listens_is_said_to_be_unreachable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("postgres://ann:s3cret@127.0.0.1:{port}/app");
    let error = PostgresJournal::open_with(&url, &impatient()).await.expect_err("nobody listens");
    assert!(matches!(error, JournalError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("app at 127.0.0.1:{port}")), "{error}");
    assert!(!all_of(&error).contains("s3cret"), "{error:?}");

    // One that takes the connection, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://ann:s3cret@127.0.0.1:{}/app", silent.local_addr().unwrap().port());
    let error = PostgresJournal::open_with(&url, &impatient()).await.expect_err("nobody speaks");
    assert!(matches!(error, JournalError::Unreachable { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_open_a_new_schema_at_once() {
    let (_, url) = database().await;
    let mut openers = tokio::task::JoinSet::new();
    for i in 0..8 {
        let url = url.clone();
        openers.spawn(async move {
            let journal = opened(&url).await;
            journal.open(intent(&format!("from-{i}"))).await.unwrap();
            journal
        });
    }
    let journals = openers.join_all().await;
    assert_eq!(journals[0].list(&Default::default()).await.unwrap().len(), 8);
}

#[tokio::test]
async fn journals_in_two_schemas_know_nothing_of_each_other() {
    let (_, url) = database().await;
    let mut config = PostgresConfig::default();
    config.schema = "another".to_owned();
    let (one, two) = (opened(&url).await, PostgresJournal::open_with(url.as_str(), &config).await.unwrap());
    one.open(intent("pay")).await.unwrap();
    assert_eq!(two.load(CHAIN, "pay").await.unwrap(), None);
    claimed(&one).await;
    claimed(&two).await;
}

#[tokio::test]
async fn what_is_only_looked_at_is_not_created() {
    let (server, url) = database().await;
    let config = PostgresConfig::default();
    let look = || PostgresJournal::open_existing(url.as_str(), &config);
    let error = look().await.expect_err("there is none");
    assert!(matches!(error, JournalError::Missing { .. }), "{error:?}");
    let count = "SELECT count(*) FROM pg_namespace WHERE nspname = 'backstay'";
    assert_eq!(server.value(&url, count).await.unwrap(), "0");

    opened(&url).await.open(intent("pay")).await.unwrap();
    let found = look().await.unwrap();
    assert_eq!(seen(&found, "pay").await, 1);
    assert!(!format!("{found:?}").contains(server.password()));
}
