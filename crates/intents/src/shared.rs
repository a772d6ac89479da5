//! What the tasks and the handles of a dispatcher share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use alloy::primitives::Address;
use backstay_core::{Error, ErrorKind, Result, tx::Intent as Folded};
use backstay_journal::{Claim, Claiming, Journal, JournalError, Line, Owner, Query, State, Stored, Summary};
use backstay_recovery::Runner;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Instant,
};

use crate::{
    ClaimsConfig, Resume,
    intent::{Caller, Slot},
    keeper::{damaged, doubled},
    run::Running,
};

/// How long a line is claimed for only to be released.
const BRIEFLY: Duration = Duration::from_millis(1);

/// The longest rest of an intent that the endpoints cannot serve. The first one is `claims.poll`.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// What the tasks and the handles share.
pub(crate) struct Shared {
    pub(crate) runner: Arc<Runner>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) chain_id: u64,
    pub(crate) owner: Owner,
    pub(crate) claims: ClaimsConfig,
    pub(crate) resume: Resume,
    state: Mutex<Work>,
    /// Told when an intent begins or ends to run here, and when the line of an account has trouble.
    changed: watch::Sender<()>,
    tasks: Weak<Tasks>,
}

#[derive(Default)]
struct Work {
    /// The intents that run here, by key.
    running: HashMap<String, Running>,
    /// The handles that are waiting, by key: each is told of every run that begins.
    handles: HashMap<String, Vec<(Weak<Slot>, Caller)>>,
    /// With [`Resume::OnDemand`], the intents that wait to be asked for, each with how many records it had: those that
    /// were open when this client was connected, and those that have stopped since.
    left: HashMap<String, u64>,
    /// The intents that wait until the endpoints may serve them again, and those that have waited for that just now.
    resting: HashMap<String, Rest>,
    lines: HashMap<Address, LineWork>,
    closed: bool,
}

/// An account that is signed for here.
#[derive(Default)]
struct LineWork {
    wake: Arc<Notify>,
    claim: Option<Claim>,
    /// How many claims were asked for whose answer has not come: when they are cancelled, it is not known whether the
    /// line is held.
    claiming: u32,
    /// Why nothing can be done for it now.
    trouble: Option<Error>,
    /// Why a run could not write something down, until the keeper has heard of it.
    unwritten: Option<Error>,
}

/// A rest of an intent.
#[derive(Clone, Copy)]
struct Rest {
    until: Instant,
    /// How many there were in a row.
    times: u32,
    /// How many records it had: once it has more, somebody has gone on with it.
    records: u64,
}

/// The tasks of a dispatcher: they end with it. `None` once they were told to: none begins after that.
pub(crate) struct Tasks(Mutex<Option<JoinSet<()>>>);

impl Default for Tasks {
    fn default() -> Self {
        Self(Mutex::new(Some(JoinSet::new())))
    }
}

impl Shared {
    pub(crate) fn new(
        runner: Arc<Runner>,
        journal: Arc<dyn Journal>,
        accounts: &[Address],
        owner: Owner,
        claims: ClaimsConfig,
        resume: Resume,
        tasks: &Arc<Tasks>,
    ) -> Self {
        let lines = accounts.iter().map(|account| (*account, LineWork::default())).collect();
        Self {
            chain_id: runner.driver().endpoints().chain_id(),
            runner,
            journal,
            owner,
            claims,
            resume,
            state: Mutex::new(Work { lines, ..Work::default() }),
            changed: watch::Sender::default(),
            tasks: Arc::downgrade(tasks),
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tasks, unless the dispatcher is gone.
    pub(crate) fn tasks(&self) -> Option<Arc<Tasks>> {
        self.tasks.upgrade()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn runs(&self, key: &str) -> bool {
        self.work().running.contains_key(key)
    }

    /// The accounts that are signed for here.
    pub(crate) fn accounts(&self) -> Vec<Address> {
        self.work().lines.keys().copied().collect()
    }

    /// What wakes the keeper of an account.
    pub(crate) fn wake_of(&self, account: Address) -> Option<Arc<Notify>> {
        self.work().lines.get(&account).map(|line| line.wake.clone())
    }

    /// How many intents of an account run here.
    pub(crate) fn runs_of(&self, account: Address) -> usize {
        self.work().running.values().filter(|running| running.account == account).count()
    }

    /// Notes that an intent runs here, unless it does already, and tells its handles.
    pub(crate) fn begins(&self, key: &str, running: Running) -> bool {
        let mut work = self.work();
        if work.running.contains_key(key) {
            return false;
        }
        let handles = work.handles.get(key).into_iter().flatten();
        let handles: Vec<_> = handles.filter_map(|(handle, _)| handle.upgrade()).collect();
        work.running.insert(key.to_owned(), running.clone());
        drop(work);
        for handle in handles {
            handle.set(running.clone());
        }
        self.changed.send_replace(());
        true
    }

    /// A new handle: it knows the run that is under way, and is told of those that begin.
    pub(crate) fn handle(self: &Arc<Self>, key: &str, caller: Caller) -> Arc<Slot> {
        let slot = Arc::new(Slot::new(self, key));
        let mut work = self.work();
        work.handles.entry(key.to_owned()).or_default().push((Arc::downgrade(&slot), caller));
        let running = work.running.get(key).filter(|running| running.ended.borrow().is_none()).cloned();
        drop(work);
        // One that begins in between has told it already.
        if let Some(running) = running {
            slot.set(running);
        }
        slot
    }

    /// Lets go of the handles of a key that are dropped.
    pub(crate) fn clear_handles(&self, key: &str) {
        let mut work = self.work();
        if let Some(handles) = work.handles.get_mut(key) {
            handles.retain(|(handle, _)| handle.strong_count() > 0);
            if handles.is_empty() {
                work.handles.remove(key);
            }
        }
    }

    pub(crate) fn ends(&self, key: &str) {
        let mut work = self.work();
        if let Some(ended) = work.running.remove(key)
            && let Some(line) = work.lines.get(&ended.account)
        {
            line.wake.notify_one();
        }
        drop(work);
        self.changed.send_replace(());
    }

    /// Whether an intent may be run here now. One that was left alone, or rests, may once anybody has gone on with it.
    pub(crate) fn may_run(&self, summary: &Summary) -> bool {
        let work = self.work();
        let left = work.left.get(&summary.key).is_some_and(|records| summary.records <= *records);
        let rests = work
            .resting
            .get(&summary.key)
            .is_some_and(|rest| summary.records <= rest.records && Instant::now() < rest.until);
        !left && !rests
    }

    /// Lets an intent rest that the endpoints cannot serve now, and returns how many times that was in a row; `None` where
    /// somebody here has asked for it: that one is to be told.
    pub(crate) fn rest(&self, key: &str, records: u64) -> Option<u32> {
        let mut work = self.work();
        let asks =
            |(handle, caller): &(Weak<Slot>, Caller)| *caller == Caller::Asks && handle.strong_count() > 0;
        if work.handles.get(key).into_iter().flatten().any(asks) {
            return None;
        }
        let now = Instant::now();
        let times = work.resting.get(key).map_or(0, |rest| rest.times).saturating_add(1);
        // Those that went on long ago, here or elsewhere, are let go, so that the map stays as small as what rests.
        let Work { resting, running, .. } = &mut *work;
        resting.retain(|key, rest| running.contains_key(key) || now < rest.until + LONGEST_REST);
        let until = now + doubled(self.claims.poll, times).min(LONGEST_REST);
        resting.insert(key.to_owned(), Rest { until, times, records });
        Some(times)
    }

    /// Notes that an intent was asked for here, and tells the keeper of its account.
    pub(crate) fn asked_for(&self, key: &str, account: Address) {
        self.forget(key);
        self.wake(account);
    }

    /// Forgets that an intent was left alone, or rests: it has ended, or was asked for.
    pub(crate) fn forget(&self, key: &str) {
        let mut work = self.work();
        work.left.remove(key);
        work.resting.remove(key);
    }

    /// Notes that an intent has stopped, with so many records: it is left alone until it is asked for, where that is
    /// how it is wanted.
    pub(crate) fn leave(&self, key: &str, records: u64) {
        match self.resume {
            Resume::OnStart => {}
            Resume::OnDemand => drop(self.work().left.insert(key.to_owned(), records)),
        }
    }

    /// Claims a line, or extends its claim.
    pub(crate) async fn claim(&self, line: Line) -> Result<Claiming> {
        let of_line = |note: &dyn Fn(&mut LineWork)| {
            if let Some(line) = self.work().lines.get_mut(&line.account) {
                note(line);
            }
        };
        of_line(&|line| line.claiming += 1);
        let claimed = self.journal.claim(line, &self.owner, self.claims.ttl).await;
        // Not where it was cancelled: it may be held then.
        of_line(&|line| {
            line.claiming = line.claiming.saturating_sub(1);
            match &claimed {
                Ok(Claiming::Held(claim)) => line.claim = Some(*claim),
                Ok(Claiming::Elsewhere { .. }) => line.claim = None,
                Err(_) => {}
            }
        });
        Ok(claimed?)
    }

    /// The newest claim of a line, while it is not known to be lost.
    pub(crate) fn claim_of(&self, account: Address) -> Option<Claim> {
        self.work().lines.get(&account).and_then(|line| line.claim)
    }

    /// Releases a line that is held.
    pub(crate) async fn release(&self, claim: Claim) -> Result<()> {
        if let Some(line) = self.work().lines.get_mut(&claim.line.account) {
            line.claim = None;
        }
        Ok(self.journal.release(claim).await?)
    }

    /// Why nothing can be done for an account that is signed for here.
    pub(crate) fn trouble(&self, account: Address) -> Option<Error> {
        self.work().lines.get(&account).and_then(|line| line.trouble.clone())
    }

    /// Notes why nothing can be done for an account, and returns what was noted before.
    pub(crate) fn set_trouble(&self, account: Address, trouble: Option<Error>) -> Option<Error> {
        let before = match self.work().lines.get_mut(&account) {
            Some(line) => std::mem::replace(&mut line.trouble, trouble),
            None => None,
        };
        self.changed.send_replace(());
        before
    }

    /// Tells the keeper of an account that the journal does not take what a run writes.
    pub(crate) fn could_not_write(&self, account: Address, error: Error) {
        if let Some(line) = self.work().lines.get_mut(&account) {
            line.unwritten = Some(error);
        }
    }

    pub(crate) fn take_unwritten(&self, account: Address) -> Option<Error> {
        self.work().lines.get_mut(&account).and_then(|line| line.unwritten.take())
    }

    /// Whether nothing runs here any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.tasks.strong_count() == 0 || self.work().closed
    }

    /// Notes that nothing is to run here any more.
    pub(crate) fn shut(&self) {
        self.work().closed = true;
    }

    /// Makes those that wait look again.
    pub(crate) fn tell(&self) {
        self.changed.send_replace(());
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "the client was closed: connect another one"));
        }
        Ok(())
    }

    fn wake(&self, account: Address) {
        if let Some(line) = self.work().lines.get(&account) {
            line.wake.notify_one();
        }
    }

    /// Releases every line that is held, or may be.
    pub(crate) async fn release_all(&self) -> Result<()> {
        let lines: Vec<_> = self
            .work()
            .lines
            .iter_mut()
            .map(|(account, line)| (*account, line.claim.take(), std::mem::take(&mut line.claiming)))
            .collect();
        let mut released = Ok(());
        for (account, claim, claiming) in lines {
            let line = Line { chain_id: self.chain_id, account };
            let one = match claiming {
                0 => self.release_one(claim).await,
                // What was cancelled may have been done, or be done yet: this claim comes after it.
                _ => match self.journal.claim(line, &self.owner, BRIEFLY).await {
                    Ok(Claiming::Held(claim)) => self.release_one(Some(claim)).await,
                    Ok(Claiming::Elsewhere { .. }) => Ok(()),
                    Err(error) => Err(error),
                },
            };
            released = released.and(one);
        }
        Ok(released?)
    }

    async fn release_one(&self, claim: Option<Claim>) -> Result<(), JournalError> {
        match claim {
            Some(claim) => self.journal.release(claim).await,
            None => Ok(()),
        }
    }

    /// What the records of an intent add up to; `None` where only its tombstone is left.
    pub(crate) fn fold(&self, stored: &Stored) -> Result<Option<Folded>> {
        if stored.tombstone.is_some() {
            return Ok(None);
        }
        Folded::fold(stored.records()).map(Some).map_err(|error| damaged(&stored.key, &error))
    }

    /// The intents of an account in some states.
    pub(crate) async fn list(&self, account: Address, states: &[State]) -> Result<Vec<Summary>> {
        let mut query = Query {
            chain_id: Some(self.chain_id),
            account: Some(account),
            states: states.to_vec(),
            ..Query::default()
        };
        let mut all = Vec::new();
        loop {
            let page = self.journal.list(&query).await?;
            query.after = page.last().map(|last| last.id).or(query.after);
            let last = page.len() < query.limit as usize;
            all.extend(page);
            if last {
                return Ok(all);
            }
        }
    }
}

impl Tasks {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.lock();
        let Some(tasks) = tasks.as_mut() else { return };
        // Those that have ended are let go here, so that the set stays as small as what runs.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Takes them all, to be ended.
    pub(crate) fn take(&self) -> Option<JoinSet<()>> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
