//! The error that users see: one opaque type with three axes to match on.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use alloy_primitives::{Address, B256, U256};
use serde::{Deserialize, Serialize};

use crate::{
    failure::{RefusalKind, Revert},
    units::{BlockRef, EndpointName},
};

/// A result with Backstay's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, along three axes: [`kind`](Error::kind) says what happened, [`retry`](Error::retry)
/// whether asking again can help, and [`delivery`](Error::delivery) what may have happened on chain.
///
/// `Display` is one line and never holds a URL, a header or a key. The cause, where there is one, is
/// behind [`source`](StdError::source).
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    retry: Retry,
    delivery: Delivery,
    attempts: Vec<Attempt>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration cannot work; the message names the key and what to do.
    Config,
    /// No endpoint is there to answer: none configured, none reachable, or none usable for this call.
    Unavailable,
    /// The endpoints that answer serve another chain.
    WrongChain,
    /// The endpoints disagree about which chain this is, and nothing decides.
    IdentityAmbiguous {
        /// One genesis, or one block at the height in question, and who serves it.
        left: (B256, EndpointName),
        /// The other.
        right: (B256, EndpointName),
    },
    /// The deadline of the whole operation passed.
    Timeout,
    /// Every endpoint that could answer asks us to wait.
    RateLimited,
    /// No endpoint serves this method.
    Unsupported,
    /// No endpoint holds that part of the history any more.
    Pruned {
        /// The height that was asked for.
        height: u64,
        /// The lowest height that any endpoint is known to hold of that kind of data.
        oldest: Option<u64>,
    },
    /// That block is not there yet, at any endpoint.
    NotYet {
        /// The height that was asked for.
        height: u64,
        /// The highest block that any endpoint has shown.
        head: Option<u64>,
    },
    /// The request itself is wrong, wherever it is sent.
    Invalid,
    /// A contract reverted.
    Reverted(Revert),
    /// The transaction was refused.
    TxRefused(RefusalKind),
    /// No endpoint that could prove the session's fence was found before the deadline. The intent stays
    /// open and can be resumed.
    SessionLost {
        /// The block that no endpoint proved.
        fence: BlockRef,
    },
    /// The method reads state in a way that a session cannot fence.
    UnfencedMethod {
        /// Its name.
        method: String,
    },
    /// A simulation kept contradicting the state at the fence.
    Contradiction,
    /// A flow asked for an approval beyond what was granted.
    NotGranted {
        /// The token to approve.
        token: Address,
        /// Who was to spend it.
        spender: Address,
        /// The amount asked for.
        amount: U256,
        /// The granted cap; `None` where there is no grant for this token and spender.
        cap: Option<U256>,
    },
    /// A recovery flow failed, was forbidden or did not end.
    Recovery,
    /// The idempotency key was used before, with other content.
    KeyConflict {
        /// The key.
        key: String,
    },
    /// No signer for this account.
    SignerMissing {
        /// The account, where the request names one.
        account: Option<Address>,
    },
    /// There is no contract at the address that was to be called with data.
    NoContractCode {
        /// The address.
        address: Address,
        /// Where that was seen.
        block: BlockRef,
        /// Who showed it.
        endpoint: EndpointName,
    },
    /// The account cannot pay for value and gas.
    InsufficientFunds {
        /// The account.
        account: Address,
        /// What it has, in wei.
        balance: U256,
        /// What is needed, in wei.
        needed: U256,
    },
    /// A raw send for an account that this client manages: send an intent instead.
    ManagedAccount {
        /// The account.
        account: Address,
    },
    /// The chain has mined transactions of an account that this client manages and that its journal knows nothing of:
    /// somebody else signs for it, or the journal is an old copy. Nothing is signed until that is accepted.
    ChainAhead {
        /// The account.
        account: Address,
        /// The next nonce, by the chain.
        chain: u64,
        /// The first nonce that the journal knows nothing of.
        journal: u64,
    },
    /// The journal cannot be read or written. Nothing is sent without it.
    Journal,
    /// Another process, or another run, has gone on with this intent meanwhile.
    Superseded,
    /// The intent has stopped, in a process that ran it before: the message says why.
    Stopped,
    /// The client was shut down.
    Closed,
}

impl ErrorKind {
    /// A word or two for logs and metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Unavailable => "unavailable",
            Self::WrongChain => "wrong chain",
            Self::IdentityAmbiguous { .. } => "identity ambiguous",
            Self::Timeout => "timeout",
            Self::RateLimited => "rate limited",
            Self::Unsupported => "unsupported",
            Self::Pruned { .. } => "pruned",
            Self::NotYet { .. } => "not yet",
            Self::Invalid => "invalid",
            Self::Reverted(_) => "reverted",
            Self::TxRefused(_) => "refused",
            Self::SessionLost { .. } => "session lost",
            Self::UnfencedMethod { .. } => "unfenced method",
            Self::Contradiction => "contradiction",
            Self::NotGranted { .. } => "not granted",
            Self::Recovery => "recovery",
            Self::KeyConflict { .. } => "key conflict",
            Self::SignerMissing { .. } => "signer missing",
            Self::NoContractCode { .. } => "no contract code",
            Self::InsufficientFunds { .. } => "insufficient funds",
            Self::ManagedAccount { .. } => "managed account",
            Self::ChainAhead { .. } => "chain ahead",
            Self::Journal => "journal",
            Self::Superseded => "superseded",
            Self::Stopped => "stopped",
            Self::Closed => "closed",
        }
    }
}

/// Whether asking again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// No: the same request gets the same answer.
    Never,
    /// Yes, later.
    Later,
    /// It was retried as far as the deadline or the bounds allow.
    Exhausted,
}

/// What may have happened on chain: to the transaction that the error is about, and for an intent to its own call
/// and to a recovery step whose fate is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// No byte of a transaction left.
    NotSent,
    /// It was sent, and every endpoint that it went to refused it.
    Refused,
    /// It may have been taken. Treat it as sent until the chain says otherwise.
    Unknown,
}

/// One call to one endpoint that contributed to an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Which endpoint.
    pub endpoint: EndpointName,
    /// What it came to, in a word or two.
    pub verdict: String,
    /// How long it took.
    pub took: Duration,
}

impl Error {
    /// An error of a kind, with a message that names what was wrong and what to do. Not sent and never to
    /// be retried, unless told otherwise.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            retry: Retry::Never,
            delivery: Delivery::NotSent,
            attempts: Vec::new(),
            source: None,
        }))
    }

    /// A configuration error.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// What happened.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Whether asking again can help.
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// What may have happened on chain.
    pub fn delivery(&self) -> Delivery {
        self.0.delivery
    }

    /// The calls that led here, oldest first.
    pub fn attempts(&self) -> &[Attempt] {
        &self.0.attempts
    }

    /// The revert, where a contract reverted.
    pub fn revert(&self) -> Option<&Revert> {
        match &self.0.kind {
            ErrorKind::Reverted(revert) => Some(revert),
            _ => None,
        }
    }

    /// Whether it passes by itself: it says of the endpoints that they cannot be asked now, are behind or ask us to wait,
    /// and nothing of what was asked. A recovery that failed for such a cause is one, too.
    pub fn passes(&self) -> bool {
        if self.0.retry != Retry::Later {
            return false;
        }
        match &self.0.kind {
            ErrorKind::Unavailable
            | ErrorKind::Timeout
            | ErrorKind::RateLimited
            | ErrorKind::NotYet { .. }
            | ErrorKind::SessionLost { .. } => true,
            // A flow says what it could not do, and keeps the cause (F3).
            ErrorKind::Recovery => {
                let causes = std::iter::successors(self.source(), |&cause| cause.source());
                causes.filter_map(|cause| cause.downcast_ref::<Self>()).any(Self::passes)
            }
            ErrorKind::Config
            | ErrorKind::WrongChain
            | ErrorKind::IdentityAmbiguous { .. }
            | ErrorKind::Unsupported
            | ErrorKind::Pruned { .. }
            | ErrorKind::Invalid
            | ErrorKind::Reverted(_)
            | ErrorKind::TxRefused(_)
            | ErrorKind::UnfencedMethod { .. }
            | ErrorKind::Contradiction
            | ErrorKind::NotGranted { .. }
            | ErrorKind::KeyConflict { .. }
            | ErrorKind::SignerMissing { .. }
            | ErrorKind::NoContractCode { .. }
            | ErrorKind::InsufficientFunds { .. }
            | ErrorKind::ManagedAccount { .. }
            | ErrorKind::ChainAhead { .. }
            | ErrorKind::Journal
            | ErrorKind::Superseded
            | ErrorKind::Stopped
            | ErrorKind::Closed => false,
        }
    }

    /// The same error with another retry axis.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        Arc::make_mut(&mut self.0).retry = retry;
        self
    }

    /// The same error with another delivery axis.
    #[must_use]
    pub fn with_delivery(mut self, delivery: Delivery) -> Self {
        Arc::make_mut(&mut self.0).delivery = delivery;
        self
    }

    /// The same error with the calls that led to it.
    #[must_use]
    pub fn with_attempts(mut self, attempts: Vec<Attempt>) -> Self {
        Arc::make_mut(&mut self.0).attempts = attempts;
        self
    }

    /// The same error with its cause. The cause must not hold a URL or a key.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Arc::make_mut(&mut self.0).source = Some(source.into().into());
        self
    }

    /// The same error, said in the context of an operation: `context: message`.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        inner.message = format!("{context}: {}", inner.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if !self.0.attempts.is_empty() {
            f.write_str(" [")?;
            for (i, attempt) in self.0.attempts.iter().enumerate() {
                let comma = if i == 0 { "" } else { ", " };
                write!(f, "{comma}{}: {}", attempt.endpoint, attempt.verdict)?;
            }
            f.write_str("]")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("retry", &self.0.retry)
            .field("delivery", &self.0.delivery)
            .field("attempts", &self.0.attempts)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_endpoints_cannot_do_now_passes_also_as_the_cause_of_a_recovery_that_failed() {
        let later = |kind| Error::new(kind, "").with_retry(Retry::Later);
        let unavailable = later(ErrorKind::Unavailable);
        assert!(unavailable.passes());
        assert!(!Error::new(ErrorKind::Unavailable, "").passes(), "asking again does not help");
        let (account, balance, needed) = (Address::ZERO, U256::ZERO, U256::ONE);
        let poor = later(ErrorKind::InsufficientFunds { account, balance, needed });
        assert!(!poor.passes(), "somebody has to fund it");
        let failed = |cause: Error| later(ErrorKind::Recovery).with_source(cause);
        assert!(failed(unavailable.clone()).passes());
        assert!(failed(failed(unavailable)).passes());
        assert!(!failed(poor).passes());
        assert!(!later(ErrorKind::Recovery).passes());
    }
}
