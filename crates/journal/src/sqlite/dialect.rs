//! The words of SQL that are SQLite's own.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// A statement with these words put in: `{now}`, the database's clock in milliseconds since 1970; `{update}`, a lock
/// of rows, which the one writer of SQLite does not need.
pub(super) fn text(statement: &str) -> SqlStr {
    let text =
        statement.replace("{now}", "CAST(unixepoch('subsec') * 1000 AS INTEGER)").replace("{update}", "");
    AssertSqlSafe(text).into_sql_str()
}

/// Checks, counts and inserts a record of an owner in one go, since each statement goes to the connection's thread and
/// back: `$1` the intent, `$2` the records before, `$3` the state, `$4` the time, `$5` to `$7` chain, account and token,
/// `$8` the body; and how many rows it says when all of it was done.
pub(super) const RECORDED: (&str, u64) = (
    "UPDATE intents SET records = records + 1, state = $3, changed = CASE WHEN $3 = 0 THEN changed ELSE $4 END \
     WHERE id = $1 AND records = $2 AND state < 2 AND chain_id = $5 AND account = $6 \
     AND EXISTS (SELECT 1 FROM lines WHERE chain_id = $5 AND account = $6 AND token = $7); \
     INSERT INTO records (intent, seq, at, body) SELECT $1, $2 + 1, $4, $8 WHERE changes() = 1",
    2,
);

/// The same for one that takes nonce `$9` for step `$10`.
pub(super) const SIGNED: (&str, u64) = (
    "UPDATE intents SET records = records + 1, state = $3, signed = 1 \
     WHERE id = $1 AND records = $2 AND state < 2 AND chain_id = $5 AND account = $6 \
     AND EXISTS (SELECT 1 FROM lines WHERE chain_id = $5 AND account = $6 AND token = $7); \
     INSERT INTO records (intent, seq, at, body) SELECT $1, $2 + 1, $4, $8 WHERE changes() = 1; \
     INSERT INTO slots (chain_id, account, nonce, intent, step) SELECT $5, $6, $9, $1, $10 WHERE changes() = 1 \
     ON CONFLICT (chain_id, account, nonce) DO NOTHING",
    3,
);
