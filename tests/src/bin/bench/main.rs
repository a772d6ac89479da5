//! Measures reads beside raw alloy, and journals beside bare databases, as ratios in one run: `cargo xtask bench`.
//!
//! Servers in processes of their own answer from memory. The candidates take turns, slice by slice, so that whatever
//! else the machine does meets all of them; what is told is the median of the ratios within each round.

mod candidate;
mod journals;
mod measure;
mod server;

use std::{fs, path::PathBuf};

use alloy::providers::DynProvider;
use anyhow::{Context, bail};
use backstay::Config;
use backstay_testkit::Postgres;
use serde_json::{Value, json};

use crate::{
    candidate::{Candidate, Farm, Hedged},
    journals::Measured,
    measure::{Slice, Spread, percentile, slice},
};

#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

/// How many are asked for at once.
const CONCURRENCIES: [usize; 2] = [1, 64];

/// The order of the candidates beside raw alloy.
const RAW: usize = 0;
const HEALTHY: usize = 3;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = arguments.as_slice()
        && first == server::SERVE
    {
        return server::serve(rest.first().context("no fault is named")?);
    }
    let (only, json) = match arguments.as_slice() {
        [] => (Only::Everything, None),
        [flag, path] if flag == "--json" => (Only::Everything, Some(PathBuf::from(path))),
        [only] if only == "journals" => (Only::Journals, None),
        other => bail!("unknown arguments {other:?}; there are --json FILE, or journals"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before this process keeps to one core: its children would, too.
    let database = runtime.block_on(Postgres::builder().launch())?;
    measure::pin_to(1);
    let results = runtime.block_on(run(&database, only))?;
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&results)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    Everything,
    Journals,
}

async fn run(database: &Postgres, only: Only) -> anyhow::Result<Value> {
    let mut results = match only {
        Only::Everything => reads().await?,
        Only::Journals => json!({}),
    };
    println!("\n{:52} {:>7} {:>15}", "journals", "ratio", "95 %");
    let appends = journals::appends(database).await?;
    let starts = journals::starts(database).await?;
    for (group, measured) in [("appends", appends), ("starts", starts)] {
        for Measured { name, ratio: Spread { median, low, high } } in &measured {
            println!("{name:52} {median:7.3} {:>15}", format!("{low:.3}..{high:.3}"));
        }
        results[group] = measured.iter().map(Measured::json).collect();
    }
    Ok(results)
}

async fn reads() -> anyhow::Result<Value> {
    let farm = Farm::start()?;
    let (mut cases, mut pairs, mut tails) = (Vec::new(), Vec::new(), Vec::new());
    println!(
        "{:44} {:>7} {:>15} {:>7} {:>7} {:>9}",
        "beside raw alloy", "rate", "95 %", "cpu", "allocs", "upstream"
    );
    for tasks in CONCURRENCIES {
        let candidates = candidate::beside_raw(&farm).await?;
        let rounds = measure::rounds(&candidates, &farm, tasks, ALLOCATOR).await?;
        for (index, candidate) in candidates.iter().enumerate().skip(RAW + 1) {
            cases.push(beside_raw(&format!("{}, {tasks} at once", candidate.name), &rounds, index));
        }
        for (index, candidate) in candidates.iter().enumerate().skip(HEALTHY + 1) {
            let name = format!("{} / {}, {tasks} at once", candidate.name, candidates[HEALTHY].name);
            pairs.push((
                name,
                Spread::of(rounds.iter().map(|round| round[index].rate() / round[HEALTHY].rate())),
            ));
        }
    }
    for tasks in CONCURRENCIES {
        let name = format!("64 endpoints / 3 endpoints, {tasks} at once");
        pairs.push((name, many_beside_few(&farm, tasks).await?));
    }
    println!("\n{:44} {:>7} {:>15}", "one beside the other", "rate", "95 %");
    for (name, Spread { median, low, high }) in &pairs {
        println!("{name:44} {median:7.3} {:>15}", format!("{low:.3}..{high:.3}"));
    }
    println!("\n{:44} {:>7} {:>15} {:>9}", "hedged / not hedged", "p99", "95 %", "upstream");
    for tasks in [4, 64] {
        tails.push(slow_tail(&farm, tasks).await?);
    }
    let pair = |(name, spread): &(String, Spread)| json!({ "name": name, "ratio": spread.median, "ci_low": spread.low, "ci_high": spread.high });
    Ok(json!({ "cases": cases, "pairs": pairs.iter().map(pair).collect::<Vec<_>>(), "tails": tails }))
}

fn beside_raw(name: &str, rounds: &[Vec<Slice>], index: usize) -> Value {
    let ratio = |of: fn(&Slice) -> f64| {
        Spread::of(rounds.iter().map(move |round| of(&round[index]) / of(&round[RAW])))
    };
    let Spread { median, low, high } = ratio(Slice::rate);
    let (cpu, allocs) =
        (ratio(|slice| slice.cpu / slice.calls).median, ratio(|slice| slice.allocs / slice.calls).median);
    let total = |of: fn(&Slice) -> f64| rounds.iter().map(|round| of(&round[index])).sum::<f64>();
    let upstream = total(|slice| slice.reached) / total(|slice| slice.calls);
    println!(
        "{name:44} {median:7.3} {:>15} {cpu:7.3} {allocs:7.3} {upstream:9.3}",
        format!("{low:.3}..{high:.3}")
    );
    json!({
        "name": name, "ratio_to_raw": median, "ci_low": low, "ci_high": high, "cpu_ratio": cpu,
        "upstream_calls_per_call": upstream, "allocs_ratio": allocs,
    })
}

/// Each slice with a client of its own, so that what one does in the background does not burden the other.
async fn many_beside_few(farm: &Farm, tasks: usize) -> anyhow::Result<Spread> {
    let mut ratios = Vec::new();
    let alone = async |endpoints: usize| -> anyhow::Result<f64> {
        let candidate =
            Candidate::backstay(&format!("{endpoints} endpoints"), farm.sound(endpoints), Config::new)
                .await?;
        // Connections are made, caches are warm.
        slice(&candidate.provider, tasks, ALLOCATOR).await?;
        Ok(slice(&candidate.provider, tasks, ALLOCATOR).await?.rate())
    };
    for round in 0..measure::ROUNDS {
        ratios.push(match round % 2 {
            0 => {
                let few = alone(3).await?;
                alone(64).await? / few
            }
            _ => alone(64).await? / alone(3).await?,
        });
    }
    Ok(Spread::of(ratios.into_iter()))
}

/// The slow tail of a primary, hedged and not.
async fn slow_tail(farm: &Farm, tasks: usize) -> anyhow::Result<Value> {
    let plain = Candidate::slow_tail(farm, Hedged::No).await?;
    let hedged = Candidate::slow_tail(farm, Hedged::Yes).await?;
    let p99 = async |provider: &DynProvider| {
        anyhow::Ok(percentile(measure::latencies(provider, tasks).await?, 0.99))
    };
    let (mut ratios, mut calls) = (Vec::new(), 0.0);
    // What is slow is known by then.
    p99(&hedged.provider).await?;
    let before = farm.reads(&hedged.servers);
    for _ in 0..measure::ROUNDS {
        let without = p99(&plain.provider).await?;
        let with = p99(&hedged.provider).await?;
        ratios.push(with / without);
        calls += measure::TAIL_CALLS as f64;
    }
    // The primary answers both; what the plain client asked of it is not the hedged one's.
    let reached = farm.reads(&hedged.servers) - before;
    let upstream = (reached as f64 - calls) / calls;
    let Spread { median, low, high } = Spread::of(ratios.into_iter());
    let name = format!("slow tail, {tasks} at once");
    println!("{name:44} {median:7.3} {:>15} {upstream:9.3}", format!("{low:.3}..{high:.3}"));
    Ok(json!({
        "name": name, "p99_ratio_to_unhedged": median, "ci_low": low, "ci_high": high,
        "upstream_calls_per_call": upstream,
    }))
}
