//! The words of SQL that are SQLite's own.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// Waits for the write lock, and holds it: a deferred transaction could find out half way that somebody
/// else has written.
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";

/// A statement with these words put in: `{now}`, the database's clock in milliseconds since 1970; `{share}` and
/// `{update}`, locks of rows, which the one writer of SQLite does not need.
pub(super) fn text(statement: &str) -> SqlStr {
    let text = statement
        .replace("{now}", "CAST(unixepoch('subsec') * 1000 AS INTEGER)")
        .replace("{share}", "")
        .replace("{update}", "");
    AssertSqlSafe(text).into_sql_str()
}
