//! Heights do not fall (R2): a reply that carries one lies at or above what this client was shown, unless the chain
//! went back.

use std::sync::{MutexGuard, PoisonError};

use alloy::{
    primitives::{B256, U64},
    rpc::json_rpc::ResponsePayload,
};
use backstay_core::{
    Error,
    endpoint::{EndpointId, Need},
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
    /// that has come so far, or where it was, for at most two block times.
    pub(crate) async fn no_lower(
        &self,
        call: &Call,
        (payload, by): (ResponsePayload, Option<EndpointId>),
        way: Way<'_>,
    ) -> Result<ResponsePayload, Error> {
        match self.place(call, &payload) {
            Some(Height::Below) => Box::pin(self.higher(call, (payload, by), way)).await,
            Some(Height::Risen) | None => Ok(payload),
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
        let mut waits = backoff();
        let mut first = true;
        while let Some(shown) = self.highest_shown() {
            let need = Need::Reached(shown);
            let other = {
                let pool = self.pool();
                let resting = pool.resting(need, now());
                let there = |id: &EndpointId| pool.may_serve(*id, need) && !resting.contains(id);
                pool.ids().filter(there).find(|id| Some(*id) != by)
            };
            if other.is_none() || !first {
                let left = until.saturating_duration_since(now());
                if left.is_zero() {
                    break;
                }
                self.meter.waits.increment(1);
                tokio::time::sleep(waits.next().unwrap_or(left).min(left)).await;
            }
            first = false;
            let prefer = other.or(way.prefer);
            let answer = self.ask(call, Way { prefer, hedged: Hedged::Never, ..way }).await;
            // What it has is better than an error.
            let Ok((again, again_by)) = answer else { continue };
            (payload, by) = (again, again_by);
            match self.place(call, &payload) {
                Some(Height::Below) => {}
                Some(Height::Risen) | None => return Ok(payload),
            }
        }
        self.meter.regressions.increment(1);
        tracing::debug!(method = %call.method, "a height is given although a higher one was shown");
        Ok(payload)
    }

    /// How the height in a reply stands to what was shown; `None` where there is none.
    fn place(&self, call: &Call, payload: &ResponsePayload) -> Option<Height> {
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
        Some(self.mark().carries(number.to(), hash))
    }
}
