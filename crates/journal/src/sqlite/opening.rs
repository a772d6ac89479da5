//! Opening a file: what it is, whether it is ours, and what it takes to write to it.
//!
//! A file is looked at through a read-only connection first, so that one that is not ours, or newer than
//! this program, stays as it is to the byte. (Next to another program's database in WAL mode, SQLite may
//! leave an empty `-wal`, which changes nothing.) It is not read with `std::fs`: closing a file drops the locks
//! that SQLite holds on it for this process's other connections.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use sqlx::{
    ConnectOptions, Connection, SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous},
};

use super::{SqliteConfig, place::Place};
use crate::JournalError;

/// Says in the file's header that it is a Backstay journal: "BkSt".
const APPLICATION_ID: i64 = 0x426b_5374;

/// Opens a file and brings it up to date. Returns the connection that writes.
pub(super) async fn open(
    path: &Path,
    config: &SqliteConfig,
) -> Result<(Place, SqliteConnection), JournalError> {
    // SQLite counts milliseconds in an i32.
    let busy_timeout = config.busy_timeout.min(Duration::from_millis(i32::MAX as u64));
    let Ok(path) = std::path::absolute(path) else {
        // It is empty, or there is no current directory.
        return Err(JournalError::NoDirectory { path: path.to_owned() });
    };
    let place = Place { path, busy_timeout };
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

    // SQLite does not wait for every lock that it needs here: the change to WAL wants the file to itself.
    let started = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        match prepare(&place).await {
            Err(JournalError::Busy { .. }) if started.elapsed() + pause < busy_timeout => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(100));
            }
            Err(error) => return Err(error),
            Ok(writer) => return Ok((place, writer)),
        }
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
        let mut reader =
            connecting(place).read_only(true).connect().await.map_err(|e| place.failure_to_open(e))?;
        // In one transaction: another process may be creating the journal between two reads.
        let mut snapshot = reader.begin().await.map_err(|e| place.failure_to_open(e))?;
        inspect(place, &mut snapshot).await?;
        drop(snapshot);
        reader.close().await.map_err(|e| place.failure_to_open(e))?;
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

/// Passes a database that is empty, or a journal of this version or an older one. Writes nothing.
async fn inspect(place: &Place, connection: &mut SqliteConnection) -> Result<(), JournalError> {
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
        return Ok(());
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
    let known = migrator.iter().map(|migration| migration.version).max().unwrap_or(0);
    if let Some((found, _)) = applied.last().filter(|(version, _)| *version > known) {
        return Err(JournalError::NewerSchema { journal: place.name(), found: *found, known });
    }
    for (version, checksum) in &applied {
        let migration = migrator.iter().find(|migration| migration.version == *version);
        if migration.is_none_or(|migration| *migration.checksum != **checksum) {
            return Err(place.corrupt(format!("step {version} of its schema is not what it was"), None));
        }
    }
    Ok(())
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
