//! Heights do not fall (R2): a reply that carries one lies at or above what this client was shown, unless the chain
//! went back.

use std::sync::{MutexGuard, PoisonError};

use alloy::{
    primitives::{B256, U64},
    rpc::json_rpc::ResponsePayload,
};
use backstay_core::{
    Error,
    endpoint::{EndpointId, Need, Plausible},
    router::{Height, Mark},
};
use serde::Deserialize;

use crate::{
    endpoints::{Shared, now},
    link::wire::Call,
    reads::hedge::Hedged,
    reads::route::{Way, backoff},
};

impl Shared {
    /// The highest block that this client was shown.
    pub(crate) fn mark(&self) -> MutexGuard<'_, Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn highest_shown(&self) -> Option<u64> {
        self.mark().highest()
    }

    /// Hands a reply on that carries a height. One that lies below what was shown is asked for again, at an endpoint
    /// that has come so far, or where it was, for at most two block times. One that the chain cannot have come to is held
    /// against another endpoint, and binds nothing.
    pub(crate) async fn no_lower(
        &self,
        call: &Call,
        (payload, by): (ResponsePayload, Option<EndpointId>),
        way: Way<'_>,
    ) -> Result<ResponsePayload, Error> {
        let place = self.place(call, &payload, by);
        match place {
            Some(Place::Below { .. }) => Box::pin(self.higher(call, (payload, by), way)).await,
            Some(Place::TooFar) => Ok(Box::pin(self.other_than(call, (payload, by), way)).await),
            Some(Place::Risen) | None => Ok(payload),
        }
    }

    async fn higher(
        &self,
        call: &Call,
        (mut payload, mut by): (ResponsePayload, Option<EndpointId>),
        way: Way<'_>,
    ) -> Result<ResponsePayload, Error> {
        let patience = (self.pool().block_time() * 2).min(self.config.read.frontier_grace);
        let until = now() + patience;
        let left = || until.saturating_duration_since(now());
        let mut waits = backoff();
        let mut first = true;
        while let Some(shown) = self.highest_shown() {
            let other = self.another(Need::Reached(shown), by);
            if other.is_none() || !first {
                self.meter.waits.increment(1);
                tokio::time::sleep(waits.next().unwrap_or(patience).min(left())).await;
            }
            first = false;
            if left().is_zero() {
                break;
            }
            let prefer = other.or(way.prefer);
            let asked = self.ask(call, Way { prefer, hedged: Hedged::Never, ..way });
            // What it has is better than an error, and than to wait for one that hangs.
            let Ok(Ok((again, again_by))) = tokio::time::timeout(left(), asked).await else { continue };
            match self.place(call, &again, again_by) {
                Some(Place::TooFar) => {}
                Some(Place::Below { .. }) => (payload, by) = (again, again_by),
                Some(Place::Risen) | None => return Ok(again),
            }
        }
        if let Some(Place::Below { shown, number }) = self.place(call, &payload, None) {
            self.mark().fell(shown, number);
            self.meter.regressions.increment(1);
            tracing::debug!(method = %call.method, number, shown, "a height is given although a higher one was shown");
        }
        Ok(payload)
    }

    /// What another endpoint says; the same reply where there is none.
    async fn other_than(
        &self,
        call: &Call,
        (payload, by): (ResponsePayload, Option<EndpointId>),
        way: Way<'_>,
    ) -> ResponsePayload {
        let Some(other) = self.another(Need::Current, by) else { return payload };
        let asked = self.ask(call, Way { prefer: Some(other), hedged: Hedged::Never, ..way }).await;
        match asked {
            Ok((again, again_by)) if again_by != by => {
                self.place(call, &again, again_by);
                again
            }
            Ok(_) | Err(_) => payload,
        }
    }

    /// An endpoint that may serve this, does not rest, and is not this one.
    fn another(&self, need: Need, than: Option<EndpointId>) -> Option<EndpointId> {
        let pool = self.pool();
        let resting = pool.resting(need, now());
        pool.ids().find(|id| Some(*id) != than && !resting.contains(id))
    }

    /// How the height in a reply of this endpoint stands to what was shown; `None` where there is none.
    fn place(&self, call: &Call, payload: &ResponsePayload, by: Option<EndpointId>) -> Option<Place> {
        #[derive(Deserialize)]
        struct Block {
            number: U64,
            hash: B256,
        }
        let ResponsePayload::Success(result) = payload else { return None };
        let (number, hash) = if call.method == "eth_blockNumber" {
            (serde_json::from_str::<U64>(result.get()).ok()?, None)
        } else {
            let block = serde_json::from_str::<Block>(result.get()).ok()?;
            (block.number, Some(block.hash))
        };
        let number = number.to();
        // Logs up to there can be asked of it from now on, before the tracker has seen it.
        if by.is_some_and(|by| self.pool().on_height(by, number, now()) == Plausible::No) {
            return Some(Place::TooFar);
        }
        let mut mark = self.mark();
        let shown = mark.highest();
        Some(match (mark.carries(number, hash), shown) {
            (Height::Below, Some(shown)) => Place::Below { shown, number },
            (Height::Below | Height::Risen, _) => Place::Risen,
        })
    }
}

/// How a height stands to what was shown before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Risen,
    Below {
        shown: u64,
        number: u64,
    },
    /// The chain cannot have come so far.
    TooFar,
}
