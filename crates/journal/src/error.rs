//! Why a journal refused.

use std::{error::Error as StdError, path::PathBuf, time::Duration};

use alloy_primitives::Address;
use backstay_core::{Error, ErrorKind, Retry};

use crate::IntentId;

/// What a backend saw. It holds no key and no URL.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// Why a journal refused, and what to do about it. `Display` is one line; what the backend said is behind
/// [`source`](StdError::source).
///
/// The first group is about what was asked, the second about the store. `journal` in the second says which
/// store, in words: a file by its path, a server by a name without credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The intent has other records than the caller has seen: somebody else appended. Load it again and
    /// decide anew.
    #[error("the intent has {found} records, not the {after} that were seen: load it again")]
    Conflict {
        /// How many the caller has seen.
        after: u64,
        /// How many there are.
        found: u64,
    },
    /// The nonce is signed for by another intent, or by another step of this one.
    #[error("nonce {nonce} is held by intent {key:?}: take another nonce")]
    SlotTaken {
        /// The nonce.
        nonce: u64,
        /// The key of the intent that holds it.
        key: String,
    },
    /// The intent does not hold the nonce that it was to free.
    #[error("nonce {nonce} is not held by this intent and cannot be released by it")]
    SlotNotHeld {
        /// The nonce.
        nonce: u64,
    },
    /// The intent has finished; nothing is appended to it.
    #[error("intent {intent} has finished: nothing can be appended")]
    Finished {
        /// Which intent.
        intent: IntentId,
    },
    /// Another process has taken the account's line over, or whoever appends holds no claim of it.
    #[error(
        "the line of account {account} is not held: another process may have taken it over; claim it again"
    )]
    ClaimLost {
        /// The account.
        account: Address,
    },
    /// There is no such intent in this journal.
    #[error("intent {intent} is not in this journal: open it first")]
    UnknownIntent {
        /// Which intent.
        intent: IntentId,
    },
    /// A key that journals do not hold.
    #[error("the intent's key {what}: take another one")]
    BadKey {
        /// What is wrong with it.
        what: &'static str,
    },
    /// A number that journals do not hold.
    #[error("{what} {value} is beyond what a journal holds ({max})", max = i64::MAX)]
    OutOfRange {
        /// What it is: `chain id`, `nonce`.
        what: &'static str,
        /// Its value.
        value: u64,
    },

    /// The directory of the journal's file is not there.
    #[error("the directory of {} does not exist: create it, or correct the journal's path", path.display())]
    NoDirectory {
        /// The file.
        path: PathBuf,
    },
    /// There is none, and none was to be created.
    #[error("{journal} does not exist: correct its path or address; the first client that signs creates it")]
    Missing {
        /// Which store.
        journal: String,
    },
    /// The address of a database cannot be used.
    #[error("the journal's address cannot be used: {what}")]
    BadAddress {
        /// What is wrong with it, and what to do. It quotes nothing of the address, which holds a password.
        what: String,
    },
    /// No server answers. Nothing was sent.
    #[error(
        "{journal} cannot be reached: see that the server runs and takes connections; nothing was written"
    )]
    Unreachable {
        /// Which store.
        journal: String,
        /// What the network or the server said.
        source: Cause,
    },
    /// The server does not let this program in, or does not let it do what it needs.
    #[error(
        "{journal} refuses this program: check the user, the password, the database's name and what is granted (USAGE \
         on the schema, SELECT, INSERT, UPDATE and DELETE on its tables)"
    )]
    Refused {
        /// Which store.
        journal: String,
        /// What the server said.
        source: Cause,
    },
    /// What is there is something else. It was left untouched.
    #[error(
        "{journal} is not a Backstay journal ({found}): it was left untouched; give another path or schema"
    )]
    NotAJournal {
        /// Which store.
        journal: String,
        /// What it is instead.
        found: &'static str,
        /// What the backend said, where it said something.
        source: Option<Cause>,
    },
    /// A newer version wrote it. It was left untouched.
    #[error(
        "{journal} was written by a newer version of Backstay (format {found}; this one knows up to \
         {known}): it was left untouched; upgrade this program"
    )]
    NewerSchema {
        /// Which store.
        journal: String,
        /// The newest format found in it.
        found: i64,
        /// The newest format that this version knows.
        known: i64,
    },
    /// An older version wrote it, and it was not to be changed. It was left untouched.
    #[error(
        "{journal} was written by an older version of Backstay (format {found}; this one uses {known}): it was left \
         untouched; the first client of this version that connects brings it up to date"
    )]
    OlderSchema {
        /// Which store.
        journal: String,
        /// The newest format found in it.
        found: i64,
        /// The format that this version uses.
        known: i64,
    },
    /// It cannot be opened or written for want of permission, or because it is on a read-only medium.
    #[error(
        "{journal} cannot be opened for writing: check the permissions of a file, of its directory and the mount, or whether \
         a server is a standby or set to read only"
    )]
    ReadOnly {
        /// Which store.
        journal: String,
        /// What the backend said.
        source: Cause,
    },
    /// Its file is not the one that was opened: it was deleted, or something else was put in its place. Nothing is
    /// written to either.
    #[error(
        "{journal} is {found} now, and not the file that was opened: stop, put that file back (or restore a \
         backup), and connect again"
    )]
    Replaced {
        /// Which store.
        journal: String,
        /// What is there instead: `gone`, `another file`.
        found: &'static str,
    },
    /// Somebody else held its lock for too long.
    #[error(
        "{journal} was locked by another process for {waited:?}: try again, or find the process that holds it"
    )]
    Busy {
        /// Which store.
        journal: String,
        /// How long one statement waited.
        waited: Duration,
        /// What the backend said.
        source: Cause,
    },
    /// There is no space left for it.
    #[error("{journal} has no space left: free some, then resume; what was recorded is intact")]
    Full {
        /// Which store.
        journal: String,
        /// What the backend said.
        source: Cause,
    },
    /// It is damaged.
    #[error("{journal} is damaged ({what}): stop, keep a copy of it, and restore it from a backup")]
    Corrupt {
        /// Which store.
        journal: String,
        /// What was found.
        what: String,
        /// What the backend said, where it said something.
        source: Option<Cause>,
    },
    /// The store failed in another way, such as an input/output error. A write may or may not have
    /// happened.
    #[error("{journal} could not be read or written: try again, and look at its disk if this persists")]
    Backend {
        /// Which store.
        journal: String,
        /// What the backend said.
        source: Cause,
    },
}

impl JournalError {
    /// Whether asking again can help. [`Conflict`](Self::Conflict), [`SlotTaken`](Self::SlotTaken) and
    /// [`ClaimLost`](Self::ClaimLost) ask for a new decision first.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Conflict { .. }
            | Self::SlotTaken { .. }
            | Self::ClaimLost { .. }
            | Self::ReadOnly { .. }
            | Self::Busy { .. }
            | Self::Full { .. }
            | Self::Unreachable { .. }
            | Self::Backend { .. } => Retry::Later,
            Self::SlotNotHeld { .. }
            | Self::Finished { .. }
            | Self::UnknownIntent { .. }
            | Self::BadKey { .. }
            | Self::OutOfRange { .. }
            | Self::NoDirectory { .. }
            | Self::Missing { .. }
            | Self::BadAddress { .. }
            | Self::Refused { .. }
            | Self::NotAJournal { .. }
            | Self::NewerSchema { .. }
            | Self::OlderSchema { .. }
            | Self::Replaced { .. }
            | Self::Corrupt { .. } => Retry::Never,
        }
    }

    fn into_cause(self) -> Option<Cause> {
        match self {
            Self::ReadOnly { source, .. }
            | Self::Busy { source, .. }
            | Self::Full { source, .. }
            | Self::Unreachable { source, .. }
            | Self::Refused { source, .. }
            | Self::Backend { source, .. } => Some(source),
            Self::NotAJournal { source, .. } | Self::Corrupt { source, .. } => source,
            Self::Conflict { .. }
            | Self::SlotTaken { .. }
            | Self::SlotNotHeld { .. }
            | Self::ClaimLost { .. }
            | Self::Finished { .. }
            | Self::UnknownIntent { .. }
            | Self::BadKey { .. }
            | Self::OutOfRange { .. }
            | Self::NoDirectory { .. }
            | Self::Missing { .. }
            | Self::BadAddress { .. }
            | Self::NewerSchema { .. }
            | Self::OlderSchema { .. }
            | Self::Replaced { .. } => None,
        }
    }
}

impl From<JournalError> for Error {
    /// The message is the journal's own line, the source what the backend said. The delivery axis says not
    /// sent: who has sent something before says so with [`Error::with_delivery`].
    fn from(error: JournalError) -> Self {
        let converted = Self::new(ErrorKind::Journal, error.to_string()).with_retry(error.retry());
        match error.into_cause() {
            Some(cause) => converted.with_source(cause),
            None => converted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_for_users_says_what_to_do_and_keeps_the_cause() {
        let cause = || -> Cause { "(code: 5) database is locked".into() };
        let journal = || "the file a.db".to_owned();
        let busy: Error =
            JournalError::Busy { journal: journal(), waited: Duration::from_secs(5), source: cause() }.into();
        assert_eq!(busy.kind(), &ErrorKind::Journal);
        assert_eq!(busy.retry(), Retry::Later);
        assert_eq!(
            busy.to_string(),
            "the file a.db was locked by another process for 5s: try again, or find the process that holds it"
        );
        assert_eq!(StdError::source(&busy).map(ToString::to_string), Some(cause().to_string()));

        let full: Error = JournalError::Full { journal: journal(), source: cause() }.into();
        assert_eq!(full.retry(), Retry::Later);

        let other: Error =
            JournalError::NotAJournal { journal: journal(), found: "text", source: None }.into();
        assert_eq!(other.retry(), Retry::Never);
        assert!(StdError::source(&other).is_none());

        let damaged: Error =
            JournalError::Corrupt { journal: journal(), what: "a page".to_owned(), source: None }.into();
        assert_eq!(damaged.retry(), Retry::Never);
        assert!(!damaged.to_string().contains('\n'));
    }
}
