//! Connections whose sessions are set up.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, ConnectOptions as _, postgres::PgConnectOptions};

use super::{Connection, PostgresConfig, place};
use crate::lane::Connector;

/// What a connection is for.
#[derive(Clone, Copy)]
pub(super) enum Use {
    Reading,
    Writing,
}

pub(super) struct PgConnector {
    options: PgConnectOptions,
    /// What is said to the server first.
    session: String,
    patience: Duration,
}

impl PgConnector {
    pub(super) fn new(options: PgConnectOptions, config: &PostgresConfig, purpose: Use) -> Self {
        let milliseconds = |duration: Duration| duration.as_millis().clamp(1, i32::MAX as u128);
        let settings = [
            // The second word keeps temporary tables from being found first.
            ("search_path", format!("{}, pg_temp", config.schema)),
            ("synchronous_commit", "on".to_owned()),
            // The statements are written for this one; a server's default may be another.
            ("default_transaction_isolation", "'read committed'".to_owned()),
            ("lock_timeout", milliseconds(config.lock_timeout).to_string()),
            ("statement_timeout", milliseconds(config.statement_timeout).to_string()),
            // Shorter than others wait for the locks.
            (
                "idle_in_transaction_session_timeout",
                milliseconds(config.lock_timeout.saturating_mul(4) / 5).to_string(),
            ),
            ("client_min_messages", "warning".to_owned()),
        ];
        let mut session: String =
            settings.iter().map(|(name, value)| format!("SET {name} TO {value}; ")).collect();
        match purpose {
            Use::Reading => session += "SET default_transaction_read_only TO on",
            // The server's own default stands: it may have been set on purpose.
            Use::Writing => {}
        }
        // Statements are not logged: sqlx would format every one of them for it.
        Self { options: options.disable_statement_logging(), session, patience: config.connect_timeout }
    }

    async fn connect(&self) -> Result<Connection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(self.session.as_str())).execute(&mut connection).await?;
        Ok(connection)
    }
}

#[async_trait]
impl Connector<Connection> for PgConnector {
    async fn open(&self) -> Result<Connection, sqlx::Error> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            let left = self.patience.saturating_sub(begun.elapsed());
            let failed = match tokio::time::timeout(left, self.connect()).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => error,
                Err(_) => {
                    let said = format!("no answer within {:?}", self.patience);
                    return Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, said)));
                }
            };
            if !place::may_pass(&failed) || begun.elapsed() + pause >= self.patience {
                return Err(failed);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }
}
