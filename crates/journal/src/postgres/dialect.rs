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

/// A statement that counts records and inserts them: each statement is a round trip to the server. `{counts}` is the
/// update that counts them, with the number of those before as `$2` and their time as `$5`; `{bodies}` the parameter
/// that lists what they say.
pub(super) const TOGETHER: Option<&str> = Some(
    "WITH counted AS ({counts} RETURNING id) \
     INSERT INTO records (intent, seq, at, body) \
     SELECT counted.id, $2 + listed.place, $5, listed.body FROM counted, \
     json_array_elements_text({bodies}::json) WITH ORDINALITY AS listed (body, place)",
);
