//! The main job, shown: approve, then register, once on each fleet.

use std::{fs, path::PathBuf, time::Instant};

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use comfy_table::{Cell, ContentArrangement, Table, presets::UTF8_HORIZONTAL_ONLY};
use e2e::{
    fleets::{self, Kind},
    report::FleetReport,
};
use futures::{StreamExt, stream};
use serde_json::json;

use crate::{run::runtime, tools::Tools};

/// How many fleets run side by side: their chains wait for blocks most of the time.
const SIDE_BY_SIDE: usize = 4;

#[derive(ClapArgs)]
pub(crate) struct Args {
    /// Only this fleet; may be given several times
    #[arg(long = "fleet", value_name = "NAME")]
    fleets: Vec<String>,
    /// List the fleets and what is wrong with each
    #[arg(long)]
    list: bool,
    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the demo.
///
/// # Errors
///
/// When a fleet fails, or cannot be set up.
pub(crate) fn run(tools: &Tools, args: &Args) -> anyhow::Result<()> {
    if args.list {
        for kind in Kind::ALL {
            println!("{:20} {}", kind.name(), kind.about());
        }
        return Ok(());
    }
    let kinds = chosen(&args.fleets)?;
    // Installed where it is missing; the fleets find it by themselves.
    let anvil = tools.anvil()?;
    println!("anvil: {}", anvil.display());
    let reports = runtime()?.block_on(run_fleets(&kinds))?;
    println!("\n{}\n", table(&reports));
    if let Some(report) = reports.iter().find(|report| report.fleet == Kind::StaleFork.name()) {
        println!("What the session on {} did:\n\n{}", report.fleet, report.trail);
    }
    for report in &reports {
        for problem in &report.problems {
            println!("{}: {problem}", report.fleet);
        }
        if !report.ok && !report.trail.events().is_empty() {
            println!("\nWhat the session on {} did:\n\n{}", report.fleet, report.trail);
        }
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&json!({ "fleets": reports }))?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    let failed: Vec<&str> =
        reports.iter().filter(|report| !report.ok).map(|report| report.fleet.as_str()).collect();
    if !failed.is_empty() {
        bail!("these fleets failed: {}", failed.join(", "));
    }
    println!("All {} fleets: one approve, one registration.", reports.len());
    Ok(())
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<Kind>> {
    if names.is_empty() {
        return Ok(Kind::ALL.to_vec());
    }
    let named = |name: &String| {
        let all = Kind::ALL.map(Kind::name).join(", ");
        Kind::named(name).with_context(|| format!("there is no fleet `{name}`; there are: {all}"))
    };
    names.iter().map(named).collect()
}

async fn run_fleets(kinds: &[Kind]) -> anyhow::Result<Vec<FleetReport>> {
    let begun = Instant::now();
    let run = async |kind: Kind| {
        println!("{:6.1}s  {:20} started: {}", begun.elapsed().as_secs_f64(), kind.name(), kind.about());
        let report = fleets::run(kind).await.with_context(|| format!("fleet {}", kind.name()));
        let word = match &report {
            Ok(report) if report.ok => "ok",
            Ok(_) | Err(_) => "FAILED",
        };
        println!("{:6.1}s  {:20} {word}", begun.elapsed().as_secs_f64(), kind.name());
        (kind, report)
    };
    let mut reports: Vec<_> =
        stream::iter(kinds.iter().copied()).map(run).buffer_unordered(SIDE_BY_SIDE).collect().await;
    reports.sort_by_key(|(kind, _)| Kind::ALL.iter().position(|other| other == kind));
    reports.into_iter().map(|(_, report)| report).collect()
}

fn table(reports: &[FleetReport]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_header([
        "fleet",
        "backstay",
        "approves",
        "registrations",
        "time",
        "calls",
        "failovers",
        "pin moves",
        "faults",
        "plain alloy",
    ]);
    for report in reports {
        let by_hand = match &report.by_hand.error {
            None => "ok".to_owned(),
            Some(error) => format!("failed: {}", error.chars().take(90).collect::<String>()),
        };
        table.add_row([
            Cell::new(&report.fleet),
            Cell::new(if report.ok { "ok" } else { "FAILED" }),
            Cell::new(report.approvals_mined),
            Cell::new(report.registrations_mined),
            Cell::new(format!("{:.1} s", report.elapsed_ms as f64 / 1000.0)),
            Cell::new(report.rpc_calls),
            Cell::new(report.failovers),
            Cell::new(report.pin_moves),
            Cell::new(report.faults_fired),
            Cell::new(by_hand),
        ]);
    }
    table
}
