//! Intents and their records. Each text is prepared once for a connection, by sqlx's cache.

use std::iter;

use alloy_primitives::Address;
use backstay_core::tx::{Record, RecordEffect};

use super::{
    Connection, Place, Result, dialect,
    lines::{self, Holder},
};
use crate::{
    Author, Claim, Entry, IntentId, JournalError, Line, NewIntent, State, Stored, Tombstone,
    effects::{check_key, ends, following, state_number, state_of, storable_chain, storable_nonce},
    envelope::{self, Unreadable},
    journal::{at_millis, millis_now},
};

pub(super) async fn load(
    place: &Place,
    connection: &mut Connection,
    chain_id: u64,
    key: &str,
) -> Result<Option<Stored>> {
    let (Ok(chain), Ok(())) = (storable_chain(chain_id), check_key(key)) else { return Ok(None) };
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT i.id, i.account, i.records, i.tombstone, r.seq, r.at, r.body \
         FROM intents i LEFT JOIN records r ON r.intent = i.id \
         WHERE i.chain_id = $1 AND i.key = $2 ORDER BY r.seq",
    )
    .bind(chain)
    .bind(key)
    .fetch_all(connection)
    .await
    .map_err(|e| place.failure(e))?;
    gather(place, chain_id, key, rows)
}

/// Creates an intent; `None` where its key is taken.
pub(super) async fn create(
    place: &Place,
    connection: &mut Connection,
    new: &NewIntent,
) -> Result<Option<Stored>> {
    let records = new.records();
    let at = millis_now();
    let created: Option<(i64,)> = sqlx::query_as(
        "INSERT INTO intents (chain_id, key, account, records, state, opened, changed) \
         VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (chain_id, key) DO NOTHING RETURNING id",
    )
    .bind(storable_chain(new.chain_id)?)
    .bind(&new.key)
    .bind(new.account.as_slice())
    .bind(records.len() as i64)
    .bind(state_number(State::Due))
    .bind(at as i64)
    .fetch_optional(&mut *connection)
    .await
    .map_err(|e| place.failure(e))?;
    let Some((id,)) = created else { return Ok(None) };
    for (seq, record) in (1..).zip(&records) {
        insert(place, connection, id, seq, at, sealed(place, record)?).await?;
    }
    let entries = records.into_iter().map(|record| Entry { at: at_millis(at), record }).collect();
    Ok(Some(Stored {
        id: IntentId::new(id as u64),
        chain_id: new.chain_id,
        key: new.key.clone(),
        account: new.account,
        created: true,
        entries,
        tombstone: None,
    }))
}

pub(super) async fn append(
    place: &Place,
    connection: &mut Connection,
    author: Author,
    intent: IntentId,
    after: u64,
    records: &[Record],
) -> Result<()> {
    // One statement checks everything and counts the records; only where it finds something amiss is it asked what.
    let at = millis_now();
    let bodies = records.iter().map(|record| sealed(place, record)).collect::<Result<Vec<_>>>()?;
    if !advance(place, connection, author, intent, after, records, at).await? {
        return refusal(place, connection, author, intent, after, records).await;
    }
    // Nobody else has appended since it was seen, nor does until this transaction ends.
    let id = intent.get() as i64;
    for ((seq, record), body) in (after as i64 + 1..).zip(records).zip(bodies) {
        insert(place, connection, id, seq, at, body).await?;
        // What callers write takes no nonce and frees none.
        let Author::Owner(Claim { line, .. }) = author else { continue };
        let holder = Holder { line, intent: id };
        match record.effect() {
            Some(RecordEffect::Take { nonce, step }) => {
                lines::take(place, connection, holder, nonce, step).await?;
            }
            Some(RecordEffect::Release { nonce }) => lines::free(place, connection, holder, nonce).await?,
            Some(RecordEffect::Lose { nonce }) => {
                lines::free(place, connection, holder, nonce).await?;
                lines::account_for(place, connection, line, following(nonce)).await?;
            }
            Some(RecordEffect::Finish) | None => {}
        }
    }
    Ok(())
}

/// Counts records that are about to be appended; `false` where they cannot be.
async fn advance(
    place: &Place,
    connection: &mut Connection,
    author: Author,
    intent: IntentId,
    after: u64,
    records: &[Record],
    at: u64,
) -> Result<bool> {
    let (Ok(id), Ok(seen)) = (i64::try_from(intent.get()), i64::try_from(after)) else { return Ok(false) };
    let (Some(state), Some(_)) = (State::after(records), ends(records)) else { return Ok(false) };
    let text = match author {
        Author::Owner(_) => {
            "UPDATE intents SET records = records + $3, state = $4, \
             changed = CASE WHEN $4 = 0 THEN changed ELSE $5 END, \
             signed = CASE WHEN $6 = 1 THEN 1 ELSE signed END \
             WHERE id = $1 AND records = $2 AND state < 2 AND chain_id = $7 AND account = $8 \
             AND EXISTS (SELECT 1 FROM lines WHERE chain_id = $7 AND account = $8 AND token = $9)"
        }
        Author::Caller if records.iter().all(Record::is_of_caller) => {
            "UPDATE intents SET records = records + $3, state = $4, \
             changed = CASE WHEN $4 = 0 THEN changed ELSE $5 END, \
             signed = CASE WHEN $6 = 1 THEN 1 ELSE signed END \
             WHERE id = $1 AND records = $2 AND state < 2"
        }
        Author::Caller => return Ok(false),
    };
    let signs = records.iter().any(|record| matches!(record.effect(), Some(RecordEffect::Take { .. })));
    let counting = sqlx::query(text)
        .bind(id)
        .bind(seen)
        .bind(records.len() as i64)
        .bind(state_number(state))
        .bind(at as i64)
        .bind(i64::from(signs));
    let counting = match author {
        Author::Owner(Claim { line, token }) => {
            let (Ok(chain), Ok(token)) = (storable_chain(line.chain_id), i64::try_from(token)) else {
                return Ok(false);
            };
            counting.bind(chain).bind(line.account.to_vec()).bind(token)
        }
        Author::Caller => counting,
    };
    let counted = counting.execute(connection).await.map_err(|e| place.failure(e))?;
    Ok(counted.rows_affected() == 1)
}

/// One record of the owner of a line, which mostly it is: what checks, counts and inserts it is one statement then.
pub(super) struct One<'a> {
    claim: Claim,
    record: &'a Record,
    /// The nonce that it takes, and its step as it is stored.
    slot: Option<(i64, String)>,
}

impl<'a> One<'a> {
    /// The record, where it is one whose effect that statement has.
    pub(super) fn of(author: Author, records: &'a [Record]) -> Option<Self> {
        let (Author::Owner(claim), [record]) = (author, records) else { return None };
        let slot = match record.effect() {
            None | Some(RecordEffect::Finish) => None,
            Some(RecordEffect::Take { nonce, step }) => {
                Some((storable_nonce(nonce).ok()?, serde_json::to_string(&step).ok()?))
            }
            Some(RecordEffect::Release { .. } | RecordEffect::Lose { .. }) => return None,
        };
        Some(Self { claim, record, slot })
    }

    /// Appends it; `false` where anything was amiss: then half of it may be done, to be rolled back, and the other way
    /// of appending finds out what it was.
    pub(super) async fn append(
        self,
        place: &Place,
        connection: &mut Connection,
        intent: IntentId,
        after: u64,
    ) -> Result<bool> {
        let Self { claim: Claim { line, token }, record, slot } = self;
        let (Ok(id), Ok(seen)) = (i64::try_from(intent.get()), i64::try_from(after)) else {
            return Ok(false);
        };
        let (Ok(chain), Ok(token)) = (storable_chain(line.chain_id), i64::try_from(token)) else {
            return Ok(false);
        };
        let Some(state) = State::after(std::slice::from_ref(record)) else { return Ok(false) };
        let (text, rows) = if slot.is_some() { dialect::SIGNED } else { dialect::RECORDED };
        let appending = sqlx::query(text)
            .bind(id)
            .bind(seen)
            .bind(state_number(state))
            .bind(millis_now() as i64)
            .bind(chain)
            .bind(line.account.to_vec())
            .bind(token)
            .bind(sealed(place, record)?);
        let appending = match slot {
            Some((nonce, step)) => appending.bind(nonce).bind(step),
            None => appending,
        };
        let appended = appending.execute(connection).await.map_err(|e| place.failure(e))?;
        Ok(appended.rows_affected() == rows)
    }
}

/// Why records cannot be appended.
async fn refusal(
    place: &Place,
    connection: &mut Connection,
    author: Author,
    intent: IntentId,
    after: u64,
    records: &[Record],
) -> Result<()> {
    let unknown = JournalError::UnknownIntent { intent };
    let Ok(id) = i64::try_from(intent.get()) else { return Err(unknown) };
    let held: Option<(i64, Vec<u8>, i64, i64)> =
        sqlx::query_as("SELECT chain_id, account, records, state FROM intents WHERE id = $1")
            .bind(id)
            .fetch_optional(&mut *connection)
            .await
            .map_err(|e| place.failure(e))?;
    let Some((chain, account, found, state)) = held else { return Err(unknown) };
    let damaged = || place.corrupt(format!("intent {id} cannot be read"), None);
    let account = Address::try_from(&account[..]).map_err(|_| damaged())?;
    let line = Line { chain_id: chain as u64, account };
    let owns = match author {
        Author::Owner(claim) => claim.line == line && lines::holds(place, connection, claim).await?,
        Author::Caller => records.iter().all(Record::is_of_caller),
    };
    if !owns {
        return Err(JournalError::ClaimLost { account });
    }
    match state_of(state).ok_or_else(damaged)? {
        State::Due | State::Stopped => {}
        State::Finished | State::Pruned => return Err(JournalError::Finished { intent }),
    }
    if i64::try_from(after) != Ok(found) {
        return Err(JournalError::Conflict { after, found: found as u64 });
    }
    ends(records).ok_or(JournalError::Finished { intent })?;
    match records {
        [] => Ok(()),
        // Somebody else has appended between the two looks.
        _ => Err(JournalError::Conflict { after, found: after + 1 }),
    }
}

fn sealed(place: &Place, record: &Record) -> Result<String> {
    envelope::seal(record).map_err(|e| JournalError::Backend { journal: place.name(), source: e.into() })
}

async fn insert(
    place: &Place,
    connection: &mut Connection,
    intent: i64,
    seq: i64,
    at: u64,
    body: String,
) -> Result<()> {
    sqlx::query("INSERT INTO records (intent, seq, at, body) VALUES ($1, $2, $3, $4)")
        .bind(intent)
        .bind(seq)
        .bind(at as i64)
        .bind(body)
        .execute(connection)
        .await
        .map_err(|e| place.failure(e))?;
    Ok(())
}

/// One record of an intent: id, account, how many records there should be, its tombstone, then the record's place,
/// time and body. The last three are null where an intent has no record, as after pruning.
type Row = (i64, Vec<u8>, i64, Option<String>, Option<i64>, Option<i64>, Option<String>);

/// The intent that the rows are about.
fn gather(place: &Place, chain_id: u64, key: &str, rows: Vec<Row>) -> Result<Option<Stored>> {
    let mut rows = rows.into_iter();
    let Some(first) = rows.next() else { return Ok(None) };
    let (id, count, buried) = (first.0, first.2, first.3.clone());
    let account = Address::try_from(&first.1[..])
        .map_err(|_| place.corrupt(format!("the account of intent {id} cannot be read"), None))?;
    let unreadable = |what: &str, unreadable| match unreadable {
        Unreadable::Newer(found) => {
            JournalError::NewerSchema { journal: place.name(), found, known: envelope::VERSION }
        }
        Unreadable::Damaged(error) => JournalError::Corrupt {
            journal: place.name(),
            what: format!("{what} of intent {id} cannot be read"),
            source: Some(error.into()),
        },
    };
    let mut stored = Stored {
        id: IntentId::new(id as u64),
        chain_id,
        key: key.to_owned(),
        account,
        created: false,
        entries: Vec::with_capacity(usize::try_from(count).unwrap_or_default().min(rows.len() + 1)),
        tombstone: None,
    };
    if let Some(buried) = buried {
        let tombstone: Tombstone = envelope::unseal(&buried).map_err(|e| unreadable("the tombstone", e))?;
        stored.tombstone = Some(tombstone);
        return Ok(Some(stored));
    }
    for (expected, row) in (1..).zip(iter::once(first).chain(rows)) {
        let (_, _, _, _, Some(seq), Some(at), Some(body)) = row else { break };
        if seq != expected {
            break;
        }
        let record = envelope::unseal(&body).map_err(|e| unreadable(&format!("record {seq}"), e))?;
        stored.entries.push(Entry { at: at_millis(at.max(0) as u64), record });
    }
    if stored.seen() as i64 != count {
        return Err(place.corrupt(format!("record {} of intent {id} is missing", stored.seen() + 1), None));
    }
    Ok(Some(stored))
}
