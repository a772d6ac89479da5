//! Opens intents, gives handles, and owns the tasks that run them.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use alloy::primitives::Address;
use backstay_core::{
    Error, ErrorKind, Result,
    tx::{Content, Intent as Folded, Record},
};
use backstay_journal::{
    Author, Claim, Claiming, Journal, JournalError, Line, NewIntent, Owner, Query, State, Stored, Summary,
};
use backstay_recovery::Runner;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

use crate::{
    ClaimsConfig, Intent, Resume, RetentionConfig,
    intent::Slot,
    keeper::{Keeper, damaged},
    retention,
    run::Running,
};

/// How often an append of a caller is tried again when the run of the intent was faster.
const RACES: u32 = 16;
/// How long a line is claimed for only to be released.
const BRIEFLY: Duration = Duration::from_millis(1);

/// Runs the intents of its accounts while it exists, and gives handles to those of all.
///
/// Dropping it stops the work, as if the process had been killed, and releases the lines that it holds where the runtime
/// lives on. What had not ended goes on in another process, or at the next start.
pub struct Dispatcher {
    shared: Arc<Shared>,
    tasks: Arc<Tasks>,
}

/// The tasks of a dispatcher: they end with it. `None` once they were told to: none begins after that.
pub(crate) struct Tasks(Mutex<Option<JoinSet<()>>>);

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
    handles: HashMap<String, Vec<Weak<Slot>>>,
    /// With [`Resume::OnDemand`], the intents that wait to be asked for, each with how many records it had: those that
    /// were open when this client was connected, and those that have stopped since.
    left: HashMap<String, u64>,
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

impl Dispatcher {
    /// Begins to run the intents of these accounts.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Journal`].
    pub async fn start(
        runner: Arc<Runner>,
        journal: Arc<dyn Journal>,
        accounts: &[Address],
        claims: ClaimsConfig,
        retention: RetentionConfig,
        resume: Resume,
    ) -> Result<Self> {
        let tasks = Arc::new(Tasks(Mutex::new(Some(JoinSet::new()))));
        let lines = accounts.iter().map(|account| (*account, LineWork::default())).collect();
        let shared = Arc::new(Shared {
            chain_id: runner.driver().endpoints().chain_id(),
            runner,
            journal,
            owner: owner(claims.name.as_deref()),
            claims,
            resume,
            state: Mutex::new(Work { lines, ..Work::default() }),
            changed: watch::Sender::default(),
            tasks: Arc::downgrade(&tasks),
        });
        match resume {
            Resume::OnStart => {}
            Resume::OnDemand => {
                for account in accounts {
                    let open = shared.list(*account, &[State::Due, State::Stopped]).await?;
                    let left = open.into_iter().map(|summary| (summary.key, summary.records));
                    shared.work().left.extend(left);
                }
            }
        }
        for account in accounts {
            let line = Line { chain_id: shared.chain_id, account: *account };
            let wake = shared.work().lines[account].wake.clone();
            tasks.spawn(Keeper::new(shared.clone(), line, wake).keep());
        }
        if !accounts.is_empty() {
            tasks.spawn(retention::keep_small(shared.journal.clone(), shared.chain_id, retention));
        }
        Ok(Self { shared, tasks })
    }

    /// Writes an intent down, or joins the one that is stored under its key. It is run by the process that holds the
    /// line of its account.
    ///
    /// The grants count that were given last. An intent that had stopped is due again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::KeyConflict`] when the key was used with other content; [`ErrorKind::Journal`];
    /// [`ErrorKind::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves open whether it was written down: submit it again.
    pub async fn submit(&self, new: NewIntent) -> Result<Intent> {
        self.shared.check_open()?;
        let mut stored = self.open(&new).await?;
        for _ in 0..RACES {
            let wish = match self.shared.fold(&stored)? {
                None => break,
                Some(intent) if intent.outcome.is_some() => break,
                Some(intent) if intent.grants != new.grants => Record::Granted { grants: new.grants.clone() },
                Some(intent) if intent.stopped.is_some() => Record::Requested,
                Some(_) => break,
            };
            stored = match self.wish(&stored, wish).await? {
                Some(read) => read,
                None => self.open(&new).await?,
            };
        }
        let intent = Intent::new(self.shared.clone(), &stored, stored.seen());
        self.shared.asked_for(&new.key, stored.account);
        Ok(intent)
    }

    /// Writes an intent down, unless one is stored under its key: that one has the same content, or it is an error.
    async fn open(&self, new: &NewIntent) -> Result<Stored> {
        let stored = self.shared.journal.open(new.clone()).await?;
        must_match(&stored, &new.content)?;
        Ok(stored)
    }

    /// A handle for the intent that is stored under a key; `None` where there is none. It does not make it go on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Journal`].
    pub async fn find(&self, key: &str) -> Result<Option<Intent>> {
        let stored = self.shared.journal.load(self.shared.chain_id, key).await?;
        // A stop that is there already is told.
        Ok(stored.map(|stored| Intent::new(self.shared.clone(), &stored, 0)))
    }

    /// Makes every intent of this dispatcher's accounts go on that has not ended, also those that have stopped, and
    /// returns their handles in the order in which they were opened.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Journal`]; [`ErrorKind::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves some of them as they were: call it again.
    pub async fn resume(&self) -> Result<Vec<Intent>> {
        self.shared.check_open()?;
        let accounts: Vec<Address> = self.shared.work().lines.keys().copied().collect();
        let mut open = Vec::new();
        for account in accounts {
            open.extend(self.shared.list(account, &[State::Due, State::Stopped]).await?);
        }
        open.sort_by_key(|summary| summary.id);
        let mut handles = Vec::with_capacity(open.len());
        for summary in open {
            let stored = self.shared.journal.load(self.shared.chain_id, &summary.key).await?;
            let Some(stored) = stored else { continue };
            handles.extend(self.ask_again(stored).await?);
        }
        Ok(handles)
    }

    /// Makes the intent go on that is stored under a key, also where it has stopped, and returns its handle; `None` where
    /// there is none. One that has ended is left as it is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SignerMissing`] where it has not ended, and its account is not one of this dispatcher's;
    /// [`ErrorKind::Journal`]; [`ErrorKind::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves open whether it goes on: call it again.
    pub async fn resume_intent(&self, key: &str) -> Result<Option<Intent>> {
        self.shared.check_open()?;
        let Some(stored) = self.shared.journal.load(self.shared.chain_id, key).await? else {
            return Ok(None);
        };
        let ended = self.shared.fold(&stored)?.is_none_or(|intent| intent.outcome.is_some());
        let account = stored.account;
        if !ended && !self.shared.work().lines.contains_key(&account) {
            let message = format!(
                "intent `{key}` is of account {account}, and there is no signer for it; give the builder one with \
                 `signer`"
            );
            return Err(Error::new(ErrorKind::SignerMissing { account: Some(account) }, message));
        }
        self.ask_again(stored).await
    }

    /// Makes an intent go on, unless it has ended; `None` where it was pruned meanwhile.
    async fn ask_again(&self, mut stored: Stored) -> Result<Option<Intent>> {
        let mut ended = true;
        for _ in 0..RACES {
            match self.shared.fold(&stored)? {
                Some(intent) if intent.stopped.is_some() => {
                    match self.wish(&stored, Record::Requested).await? {
                        Some(read) => stored = read,
                        None => return Ok(None),
                    }
                }
                Some(intent) => {
                    ended = intent.outcome.is_some();
                    break;
                }
                None => break,
            }
        }
        let intent = Intent::new(self.shared.clone(), &stored, stored.seen());
        if !ended {
            self.shared.asked_for(&stored.key, stored.account);
        }
        Ok(Some(intent))
    }

    /// Removes the records of intents of this chain that ended longer ago than `older_than`, and returns how many there
    /// were.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Journal`]: some may be pruned.
    pub async fn prune(&self, older_than: Duration) -> Result<u64> {
        Ok(retention::prune(&*self.shared.journal, self.shared.chain_id, older_than).await?)
    }

    /// Stops the work, as if the process had been killed, and releases the lines, so that other processes need not wait
    /// until the claims end. What had not ended goes on there, or at the next start. Handles that wait are told
    /// [`ErrorKind::Closed`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Journal`] when a line could not be released: its claim ends by itself.
    pub async fn close(&self) -> Result<()> {
        self.shared.work().closed = true;
        if let Some(mut tasks) = self.tasks.take() {
            tasks.shutdown().await;
        }
        self.shared.changed.send_replace(());
        self.shared.release_all().await
    }

    /// Appends what a caller wants; when the run was faster, the intent is only read again. `None` where it had stopped
    /// for so long that it was pruned meanwhile: its key is free.
    async fn wish(&self, stored: &Stored, wish: Record) -> Result<Option<Stored>> {
        let journal = &self.shared.journal;
        match journal.append(Author::Caller, stored.id, stored.seen(), &[wish]).await {
            Ok(()) | Err(JournalError::Conflict { .. } | JournalError::Finished { .. }) => {}
            Err(JournalError::UnknownIntent { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        Ok(journal.load(self.shared.chain_id, &stored.key).await?)
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.shared.work().closed = true;
        if let (Some(mut tasks), Ok(runtime)) = (self.tasks.take(), tokio::runtime::Handle::try_current()) {
            tasks.abort_all();
            let shared = self.shared.clone();
            runtime.spawn(async move {
                tasks.shutdown().await;
                if let Err(error) = shared.release_all().await {
                    tracing::debug!(%error, "a line was not released");
                }
            });
        }
        self.shared.changed.send_replace(());
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("owner", &self.shared.owner).finish_non_exhaustive()
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
    fn take(&self) -> Option<JoinSet<()>> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
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
        let handles: Vec<_> = work.handles.get(key).into_iter().flatten().filter_map(Weak::upgrade).collect();
        work.running.insert(key.to_owned(), running.clone());
        drop(work);
        for handle in handles {
            handle.set(running.clone());
        }
        self.changed.send_replace(());
        true
    }

    /// A new handle: it knows the run that is under way, and is told of those that begin.
    pub(crate) fn handle(self: &Arc<Self>, key: &str) -> Arc<Slot> {
        let slot = Arc::new(Slot::new(self, key));
        let mut work = self.work();
        work.handles.entry(key.to_owned()).or_default().push(Arc::downgrade(&slot));
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
            handles.retain(|handle| handle.strong_count() > 0);
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

    /// Whether an intent may be run here. One that was left alone may once anybody has gone on with it.
    pub(crate) fn may_run(&self, summary: &Summary) -> bool {
        self.work().left.get(&summary.key).is_none_or(|records| summary.records > *records)
    }

    /// Notes that an intent was asked for here, and tells the keeper of its account.
    fn asked_for(&self, key: &str, account: Address) {
        self.work().left.remove(key);
        self.wake(account);
    }

    /// Notes that an intent has ended.
    pub(crate) fn forget(&self, key: &str) {
        self.work().left.remove(key);
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

    fn check_open(&self) -> Result<()> {
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
    async fn release_all(&self) -> Result<()> {
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

/// Compares the stored content with what is asked for now (T1).
fn must_match(stored: &Stored, asked: &Content) -> Result<()> {
    let (to, digest) = match (stored.records().next(), &stored.tombstone) {
        (Some(Record::Opened { content, .. }), _) => (content.to.to_string(), content.fingerprint()),
        (_, Some(tombstone)) => ("another contract".to_owned(), tombstone.content),
        // Damaged: that is found when it is folded.
        (_, None) => return Ok(()),
    };
    if digest == asked.fingerprint() {
        return Ok(());
    }
    let key = stored.key.clone();
    let message = format!(
        "key `{key}` was used before, for a call to {to} (content {digest}), and now for a call to {} (content {}); \
         nothing was sent; use another key for another effect",
        asked.to,
        asked.fingerprint()
    );
    Err(Error::new(ErrorKind::KeyConflict { key }, message))
}

/// The name under which this dispatcher claims lines: no other has it.
fn owner(name: Option<&str>) -> Owner {
    let process = std::process::id();
    // Fresh for every hasher of the standard library.
    let unique = RandomState::new().hash_one(process);
    match name {
        Some(name) => Owner::new(format!("{name} (process {process}, {unique:016x})")),
        None => Owner::new(format!("process {process}, {unique:016x}")),
    }
}
