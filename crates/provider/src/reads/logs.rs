//! Log queries (R6): only from endpoints that have come so far, piece by piece where a node has limits, and held
//! against the blooms of the blocks where a node may have the block and not its logs yet.

use std::time::{Duration, Instant};

use alloy::{
    primitives::{B256, Bloom, U64},
    rpc::json_rpc::{ErrorPayload, ResponsePayload},
};
use backstay_core::{
    Error, ErrorKind, Retry,
    endpoint::{EndpointId, Holds, Need},
    failure::{DataKind, Verdict},
    router::{Asks, Blocks, Edge, Holding, LogFilter, ReadDepth, Split, TooLarge},
};
use futures::{StreamExt, stream::FuturesUnordered};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    endpoints::{Shared, now},
    link::wire::{Call, Reply, known},
    reads::route::{Journey, Look, Way, backoff},
};

/// The longest range whose blooms are looked at.
const BLOOMS: u64 = 16;
/// The most calls that one query is split into.
const MOST_PIECES: usize = 10_000;

/// How long a look at the heads of all is waited for, before they are looked at again.
const LOOK: Duration = Duration::from_secs(1);

/// Whether an endpoint has come to a height.
enum There {
    Yes,
    /// These may, any moment.
    NotYet(Vec<EndpointId>),
}

/// What one call for logs asks for.
pub(crate) struct LogQuery {
    filter: LogFilter,
    span: Span,
}

/// Which blocks one call covers.
#[derive(Clone, Copy)]
enum Span {
    Of(B256),
    /// The first and the last.
    Range(u64, u64),
}

impl Shared {
    /// Answers `eth_getLogs`.
    pub(crate) async fn logs(&self, call: &Call, way: Way<'_>) -> Result<ResponsePayload, Error> {
        let params = call.param_list();
        let text = params.first().map_or("{}", |filter| filter.get());
        let Some(filter) = LogFilter::parse(text) else { return self.unexamined(call, way).await };
        match filter.blocks {
            Blocks::Tagged => self.unexamined(call, way).await,
            Blocks::Of(hash) => {
                let query = LogQuery { filter, span: Span::Of(hash) };
                let at_most = self.config.operation_timeout;
                let look = (call, Asks::OfBlock, Look::Logs(&query));
                self.travel(&mut Journey::new(self, look, way, at_most), way).await
            }
            Blocks::Range(first, last) => self.logs_between(call, (filter, text), (first, last), way).await,
        }
    }

    /// Nothing is known of what it asks for: the node decides.
    async fn unexamined(&self, call: &Call, way: Way<'_>) -> Result<ResponsePayload, Error> {
        let look = (call, Asks::Current, Look::AtIt);
        self.travel(&mut Journey::new(self, look, way, self.config.operation_timeout), way).await
    }

    async fn logs_between(
        &self,
        call: &Call,
        (filter, text): (LogFilter, &str),
        (from, to): (Edge, Edge),
        way: Way<'_>,
    ) -> Result<ResponsePayload, Error> {
        let deadline = now() + self.config.operation_timeout;
        let grace = deadline.min(now() + self.config.read.frontier_grace);
        let Some(head) = self.head_for_logs((from, to), grace).await else {
            return self.unexamined(call, way).await;
        };
        let height = |edge| match edge {
            Edge::Number(number) => number,
            Edge::Latest => head,
        };
        let (first, last) = (height(from), height(to));
        if first > last {
            // It covers no block that is known of: the node says what that is.
            return self.unexamined(call, way).await;
        }
        match to {
            Edge::Number(_) => self.reach(last, &[], grace).await?,
            // The head that the answer covers is the endpoint's own, at or above what this client has been shown.
            Edge::Latest => {}
        }
        let mut split = Split::new(first, last);
        let mut prefer = way.prefer;
        let mut found = String::new();
        for _ in 0..MOST_PIECES {
            let Some((start, end)) = split.next() else {
                return Ok(known(format!("[{found}]")));
            };
            let whole = start <= first && end == last;
            let until = (end < last || matches!(to, Edge::Number(_))).then_some(end);
            let shorter = (!whole).then(|| self.piece(text, start, until)).flatten();
            let call = shorter.as_ref().unwrap_or(call);
            let query = LogQuery { filter: filter.clone(), span: Span::Range(start, end) };
            let asks = Asks::At { kind: DataKind::Logs, height: start };
            let way = Way { need: Need::Reached(end), prefer, ..way };
            let left = deadline.saturating_duration_since(now());
            let mut journey = Journey::new(self, (call, asks, Look::Logs(&query)), way, left);
            let payload = match self.travel(&mut journey, way).await {
                // Those that had come so far are gone, and others are about to.
                Err(error)
                    if *error.kind() == ErrorKind::Unavailable
                        && now() < grace
                        && self.reach(end, journey.read.tried(), grace).await.is_ok() =>
                {
                    continue;
                }
                answer => answer?,
            };
            prefer = journey.by.or(prefer);
            match (journey.too_large, &payload) {
                (Some(hint), _) => match split.too_large(hint) {
                    TooLarge::Shorter => {
                        self.meter.log_splits.increment(1);
                        tracing::debug!(
                            first = start,
                            last = end,
                            "a range of logs is too large; it is split"
                        );
                    }
                    TooLarge::OneBlock => return Ok(payload),
                },
                // Mostly there is one piece.
                (None, _) if whole => return Ok(payload),
                (None, ResponsePayload::Success(result)) => {
                    let Some(logs) = inside(result) else { return Ok(payload) };
                    if found.len() + logs.len() > self.config.max_reply {
                        let message = format!(
                            "eth_getLogs: the logs from {first} to {last} are larger than `max_reply`; ask for \
                             fewer blocks at once"
                        );
                        return Err(Error::new(ErrorKind::Invalid, message));
                    }
                    if !found.is_empty() && !logs.is_empty() {
                        found.push(',');
                    }
                    found.push_str(logs);
                    split.answered();
                }
                (None, ResponsePayload::Failure(_)) => return Ok(payload),
            }
        }
        let reached = split.next().map_or(last, |(start, _)| start);
        let message = format!(
            "eth_getLogs: {MOST_PIECES} calls came only as far as block {reached} of {first} to {last}; ask for fewer \
             blocks at once"
        );
        Err(Error::new(ErrorKind::Timeout, message).with_retry(Retry::Later))
    }

    /// The highest block that this client knows of.
    pub(crate) fn shown(&self) -> Option<u64> {
        let frontier = self.pool().frontier().map(|head| head.number);
        frontier.max(self.mark().highest())
    }

    /// The call for a part of a filter's range; without an end, up to the head.
    fn piece(&self, filter: &str, first: u64, last: Option<u64>) -> Option<Call> {
        let mut filter: serde_json::Map<String, serde_json::Value> = serde_json::from_str(filter).ok()?;
        filter.insert("fromBlock".into(), format!("0x{first:x}").into());
        let last = last.map_or_else(|| "latest".to_owned(), |last| format!("0x{last:x}"));
        filter.insert("toBlock".into(), last.into());
        let params = serde_json::to_string(&[filter]).ok()?;
        Some(self.call("eth_getLogs", &params))
    }

    /// The head that logs are asked for up to, where that matters: the highest block of an endpoint that is asked first.
    /// What this client was shown is waited for, two block times at most.
    async fn head_for_logs(&self, (from, to): (Edge, Edge), until: Instant) -> Option<u64> {
        let readable = || self.pool().highest_readable(now());
        let head = readable()?;
        let shown = self.mark().highest();
        match (from, to, shown) {
            (Edge::Latest, _, Some(shown)) | (_, Edge::Latest, Some(shown)) if shown > head => {
                let patience = now() + self.pool().block_time() * 2;
                // What there is, is better than an error.
                let _ = self.reach(shown, &[], until.min(patience)).await;
                readable()
            }
            _ => Some(head),
        }
    }

    /// Waits until an endpoint has shown a height, other than those that are `past`: for as long as a miss at the
    /// frontier is waited for. Asked where the tracker has not seen it yet. One that rests and has come so far is left
    /// alone while another may come there any moment.
    async fn reach(&self, height: u64, past: &[EndpointId], until: Instant) -> Result<(), Error> {
        let left = || until.saturating_duration_since(now());
        let window = self.config.read.frontier_blocks;
        for wait in backoff() {
            let open = match self.there(height, past) {
                There::Yes => return Ok(()),
                There::NotYet(open) => open,
            };
            let near = self.shown().is_some_and(|head| height <= head.saturating_add(window));
            if !near || left().is_zero() || (open.is_empty() && !past.is_empty()) {
                break;
            }
            let look = async |id| {
                if let Ok(Some(header)) = self.header(id, "\"latest\"").await {
                    self.pool().on_height(id, header.number, now());
                }
            };
            let mut looks: FuturesUnordered<_> = open.into_iter().map(look).collect();
            // One that hangs does not hold up the others.
            let over = tokio::time::Instant::now() + left().min(LOOK);
            while let Ok(Some(())) = tokio::time::timeout_at(over, looks.next()).await {
                if matches!(self.there(height, past), There::Yes) {
                    return Ok(());
                }
            }
            tokio::time::sleep(wait.min(left())).await;
        }
        let pool = self.pool();
        if pool.ids().any(|id| !past.contains(&id) && pool.may_serve(id, Need::Reached(height))) {
            return Ok(());
        }
        drop(pool);
        let head = self.shown();
        let seen = head.map_or_else(String::new, |head| format!("; the highest seen is {head}"));
        let message = format!("eth_getLogs: no endpoint has shown block {height} yet{seen}");
        Err(Error::new(ErrorKind::NotYet { height, head }, message).with_retry(Retry::Later))
    }

    fn there(&self, height: u64, past: &[EndpointId]) -> There {
        let pool = self.pool();
        let ids = || pool.ids().filter(|id| !past.contains(id));
        let awake = |need| {
            let resting = pool.resting(need, now());
            ids().filter(move |id| !resting.contains(id))
        };
        let open: Vec<EndpointId> = awake(Need::Current).collect();
        let need = Need::Reached(height);
        let there =
            awake(need).next().is_some() || (open.is_empty() && ids().any(|id| pool.may_serve(id, need)));
        if there { There::Yes } else { There::NotYet(open) }
    }

    /// Says what an endpoint's list of logs holds.
    pub(crate) async fn examine_logs(
        &self,
        query: &LogQuery,
        id: EndpointId,
        depth: ReadDepth,
        reply: Reply,
    ) -> (Reply, Holding) {
        let Some(lowest) = reply.result().map(lowest) else { return (reply, Holding::All) };
        let examined = self.examine(query, (id, depth), lowest, reply).await;
        if examined.1 == Holding::Doubtful {
            self.meter.bloom_doubts.increment(1);
            let endpoint = self.name(id);
            tracing::debug!(%endpoint, "a list of logs is empty although the block's bloom speaks for one");
        }
        examined
    }

    async fn examine(
        &self,
        query: &LogQuery,
        (id, depth): (EndpointId, ReadDepth),
        lowest: Option<u64>,
        reply: Reply,
    ) -> (Reply, Holding) {
        match query.span {
            Span::Of(hash) if lowest.is_none() => self.examine_block(&query.filter, hash, id, reply).await,
            Span::Of(_) => (reply, Holding::All),
            Span::Range(first, last) => match (depth, lowest) {
                (ReadDepth::Deep, Some(lowest)) if lowest <= first => (reply, Holding::All),
                (ReadDepth::Deep, _) => self.examine_deep((first, last), lowest, id, reply).await,
                (ReadDepth::Frontier, None) if last - first < BLOOMS => {
                    self.examine_frontier(&query.filter, (first, last), id, reply).await
                }
                (ReadDepth::Frontier | ReadDepth::Unknown, _) => (reply, Holding::All),
            },
        }
    }

    /// An empty list for a block by its hash: an answer only where the same endpoint knows that block.
    async fn examine_block(
        &self,
        filter: &LogFilter,
        hash: B256,
        id: EndpointId,
        reply: Reply,
    ) -> (Reply, Holding) {
        let call = self.call("eth_getBlockByHash", &format!("[\"{hash}\",false]"));
        match self.blocks(id, &[call]).await.as_deref() {
            Some([None]) => {
                let error = ErrorPayload { code: -32_000, message: "unknown block".into(), data: None };
                let payload = Some(ResponsePayload::Failure(error));
                (Reply { verdict: Verdict::NotYet, payload }, Holding::Nothing)
            }
            Some([Some(block)]) if filter.may_be_in(&block.logs_bloom) => {
                let number = block.number.to();
                let window = self.config.read.frontier_blocks;
                let near = self.shown().is_none_or(|head| number >= head.saturating_sub(window));
                let held = !near && self.holds_logs_of(hash, number, id).await;
                (reply, if held { Holding::All } else { Holding::Doubtful })
            }
            _ => (reply, Holding::All),
        }
    }

    /// Whether an endpoint holds the logs of a block of the deep that has some: an index is not behind there, so what it
    /// does not list is not in the block. Seen once; without it, each bloom that speaks for what is not there would cost
    /// the whole grace.
    async fn holds_logs_of(&self, hash: B256, number: u64, id: EndpointId) -> bool {
        if self.pool().holds(id, DataKind::Logs, number, now()) == Holds::Proven {
            return true;
        }
        let all = self.call("eth_getLogs", &format!("[{{\"blockHash\":\"{hash}\"}}]"));
        let replies = self.aside(id, &[&all]).await;
        let listed = replies.first().and_then(Reply::result).and_then(lowest);
        if listed.is_some() {
            self.pool().history_shown(id, DataKind::Logs, number);
        }
        listed.is_some()
    }

    /// An empty list at the frontier, held against the blooms of its blocks.
    async fn examine_frontier(
        &self,
        filter: &LogFilter,
        (first, last): (u64, u64),
        id: EndpointId,
        reply: Reply,
    ) -> (Reply, Holding) {
        let calls: Vec<Call> = (first..=last).map(|number| self.block_call(number)).collect();
        let Some(blocks) = self.blocks(id, &calls).await else { return (reply, Holding::All) };
        if blocks.iter().any(Option::is_none) {
            // What replied knows less than what had shown the height: replicas behind one address.
            return (Reply { verdict: Verdict::NotYet, payload: reply.payload }, Holding::Nothing);
        }
        let doubtful = blocks.iter().flatten().any(|block| filter.may_be_in(&block.logs_bloom));
        (reply, if doubtful { Holding::Doubtful } else { Holding::All })
    }

    /// Logs of the deep from an endpoint that is not proven to hold them: a pruned node lists what it has, as if
    /// there was no more. Whether it has them is seen at the first blocks of the range that have any, once.
    async fn examine_deep(
        &self,
        (first, last): (u64, u64),
        lowest: Option<u64>,
        id: EndpointId,
        reply: Reply,
    ) -> (Reply, Holding) {
        if self.pool().holds(id, DataKind::Logs, first, now()) == Holds::Proven {
            return (reply, if lowest.is_none() { Holding::Nothing } else { Holding::All });
        }
        let unproven = lowest.map_or(Holding::Nothing, Holding::From);
        let missing = |reply: Reply| {
            let verdict = Verdict::Missing { kind: DataKind::Logs, oldest: None };
            (Reply { verdict, payload: reply.payload }, Holding::Nothing)
        };
        let end = last.min(first + BLOOMS - 1).min(lowest.unwrap_or(u64::MAX));
        let calls: Vec<Call> = (first..=end).map(|number| self.block_call(number)).collect();
        let Some(blocks) = self.blocks(id, &calls).await else { return (reply, unproven) };
        if blocks.iter().any(Option::is_none) {
            return missing(reply);
        }
        let with_logs = blocks.iter().flatten().find(|block| block.logs_bloom != Bloom::ZERO);
        let Some(block) = with_logs.map(|block| block.number.to::<u64>()) else {
            // There are no logs in what was looked at, whoever holds them.
            return (reply, if end == last { Holding::All } else { unproven });
        };
        if lowest == Some(block) {
            return (reply, Holding::All);
        }
        let params = format!("[{{\"fromBlock\":\"0x{block:x}\",\"toBlock\":\"0x{block:x}\"}}]");
        let probe = self.call("eth_getLogs", &params);
        let replies = self.aside(id, &[&probe]).await;
        match replies.first().map(|probe| (&probe.verdict, probe.result().map(self::lowest))) {
            Some((Verdict::Answer, Some(Some(_)))) => (reply, Holding::All),
            Some((Verdict::Answer, Some(None)) | (Verdict::Missing { .. }, _)) => missing(reply),
            // It holds too many of them for one reply.
            Some((Verdict::RangeTooLarge { .. }, _)) => (reply, Holding::All),
            _ => (reply, unproven),
        }
    }

    pub(crate) fn block_call(&self, number: u64) -> Call {
        self.call("eth_getBlockByNumber", &format!("[\"0x{number:x}\",false]"))
    }

    /// The blocks that these calls ask an endpoint for; `None` where it does not answer as it should.
    async fn blocks(&self, id: EndpointId, calls: &[Call]) -> Option<Vec<Option<LogsOf>>> {
        let calls: Vec<&Call> = calls.iter().collect();
        let replies = self.aside(id, &calls).await;
        replies.iter().map(|reply| serde_json::from_str(reply.result()?).ok()).collect()
    }

    /// A second question to an endpoint about its own answer.
    pub(crate) async fn aside(&self, id: EndpointId, calls: &[&Call]) -> Vec<Reply> {
        let timeout = self.config.attempt_timeout.min(self.config.read.frontier_retry_timeout);
        self.exchange(self.begin_at(id), calls, timeout, None).await.replies
    }
}

/// What a block says of its logs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogsOf {
    number: U64,
    logs_bloom: Bloom,
}

/// The height of the first log in a list; `None` for an empty list, 0 where it does not say.
fn lowest(list: &str) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Log {
        #[serde(default)]
        block_number: Option<U64>,
    }
    let logs: Vec<&RawValue> = serde_json::from_str(list).ok()?;
    let first = logs.first()?;
    let log: Option<Log> = serde_json::from_str(first.get()).ok();
    Some(log.and_then(|log| log.block_number).map_or(0, |number| number.to()))
}

/// What stands between the brackets of a list.
fn inside(list: &RawValue) -> Option<&str> {
    Some(list.get().trim().strip_prefix('[')?.strip_suffix(']')?.trim())
}
