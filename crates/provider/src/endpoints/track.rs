//! The head tracker: one background task that asks each endpoint how far it has come (E2), and looks at
//! identity again (E1). It is what brings an endpoint back when no call would go there (E4).

use std::{
    collections::HashSet,
    pin::pin,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use alloy::primitives::B256;
use backstay_core::{
    BlockRef,
    endpoint::{EndpointId, Header, Identity},
    failure::Verdict,
};
use futures::{
    StreamExt,
    future::{Either, select},
    stream::FuturesUnordered,
};
use serde::Deserialize;
use tokio::sync::Notify;

use crate::endpoints::{Shared, now, time_of_day};

/// How many endpoints a branch is held against: more would make the cost of a large pool grow with its square.
const BRANCH_PEERS: usize = 8;
/// How many endpoints are asked for a finalized block that tells the history of one without block 0.
const FINALITY_PEERS: usize = 3;

/// Asks every endpoint for its head until the pool is gone; those that are added later too.
pub(crate) async fn track(shared: Weak<Shared>, roster: Arc<Notify>) {
    let mut watched = HashSet::new();
    let mut watches = FuturesUnordered::new();
    loop {
        {
            let Some(pool) = shared.upgrade() else { return };
            for id in pool.pool().ids() {
                if watched.insert(id) {
                    watches.push(watch(shared.clone(), id));
                }
            }
        }
        let changed = pin!(roster.notified());
        if watches.is_empty() {
            changed.await;
        } else if let Either::Right((Some(ended), _)) = select(changed, watches.next()).await {
            watched.remove(&ended);
        }
    }
}

/// Looks at one endpoint until it is removed, or the pool is gone.
async fn watch(shared: Weak<Shared>, id: EndpointId) -> EndpointId {
    let mut checked = now();
    // How many looks in a row found it to be wrong, or nothing that tells.
    let mut wrong = 0;
    loop {
        let Some(wait) = shared.upgrade().map(|shared| shared.until_next_look(id, wrong)) else { return id };
        tokio::time::sleep(wait).await;
        let Some(shared) = shared.upgrade() else { return id };
        if shared.pool().get(id).is_removed() {
            return id;
        }
        checked = shared.look(id, checked).await;
        shared.notice_standing(id);
        wrong = match shared.pool().get(id).identity() {
            Identity::Wrong(_) | Identity::Unverified => wrong + 1,
            Identity::Verified | Identity::Unknown => 0,
        };
    }
}

/// What the others' blocks say of an endpoint's branch.
pub(crate) enum Branch {
    /// Most of those that can be compared have the same block.
    Same,
    /// Most have another. The text says what was compared.
    Other(String),
    /// As many have another, or none could be compared.
    Undecided,
}

impl Shared {
    /// How long until an endpoint is asked again: the poll interval, until its breaker wants a probe, or until
    /// the time that it asked for is over. One that is wrong is asked less and less often, down to every
    /// `identity_recheck` (E1).
    fn until_next_look(&self, id: EndpointId, wrong: u32) -> Duration {
        let pool = self.pool();
        let endpoint = pool.get(id);
        let poll = self.config.head_poll.unwrap_or_else(|| {
            (pool.block_time() / 2).clamp(Duration::from_millis(100), Duration::from_secs(6))
        });
        if !endpoint.was_asked() {
            return Duration::ZERO;
        }
        let wait = |at: Instant| at.saturating_duration_since(now());
        let probe = endpoint.probe_at().map(|at| wait(at).max(Duration::from_millis(10)));
        let rest = endpoint.rested_at().map(wait).filter(|rest| !rest.is_zero());
        let looked =
            poll.saturating_mul(2_u32.saturating_pow(wrong)).min(self.config.identity_recheck.max(poll));
        probe.max(rest).unwrap_or(looked)
    }

    /// Asks one endpoint for its head, and checks its identity where that is due. Returns when identity was
    /// last checked.
    ///
    /// A head that contradicts another endpoint's, or that is far from where this endpoint was, counts only
    /// once the check has passed: a wrong one would be the frontier meanwhile.
    async fn look(self: &Arc<Self>, id: EndpointId, checked: Instant) -> Instant {
        let header = match self.header(id, "\"latest\"").await {
            Ok(Some(header)) => header,
            Ok(None) | Err(_) => return checked,
        };
        let sound = {
            let mut pool = self.pool();
            pool.tell_time(now(), time_of_day());
            let endpoint = pool.get(id);
            let minute = (60.0 / pool.block_time().as_secs_f64()).ceil() as u64;
            let far = |head: Header| head.number.abs_diff(header.number) > minute.max(8);
            let others = pool.ids().filter(|other| *other != id && pool.get(*other).is_well());
            let contradicted = others
                .filter_map(|other| pool.get(other).hash_at(header.number))
                .any(|hash| hash != header.hash);
            *endpoint.identity() == Identity::Verified && !endpoint.head().is_some_and(far) && !contradicted
        };
        let due = now().saturating_duration_since(checked) >= self.config.identity_recheck;
        if sound {
            self.pool().on_head(id, header, now());
            if !due {
                return checked;
            }
        }
        match self.check_identity(id, header).await {
            Ok(Some(identity)) => {
                if matches!(identity, Identity::Verified | Identity::Unverified) {
                    self.pool().on_head(id, header, now());
                }
                self.identified(id, identity);
                now()
            }
            // It keeps what it was, and the next look asks again.
            Ok(None) => {
                tracing::info!(endpoint = %self.name(id), block = %header.block(), "its branch is undecided");
                checked
            }
            Err(verdict) => {
                tracing::debug!(endpoint = %self.name(id), verdict = verdict.label(), "identity not checked");
                checked
            }
        }
    }

    /// Checks one endpoint, that shows this head, against what the client knows of the chain. `None` when
    /// nothing decides.
    async fn check_identity(&self, id: EndpointId, head: Header) -> Result<Option<Identity>, Verdict> {
        let facts = self.facts(id).await?;
        let genesis = *self.genesis.get().unwrap_or(&None);
        if let Some(wrong) = self.mismatch(&facts, genesis) {
            return Ok(Some(Identity::Wrong(wrong)));
        }
        if facts.lacks(genesis) {
            match self.history_of(id).await? {
                Identity::Verified => {}
                other @ (Identity::Unknown | Identity::Unverified | Identity::Wrong(_)) => {
                    return Ok(Some(other));
                }
            }
        }
        Ok(match self.branch_of(id, head).await? {
            Branch::Same => Some(Identity::Verified),
            Branch::Other(why) => Some(Identity::Wrong(why)),
            Branch::Undecided => None,
        })
    }

    /// Holds an endpoint's branch against those of some identified endpoints, each at the highest block that both
    /// have: as the tracker has seen it, which costs nothing and outlasts an outage; as the other shows it now, where
    /// that is not known or contradicts.
    pub(crate) async fn branch_of(&self, id: EndpointId, head: Header) -> Result<Branch, Verdict> {
        let others: Vec<(EndpointId, Header)> = {
            let pool = self.pool();
            let verified =
                |other: &EndpointId| *other != id && *pool.get(*other).identity() == Identity::Verified;
            let mut others: Vec<_> = pool
                .ids()
                .filter(verified)
                .filter_map(|other| Some((other, pool.get(other).head()?)))
                .collect();
            others.sort_by_key(|(other, _)| !pool.get(*other).is_well());
            others.truncate(BRANCH_PEERS);
            others
        };
        if others.is_empty() {
            // There is nobody to be held against, and never was: the chain id and block 0 must do.
            return Ok(Branch::Same);
        }
        let (mut with, mut against) = (1, 0);
        let mut why = String::new();
        let mut mine = vec![head.block()];
        for (other, other_head) in others {
            let height = head.number.min(other_head.number);
            let seen = self.pool().get(other).block_at_most(height);
            let fresh = async || match self.header(other, &format!("\"0x{height:x}\"")).await {
                Ok(Some(header)) => Some(header.block()),
                Ok(None) | Err(_) => None,
            };
            let theirs = match seen {
                Some(seen) => Some(seen),
                None => fresh().await,
            };
            let Some(mut theirs) = theirs else { continue };
            let Some(mut own) = self.block_of(id, theirs.number, &mut mine).await? else { continue };
            if own.hash != theirs.hash
                && seen.is_some()
                && let Some(now) = fresh().await
            {
                // A reorganisation since it was last looked at, perhaps.
                theirs = now;
                let Some(again) = self.block_of(id, theirs.number, &mut mine).await? else { continue };
                own = again;
            }
            if own.hash == theirs.hash {
                with += 1;
            } else {
                against += 1;
                why =
                    format!("another branch: its block {} is {}, not {}", own.number, own.hash, theirs.hash);
            }
        }
        Ok(match (with, against) {
            (with, against) if against > with => Branch::Other(why),
            (with, against) if with > 1 && with > against => Branch::Same,
            _ => Branch::Undecided,
        })
    }
}

impl Shared {
    /// An endpoint's block at a height; asked for once.
    async fn block_of(
        &self,
        id: EndpointId,
        number: u64,
        known: &mut Vec<BlockRef>,
    ) -> Result<Option<BlockRef>, Verdict> {
        if let Some(block) = known.iter().find(|block| block.number == number) {
            return Ok(Some(*block));
        }
        let block = self.header(id, &format!("\"0x{number:x}\"")).await?.map(|header| header.block());
        known.extend(block);
        Ok(block)
    }

    /// Whether an endpoint that no longer holds block 0 is of the right history (E1): by the configured checkpoint,
    /// else by the finalized block of an endpoint that is identified. `Unverified` where neither is held.
    pub(crate) async fn history_of(&self, id: EndpointId) -> Result<Identity, Verdict> {
        let held_against = async |right: BlockRef, whence: &str| {
            let shown = match self.header(id, &format!("\"0x{:x}\"", right.number)).await {
                Ok(shown) => shown,
                Err(Verdict::Missing { .. } | Verdict::NotYet | Verdict::Unclassified) => None,
                Err(other) => return Err(other),
            };
            Ok(shown.map(|shown| match shown.hash == right.hash {
                true => Identity::Verified,
                false => Identity::Wrong(format!(
                    "another history: its block {} is {}, not {} as is {whence}",
                    right.number, shown.hash, right.hash
                )),
            }))
        };
        if let Some(checkpoint) = self.config.checkpoint
            && let Some(identity) = held_against(checkpoint, "configured as `checkpoint`").await?
        {
            return Ok(identity);
        }
        let others: Vec<EndpointId> = {
            let pool = self.pool();
            pool.ids()
                .filter(|other| *other != id && pool.get(*other).is_well())
                .take(FINALITY_PEERS)
                .collect()
        };
        for other in others {
            if let Ok(Some(finalized)) = self.header(other, "\"finalized\"").await
                && let Some(identity) = held_against(finalized.block(), "finalized elsewhere").await?
            {
                return Ok(identity);
            }
        }
        Ok(Identity::Unverified)
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
