//! The words of SQL that are PostgreSQL's own.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// A statement with these words put in: `{now}`, the database's clock in milliseconds since 1970, as it is and not as
/// it was when the transaction began; `{update}`, a lock of the rows that nobody else has.
pub(super) fn text(statement: &str) -> SqlStr {
    let text = statement
        .replace("{now}", "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)")
        .replace("{update}", "FOR UPDATE SKIP LOCKED");
    AssertSqlSafe(text).into_sql_str()
}
