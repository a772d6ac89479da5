//! Project tasks, run as `cargo xtask <task>`.

mod artifacts;
mod crash;
mod demo;
mod mutants;
mod run;
mod suite;
mod tools;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::{artifacts::Mode, run::Failed, suite::CargoArgs, tools::Tools};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project tasks")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Rebuild contracts/artifacts from the Solidity sources
    Artifacts {
        /// Write nothing; fail when the committed artifacts do not match the sources
        #[arg(long)]
        check: bool,
    },
    /// Approve, then register, once on each fleet of endpoints that misbehave
    Demo(demo::Args),
    /// Measure reads against raw alloy, as ratios in one run (release build)
    Bench {
        /// Write the results to this file as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Change the code that decides, place by place, and see that a unit test notices (within half an hour)
    Mutants(mutants::Args),
    /// Approve, then register, in a process that is killed at each boundary in turn, and started again
    Crash(crash::Args),
    /// The process that is killed
    #[command(name = e2e::crash::child::CHILD, hide = true)]
    StoryChild {
        /// What it is told, as JSON
        orders: String,
    },
    /// Run every test: Solidity, artifacts, the crash matrix, then `cargo test --workspace`
    Test {
        /// Arguments for `cargo test`, such as a filter or `-p e2e`; after `--`, for the test binaries
        #[arg(allow_hyphen_values = true)]
        args: Vec<String>,
        // A `--` that comes first is taken away; the arguments after it are not cargo's.
        #[arg(last = true, hide = true)]
        binary_args: Vec<String>,
    },
}

fn main() -> ExitCode {
    let Err(error) = perform(Cli::parse().task) else { return ExitCode::SUCCESS };
    eprintln!("error: {error:#}");
    error.downcast_ref::<Failed>().map_or(ExitCode::FAILURE, Failed::exit_code)
}

fn perform(task: Task) -> anyhow::Result<()> {
    let tools = Tools::of_workspace();
    match task {
        Task::Artifacts { check } => artifacts::build(&tools, if check { Mode::Check } else { Mode::Write }),
        Task::Demo(args) => demo::run(&tools, &args),
        Task::Bench { json } => suite::bench(&tools, json.as_deref()),
        Task::Mutants(args) => mutants::run_all(&tools, &args),
        Task::Crash(args) => crash::run(&tools, &args),
        Task::StoryChild { orders } => crash::child(&orders),
        Task::Test { args, binary_args } => suite::run_all(&tools, &CargoArgs::new(&args, &binary_args)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: (&[&str], &[&str])) {
        let words = ["xtask", "test"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).expect("these are arguments for cargo").task {
            Task::Test { args, binary_args } => {
                let CargoArgs { cargo, binaries } = CargoArgs::new(&args, &binary_args);
                assert_eq!((cargo, binaries), (to_strings(expected.0), to_strings(expected.1)));
            }
            Task::Artifacts { .. }
            | Task::Demo(_)
            | Task::Bench { .. }
            | Task::Mutants(_)
            | Task::Crash(_)
            | Task::StoryChild { .. } => panic!("another task"),
        }
    }

    fn to_strings(words: &[&str]) -> Vec<String> {
        words.iter().copied().map(String::from).collect()
    }

    #[test]
    fn arguments_after_the_dashes_are_for_the_test_binaries() {
        check("", (&[], &[]));
        check("reorg", (&["reorg"], &[]));
        check("-p e2e --features postgres", (&["-p", "e2e", "--features", "postgres"], &[]));
        check("-- --nocapture", (&[], &["--nocapture"]));
        check("--test e2e -- --exact a -- b", (&["--test", "e2e"], &["--exact", "a", "--", "b"]));
    }
}
