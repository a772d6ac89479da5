//! What is written down about an intent, in the order in which it became true.

use alloy_primitives::{Address, B256, Bytes, TxHash, U256, keccak256};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Delivery, Error, ErrorKind, Result, Retry},
    failure::{RefusalKind, Revert},
    units::{BlockRef, EndpointName},
};

/// What the caller asked for: the part of an intent that its key stands for (T1). Signer, nonce and fees
/// are not part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The contract or account to call.
    pub to: Address,
    /// Wei to send along.
    pub value: U256,
    /// Call data.
    pub input: Bytes,
}

impl Content {
    /// A digest of the content, by which a key that was used before is compared.
    pub fn fingerprint(&self) -> B256 {
        let mut bytes = Vec::with_capacity(52 + self.input.len());
        bytes.extend_from_slice(self.to.as_slice());
        bytes.extend_from_slice(&self.value.to_be_bytes::<32>());
        bytes.extend_from_slice(&self.input);
        keccak256(bytes)
    }
}

/// One fact about an intent. Append-only: `state = fold(records)` (J1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Record {
    /// The intent exists.
    Opened {
        /// The account that signs for it.
        account: Address,
        /// What to send.
        content: Content,
    },
    /// The approvals that recovery may make for this intent. The newest such record counts.
    Granted {
        /// Each a token, a spender and a cap.
        grants: Vec<Grant>,
    },
    /// Everything from here on is read at this block or above it.
    Fenced {
        /// The block.
        block: BlockRef,
    },
    /// A flow knows what to do about a failure. Its steps run in order, then the intent's own call is
    /// tried again.
    Planned {
        /// The flow's stable name.
        flow: String,
        /// What it saw, in words, as it compares rounds (F4).
        diagnosis: String,
        /// What to do about it.
        steps: Vec<PlanStep>,
    },
    /// A round is over before its end: its plan can no longer be carried out as it is.
    Abandoned {
        /// Why, in words.
        why: String,
    },
    /// A run took the intent up again. Whatever was signed before counts as sent from here on (T0), also for
    /// a run that signed it and is still alive somewhere: that one's next record is refused.
    Resumed,
    /// A caller asked for it again: it is due, also where it had stopped. Any process may write it.
    Requested,
    /// A run of it ended with an error. It stays open.
    Stopped {
        /// Why, and what may have happened on chain.
        stop: Stop,
    },
    /// Bytes were signed. From here on they count as sent (T0).
    Signed {
        /// What they are for.
        step: StepId,
        /// The signed transaction.
        attempt: Attempt,
    },
    /// What the endpoints said to a send. A hint: only the chain decides.
    Submitted {
        /// Which attempt.
        hash: TxHash,
        /// What they said.
        answer: SendAnswer,
    },
    /// A transaction is in a block that was seen to list it.
    Included {
        /// What it was for.
        step: StepId,
        /// How it went.
        inclusion: Inclusion,
        /// Who served the receipt: another endpoint must corroborate it (T8).
        by: EndpointName,
    },
    /// A plan step's condition was read, at or above the block that includes its transaction.
    Checked {
        /// Which step.
        step: StepId,
        /// Where it was read.
        block: BlockRef,
        /// Whether it holds. Where it does not, somebody has undone what the step did.
        holds: bool,
    },
    /// A nonce is free again: every endpoint refused what was signed for it, for a reason for which no pool keeps
    /// it.
    Released {
        /// The nonce.
        nonce: u64,
    },
    /// A transaction that was not signed for this intent has used the nonce. It is final where the intent's own
    /// bytes may be out.
    Displaced {
        /// The nonce.
        nonce: u64,
        /// The transaction that used it.
        by: TxHash,
        /// The height of its block.
        block: u64,
    },
    /// The intent ended.
    Finished {
        /// How.
        outcome: Outcome,
    },
}

/// What a record does to the account's nonces and to its intent, besides being stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEffect {
    /// The nonce is signed for, by this step.
    Take {
        /// The nonce.
        nonce: u64,
        /// The step.
        step: StepId,
    },
    /// The nonce is free again.
    Release {
        /// The nonce.
        nonce: u64,
    },
    /// The nonce is used up, by a transaction of somebody else.
    Lose {
        /// The nonce.
        nonce: u64,
    },
    /// The intent has ended.
    Finish,
}

impl Record {
    /// What it does besides being stored: every journal does it in the same transaction.
    pub const fn effect(&self) -> Option<RecordEffect> {
        match self {
            Self::Signed { step, attempt } => Some(RecordEffect::Take { nonce: attempt.nonce, step: *step }),
            Self::Released { nonce } => Some(RecordEffect::Release { nonce: *nonce }),
            Self::Displaced { nonce, .. } => Some(RecordEffect::Lose { nonce: *nonce }),
            Self::Finished { .. } => Some(RecordEffect::Finish),
            Self::Opened { .. }
            | Self::Granted { .. }
            | Self::Fenced { .. }
            | Self::Planned { .. }
            | Self::Abandoned { .. }
            | Self::Resumed
            | Self::Requested
            | Self::Stopped { .. }
            | Self::Submitted { .. }
            | Self::Included { .. }
            | Self::Checked { .. } => None,
        }
    }

    /// Whether any process may write it: it says what a caller wants, and nothing is sent because of it alone.
    pub const fn is_of_caller(&self) -> bool {
        match self {
            Self::Granted { .. } | Self::Requested => true,
            Self::Opened { .. }
            | Self::Fenced { .. }
            | Self::Planned { .. }
            | Self::Abandoned { .. }
            | Self::Resumed
            | Self::Stopped { .. }
            | Self::Signed { .. }
            | Self::Submitted { .. }
            | Self::Included { .. }
            | Self::Checked { .. }
            | Self::Released { .. }
            | Self::Displaced { .. }
            | Self::Finished { .. } => false,
        }
    }
}

/// Why a run ended without an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The error, in one line. It holds no URL and no key.
    pub why: String,
    /// Whether asking again can help.
    pub retry: Retry,
    /// What may have happened on chain.
    pub delivery: Delivery,
}

impl From<&Error> for Stop {
    fn from(error: &Error) -> Self {
        Self { why: error.to_string(), retry: error.retry(), delivery: error.delivery() }
    }
}

/// Which transaction of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepId {
    /// A step of a recovery plan.
    Plan {
        /// The round, from 0.
        round: u32,
        /// The step in the round's plan, from 0.
        step: u32,
    },
    /// The intent's own call.
    Effect,
}

/// The limit of what recovery may approve: at most `cap` of `token` to `spender`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// The ERC-20 token.
    pub token: Address,
    /// Who may be allowed to spend it.
    pub spender: Address,
    /// The largest allowance that may be set, in the token's smallest unit.
    pub cap: U256,
}

/// One transaction that a plan wants sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    /// A word or two for timelines: `approve`.
    pub label: String,
    /// What to send.
    pub call: Content,
    /// What must hold, read at or above the block that includes it, before the next step.
    pub until: Option<Check>,
}

/// A condition on the chain: a view call whose first returned word is at least a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The contract to ask.
    pub to: Address,
    /// The call data.
    pub input: Bytes,
    /// The least value that satisfies it.
    pub at_least: U256,
}

/// One signed version of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The account's nonce that it uses.
    pub nonce: u64,
    /// The height at which the chain had not consumed that nonce: it cannot be included at or below.
    pub unused_at: u64,
    /// Its hash, computed here.
    pub hash: TxHash,
    /// The signed bytes.
    pub raw: Bytes,
    /// Gas limit.
    pub gas_limit: u64,
    /// The most that it pays for a unit of gas, in wei.
    pub max_fee_per_gas: u128,
}

/// What the endpoints said to a send (T3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendAnswer {
    /// Taken, or already known.
    Accepted,
    /// Refused by every endpoint that it went to.
    Refused(RefusalKind),
    /// It may have been taken.
    Unknown,
    /// No byte left.
    NotSent,
}

/// A transaction in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inclusion {
    /// Which attempt.
    pub hash: TxHash,
    /// The block that lists it.
    pub block: BlockRef,
    /// Whether it took effect (status 1).
    pub succeeded: bool,
    /// Gas used.
    pub gas_used: u64,
}

/// How an intent ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// It took effect.
    Included {
        /// Where.
        inclusion: Inclusion,
        /// Whether a second endpoint showed the block as canonical (T8).
        corroborated: bool,
    },
    /// It was included and reverted: gas was paid, nothing else happened.
    Reverted {
        /// Where.
        inclusion: Inclusion,
        /// Whether a second endpoint showed the block as canonical (T8).
        corroborated: bool,
        /// The revert data, replayed at its block; empty where it could not be had.
        data: Bytes,
    },
    /// Every endpoint refused it, and no pool keeps it.
    Refused {
        /// Why.
        kind: RefusalKind,
    },
}

impl Outcome {
    /// Where the intent took effect.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Reverted`] or [`ErrorKind::TxRefused`] when it took none.
    pub fn included(&self) -> Result<&Inclusion> {
        match self {
            Self::Included { inclusion, .. } => Ok(inclusion),
            Self::Reverted { inclusion, data, .. } => {
                let revert = Revert { data: data.clone(), message: String::new() };
                let message = format!(
                    "transaction {} was included in block {} and reverted: {}",
                    inclusion.hash,
                    inclusion.block,
                    revert.describe()
                );
                Err(Error::new(ErrorKind::Reverted(revert), message).with_delivery(Delivery::Unknown))
            }
            Self::Refused { kind } => {
                let message = format!("every endpoint refused the transaction: {kind}");
                Err(Error::new(ErrorKind::TxRefused(*kind), message).with_delivery(Delivery::Refused))
            }
        }
    }
}
