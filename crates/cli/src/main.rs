//! The command `backstay`: what operators do with the journal of intents.
//!
//! Exit codes: 0, it is done; 1, it is not, and standard error says why; 2, the command line is wrong.

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command, Journal};

mod args;
mod list;
mod output;
mod place;
mod prune;
mod resume;
mod show;
mod story;
mod tell;

#[tokio::main]
async fn main() -> ExitCode {
    let Command::Journal(command) = Cli::parse().command;
    let done = match command {
        Journal::List(args) => list::list(&args).await,
        Journal::Show(args) => show::show(&args).await,
        Journal::Resume(args) => resume::resume(&args).await,
        Journal::Prune(args) => prune::prune(&args).await,
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", output::clean(&error.to_string()));
            for cause in error.chain().skip(1) {
                eprintln!("  because: {}", output::clean(&cause.to_string()));
            }
            ExitCode::FAILURE
        }
    }
}
