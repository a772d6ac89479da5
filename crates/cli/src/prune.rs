//! `backstay journal prune`.

use std::{
    collections::BTreeSet,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use backstay::{
    Error,
    journal::{Journal, Query, Record, RecordEffect, State, Summary},
};
use serde_json::json;

use crate::{
    args,
    output::{print, print_json},
};

/// How many are pruned in one transaction: the services that use the journal wait so long.
const AT_ONCE: u32 = 100;
/// The pause between two transactions, so that they come in between.
const PAUSE: Duration = Duration::from_millis(50);

/// Prunes what ended long ago.
pub(crate) async fn prune(args: &args::Prune) -> anyhow::Result<ExitCode> {
    let found = args.place.open().await?;
    let journal = &*found.journal;
    let ended = Ended::of(journal, found.chain).await?;
    let mut count = 0;
    if args.dry_run {
        let before = SystemTime::now().checked_sub(args.older_than);
        for summary in &ended.intents {
            if before.is_some_and(|before| summary.changed <= before) && is_over(journal, summary).await? {
                count += 1;
            }
        }
    } else {
        for chain_id in &ended.chains {
            loop {
                let few = journal.prune(*chain_id, args.older_than, AT_ONCE).await.map_err(Error::from)?;
                count += u64::from(few);
                if few < AT_ONCE {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    if args.json {
        print_json(&json!({ "pruned": count, "dry_run": args.dry_run, "chains": ended.chains }))?;
    } else {
        let intents = if count == 1 { "1 intent".to_owned() } else { format!("{count} intents") };
        let would = match (args.dry_run, count) {
            (true, _) => "would be",
            (false, 1) => "was",
            (false, _) => "were",
        };
        print(&format!("{intents} {would} pruned.\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What may be pruned one day.
struct Ended {
    intents: Vec<Summary>,
    chains: BTreeSet<u64>,
}

impl Ended {
    async fn of(journal: &dyn Journal, chain_id: Option<u64>) -> anyhow::Result<Self> {
        let states = vec![State::Finished, State::Stopped];
        let mut query = Query { chain_id, states, ..Query::default() };
        let mut intents = Vec::new();
        loop {
            let page = journal.list(&query).await.map_err(Error::from)?;
            let Some(last) = page.last() else { break };
            query.after = Some(last.id);
            intents.extend(page);
        }
        let chains = intents.iter().map(|summary| summary.chain_id).collect();
        Ok(Self { intents, chains })
    }
}

/// Whether pruning takes it: not where it stopped and something was signed for it.
async fn is_over(journal: &dyn Journal, summary: &Summary) -> anyhow::Result<bool> {
    if summary.state == State::Finished {
        return Ok(true);
    }
    let stored = journal.load(summary.chain_id, &summary.key).await.map_err(Error::from)?;
    let signed = |record: &Record| matches!(record.effect(), Some(RecordEffect::Take { .. }));
    Ok(stored.is_some_and(|stored| !stored.records().any(signed)))
}
