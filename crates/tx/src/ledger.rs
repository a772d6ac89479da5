//! One intent, and where its records go.

use std::sync::Arc;

use backstay_core::{
    Error, ErrorKind, Result, Retry,
    tx::{Intent, Record},
};
use backstay_journal::{Author, Claim, IntentId, Journal, JournalError, Line, Stored};

/// An intent that this process works on: what its records add up to, and the journal that they go to.
#[derive(Debug)]
pub struct Ledger {
    journal: Arc<dyn Journal>,
    claim: Claim,
    id: IntentId,
    key: String,
    intent: Intent,
}

impl Ledger {
    /// An intent as it is stored, for the owner of its account's line.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Journal`] when its records do not add up.
    pub fn new(journal: Arc<dyn Journal>, claim: Claim, stored: &Stored) -> Result<Self> {
        let intent = Intent::fold(stored.entries.iter().map(|entry| &entry.record)).map_err(|error| {
            let message =
                format!("intent `{}`: the journal is damaged: {error}; nothing was sent", stored.key);
            Error::new(ErrorKind::Journal, message)
        })?;
        Ok(Self { journal, claim, id: stored.id, key: stored.key.clone(), intent })
    }

    /// The idempotency key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What the records add up to.
    pub fn intent(&self) -> &Intent {
        &self.intent
    }

    /// The line of the account that signs for it.
    pub const fn line(&self) -> Line {
        self.claim.line
    }

    /// The journal.
    pub(crate) fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    /// Appends records. Durable on return: their effect may start.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Superseded`] when somebody else appended meanwhile, or has taken the line over;
    /// [`ErrorKind::Journal`] when the journal cannot be written. Nothing was appended, or it is unknown: the intent must be read again
    /// before anything else is done for it.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves open whether the records were written: the ledger must not be used any more.
    pub async fn append(&mut self, records: Vec<Record>) -> Result<()> {
        self.try_append(records).await?.map_err(Error::from)
    }

    /// Appends records; the inner error is that of the nonce line, which the caller can do something about.
    pub(crate) async fn try_append(&mut self, records: Vec<Record>) -> Result<Result<(), JournalError>> {
        let next = records.iter().try_fold(self.intent.clone(), Intent::next).map_err(|error| {
            Error::new(ErrorKind::Journal, format!("intent `{}`: {error}; nothing was written", self.key))
        })?;
        match self.journal.append(Author::Owner(self.claim), self.id, self.intent.records, &records).await {
            Ok(()) => {
                self.intent = next;
                Ok(Ok(()))
            }
            Err(taken @ JournalError::SlotTaken { .. }) => Ok(Err(taken)),
            Err(
                ahead @ (JournalError::Conflict { .. }
                | JournalError::Finished { .. }
                | JournalError::ClaimLost { .. }),
            ) => {
                let message = format!("intent `{}`: another run has gone on with it meanwhile", self.key);
                Err(Error::new(ErrorKind::Superseded, message).with_retry(Retry::Later).with_source(ahead))
            }
            Err(other) => Err(Error::from(other).context(format_args!("intent `{}`", self.key))),
        }
    }
}
