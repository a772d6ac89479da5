//! Failures, diagnoses, and the bound on rounds.

use alloy_primitives::Address;
use serde::{Deserialize, Serialize};

use crate::{
    failure::Revert,
    tx::{Content, Intent},
    units::BlockRef,
};

/// Why an intent's call cannot be sent, as flows see it. It was established at the session's view: not a
/// reply from an endpoint that lags.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The account that signs.
    pub account: Address,
    /// What it wants to send.
    pub content: Content,
    /// How the contract reverted, where it did.
    pub revert: Option<Revert>,
    /// The block at which this was seen.
    pub block: BlockRef,
}

impl Failure {
    /// A revert seen at a block.
    pub fn reverted(account: Address, content: Content, revert: Revert, block: BlockRef) -> Self {
        Self { account, content, revert: Some(revert), block }
    }
}

/// What a flow makes of a failure (F1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Diagnosis {
    /// Not this flow's business.
    Pass,
    /// This flow can do something about it. The text says what it saw, and is what rounds are compared by:
    /// the same failure must give the same text.
    Recover(String),
    /// Nothing must be done about it; the text says why. The intent ends with the failure.
    Forbid(String),
}

/// Whether another recovery round may run (F4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundVerdict {
    /// It may.
    Go,
    /// `max_rounds` have run.
    Exhausted,
    /// The last plan ran to its end, what it set out to do still holds on chain, and the same diagnosis
    /// comes again: another round would do the same.
    NoProgress,
}

/// Whether what the last round set out to do can be seen to hold at the current view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastRound {
    /// Its conditions hold, or it has none to look at.
    Holds,
    /// They do not, because somebody has, say, spent an allowance meanwhile; or the new plan is another one.
    Undone,
}

/// Decides whether another round may run.
pub fn admit_round(
    intent: &Intent,
    flow: &str,
    diagnosis: &str,
    last_round: LastRound,
    max_rounds: u32,
) -> RoundVerdict {
    let carried_out = intent.rounds.last().filter(|last| last.abandoned.is_none());
    match carried_out {
        Some(last) if last.flow == flow && last.diagnosis == diagnosis && last_round == LastRound::Holds => {
            RoundVerdict::NoProgress
        }
        Some(_) | None if intent.rounds_signed() >= max_rounds as usize => RoundVerdict::Exhausted,
        Some(_) | None => RoundVerdict::Go,
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{B256, Bytes, U256};

    use super::*;
    use crate::tx::{Attempt, PlanStep, Record, StepId};

    fn intent(rounds: usize) -> Intent {
        let content = Content { to: Address::ZERO, value: U256::ZERO, input: Bytes::new() };
        let mut records = vec![Record::Opened { account: Address::ZERO, content: content.clone() }];
        for round in 0..rounds {
            let step = PlanStep { label: "approve".into(), call: content.clone(), until: None };
            let (flow, diagnosis) = ("allowance".into(), "0 of 9".into());
            records.push(Record::Planned { flow, diagnosis, steps: vec![step] });
            let attempt = Attempt {
                nonce: round as u64,
                unused_at: 0,
                hash: B256::with_last_byte(round as u8),
                raw: Bytes::new(),
                gas_limit: 21_000,
                max_fee_per_gas: 1,
            };
            let step = StepId::Plan { round: round as u32, step: 0 };
            records.push(Record::Signed { step, attempt });
        }
        Intent::fold(&records).expect("it adds up")
    }

    #[test]
    fn rounds_are_bounded_and_repetition_ends_them() {
        use LastRound::{Holds, Undone};
        let check = |rounds, diagnosis, last, expected| {
            assert_eq!(admit_round(&intent(rounds), "allowance", diagnosis, last, 2), expected);
        };
        check(0, "0 of 9", Holds, RoundVerdict::Go);
        check(1, "0 of 9", Holds, RoundVerdict::NoProgress);
        check(1, "0 of 9", Undone, RoundVerdict::Go);
        check(1, "5 of 9", Holds, RoundVerdict::Go);
        check(2, "5 of 9", Undone, RoundVerdict::Exhausted);
        assert_eq!(admit_round(&intent(0), "f", "d", Holds, 0), RoundVerdict::Exhausted);
    }
}
