//! The handle to wait with.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use alloy::primitives::Address;
use backstay_core::{
    Delivery, Error, ErrorKind, Result, Retry,
    session::Trail,
    tx::{Outcome, Stop},
};
use backstay_journal::{Entry, Stored};
use backstay_provider::Session;
use futures::{Stream, stream};
use tokio::{sync::watch, time::Instant};

use crate::{
    run::{Ended, Running},
    shared::Shared,
};

/// A handle to an intent: wherever it runs, here or in another process, and also when it has ended. Cheap to clone;
/// dropping it stops the waiting, not the intent.
#[derive(Clone)]
pub struct Intent {
    shared: Arc<Shared>,
    key: String,
    account: Address,
    /// How many records there were when it was asked for: a stop among them is no news.
    seen: u64,
    /// The newest run in this process since the handle was made, once there was one.
    run: Arc<Slot>,
}

/// Where a handle is told of the runs of its intent.
pub(crate) struct Slot {
    shared: Weak<Shared>,
    key: String,
    run: Mutex<Option<Heard>>,
}

/// What a handle is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The intent was sent or resumed with it: whatever ends a run is told.
    Asks,
    /// The intent was looked for.
    Looks,
}

/// A run that a handle was told of.
struct Heard {
    run: Running,
    asked: Asked,
}

/// Whether the handle has passed on how a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    First,
    Again,
}

impl Slot {
    pub(crate) fn new(shared: &Arc<Shared>, key: &str) -> Self {
        Self { shared: Arc::downgrade(shared), key: key.to_owned(), run: Mutex::default() }
    }

    pub(crate) fn set(&self, run: Running) {
        *self.lock() = Some(Heard { run, asked: Asked::First });
    }

    fn get(&self) -> Option<Running> {
        self.lock().as_ref().map(|heard| heard.run.clone())
    }

    /// Notes that the end of a run is passed on.
    fn pass_on(&self, ended: &watch::Receiver<Option<Ended>>) -> Asked {
        match &mut *self.lock() {
            Some(heard) if heard.run.ended.same_channel(ended) => {
                std::mem::replace(&mut heard.asked, Asked::Again)
            }
            Some(_) | None => Asked::Again,
        }
    }

    /// Lets go of a run, unless there is another one by now.
    fn let_go(&self, ended: &watch::Receiver<Option<Ended>>) {
        let mut run = self.lock();
        if run.as_ref().is_some_and(|heard| heard.run.ended.same_channel(ended)) {
            *run = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Heard>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.clear_handles(&self.key);
        }
    }
}

impl Intent {
    pub(crate) fn new(shared: Arc<Shared>, stored: &Stored, seen: u64, caller: Caller) -> Self {
        let run = shared.handle(&stored.key, caller);
        Self { shared, key: stored.key.clone(), account: stored.account, seen, run }
    }

    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The account that signs for it.
    pub fn account(&self) -> Address {
        self.account
    }

    /// Waits for how it ends, in whichever process it runs.
    ///
    /// # Errors
    ///
    /// What stopped it; [`Error::delivery`] says what may have happened on chain. It stays open, and goes on when it is
    /// sent again under its key. Where it ran in another process, the kind is [`ErrorKind::Stopped`].
    /// [`ErrorKind::Journal`] when the journal cannot be read or written: it goes on by itself when that works again.
    /// [`ErrorKind::Closed`] when the client is dropped meanwhile. That the endpoints cannot serve it, before anything is
    /// signed, is told where it was sent or resumed; a handle that was found waits on, since it goes on by itself.
    ///
    /// # Cancel safety
    ///
    /// Dropping it stops the waiting, not the intent.
    pub async fn outcome(&self) -> Result<Outcome> {
        let mut changes = self.shared.changes();
        loop {
            if let Some(mut run) = self.run.get() {
                // It ends untold where the client is closed.
                let ended = run.ended.wait_for(Option::is_some).await.map_or(None, |ended| ended.clone());
                match ended {
                    // It goes on when the journal does: the next wait is for that.
                    Some(Ended::With(Err(error))) if *error.kind() == ErrorKind::Journal => {
                        self.run.let_go(&run.ended);
                        return Err(error);
                    }
                    Some(Ended::With(Ok(outcome))) => return Ok(outcome),
                    Some(Ended::With(Err(error))) => match self.run.pass_on(&run.ended) {
                        Asked::First => return Err(error),
                        // It may have gone on since, in another process.
                        Asked::Again => match self.stored().await {
                            Ok(Told::End(Ok(outcome))) => return Ok(outcome),
                            Ok(Told::GoesOn(_)) => self.run.let_go(&run.ended),
                            Ok(Told::End(Err(_))) | Err(_) => return Err(error),
                        },
                    },
                    Some(Ended::Elsewhere | Ended::Resting { .. }) | None => self.run.let_go(&run.ended),
                }
            }
            // What cannot be read may have been sent.
            let stored = self.stored().await.map_err(|error| error.with_delivery(Delivery::Unknown))?;
            let delivery = match stored {
                Told::End(end) => return end,
                Told::GoesOn(delivery) => delivery,
            };
            if self.shared.is_closed() {
                return Err(closed(&self.key));
            }
            if let Some(trouble) = self.shared.trouble(self.account) {
                return Err(trouble.with_delivery(delivery));
            }
            self.rest(&mut changes).await;
        }
    }

    /// Waits until it runs here, or cannot, or the journal is to be looked into again: not at each change of another
    /// intent, of which there may be many.
    async fn rest(&self, changes: &mut watch::Receiver<()>) {
        let until = Instant::now() + self.shared.claims.poll;
        let concerned = || {
            self.run.get().is_some() || self.shared.is_closed() || self.shared.trouble(self.account).is_some()
        };
        while !concerned() {
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    /// Its records, from the first one on, as they are written, up to the one that ends it. Nothing where it was
    /// pruned.
    ///
    /// Records of other processes are seen within `claims.poll`. The stream goes on when the intent stops, since it may be
    /// asked for again.
    ///
    /// # Errors
    ///
    /// An item is an error when the journal cannot be read; the stream goes on, and gives what it missed.
    pub fn events(&self) -> impl Stream<Item = Result<Entry>> + Send + use<> {
        let state = Events { intent: self.clone(), given: 0, ready: Vec::new().into_iter(), ended: false };
        stream::unfold(state, async |mut events| events.next().await.map(|item| (item, events)))
    }

    /// What its session did so far, in this process. `Display` prints a timeline.
    pub fn trail(&self) -> Trail {
        let run = self.run.get();
        run.and_then(|run| run.session.get().map(Session::trail)).unwrap_or_default()
    }

    /// What the journal says of it.
    async fn stored(&self) -> Result<Told> {
        let Some(stored) = self.shared.journal.load(self.shared.chain_id, &self.key).await? else {
            let message = format!(
                "intent `{}` is not in the journal any more: it had stopped before anything was signed, and was \
                 pruned; send it again",
                self.key
            );
            return Ok(Told::End(Err(Error::new(ErrorKind::Closed, message).with_retry(Retry::Later))));
        };
        if let Some(tombstone) = stored.tombstone {
            return Ok(Told::End(Ok(tombstone.outcome)));
        }
        let Some(intent) = self.shared.fold(&stored)? else {
            return Ok(Told::GoesOn(Delivery::Unknown));
        };
        let delivery = if intent.may_be_sent() { Delivery::Unknown } else { Delivery::NotSent };
        if let Some(outcome) = intent.outcome {
            return Ok(Told::End(Ok(outcome)));
        }
        let news = intent.records > self.seen;
        Ok(match intent.stopped.filter(|_| news) {
            Some(stop) => Told::End(Err(stopped(&self.key, stop))),
            None => Told::GoesOn(delivery),
        })
    }
}

/// What the journal says of an intent.
enum Told {
    /// It has ended, or was stopped.
    End(Result<Outcome>),
    /// It is open, and this may have happened on chain so far.
    GoesOn(Delivery),
}

impl fmt::Debug for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intent").field("key", &self.key).finish_non_exhaustive()
    }
}

/// How far a stream of records has come.
struct Events {
    intent: Intent,
    given: usize,
    ready: std::vec::IntoIter<Entry>,
    ended: bool,
}

impl Events {
    async fn next(&mut self) -> Option<Result<Entry>> {
        let shared = self.intent.shared.clone();
        let mut first = true;
        loop {
            if let Some(entry) = self.ready.next() {
                self.given += 1;
                return Some(Ok(entry));
            }
            if self.ended || shared.is_closed() {
                return None;
            }
            if !std::mem::take(&mut first) {
                tokio::time::sleep(shared.claims.poll).await;
            }
            match shared.journal.load(shared.chain_id, &self.intent.key).await {
                Ok(Some(stored)) => {
                    let intent = match shared.fold(&stored) {
                        Ok(intent) => intent,
                        Err(error) => {
                            tokio::time::sleep(shared.claims.poll).await;
                            return Some(Err(error));
                        }
                    };
                    self.ended = intent.is_none_or(|intent| intent.outcome.is_some());
                    self.ready = stored.entries.into_iter().skip(self.given).collect::<Vec<_>>().into_iter();
                }
                Ok(None) => self.ended = true,
                Err(error) => {
                    tokio::time::sleep(shared.claims.poll).await;
                    return Some(Err(error.into()));
                }
            }
        }
    }
}

fn stopped(key: &str, Stop { why, retry, delivery }: Stop) -> Error {
    let message = format!("intent `{key}` stopped in the process that ran it: {why}");
    Error::new(ErrorKind::Stopped, message).with_retry(retry).with_delivery(delivery)
}

fn closed(key: &str) -> Error {
    let message = format!(
        "the run of intent `{key}` is gone: the client was closed or dropped; send it again under its key"
    );
    Error::new(ErrorKind::Closed, message).with_retry(Retry::Later).with_delivery(Delivery::Unknown)
}
