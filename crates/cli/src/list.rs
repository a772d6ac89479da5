//! `backstay journal list`.

use std::{collections::BTreeSet, process::ExitCode};

use backstay::{
    Error,
    journal::{Journal, Query, State, Summary},
};
use serde_json::{Value, json};

use crate::{
    args::{self, Listed},
    output::{age, clean, print, print_json, second, table, time},
    story::Story,
    tell::{due_json, due_words, outcome_json, outcome_words, state_word, stop_json},
};

/// How many summaries are read at once.
const PAGE: u32 = 1_000;

/// Lists the intents.
pub(crate) async fn list(args: &args::List) -> anyhow::Result<ExitCode> {
    let found = args.place.open().await?;
    let states: BTreeSet<State> = args.states.iter().flat_map(|listed| listed.states()).copied().collect();
    let mut query = Query {
        chain_id: found.chain,
        account: args.account,
        states: states.into_iter().collect(),
        ..Query::default()
    };
    // One more than is shown, so that it is known whether there are more.
    let wanted = args.limit as usize + 1;
    let mut listed = Vec::new();
    while listed.len() < wanted {
        query.limit = PAGE.min((wanted - listed.len()) as u32);
        let page = found.journal.list(&query).await.map_err(Error::from)?;
        let Some(last) = page.last() else { break };
        query.after = Some(last.id);
        listed.extend(page);
    }
    let more = listed.len() > args.limit as usize;
    listed.truncate(args.limit as usize);

    let mut rows = Vec::with_capacity(listed.len());
    for summary in listed {
        let ahead = look(&*found.journal, &summary).await?;
        rows.push((summary, ahead));
    }
    if args.json {
        print_json(&rows.iter().map(|(summary, ahead)| as_json(summary, ahead)).collect())?;
    } else {
        print(&as_text(&rows, more, args))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is known of an intent beyond its summary: what is ahead of it, or how it ended.
struct Ahead {
    words: String,
    next: Value,
    stopped: Value,
    outcome: Value,
    /// Why its records cannot be read.
    problem: Option<String>,
}

async fn look(journal: &dyn Journal, summary: &Summary) -> anyhow::Result<Ahead> {
    let mut ahead = Ahead {
        words: String::new(),
        next: Value::Null,
        stopped: Value::Null,
        outcome: Value::Null,
        problem: None,
    };
    // One that is damaged must not hide the others.
    let stored = match journal.load(summary.chain_id, &summary.key).await {
        Ok(Some(stored)) => stored,
        Ok(None) => {
            ahead.words = "it was pruned just now".to_owned();
            return Ok(ahead);
        }
        Err(error) => {
            let problem = clean(&error.to_string());
            ahead.words = format!("cannot be read: {problem}");
            ahead.problem = Some(problem);
            return Ok(ahead);
        }
    };
    let story = Story::of(&stored);
    let outcome = stored.tombstone.as_ref().map(|tombstone| tombstone.outcome.clone());
    let outcome = outcome.or_else(|| story.state.as_ref().and_then(|state| state.outcome.clone()));
    if let Some(problem) = story.problem {
        ahead.words = format!("damaged: {problem}");
        ahead.problem = Some(problem);
    } else if let Some(outcome) = outcome {
        ahead.words = outcome_words(&outcome);
        ahead.outcome = outcome_json(&outcome);
    } else if let Some(state) = &story.state {
        ahead.next = due_json(state);
        ahead.words = due_words(state).unwrap_or_default();
        if let Some(stop) = &state.stopped {
            ahead.stopped = stop_json(stop);
            ahead.words = clean(&stop.why);
        }
    }
    Ok(ahead)
}

fn as_json(summary: &Summary, ahead: &Ahead) -> Value {
    json!({
        "key": summary.key,
        "chain_id": summary.chain_id,
        "account": summary.account,
        "state": state_word(summary.state),
        "records": summary.records,
        "opened": time(summary.opened),
        "changed": time(summary.changed),
        "next": ahead.next,
        "stopped": ahead.stopped,
        "outcome": ahead.outcome,
        "problem": ahead.problem,
    })
}

fn as_text(rows: &[(Summary, Ahead)], more: bool, args: &args::List) -> String {
    if rows.is_empty() {
        let of = args.states.iter().map(|state| format!("{state:?}").to_lowercase()).collect::<Vec<_>>();
        return match of.contains(&"all".to_owned()) {
            true => "There is no such intent.\n".to_owned(),
            false => format!("No intent is {}.\n", of.join(" or ")),
        };
    }
    let mut shown = table(["KEY", "STATE", "CHAIN", "ACCOUNT", "OPENED", "CHANGED", "NEXT, OR WHY NOT"]);
    for (summary, ahead) in rows {
        let account = summary.account.to_string();
        shown.add_row([
            clean(&summary.key),
            state_word(summary.state).to_owned(),
            summary.chain_id.to_string(),
            format!("{}…{}", &account[..6], &account[account.len() - 4..]),
            second(summary.opened),
            age(summary.changed),
            ahead.words.clone(),
        ]);
    }
    let mut text = shown.trim_fmt() + "\n";
    if more {
        text += &format!("\nThere are more than these {}: raise --limit.\n", rows.len());
    }
    if args.states.iter().any(|state| matches!(state, Listed::Due | Listed::Stopped)) {
        text += "\n`backstay journal show KEY` tells what happened to one.\n";
    }
    text
}
