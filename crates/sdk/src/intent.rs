//! Intents: what to send, under a key, and the handle to wait with.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use alloy::{
    primitives::{Address, Bytes, U256},
    sol_types::SolCall,
};
use backstay_core::{
    Delivery, Error, ErrorKind, Result, Retry,
    session::Trail,
    tx::{Content, Grant, Outcome, Record},
};
use backstay_journal::{Claim, Claiming, Journal, Line, NewIntent, Owner};
use backstay_provider::Session;
use backstay_recovery::Runner;
use backstay_tx::Ledger;
use tokio::sync::watch;

use crate::client::Client;

/// An intent that is being described. Nothing happens until it is sent.
#[derive(Debug)]
#[must_use = "an intent does nothing until it is sent"]
pub struct IntentBuilder {
    client: Client,
    key: String,
    from: Option<Address>,
    to: Option<Address>,
    value: U256,
    input: Bytes,
    grants: Vec<Grant>,
}

/// A handle to an intent that was sent. A cheap handle: dropping it stops the waiting, not the intent.
#[derive(Clone)]
pub struct Intent {
    key: String,
    running: Running,
}

/// One run of an intent in this process.
#[derive(Clone)]
pub(crate) struct Running {
    content: Content,
    ended: watch::Receiver<Option<Result<Outcome>>>,
    session: Arc<OnceLock<Session>>,
}

impl IntentBuilder {
    pub(crate) const fn new(client: Client, key: String) -> Self {
        Self { client, key, from: None, to: None, value: U256::ZERO, input: Bytes::new(), grants: Vec::new() }
    }

    /// The contract or account to send to, and the call data.
    pub fn to(mut self, to: Address, input: impl Into<Bytes>) -> Self {
        (self.to, self.input) = (Some(to), input.into());
        self
    }

    /// A contract, and a call of a `sol!` binding.
    pub fn call(self, to: Address, call: &impl SolCall) -> Self {
        self.to(to, call.abi_encode())
    }

    /// Wei to send along. Default: none.
    pub fn value(mut self, value: U256) -> Self {
        self.value = value;
        self
    }

    /// The account that signs. Default: the account of the client's only signer.
    ///
    /// It is not part of what the key stands for: an intent that is there under the key stays with the account
    /// that it was opened for.
    pub fn from(mut self, account: Address) -> Self {
        self.from = Some(account);
        self
    }

    /// An approval that recovery may make for this intent. Default: none. May be given several times.
    ///
    /// The grants of the newest send count, so one without grants takes them back. A run that is under way in
    /// this process keeps those that it was started with.
    pub fn grant(mut self, grant: Grant) -> Self {
        self.grants.push(grant);
        self
    }

    /// Sends it, or joins the intent that was sent under the same key before. Returns once it is written
    /// down; the work goes on in the background.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::KeyConflict`] when the key was used with other content; [`ErrorKind::SignerMissing`];
    /// [`ErrorKind::Config`] for an empty key or a missing target; [`ErrorKind::Journal`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves open whether the intent was written down; send it again under its key.
    ///
    /// # Replay safety
    ///
    /// It takes effect at most once, however often it is sent. An intent whose call was never signed, such
    /// as one that failed for lack of funds, is tried again.
    pub async fn send(self) -> Result<Intent> {
        let Self { client, key, from, to, value, input, grants } = self;
        if key.trim().is_empty() {
            return Err(Error::config(
                "an intent's key is empty; name the effect, such as `register:<what>`",
            ));
        }
        let Some(to) = to else {
            return Err(Error::config(format!(
                "intent `{key}` says not where to; name it with `to` or `call`"
            )));
        };
        let account = account(client.accounts(), from)?;
        let content = Content { to, value, input };
        if let Some(running) = client.running().get(&key).cloned() {
            must_match(&key, &running.content, &content)?;
            return Ok(Intent { key, running });
        }
        let journal = &client.shared.journal;
        let new = NewIntent {
            chain_id: client.chain_id(),
            key: key.clone(),
            account,
            content: content.clone(),
            grants: grants.clone(),
        };
        let claim = client.claim(account).await?;
        let mut ledger = Ledger::new(journal.clone(), claim, &journal.open(new).await?)?;
        must_match(&key, &ledger.intent().content, &content)?;
        if ledger.intent().grants != grants && ledger.intent().outcome.is_none() {
            ledger.append(vec![Record::Granted { grants }]).await?;
        }
        let running = client.run(claim, ledger);
        Ok(Intent { key, running })
    }
}

impl Intent {
    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Waits for how it ends.
    ///
    /// # Errors
    ///
    /// What stopped it; [`Error::delivery`] says what may have happened on chain. It stays open, and goes on
    /// when it is sent again under its key. [`ErrorKind::Closed`] when the client is dropped meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropping it stops the waiting, not the intent.
    pub async fn outcome(&self) -> Result<Outcome> {
        let mut ended = self.running.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or_else(|| Err(closed(&self.key))),
            Err(_) => Err(closed(&self.key)),
        }
    }

    /// What its session did so far, in this process. `Display` prints a timeline.
    pub fn trail(&self) -> Trail {
        self.running.session.get().map(Session::trail).unwrap_or_default()
    }
}

impl fmt::Debug for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intent").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Client {
    async fn claim(&self, account: Address) -> Result<Claim> {
        let line = Line { chain_id: self.chain_id(), account };
        match self.shared.journal.claim(line, &Owner::new("client"), Duration::ZERO).await? {
            Claiming::Held(claim) => Ok(claim),
            Claiming::Elsewhere { owner, .. } => {
                Err(Error::new(ErrorKind::Journal, format!("the line of {account} is held by {owner}")))
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        self.shared.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an intent in the background, unless it runs already.
    fn run(&self, claim: Claim, ledger: Ledger) -> Running {
        let key = ledger.key().to_owned();
        let mut all = self.running();
        if let Some(running) = all.get(&key) {
            return running.clone();
        }
        let (tell, ended) = watch::channel(None);
        let running = Running { content: ledger.intent().content.clone(), ended, session: Arc::default() };
        all.insert(key.clone(), running.clone());
        drop(all);
        let (runner, journal) = (self.shared.runner.clone(), self.shared.journal.clone());
        let (chain_id, session) = (self.chain_id(), running.session.clone());
        let leaving = Leaving { running: self.shared.running.clone(), key };
        self.shared.spawn(async move {
            let result = drive(&runner, journal, chain_id, claim, ledger, &session).await;
            match &result {
                Ok(outcome) => tracing::info!(key = leaving.key, ?outcome, "intent ended"),
                Err(error) => tracing::warn!(key = leaving.key, %error, "intent stopped"),
            }
            // Out of the way first: whoever hears of the end may send it again at once.
            drop(leaving);
            // Nobody may be listening any more.
            let _ = tell.send(Some(result));
        });
        running
    }
}

/// Takes an intent off the list of those that run, however its task ends.
struct Leaving {
    running: Arc<Mutex<HashMap<String, Running>>>,
    key: String,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// Runs an intent. When another process has gone on with it, this one reads what it did, and goes on from
/// there.
async fn drive(
    runner: &Runner,
    journal: Arc<dyn Journal>,
    chain_id: u64,
    claim: Claim,
    mut ledger: Ledger,
    shown: &OnceLock<Session>,
) -> Result<Outcome> {
    let key = ledger.key().to_owned();
    if let Some(outcome) = &ledger.intent().outcome {
        return Ok(outcome.clone());
    }
    loop {
        let result = match runner.begin(&ledger).await {
            Ok(mut run) => {
                // The trail that the handle shows is the first run's; others are rare, and go on from there.
                shown.get_or_init(|| run.session().clone());
                runner.run(&mut ledger, &mut run).await
            }
            Err(error) => Err(error),
        };
        match result {
            Err(error) if *error.kind() == ErrorKind::Superseded => {
                let stored = journal.load(chain_id, &key).await?;
                ledger = Ledger::new(journal.clone(), claim, &stored.ok_or(error)?)?;
            }
            // Bytes exist, whatever the error is about: only the chain says what became of them.
            Err(error) if ledger.intent().may_be_sent() && error.delivery() != Delivery::Unknown => {
                return Err(error.with_delivery(Delivery::Unknown));
            }
            other => return other,
        }
    }
}

/// The account that signs.
fn account(accounts: &[Address], named: Option<Address>) -> Result<Address> {
    let missing =
        |account: Option<Address>, why: String| Err(Error::new(ErrorKind::SignerMissing { account }, why));
    match (named, accounts) {
        (Some(named), accounts) if accounts.contains(&named) => Ok(named),
        (Some(named), _) => missing(
            Some(named),
            format!("there is no signer for account {named}; give the builder one with `signer`"),
        ),
        (None, [account]) => Ok(*account),
        (None, []) => {
            missing(None, "there is no signer, so nothing can be sent; give the builder one".into())
        }
        (None, _) => missing(None, "there are several signers; say with `from` which account sends".into()),
    }
}

fn must_match(key: &str, stored: &Content, asked: &Content) -> Result<()> {
    if stored == asked {
        return Ok(());
    }
    let message = format!(
        "key `{key}` was used before, for a call to {} (content {}), and now for a call to {} (content {}); \
         nothing was sent; use another key for another effect",
        stored.to,
        stored.fingerprint(),
        asked.to,
        asked.fingerprint()
    );
    Err(Error::new(ErrorKind::KeyConflict { key: key.to_owned() }, message))
}

fn closed(key: &str) -> Error {
    let message = format!(
        "the run of intent `{key}` is gone: the client was dropped, or a flow of its panicked; send it again under \
         its key"
    );
    Error::new(ErrorKind::Closed, message).with_retry(Retry::Later).with_delivery(Delivery::Unknown)
}
