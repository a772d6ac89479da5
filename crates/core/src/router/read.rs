//! One read on its way: which endpoint is asked next, and when a miss is believed.
//!
//! Three zones, by the height that is asked for and the frontier:
//!
//! - **No height, or no known frontier**: one endpoint after another until one answers.
//! - **The frontier** (R4): at most `frontier_blocks` from the head. A miss is no fault: the block is about to
//!   come, and the origin is about to have it. It is waited for, at most `frontier_grace`.
//! - **The deep** (R3): further below. A miss from an endpoint that is not proven to hold the height is not an
//!   answer: those that are proven are asked, then those of unknown depth.
//!
//! In each, when nobody has answered and an endpoint asked us to wait (E10), it is asked again after that time,
//! where the deadline allows.

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use super::{Asks, ReadConfig};
use crate::{
    endpoint::{EndpointId, Holds, Need, Pick, Pool, Resting},
    failure::{DataKind, Verdict},
};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// The least time that an endpoint which asked us to wait is left alone within one read, whatever it said.
const LEAST_REST: Duration = Duration::from_millis(250);

/// One read on its way. Ask [`Read::next`], do what it says, and tell what came of it.
#[derive(Debug)]
pub struct Read {
    method: Cow<'static, str>,
    need: Need,
    prefer: Option<EndpointId>,
    attempt_timeout: Duration,
    retry_timeout: Duration,
    /// How long an answer that something speaks against is asked for again.
    doubted_until: Instant,
    deadline: Instant,
    zone: Zone,
    /// The endpoints of this round.
    tried: Vec<EndpointId>,
    /// Those that had no data, and how they said so.
    missed: Vec<(EndpointId, Miss)>,
    /// Those that failed.
    faulted: Vec<EndpointId>,
    /// Those that asked us to wait.
    limited: Vec<EndpointId>,
    /// Since when it has been waiting at the frontier.
    waiting_since: Option<Instant>,
    done: Option<Done>,
    /// The reply that may be handed out when nobody has a better one.
    kept: Option<Rank>,
}

/// How good a kept reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// An error that may be the endpoint's own.
    Error,
    /// An error that says what is missing.
    Refusal,
    /// `null`.
    Null,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask this endpoint, for at most this long.
    Ask(Pick, Duration),
    /// Wait for so long, then ask again what is next.
    Wait(Duration),
    /// Nothing: the read is over.
    Done(Done),
}

/// How a read is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The last reply is the answer.
    Answered,
    /// Nobody has a better answer than the last reply that was kept.
    Kept,
    /// No endpoint holds that height any more.
    Pruned {
        /// The height that was asked for.
        height: u64,
        /// The lowest that any endpoint is known to hold.
        oldest: Option<u64>,
    },
    /// No endpoint is left to ask.
    NobodyLeft,
    /// The operation's time is over.
    Late,
}

/// What becomes of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is the answer.
    Answer,
    /// It is kept: the answer, if nobody has a better one.
    Keep,
    /// It is nothing to hand out.
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Miss {
    /// `null`.
    Null,
    /// An error that says that it is not there yet.
    NotYet,
    /// An error that says that it is not held any more.
    Gone,
}

#[derive(Debug)]
enum Zone {
    Anywhere,
    /// Above the head by more than the window: whoever is asked first has the answer.
    Beyond,
    Deep {
        kind: DataKind,
        height: u64,
    },
    Frontier {
        /// What is read, and at which height; `None` where only the hash of the block is known.
        about: Option<(DataKind, u64)>,
        phase: Phase,
        waits: Box<ExponentialBackoff>,
        until: Instant,
    },
}

/// How far a read at the frontier has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Only the origin is asked, again and again.
    Origin(EndpointId),
    /// Everybody is asked, once.
    Everybody,
    /// Everybody is asked, again and again: there is no origin.
    Rounds,
}

impl Read {
    /// A read that begins now.
    #[expect(clippy::too_many_arguments, reason = "each is one fact of the read, given once")]
    pub fn new(
        pool: &Pool,
        method: Cow<'static, str>,
        asks: Asks,
        need: Need,
        prefer: Option<EndpointId>,
        config: &ReadConfig,
        (attempt_timeout, operation_timeout): (Duration, Duration),
        now: Instant,
    ) -> Self {
        // Looked for only where there is a height to hold against it.
        let at = match asks {
            Asks::At { kind, height } => pool.frontier().map(|frontier| (kind, height, frontier)),
            Asks::Current | Asks::ByHash | Asks::OfBlock => None,
        };
        let until = now + config.frontier_grace;
        let (zone, need) = match at {
            Some((kind, height, frontier)) => {
                // One that has the height by its number proves itself; logs up to a height need more.
                let at_height = match need {
                    Need::Reached(_) => need,
                    Need::Current | Need::AtHeight(_) | Need::Send => Need::AtHeight(height),
                };
                let window = config.frontier_blocks;
                if height > frontier.number.saturating_add(window) {
                    (Zone::Beyond, need)
                } else if height >= frontier.number.saturating_sub(window) {
                    let origin = pool.origin(&method, kind, height, now);
                    let origin = origin.filter(|origin| pool.may_serve(*origin, at_height));
                    let phase = origin.map_or(Phase::Rounds, Phase::Origin);
                    let (about, waits) = (Some((kind, height)), Box::new(waits()));
                    (Zone::Frontier { about, phase, waits, until }, at_height)
                } else {
                    (Zone::Deep { kind, height }, at_height)
                }
            }
            None if asks == Asks::OfBlock => {
                let (phase, waits) = (Phase::Rounds, Box::new(waits()));
                (Zone::Frontier { about: None, phase, waits, until }, need)
            }
            None => (Zone::Anywhere, need),
        };
        Self {
            method,
            need,
            prefer,
            attempt_timeout,
            retry_timeout: config.frontier_retry_timeout,
            doubted_until: now + config.bloom_grace,
            deadline: now + operation_timeout,
            zone,
            tried: Vec::new(),
            missed: Vec::new(),
            faulted: Vec::new(),
            limited: Vec::new(),
            waiting_since: None,
            done: None,
            kept: None,
        }
    }

    /// What it needs of an endpoint.
    pub fn need(&self) -> Need {
        self.need
    }

    /// The endpoints that were asked in this round.
    pub fn tried(&self) -> &[EndpointId] {
        &self.tried
    }

    /// Notes that an endpoint is asked as part of something else, such as a batch.
    pub fn asked(&mut self, id: EndpointId) {
        self.tried.push(id);
    }

    /// Notes that an endpoint had nothing when it was asked before: this read is a second opinion, and who rests is left
    /// alone.
    pub fn missed_by(&mut self, id: EndpointId) {
        self.tried.push(id);
        self.kept = Some(Rank::Null);
    }

    /// What to do next. An [`Step::Ask`] must be followed by [`Read::told`].
    pub fn next(&mut self, pool: &mut Pool, now: Instant) -> Step {
        if let Some(done) = self.done {
            return Step::Done(done);
        }
        let left = self.deadline.saturating_duration_since(now);
        if left.is_zero() {
            return Step::Done(if self.kept.is_some() { Done::Kept } else { Done::Late });
        }
        let timeout = self.attempt_timeout.min(left);
        let resting = self.resting();
        match &mut self.zone {
            Zone::Anywhere | Zone::Beyond => match self.begin(pool, self.prefer, resting, now) {
                Some(pick) => Step::Ask(pick, timeout),
                None => self.over(pool, now),
            },
            Zone::Deep { kind, height } => {
                let (kind, height) = (*kind, *height);
                // No extra cost: the usual endpoint first, unless it is known to lack the height.
                let usual = self.prefer.or_else(|| pool.favourite(now));
                let lacks = usual.is_none_or(|id| pool.holds(id, kind, height, now) == Holds::Missing);
                let preferred = if self.missed.is_empty() && !lacks {
                    self.prefer
                } else {
                    self.deeper(pool, kind, height, now).or(self.prefer)
                };
                // A miss of one that may lack the height is no word about it, so one that is proven to hold it is asked
                // even while it rests.
                let proven = preferred.is_some_and(|id| pool.holds(id, kind, height, now) == Holds::Proven);
                let resting = if proven { Resting::Ask } else { resting };
                match self.begin(pool, preferred, resting, now) {
                    Some(pick) => Step::Ask(pick, timeout),
                    None => self.over(pool, now),
                }
            }
            Zone::Frontier { phase, waits, until, .. } => match *phase {
                Phase::Origin(origin) if now < *until => {
                    if self.tried.is_empty() {
                        let timeout = timeout.min(until.saturating_duration_since(now));
                        match pool.begin_only(origin, now) {
                            Some(pick) => {
                                self.tried.push(origin);
                                Step::Ask(pick, timeout)
                            }
                            // Its breaker has opened meanwhile.
                            None => self.ask_everybody(pool, now),
                        }
                    } else {
                        self.tried.clear();
                        self.waiting_since.get_or_insert(now);
                        let wait = waits.next().unwrap_or(Duration::from_secs(1));
                        Step::Wait(wait.min(until.saturating_duration_since(now)))
                    }
                }
                Phase::Origin(_) => self.ask_everybody(pool, now),
                Phase::Everybody => match self.begin(pool, self.prefer, resting, now) {
                    Some(pick) => Step::Ask(pick, timeout.min(self.retry_timeout)),
                    None => self.over(pool, now),
                },
                Phase::Rounds => {
                    // The first look may take its time, as any call. What follows a miss may not hang on it.
                    let timeout =
                        if self.missed.is_empty() { timeout } else { timeout.min(self.retry_timeout) };
                    match pool.begin(self.need, &self.method, self.prefer, &self.tried, resting, now) {
                        Some(pick) => {
                            self.tried.push(pick.id);
                            Step::Ask(pick, timeout)
                        }
                        // Waiting helps where somebody spoke and had nothing yet.
                        None if now < *until && self.missed.iter().any(|(_, miss)| *miss != Miss::Gone) => {
                            self.tried.clear();
                            self.waiting_since.get_or_insert(now);
                            let wait = waits.next().unwrap_or(Duration::from_secs(1));
                            Step::Wait(wait.min(until.saturating_duration_since(now)))
                        }
                        None => self.over(pool, now),
                    }
                }
            },
        }
    }

    /// Tells what an endpoint replied, and what its result holds.
    pub fn told(
        &mut self,
        pool: &mut Pool,
        id: EndpointId,
        verdict: &Verdict,
        holding: Holding,
        now: Instant,
    ) -> Told {
        let about = self.about();
        let waits = matches!(self.zone, Zone::Deep { .. } | Zone::Frontier { .. });
        let empty = matches!(holding, Holding::Nothing | Holding::Doubtful);
        if holding == Holding::Doubtful
            && let Zone::Frontier { until, .. } = &mut self.zone
        {
            *until = self.doubted_until.min(*until);
        }
        let miss = match verdict {
            Verdict::Answer if (waits && empty) || holding == Holding::Doubtful => Some(Miss::Null),
            Verdict::NotYet => Some(Miss::NotYet),
            Verdict::Missing { oldest, .. } => {
                if let Some(about) = about {
                    pool.history_refused(id, about, *oldest, now);
                }
                Some(Miss::Gone)
            }
            _ => None,
        };
        if !matches!((verdict, miss), (Verdict::Answer, _) | (_, Some(Miss::Null | Miss::NotYet))) {
            self.end_grace_of(id, now);
        }
        if let Some(miss) = miss {
            // An archive's null is the answer.
            let proven =
                about.is_some_and(|(kind, height)| pool.holds(id, kind, height, now) == Holds::Proven);
            let deep = matches!(self.zone, Zone::Deep { .. });
            let believed = deep && proven && miss == Miss::Null && holding != Holding::Doubtful;
            if matches!(self.zone, Zone::Beyond) || believed {
                return self.answer();
            }
            self.missed.push((id, miss));
            return self.keep(if miss == Miss::Null { Rank::Null } else { Rank::Refusal });
        }
        match verdict {
            Verdict::Answer | Verdict::Reverted(_) => {
                if let Some((kind, height)) = about {
                    let shown = match holding {
                        Holding::From(lowest) => lowest.max(height),
                        Holding::All | Holding::Nothing | Holding::Doubtful => height,
                    };
                    pool.history_shown(id, kind, shown);
                    if let Zone::Deep { .. } = self.zone {
                        // What somebody has, those that said `null` to it do not hold.
                        for (other, miss) in &self.missed {
                            if *miss == Miss::Null {
                                pool.history_refused(*other, (kind, height), None, now);
                            }
                        }
                    }
                }
                self.answer()
            }
            Verdict::TxRefused(_) | Verdict::Invalid | Verdict::RangeTooLarge { .. } => self.answer(),
            Verdict::Unsupported | Verdict::Unclassified => self.keep(Rank::Error),
            Verdict::Fault(_) | Verdict::RateLimited { .. } | Verdict::WrongIdentity => {
                self.faulted.push(id);
                if matches!(verdict, Verdict::RateLimited { .. }) && !self.limited.contains(&id) {
                    self.limited.push(id);
                }
                Told::Drop
            }
            // Handled above.
            Verdict::NotYet | Verdict::Missing { .. } => Told::Drop,
        }
    }

    /// Which kind of data is read at which height, where that matters.
    fn about(&self) -> Option<(DataKind, u64)> {
        match self.zone {
            Zone::Deep { kind, height } => Some((kind, height)),
            Zone::Frontier { about, .. } => about,
            Zone::Anywhere | Zone::Beyond => None,
        }
    }

    /// Since when it has been waiting for what is about to come; `None` where it did not wait.
    pub fn waiting_since(&self) -> Option<Instant> {
        self.waiting_since
    }

    /// How far below the head it reads.
    pub fn depth(&self) -> ReadDepth {
        match self.zone {
            Zone::Deep { .. } => ReadDepth::Deep,
            Zone::Frontier { .. } => ReadDepth::Frontier,
            Zone::Anywhere | Zone::Beyond => ReadDepth::Unknown,
        }
    }

    /// How many endpoints beyond the first were asked because the first had nothing: second opinions.
    pub fn second_opinions(&self) -> usize {
        match self.zone {
            Zone::Deep { .. } => self.missed.len(),
            Zone::Anywhere | Zone::Beyond | Zone::Frontier { .. } => 0,
        }
    }

    /// A better reply is not replaced by a worse one.
    fn keep(&mut self, rank: Rank) -> Told {
        if self.kept.is_some_and(|kept| kept >= rank) {
            return Told::Drop;
        }
        self.kept = Some(rank);
        Told::Keep
    }

    /// Only "not yet" is worth waiting for: whatever else the origin says ends its grace at once.
    fn end_grace_of(&mut self, id: EndpointId, now: Instant) {
        if let Zone::Frontier { phase: Phase::Origin(origin), until, .. } = &mut self.zone
            && *origin == id
        {
            *until = now;
        }
    }

    /// Endpoints that rest are asked only while nobody has spoken.
    fn resting(&self) -> Resting {
        if self.kept.is_none() { Resting::Ask } else { Resting::Leave }
    }

    fn answer(&mut self) -> Told {
        self.done = Some(Done::Answered);
        Told::Answer
    }

    fn begin(
        &mut self,
        pool: &mut Pool,
        prefer: Option<EndpointId>,
        resting: Resting,
        now: Instant,
    ) -> Option<Pick> {
        if matches!(self.zone, Zone::Beyond) && self.kept.is_some() {
            return None;
        }
        let pick = pool.begin(self.need, &self.method, prefer, &self.tried, resting, now)?;
        self.tried.push(pick.id);
        Some(pick)
    }

    /// The next endpoint to hold a miss against: those that are proven to hold the height first, then those
    /// of unknown depth, and last those that refused before: bounds are hearsay.
    fn deeper(&self, pool: &Pool, kind: DataKind, height: u64, now: Instant) -> Option<EndpointId> {
        let open = || pool.ids().filter(|id| !self.tried.contains(id) && pool.may_serve(*id, self.need));
        open().min_by_key(|id| pool.holds(*id, kind, height, now))
    }

    /// How long until one that asked us to wait may be asked again (E10), where nobody else has said anything
    /// that could be handed out; `None` where that is too late for this read.
    fn rest(&self, pool: &Pool, now: Instant) -> Option<Duration> {
        if self.kept.is_some() {
            return None;
        }
        let able = self.limited.iter().filter(|id| pool.may_serve(**id, self.need));
        let rests = able.map(|id| {
            let rested = pool.get(*id).rested_at();
            rested.map_or(LEAST_REST, |at| at.saturating_duration_since(now).max(LEAST_REST))
        });
        rests.min().filter(|rest| *rest < self.deadline.saturating_duration_since(now))
    }

    fn ask_everybody(&mut self, pool: &mut Pool, now: Instant) -> Step {
        if let Zone::Frontier { phase, .. } = &mut self.zone {
            *phase = Phase::Everybody;
        }
        self.tried.clear();
        self.next(pool, now)
    }

    fn over(&mut self, pool: &Pool, now: Instant) -> Step {
        // One whose budget is used up is nobody's fault, and may be asked in a moment.
        let settled = matches!(self.zone, Zone::Beyond) && self.kept.is_some();
        let wait = pool.wait(self.need, &self.tried, self.resting(), now);
        if let Some(wait) = wait.filter(|_| !settled) {
            return Step::Wait(wait.min(self.deadline.saturating_duration_since(now)));
        }
        if let Some(wait) = self.rest(pool, now) {
            self.tried.retain(|id| !self.limited.contains(id));
            self.faulted.clear();
            return Step::Wait(wait);
        }
        // So far below the head, "not yet" is no more than another word for it.
        let refused = self.missed.iter().any(|(_, miss)| *miss != Miss::Null);
        Step::Done(match self.zone {
            // One that may hold it has only failed: nothing is known.
            Zone::Deep { kind, height }
                if self.faulted.iter().any(|id| pool.holds(*id, kind, height, now) != Holds::Missing) =>
            {
                Done::NobodyLeft
            }
            // A refusal by one makes another's null doubtful: it is not proven to hold the height either.
            Zone::Deep { kind, height } if refused => Done::Pruned { height, oldest: pool.oldest(kind) },
            Zone::Frontier { about: Some((kind, height)), .. }
                if refused && self.missed.iter().all(|(_, miss)| *miss == Miss::Gone) =>
            {
                Done::Pruned { height, oldest: pool.oldest(kind) }
            }
            _ if self.kept.is_some() => Done::Kept,
            _ => Done::NobodyLeft,
        })
    }
}

/// What the result of a reply holds of what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// All of it.
    All,
    /// What lies at this height or above. What is below may not be held.
    From(u64),
    /// Nothing: `null`, or an empty list that proves nothing.
    Nothing,
    /// Nothing, although something speaks for there being something.
    Doubtful,
}

/// How far below the head a read reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadDepth {
    /// Its height, or the head, is not known.
    Unknown,
    /// At most `frontier_blocks` from the head.
    Frontier,
    /// Further below.
    Deep,
}

/// Waits between rounds at the frontier: 50 ms, doubling to a second.
fn waits() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(1))
        .with_factor(2.0)
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests;
