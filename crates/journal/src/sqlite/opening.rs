//! Opening a file: what it is, whether it is ours, and what it takes to write to it.
//!
//! A file is looked at through a read-only connection first, so that one that is not ours, or newer than
//! this program, stays as it is to the byte. (Next to another program's database in WAL mode, SQLite may
//! leave an empty `-wal`, which changes nothing.) It is not read with `std::fs`: closing a file drops the locks
//! that SQLite holds on it for this process's other connections.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sqlx::{
    ConnectOptions, Connection, SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous},
};

use super::{SqliteConfig, place::Place};
use crate::{JournalError, lane::Connector};

/// Says in the file's header that it is a Backstay journal: "BkSt".
const APPLICATION_ID: i64 = 0x426b_5374;

/// Opens a file and brings it up to date. Returns the connection that writes.
pub(super) async fn open(
    path: &Path,
    config: &SqliteConfig,
) -> Result<(Place, SqliteConnection), JournalError> {
    let place = place(path, config)?;
    let mut patience = Patience::with(&place);
    loop {
        match prepare(&place).await {
            Ok(writer) => return Ok((place, writer)),
            Err(error) => patience.wait(error).await?,
        }
    }
}

/// Finds a file that is a journal of this version already. Writes nothing.
pub(super) async fn find(path: &Path, config: &SqliteConfig) -> Result<Place, JournalError> {
    let place = place(path, config)?;
    if !place.path.exists() {
        return Err(JournalError::Missing { journal: place.name() });
    }
    let known = newest(&migrator());
    let mut patience = Patience::with(&place);
    let found = loop {
        match look(&place).await {
            Ok(found) => break found,
            Err(error) => patience.wait(error).await?,
        }
    };
    match found {
        0 => Err(place.not_a_journal("empty", None)),
        found if found < known => Err(JournalError::OlderSchema { journal: place.name(), found, known }),
        _ => Ok(place),
    }
}

/// The place that a path names, where a journal can be.
fn place(path: &Path, config: &SqliteConfig) -> Result<Place, JournalError> {
    // SQLite counts milliseconds in an i32.
    let busy_timeout = config.busy_timeout.min(Duration::from_millis(i32::MAX as u64));
    let Ok(path) = std::path::absolute(path) else {
        // It is empty, or there is no current directory.
        return Err(JournalError::NoDirectory { path: path.to_owned() });
    };
    let place = Place { path, busy_timeout, file: None, read_only: Arc::default() };
    if place.path.parent().is_none_or(|directory| !directory.is_dir()) {
        return Err(JournalError::NoDirectory { path: place.path });
    }
    if place.path.is_dir() {
        return Err(place.not_a_journal("a directory", None));
    }
    // SQLite takes a file of one byte for an empty one, and would write over it.
    if place.path.metadata().is_ok_and(|file| file.len() == 1) {
        return Err(place.not_a_journal("no SQLite database", None));
    }
    Ok(place)
}

/// Waits while the file is locked. SQLite does not wait for every lock that opening needs: the change to WAL wants the
/// file to itself.
struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    fn with(place: &Place) -> Self {
        Self { until: Instant::now() + place.busy_timeout, pause: Duration::from_millis(5) }
    }

    /// Waits where it is worth another try, and gives the error back where it is not.
    async fn wait(&mut self, error: JournalError) -> Result<(), JournalError> {
        if !matches!(error, JournalError::Busy { .. }) || Instant::now() + self.pause >= self.until {
            return Err(error);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(100));
        Ok(())
    }
}

#[async_trait]
impl Connector<SqliteConnection> for SqliteConnectOptions {
    async fn open(&self) -> Result<SqliteConnection, sqlx::Error> {
        self.connect().await
    }
}

/// How a connection that writes is opened.
pub(super) fn writing(place: &Place) -> SqliteConnectOptions {
    connecting(place).synchronous(SqliteSynchronous::Full).foreign_keys(true)
}

/// How a connection that only reads is opened. Not SQLite's own read-only mode: it could not recover the
/// log after a crash.
pub(super) fn reading(place: &Place) -> SqliteConnectOptions {
    connecting(place).pragma("query_only", "ON")
}

/// Statements are not logged: sqlx would format every one of them for it.
fn connecting(place: &Place) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(&place.path)
        .busy_timeout(place.busy_timeout)
        .disable_statement_logging()
}

async fn prepare(place: &Place) -> Result<SqliteConnection, JournalError> {
    if place.path.exists() {
        look(place).await?;
    }

    let mut writer =
        writing(place).create_if_missing(true).connect().await.map_err(|e| place.failure_to_open(e))?;
    migrate(place, &mut writer).await?;
    let (mode,): (String,) = sqlx::query_as("PRAGMA journal_mode = WAL")
        .fetch_one(&mut writer)
        .await
        .map_err(|e| place.failure_to_open(e))?;
    if mode != "wal" {
        return Err(JournalError::Backend {
            journal: place.name(),
            source: format!("it cannot be put into WAL mode, but stays in {mode} mode").into(),
        });
    }
    Ok(writer)
}

/// Looks at a file that is there through a connection that cannot write. Returns what [`inspect`] finds.
async fn look(place: &Place) -> Result<i64, JournalError> {
    let failed = |error| place.failure_to_open(error);
    let mut reader = connecting(place).read_only(true).connect().await.map_err(failed)?;
    // In one transaction: another process may be creating the journal between two reads.
    let mut snapshot = reader.begin().await.map_err(failed)?;
    let found = inspect(place, &mut snapshot).await?;
    drop(snapshot);
    reader.close().await.map_err(failed)?;
    Ok(found)
}

/// Writes what is missing of the schema, all of it or nothing. It always writes something, so that a
/// journal that cannot be written is found out before the first intent.
async fn migrate(place: &Place, writer: &mut SqliteConnection) -> Result<(), JournalError> {
    let failed = |error| place.failure_to_open(error);
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    // Once more: another process may have been here since.
    inspect(place, &mut transaction).await?;
    sqlx::query(sqlx::AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}")))
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    migrator().run_direct(None, &mut *transaction, false).await.map_err(|error| match error {
        sqlx::migrate::MigrateError::Execute(error)
        | sqlx::migrate::MigrateError::ExecuteMigration(error, _) => failed(error),
        error => JournalError::Backend { journal: place.name(), source: error.into() },
    })?;
    transaction.commit().await.map_err(failed)
}

/// Passes a database that is empty, or a journal of this version or an older one. Returns the newest step of the schema
/// that it has, 0 where it is empty. Writes nothing.
async fn inspect(place: &Place, connection: &mut SqliteConnection) -> Result<i64, JournalError> {
    let failed = |error| place.failure_to_open(error);
    let (application_id,): (i64,) =
        sqlx::query_as("PRAGMA application_id").fetch_one(&mut *connection).await.map_err(failed)?;
    let (things, migrated): (i64, bool) = sqlx::query_as(
        "SELECT count(*), coalesce(max(type = 'table' AND name = '_sqlx_migrations'), 0) FROM sqlite_schema",
    )
    .fetch_one(&mut *connection)
    .await
    .map_err(failed)?;

    if application_id == 0 && things == 0 {
        return Ok(0);
    }
    if application_id != APPLICATION_ID {
        return Err(place.not_a_journal("a SQLite database of another program", None));
    }
    if !migrated {
        return Err(place.corrupt("it does not say which schema it has", None));
    }
    let applied: Vec<(i64, Vec<u8>)> =
        sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations ORDER BY version")
            .fetch_all(&mut *connection)
            .await
            .map_err(failed)?;
    let migrator = migrator();
    let known = newest(&migrator);
    if let Some((found, _)) = applied.last().filter(|(version, _)| *version > known) {
        return Err(JournalError::NewerSchema { journal: place.name(), found: *found, known });
    }
    for (version, checksum) in &applied {
        let migration = migrator.iter().find(|migration| migration.version == *version);
        if migration.is_none_or(|migration| *migration.checksum != **checksum) {
            return Err(place.corrupt(format!("step {version} of its schema is not what it was"), None));
        }
    }
    Ok(applied.last().map_or(0, |(version, _)| *version))
}

/// The newest step that this version knows.
fn newest(migrator: &Migrator) -> i64 {
    migrator.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// The steps of the schema, oldest first. One that was released is never changed.
pub(super) fn migrator() -> Migrator {
    let steps = [
        (1, "journal", include_str!("../../migrations/sqlite/0001_journal.sql")),
        (2, "lines", include_str!("../../migrations/sqlite/0002_lines.sql")),
    ];
    let migrations = steps.map(|(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.into())
}
