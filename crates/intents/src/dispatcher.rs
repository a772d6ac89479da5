//! Opens intents, gives handles, and owns the tasks that run them.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use alloy::primitives::Address;
use backstay_core::{
    Error, ErrorKind, Result,
    tx::{Content, Record},
};
use backstay_journal::{Author, Journal, JournalError, Line, NewIntent, Owner, State, Stored};
use backstay_recovery::Runner;

use crate::{
    ClaimsConfig, Intent, Resume, RetentionConfig,
    intent::Caller,
    keeper::Keeper,
    retention,
    shared::{Shared, Tasks},
};

/// How often an append of a caller is tried again when the run of the intent was faster.
const RACES: u32 = 16;

/// Runs the intents of its accounts while it exists, and gives handles to those of all.
///
/// Dropping it stops the work, as if the process had been killed, and releases the lines that it holds where the runtime
/// lives on. What had not ended goes on in another process, or at the next start.
pub struct Dispatcher {
    shared: Arc<Shared>,
    tasks: Arc<Tasks>,
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
        let tasks = Arc::new(Tasks::default());
        let owner = owner(claims.name.as_deref());
        let shared = Arc::new(Shared::new(runner, journal, accounts, owner, claims, resume, &tasks));
        match resume {
            Resume::OnStart => {}
            Resume::OnDemand => {
                for account in accounts {
                    let open = shared.list(*account, &[State::Due, State::Stopped]).await?;
                    for summary in open {
                        shared.leave(&summary.key, summary.records);
                    }
                }
            }
        }
        for account in accounts {
            let line = Line { chain_id: shared.chain_id, account: *account };
            if let Some(wake) = shared.wake_of(*account) {
                tasks.spawn(Keeper::new(shared.clone(), line, wake).keep());
            }
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
        let intent = Intent::new(self.shared.clone(), &stored, stored.seen(), Caller::Asks);
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
        Ok(stored.map(|stored| Intent::new(self.shared.clone(), &stored, 0, Caller::Looks)))
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
        let mut open = Vec::new();
        for account in self.shared.accounts() {
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
        if !ended && !self.shared.accounts().contains(&account) {
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
        let intent = Intent::new(self.shared.clone(), &stored, stored.seen(), Caller::Asks);
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
        self.shared.shut();
        if let Some(mut tasks) = self.tasks.take() {
            tasks.shutdown().await;
        }
        self.shared.tell();
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
        self.shared.shut();
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
        self.shared.tell();
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("owner", &self.shared.owner).finish_non_exhaustive()
    }
}

/// Compares the stored content with what is asked for now (T1).
fn must_match(stored: &Stored, asked: &Content) -> Result<()> {
    let (to, digest) = match (stored.records().next(), &stored.tombstone) {
        (Some(Record::Opened { content, .. }), _) => {
            (format!("a call to {}", content.to), content.fingerprint())
        }
        (_, Some(tombstone)) => ("a call whose records are pruned".to_owned(), tombstone.content),
        // Damaged: that is found when it is folded.
        (_, None) => return Ok(()),
    };
    if digest == asked.fingerprint() {
        return Ok(());
    }
    let key = stored.key.clone();
    let message = format!(
        "key `{key}` was used before, for {to} (content {digest}), and now for a call to {} (content {}); \
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
