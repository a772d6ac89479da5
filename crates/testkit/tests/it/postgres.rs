use std::{
    io::{BufRead as _, BufReader},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use backstay_testkit::{Error, Fsync, Postgres};
use sqlx::{Connection as _, PgConnection};
use url::Url;

/// Set in the copy of this test binary that is to be killed.
const VICTIM: &str = "TESTKIT_POSTGRES_VICTIM";

async fn server() -> Postgres {
    Postgres::builder().fsync(Fsync::Off).launch().await.expect("a server starts")
}

async fn count(server: &Postgres, url: &Url) -> String {
    server.value(url, "SELECT count(*) FROM kept").await.expect("the table is there")
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

async fn folder(server: &Postgres) -> PathBuf {
    let data = server.value(&server.url(), "SELECT current_setting('data_directory')").await;
    Path::new(&data.expect("the server says")).parent().expect("it is in a folder").to_owned()
}

#[tokio::test]
async fn what_was_committed_survives_a_kill_and_the_address_stays() {
    let mut server = server().await;
    let url = server.database().await.expect("a database is made");
    server.sql(&url, "CREATE TABLE kept (id INT); INSERT INTO kept VALUES (1)").await.expect("it is ours");

    server.kill();
    assert!(!is_open(server.port()), "it listens after it was killed");
    assert!(server.sql(&url, "SELECT 1").await.is_err());
    server.restart().await.expect("it starts again");
    assert_eq!(count(&server, &url).await, "1");
    assert!(server.output().contains("not properly shut down"), "{}", server.output());

    server.stop().await.expect("it stops");
    assert!(!is_open(server.port()), "it listens after it was stopped");
    server.stop().await.expect("there is nothing to do");
    server.restart().await.expect("it starts again");
    assert_eq!(count(&server, &url).await, "1");
    assert!(!server.output().contains("not properly shut down"), "{}", server.output());

    server.restart().await.expect("one that runs is stopped first");
    assert_eq!(count(&server, &url).await, "1");
}

#[tokio::test]
async fn a_statement_under_way_dies_with_the_server() {
    let mut server = server().await;
    let url = server.database().await.expect("a database is made");
    server.sql(&url, "CREATE TABLE kept (id INT)").await.expect("it is ours");
    let work = "INSERT INTO kept SELECT 1 FROM generate_series(1, 1000000000)";
    let mut connection = PgConnection::connect(url.as_str()).await.expect("the server answers");
    let running = tokio::spawn(async move { sqlx::raw_sql(work).execute(&mut connection).await.map(drop) });
    let active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT%' AND state = 'active'";
    let under_way = async {
        while server.value(&server.url(), active).await.expect("the server answers") != "1" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), under_way).await.expect("it begins");
    server.kill();
    running.await.expect("it does not panic").expect_err("it never got to its end");
    server.restart().await.expect("nothing of the killed server is in the way");
    assert_eq!(count(&server, &url).await, "0");
}

#[tokio::test]
async fn databases_are_apart_and_their_owner_is_no_superuser() {
    let server = Postgres::shared().await.expect("a server starts");
    let [one, two] =
        [server.database().await.expect("it is made"), server.database().await.expect("it is made")];
    server.sql(&one, "CREATE SCHEMA kept; CREATE TABLE kept (id INT)").await.expect("it is the owner's");
    server.sql(&two, "SELECT * FROM kept").await.expect_err("that is in the other one");
    server.sql(&one, "ALTER SYSTEM SET work_mem = '8MB'").await.expect_err("that is for superusers");
    let superuser = server.superuser(&one);
    assert_eq!(
        server.value(&superuser, "SELECT current_database()").await.expect("it answers"),
        one.path()[1..]
    );
    assert_eq!(server.value(&superuser, "SELECT current_user::text").await.expect("it answers"), "postgres");
}

#[tokio::test]
async fn the_password_is_asked_for_and_no_error_quotes_it() {
    let server = Postgres::shared().await.expect("a server starts");
    let url = server.database().await.expect("a database is made");
    assert!(url.as_str().contains("%40") && url.as_str().contains("%2F"), "it needs encoding");
    let mut wrong = url.clone();
    wrong.set_password(Some("guess")).expect("the URL has a host");
    server.sql(&wrong, "SELECT 1").await.expect_err("that is not the password");
    let bad = format!("CREATE ROLE other PASSWORD '{}' NO SUCH WORD", server.password());
    let error = server.sql(&url, &bad).await.expect_err("it is no statement");
    assert!(!format!("{error} {error:?}").contains(server.password()), "{error:?}");
}

#[tokio::test]
async fn settings_and_durability_are_as_asked() {
    let safe = Postgres::builder().setting("work_mem", "5MB").launch().await.expect("a server starts");
    assert_eq!(safe.value(&safe.url(), "SELECT current_setting('fsync')").await.expect("it says"), "on");
    assert_eq!(safe.value(&safe.url(), "SELECT current_setting('work_mem')").await.expect("it says"), "5MB");
    let shared = Postgres::shared().await.expect("a server starts");
    assert_eq!(shared.value(&shared.url(), "SELECT current_setting('fsync')").await.expect("it says"), "off");
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let bad = Postgres::builder().setting("no_such_setting", "1").launch().await;
    let Err(error @ Error::NotListening { .. }) = bad else { panic!("{bad:?}") };
    assert!(error.to_string().contains("no_such_setting"), "{error}");
    let missing = Postgres::builder().programs("/nowhere").launch().await;
    assert!(matches!(missing, Err(Error::Spawn { .. })), "{missing:?}");
}

#[tokio::test]
async fn a_server_goes_with_its_handle_and_leaves_nothing() {
    let server = server().await;
    let (port, folder) = (server.port(), folder(&server).await);
    assert!(folder.is_dir());
    drop(server);
    assert!(!is_open(port));
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_server_ends_with_a_process_that_drops_nothing() {
    if std::env::var_os(VICTIM).is_some() {
        let server = server().await;
        println!("\nserver {} {}", server.port(), folder(&server).await.display());
        std::future::pending::<()>().await;
    }
    let mut victim = Command::new(std::env::current_exe().expect("there is a test binary"))
        .args(["--exact", "postgres::a_server_ends_with_a_process_that_drops_nothing", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary runs");
    let lines = BufReader::new(victim.stdout.take().expect("it is piped")).lines();
    let said = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("server ").map(str::to_owned));
    let said = said.expect("the victim starts a server");
    let (port, folder) = said.split_once(' ').expect("it says both");
    let (port, folder) = (port.parse().expect("it is a port"), Path::new(folder));
    assert!(is_open(port) && folder.is_dir());
    victim.kill().expect("it still runs");
    victim.wait().expect("it was ours");
    let begun = Instant::now();
    while is_open(port) || folder.exists() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the server outlives the process");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
