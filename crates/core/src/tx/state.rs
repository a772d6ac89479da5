//! What the records of an intent add up to, and what is due. Running and resuming use these two functions
//! and nothing else (J1).

use std::collections::BTreeMap;

use alloy_primitives::{Address, TxHash};
use thiserror::Error;

use super::record::{
    Attempt, Check, Content, Grant, Inclusion, Outcome, PlanStep, Record, SendAnswer, StepId, Stop,
};
use crate::units::{BlockRef, EndpointName};

/// An intent as its records tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The account that signs for it.
    pub account: Address,
    /// What to send.
    pub content: Content,
    /// The approvals that recovery may make.
    pub grants: Vec<Grant>,
    /// The highest block that the intent depends on.
    pub fence: Option<BlockRef>,
    /// Recovery rounds, oldest first.
    pub rounds: Vec<Round>,
    /// The transactions that were signed for it.
    pub transactions: BTreeMap<StepId, Transaction>,
    /// Why its last run ended, where that was an error and nothing has happened since.
    pub stopped: Option<Stop>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// How many records there are.
    pub records: u64,
}

/// One recovery round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The flow that planned it.
    pub flow: String,
    /// What the flow saw.
    pub diagnosis: String,
    /// What it wants sent.
    pub steps: Vec<PlanStep>,
    /// Why it was given up before its end, where it was.
    pub abandoned: Option<String>,
}

/// The transaction of one step.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Transaction {
    /// Every signed version. All of them hold the same nonce.
    pub attempts: Vec<Attempt>,
    /// What endpoints last said to a send of each.
    pub answers: BTreeMap<TxHash, SendAnswer>,
    /// Where it was included.
    pub inclusion: Option<Inclusion>,
    /// Who served the receipt.
    pub by: Option<EndpointName>,
    /// Where the step's condition was read, after inclusion.
    pub checked: Option<BlockRef>,
}

/// The next thing to do for an intent. Every duty is idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Simulate, price, and sign; nothing was signed for this step yet.
    Prepare {
        /// For which step.
        step: StepId,
        /// What to send.
        call: Content,
    },
    /// Signed bytes exist: find out whether they were included, and get them included.
    Settle {
        /// For which step.
        step: StepId,
        /// The newest signed version.
        attempt: Attempt,
    },
    /// The step's transaction is included; its condition is to be read at or above that block.
    Check {
        /// For which step.
        step: StepId,
        /// The condition.
        check: Check,
        /// Where the transaction is.
        inclusion: Inclusion,
    },
    /// The intent's own transaction is included: corroborate it and finish.
    Conclude {
        /// Where.
        inclusion: Inclusion,
        /// Who served the receipt, and so cannot corroborate it.
        by: Option<EndpointName>,
    },
    /// Nothing: the intent has ended.
    Nothing(Outcome),
}

/// Records that do not add up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("record {at} does not follow from those before it: {why}")]
pub struct FoldError {
    /// Its position, from 0.
    pub at: u64,
    /// What is wrong with it.
    pub why: &'static str,
}

impl Intent {
    /// Folds records, oldest first.
    ///
    /// # Errors
    ///
    /// [`FoldError`] when the first record is not `Opened` or a later one speaks of something that does not
    /// exist.
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> Result<Self, FoldError> {
        let mut records = records.into_iter();
        let Some(Record::Opened { account, content }) = records.next() else {
            return Err(FoldError { at: 0, why: "the first record opens the intent" });
        };
        let opened = Self {
            account: *account,
            content: content.clone(),
            grants: Vec::new(),
            fence: None,
            rounds: Vec::new(),
            transactions: BTreeMap::new(),
            stopped: None,
            outcome: None,
            records: 1,
        };
        records.try_fold(opened, |state, record| state.next(record))
    }

    /// The state after one more record.
    ///
    /// # Errors
    ///
    /// [`FoldError`] when the record speaks of something that does not exist.
    pub fn next(mut self, record: &Record) -> Result<Self, FoldError> {
        let at = self.records;
        let wrong = |why| Err(FoldError { at, why });
        if self.outcome.is_some() {
            return wrong("the intent has ended");
        }
        self.stopped = None;
        match record {
            Record::Opened { .. } => return wrong("the intent is open already"),
            Record::Granted { grants } => self.grants.clone_from(grants),
            Record::Fenced { block } => self.fence = Some(*block),
            Record::Planned { flow, diagnosis, steps } => self.rounds.push(Round {
                flow: flow.clone(),
                diagnosis: diagnosis.clone(),
                steps: steps.clone(),
                abandoned: None,
            }),
            Record::Abandoned { why } => match self.rounds.last_mut() {
                Some(round) => round.abandoned = Some(why.clone()),
                None => return wrong("it gives up a round, and there is none"),
            },
            Record::Resumed | Record::Requested => {}
            Record::Stopped { stop } => self.stopped = Some(stop.clone()),
            Record::Signed { step, attempt } => {
                if self.call_of(*step).is_none() {
                    return wrong("it signs for a step that no plan has");
                }
                let transaction = self.transactions.entry(*step).or_default();
                if transaction.attempts.iter().any(|other| other.nonce != attempt.nonce) {
                    return wrong("it signs the same step at a second nonce");
                }
                transaction.attempts.push(attempt.clone());
            }
            Record::Submitted { hash, answer } => {
                match self.transactions.values_mut().find(|transaction| transaction.signed(*hash)) {
                    Some(transaction) => drop(transaction.answers.insert(*hash, *answer)),
                    None => return wrong("it submits what was never signed"),
                }
            }
            Record::Included { step, inclusion, by } => match self.transactions.get_mut(step) {
                Some(transaction) if transaction.signed(inclusion.hash) => {
                    transaction.inclusion = Some(*inclusion);
                    transaction.by = Some(by.clone());
                    self.advance_fence(inclusion.block);
                }
                Some(_) | None => return wrong("it includes what was never signed"),
            },
            Record::Checked { step, block, .. } => match self.transactions.get_mut(step) {
                Some(transaction) => {
                    transaction.checked = Some(*block);
                    self.advance_fence(*block);
                }
                None => return wrong("it checks a step that was never signed"),
            },
            Record::Released { nonce } | Record::Displaced { nonce, .. } => {
                self.transactions.retain(|_, tx| tx.attempts.iter().any(|attempt| attempt.nonce != *nonce));
            }
            Record::Finished { outcome } => self.outcome = Some(outcome.clone()),
        }
        self.records += 1;
        Ok(self)
    }

    /// What is to be done next.
    pub fn due(&self) -> Due {
        if let Some(outcome) = &self.outcome {
            return Due::Nothing(outcome.clone());
        }
        let last = self.rounds.iter().enumerate().next_back();
        if let Some((round, plan)) = last.filter(|(_, plan)| plan.abandoned.is_none()) {
            for (index, planned) in plan.steps.iter().enumerate() {
                let step = StepId::Plan { round: round as u32, step: index as u32 };
                let Some(inclusion) = self.inclusion_of(step) else { return self.start_or_settle(step) };
                if !inclusion.succeeded {
                    // The plan is over. Whether there is another is for the intent's own call to show.
                    break;
                }
                let checked = self.transactions.get(&step).is_some_and(|tx| tx.checked.is_some());
                if let (Some(check), false) = (&planned.until, checked) {
                    return Due::Check { step, check: check.clone(), inclusion };
                }
            }
        }
        match self.inclusion_of(StepId::Effect) {
            Some(inclusion) => {
                let effect = self.transactions.get(&StepId::Effect);
                Due::Conclude { inclusion, by: effect.and_then(|transaction| transaction.by.clone()) }
            }
            None => self.start_or_settle(StepId::Effect),
        }
    }

    /// The rounds for which something was signed: those that count against the bound on rounds.
    pub fn rounds_signed(&self) -> usize {
        let signed = |round: &usize| {
            let of_round =
                |step: &StepId| matches!(step, StepId::Plan { round: of, .. } if *of as usize == *round);
            self.transactions.keys().any(of_round)
        };
        (0..self.rounds.len()).filter(signed).count()
    }

    /// Whether bytes exist of which the chain has not said what became of them: of the intent's own call, or of
    /// a recovery step that is not included yet.
    pub fn may_be_sent(&self) -> bool {
        let open = |(step, transaction): (&StepId, &Transaction)| {
            *step == StepId::Effect || transaction.inclusion.is_none()
        };
        self.transactions.iter().any(open)
    }

    /// Whether a process that starts goes on with it by itself. Not where it has stopped and nothing that was signed
    /// is open: its caller was told so, and may have given it up. It goes on when it is asked for again.
    pub fn goes_on(&self) -> bool {
        self.outcome.is_none() && (self.stopped.is_none() || self.may_be_sent())
    }

    /// What a step sends: the plan's call, or the intent's own.
    pub fn call_of(&self, step: StepId) -> Option<&Content> {
        match step {
            StepId::Effect => Some(&self.content),
            StepId::Plan { round, step } => {
                let plan = self.rounds.get(round as usize)?;
                plan.steps.get(step as usize).map(|planned| &planned.call)
            }
        }
    }

    /// What a step is called in timelines.
    pub fn label_of(&self, step: StepId) -> &str {
        match step {
            StepId::Effect => "send",
            StepId::Plan { round, step } => self
                .rounds
                .get(round as usize)
                .and_then(|plan| plan.steps.get(step as usize))
                .map_or("step", |planned| &planned.label),
        }
    }

    fn start_or_settle(&self, step: StepId) -> Due {
        match self.transactions.get(&step).and_then(|transaction| transaction.attempts.last()) {
            Some(attempt) => Due::Settle { step, attempt: attempt.clone() },
            None => Due::Prepare {
                step,
                call: self.call_of(step).cloned().unwrap_or_else(|| self.content.clone()),
            },
        }
    }

    fn inclusion_of(&self, step: StepId) -> Option<Inclusion> {
        self.transactions.get(&step).and_then(|transaction| transaction.inclusion)
    }

    fn advance_fence(&mut self, block: BlockRef) {
        if self.fence.is_none_or(|fence| fence.number < block.number) {
            self.fence = Some(block);
        }
    }
}

impl Transaction {
    fn signed(&self, hash: TxHash) -> bool {
        self.attempts.iter().any(|attempt| attempt.hash == hash)
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{B256, Bytes, U256};

    use super::*;
    use crate::error::{Delivery, Retry};

    fn block(number: u64) -> BlockRef {
        BlockRef { number, hash: B256::with_last_byte(number as u8) }
    }

    fn call(to: u8) -> Content {
        Content { to: Address::with_last_byte(to), value: U256::ZERO, input: Bytes::new() }
    }

    fn attempt(nonce: u64, hash: u8) -> Attempt {
        Attempt {
            nonce,
            unused_at: 0,
            hash: B256::with_last_byte(hash),
            raw: Bytes::new(),
            gas_limit: 21_000,
            max_fee_per_gas: 1,
        }
    }

    fn inclusion(hash: u8, at: u64) -> Inclusion {
        Inclusion { hash: B256::with_last_byte(hash), block: block(at), succeeded: true, gas_used: 1 }
    }

    /// Approve, then register: every record of a run with one recovery round.
    fn story() -> Vec<Record> {
        let approve = StepId::Plan { round: 0, step: 0 };
        let check = Check { to: Address::with_last_byte(7), input: Bytes::new(), at_least: U256::ONE };
        vec![
            Record::Opened { account: Address::with_last_byte(1), content: call(2) },
            Record::Fenced { block: block(5) },
            Record::Planned {
                flow: "allowance".into(),
                diagnosis: "0 of 1".into(),
                steps: vec![PlanStep { label: "approve".into(), call: call(3), until: Some(check) }],
            },
            Record::Signed { step: approve, attempt: attempt(0, 10) },
            Record::Submitted { hash: B256::with_last_byte(10), answer: SendAnswer::Unknown },
            Record::Included { step: approve, inclusion: inclusion(10, 6), by: "a".into() },
            Record::Checked { step: approve, block: block(7), holds: true },
            Record::Signed { step: StepId::Effect, attempt: attempt(1, 11) },
            Record::Included { step: StepId::Effect, inclusion: inclusion(11, 8), by: "a".into() },
            Record::Finished {
                outcome: Outcome::Included { inclusion: inclusion(11, 8), corroborated: true },
            },
        ]
    }

    #[test]
    fn each_prefix_of_a_run_has_its_duty() {
        let story = story();
        let duties: Vec<&str> = (1..=story.len())
            .map(|n| match Intent::fold(&story[..n]).expect("the story adds up").due() {
                Due::Prepare { step: StepId::Effect, .. } => "prepare the effect",
                Due::Prepare { .. } => "prepare the plan",
                Due::Settle { step: StepId::Effect, .. } => "settle the effect",
                Due::Settle { .. } => "settle the plan",
                Due::Check { .. } => "check",
                Due::Conclude { .. } => "conclude",
                Due::Nothing(_) => "nothing",
            })
            .collect();
        assert_eq!(
            duties,
            [
                "prepare the effect",
                "prepare the effect",
                "prepare the plan",
                "settle the plan",
                "settle the plan",
                "check",
                "prepare the effect",
                "settle the effect",
                "conclude",
                "nothing",
            ]
        );
    }

    #[test]
    fn the_fence_rises_with_what_was_seen_and_never_falls() {
        let story = story();
        let fence = |n| Intent::fold(&story[..n]).expect("the story adds up").fence.map(|fence| fence.number);
        assert_eq!(
            [fence(1), fence(2), fence(6), fence(7), fence(9)],
            [None, Some(5), Some(6), Some(7), Some(8)]
        );
    }

    #[test]
    fn a_released_nonce_reopens_its_step() {
        let mut story = story();
        story.truncate(8);
        story.push(Record::Released { nonce: 1 });
        let intent = Intent::fold(&story).expect("the story adds up");
        assert!(matches!(intent.due(), Due::Prepare { step: StepId::Effect, .. }));
        assert!(intent.transactions.contains_key(&StepId::Plan { round: 0, step: 0 }));
    }

    #[test]
    fn a_plan_that_reverted_is_over() {
        let mut story = story();
        story.truncate(5);
        story.push(Record::Included {
            step: StepId::Plan { round: 0, step: 0 },
            inclusion: Inclusion { succeeded: false, ..inclusion(10, 6) },
            by: "a".into(),
        });
        let due = Intent::fold(&story).expect("adds up").due();
        assert!(matches!(due, Due::Prepare { step: StepId::Effect, .. }));
    }

    #[test]
    fn an_abandoned_plan_is_over_and_counts_only_if_something_was_signed_for_it() {
        let mut story = story();
        story.truncate(3);
        story.push(Record::Abandoned { why: "it is not granted any more".into() });
        let intent = Intent::fold(&story).expect("adds up");
        assert!(matches!(intent.due(), Due::Prepare { step: StepId::Effect, .. }));
        assert_eq!(intent.rounds_signed(), 0);
    }

    #[test]
    fn what_has_stopped_goes_on_by_itself_only_where_bytes_are_open() {
        let stop = || Stop { why: "no funds".into(), retry: Retry::Later, delivery: Delivery::NotSent };
        let after = |n: usize, more: &[Record]| {
            let records = [&story()[..n], more].concat();
            Intent::fold(&records).expect("adds up").goes_on()
        };
        let stopped = Record::Stopped { stop: stop() };
        assert!(after(1, &[]));
        assert!(!after(1, std::slice::from_ref(&stopped)));
        assert!(after(1, &[stopped.clone(), Record::Requested]));
        assert!(after(4, std::slice::from_ref(&stopped)), "the approve may be out");
        assert!(!after(7, std::slice::from_ref(&stopped)), "the approve is done, and nothing else is open");
        assert!(after(8, std::slice::from_ref(&stopped)));
        assert!(!after(10, &[]));
    }

    #[test]
    fn records_that_do_not_add_up_are_refused() {
        let check = |records: &[Record], why: &str| {
            assert_eq!(Intent::fold(records).expect_err("it does not add up").why, why);
        };
        let story = story();
        check(&story[1..], "the first record opens the intent");
        check(&[story[0].clone(), story[0].clone()], "the intent is open already");
        check(&[story[0].clone(), story[3].clone()], "it signs for a step that no plan has");
        check(&[story[0].clone(), story[8].clone()], "it includes what was never signed");
        check(&[story[0].clone(), story[9].clone(), story[1].clone()], "the intent has ended");
        let second = Record::Signed { step: StepId::Effect, attempt: attempt(2, 12) };
        check(&[story[..8].to_vec(), vec![second]].concat(), "it signs the same step at a second nonce");
    }
}
