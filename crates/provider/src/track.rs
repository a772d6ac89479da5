//! The head tracker: one background task that asks each endpoint how far it has come (E2), and looks at
//! identity again (E1). It is what brings an endpoint back when no call would go there (E4).

use std::{
    cmp::Ordering,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use alloy::primitives::B256;
use backstay_core::{
    endpoint::{EndpointId, Header, Identity},
    failure::Verdict,
};
use futures::{StreamExt, stream::FuturesUnordered};
use serde::Deserialize;

use crate::endpoints::{Shared, now};

/// Asks every endpoint for its head until the pool is gone.
pub(crate) async fn track(shared: Weak<Shared>) {
    let ids: Vec<EndpointId> = match shared.upgrade() {
        Some(shared) => shared.pool().ids().collect(),
        None => return,
    };
    let mut watches: FuturesUnordered<_> = ids.into_iter().map(|id| watch(shared.clone(), id)).collect();
    while watches.next().await.is_some() {}
}

async fn watch(shared: Weak<Shared>, id: EndpointId) {
    let mut checked = now();
    // How many looks in a row found it to be wrong.
    let mut wrong = 0;
    loop {
        let Some(wait) = shared.upgrade().map(|shared| shared.until_next_look(id, wrong)) else { return };
        tokio::time::sleep(wait).await;
        let Some(shared) = shared.upgrade() else { return };
        checked = shared.look(id, checked).await;
        wrong = match shared.pool().get(id).identity() {
            Identity::Wrong(_) => wrong + 1,
            Identity::Verified | Identity::Unknown => 0,
        };
    }
}

impl Shared {
    /// How long until an endpoint is asked again: the poll interval, or until its breaker wants a probe. One
    /// that is wrong is asked less and less often, down to every `identity_recheck` (E1).
    fn until_next_look(&self, id: EndpointId, wrong: u32) -> Duration {
        let pool = self.pool();
        if let Some(at) = pool.get(id).probe_at() {
            return at.saturating_duration_since(now()).max(Duration::from_millis(10));
        }
        let poll = self.config.head_poll.unwrap_or_else(|| {
            (pool.block_time() / 2).clamp(Duration::from_millis(100), Duration::from_secs(6))
        });
        let factor = 2_u32.saturating_pow(wrong);
        poll.saturating_mul(factor).min(self.config.identity_recheck.max(poll))
    }

    /// Asks one endpoint for its head, and checks its identity where that is due. Returns when identity was
    /// last checked.
    async fn look(self: &Arc<Self>, id: EndpointId, checked: Instant) -> Instant {
        let before = self.pool().get(id).head();
        let verified = *self.pool().get(id).identity() == Identity::Verified;
        let header = match self.header(id, "\"latest\"").await {
            Ok(Some(header)) => header,
            Ok(None) | Err(_) => return checked,
        };
        let (jumped, contradicted) = {
            let pool = self.pool();
            let minute = (60.0 / pool.block_time().as_secs_f64()).ceil() as u64;
            let jumped = before.is_some_and(|before| before.number.abs_diff(header.number) > minute.max(8));
            let others = pool.ids().filter(|other| *other != id && pool.get(*other).is_well());
            let mut shown = others.filter_map(|other| pool.get(other).hash_at(header.number));
            (jumped, shown.any(|hash| hash != header.hash))
        };
        let due = now().saturating_duration_since(checked) >= self.config.identity_recheck;
        if verified && !due && !jumped && !contradicted {
            self.pool().on_head(id, header, now());
            return checked;
        }
        self.pool().on_head(id, header, now());
        match self.check_identity(id).await {
            // It keeps what it was, and the next look asks again.
            Ok(None) => checked,
            Ok(Some(identity)) => {
                let was = self.pool().get(id).identity().clone();
                if was != identity {
                    let name = self.name(id);
                    tracing::warn!(endpoint = %name, ?was, now = ?identity, "identity changed");
                }
                self.pool().set_identity(id, identity, now());
                now()
            }
            Err(verdict) => {
                tracing::debug!(endpoint = %self.name(id), verdict = verdict.label(), "identity not checked");
                checked
            }
        }
    }

    /// Checks one endpoint against what the client knows of the chain. `None` when nothing decides.
    async fn check_identity(&self, id: EndpointId) -> Result<Option<Identity>, Verdict> {
        let facts = self.facts(id).await?;
        let genesis = *self.genesis.get().unwrap_or(&None);
        if let Some(wrong) = self.mismatch(&facts, genesis) {
            return Ok(Some(Identity::Wrong(wrong)));
        }
        self.branch_of(id).await
    }

    /// Holds an endpoint's branch against the others': at the highest height that both have, most of the
    /// identified endpoints must show the same hash. `None` when nothing decides.
    async fn branch_of(&self, id: EndpointId) -> Result<Option<Identity>, Verdict> {
        let (own, others) = {
            let pool = self.pool();
            let Some(own) = pool.get(id).head() else { return Ok(None) };
            let well = |other: &EndpointId| *other != id && pool.get(*other).is_well();
            let heads = pool.ids().filter(well).filter_map(|other| Some((other, pool.get(other).head()?)));
            (own, heads.collect::<Vec<_>>())
        };
        let Some(height) = others.iter().map(|(_, head)| head.number.min(own.number)).max() else {
            // Nobody is there to be held against.
            return Ok(Some(Identity::Verified));
        };
        let at = format!("\"0x{height:x}\"");
        let Some(mine) = self.header(id, &at).await? else { return Ok(None) };
        let (mut with, mut against) = (1, 0);
        for (other, head) in others {
            if head.number >= height
                && let Ok(Some(theirs)) = self.header(other, &at).await
            {
                match theirs.hash == mine.hash {
                    true => with += 1,
                    false => against += 1,
                }
            }
        }
        Ok(match against.cmp(&with) {
            // Nobody could be asked.
            Ordering::Less if with == 1 => None,
            Ordering::Less => Some(Identity::Verified),
            Ordering::Equal => None,
            Ordering::Greater => Some(Identity::Wrong(format!(
                "another branch: its block {height} is {}, {against} others have another",
                mine.hash
            ))),
        })
    }
}

/// A header out of the JSON of a block; `None` for `null`.
pub(crate) fn parse_header(json: &str) -> serde_json::Result<Option<Header>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Block {
        number: alloy::primitives::U64,
        hash: B256,
        parent_hash: B256,
        timestamp: alloy::primitives::U64,
    }
    let block: Option<Block> = serde_json::from_str(json)?;
    Ok(block.map(|block| Header {
        number: block.number.to(),
        hash: block.hash,
        parent: block.parent_hash,
        timestamp: block.timestamp.to(),
    }))
}
