//! The verdict on one reply (V).

use std::{fmt, time::Duration};

use alloy_primitives::Bytes;
use serde::{Deserialize, Serialize};

/// What one reply means, decided once, from its content, before health, retry or the caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Well-formed and trusted. Includes `null`: what a null means is the router's question.
    Answer,
    /// The EVM said no. Final for reads, unless the reply comes from below a session's fence.
    Reverted(Revert),
    /// Asked for a block above what this endpoint has seen.
    NotYet,
    /// History that this endpoint does not hold.
    Missing {
        /// Which kind of data was asked for.
        kind: DataKind,
        /// The lowest height that the endpoint says it holds, where the reply tells.
        oldest: Option<u64>,
    },
    /// The transaction was refused. Never a matter of the endpoint's health.
    TxRefused(RefusalKind),
    /// A rate limit or quota, in any dialect.
    RateLimited {
        /// How long to wait, where the reply tells.
        after: Option<Duration>,
    },
    /// The method, or the block tag, is not served here.
    Unsupported,
    /// A log range or result limit. Split the range and ask the same endpoint.
    RangeTooLarge {
        /// The range (first block, last block) that the reply says would work.
        hint: Option<(u64, u64)>,
    },
    /// The endpoint failed.
    Fault(FaultKind),
    /// Another chain, another history or another branch.
    WrongIdentity,
    /// The caller's own mistake, the same everywhere.
    Invalid,
    /// An error whose wording no row of the table knows. A read goes on to another endpoint; a send may have been
    /// taken.
    Unclassified,
}

impl Verdict {
    /// One word for timelines and metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Reverted(_) => "reverted",
            Self::NotYet => "not yet",
            Self::Missing { .. } => "missing",
            Self::TxRefused(kind) => kind.label(),
            Self::RateLimited { .. } => "rate limited",
            Self::Unsupported => "unsupported",
            Self::RangeTooLarge { .. } => "range too large",
            Self::Fault(kind) => kind.label(),
            Self::WrongIdentity => "wrong identity",
            Self::Invalid => "invalid",
            Self::Unclassified => "unclassified",
        }
    }
}

/// The bytes that a contract reverted with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Revert {
    /// Revert data: empty, an `Error(string)`, a `Panic(uint256)` or a custom error.
    pub data: Bytes,
    /// The node's own words, kept for plain-text dialects that send no data.
    pub message: String,
}

/// Kinds of data that an endpoint may hold to different depths (E6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DataKind {
    /// Account and contract state: calls, balances, counts, code, storage, proofs.
    State,
    /// Headers and bodies.
    Blocks,
    /// Log queries.
    Logs,
    /// Transactions and receipts.
    Transactions,
}

/// Why an endpoint refused a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The account's count is already beyond this nonce.
    NonceTooLow,
    /// A gap: an earlier nonce has not reached this endpoint.
    NonceTooHigh,
    /// These very bytes are known. Acceptance, for a sender that knows its hash.
    AlreadyKnown,
    /// Another transaction holds the nonce and this one pays too little to replace it.
    ReplacementUnderpriced,
    /// Below the endpoint's own minimum.
    Underpriced,
    /// The maximum fee is below the block's base fee.
    FeeBelowBaseFee,
    /// Above the endpoint's own fee cap.
    FeeAboveNodeCap,
    /// The fee fields contradict each other.
    FeeFieldsInvalid,
    /// The account cannot pay for value and gas.
    InsufficientFunds,
    /// The gas limit does not cover the transaction's own cost.
    IntrinsicGas,
    /// The gas limit is above the block's.
    BlockGasLimit,
    /// The pool is full.
    PoolFull,
    /// The account has too many transactions in the pool.
    InFlightLimit,
    /// A rule of the operator or the chain.
    Policy,
    /// The sender is rate limited: the same at every endpoint of the chain.
    SenderRateLimit,
    /// It could not be decoded, or is of a type that is not served, or for another chain.
    Malformed,
}

impl RefusalKind {
    /// One phrase for timelines and metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::NonceTooLow => "nonce too low",
            Self::NonceTooHigh => "nonce too high",
            Self::AlreadyKnown => "already known",
            Self::ReplacementUnderpriced => "replacement underpriced",
            Self::Underpriced => "underpriced",
            Self::FeeBelowBaseFee => "fee below base fee",
            Self::FeeAboveNodeCap => "fee above node cap",
            Self::FeeFieldsInvalid => "fee fields invalid",
            Self::InsufficientFunds => "insufficient funds",
            Self::IntrinsicGas => "intrinsic gas too low",
            Self::BlockGasLimit => "above block gas limit",
            Self::PoolFull => "pool full",
            Self::InFlightLimit => "in-flight limit",
            Self::Policy => "policy",
            Self::SenderRateLimit => "sender rate limit",
            Self::Malformed => "malformed",
        }
    }
}

impl RefusalKind {
    /// Whether the same bytes can never be taken, anywhere, at any time: no pool keeps them (T0). The others
    /// pass: a pool empties, an earlier nonce arrives, the base fee falls, an account is funded.
    pub const fn is_final(&self) -> bool {
        match self {
            Self::FeeFieldsInvalid
            | Self::IntrinsicGas
            | Self::BlockGasLimit
            | Self::Policy
            | Self::Malformed => true,
            Self::NonceTooLow
            | Self::NonceTooHigh
            | Self::AlreadyKnown
            | Self::ReplacementUnderpriced
            | Self::Underpriced
            | Self::FeeBelowBaseFee
            | Self::FeeAboveNodeCap
            | Self::InsufficientFunds
            | Self::PoolFull
            | Self::InFlightLimit
            | Self::SenderRateLimit => false,
        }
    }
}

impl fmt::Display for RefusalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// How an endpoint failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// No connection could be made: no byte left.
    Refused,
    /// No reply in time.
    Timeout,
    /// The connection ended before the reply did.
    Reset,
    /// TLS could not be established: no byte of the request left.
    Tls,
    /// An HTTP 5xx, or a JSON-RPC error that says as much.
    Server,
    /// The body is not JSON-RPC.
    NotJson,
    /// The body ended early.
    Truncated,
    /// The body is larger than allowed.
    TooLarge,
    /// The reply is to another request.
    WrongId,
    /// The endpoint does not accept our credentials.
    Auth,
    /// The plan behind the endpoint is used up or does not include this.
    Billing,
}

impl FaultKind {
    /// One phrase for timelines and metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Tls => "tls",
            Self::Server => "server error",
            Self::NotJson => "not json",
            Self::Truncated => "truncated",
            Self::TooLarge => "reply too large",
            Self::WrongId => "wrong id",
            Self::Auth => "auth",
            Self::Billing => "billing",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}
