//! The keeper of one account's line: holds its claim while there is work, and starts what is due.

use std::{sync::Arc, time::Duration};

use backstay_core::{
    Error, ErrorKind, Result,
    tx::{FoldError, Record},
};
use backstay_journal::{Claim, Claiming, Line, State, Stored, Summary};
use tokio::{sync::Notify, time::Instant};

use crate::{run, shared::Shared};

/// The shortest pause while somebody else holds the line.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause after a fault of the journal.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How many times `claims.ttl` what has stopped while bytes were open is left alone. What comes after their nonce waits
/// for them, so they are not left for ever.
const REST: u32 = 5;

pub(crate) struct Keeper {
    shared: Arc<Shared>,
    line: Line,
    wake: Arc<Notify>,
    held: Option<Held>,
    /// Whether intents that have stopped are looked through too: at the start, when the line was gained, and now and
    /// then.
    scan: Scan,
    /// When they are looked through again.
    scan_at: Instant,
    /// The faults of the journal that came one soon after another.
    faults: u32,
    /// When the newest of them was; `None` once the journal has worked for a while.
    fault_at: Option<Instant>,
    /// Whether the last turn failed.
    broken: bool,
}

struct Held {
    claim: Claim,
    /// When it is to be extended.
    extend_at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scan {
    /// What is due.
    Due,
    /// What has stopped while bytes were open, too.
    Everything,
}

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>, line: Line, wake: Arc<Notify>) -> Self {
        Self {
            shared,
            line,
            wake,
            held: None,
            scan: Scan::Everything,
            scan_at: Instant::now(),
            faults: 0,
            fault_at: None,
            broken: false,
        }
    }

    /// Keeps the line for ever.
    pub(crate) async fn keep(mut self) {
        loop {
            let pause = match self.turn().await {
                Ok(pause) => {
                    self.recovered();
                    pause
                }
                Err(error) => self.failed(error),
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wake.notified(), if !self.broken => {}
            }
        }
    }

    /// Looks for work once, and starts it. Returns how long there is nothing to do.
    async fn turn(&mut self) -> Result<Duration> {
        let poll = self.shared.claims.poll;
        if let Some(unwritten) = self.shared.take_unwritten(self.line.account) {
            return Err(unwritten);
        }
        // After a fault, the journal must take a write before another run starts.
        if self.broken {
            self.give_up();
        }
        if Instant::now() >= self.scan_at {
            self.scan = Scan::Everything;
        }
        let mut open = self.open(self.scan).await?;
        if open.is_empty() && self.shared.runs_of(self.line.account) == 0 {
            self.scanned();
            self.release_when_idle().await?;
            return Ok(poll);
        }
        match self.hold().await? {
            Holding::Since => {}
            Holding::Gained => open = self.open(Scan::Everything).await?,
            Holding::Elsewhere(remaining) => return Ok(remaining.clamp(LEAST_PAUSE, poll.max(LEAST_PAUSE))),
        }
        self.scanned();
        self.start(open).await?;
        let extend_at = self.held.as_ref().map_or_else(Instant::now, |held| held.extend_at);
        Ok(poll.min(extend_at.saturating_duration_since(Instant::now())))
    }

    fn scanned(&mut self) {
        if self.scan == Scan::Everything {
            self.scan = Scan::Due;
            self.scan_at = Instant::now() + self.shared.claims.ttl.saturating_mul(REST);
        }
    }

    /// What may have to be started here. What is due is not read yet: it may be somebody else's to run.
    async fn open(&self, scan: Scan) -> Result<Vec<Summary>> {
        let states: &[State] = match scan {
            Scan::Due => &[State::Due],
            Scan::Everything => &[State::Due, State::Stopped],
        };
        let mut open = Vec::new();
        for summary in self.shared.list(self.line.account, states).await? {
            if !self.shared.may_run(&summary) || self.shared.runs(&summary.key) {
                continue;
            }
            let goes_on = match summary.state {
                State::Due => true,
                // Nothing is open where nothing was signed, and many may have stopped.
                State::Stopped if summary.signed => self.to_start(&summary).await?.is_some(),
                State::Stopped | State::Finished | State::Pruned => false,
            };
            if goes_on {
                open.push(summary);
            }
        }
        Ok(open)
    }

    /// An intent with its records, where it goes on.
    async fn to_start(&self, summary: &Summary) -> Result<Option<Stored>> {
        let stored = self.shared.journal.load(self.line.chain_id, &summary.key).await?;
        let Some(stored) = stored else { return Ok(None) };
        let goes_on = self.shared.fold(&stored)?.is_some_and(|intent| match summary.state {
            // It may have stopped since.
            State::Due => intent.outcome.is_none() && intent.stopped.is_none(),
            State::Stopped => intent.goes_on(),
            State::Finished | State::Pruned => false,
        });
        Ok(goes_on.then_some(stored))
    }

    /// Starts them: all, or none where one of them cannot be read.
    async fn start(&mut self, open: Vec<Summary>) -> Result<()> {
        let mut due = Vec::with_capacity(open.len());
        for summary in open {
            // Many take longer to read than a claim lasts.
            match self.hold().await? {
                Holding::Since | Holding::Gained => {}
                Holding::Elsewhere(_) => return Ok(()),
            }
            due.extend(self.to_start(&summary).await?);
        }
        let Some(claim) = self.held.as_ref().map(|held| held.claim) else { return Ok(()) };
        // What was signed for comes first: its allowances are reserved before anybody else can count on them.
        due.sort_by_key(|stored| !stored.records().any(|record| matches!(record, Record::Signed { .. })));
        for stored in due {
            run::start(&self.shared, claim, &stored)?;
        }
        Ok(())
    }

    /// Claims the line, or extends its claim when it is time.
    async fn hold(&mut self) -> Result<Holding> {
        // A run may have found out that the line was lost in between.
        let claim = self.shared.claim_of(self.line.account);
        let holds = |held: &Held| Instant::now() < held.extend_at && claim == Some(held.claim);
        if self.held.as_ref().is_some_and(holds) {
            return Ok(Holding::Since);
        }
        // From before it is asked: the journal's own time begins later.
        let extend_at = Instant::now() + self.shared.claims.ttl / 3;
        match self.shared.claim(self.line).await? {
            Claiming::Held(claim) => {
                let before = self.held.replace(Held { claim, extend_at }).map(|held| held.claim);
                if before == Some(claim) {
                    return Ok(Holding::Since);
                }
                tracing::debug!(account = %self.line.account, token = claim.token, "line gained");
                Ok(Holding::Gained)
            }
            Claiming::Elsewhere { owner, remaining } => {
                if self.held.is_some() {
                    tracing::warn!(account = %self.line.account, by = %owner, "line lost");
                }
                self.give_up();
                Ok(Holding::Elsewhere(remaining))
            }
        }
    }

    /// Lets others have the line once there was nothing to do for a while.
    async fn release_when_idle(&mut self) -> Result<()> {
        if let Some(held) = self.held.take_if(|held| Instant::now() >= held.extend_at) {
            self.shared.release(held.claim).await?;
        }
        Ok(())
    }

    fn give_up(&mut self) {
        self.held = None;
    }

    fn recovered(&mut self) {
        self.broken = false;
        if self.fault_at.is_some_and(|at| at.elapsed() > LONGEST_PAUSE) {
            (self.faults, self.fault_at) = (0, None);
        }
        if self.shared.trouble(self.line.account).is_some() {
            self.shared.set_trouble(self.line.account, None);
            tracing::info!(account = %self.line.account, "the journal is back");
        }
    }

    /// Notes a failed turn, and returns how long to wait.
    fn failed(&mut self, error: Error) -> Duration {
        self.faults = self.faults.saturating_add(1);
        (self.fault_at, self.broken) = (Some(Instant::now()), true);
        let text = error.to_string();
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let before = self.shared.set_trouble(self.line.account, Some(error));
        if before.is_none_or(|before| before.to_string() != text) {
            let cause = cause.unwrap_or_default();
            tracing::error!(account = %self.line.account, error = text, cause, "nothing can be sent");
        }
        doubled(self.shared.claims.poll, self.faults).min(LONGEST_PAUSE)
    }
}

enum Holding {
    /// The line was held before.
    Since,
    /// It is held from now on: what happened to its intents meanwhile is not known.
    Gained,
    /// Somebody else holds it, so long at least.
    Elsewhere(Duration),
}

/// A pause that doubles with each time in a row, from the first one on.
pub(crate) fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.saturating_sub(1).min(16))
}

/// Records that do not add up.
pub(crate) fn damaged(key: &str, error: &FoldError) -> Error {
    let message = format!("intent `{key}`: the journal is damaged: {error}; nothing was sent");
    Error::new(ErrorKind::Journal, message)
}
