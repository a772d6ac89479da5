//! Project tasks, run as `cargo xtask <task>`.

mod artifacts;
mod run;
mod suite;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{artifacts::Mode, run::Failed, tools::Tools};

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
    /// Run every test: Solidity, artifacts, then `cargo test --workspace`
    Test {
        /// Arguments for `cargo test`, in place of a run of the whole workspace's targets
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<String>,
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
        Task::Test { args } => suite::run_all(&tools, &args),
    }
}
