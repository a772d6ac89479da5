//! Failures, diagnoses, and the bound on rounds.

use alloy_primitives::Address;
use serde::{Deserialize, Serialize};

use crate::{
    failure::{RefusalKind, Revert},
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
    /// Why it was refused, where it was.
    pub refusal: Option<RefusalKind>,
    /// The block at which this was seen.
    pub block: BlockRef,
}

impl Failure {
    /// A revert seen at a block.
    pub fn reverted(account: Address, content: Content, revert: Revert, block: BlockRef) -> Self {
        Self { account, content, revert: Some(revert), refusal: None, block }
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

/// Decides whether another round may run. `still_holds` says whether the conditions of the last round's
/// steps hold at the current view; they no longer do when, say, somebody spent an allowance meanwhile.
pub fn admit_round(
    intent: &Intent,
    flow: &str,
    diagnosis: &str,
    still_holds: bool,
    max_rounds: u32,
) -> RoundVerdict {
    match intent.rounds.last() {
        Some(last) if last.flow == flow && last.diagnosis == diagnosis && still_holds => {
            RoundVerdict::NoProgress
        }
        Some(_) if intent.rounds.len() >= max_rounds as usize => RoundVerdict::Exhausted,
        Some(_) => RoundVerdict::Go,
        None if max_rounds == 0 => RoundVerdict::Exhausted,
        None => RoundVerdict::Go,
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{Bytes, U256};

    use super::*;
    use crate::tx::Record;

    fn intent(rounds: usize) -> Intent {
        let content = Content { to: Address::ZERO, value: U256::ZERO, input: Bytes::new() };
        let mut records = vec![Record::Opened { account: Address::ZERO, content }];
        let round =
            Record::Planned { flow: "allowance".into(), diagnosis: "0 of 9".into(), steps: Vec::new() };
        records.extend(std::iter::repeat_n(round, rounds));
        Intent::fold(&records).expect("it adds up")
    }

    #[test]
    fn rounds_are_bounded_and_repetition_ends_them() {
        let check = |rounds, diagnosis, still_holds, expected| {
            assert_eq!(admit_round(&intent(rounds), "allowance", diagnosis, still_holds, 2), expected);
        };
        check(0, "0 of 9", true, RoundVerdict::Go);
        check(1, "0 of 9", true, RoundVerdict::NoProgress);
        check(1, "0 of 9", false, RoundVerdict::Go);
        check(1, "5 of 9", true, RoundVerdict::Go);
        check(2, "5 of 9", false, RoundVerdict::Exhausted);
        assert_eq!(admit_round(&intent(0), "f", "d", true, 0), RoundVerdict::Exhausted);
    }
}
