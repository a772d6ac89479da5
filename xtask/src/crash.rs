//! The crash matrix: the main job in a process that is killed at each boundary in turn.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use comfy_table::{Cell, ContentArrangement, Table, presets::UTF8_HORIZONTAL_ONLY};
use e2e::crash::{self, Options, RunReport, child, plan::Depth};
use serde_json::json;

use crate::{run::runtime, tools::Tools};

/// How many ended runs there are between two lines of progress.
const PROGRESS: usize = 20;

#[derive(ClapArgs)]
pub(crate) struct Args {
    /// Every boundary; without it, those of the journal and of sends, and a few of the others
    #[arg(long)]
    full: bool,
    /// Only this run, or those with this in their name; may be given several times
    #[arg(long, value_name = "RUN")]
    only: Vec<String>,
    /// Another choice of what is left to chance
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many runs side by side
    #[arg(long, default_value_t = 8)]
    jobs: usize,
    /// Write every run to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Args {
    /// As when nothing is said.
    pub(crate) const fn default_selection() -> Self {
        Self { full: false, only: Vec::new(), seed: 1, jobs: 8, json: None }
    }
}

/// Runs the matrix.
///
/// # Errors
///
/// When a run fails, or cannot be set up.
pub(crate) fn run(tools: &Tools, args: &Args) -> anyhow::Result<()> {
    // Installed where it is missing; the chain finds it by itself.
    println!("anvil: {}", tools.anvil()?.display());
    let options = Options {
        depth: if args.full { Depth::Full } else { Depth::Default },
        seed: args.seed,
        side_by_side: args.jobs,
        postgres: tools.postgres()?,
        only: args.only.clone(),
    };
    let begun = Instant::now();
    let ended = AtomicUsize::new(0);
    let tell = |report: &RunReport| {
        let count = ended.fetch_add(1, Ordering::SeqCst) + 1;
        let passed = begun.elapsed().as_secs_f64();
        if !report.ok {
            println!("{passed:6.1}s  FAILED {}", report.run);
        } else if count.is_multiple_of(PROGRESS) {
            println!("{passed:6.1}s  {count} runs");
        }
    };
    let reports = runtime()?.block_on(crash::run(&options, tell))?;
    println!("\n{}\n", table(&reports));
    for report in reports.iter().filter(|report| !report.ok) {
        println!("{}", failure(report, args.seed));
    }
    let missed = reports.iter().filter(|report| !report.reached()).count();
    if missed > 0 {
        println!(
            "{missed} runs did not come to their point, which depends on timing; they count as not killed."
        );
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&json!({ "seed": args.seed, "runs": reports }))?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    let failed = reports.iter().filter(|report| !report.ok).count();
    if failed > 0 {
        bail!("{failed} of {} runs failed", reports.len());
    }
    println!(
        "All {} runs in {:.0} s: one approve, one registration, no nonce left open.",
        reports.len(),
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// One life of the process that is killed.
///
/// # Errors
///
/// What stopped it.
pub(crate) fn child(orders: &str) -> anyhow::Result<()> {
    runtime()?.block_on(child::run(serde_json::from_str(orders)?))
}

/// What is wrong with a run, and how to make it again.
fn failure(report: &RunReport, seed: u64) -> String {
    let problems: Vec<String> = report.problems.iter().map(|problem| format!("  - {problem}")).collect();
    format!(
        "{}\n{}\n  again: cargo xtask crash --seed {seed} --only '{0}'\n",
        report.run,
        problems.join("\n")
    )
}

#[derive(Default)]
struct Row {
    runs: usize,
    killed: usize,
    twice: usize,
    ok: usize,
}

fn table(reports: &[RunReport]) -> Table {
    let mut rows: BTreeMap<(&str, &str, &str), Row> = BTreeMap::new();
    for report in reports {
        let setting = report.run.setting;
        let row = rows.entry((report.kind, setting.wires.name(), setting.backend.name())).or_default();
        row.runs += 1;
        row.killed += usize::from(report.kills > 0);
        row.twice += usize::from(report.kills > 1);
        row.ok += usize::from(report.ok);
    }
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_header([
        "point",
        "endpoints",
        "journal",
        "runs",
        "killed",
        "twice",
        "ok",
    ]);
    for ((kind, wires, backend), row) in rows {
        let numbers = [row.runs, row.killed, row.twice, row.ok];
        table.add_row([kind, wires, backend].map(Cell::new).into_iter().chain(numbers.map(Cell::new)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_how_to_make_the_run_again() {
        let name = "sqlite/sound+journal.append.planned/1/after+journal.*/1/before+payment";
        let run = name.parse().expect("it is a run");
        let mut report = RunReport::new(run);
        report.problems.push("2 approves were mined".to_owned());
        let text = failure(&report, 3);
        assert!(text.contains("  - 2 approves were mined\n"), "{text}");
        assert!(text.contains(&format!("cargo xtask crash --seed 3 --only '{name}'")), "{text}");
    }
}
