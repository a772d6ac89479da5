//! Filters (R7): each is asked only at the endpoint that has it, under an id of this client's own. When that endpoint
//! is gone, or has forgotten it, it is made again elsewhere, and what lay between is fetched.

use std::{borrow::Cow, sync::Arc};

use alloy::{
    primitives::{B256, U64},
    rpc::json_rpc::{ErrorPayload, ResponsePayload},
};
use backstay_core::{
    Error, ErrorKind, Retry,
    endpoint::{EndpointId, Need, Plausible},
    failure::Verdict,
    router::{Fresh, LogId, ToldSoFar},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use crate::{
    endpoints::{Shared, now},
    link::wire::{Call, known},
    reads::hedge::Hedged,
    reads::route::Way,
};

/// How many blocks are fetched at once for a filter of blocks that was made again.
const BLOCKS_AT_ONCE: u64 = 128;

/// A filter, locked while it is asked: a node tells each thing once.
pub(crate) type Shelf = Arc<Mutex<Filter>>;

/// One filter.
pub(crate) struct Filter {
    kind: Kind,
    /// The parameters that it was made with.
    params: String,
    /// Where it is, and its id there.
    at: EndpointId,
    id: Box<RawValue>,
    told: ToldSoFar,
    /// Whether the node may have told something that nobody heard: the filter is made again.
    torn: bool,
    /// The last block that is still to be fetched.
    behind: Option<u64>,
}

/// What a filter tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Logs,
    Blocks,
    Pending,
}

impl Kind {
    const fn method(self) -> &'static str {
        match self {
            Self::Logs => "eth_newFilter",
            Self::Blocks => "eth_newBlockFilter",
            Self::Pending => "eth_newPendingTransactionFilter",
        }
    }
}

/// What is asked about filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterCall {
    NewLogs,
    NewBlocks,
    NewPending,
    Changes,
    Logs,
    Uninstall,
}

impl Shared {
    /// Answers a call about filters.
    pub(crate) async fn filters(
        &self,
        asked: FilterCall,
        call: &Call,
        way: Way<'_>,
    ) -> Result<ResponsePayload, Error> {
        match asked {
            FilterCall::NewLogs => self.new_filter(Kind::Logs, call, way).await,
            FilterCall::NewBlocks => self.new_filter(Kind::Blocks, call, way).await,
            FilterCall::NewPending => self.new_filter(Kind::Pending, call, way).await,
            FilterCall::Changes => match self.filter(call) {
                Some(filter) => self.changes(filter, way).await,
                None => Ok(not_found()),
            },
            FilterCall::Logs => match self.filter(call) {
                Some(filter) => {
                    let (kind, params) = {
                        let filter = filter.lock().await;
                        (filter.kind, filter.params.clone())
                    };
                    match kind {
                        Kind::Logs => self.logs(&self.call("eth_getLogs", &params), way).await,
                        // As nodes say it.
                        Kind::Blocks | Kind::Pending => Ok(not_found()),
                    }
                }
                None => Ok(not_found()),
            },
            FilterCall::Uninstall => Ok(known(self.uninstall(call).await.to_string())),
        }
    }

    async fn new_filter(&self, kind: Kind, call: &Call, way: Way<'_>) -> Result<ResponsePayload, Error> {
        let params = call.params().unwrap_or("[]").to_owned();
        let (head, prefer, plausible) = self.head_now(way.prefer, way).await?;
        let head = match plausible {
            Plausible::Yes => head,
            // From there on it would tell nothing after a move.
            Plausible::No => self.pool().highest_readable(now()).unwrap_or(head),
        };
        let (payload, at) = self.make(kind, &params, prefer, way).await?;
        let (ResponsePayload::Success(id), Some(at)) = (&payload, at) else { return Ok(payload) };
        let told = ToldSoFar::above(head);
        let filter = Filter { kind, params, at, id: id.clone(), told, torn: false, behind: None };
        let added = self.filters_open().add(Arc::new(Mutex::new(filter)), now());
        match added {
            Some(id) => Ok(known(format!("\"0x{id:x}\""))),
            None => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{}: this client holds too many filters; uninstall those that are not used",
                    call.method
                ),
            )),
        }
    }

    /// The head of the endpoint that answers, which one it is, and whether the chain can have come so far.
    async fn head_now(
        &self,
        prefer: Option<EndpointId>,
        way: Way<'_>,
    ) -> Result<(u64, Option<EndpointId>, Plausible), Error> {
        let call = self.call("eth_blockNumber", "[]");
        let way = Way { prefer, hedged: Hedged::Never, need: Need::Current, ..way };
        let (payload, by) = self.ask(&call, way).await?;
        let number = match &payload {
            ResponsePayload::Success(number) => serde_json::from_str::<U64>(number.get()).ok(),
            ResponsePayload::Failure(_) => None,
        };
        let unknown = || Error::new(ErrorKind::Unavailable, "eth_blockNumber: no endpoint gave a number");
        let number = number.ok_or_else(unknown)?.to();
        let plausible = by.map_or(Plausible::No, |by| self.pool().on_height(by, number, now()));
        Ok((number, by, plausible))
    }

    /// Makes a filter at an endpoint.
    async fn make(
        &self,
        kind: Kind,
        params: &str,
        prefer: Option<EndpointId>,
        way: Way<'_>,
    ) -> Result<(ResponsePayload, Option<EndpointId>), Error> {
        let call = self.call(kind.method(), params);
        self.ask(&call, Way { prefer, hedged: Hedged::Never, need: Need::Current, ..way }).await
    }

    /// What is new since the last time.
    async fn changes(&self, filter: Shelf, way: Way<'_>) -> Result<ResponsePayload, Error> {
        let mut filter = filter.lock().await;
        if let Some(last) = filter.behind {
            return self.catch_up(&mut filter, last, way).await;
        }
        if !filter.torn
            && let Some(payload) = self.changes_at_its_endpoint(&mut filter, way).await
        {
            return Ok(payload);
        }
        self.make_again(&mut filter, way).await
    }

    /// `None` where the endpoint has it no more, or does not answer: what it told may be lost.
    async fn changes_at_its_endpoint(&self, filter: &mut Filter, way: Way<'_>) -> Option<ResponsePayload> {
        let head = {
            let pool = self.pool();
            if !pool.may_serve(filter.at, Need::Current) {
                return None;
            }
            pool.get(filter.at).reached()
        };
        let pick = self.pool().begin_only(filter.at, now())?;
        let call = self.call("eth_getFilterChanges", &format!("[{}]", filter.id));
        // A caller that leaves now never hears what the node tells.
        filter.torn = true;
        let timeout = self.config.attempt_timeout;
        let exchange = self.exchange(self.started(pick), &[&call], timeout, way.log).await;
        let reply = exchange.replies.into_iter().next()?;
        match (&reply.verdict, reply.payload) {
            (Verdict::Answer, Some(ResponsePayload::Success(list))) => {
                let fresh = filter.fresh(&list)?;
                if let Some(head) = head {
                    filter.up_to(head);
                }
                filter.torn = false;
                Some(known(fresh))
            }
            (_, _) => None,
        }
    }

    /// Makes a filter again, at whoever may serve it now, and fetches what lay between.
    async fn make_again(&self, filter: &mut Filter, way: Way<'_>) -> Result<ResponsePayload, Error> {
        let from = self.name(filter.at);
        // First the filter, then the head: what comes between is told twice rather than not at all, and the second
        // time is left out.
        let (payload, at) = self.make(filter.kind, &filter.params, None, way).await?;
        let (ResponsePayload::Success(id), Some(at)) = (&payload, at) else { return Ok(payload) };
        let (head, _, plausible) = self.head_now(Some(at), way).await?;
        if plausible == Plausible::No {
            let message = format!("{}: block {head} is further than the chain can have come", self.name(at));
            return Err(Error::new(ErrorKind::Unavailable, message).with_retry(Retry::Later));
        }
        tracing::info!(%from, to = %self.name(at), since = filter.told.next(), head, "a filter was made again");
        if filter.kind == Kind::Blocks
            && let Some(hash) = filter.told.last_block()
            && let Some(height) = self.height_of(hash, way).await?
        {
            filter.told.stands_at(height);
        }
        (filter.at, filter.id, filter.torn) = (at, id.clone(), false);
        filter.behind = Some(head);
        self.catch_up(filter, head, way).await
    }

    /// Fetches what lies between what was told and this block. What fails is tried again at the next call.
    async fn catch_up(&self, filter: &mut Filter, last: u64, way: Way<'_>) -> Result<ResponsePayload, Error> {
        let first = filter.told.next();
        if first > last {
            filter.behind = None;
            return Ok(known("[]".to_owned()));
        }
        match filter.kind {
            Kind::Logs => {
                let Some(call) = self.between(&filter.params, first, last) else {
                    filter.behind = None;
                    filter.told.fetched(last, []);
                    return Ok(known("[]".to_owned()));
                };
                let payload = self.logs(&call, Way { prefer: Some(filter.at), ..way }).await?;
                if let ResponsePayload::Success(list) = &payload {
                    let logs: Vec<Log> = serde_json::from_str(list.get()).unwrap_or_default();
                    filter.behind = None;
                    filter.told.fetched(last, logs.iter().filter_map(Log::place));
                }
                Ok(payload)
            }
            Kind::Blocks => {
                let end = last.min(first.saturating_add(BLOCKS_AT_ONCE - 1));
                let calls: Vec<Call> = (first..=end).map(|number| self.block_call(number)).collect();
                let way = Way { prefer: Some(filter.at), hedged: Hedged::Never, need: Need::Current, ..way };
                let mut hashes = Vec::new();
                for answer in Box::pin(self.route(&calls, way)).await {
                    let block = match answer? {
                        ResponsePayload::Success(block) => {
                            serde_json::from_str::<Option<Block>>(block.get()).ok()
                        }
                        failure @ ResponsePayload::Failure(_) => return Ok(failure),
                    };
                    let missing = || Error::new(ErrorKind::Unavailable, "a block between was not found");
                    let block = block.flatten().ok_or_else(|| missing().with_retry(Retry::Later))?;
                    hashes.push(block.hash);
                }
                hashes.retain(|hash| filter.told.block(*hash) == Fresh::Yes);
                filter.told.fetched(end, []);
                filter.behind = Some(last).filter(|last| end < *last);
                Ok(known(serde_json::to_string(&hashes).unwrap_or_else(|_| "[]".into())))
            }
            Kind::Pending => {
                filter.behind = None;
                filter.told.fetched(last, []);
                tracing::warn!("what became pending while a filter moved to another endpoint is not told");
                Ok(known("[]".to_owned()))
            }
        }
    }

    /// The call for the logs that a filter tells from one block to another; `None` where it tells none there.
    fn between(&self, params: &str, first: u64, last: u64) -> Option<Call> {
        let mut params: Vec<serde_json::Map<String, serde_json::Value>> =
            serde_json::from_str(params).ok()?;
        let filter = params.first_mut()?;
        let edge = |key: &str| {
            let text = filter.get(key)?.as_str()?;
            u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
        };
        let first = edge("fromBlock").map_or(first, |from| from.max(first));
        let last = edge("toBlock").map_or(last, |to| to.min(last));
        filter.insert("fromBlock".into(), format!("0x{first:x}").into());
        filter.insert("toBlock".into(), format!("0x{last:x}").into());
        (first <= last).then(|| Some(self.call("eth_getLogs", &serde_json::to_string(&params).ok()?)))?
    }

    /// The height of a block that was told; `None` where nobody knows it any more.
    async fn height_of(&self, hash: B256, way: Way<'_>) -> Result<Option<u64>, Error> {
        let call = self.call("eth_getBlockByHash", &format!("[\"{hash}\",false]"));
        let way = Way { prefer: None, hedged: Hedged::Never, need: Need::Current, ..way };
        Ok(match self.ask(&call, way).await?.0 {
            ResponsePayload::Success(block) => {
                let block = serde_json::from_str::<Option<Block>>(block.get()).ok().flatten();
                block.map(|block| block.number.to())
            }
            ResponsePayload::Failure(_) => None,
        })
    }

    async fn uninstall(&self, call: &Call) -> bool {
        let removed = id_of(call).and_then(|id| self.filters_open().remove(id, now()));
        let Some(filter) = removed else { return false };
        let filter = filter.lock().await;
        // It forgets it by itself otherwise.
        let pick = self.pool().begin_only(filter.at, now());
        if let Some(pick) = pick {
            let call = self.call("eth_uninstallFilter", &format!("[{}]", filter.id));
            let timeout = self.config.attempt_timeout.min(self.config.read.frontier_retry_timeout);
            self.exchange(self.started(pick), &[&call], timeout, None).await;
        }
        true
    }

    fn filter(&self, call: &Call) -> Option<Shelf> {
        self.filters_open().find(id_of(call)?, now()).cloned()
    }
}

impl Filter {
    /// What of a node's list was not told before; `None` where it is no list.
    fn fresh(&mut self, list: &RawValue) -> Option<String> {
        let told: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
        let kept = |item: &&RawValue| match self.kind {
            Kind::Pending => true,
            Kind::Blocks => {
                let hash = serde_json::from_str::<B256>(item.get());
                hash.map_or(true, |hash| self.told.block(hash) == Fresh::Yes)
            }
            Kind::Logs => match serde_json::from_str::<Log>(item.get()) {
                Ok(log) if !log.removed => {
                    log.place().is_none_or(|(number, id)| self.told.log(number, id) == Fresh::Yes)
                }
                // That a log is gone is told as often as the node tells it.
                Ok(_) | Err(_) => true,
            },
        };
        let kept: Vec<&str> = told.into_iter().filter(kept).map(RawValue::get).collect();
        Some(format!("[{}]", kept.join(",")))
    }

    fn up_to(&mut self, head: u64) {
        match self.kind {
            Kind::Logs | Kind::Pending => self.told.up_to(head),
            // Each block counts.
            Kind::Blocks => {}
        }
    }
}

#[derive(Deserialize)]
struct Block {
    number: U64,
    hash: B256,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Log {
    block_number: Option<U64>,
    block_hash: Option<B256>,
    log_index: Option<U64>,
    #[serde(default)]
    removed: bool,
}

impl Log {
    /// Its block, and what tells it from others; `None` where the node does not say.
    fn place(&self) -> Option<(u64, LogId)> {
        Some((self.block_number?.to(), (self.block_hash?, self.log_index?.to())))
    }
}

fn id_of(call: &Call) -> Option<u64> {
    let params = call.param_list();
    let id: Cow<'_, str> = serde_json::from_str(params.first()?.get()).ok()?;
    u64::from_str_radix(id.strip_prefix("0x")?, 16).ok()
}

/// As nodes say it.
fn not_found() -> ResponsePayload {
    ResponsePayload::Failure(ErrorPayload { code: -32_000, message: "filter not found".into(), data: None })
}
