//! Typed lookups (R5): what is absent comes with its reason.

use std::sync::{MutexGuard, PoisonError};

use alloy::{
    network::Network,
    primitives::{B256, BlockHash, TxHash},
    rpc::json_rpc::ResponsePayload,
};
use backstay_core::{
    Error, ErrorKind, Result,
    endpoint::EndpointId,
    failure::DataKind,
    router::{Absent, Asks, Lookup, Opinion, Opinions, ReadDepth},
};
use serde::de::DeserializeOwned;

use crate::{
    endpoints::{Endpoints, Shared},
    link::wire::Call,
    reads::hedge::Hedged,
    reads::route::{Journey, Look, Way},
};

impl Endpoints {
    /// The block at a height, without the bodies of its transactions.
    ///
    /// # Errors
    ///
    /// Where no endpoint answers; that there is no such block is no error.
    pub async fn block<N: Network>(&self, number: u64) -> Result<Lookup<N::BlockResponse>> {
        let call = self.shared.call("eth_getBlockByNumber", &format!("[\"0x{number:x}\",false]"));
        self.shared.look_up(&call, Some((DataKind::Blocks, number)), None).await
    }

    /// The block with a hash, without the bodies of its transactions. Its height, where the caller knows it, tells
    /// what an endpoint does not hold any more or not yet.
    ///
    /// # Errors
    ///
    /// As for [`Endpoints::block`].
    pub async fn block_by_hash<N: Network>(
        &self,
        hash: BlockHash,
        height: Option<u64>,
    ) -> Result<Lookup<N::BlockResponse>> {
        let call = self.shared.call("eth_getBlockByHash", &format!("[\"{hash}\",false]"));
        self.shared.look_up(&call, height.map(|height| (DataKind::Blocks, height)), Some(hash)).await
    }

    /// The transaction with a hash. Its height, where the caller knows it, tells what an endpoint does not hold any
    /// more or not yet.
    ///
    /// # Errors
    ///
    /// As for [`Endpoints::block`].
    pub async fn transaction<N: Network>(
        &self,
        hash: TxHash,
        height: Option<u64>,
    ) -> Result<Lookup<N::TransactionResponse>> {
        let call = self.shared.call("eth_getTransactionByHash", &format!("[\"{hash}\"]"));
        self.shared.look_up(&call, height.map(|height| (DataKind::Transactions, height)), Some(hash)).await
    }

    /// The receipt of a transaction. Its height, where the caller knows it, tells what an endpoint does not hold any
    /// more or not yet. That of a transaction that waits is [`Absent::NotYet`].
    ///
    /// # Errors
    ///
    /// As for [`Endpoints::block`].
    pub async fn receipt<N: Network>(
        &self,
        hash: TxHash,
        height: Option<u64>,
    ) -> Result<Lookup<N::ReceiptResponse>> {
        let call = self.shared.call("eth_getTransactionReceipt", &format!("[\"{hash}\"]"));
        let kind = height.map(|height| (DataKind::Transactions, height));
        let found = self.shared.look_up(&call, kind, Some(hash)).await?;
        if !matches!(found, Lookup::Absent(Absent::Unknown | Absent::NobodyHasIt)) {
            return Ok(found);
        }
        let call = self.shared.call("eth_getTransactionByHash", &format!("[\"{hash}\"]"));
        let (payload, _) = self.shared.ask(&call, Way::current(Hedged::Never)).await?;
        Ok(match payload {
            ResponsePayload::Success(known) if known.get() != "null" => {
                Lookup::Absent(Absent::NotYet { head: self.shared.shown() })
            }
            ResponsePayload::Success(_) | ResponsePayload::Failure(_) => found,
        })
    }
}

impl Shared {
    /// For which hashes another endpoint may be asked.
    pub(crate) fn opinions(&self) -> MutexGuard<'_, Opinions> {
        self.opinions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look_up<T: DeserializeOwned>(
        &self,
        call: &Call,
        at: Option<(DataKind, u64)>,
        hash: Option<B256>,
    ) -> Result<Lookup<T>> {
        let asks = at.map_or(Asks::ByHash, |(kind, height)| Asks::At { kind, height });
        let (found, mut nobody, by) = match self.look_once(call, asks, None).await {
            Ok(once) => once,
            Err(error) => match error.kind() {
                ErrorKind::Pruned { height, oldest } => {
                    return Ok(Lookup::Absent(Absent::Pruned { height: *height, oldest: *oldest }));
                }
                _ => return Err(error),
            },
        };
        if let Some(found) = found {
            return Ok(Lookup::Found(found));
        }
        let head = self.shown();
        if let Some((_, height)) = at
            && head.is_some_and(|head| height > head)
        {
            return Ok(Lookup::Absent(Absent::NotYet { head }));
        }
        // With a height, whoever may have it was asked.
        let opinion = hash.filter(|_| at.is_none()).map(|hash| self.opinions().take(hash));
        if let (Some(Opinion::Due), Some(by)) = (opinion, by)
            && let Ok((found, still, _)) = self.look_once::<T>(call, asks, Some(by)).await
        {
            if let Some(found) = found {
                return Ok(Lookup::Found(found));
            }
            nobody = still;
        }
        Ok(Lookup::Absent(if nobody { Absent::NobodyHasIt } else { Absent::Unknown }))
    }

    /// Looks once, past an endpoint that had nothing. Returns what was found, whether nobody has it, and who said so.
    async fn look_once<T: DeserializeOwned>(
        &self,
        call: &Call,
        asks: Asks,
        past: Option<EndpointId>,
    ) -> Result<(Option<T>, bool, Option<EndpointId>)> {
        let way = Way::current(Hedged::Never);
        let look = (call, asks, Look::AtIt);
        let mut journey = Journey::new(self, look, way, self.config.operation_timeout);
        if let Some(past) = past {
            journey.read.missed_by(past);
        }
        let payload = self.travel(&mut journey, way).await?;
        let result = match &payload {
            ResponsePayload::Success(result) => result.get(),
            ResponsePayload::Failure(error) => {
                let message = format!("{}: {}", call.method, error.message);
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
        };
        let found = serde_json::from_str::<Option<T>>(result).map_err(|error| {
            let message = format!("{}: the reply is not what it should be ({error})", call.method);
            Error::new(ErrorKind::Unavailable, message)
        })?;
        let nobody = {
            let pool = self.pool();
            let mut able = pool.ids().filter(|id| pool.may_serve(*id, journey.read.need()));
            // With a height, the answer of one that is proven to hold it ends the read.
            let proven = journey.read.depth() == ReadDepth::Deep && journey.by.is_some();
            proven || able.all(|id| journey.read.tried().contains(&id))
        };
        Ok((found, nobody, journey.by))
    }
}
