//! One intent, run in the background.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
};

use alloy::primitives::Address;
use backstay_core::{
    Delivery, Error, ErrorKind, Result, Retry,
    tx::{Outcome, Record, Stop},
};
use backstay_journal::{Author, Claim, Claiming, Stored};
use backstay_provider::Session;
use backstay_recovery::Hold;
use backstay_tx::Ledger;
use futures::FutureExt as _;
use tokio::sync::watch;

use crate::shared::Shared;

/// A run of an intent in this process.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) account: Address,
    pub(crate) ended: watch::Receiver<Option<Ended>>,
    pub(crate) session: Arc<OnceLock<Session>>,
}

/// How a run ended.
#[derive(Clone)]
pub(crate) enum Ended {
    /// It came to its end, or was stopped by an error.
    With(Result<Outcome>),
    /// The line was taken over: it goes on in another process.
    Elsewhere,
    /// The endpoints could not serve it, so many times in a row: it is run again by itself.
    Resting { error: Error, times: u32 },
}

/// Starts a run, unless the intent runs already.
///
/// # Errors
///
/// When its records do not add up.
pub(crate) fn start(shared: &Arc<Shared>, claim: Claim, stored: &Stored) -> Result<()> {
    let ledger = Ledger::new(shared.journal.clone(), claim, stored)?;
    let hold = shared.runner.reserve(ledger.intent());
    let Some(tasks) = shared.tasks() else { return Ok(()) };
    let (tell, ended) = watch::channel(None);
    let running = Running { account: stored.account, ended, session: Arc::default() };
    let session = running.session.clone();
    if !shared.begins(&stored.key, running) {
        return Ok(());
    }
    let leaving = Leaving { shared: shared.clone(), key: stored.key.clone() };
    tasks.spawn(async move {
        let shared = &leaving.shared;
        let driven = AssertUnwindSafe(drive(shared, claim, ledger, hold, &session)).catch_unwind().await;
        let ended = match driven {
            Ok(ended) => ended,
            Err(_) => Ended::With(Err(panicked(shared, claim, &leaving.key).await)),
        };
        match &ended {
            Ended::With(Ok(outcome)) => tracing::info!(key = leaving.key, ?outcome, "intent ended"),
            Ended::With(Err(error)) => tracing::warn!(key = leaving.key, %error, "intent stopped"),
            Ended::Elsewhere => tracing::info!(key = leaving.key, "intent goes on in another process"),
            Ended::Resting { error, times: 1 } => {
                tracing::warn!(key = leaving.key, %error, "intent rests until the endpoints serve it");
            }
            Ended::Resting { error, times } => {
                tracing::debug!(key = leaving.key, %error, times, "intent rests on");
            }
        }
        // Nobody may be listening any more.
        let _ = tell.send(Some(ended));
        // Whoever waits has heard of the end before it looks whether the intent runs.
        drop(leaving);
    });
    Ok(())
}

/// Takes an intent off the list of those that run, however its task ends.
struct Leaving {
    shared: Arc<Shared>,
    key: String,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.shared.ends(&self.key);
    }
}

/// Runs an intent to its end. When somebody else has appended to it, it is read again and goes on, as long as the line
/// is held here.
async fn drive(
    shared: &Shared,
    claim: Claim,
    mut ledger: Ledger,
    mut hold: Hold,
    shown: &OnceLock<Session>,
) -> Ended {
    let key = ledger.key().to_owned();
    loop {
        if let Some(outcome) = &ledger.intent().outcome {
            shared.forget(&key);
            return Ended::With(Ok(outcome.clone()));
        }
        let result = match shared.runner.begin(&ledger, std::mem::take(&mut hold)).await {
            Ok(mut run) => {
                // The trail that the handle shows is the first run's; others are rare, and go on from there.
                shown.get_or_init(|| run.session().clone());
                let result = shared.runner.run(&mut ledger, &mut run).await;
                // What it has approved stays its own when it goes on.
                hold = run.into_hold();
                result
            }
            Err(error) => Err(error),
        };
        let error = match result {
            Ok(outcome) => {
                shared.forget(&key);
                return Ended::With(Ok(outcome));
            }
            Err(error) => error,
        };
        if *error.kind() == ErrorKind::Superseded {
            match again(shared, &ledger, claim).await {
                Ok(Some(read)) => ledger = read,
                Ok(None) => return Ended::Elsewhere,
                Err(error) => {
                    shared.could_not_write(ledger.line().account, error.clone());
                    return Ended::With(Err(error));
                }
            }
            continue;
        }
        // Bytes exist, whatever the error is about: only the chain says what became of them.
        let error = match ledger.intent().may_be_sent() {
            true => error.with_delivery(Delivery::Unknown),
            false => error,
        };
        if *error.kind() == ErrorKind::Journal {
            // It cannot be written down, and is not over: it goes on when the journal does.
            shared.could_not_write(ledger.line().account, error.clone());
            return Ended::With(Err(error));
        }
        // Nobody gives it up who was not told: it was interrupted, or its caller has gone. Open bytes go on anyway.
        if error.passes()
            && !ledger.intent().may_be_sent()
            && let Some(times) = shared.rest(&key, ledger.intent().records)
        {
            return Ended::Resting { error, times };
        }
        // It is written down that it stopped, for those who wait in other processes. Where it did before, for the same
        // reason, and nothing has happened since, that is written down already.
        let stop = Stop::from(&error);
        let written = match ledger.intent().stopped.as_ref() == Some(&stop) {
            true => Ok(()),
            false => ledger.append(vec![Record::Stopped { stop }]).await,
        };
        return match written {
            Ok(()) => {
                shared.leave(&key, ledger.intent().records);
                Ended::With(Err(error))
            }
            Err(other) if *other.kind() == ErrorKind::Superseded => {
                match again(shared, &ledger, claim).await {
                    // It was asked for again meanwhile.
                    Ok(Some(read)) => {
                        ledger = read;
                        continue;
                    }
                    Ok(None) => Ended::Elsewhere,
                    Err(unwritten) => {
                        not_written(shared, &ledger, unwritten);
                        Ended::With(Err(error))
                    }
                }
            }
            Err(unwritten) => {
                not_written(shared, &ledger, unwritten);
                Ended::With(Err(error))
            }
        };
    }
}

/// It is still due: the keeper waits before it runs it again.
fn not_written(shared: &Shared, ledger: &Ledger, unwritten: Error) {
    tracing::warn!(key = ledger.key(), error = %unwritten, "why the intent stopped is not written down");
    shared.could_not_write(ledger.line().account, unwritten);
}

/// Writes down that a run has panicked: it would do so again if it went on by itself.
async fn panicked(shared: &Shared, claim: Claim, key: &str) -> Error {
    let message = format!(
        "the run of intent `{key}` panicked, in a flow or a signer of this process; send it again under its key once that \
         is mended"
    );
    let error =
        Error::new(ErrorKind::Closed, message).with_retry(Retry::Later).with_delivery(Delivery::Unknown);
    let stop = Record::Stopped { stop: Stop::from(&error) };
    let written = match shared.journal.load(claim.line.chain_id, key).await {
        Ok(Some(stored)) => {
            shared.journal.append(Author::Owner(claim), stored.id, stored.seen(), &[stop]).await
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(unwritten) = written {
        tracing::warn!(key, error = %unwritten, "why the intent stopped is not written down");
        // The keeper waits before it tries again.
        shared.could_not_write(claim.line.account, unwritten.into());
    }
    error
}

/// Reads an intent again that somebody else has appended to; `None` where its line is held elsewhere, or it was pruned.
async fn again(shared: &Shared, ledger: &Ledger, claim: Claim) -> Result<Option<Ledger>> {
    let Some(read) = read(shared, ledger, claim).await? else { return Ok(None) };
    if read.intent().outcome.is_some() {
        return Ok(Some(read));
    }
    let Claiming::Held(claim) = shared.claim(ledger.line()).await? else { return Ok(None) };
    // Once more: the line may have been somebody else's in between.
    self::read(shared, ledger, claim).await
}

/// An intent as it is stored now, where its records are.
async fn read(shared: &Shared, ledger: &Ledger, claim: Claim) -> Result<Option<Ledger>> {
    let stored = shared.journal.load(ledger.line().chain_id, ledger.key()).await?;
    let stored = stored.filter(|stored| stored.tombstone.is_none());
    stored.map(|stored| Ledger::new(shared.journal.clone(), claim, &stored)).transpose()
}
