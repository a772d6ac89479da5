//! Records, duties and outcomes in words, and as JSON.
//!
//! In JSON, amounts are decimal strings, heights, nonces and gas are numbers, and rounds count from 1 as in the words.

use backstay::{
    BlockRef, Delivery, Grant, Inclusion, Outcome, Retry,
    journal::{Content, Due, IntentState, Record, SendAnswer, State, StepId, Stop},
};
use serde_json::{Value, json};

use crate::output::clean;

/// A record, told.
pub(crate) struct Told {
    /// What it is, in a word that does not change.
    pub(crate) what: &'static str,
    /// In words, one line.
    pub(crate) words: String,
    /// Its parts: an object.
    pub(crate) details: Value,
}

/// Tells a record. `before` is what the records before it add up to, where they do.
pub(crate) fn tell(record: &Record, before: Option<&IntentState>) -> Told {
    let (what, words, details) = match record {
        Record::Opened { account, content } => (
            "opened",
            format!("opened: {}, signed by {account}", call(content)),
            json!({ "account": account, "call": call_json(content) }),
        ),
        Record::Granted { grants } if grants.is_empty() => (
            "granted",
            "granted: nothing, and what was granted before is taken back".to_owned(),
            json!({ "grants": [] }),
        ),
        Record::Granted { grants } => {
            let each: Vec<String> = grants.iter().map(grant).collect();
            let grants = grants.iter().map(grant_json).collect::<Vec<_>>();
            (
                "granted",
                format!("granted: recovery may approve {}", each.join("; ")),
                json!({ "grants": grants }),
            )
        }
        Record::Fenced { block } => (
            "fenced",
            format!("fenced: from here on nothing is believed below block {block}"),
            json!({ "block": block_json(block) }),
        ),
        Record::Planned { flow, diagnosis, steps } => {
            let labels: Vec<&str> = steps.iter().map(|step| step.label.as_str()).collect();
            (
                "planned",
                format!("planned: {}, by the flow `{flow}`, which saw: {diagnosis}", labels.join(", then ")),
                json!({ "flow": flow, "diagnosis": diagnosis, "steps": labels }),
            )
        }
        Record::Abandoned { why } => {
            ("abandoned", format!("abandoned: the plan was given up: {why}"), json!({ "why": why }))
        }
        Record::Resumed => (
            "resumed",
            "resumed: another run took it up; whatever was signed before counts as sent".to_owned(),
            json!({}),
        ),
        Record::Requested => {
            ("requested", "requested: a caller asked for it again, so it is due".to_owned(), json!({}))
        }
        Record::Stopped { stop } => {
            let Stop { why, retry, delivery } = stop;
            let words = format!("stopped: {why} ({}; {})", delivery_words(*delivery), retry_words(*retry));
            ("stopped", words, stop_json(stop))
        }
        Record::Signed { step, attempt } => {
            let mut details = step_json(*step, before);
            details["nonce"] = json!(attempt.nonce);
            details["hash"] = json!(attempt.hash);
            details["gas_limit"] = json!(attempt.gas_limit);
            details["max_fee_per_gas"] = json!(attempt.max_fee_per_gas.to_string());
            let step = step_words(*step, before);
            ("signed", format!("signed {step} at nonce {}: {}", attempt.nonce, attempt.hash), details)
        }
        Record::Submitted { hash, answer } => {
            let of = before.and_then(|intent| {
                let signed = |(_, transaction): &(&StepId, &backstay::journal::Transaction)| {
                    transaction.attempts.iter().any(|attempt| attempt.hash == *hash)
                };
                intent.transactions.iter().find(signed).map(|(step, _)| *step)
            });
            let mut details = of.map_or_else(|| json!({}), |step| step_json(step, before));
            details["hash"] = json!(hash);
            let (word, said) = match answer {
                SendAnswer::Accepted => ("taken", "taken by an endpoint".to_owned()),
                SendAnswer::Refused(kind) => {
                    details["refusal"] = json!(kind.label());
                    ("refused", format!("refused by every endpoint that it went to: {kind}"))
                }
                SendAnswer::Unknown => ("unknown", "no clear answer: it may have been taken".to_owned()),
                SendAnswer::NotSent => ("not_sent", "no byte of it left".to_owned()),
            };
            details["answer"] = json!(word);
            let step = of.map_or_else(|| format!("{hash}"), |step| step_words(step, before));
            ("submitted", format!("submitted {step}: {said}"), details)
        }
        Record::Included { step, inclusion, by } => {
            let mut details = step_json(*step, before);
            details["inclusion"] = inclusion_json(inclusion);
            details["by"] = json!(by);
            let effect = if inclusion.succeeded { "it took effect" } else { "it reverted" };
            let words = format!(
                "included {} in block {}: {effect}, for {} gas; the receipt is from `{by}`",
                step_words(*step, before),
                inclusion.block,
                inclusion.gas_used
            );
            ("included", words, details)
        }
        Record::Checked { step, block, holds } => {
            let mut details = step_json(*step, before);
            details["block"] = block_json(block);
            details["holds"] = json!(holds);
            let found = match holds {
                true => "what it was for is so",
                false => "what it was for is not so: somebody has undone it",
            };
            ("checked", format!("checked {} at block {block}: {found}", step_words(*step, before)), details)
        }
        Record::Released { nonce } => (
            "released",
            format!(
                "released nonce {nonce}: what was signed for it was refused for good, and no endpoint keeps it"
            ),
            json!({ "nonce": nonce }),
        ),
        Record::Displaced { nonce, by, block } => (
            "displaced",
            format!("displaced: another transaction, {by}, used nonce {nonce} in block {block}"),
            json!({ "nonce": nonce, "by": by, "block": block }),
        ),
        Record::Finished { outcome } => (
            "finished",
            format!("finished: {}", outcome_words(outcome)),
            json!({ "outcome": outcome_json(outcome) }),
        ),
        // The enum may grow; a journal of a newer format is refused before this.
        _ => ("unknown", "something that this version has no words for".to_owned(), json!({})),
    };
    Told { what, words: clean(&words), details }
}

/// A duty in words; `None` where there is none.
pub(crate) fn due_words(intent: &IntentState) -> Option<String> {
    let named = |step: &StepId| step_words(*step, Some(intent));
    let words = match intent.due() {
        Due::Prepare { step, .. } => {
            format!("simulate, price and sign {}: nothing of it is out", named(&step))
        }
        Due::Settle { step, attempt } => format!(
            "find out whether {} is in a block (nonce {}, {}), and send the same bytes until it is",
            named(&step),
            attempt.nonce,
            attempt.hash
        ),
        Due::Check { step, inclusion, .. } => {
            format!("read whether {} has done its part, at block {} or above", named(&step), inclusion.block)
        }
        Due::Conclude { inclusion, .. } => {
            format!("see block {} at a second endpoint, and finish", inclusion.block)
        }
        Due::Nothing(_) => return None,
    };
    Some(clean(&words))
}

/// A duty as JSON; null where there is none.
pub(crate) fn due_json(intent: &IntentState) -> Value {
    let (duty, mut details) = match intent.due() {
        Due::Prepare { step, .. } => ("prepare", step_json(step, Some(intent))),
        Due::Settle { step, attempt } => {
            let mut details = step_json(step, Some(intent));
            details["nonce"] = json!(attempt.nonce);
            details["hash"] = json!(attempt.hash);
            ("settle", details)
        }
        Due::Check { step, inclusion, .. } => {
            let mut details = step_json(step, Some(intent));
            details["inclusion"] = inclusion_json(&inclusion);
            ("check", details)
        }
        Due::Conclude { inclusion, .. } => ("conclude", json!({ "inclusion": inclusion_json(&inclusion) })),
        Due::Nothing(_) => return Value::Null,
    };
    details["duty"] = json!(duty);
    details["words"] = json!(due_words(intent));
    details
}

/// How an intent ended, in words.
pub(crate) fn outcome_words(outcome: &Outcome) -> String {
    let seen = |corroborated: bool| match corroborated {
        true => "a second endpoint shows the block",
        false => "no second endpoint has shown the block",
    };
    let words = match outcome {
        Outcome::Included { inclusion, corroborated } => {
            let Inclusion { hash, block, .. } = inclusion;
            format!("{hash} took effect in block {block}; {}", seen(*corroborated))
        }
        Outcome::Reverted { inclusion, corroborated, .. } => {
            let why = outcome.included().err().map(|error| error.to_string());
            let why = why.unwrap_or_else(|| format!("{} reverted", inclusion.hash));
            format!("{why}; {}", seen(*corroborated))
        }
        Outcome::Refused { kind } => format!("every endpoint refused it: {kind}; nothing of it is on chain"),
        _ => "in a way that this version has no words for".to_owned(),
    };
    clean(&words)
}

/// How an intent ended, as JSON.
pub(crate) fn outcome_json(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Included { inclusion, corroborated } => json!({
            "how": "included",
            "inclusion": inclusion_json(inclusion),
            "corroborated": corroborated,
        }),
        Outcome::Reverted { inclusion, corroborated, data } => json!({
            "how": "reverted",
            "inclusion": inclusion_json(inclusion),
            "corroborated": corroborated,
            "data": data,
            "words": outcome_words(outcome),
        }),
        Outcome::Refused { kind } => json!({ "how": "refused", "refusal": kind.label() }),
        _ => json!({ "how": "unknown" }),
    }
}

/// Why a run stopped, as JSON.
pub(crate) fn stop_json(Stop { why, retry, delivery }: &Stop) -> Value {
    json!({ "why": why, "retry": retry, "delivery": delivery })
}

/// Whether asking again can help.
pub(crate) const fn retry_words(retry: Retry) -> &'static str {
    match retry {
        Retry::Never => "asking again gets the same answer until something else changes",
        Retry::Later => "asking again later can help",
        Retry::Exhausted => "it was tried as often as the bounds allow",
    }
}

/// What may have happened on chain.
pub(crate) const fn delivery_words(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::NotSent => "nothing was sent",
        Delivery::Refused => "every endpoint refused what was sent",
        Delivery::Unknown => "a transaction may be on chain",
    }
}

/// A state in the word that the command line has for it.
pub(crate) const fn state_word(state: State) -> &'static str {
    match state {
        State::Due => "due",
        State::Stopped => "stopped",
        State::Finished => "finished",
        State::Pruned => "pruned",
    }
}

/// A call in words.
pub(crate) fn call(content: &Content) -> String {
    let what = match content.input.first_chunk::<4>() {
        Some(selector) => format!(
            "call of {} with 0x{} and {} more bytes",
            content.to,
            alloy::hex::encode(selector),
            content.input.len() - selector.len()
        ),
        None if content.input.is_empty() => format!("transfer to {}", content.to),
        None => format!("call of {} with {}", content.to, content.input),
    };
    if content.value.is_zero() { what } else { format!("{what}, sending {} wei", content.value) }
}

/// A call as JSON.
pub(crate) fn call_json(content: &Content) -> Value {
    json!({ "to": content.to, "value": content.value.to_string(), "input": content.input })
}

/// A grant in words.
pub(crate) fn grant(Grant { token, spender, cap }: &Grant) -> String {
    format!("at most {cap} of token {token} for {spender}")
}

/// A grant as JSON.
pub(crate) fn grant_json(Grant { token, spender, cap }: &Grant) -> Value {
    json!({ "token": token, "spender": spender, "cap": cap.to_string() })
}

fn step_words(step: StepId, intent: Option<&IntentState>) -> String {
    match (step, intent) {
        (StepId::Effect, _) => "the intent's own call".to_owned(),
        (StepId::Plan { round, .. }, Some(intent)) => {
            format!("`{}` of round {}", intent.label_of(step), u64::from(round) + 1)
        }
        (StepId::Plan { round, .. }, None) => format!("a step of round {}", u64::from(round) + 1),
    }
}

fn step_json(step: StepId, intent: Option<&IntentState>) -> Value {
    match step {
        StepId::Effect => json!({ "step": "effect" }),
        StepId::Plan { round, .. } => json!({
            "step": "plan",
            "round": u64::from(round) + 1,
            "label": intent.map(|intent| intent.label_of(step)),
        }),
    }
}

fn block_json(BlockRef { number, hash }: &BlockRef) -> Value {
    json!({ "number": number, "hash": hash })
}

fn inclusion_json(Inclusion { hash, block, succeeded, gas_used }: &Inclusion) -> Value {
    json!({ "hash": hash, "block": block_json(block), "succeeded": succeeded, "gas_used": gas_used })
}
