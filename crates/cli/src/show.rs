//! `backstay journal show`.

use std::{process::ExitCode, time::Duration};

use anyhow::bail;
use backstay::{
    Error,
    journal::{Holder, IntentState, Line, State, Stored},
};
use serde_json::{Value, json};

use crate::{
    args,
    output::{age, clean, print, print_json, since, table, time},
    story::{self, Story},
    tell::{
        call, call_json, delivery_words, due_json, due_words, grant, grant_json, outcome_json, outcome_words,
        retry_words, state_word, stop_json,
    },
};

/// Tells what happened to an intent.
pub(crate) async fn show(args: &args::Show) -> anyhow::Result<ExitCode> {
    let found = args.place.open().await?;
    let stored = found.intent(&args.key).await?;
    let story = Story::of(&stored);
    let line = Line { chain_id: stored.chain_id, account: stored.account };
    let holder = found.journal.holder(line).await.map_err(Error::from)?;
    if args.json {
        print_json(&as_json(&stored, &story, holder.as_ref()))?;
    } else {
        print(&as_text(&stored, &story, holder.as_ref()))?;
    }
    match story.problem {
        Some(problem) => bail!("the journal is damaged: {problem}; stop, keep a copy of it, and restore it"),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn state_of(stored: &Stored) -> State {
    if stored.tombstone.is_some() {
        return State::Pruned;
    }
    State::after(&stored.records().cloned().collect::<Vec<_>>()).unwrap_or(State::Due)
}

fn as_json(stored: &Stored, story: &Story, holder: Option<&Holder>) -> Value {
    let first = stored.entries.first().map(|entry| entry.at);
    let line = |line: &story::Line| {
        let mut shown = json!({
            "record": line.record,
            "at": time(line.at),
            "since_first_ms": first.and_then(|first| line.at.duration_since(first).ok()).map(|long| long.as_millis() as u64),
            "what": line.told.what,
            "words": line.told.words,
        });
        if let (Value::Object(shown), Value::Object(details)) = (&mut shown, &line.told.details) {
            shown.extend(details.clone());
        }
        shown
    };
    let state = story.state.as_ref();
    let buried = stored.tombstone.as_ref();
    let outcome =
        buried.map(|tombstone| &tombstone.outcome).or(state.and_then(|state| state.outcome.as_ref()));
    json!({
        "key": stored.key,
        "chain_id": stored.chain_id,
        "account": stored.account,
        "state": state_word(state_of(stored)),
        "call": state.map(|state| call_json(&state.content)),
        "grants": state.map(|state| state.grants.iter().map(grant_json).collect::<Vec<_>>()),
        "restarts": restarts(story),
        "timeline": story.lines.iter().map(line).collect::<Vec<_>>(),
        "next": state.map_or(Value::Null, due_json),
        "goes_on": state.map(IntentState::goes_on),
        "held_by": holder.map(|holder| {
            json!({ "owner": holder.owner.name(), "remaining_ms": holder.remaining.as_millis() as u64 })
        }),
        "stopped": state.and_then(|state| state.stopped.as_ref()).map(stop_json),
        "outcome": outcome.map(outcome_json),
        "tombstone": buried.map(|tombstone| json!({ "content": tombstone.content, "hashes": tombstone.hashes })),
        "problem": story.problem,
    })
}

/// How often another run took the intent up when something was signed.
fn restarts(story: &Story) -> usize {
    story.lines.iter().filter(|line| line.told.what == "resumed").count()
}

fn as_text(stored: &Stored, story: &Story, holder: Option<&Holder>) -> String {
    let changed =
        stored.entries.last().map(|entry| format!(", changed {}", age(entry.at))).unwrap_or_default();
    let mut facts = vec![
        ("key", clean(&stored.key)),
        ("chain", stored.chain_id.to_string()),
        ("account", stored.account.to_string()),
        ("state", format!("{}{changed}", state_word(state_of(stored)))),
    ];
    if let Some(state) = &story.state {
        facts.push(("what", call(&state.content)));
        facts.extend(state.grants.iter().map(|granted| ("grant", grant(granted))));
    }
    let restarts = restarts(story);
    if restarts > 0 {
        facts.push(("restarts", restarts.to_string()));
    }
    let mut text = String::new();
    for (name, value) in facts {
        text += &format!(" {name:9} {value}\n");
    }
    text.push('\n');

    if let Some(first) = stored.entries.first() {
        let mut timeline = table(["#", "AT", "SINCE", "WHAT"]);
        for line in &story.lines {
            let words = line.told.words.clone();
            timeline.add_row([line.record.to_string(), time(line.at), since(first.at, line.at), words]);
        }
        text += &(timeline.trim_fmt() + "\n\n");
    }
    for line in ahead(stored, story, holder) {
        text += &(line + "\n");
    }
    text
}

/// What is ahead of the intent, and what can be done.
fn ahead(stored: &Stored, story: &Story, holder: Option<&Holder>) -> Vec<String> {
    if let Some(tombstone) = &stored.tombstone {
        let mut lines = vec![
            "It ended long ago, and its records were pruned. The key keeps its meaning.".to_owned(),
            format!("Outcome: {}", outcome_words(&tombstone.outcome)),
        ];
        lines.extend(tombstone.hashes.iter().map(|hash| format!("Signed for it: {hash}")));
        return lines;
    }
    let (Some(state), None) = (&story.state, &story.problem) else { return Vec::new() };
    if let Some(outcome) = &state.outcome {
        return vec![format!("Outcome: {}", outcome_words(outcome))];
    }
    let mut lines = Vec::new();
    if let Some(stop) = &state.stopped {
        lines.push(format!("Stopped: {}", clean(&stop.why)));
        lines.push(format!("On chain: {}.", delivery_words(stop.delivery)));
        lines.push(format!("Again: {}.", retry_words(stop.retry)));
    }
    if let Some(words) = due_words(state) {
        let next = if state.stopped.is_some() { "Where it goes on" } else { "Next" };
        lines.push(format!("{next}: {words}."));
    }
    let command = format!("backstay journal resume {} --config FILE", quoted(&stored.key));
    let held = holder.map(|holder| {
        let remaining = Duration::from_secs(holder.remaining.as_secs() + 1);
        format!(
            "The account is held by {}, which must say within {} that it is alive.",
            clean(holder.owner.name()),
            humantime::format_duration(remaining)
        )
    });
    let nobody = || "No process holds the account: none works on its intents now.".to_owned();
    lines.push(held.unwrap_or_else(nobody));
    lines.push(match (state.stopped.is_some(), state.goes_on()) {
        (true, false) => format!("It does not go on by itself: send it again under its key, or run `{command}`."),
        (true, true) => format!(
            "Something that was signed is open, so it goes on when a service with its account starts; or run `{command}`."
        ),
        (false, _) => {
            format!("It goes on where a service with its account runs. Where none does: `{command}`.")
        }
    });
    lines
}

/// A key as a shell takes it.
fn quoted(key: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/@%+=,".contains(letter);
    if !key.is_empty() && !key.starts_with('-') && key.chars().all(plain) {
        return key.to_owned();
    }
    let quoted = format!("'{}'", key.replace('\'', r"'\''"));
    clean(&if key.starts_with('-') { format!("-- {quoted}") } else { quoted })
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_key_is_quoted_as_a_shell_needs_it() {
        assert_eq!(quoted("register:0x12/a"), "register:0x12/a");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
