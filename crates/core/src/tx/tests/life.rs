//! A process that drives intents as the runner does, on a simulated chain: it does what is due, appends what came
//! of it, and can be stopped for ever, or for a while, between any two of its acts.

use std::{
    cell::{RefCell, RefMut},
    collections::BTreeMap,
    future::Future,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker},
};

use alloy_primitives::TxHash;

use super::world::{ACCOUNT, NEED, Tx, World, decode, plan};
use crate::{
    error::{Delivery, Retry},
    failure::RefusalKind,
    recovery::{LastRound, RoundVerdict, admit_round, authorise},
    tx::{
        Attempt, Check, Content, Due, Grant, Inclusion, Intent, Outcome, Record, RecordEffect, SendAnswer,
        StepId, Stop, first_free,
    },
};

/// How many blocks a transaction is waited for.
const PATIENCE: u64 = 40;
/// How many blocks a condition is waited for.
const CHECKING: u64 = 3;
const MAX_ROUNDS: u32 = 2;

/// Everything that outlives a process.
#[derive(Clone, Debug)]
pub(super) struct Sea {
    pub(super) world: World,
    /// The records of each intent.
    pub(super) journal: Vec<Vec<Record>>,
    /// Who holds which nonce.
    pub(super) slots: BTreeMap<u64, (usize, StepId)>,
    /// The process that has claimed the account's line last, and its token. Every claim ends in time.
    claim: (usize, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotAppended {
    ClaimLost,
    Conflict,
    SlotTaken,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Outcome(Outcome),
    /// With an error: the intent stays open.
    Stopped(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Timeout,
    Reverts,
    NotGranted,
    Exhausted,
    NoProgress,
    StepRefused,
    /// Another process has the account's line.
    Elsewhere,
}

/// Why a run cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Off(Why),
    /// Somebody else has written meanwhile.
    Superseded,
}

/// What the caller asks for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The process that is asked.
    pub(super) process: usize,
    pub(super) intent: usize,
    pub(super) content: Content,
    pub(super) grants: Vec<Grant>,
}

/// One process at work on one intent.
pub(super) struct Life {
    sea: Rc<RefCell<Sea>>,
    work: Pin<Box<dyn Future<Output = End>>>,
    /// How many of its acts are done.
    pub(super) acts: usize,
}

impl Life {
    pub(super) fn new(sea: &Rc<RefCell<Sea>>, asked: &Asked) -> Self {
        let run = Run { sea: sea.clone(), asked: asked.clone(), token: 0, view: 0, state: None };
        Self { sea: sea.clone(), work: Box::pin(run.drive()), acts: 0 }
    }

    /// Lets it do one more act.
    pub(super) fn step(&mut self) -> Option<End> {
        self.acts += 1;
        match pin!(&mut self.work).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    /// Lets it do so many acts.
    pub(super) fn steps(&mut self, acts: usize) -> Option<End> {
        (0..acts).find_map(|_| self.step())
    }

    pub(super) fn finish(&mut self) -> End {
        self.steps(10_000).unwrap_or_else(|| panic!("it goes on for ever: {:#?}", self.sea.borrow()))
    }
}

impl Sea {
    pub(super) fn new(world: World) -> Self {
        Self { world, journal: Vec::new(), slots: BTreeMap::new(), claim: (0, 0) }
    }

    pub(super) fn state(&self, intent: usize) -> Option<Intent> {
        let records = self.journal.get(intent).filter(|records| !records.is_empty())?;
        Some(Intent::fold(records).expect("what was appended adds up"))
    }

    /// The bytes that count as sent and that no block holds.
    pub(super) fn open_bytes(&self) -> Vec<Tx> {
        let states = (0..self.journal.len()).filter_map(|intent| self.state(intent));
        let attempts = states.flat_map(|state| state.transactions.into_values()).flat_map(|tx| tx.attempts);
        attempts.map(|tx| decode(&tx.raw)).filter(|tx| tx.nonce >= self.world.now().count).collect()
    }

    /// Claims the account's line, when the claim of whoever had it has ended.
    fn claim(&mut self, process: usize) -> u64 {
        if self.claim.0 != process || self.claim.1 == 0 {
            self.claim = (process, self.claim.1 + 1);
        }
        self.claim.1
    }

    fn append(
        &mut self,
        token: u64,
        intent: usize,
        after: usize,
        records: &[Record],
    ) -> Result<(), NotAppended> {
        if token != self.claim.1 && !records.iter().all(Record::is_of_caller) {
            return Err(NotAppended::ClaimLost);
        }
        if self.journal.len() <= intent {
            self.journal.resize(intent + 1, Vec::new());
        }
        if self.journal[intent].len() != after {
            return Err(NotAppended::Conflict);
        }
        for effect in records.iter().filter_map(Record::effect) {
            match effect {
                RecordEffect::Take { nonce, step } => match self.slots.get(&nonce) {
                    Some(held) if *held != (intent, step) => return Err(NotAppended::SlotTaken),
                    Some(_) | None => drop(self.slots.insert(nonce, (intent, step))),
                },
                RecordEffect::Release { nonce } | RecordEffect::Lose { nonce } => {
                    let held = self.slots.remove(&nonce);
                    assert!(
                        held.is_some_and(|(holder, _)| holder == intent),
                        "it frees what it does not hold"
                    );
                }
                RecordEffect::Finish => {}
            }
        }
        self.journal[intent].extend_from_slice(records);
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Fresh,
    MaybeSent,
}

struct Run {
    sea: Rc<RefCell<Sea>>,
    asked: Asked,
    token: u64,
    /// The fence of its session: nothing is read below it.
    view: u64,
    /// What the records that it has read or written add up to.
    state: Option<Intent>,
}

impl Run {
    async fn drive(mut self) -> End {
        match self.open().await {
            Ok(()) => {}
            Err(why) => return End::Stopped(why),
        }
        loop {
            let broken = match self.run().await {
                Ok(outcome) => return End::Outcome(outcome),
                Err(broken) => broken,
            };
            let stopped = match broken {
                Broken::Off(why) => {
                    let delivery =
                        if self.intent().may_be_sent() { Delivery::Unknown } else { Delivery::NotSent };
                    let stop = Stop { why: format!("{why:?}"), retry: Retry::Later, delivery };
                    self.append(vec![Record::Stopped { stop }]).await.map(|()| why)
                }
                Broken::Superseded => Err(Broken::Superseded),
            };
            match stopped {
                Ok(why) | Err(Broken::Off(why)) => return End::Stopped(why),
                // From what they wrote.
                Err(Broken::Superseded) if self.sea().claim.1 == self.token => self.load(),
                Err(Broken::Superseded) => return End::Stopped(Why::Elsewhere),
            }
        }
    }

    fn sea(&self) -> RefMut<'_, Sea> {
        self.sea.borrow_mut()
    }

    fn intent(&self) -> &Intent {
        self.state.as_ref().expect("it was opened")
    }

    /// What a caller does: opens the intent, or asks for it again; and its process claims the account's line.
    async fn open(&mut self) -> Result<(), Why> {
        let Asked { process, intent, content, grants } = self.asked.clone();
        act().await;
        self.load();
        if self.state.is_none() {
            let opened = Record::Opened { account: ACCOUNT, content };
            let granted = (!grants.is_empty()).then(|| Record::Granted { grants: grants.clone() });
            let records: Vec<Record> = [opened].into_iter().chain(granted).collect();
            let intents = self.sea().journal.len().max(intent + 1);
            self.sea().journal.resize_with(intents, Vec::new);
            self.sea().journal[intent] = records;
            act().await;
            self.load();
        }
        while let Some(asked) = self.asks(&grants) {
            // Whoever works on it may write in between: then it is asked for again.
            if let Err(Broken::Off(why)) = self.append(vec![asked]).await {
                return Err(why);
            }
            self.load();
        }
        act().await;
        let token = self.sea().claim(process);
        self.token = token;
        self.load();
        Ok(())
    }

    fn asks(&self, grants: &[Grant]) -> Option<Record> {
        let state = self.intent();
        match (&state.outcome, &state.stopped) {
            (Some(_), _) => None,
            (None, _) if state.grants != grants => Some(Record::Granted { grants: grants.to_vec() }),
            (None, Some(_)) => Some(Record::Requested),
            (None, None) => None,
        }
    }

    fn load(&mut self) {
        let stored = self.sea().state(self.asked.intent);
        self.state = stored;
    }

    /// Records are durable before what they announce, so a process can die on either side of it.
    async fn append(&mut self, records: Vec<Record>) -> Result<(), Broken> {
        self.try_append(records).await?.map_err(|_| Broken::Superseded)
    }

    async fn try_append(&mut self, records: Vec<Record>) -> Result<Result<(), NotAppended>, Broken> {
        act().await;
        let (intent, after) = (self.asked.intent, self.intent().records as usize);
        let next = records.iter().try_fold(self.intent().clone(), Intent::next).expect("it adds up");
        let token = self.token;
        let appended = self.sea().append(token, intent, after, &records);
        act().await;
        match appended {
            Ok(()) => {
                self.state = Some(next);
                Ok(Ok(()))
            }
            Err(NotAppended::SlotTaken) => Ok(Err(NotAppended::SlotTaken)),
            Err(NotAppended::Conflict | NotAppended::ClaimLost) => Err(Broken::Superseded),
        }
    }

    async fn wait(&self) {
        act().await;
        self.sea().world.tick();
    }

    /// The newest block at or above the fence that it is shown becomes the fence.
    fn step(&mut self) {
        let view = self.sea().world.view(self.view).number;
        self.view = view;
    }

    async fn run(&mut self) -> Result<Outcome, Broken> {
        self.view = self.intent().fence.map_or(0, |fence| fence.number);
        self.step();
        let mut fresh = None;
        let mut goes = 0;
        loop {
            match self.intent().due() {
                Due::Nothing(outcome) => return Ok(outcome),
                Due::Prepare { step, call } => {
                    if let (StepId::Plan { .. }, Err(error)) = (step, authorise(&call, &self.intent().grants))
                    {
                        self.append(vec![Record::Abandoned { why: error.to_string() }]).await?;
                        continue;
                    }
                    if self.prepare(step, &call).await? {
                        fresh = Some(step);
                    } else {
                        goes += 1;
                        self.recover(step, goes).await?;
                    }
                }
                Due::Settle { step, attempt } => {
                    let freshness = match fresh.take() {
                        Some(signed) if signed == step => Freshness::Fresh,
                        Some(_) | None => Freshness::MaybeSent,
                    };
                    if let (true, StepId::Plan { .. }) = (self.settle(step, &attempt, freshness).await?, step)
                    {
                        return Err(Broken::Off(Why::StepRefused));
                    }
                }
                Due::Check { step, check, .. } => self.check(step, &check).await?,
                Due::Conclude { inclusion, .. } => self.conclude(inclusion).await?,
            }
        }
    }

    /// Signs, unless the call reverts.
    async fn prepare(&mut self, step: StepId, call: &Content) -> Result<bool, Broken> {
        self.step();
        let view = self.view;
        if !self.sea().world.simulate(call, view) {
            return Ok(false);
        }
        loop {
            let mined = self.sea().world.at(self.view).count;
            let taken: Vec<u64> = self.sea().slots.range(mined..).map(|(nonce, _)| *nonce).collect();
            let nonce = first_free(mined, taken);
            let (hash, raw) = self.sea().world.sign(nonce, call);
            let unused_at = self.view;
            let attempt = Attempt { nonce, unused_at, hash, raw, gas_limit: 1, max_fee_per_gas: 1 };
            if self.try_append(vec![Record::Signed { step, attempt }]).await?.is_ok() {
                return Ok(true);
            }
        }
    }

    /// Gets bytes included. `true` when all endpoints refused them for good.
    async fn settle(
        &mut self,
        step: StepId,
        attempt: &Attempt,
        mut freshness: Freshness,
    ) -> Result<bool, Broken> {
        self.step();
        let deadline = self.sea().world.head() + PATIENCE;
        let mut said = None;
        if freshness == Freshness::MaybeSent {
            if let Some(found) = self.look(attempt) {
                return self.include(step, found).await;
            }
            self.append(vec![Record::Resumed]).await?;
        }
        loop {
            act().await;
            let answer = self.sea().world.send(&attempt.raw);
            act().await;
            match answer {
                SendAnswer::Refused(kind) if freshness == Freshness::Fresh && kind.is_final() => {
                    return self.refuse(step, attempt, kind).await;
                }
                SendAnswer::Accepted | SendAnswer::Unknown => freshness = Freshness::MaybeSent,
                SendAnswer::Refused(_) | SendAnswer::NotSent => {}
            }
            if said != Some(answer) {
                self.append(vec![Record::Submitted { hash: attempt.hash, answer }]).await?;
                said = Some(answer);
            }
            if answer == SendAnswer::Refused(RefusalKind::NonceTooLow)
                && let Some((block, by)) = self.displaced(attempt)
                && (freshness == Freshness::Fresh || self.sea().world.is_final(block))
            {
                self.append(vec![Record::Displaced { nonce: attempt.nonce, by, block }]).await?;
                return Ok(false);
            }
            let sent_at = self.sea().world.head();
            let patience = if answer == SendAnswer::Accepted { 2 } else { 1 };
            while self.sea().world.head() < sent_at + patience {
                if let Some(found) = self.look(attempt) {
                    return self.include(step, found).await;
                }
                self.wait().await;
            }
            if self.sea().world.head() >= deadline {
                return Err(Broken::Off(Why::Timeout));
            }
        }
    }

    fn look(&self, attempt: &Attempt) -> Option<Inclusion> {
        let found = self.sea().world.receipt(attempt.hash);
        found.filter(|found| found.block.number > attempt.unused_at)
    }

    /// The block in which another transaction has used the nonce.
    fn displaced(&mut self, attempt: &Attempt) -> Option<(u64, TxHash)> {
        self.step();
        let world = &self.sea().world;
        if world.at(self.view).count <= attempt.nonce {
            return None;
        }
        let (block, hash) = world.user_of(attempt.nonce)?;
        (hash != attempt.hash && block > attempt.unused_at && block <= self.view).then_some((block, hash))
    }

    async fn include(&mut self, step: StepId, inclusion: Inclusion) -> Result<bool, Broken> {
        self.append(vec![Record::Included { step, inclusion, by: "a".into() }]).await?;
        self.view = self.view.max(inclusion.block.number);
        Ok(false)
    }

    async fn refuse(&mut self, step: StepId, attempt: &Attempt, kind: RefusalKind) -> Result<bool, Broken> {
        let ending = match step {
            StepId::Effect => Record::Finished { outcome: Outcome::Refused { kind } },
            StepId::Plan { .. } => Record::Abandoned { why: kind.to_string() },
        };
        self.append(vec![Record::Released { nonce: attempt.nonce }, ending]).await?;
        Ok(true)
    }

    /// The allowance flow, within the bounds of rounds and grants.
    async fn recover(&mut self, step: StepId, goes: u32) -> Result<(), Broken> {
        if let StepId::Plan { .. } = step {
            self.append(vec![Record::Abandoned { why: "it reverts".into() }]).await?;
            return if goes > MAX_ROUNDS { Err(Broken::Off(Why::Reverts)) } else { Ok(()) };
        }
        let allowance = self.sea().world.at(self.view).allowance;
        if allowance >= NEED {
            return Err(Broken::Off(Why::Reverts));
        }
        let (flow, diagnosis) = ("allowance", format!("it is {allowance} and {NEED} is needed"));
        let steps = plan(self.sea().world.quirks);
        let intent = self.intent().clone();
        let last_round = match intent.rounds.last() {
            Some(last) if last.steps == steps && allowance >= NEED => LastRound::Holds,
            Some(_) | None => LastRound::Undone,
        };
        match admit_round(&intent, flow, &diagnosis, last_round, MAX_ROUNDS) {
            RoundVerdict::Go => {}
            RoundVerdict::Exhausted => return Err(Broken::Off(Why::Exhausted)),
            RoundVerdict::NoProgress => return Err(Broken::Off(Why::NoProgress)),
        }
        if steps.iter().any(|step| authorise(&step.call, &intent.grants).is_err()) {
            return Err(Broken::Off(Why::NotGranted));
        }
        let block = self.sea().world.block(self.view);
        self.append(vec![Record::Fenced { block }, Record::Planned { flow: flow.into(), diagnosis, steps }])
            .await
    }

    async fn check(&mut self, step: StepId, check: &Check) -> Result<(), Broken> {
        let until = self.sea().world.head() + CHECKING;
        loop {
            self.step();
            let holds =
                alloy_primitives::U256::from(self.sea().world.at(self.view).allowance) >= check.at_least;
            if holds || self.sea().world.head() >= until {
                let block = self.sea().world.block(self.view);
                return self.append(vec![Record::Checked { step, block, holds }]).await;
            }
            self.wait().await;
        }
    }

    async fn conclude(&mut self, inclusion: Inclusion) -> Result<(), Broken> {
        let corroborated = true;
        let outcome = if inclusion.succeeded {
            Outcome::Included { inclusion, corroborated }
        } else {
            Outcome::Reverted { inclusion, corroborated, data: Default::default() }
        };
        self.append(vec![Record::Finished { outcome }]).await
    }
}

/// Where a process can be killed.
async fn act() {
    let mut yielded = false;
    std::future::poll_fn(
        |_| if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending },
    )
    .await;
}
