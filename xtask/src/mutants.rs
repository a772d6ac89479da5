//! Whether the unit tests of `core` notice each change to the code that decides.

mod excuses;
mod shares;

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use self::{excuses::Plan, shares::Orders};
use crate::{run::run, suite::cargo, tools::Tools};

/// The version of cargo-mutants. Another one makes other mutants, and the excuses are for those of this one.
const VERSION: &str = "27.1.0";
/// How many mutants are built and tested at a time. One keeps about one core busy.
const JOBS: usize = 2;

/// What to mutate.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files of `core`, or parts of their paths, to mutate; without any, all that xtask/mutants.toml names
    files: Vec<String>,
    /// How many mutants are tested at a time
    #[arg(long, default_value_t = JOBS)]
    jobs: usize,
}

/// Mutates the files of the plan in copies of the checkout, one place at a time, and runs the unit tests of `core` that
/// can notice.
///
/// # Errors
///
/// When a mutant is missed that is not excused, when an excuse is for a mutant that does not exist or that a test
/// notices, and when cargo-mutants cannot be installed or run.
pub(crate) fn run_all(tools: &Tools, args: &Args) -> anyhow::Result<()> {
    let begun = Instant::now();
    let plan = Plan::read(&tools.root().join("xtask/mutants.toml"))?;
    let target = target(tools.root());
    let program = installed(&target.join("tools"))?;
    let files = plan.files(tools.root(), &args.files)?;
    // Before the run, which takes its copy now: somebody may go on working on them.
    let sources = Sources::read(tools.root(), &files)?;
    let orders = Orders {
        program: &program,
        root: tools.root(),
        files: &files,
        skip: plan.skip(),
        jobs: args.jobs.max(1),
    };
    let reports = shares::run(&target.join("mutants"), &orders)?;
    let outcomes = Outcomes::read(&reports, &sources)?;
    let complaints = plan.judge(&outcomes.mutants);
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    println!("{}", outcomes.summary(begun.elapsed()));
    ensure!(complaints.is_empty(), "{} of the mutants need a test or an excuse", complaints.len());
    Ok(())
}

/// Where cargo builds.
fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target))
}

/// cargo-mutants at the version that the excuses are for, installed below `folder` when it is not there.
fn installed(folder: &Path) -> anyhow::Result<PathBuf> {
    let program = folder.join("bin/cargo-mutants");
    let version = Command::new(&program).args(["mutants", "--version"]).output();
    let is_there = version.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == VERSION)
    });
    if !is_there {
        run(Command::new(cargo())
            .args(["install", "cargo-mutants", "--locked", "--force", "--version", VERSION, "--root"])
            .arg(folder))
        .context("cargo-mutants cannot be installed")?;
    }
    Ok(program)
}

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// A test failed.
    Caught,
    /// No test failed.
    Missed,
    /// A test did not end.
    TimedOut,
    /// It does not compile.
    Unviable,
}

/// A change to one place in the code.
#[derive(Clone, Debug)]
struct Mutant {
    /// The path of the file from the root of the workspace.
    file: String,
    /// The number of the line, from 1.
    line: usize,
    /// The text of that line, without the space around it.
    code: String,
    /// What is changed, such as `replace > with >= in Breaker::on_fault`.
    change: String,
    fate: Fate,
}

/// The text of each file.
struct Sources(BTreeMap<String, String>);

impl Sources {
    fn read(root: &Path, files: &[String]) -> anyhow::Result<Self> {
        let read = |file: &String| Ok((file.clone(), std::fs::read_to_string(root.join(file))?));
        files.iter().map(read).collect::<anyhow::Result<_>>().map(Self)
    }

    fn line(&self, file: &str, number: usize) -> &str {
        let text = self.0.get(file).map_or("", String::as_str);
        text.lines().nth(number.saturating_sub(1)).unwrap_or_default()
    }
}

/// All that became of the mutants.
#[derive(Debug)]
struct Outcomes {
    mutants: Vec<Mutant>,
}

impl Outcomes {
    fn read(reports: &[PathBuf], sources: &Sources) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Report {
            outcomes: Vec<Outcome>,
        }
        #[derive(Deserialize)]
        struct Outcome {
            scenario: Scenario,
            summary: String,
        }
        #[derive(Deserialize)]
        enum Scenario {
            Baseline,
            Mutant(Change),
        }
        #[derive(Deserialize)]
        struct Change {
            name: String,
            file: String,
            span: Span,
        }
        #[derive(Deserialize)]
        struct Span {
            start: Place,
        }
        #[derive(Deserialize)]
        struct Place {
            line: usize,
        }

        let mut mutants = Vec::new();
        let read = |path: &PathBuf| -> anyhow::Result<Report> {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_str(&text)
                .with_context(|| format!("{} is not as cargo-mutants {VERSION} writes it", path.display()))
        };
        let reports = reports.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
        for Outcome { scenario, summary } in reports.into_iter().flat_map(|report| report.outcomes) {
            let Scenario::Mutant(Change { name, file, span }) = scenario else { continue };
            let fate = match summary.as_str() {
                "CaughtMutant" => Fate::Caught,
                "MissedMutant" => Fate::Missed,
                "Timeout" => Fate::TimedOut,
                "Unviable" => Fate::Unviable,
                other => bail!("cargo-mutants says of {name}: {other}, which says nothing about the tests"),
            };
            let line = span.start.line;
            let code = sources.line(&file, line).trim().to_owned();
            // The name begins with the place, which moves with every edit above it.
            let change = name.splitn(4, ':').nth(3).unwrap_or(&name).trim().to_owned();
            mutants.push(Mutant { file, line, code, change, fate });
        }
        ensure!(!mutants.is_empty(), "no mutant was made, so nothing was shown");
        Ok(Self { mutants })
    }

    fn summary(&self, took: Duration) -> String {
        let count = |fate| self.mutants.iter().filter(|mutant| mutant.fate == fate).count();
        format!(
            "mutants: {} made, {} caught, {} timed out, {} missed, {} not viable; {} s",
            self.mutants.len(),
            count(Fate::Caught),
            count(Fate::TimedOut),
            count(Fate::Missed),
            count(Fate::Unviable),
            took.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const FILE: &str = "crates/core/src/endpoint/breaker.rs";

    /// Reads reports that say this of one mutant each, after the tests of the code as it is.
    fn read(summaries: &[&str]) -> anyhow::Result<Outcomes> {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let report = |(number, summary): (usize, &&str)| {
            let path = folder.path().join(number.to_string());
            let text = format!(
                r#"{{"outcomes":[{{"scenario":"Baseline","summary":"Success"}},{{"scenario":{{"Mutant":{{
                "name":"{FILE}:2:7: replace > with >= in f","file":"{FILE}","span":{{"start":{{"line":2}}}}
                }}}},"summary":"{summary}"}}]}}"#
            );
            fs::write(&path, text).expect("our own folder");
            path
        };
        let reports: Vec<_> = summaries.iter().enumerate().map(report).collect();
        Outcomes::read(&reports, &Sources([(FILE.to_owned(), "fn f() {\n    a > b\n}".to_owned())].into()))
    }

    #[test]
    fn the_shares_are_one_run() {
        let outcomes =
            read(&["CaughtMutant", "MissedMutant", "Timeout", "Unviable"]).expect("they are whole");
        let fates: Vec<_> = outcomes.mutants.iter().map(|mutant| mutant.fate).collect();
        assert_eq!(fates, [Fate::Caught, Fate::Missed, Fate::TimedOut, Fate::Unviable]);
        for Mutant { file, line, code, change, .. } in &outcomes.mutants {
            assert_eq!((file.as_str(), *line), (FILE, 2));
            assert_eq!((code.as_str(), change.as_str()), ("a > b", "replace > with >= in f"));
        }
    }

    #[test]
    fn a_run_that_shows_nothing_is_no_success() {
        read(&[]).expect_err("no mutant was made");
        read(&["CaughtMutant", "Failure"]).expect_err("it could not be tested");
    }
}
