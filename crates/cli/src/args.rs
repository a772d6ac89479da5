//! What can be said on the command line.

use std::{path::PathBuf, time::Duration};

use alloy::primitives::Address;
use backstay::journal::State;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Looks after what Backstay, an SDK for EVM transactions, has written down.
#[derive(Debug, Parser)]
#[command(name = "backstay", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Looks into the journal of intents, makes them go on, and removes what ended long ago.
    #[command(subcommand)]
    Journal(Journal),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Journal {
    /// Lists intents: those that have not ended, or those in other states.
    List(List),
    /// Tells what happened to an intent, record by record, and what is due next.
    Show(Show),
    /// Makes intents go on, and waits for how they end.
    ///
    /// The signer's key is taken from the environment variable BACKSTAY_PRIVATE_KEY, or from a keystore file; never from
    /// an argument. Recovery may approve what each intent was granted, and nothing else. Where a service runs that holds
    /// the account, the intent goes on there, and this command waits for it. Stopping it loses nothing.
    ///
    /// The exit code is 0 when all of them have ended, in whichever way, and 1 otherwise.
    Resume(Resume),
    /// Removes the records of intents that ended long ago. Key, outcome and hashes of what was signed stay.
    Prune(Prune),
}

/// Which journal, and which chain of it.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// The journal: a file, or the postgres:// address of a database [default: the key `journal` of the configuration,
    /// else the environment variable BACKSTAY_JOURNAL].
    ///
    /// An argument shows in the list of processes: give an address with a password by one of the other two.
    #[arg(long, value_name = "FILE|ADDRESS")]
    pub(crate) journal: Option<PathBuf>,
    /// The service's configuration, a TOML file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The id of the chain [default: that of the configuration, where one is given].
    #[arg(long, value_name = "ID")]
    pub(crate) chain: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Only the intents of this account.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) account: Option<Address>,
    /// Only the intents in these states; may be given several times.
    #[arg(long = "state", value_name = "STATE", value_enum, default_values_t = [Listed::Due, Listed::Stopped])]
    pub(crate) states: Vec<Listed>,
    /// At most so many, in the order in which they were opened.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: u32,
    /// Prints JSON: an array with an object for each intent.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which intents are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listed {
    /// To be worked on.
    Due,
    /// The last run ended with an error.
    Stopped,
    /// They have ended.
    Finished,
    /// They ended long ago, and only their outcome is left.
    Pruned,
    /// In any state.
    All,
}

impl Listed {
    pub(crate) const fn states(self) -> &'static [State] {
        match self {
            Self::Due => &[State::Due],
            Self::Stopped => &[State::Stopped],
            Self::Finished => &[State::Finished],
            Self::Pruned => &[State::Pruned],
            Self::All => &State::ALL,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// The key under which the intent was sent.
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Prints JSON: one object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Resume {
    /// The keys of the intents [default: all of the account that have not ended].
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// The service's configuration, a TOML file: endpoints, chain and journal.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// The journal [default: the key `journal` of the configuration, else the environment variable BACKSTAY_JOURNAL].
    #[arg(long, value_name = "FILE|ADDRESS")]
    pub(crate) journal: Option<PathBuf>,
    /// A keystore file with the signer's key, in place of BACKSTAY_PRIVATE_KEY.
    #[arg(long, value_name = "FILE", requires = "password_file")]
    pub(crate) keystore: Option<PathBuf>,
    /// The file with the keystore's password.
    #[arg(long, value_name = "FILE", requires = "keystore")]
    pub(crate) password_file: Option<PathBuf>,
    /// How long to wait.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
    /// Prints JSON: an array with an object for each intent. What happens meanwhile goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Prune {
    /// How long ago an intent must have ended, such as "30d".
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) older_than: Duration,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Only counts them.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Prints JSON: one object.
    #[arg(long)]
    pub(crate) json: bool,
}
