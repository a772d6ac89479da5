//! The lines of accounts: who holds them, and their nonces.

use std::time::Duration;

use backstay_core::tx::StepId;

use super::{Connection, Place, Result, dialect};
use crate::{
    Claim, Claiming, JournalError, Line, LineState, Owner, State,
    effects::{following, state_of, storable_chain, storable_nonce},
};

pub(super) async fn claim(
    place: &Place,
    connection: &mut Connection,
    line: Line,
    owner: &Owner,
    ttl: Duration,
) -> Result<Claiming> {
    let chain = storable_chain(line.chain_id)?;
    let text = dialect::text(
        "INSERT INTO lines (chain_id, account, owner, token, until, ttl) \
         VALUES ($1, $2, $3, 1, {now} + $4, $4) \
         ON CONFLICT (chain_id, account) DO UPDATE SET \
             token = CASE WHEN lines.owner = excluded.owner THEN lines.token ELSE lines.token + 1 END, \
             owner = excluded.owner, until = excluded.until, ttl = excluded.ttl \
         WHERE lines.owner = excluded.owner OR lines.until <= {now} OR lines.until > {now} + lines.ttl \
         RETURNING token",
    );
    let held: Option<(i64,)> = sqlx::query_as(text)
        .bind(chain)
        .bind(line.account.as_slice())
        .bind(owner.name())
        .bind(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX / 4))
        .fetch_optional(&mut *connection)
        .await
        .map_err(|e| place.failure(e))?;
    if let Some((token,)) = held {
        return Ok(Claiming::Held(Claim { line, token: token as u64 }));
    }
    let text = dialect::text("SELECT owner, until - {now} FROM lines WHERE chain_id = $1 AND account = $2");
    let (owner, remaining): (String, i64) = sqlx::query_as(text)
        .bind(chain)
        .bind(line.account.as_slice())
        .fetch_one(connection)
        .await
        .map_err(|e| place.failure(e))?;
    let remaining = Duration::from_millis(remaining.max(0) as u64);
    Ok(Claiming::Elsewhere { owner: Owner::new(owner), remaining })
}

pub(super) async fn release(place: &Place, connection: &mut Connection, claim: Claim) -> Result<()> {
    let Ok(chain) = storable_chain(claim.line.chain_id) else { return Ok(()) };
    sqlx::query("UPDATE lines SET until = 0 WHERE chain_id = $1 AND account = $2 AND token = $3")
        .bind(chain)
        .bind(claim.line.account.as_slice())
        .bind(claim.token as i64)
        .execute(connection)
        .await
        .map_err(|e| place.failure(e))?;
    Ok(())
}

pub(super) async fn holder(
    place: &Place,
    connection: &mut Connection,
    line: Line,
) -> Result<Option<crate::Holder>> {
    let Ok(chain) = storable_chain(line.chain_id) else { return Ok(None) };
    let text = dialect::text(
        "SELECT owner, until - {now} FROM lines \
         WHERE chain_id = $1 AND account = $2 AND until > {now} AND until <= {now} + ttl",
    );
    let held: Option<(String, i64)> = sqlx::query_as(text)
        .bind(chain)
        .bind(line.account.as_slice())
        .fetch_optional(connection)
        .await
        .map_err(|e| place.failure(e))?;
    Ok(held.map(|(owner, remaining)| crate::Holder {
        owner: Owner::new(owner),
        remaining: Duration::from_millis(remaining.max(0) as u64),
    }))
}

/// Whether a claim still holds. In a transaction that shares the line it does to the end.
pub(super) async fn holds(place: &Place, connection: &mut Connection, claim: Claim) -> Result<bool> {
    let Ok(chain) = storable_chain(claim.line.chain_id) else { return Ok(false) };
    let text = "SELECT token FROM lines WHERE chain_id = $1 AND account = $2 AND token = $3";
    let held: Option<(i64,)> = sqlx::query_as(text)
        .bind(chain)
        .bind(claim.line.account.as_slice())
        .bind(claim.token as i64)
        .fetch_optional(connection)
        .await
        .map_err(|e| place.failure(e))?;
    Ok(held.is_some())
}

pub(super) async fn state(
    place: &Place,
    connection: &mut Connection,
    line: Line,
    from: u64,
) -> Result<LineState> {
    let (Ok(chain), account) = (storable_chain(line.chain_id), line.account.as_slice()) else {
        return Ok(LineState::default());
    };
    let (accounted, highest): (Option<i64>, Option<i64>) = sqlx::query_as(
        "SELECT (SELECT accounted FROM lines WHERE chain_id = $1 AND account = $2), \
                (SELECT max(nonce) FROM slots WHERE chain_id = $1 AND account = $2)",
    )
    .bind(chain)
    .bind(account)
    .fetch_one(&mut *connection)
    .await
    .map_err(|e| place.failure(e))?;
    let accounted = accounted.max(highest.map(|nonce| nonce.saturating_add(1))).map(|nonce| nonce as u64);
    // None is held above what can be stored.
    let Ok(from) = storable_nonce(from) else { return Ok(LineState { accounted, ..LineState::default() }) };
    let rows: Vec<(i64, String, i64)> = sqlx::query_as(
        "SELECT s.nonce, i.key, i.state FROM slots s JOIN intents i ON i.id = s.intent \
         WHERE s.chain_id = $1 AND s.account = $2 AND s.nonce >= $3",
    )
    .bind(chain)
    .bind(account)
    .bind(from)
    .fetch_all(connection)
    .await
    .map_err(|e| place.failure(e))?;
    let finished = rows.iter().filter(|(.., state)| state_of(*state) == Some(State::Finished));
    let used = finished.map(|(nonce, ..)| following(*nonce as u64)).max();
    let slots = rows.into_iter().map(|(nonce, key, _)| (nonce as u64, key)).collect();
    Ok(LineState { slots, accounted, used })
}

pub(super) async fn account_for(
    place: &Place,
    connection: &mut Connection,
    line: Line,
    nonce: u64,
) -> Result<()> {
    // A line that nobody has claimed yet is made as one whose claim has ended.
    sqlx::query(
        "INSERT INTO lines (chain_id, account, owner, token, until, ttl, accounted) \
         VALUES ($1, $2, '', 0, 0, 0, $3) \
         ON CONFLICT (chain_id, account) DO UPDATE SET accounted = excluded.accounted \
         WHERE coalesce(lines.accounted, -1) < excluded.accounted",
    )
    .bind(storable_chain(line.chain_id)?)
    .bind(line.account.as_slice())
    .bind(storable_nonce(nonce)?)
    .execute(connection)
    .await
    .map_err(|e| place.failure(e))?;
    Ok(())
}

/// An intent on the line of its account.
#[derive(Clone, Copy)]
pub(super) struct Holder {
    pub(super) line: Line,
    pub(super) intent: i64,
}

pub(super) async fn take(
    place: &Place,
    connection: &mut Connection,
    Holder { line, intent }: Holder,
    nonce: u64,
    step: StepId,
) -> Result<()> {
    // `Debug` is not stable enough to be stored.
    let step = serde_json::to_string(&step)
        .map_err(|e| JournalError::Backend { journal: place.name(), source: e.into() })?;
    let (chain, account) = (storable_chain(line.chain_id)?, line.account.as_slice());
    loop {
        let taken = sqlx::query(
            "INSERT INTO slots (chain_id, account, nonce, intent, step) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (chain_id, account, nonce) DO NOTHING",
        )
        .bind(chain)
        .bind(account)
        .bind(storable_nonce(nonce)?)
        .bind(intent)
        .bind(&step)
        .execute(&mut *connection)
        .await
        .map_err(|e| place.failure(e))?;
        if taken.rows_affected() == 1 {
            return Ok(());
        }

        let holder: Option<(i64, String, String)> = sqlx::query_as(
            "SELECT s.intent, s.step, i.key FROM slots s JOIN intents i ON i.id = s.intent \
             WHERE s.chain_id = $1 AND s.account = $2 AND s.nonce = $3",
        )
        .bind(chain)
        .bind(account)
        .bind(storable_nonce(nonce)?)
        .fetch_optional(&mut *connection)
        .await
        .map_err(|e| place.failure(e))?;
        match holder {
            // One more attempt of the step that holds it.
            Some((holder, its_step, _)) if holder == intent && its_step == step => return Ok(()),
            Some((_, _, key)) => return Err(JournalError::SlotTaken { nonce, key }),
            // It was freed meanwhile.
            None => {}
        }
    }
}

pub(super) async fn free(
    place: &Place,
    connection: &mut Connection,
    Holder { line, intent }: Holder,
    nonce: u64,
) -> Result<()> {
    let freed =
        sqlx::query("DELETE FROM slots WHERE chain_id = $1 AND account = $2 AND nonce = $3 AND intent = $4")
            .bind(storable_chain(line.chain_id)?)
            .bind(line.account.as_slice())
            .bind(storable_nonce(nonce)?)
            .bind(intent)
            .execute(connection)
            .await
            .map_err(|e| place.failure(e))?;
    if freed.rows_affected() == 0 {
        return Err(JournalError::SlotNotHeld { nonce });
    }
    Ok(())
}
