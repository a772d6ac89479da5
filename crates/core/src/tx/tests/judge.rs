//! What must hold at the end, by what the chain, the journal and the endpoints have seen.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use alloy_primitives::TxHash;

use super::{
    life::{Asked, End, Life, Sea, Why},
    world::{Call, touch},
};
use crate::{
    recovery::authorise,
    tx::{Intent, Outcome, Record, StepId, Transaction},
};

/// How an intent ended, without the details that differ from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Included,
    Reverted,
    Refused,
    Stopped(Why),
}

impl Kind {
    pub(super) fn of(end: &End) -> Self {
        match end {
            End::Outcome(Outcome::Included { .. }) => Self::Included,
            End::Outcome(Outcome::Reverted { .. }) => Self::Reverted,
            End::Outcome(Outcome::Refused { .. }) => Self::Refused,
            End::Stopped(why) => Self::Stopped(*why),
        }
    }
}

type Verdict = Result<(), String>;

/// Judges a sea in which intent 0 has ended, and in which nobody is at work.
pub(super) fn judge(sea: &Sea, end: &End) -> Verdict {
    // A round that is carried out leaves an allowance: it is needed again only where somebody has spent it.
    let approved = sea.world.mined().filter(|(_, mined)| mined.call == Call::Approve && mined.succeeded);
    if approved.count() > 1 + sea.world.spent() {
        return Err("it was approved again, and nobody had spent it".into());
    }
    judge_all(sea, std::slice::from_ref(end))
}

/// Judges a sea in which the first intents have ended so, and in which nobody is at work.
pub(super) fn judge_all(sea: &Sea, ends: &[End]) -> Verdict {
    steps_hold_one_nonce(sea)?;
    plans_are_kept_to(sea)?;
    nonces_carry_one_transaction(sea)?;
    steps_are_included_once(sea)?;
    ends.iter()
        .enumerate()
        .try_for_each(|(intent, end)| outcome_is_what_the_chain_shows(sea, intent, end))?;
    // Bytes that may be out hold their nonce until the chain has spoken: a process that starts goes on with them.
    if (0..ends.len()).any(|intent| sea.state(intent).is_some_and(|state| state.goes_on())) {
        return Ok(());
    }
    nothing_is_left_open(sea)?;
    the_line_goes_on(sea, ends)
}

/// No step signs a second time unless what it signed was released.
fn steps_hold_one_nonce(sea: &Sea) -> Verdict {
    for records in &sea.journal {
        let mut held: BTreeMap<StepId, u64> = BTreeMap::new();
        for record in records {
            if let Record::Signed { step, attempt } = record
                && held.insert(*step, attempt.nonce).is_some()
            {
                return Err(format!("{step:?} was signed for again, at nonce {}", attempt.nonce));
            }
            if let Record::Released { nonce } | Record::Displaced { nonce, .. } = record {
                held.retain(|_, of| of != nonce);
            }
        }
    }
    Ok(())
}

/// Nothing is signed for a plan of which a step has reverted, nor beyond what was granted last.
fn plans_are_kept_to(sea: &Sea) -> Verdict {
    for records in &sea.journal {
        for (at, record) in records.iter().enumerate() {
            let Record::Signed { step: StepId::Plan { round, step }, attempt } = record else { continue };
            let before = Intent::fold(&records[..at]).map_err(|error| error.to_string())?;
            let failed = |(id, tx): (&StepId, &Transaction)| {
                matches!(id, StepId::Plan { round: of, .. } if of == round)
                    && tx.inclusion.is_some_and(|inclusion| !inclusion.succeeded)
            };
            if before.transactions.iter().any(failed) {
                return Err(format!("step {step} of round {round} was signed after another had reverted"));
            }
            let granted = records[..at].iter().rev().find_map(|record| match record {
                Record::Granted { grants } => Some(grants.as_slice()),
                _ => None,
            });
            let call = before.call_of(StepId::Plan { round: *round, step: *step });
            if let Some(call) = call
                && authorise(call, granted.unwrap_or_default()).is_err()
            {
                return Err(format!("{} was signed beyond the grants", attempt.hash));
            }
        }
    }
    Ok(())
}

/// Of all bytes that any endpoint was sent, no two are for one nonce, unless it was released in between.
fn nonces_carry_one_transaction(sea: &Sea) -> Verdict {
    let mut heard: BTreeMap<u64, BTreeSet<TxHash>> = BTreeMap::new();
    for tx in &sea.world.heard {
        heard.entry(tx.nonce).or_default().insert(tx.hash);
    }
    for (nonce, hashes) in heard {
        let frees = |record: &&Record| match record {
            Record::Released { nonce: of } | Record::Displaced { nonce: of, .. } => *of == nonce,
            _ => false,
        };
        let releases = sea.journal.iter().flatten().filter(frees).count();
        if hashes.len() > 1 + releases {
            return Err(format!("{} transactions were sent for nonce {nonce}", hashes.len()));
        }
    }
    Ok(())
}

/// One effect an intent, and one approve a round.
fn steps_are_included_once(sea: &Sea) -> Verdict {
    let mut included: BTreeMap<(usize, StepId), u32> = BTreeMap::new();
    for (intent, records) in sea.journal.iter().enumerate() {
        for record in records {
            if let Record::Signed { step, attempt } = record
                && sea.world.receipt(attempt.hash).is_some()
            {
                *included.entry((intent, *step)).or_default() += 1;
            }
        }
    }
    match included.iter().find(|(_, times)| **times > 1) {
        Some(((_, step), times)) => Err(format!("{step:?} was included {times} times")),
        None => Ok(()),
    }
}

fn outcome_is_what_the_chain_shows(sea: &Sea, intent: usize, end: &End) -> Verdict {
    let own = sea.journal[intent].iter().filter_map(|record| match record {
        Record::Signed { step: StepId::Effect, attempt } => sea.world.receipt(attempt.hash),
        _ => None,
    });
    let shown = own.last().map(|inclusion| inclusion.succeeded);
    let said = match Kind::of(end) {
        Kind::Included => Some(true),
        Kind::Reverted => Some(false),
        Kind::Refused | Kind::Stopped(_) => None,
    };
    match shown == said {
        true => Ok(()),
        false => Err(format!("the outcome of {intent} is {end:?}, and the chain shows {shown:?}")),
    }
}

/// No nonce is held that the chain has not seen used, and no pool waits for one.
fn nothing_is_left_open(sea: &Sea) -> Verdict {
    let count = sea.world.now().count;
    if let Some((nonce, holder)) = sea.slots.range(count..).next() {
        return Err(format!("nonce {nonce} is left open by {holder:?}"));
    }
    match sea.world.pool() {
        [] => Ok(()),
        left => Err(format!("a pool still has {left:?}")),
    }
}

/// Asked again, each says the same and does nothing; and the account's next intent is carried out.
fn the_line_goes_on(sea: &Sea, ends: &[End]) -> Verdict {
    let after = Rc::new(RefCell::new(sea.clone()));
    after.borrow_mut().world.refuses = None;
    let asked = |intent| Asked { process: 99, intent, content: touch(), grants: Vec::new() };
    for (intent, end) in ends.iter().enumerate() {
        let End::Outcome(_) = end else { continue };
        let again = Life::new(&after, &asked(intent)).finish();
        if again != *end || after.borrow().journal[intent].len() != sea.journal[intent].len() {
            return Err(format!("asked again, {intent} says {again:?}"));
        }
    }
    let end = Life::new(&after, &asked(ends.len())).finish();
    match Kind::of(&end) {
        Kind::Included => nothing_is_left_open(&after.borrow()),
        other => Err(format!("the account's next intent ends as {other:?}")),
    }
}
