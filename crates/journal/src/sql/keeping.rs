//! What the journal holds as a whole: lists, pruning, and which chains it is of.

use std::time::Duration;

use alloy_primitives::{Address, B256};

use super::{Connection, Place, Result, dialect, intents, lines};
use crate::{
    IntentId, JournalError, Line, Query, State, Summary, Tombstone,
    effects::{check_key, following, state_number, state_of, storable_chain},
    envelope,
    journal::{at_millis, millis_now},
};

type Row = (i64, i64, String, Vec<u8>, i64, i64, i64, i64, i64);

pub(super) async fn list(place: &Place, connection: &mut Connection, query: &Query) -> Result<Vec<Summary>> {
    let chain = match query.chain_id.map(storable_chain) {
        Some(Err(_)) => return Ok(Vec::new()),
        Some(Ok(chain)) => Some(chain),
        None => None,
    };
    if query.key.as_deref().is_some_and(|key| check_key(key).is_err()) {
        return Ok(Vec::new());
    }
    let after = query.after.map_or(0, |id| i64::try_from(id.get()).unwrap_or(i64::MAX));
    let states = if query.states.is_empty() { &State::ALL[..] } else { &query.states };
    // Written out, not bound: so the planner sees which of the partial indexes serves.
    let numbers: Vec<String> = states.iter().map(|state| state_number(*state).to_string()).collect();
    let open = states.iter().all(|state| matches!(state, State::Due | State::Stopped));
    let mut text = format!(
        "SELECT id, chain_id, key, account, state, records, signed, opened, coalesce( \
             (SELECT at FROM records WHERE intent = intents.id ORDER BY seq DESC LIMIT 1), changed) \
         FROM intents \
         WHERE state IN ({}) AND id > $1",
        numbers.join(", ")
    );
    if open {
        text += " AND state < 2";
    }
    let conditions =
        [("chain_id", chain.is_some()), ("account", query.account.is_some()), ("key", query.key.is_some())];
    for ((column, _), number) in conditions.iter().filter(|(_, asked)| *asked).zip(2..) {
        text += &format!(" AND {column} = ${number}");
    }
    text += &format!(" ORDER BY id LIMIT {}", query.limit);
    let mut asked = sqlx::query_as(sqlx::AssertSqlSafe(text)).bind(after);
    if let Some(chain) = chain {
        asked = asked.bind(chain);
    }
    if let Some(account) = query.account {
        asked = asked.bind(account.to_vec());
    }
    if let Some(key) = &query.key {
        asked = asked.bind(key);
    }
    let rows: Vec<Row> = asked.fetch_all(connection).await.map_err(|e| place.failure(e))?;
    let summary = |(id, chain_id, key, account, state, records, signed, opened, changed): Row| {
        let damaged = || place.corrupt(format!("intent {id} cannot be read"), None);
        Ok(Summary {
            id: IntentId::new(id as u64),
            chain_id: chain_id as u64,
            key,
            account: Address::try_from(&account[..]).map_err(|_| damaged())?,
            state: state_of(state).ok_or_else(damaged)?,
            records: records as u64,
            signed: signed != 0,
            opened: at_millis(opened.max(0) as u64),
            changed: at_millis(changed.max(0) as u64),
        })
    };
    rows.into_iter().map(summary).collect()
}

pub(super) async fn prune(
    place: &Place,
    connection: &mut Connection,
    chain_id: u64,
    older_than: Duration,
    limit: u32,
) -> Result<u32> {
    let Ok(chain) = storable_chain(chain_id) else { return Ok(0) };
    let age = u64::try_from(older_than.as_millis()).unwrap_or(u64::MAX);
    let before = i64::try_from(millis_now().saturating_sub(age)).unwrap_or(i64::MAX);
    let text = dialect::text(
        "SELECT id, key, account FROM intents WHERE chain_id = $1 AND changed <= $2 AND (state = 2 OR (state = 1 AND signed = 0)) \
         ORDER BY changed, id LIMIT $3 {update}",
    );
    let mut old: Vec<(i64, String, Vec<u8>)> = sqlx::query_as(text)
        .bind(chain)
        .bind(before)
        .bind(i64::from(limit))
        .fetch_all(&mut *connection)
        .await
        .map_err(|e| place.failure(e))?;
    // Each locks its account's line until all are done: in one order, so that no two that prune wait for each other.
    old.sort_by(|(_, _, one), (_, _, other)| one.cmp(other));
    for (id, key, _) in &old {
        bury(place, connection, chain_id, *id, key).await?;
    }
    Ok(old.len() as u32)
}

/// Removes the records of an intent, and puts up its tombstone.
async fn bury(place: &Place, connection: &mut Connection, chain_id: u64, id: i64, key: &str) -> Result<()> {
    let stored = intents::load(place, connection, chain_id, key).await?;
    let Some(stored) = stored.filter(|stored| stored.id.get() == id as u64) else { return Ok(()) };
    let tombstone = Tombstone::of(stored.records());
    let held: (Option<i64>,) = sqlx::query_as("SELECT max(nonce) FROM slots WHERE intent = $1")
        .bind(id)
        .fetch_one(&mut *connection)
        .await
        .map_err(|e| place.failure(e))?;
    if let (Some(nonce),) = held {
        let line = Line { chain_id, account: stored.account };
        lines::account_for(place, connection, line, following(nonce as u64)).await?;
    }
    for text in ["DELETE FROM slots WHERE intent = $1", "DELETE FROM records WHERE intent = $1"] {
        sqlx::query(text).bind(id).execute(&mut *connection).await.map_err(|e| place.failure(e))?;
    }
    match tombstone {
        Some(tombstone) => {
            let body = envelope::seal(&tombstone)
                .map_err(|e| JournalError::Backend { journal: place.name(), source: e.into() })?;
            sqlx::query("UPDATE intents SET state = 3, tombstone = $2 WHERE id = $1")
                .bind(id)
                .bind(body)
                .execute(connection)
                .await
        }
        None => sqlx::query("DELETE FROM intents WHERE id = $1").bind(id).execute(connection).await,
    }
    .map_err(|e| place.failure(e))?;
    Ok(())
}

pub(super) async fn genesis(
    place: &Place,
    connection: &mut Connection,
    chain_id: u64,
) -> Result<Option<B256>> {
    let Ok(chain) = storable_chain(chain_id) else { return Ok(None) };
    let row: Option<(Vec<u8>,)> = sqlx::query_as("SELECT hash FROM genesis WHERE chain_id = $1")
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
    connection: &mut Connection,
    chain_id: u64,
    hash: B256,
) -> Result<B256> {
    sqlx::query("INSERT INTO genesis (chain_id, hash) VALUES ($1, $2) ON CONFLICT (chain_id) DO NOTHING")
        .bind(storable_chain(chain_id)?)
        .bind(hash.as_slice())
        .execute(&mut *connection)
        .await
        .map_err(|e| place.failure(e))?;
    Ok(genesis(place, connection, chain_id).await?.unwrap_or(hash))
}
