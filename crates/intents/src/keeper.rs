//! The keeper of one account's line: holds its claim while there is work, and starts what is due.

use std::{sync::Arc, time::Duration};

use backstay_core::{Error, ErrorKind, Result, tx::FoldError};
use backstay_journal::{Claim, Claiming, Line, State, Stored};
use tokio::{sync::Notify, time::Instant};

use crate::{dispatcher::Shared, run};

/// The shortest pause while somebody else holds the line.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause after a fault of the journal.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

pub(crate) struct Keeper {
    shared: Arc<Shared>,
    line: Line,
    wake: Arc<Notify>,
    held: Option<Held>,
    /// Whether intents that have stopped are looked through too: at the start, and when the line was gained.
    scan: Scan,
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
    pub(crate) const fn new(shared: Arc<Shared>, line: Line, wake: Arc<Notify>) -> Self {
        Self {
            shared,
            line,
            wake,
            held: None,
            scan: Scan::Everything,
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
        let mut due = self.due(self.scan).await?;
        if due.is_empty() && self.shared.runs_of(self.line.account) == 0 {
            self.scan = Scan::Due;
            self.release_when_idle().await?;
            return Ok(poll);
        }
        let claim = match self.hold().await? {
            Holding::Since(claim) => claim,
            Holding::Gained(claim) => {
                due = self.due(Scan::Everything).await?;
                claim
            }
            Holding::Elsewhere(remaining) => return Ok(remaining.clamp(LEAST_PAUSE, poll.max(LEAST_PAUSE))),
        };
        self.scan = Scan::Due;
        for stored in due {
            run::start(&self.shared, claim, &stored)?;
        }
        let extend_at = self.held.as_ref().map_or_else(Instant::now, |held| held.extend_at);
        Ok(poll.min(extend_at.saturating_duration_since(Instant::now())))
    }

    /// What may be started here.
    async fn due(&self, scan: Scan) -> Result<Vec<Stored>> {
        let states: &[State] = match scan {
            Scan::Due => &[State::Due],
            Scan::Everything => &[State::Due, State::Stopped],
        };
        let mut due = Vec::new();
        for summary in self.shared.list(self.line.account, states).await? {
            if !self.shared.may_run(&summary) || self.shared.runs(&summary.key) {
                continue;
            }
            let stored = self.shared.journal.load(self.line.chain_id, &summary.key).await?;
            let Some(stored) = stored else { continue };
            let goes_on = self.shared.fold(&stored)?.is_some_and(|intent| match scan {
                Scan::Due => intent.outcome.is_none() && intent.stopped.is_none(),
                Scan::Everything => intent.goes_on(),
            });
            if goes_on {
                due.push(stored);
            }
        }
        Ok(due)
    }

    /// Claims the line, or extends its claim when it is time.
    async fn hold(&mut self) -> Result<Holding> {
        if let Some(held) = self.held.as_ref().filter(|held| Instant::now() < held.extend_at) {
            return Ok(Holding::Since(held.claim));
        }
        // From before it is asked: the journal's own time begins later.
        let extend_at = Instant::now() + self.shared.claims.ttl / 3;
        match self.shared.claim(self.line).await? {
            Claiming::Held(claim) => {
                let before = self.held.replace(Held { claim, extend_at }).map(|held| held.claim);
                if before == Some(claim) {
                    return Ok(Holding::Since(claim));
                }
                tracing::debug!(account = %self.line.account, token = claim.token, "line gained");
                Ok(Holding::Gained(claim))
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
        let before = self.shared.set_trouble(self.line.account, Some(error));
        if before.is_none_or(|before| before.to_string() != text) {
            tracing::error!(account = %self.line.account, error = text, "nothing can be sent");
        }
        let doubled = 1_u32.checked_shl(self.faults.min(16) - 1).unwrap_or(u32::MAX);
        self.shared.claims.poll.saturating_mul(doubled).min(LONGEST_PAUSE)
    }
}

enum Holding {
    /// The line was held before.
    Since(Claim),
    /// It is held from now on: what happened to its intents meanwhile is not known.
    Gained(Claim),
    /// Somebody else holds it, so long at least.
    Elsewhere(Duration),
}

/// Records that do not add up.
pub(crate) fn damaged(key: &str, error: &FoldError) -> Error {
    let message = format!("intent `{key}`: the journal is damaged: {error}; nothing was sent");
    Error::new(ErrorKind::Journal, message)
}
