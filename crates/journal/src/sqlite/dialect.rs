//! The words of SQL that are SQLite's own.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// A statement with these words put in: `{now}`, the database's clock in milliseconds since 1970; `{update}`, a lock
/// of rows, which the one writer of SQLite does not need.
pub(super) fn text(statement: &str) -> SqlStr {
    let text =
        statement.replace("{now}", "CAST(unixepoch('subsec') * 1000 AS INTEGER)").replace("{update}", "");
    AssertSqlSafe(text).into_sql_str()
}

/// A statement that counts records and inserts them: SQLite has none.
pub(super) const TOGETHER: Option<&str> = None;
