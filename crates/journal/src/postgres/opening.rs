//! Opening a schema: what it is, whether it is ours, and what it takes to write to it.

use sqlx::{
    Connection as _, SqlSafeStr as _,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
    postgres::PgConnectOptions,
};

use super::{
    Connection, Place, PostgresConfig, Result,
    backend::Backend,
    connector::{PgConnector, Use},
    place::{NO_SUCH_COLUMN, sqlstate},
};
use crate::{
    JournalError,
    lane::{Connector as _, Lane},
};

/// The lock of whoever looks at a schema, or changes it.
const OPENING: i64 = 0x6261_636b_7374_6179;

/// What the first step of the schema is called: it says that a schema is a Backstay journal.
const OURS: &str = "backstay journal";

/// Connects, and brings the schema up to date.
pub(super) async fn open(
    options: PgConnectOptions,
    place: Place,
    config: &PostgresConfig,
) -> Result<Backend> {
    let writing = PgConnector::new(options.clone(), config, Use::Writing);
    let mut connection = writing.open().await.map_err(|e| place.failure_to_connect(e))?;
    migrate(&place, &mut connection).await?;
    let mut backend = lanes(options, place, config);
    backend.writers = backend.writers.with(connection);
    Ok(backend)
}

/// Connects to a journal that is there, of this version's schema. Writes nothing.
pub(super) async fn find(
    options: PgConnectOptions,
    place: Place,
    config: &PostgresConfig,
) -> Result<Backend> {
    let reading = PgConnector::new(options.clone(), config, Use::Reading);
    let mut connection = reading.open().await.map_err(|e| place.failure_to_connect(e))?;
    let migrator = migrator();
    let known = newest(&migrator);
    match inspect(&place, &mut connection, &migrator).await? {
        Found::Nothing | Found::Empty => return Err(JournalError::Missing { journal: place.name() }),
        Found::Journal(found) if found < known => {
            return Err(JournalError::OlderSchema { journal: place.name(), found, known });
        }
        Found::Journal(_) => {}
    }
    let mut backend = lanes(options, place, config);
    backend.readers = backend.readers.with(connection);
    Ok(backend)
}

fn lanes(options: PgConnectOptions, place: Place, config: &PostgresConfig) -> Backend {
    let writing = PgConnector::new(options.clone(), config, Use::Writing);
    let writers = Lane::new(writing, config.connections);
    let reading = PgConnector::new(options, config, Use::Reading);
    let readers = Lane::new(reading, config.connections.div_ceil(2));
    Backend { place, writers, readers }
}

/// Writes what is missing of the schema, all of it or nothing. It always writes something, so that a journal that
/// cannot be written is found out before the first intent.
async fn migrate(place: &Place, connection: &mut Connection) -> Result<()> {
    let failed = |error| place.failure(error);
    let mut transaction = connection.begin().await.map_err(failed)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(OPENING)
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    let mut migrator = migrator();
    let known = newest(&migrator);
    let found = inspect(place, &mut transaction, &migrator).await?;
    if found == Found::Nothing {
        let create = format!("CREATE SCHEMA {}", place.schema());
        sqlx::query(sqlx::AssertSqlSafe(create)).execute(&mut *transaction).await.map_err(failed)?;
    }
    if found != Found::Journal(known) {
        // Its own lock is of the session; ours ends with the transaction.
        migrator.set_locking(false);
        migrator.run_direct(None, &mut *transaction, false).await.map_err(|error| match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => failed(error),
            error => JournalError::Backend { journal: place.name(), source: error.into() },
        })?;
    }
    sqlx::query("UPDATE _sqlx_migrations SET success = TRUE WHERE version = $1")
        .bind(known)
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// There is no such schema.
    Nothing,
    /// It is empty.
    Empty,
    /// It is a journal, at this step of its schema.
    Journal(i64),
}

/// Passes a schema that is missing or empty, or a journal of this version or an older one. Writes nothing.
async fn inspect(place: &Place, connection: &mut Connection, migrator: &Migrator) -> Result<Found> {
    let failed = |error| place.failure(error);
    let (encoding, exists, things, migrated): (String, bool, i64, bool) = sqlx::query_as(
        "SELECT current_setting('server_encoding'), n.oid IS NOT NULL, \
             (SELECT count(*) FROM pg_class WHERE relnamespace = n.oid) \
                 + (SELECT count(*) FROM pg_type WHERE typnamespace = n.oid) \
                 + (SELECT count(*) FROM pg_proc WHERE pronamespace = n.oid), \
             EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid AND relname = '_sqlx_migrations') \
         FROM (VALUES ($1)) AS wanted (name) LEFT JOIN pg_namespace n ON n.nspname = wanted.name",
    )
    .bind(place.schema())
    .fetch_one(&mut *connection)
    .await
    .map_err(failed)?;
    if encoding != "UTF8" {
        return Err(place.not_a_journal("a database whose encoding is not UTF8, which cannot hold every key"));
    }
    if !exists {
        return Ok(Found::Nothing);
    }
    if things == 0 {
        return Ok(Found::Empty);
    }
    let another = || place.not_a_journal("a schema of another program");
    if !migrated {
        return Err(another());
    }
    let applied: Vec<(i64, String, Vec<u8>)> =
        sqlx::query_as("SELECT version, description, checksum FROM _sqlx_migrations ORDER BY version")
            .fetch_all(&mut *connection)
            .await
            .map_err(|error| match sqlstate(&error).as_deref() {
                Some(NO_SUCH_COLUMN) => another(),
                Some(_) | None => failed(error),
            })?;
    if applied.first().is_none_or(|(version, description, _)| (*version, description.as_str()) != (1, OURS)) {
        return Err(another());
    }
    let known = newest(migrator);
    let found = applied.last().map_or(0, |(version, ..)| *version);
    if found > known {
        return Err(JournalError::NewerSchema { journal: place.name(), found, known });
    }
    for (version, _, checksum) in &applied {
        let migration = migrator.iter().find(|migration| migration.version == *version);
        if migration.is_none_or(|migration| *migration.checksum != **checksum) {
            return Err(place.corrupt(format!("step {version} of its schema is not what it was"), None));
        }
    }
    Ok(Found::Journal(found))
}

/// The newest step that this version knows.
fn newest(migrator: &Migrator) -> i64 {
    migrator.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// The steps of the schema, oldest first. One that was released is never changed.
fn migrator() -> Migrator {
    let steps = [(1, OURS, include_str!("../../migrations/postgres/0001_journal.sql"))];
    let migrations = steps.map(|(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.into())
}
