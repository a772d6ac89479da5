//! The statements. Each text is prepared once for a connection, by sqlx's cache.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256};
use backstay_core::tx::{Record, RecordEffect, StepId};
use sqlx::sqlite::SqliteConnection;

use super::place::Place;
use crate::{
    Entry, IntentId, JournalError, NewIntent, Stored,
    effects::{ends, storable_chain, storable_nonce},
    envelope::{self, Unreadable},
    journal::{at_millis, millis_now},
};

type Result<T, E = JournalError> = std::result::Result<T, E>;

/// Waits for the write lock, and holds it: a deferred transaction could find out half way that somebody
/// else has written.
pub(super) async fn begin(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("BEGIN IMMEDIATE").execute(connection).await.map(drop)
}

pub(super) async fn commit(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("COMMIT").execute(connection).await.map(drop)
}

pub(super) async fn rollback(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("ROLLBACK").execute(connection).await.map(drop)
}

pub(super) async fn load(
    place: &Place,
    connection: &mut SqliteConnection,
    chain_id: u64,
    key: &str,
) -> Result<Option<Stored>> {
    let Ok(chain) = storable_chain(chain_id) else { return Ok(None) };
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT i.id, i.key, i.records, r.seq, r.at, r.body \
         FROM intents i LEFT JOIN records r ON r.intent = i.id \
         WHERE i.chain_id = ?1 AND i.key = ?2 ORDER BY r.seq",
    )
    .bind(chain)
    .bind(key)
    .fetch_all(connection)
    .await
    .map_err(|e| place.failure(e))?;
    Ok(gather(place, chain_id, rows)?.pop())
}

pub(super) async fn unfinished(
    place: &Place,
    connection: &mut SqliteConnection,
    chain_id: u64,
) -> Result<Vec<Stored>> {
    let Ok(chain) = storable_chain(chain_id) else { return Ok(Vec::new()) };
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT i.id, i.key, i.records, r.seq, r.at, r.body \
         FROM intents i LEFT JOIN records r ON r.intent = i.id \
         WHERE i.chain_id = ?1 AND i.finished = 0 ORDER BY i.id, r.seq",
    )
    .bind(chain)
    .fetch_all(connection)
    .await
    .map_err(|e| place.failure(e))?;
    gather(place, chain_id, rows)
}

pub(super) async fn create(
    place: &Place,
    connection: &mut SqliteConnection,
    intent: NewIntent,
) -> Result<Stored> {
    let records = intent.records();
    let created =
        sqlx::query("INSERT INTO intents (chain_id, key, account, records) VALUES (?1, ?2, ?3, ?4)")
            .bind(storable_chain(intent.chain_id)?)
            .bind(&intent.key)
            .bind(intent.account.as_slice())
            .bind(records.len() as i64)
            .execute(&mut *connection)
            .await
            .map_err(|e| place.failure(e))?;
    let id = created.last_insert_rowid();
    let at = millis_now();
    for (seq, record) in (1..).zip(&records) {
        insert(place, connection, id, seq, at, record).await?;
    }
    let entries = records.into_iter().map(|record| Entry { at: at_millis(at), record }).collect();
    Ok(Stored { id: id_of(id), chain_id: intent.chain_id, key: intent.key, created: true, entries })
}

pub(super) async fn append(
    place: &Place,
    connection: &mut SqliteConnection,
    intent: IntentId,
    after: u64,
    records: &[Record],
) -> Result<()> {
    let unknown = JournalError::UnknownIntent { intent };
    let Ok(id) = i64::try_from(intent.get()) else { return Err(unknown) };
    let held: Option<(i64, Vec<u8>, i64, bool)> =
        sqlx::query_as("SELECT chain_id, account, records, finished FROM intents WHERE id = ?1")
            .bind(id)
            .fetch_optional(&mut *connection)
            .await
            .map_err(|e| place.failure(e))?;
    let Some((chain, account, found, finished)) = held else { return Err(unknown) };
    if finished {
        return Err(JournalError::Finished { intent });
    }
    if i64::try_from(after) != Ok(found) {
        return Err(JournalError::Conflict { after, found: found as u64 });
    }
    let finishes = ends(records).ok_or(JournalError::Finished { intent })?;

    let line = Line { chain, account: &account, intent: id };
    let at = millis_now();
    for (seq, record) in (found + 1..).zip(records) {
        insert(place, connection, id, seq, at, record).await?;
        match record.effect() {
            Some(RecordEffect::Take { nonce, step }) => take(place, connection, line, nonce, step).await?,
            Some(RecordEffect::Release { nonce }) => release(place, connection, line, nonce).await?,
            Some(RecordEffect::Finish) | None => {}
        }
    }
    sqlx::query("UPDATE intents SET records = records + ?2, finished = ?3 WHERE id = ?1")
        .bind(id)
        .bind(records.len() as i64)
        .bind(finishes)
        .execute(connection)
        .await
        .map_err(|e| place.failure(e))?;
    Ok(())
}

pub(super) async fn slots(
    place: &Place,
    connection: &mut SqliteConnection,
    chain_id: u64,
    account: Address,
    from: u64,
) -> Result<BTreeMap<u64, String>> {
    let (Ok(chain), Ok(from)) = (storable_chain(chain_id), storable_nonce(from)) else {
        return Ok(BTreeMap::new());
    };
    let rows: Vec<(i64, String)> = sqlx::query_as(
        "SELECT s.nonce, i.key FROM slots s JOIN intents i ON i.id = s.intent \
         WHERE s.chain_id = ?1 AND s.account = ?2 AND s.nonce >= ?3",
    )
    .bind(chain)
    .bind(account.as_slice())
    .bind(from)
    .fetch_all(connection)
    .await
    .map_err(|e| place.failure(e))?;
    Ok(rows.into_iter().map(|(nonce, key)| (nonce as u64, key)).collect())
}

pub(super) async fn genesis(
    place: &Place,
    connection: &mut SqliteConnection,
    chain_id: u64,
) -> Result<Option<B256>> {
    let Ok(chain) = storable_chain(chain_id) else { return Ok(None) };
    let row: Option<(Vec<u8>,)> = sqlx::query_as("SELECT hash FROM genesis WHERE chain_id = ?1")
        .bind(chain)
        .fetch_optional(connection)
        .await
        .map_err(|e| place.failure(e))?;
    let Some((hash,)) = row else { return Ok(None) };
    let hash = B256::try_from(&hash[..])
        .map_err(|_| place.corrupt(format!("the genesis of chain {chain_id} is no hash"), None))?;
    Ok(Some(hash))
}

pub(super) async fn record_genesis(
    place: &Place,
    connection: &mut SqliteConnection,
    chain_id: u64,
    hash: B256,
) -> Result<B256> {
    sqlx::query("INSERT INTO genesis (chain_id, hash) VALUES (?1, ?2) ON CONFLICT (chain_id) DO NOTHING")
        .bind(storable_chain(chain_id)?)
        .bind(hash.as_slice())
        .execute(&mut *connection)
        .await
        .map_err(|e| place.failure(e))?;
    Ok(genesis(place, connection, chain_id).await?.unwrap_or(hash))
}

async fn insert(
    place: &Place,
    connection: &mut SqliteConnection,
    intent: i64,
    seq: i64,
    at: u64,
    record: &Record,
) -> Result<()> {
    let body = envelope::seal(record)
        .map_err(|e| JournalError::Backend { journal: place.name(), source: e.into() })?;
    sqlx::query("INSERT INTO records (intent, seq, at, body) VALUES (?1, ?2, ?3, ?4)")
        .bind(intent)
        .bind(seq)
        .bind(at as i64)
        .bind(body)
        .execute(connection)
        .await
        .map_err(|e| place.failure(e))?;
    Ok(())
}

/// An intent on the nonce line of its account.
#[derive(Clone, Copy)]
struct Line<'a> {
    chain: i64,
    account: &'a [u8],
    intent: i64,
}

async fn take(
    place: &Place,
    connection: &mut SqliteConnection,
    line: Line<'_>,
    nonce: u64,
    step: StepId,
) -> Result<()> {
    // `Debug` is not stable enough to be stored.
    let step = serde_json::to_string(&step)
        .map_err(|e| JournalError::Backend { journal: place.name(), source: e.into() })?;
    let taken = sqlx::query(
        "INSERT INTO slots (chain_id, account, nonce, intent, step) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (chain_id, account, nonce) DO NOTHING",
    )
    .bind(line.chain)
    .bind(line.account)
    .bind(storable_nonce(nonce)?)
    .bind(line.intent)
    .bind(&step)
    .execute(&mut *connection)
    .await
    .map_err(|e| place.failure(e))?;
    if taken.rows_affected() == 1 {
        return Ok(());
    }

    let (holder, its_step, key): (i64, String, String) = sqlx::query_as(
        "SELECT s.intent, s.step, i.key FROM slots s JOIN intents i ON i.id = s.intent \
         WHERE s.chain_id = ?1 AND s.account = ?2 AND s.nonce = ?3",
    )
    .bind(line.chain)
    .bind(line.account)
    .bind(storable_nonce(nonce)?)
    .fetch_one(connection)
    .await
    .map_err(|e| place.failure(e))?;
    // One more attempt of the step that holds it.
    if holder == line.intent && its_step == step {
        return Ok(());
    }
    Err(JournalError::SlotTaken { nonce, key })
}

async fn release(place: &Place, connection: &mut SqliteConnection, line: Line<'_>, nonce: u64) -> Result<()> {
    let released =
        sqlx::query("DELETE FROM slots WHERE chain_id = ?1 AND account = ?2 AND nonce = ?3 AND intent = ?4")
            .bind(line.chain)
            .bind(line.account)
            .bind(storable_nonce(nonce)?)
            .bind(line.intent)
            .execute(connection)
            .await
            .map_err(|e| place.failure(e))?;
    if released.rows_affected() == 0 {
        return Err(JournalError::SlotNotHeld { nonce });
    }
    Ok(())
}

/// One record of an intent: id, key, how many records there should be, then its place, time and body.
/// The last three are null where an intent has no record, which no append leaves behind.
type Row = (i64, String, i64, Option<i64>, Option<i64>, Option<String>);

/// The intents that the rows are about, in the rows' order. Rows of one intent are neighbours.
fn gather(place: &Place, chain_id: u64, rows: Vec<Row>) -> Result<Vec<Stored>> {
    let mut gathered: Vec<Stored> = Vec::new();
    let mut rows = rows.into_iter().peekable();
    while let Some((id, key, count, seq, at, body)) = rows.next() {
        if gathered.last().is_none_or(|stored| stored.id != id_of(id)) {
            let entries = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
            gathered.push(Stored { id: id_of(id), chain_id, key, created: false, entries });
        }
        let stored = gathered.last_mut().expect("one was pushed just now, or was there");
        let missing = |seq| place.corrupt(format!("record {seq} of intent {id} is missing"), None);

        let next = stored.seen() as i64 + 1;
        let (Some(seq), Some(at), Some(body)) = (seq, at, body) else { return Err(missing(next)) };
        if seq != next {
            return Err(missing(next));
        }
        let record = envelope::unseal(&body).map_err(|unreadable| match unreadable {
            Unreadable::Newer(found) => {
                JournalError::NewerSchema { journal: place.name(), found, known: envelope::VERSION }
            }
            Unreadable::Damaged(error) => JournalError::Corrupt {
                journal: place.name(),
                what: format!("record {seq} of intent {id} cannot be read"),
                source: Some(error.into()),
            },
        })?;
        stored.entries.push(Entry { at: at_millis(at.max(0) as u64), record });

        let last = rows.peek().is_none_or(|(next, ..)| *next != id);
        if last && seq != count {
            return Err(missing(seq + 1));
        }
    }
    Ok(gathered)
}

fn id_of(id: i64) -> IntentId {
    IntentId::new(id as u64)
}
