//! Drives one intent to its end: its own call, and the plans of recovery flows.

use std::{sync::Arc, time::Duration};

use alloy::primitives::{Bytes, U256};
use backstay_core::{
    Delivery, EndpointName, Error, ErrorKind, Result, Retry,
    failure::Verdict,
    limits::{Zero, durations},
    recovery::{Diagnosis, Failure, LastRound, RoundVerdict, admit_round, authorise},
    session::What,
    tx::{Check, Due, Inclusion, Intent, Outcome, PlanStep, Record, StepId},
};
use backstay_provider::{Corroboration, Session};
use backstay_tx::{Driver, Freshness, Ledger, Prepared, Settled};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    allowances::{Allowances, Hold, Waited},
    flow::{Flow, PlanContext},
};

/// How often a failure whose cause is gone at a later block is looked at again.
const LOOKS: u32 = 8;

/// How long endpoints may lag behind the account's newest transaction that the journal has seen.
const CATCHES_UP: Duration = Duration::from_secs(60);

/// The bounds of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RecoveryConfig {
    /// Recovery rounds for one intent (F4). Default 2; 0 turns recovery off.
    pub max_rounds: u32,
    /// How long a flow may take to make a plan. Default 60 s.
    #[serde(with = "humantime_serde")]
    pub plan_timeout: Duration,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self { max_rounds: 2, plan_timeout: Duration::from_secs(60) }
    }
}

impl RecoveryConfig {
    /// Checks the values.
    ///
    /// # Errors
    ///
    /// A configuration error that names the key.
    pub fn validate(&self) -> Result<()> {
        durations([("recovery.plan_timeout", self.plan_timeout, Zero::Refused)])
    }
}

/// Runs intents.
///
/// Intents that share a grant run one after another: an allowance is shared state, and one intent's approve
/// would be spent by the next. Those without grants run side by side.
#[derive(Debug)]
pub struct Runner {
    driver: Driver,
    flows: Vec<Arc<dyn Flow>>,
    config: RecoveryConfig,
    allowances: Allowances,
}

/// One run of one intent: its session, and the allowances that it holds while it lasts.
#[derive(Debug)]
pub struct Run {
    session: Session,
    hold: Hold,
}

impl Run {
    /// Its session.
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// Ends it, and leaves what it has of the allowances to the run that comes next.
    pub fn into_hold(self) -> Hold {
        self.hold
    }
}

impl Runner {
    /// A runner with these flows, asked in this order.
    pub fn new(driver: Driver, flows: Vec<Arc<dyn Flow>>, config: RecoveryConfig) -> Self {
        Self { driver, flows, config, allowances: Allowances::default() }
    }

    /// The driver of its transactions.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// What a run of an intent has of its allowances from before it begins. Where several are about to begin, all of those
    /// for which something was signed are reserved first: what they have approved is theirs, and what they are about to
    /// spend is not there for others.
    pub fn reserve(&self, intent: &Intent) -> Hold {
        self.allowances.reserve(intent)
    }

    /// Begins a run of an intent: waits until no other intent holds its allowances, or has bytes out that spend them, then
    /// begins a session, fenced where its journal, this process and the endpoints have come to, whichever is highest.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] when no endpoint can be pinned.
    pub async fn begin(&self, ledger: &Ledger, mut hold: Hold) -> Result<Run> {
        let begun = Instant::now();
        let intent = ledger.intent();
        match intent.due() {
            // Bytes that are out do what they do, whoever holds the allowance; and who holds it may be waiting for their
            // nonce.
            Due::Settle { .. } | Due::Conclude { .. } | Due::Nothing(_) => {}
            Due::Prepare { .. } | Due::Check { .. } => {
                self.allowances.hold(intent, &mut hold).await;
            }
        }
        let newest = self.driver.newest_block(intent.account);
        let fence = intent.fence.into_iter().chain(newest).max_by_key(|block| block.number);
        let session = Session::begin(self.driver.endpoints(), fence)?;
        let waited = begun.elapsed();
        if waited >= Duration::from_secs(1) {
            let text = format!("waited {:.1} s for other intents that share a grant", waited.as_secs_f64());
            session.note(What::Note { text });
        }
        Ok(Run { session, hold })
    }

    /// Does what is due until nothing is. A run and a resumed run are the same: both start from the records.
    ///
    /// # Errors
    ///
    /// What stopped it. The intent stays open, and can be run again.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the intent as if the process had been killed: read it from the journal again.
    pub async fn run(&self, ledger: &mut Ledger, run: &mut Run) -> Result<Outcome> {
        let session = run.session.clone();
        let session = &session;
        // The step whose bytes this very run has signed and not sent yet.
        let mut fresh = None;
        // Since when the endpoints lag behind what the journal has seen.
        let mut behind = None;
        // Rounds that this run has begun, and looks that it has taken again: both end.
        let mut goes = 0;
        loop {
            match ledger.intent().due() {
                Due::Nothing(outcome) => return Ok(outcome),
                Due::Prepare { step, call } => {
                    if let StepId::Plan { .. } = step
                        && let Err(error) = authorise(&call, &ledger.intent().grants)
                    {
                        // The grants have been narrowed since it was planned.
                        ledger.append(vec![Record::Abandoned { why: error.to_string() }]).await?;
                        continue;
                    }
                    if self.allowances.hold(ledger.intent(), &mut run.hold).await == Waited::Yes
                        && let Some(newest) = self.driver.newest_block(ledger.intent().account)
                    {
                        // Whoever had them has spent them there.
                        session.raise(newest);
                    }
                    let prepared = self.driver.prepare(ledger, session, step, &call).await?;
                    if prepared != Prepared::Behind {
                        behind = None;
                    }
                    match prepared {
                        Prepared::Signed(_) => fresh = Some(step),
                        Prepared::Behind => {
                            if behind.get_or_insert_with(Instant::now).elapsed() >= CATCHES_UP {
                                return Err(lags(ledger, session));
                            }
                            // Each look is at the newest block that the pin shows.
                            tokio::time::sleep(self.driver.poll()).await;
                        }
                        Prepared::Failed(failure) => {
                            goes += 1;
                            self.recover(ledger, session, step, &failure, goes).await?;
                        }
                    }
                }
                Due::Settle { step, attempt } => {
                    let freshness = match fresh.take() {
                        Some(signed) if signed == step => Freshness::Fresh,
                        Some(_) | None => Freshness::MaybeSent,
                    };
                    let label = ledger.intent().label_of(step).to_owned();
                    let settled = self.driver.settle(ledger, session, step, &attempt, freshness).await?;
                    if let (Settled::Refused(kind), StepId::Plan { .. }) = (settled, step) {
                        let message = format!("recovery: every endpoint refused `{label}`: {kind}");
                        let error = Error::new(ErrorKind::Recovery, message).with_retry(Retry::Later);
                        return Err(error.with_delivery(Delivery::Refused));
                    }
                }
                Due::Check { step, check, .. } => self.check(ledger, session, step, &check).await?,
                Due::Conclude { inclusion, by } => {
                    // What it was allowed is spent: the next may begin.
                    run.hold = Hold::default();
                    self.conclude(ledger, session, inclusion, by.as_ref()).await?;
                }
            }
        }
    }

    /// Finds a flow that can do something about a failure, and writes its plan down.
    async fn recover(
        &self,
        ledger: &mut Ledger,
        session: &Session,
        step: StepId,
        failure: &Failure,
        goes: u32,
    ) -> Result<()> {
        if let StepId::Plan { .. } = step {
            // The plan has been overtaken. Whether there is a better one is for the intent's own call to show.
            let error =
                reverted(failure).context(format_args!("recovery: `{}`", ledger.intent().label_of(step)));
            ledger.append(vec![Record::Abandoned { why: error.to_string() }]).await?;
            return if goes > self.config.max_rounds { Err(error) } else { Ok(()) };
        }
        for flow in &self.flows {
            match flow.diagnose(failure) {
                Diagnosis::Pass => {}
                Diagnosis::Forbid(why) => {
                    return Err(reverted(failure).context(format_args!("{}: {why}", flow.name())));
                }
                Diagnosis::Recover(diagnosis) => {
                    return self.begin_round(ledger, session, flow.as_ref(), &diagnosis, failure, goes).await;
                }
            }
        }
        Err(reverted(failure))
    }

    async fn begin_round(
        &self,
        ledger: &mut Ledger,
        session: &Session,
        flow: &dyn Flow,
        diagnosis: &str,
        failure: &Failure,
        goes: u32,
    ) -> Result<()> {
        let name = flow.name();
        session.step(name).await;
        let rounds = ledger.intent().rounds.len();
        let ended = |why: String| Err(reverted(failure).context(format_args!("{name}: {why}")));
        let max_rounds = self.config.max_rounds;
        let exhausted = || {
            ended(format!(
                "{rounds} recovery rounds have run for this key, and `recovery.max_rounds` is {max_rounds}; raise it, \
                 or use another key once the cause is gone"
            ))
        };
        if ledger.intent().rounds_signed() >= max_rounds as usize {
            return exhausted();
        }
        let grants = ledger.intent().grants.clone();
        let context = PlanContext::new(session, ledger.intent().account, &grants);
        // Both causes are kept: why recovery was needed, and why it failed (F3).
        let both =
            |error: Error| error.context(format_args!("{name}, recovering from a revert ({diagnosis})"));
        let planning = tokio::time::timeout(self.config.plan_timeout, flow.plan(&context, failure));
        let steps = match planning.await {
            Ok(steps) => steps.map_err(both)?,
            Err(_) => return ended(format!("its plan was not made within {:?}", self.config.plan_timeout)),
        };
        if steps.is_empty() {
            // Seen at a later block than the failure: the cause may be gone by itself.
            if session.fence().number > failure.block.number && goes <= LOOKS {
                return Ok(());
            }
            return ended("on a closer look there is nothing to be done about it".into());
        }
        let last_round = self.last_round(ledger, session, &steps).await?;
        match admit_round(ledger.intent(), name, diagnosis, last_round, max_rounds) {
            RoundVerdict::Go => {}
            RoundVerdict::Exhausted => return exhausted(),
            RoundVerdict::NoProgress => {
                return ended(
                    "its plan was carried out and still holds, and the call fails as before".into(),
                );
            }
        }
        for step in &steps {
            authorise(&step.call, &grants)?;
        }
        let labels: Vec<String> = steps.iter().map(|step| step.label.clone()).collect();
        let fence = Record::Fenced { block: session.fence() };
        let (flow, diagnosis) = (name.to_owned(), diagnosis.to_owned());
        let planned = Record::Planned { flow: flow.clone(), diagnosis: diagnosis.clone(), steps };
        ledger.append(vec![fence, planned]).await?;
        session.note(What::Round { round: rounds as u32 + 1, flow, diagnosis, plan: labels });
        Ok(())
    }

    /// Whether another round would do what the last one did, and that still holds. Without conditions to look
    /// at, it does.
    async fn last_round(&self, ledger: &Ledger, session: &Session, steps: &[PlanStep]) -> Result<LastRound> {
        let Some(last) = ledger.intent().rounds.last() else { return Ok(LastRound::Undone) };
        if last.steps != steps {
            return Ok(LastRound::Undone);
        }
        for check in steps.iter().filter_map(|step| step.until.as_ref()) {
            if !holds(session, check).await? {
                return Ok(LastRound::Undone);
            }
        }
        Ok(LastRound::Holds)
    }

    /// Reads a step's condition at or above the block that includes it, until it holds or the patience is
    /// over: then somebody has undone it, and the intent's own call will show whether that matters.
    async fn check(&self, ledger: &mut Ledger, session: &Session, step: StepId, check: &Check) -> Result<()> {
        let until = Instant::now() + self.driver.patience();
        loop {
            let block = session.step(format!("{} check", ledger.intent().label_of(step))).await;
            let holds = holds(session, check).await?;
            if holds || Instant::now() >= until {
                let text = if holds { "the condition holds" } else { "the condition does not hold" };
                session.note(What::Note { text: format!("{text} at block {block}") });
                return ledger.append(vec![Record::Checked { step, block, holds }]).await;
            }
            tokio::time::sleep(self.driver.poll()).await;
        }
    }

    async fn conclude(
        &self,
        ledger: &mut Ledger,
        session: &Session,
        inclusion: Inclusion,
        by: Option<&EndpointName>,
    ) -> Result<()> {
        session.step("conclude").await;
        let corroborated = match self.driver.corroborate(session, &inclusion, by).await {
            Corroboration::Shown => true,
            Corroboration::Absent | Corroboration::Alone => false,
            Corroboration::Contradicted(other) => {
                let message = format!(
                    "transaction {} is in block {} of one endpoint, and another endpoint has block {other} there; \
                     the intent stays open; send it again under its key when the endpoints agree",
                    inclusion.hash, inclusion.block
                );
                return Err(Error::new(ErrorKind::Contradiction, message).with_retry(Retry::Later));
            }
        };
        let outcome = if inclusion.succeeded {
            Outcome::Included { inclusion, corroborated }
        } else {
            let data = self.driver.revert_data(ledger, session, &inclusion).await;
            Outcome::Reverted { inclusion, corroborated, data }
        };
        ledger.append(vec![Record::Finished { outcome }]).await
    }
}

fn lags(ledger: &Ledger, session: &Session) -> Error {
    let message = format!(
        "no endpoint has come to the newest transaction of account {} that the journal has seen included, within \
         {CATCHES_UP:?}; the last look was at block {}; nothing was sent",
        ledger.line().account,
        session.fence()
    );
    Error::new(ErrorKind::Unavailable, message).with_retry(Retry::Later)
}

/// Reads a condition. What cannot be read is an error, never a "no" (F3).
async fn holds(session: &Session, check: &Check) -> Result<bool> {
    let request = json!([{"to": check.to, "input": check.input}, "latest"]).to_string();
    let word = match session.read("eth_call", &request).await? {
        Ok(json) => serde_json::from_str::<Bytes>(&json)
            .ok()
            .and_then(|bytes| bytes.get(..32).map(U256::from_be_slice))
            .ok_or_else(|| "it returned no number; is there a contract?".to_owned()),
        Err(Verdict::Reverted(revert)) => Err(format!("it reverted: {}", revert.describe())),
        Err(verdict) => Err(verdict.label().to_owned()),
    };
    match word {
        Ok(word) => Ok(word >= check.at_least),
        Err(why) => {
            let message = format!("a step's condition on {} cannot be read: {why}", check.to);
            Err(Error::new(ErrorKind::Recovery, message).with_retry(Retry::Later))
        }
    }
}

fn reverted(failure: &Failure) -> Error {
    let revert = failure.revert.clone().unwrap_or_default();
    let message = format!(
        "the call to {} reverts at block {}: {}; nothing was sent for it",
        failure.content.to,
        failure.block,
        revert.describe()
    );
    Error::new(ErrorKind::Reverted(revert), message)
}
