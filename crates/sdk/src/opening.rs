//! Journals by where they are.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use backstay_core::{Error, Result};
use backstay_journal::{Journal, JournalError, PostgresConfig};
use serde::{Deserialize, Deserializer};

/// Where a journal is, as the key `journal` of the configuration says: a file for SQLite, or the address of a
/// PostgreSQL database, which starts with `postgres://`. A relative file is looked for in the working directory; one whose
/// name looks like an address is written with `./` before it. `Debug` shows nothing of an address, which holds a password.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalLocation {
    /// A file.
    Sqlite(PathBuf),
    /// The address of a database.
    Postgres(String),
}

impl JournalLocation {
    /// Checks it without opening anything.
    pub(crate) fn validate(&self) -> Result<()> {
        match self {
            Self::Sqlite(path) if path.as_os_str().is_empty() => {
                Err(Error::config("`journal` is empty; name a file, or leave it out where nothing is signed"))
            }
            Self::Sqlite(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => backstay_journal::PostgresJournal::check(url).map_err(misconfigured),
            #[cfg(not(feature = "postgres"))]
            Self::Postgres(_) => Err(without("is an address of PostgreSQL", "postgres")),
        }
    }
}

impl fmt::Debug for JournalLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.fmt(f),
            Self::Postgres(_) => f.write_str("\"postgres://…\""),
        }
    }
}

impl From<&str> for JournalLocation {
    fn from(text: &str) -> Self {
        // What is meant as an address is no file, however it is written: its password would become the file's name, and
        // the service would begin with an empty journal.
        match means_address(text.trim()) {
            true => Self::Postgres(text.trim().to_owned()),
            false => Self::Sqlite(text.into()),
        }
    }
}

fn means_address(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let is_path = ["/", "./", "../", "\\", "~"].iter().any(|start| lower.starts_with(start));
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    lower.contains("://")
        || lower.starts_with("postgres:")
        || lower.starts_with("postgresql:")
        || (!is_path && has(&["@", "password=", "dbname=", "host="]))
}

impl From<&Path> for JournalLocation {
    fn from(path: &Path) -> Self {
        // An address is text; a path that is none is a file.
        path.to_str().map_or_else(|| Self::Sqlite(path.to_owned()), Self::from)
    }
}

impl From<String> for JournalLocation {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<PathBuf> for JournalLocation {
    fn from(path: PathBuf) -> Self {
        path.as_path().into()
    }
}

impl From<&PathBuf> for JournalLocation {
    fn from(path: &PathBuf) -> Self {
        path.as_path().into()
    }
}

impl From<&Self> for JournalLocation {
    fn from(location: &Self) -> Self {
        location.clone()
    }
}

impl<'de> Deserialize<'de> for JournalLocation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// Opens the journal at a location; where there is none, it is created. What [`connect`](crate::Builder::connect) does
/// first. The configuration is for PostgreSQL: the key `postgres` of the client's.
///
/// # Errors
///
/// [`ErrorKind::Journal`](crate::ErrorKind::Journal); a configuration error where the location cannot be used, or this
/// build cannot open such a journal.
pub async fn open(
    location: impl Into<JournalLocation>,
    postgres: &PostgresConfig,
) -> Result<Arc<dyn Journal>> {
    match location.into() {
        #[cfg(feature = "sqlite")]
        JournalLocation::Sqlite(path) => Ok(Arc::new(backstay_journal::SqliteJournal::open(path).await?)),
        #[cfg(not(feature = "sqlite"))]
        JournalLocation::Sqlite(_) => Err(without("names a file", "sqlite")),
        #[cfg(feature = "postgres")]
        JournalLocation::Postgres(url) => {
            let opened = backstay_journal::PostgresJournal::open_with(&url, postgres).await;
            Ok(Arc::new(opened.map_err(misconfigured)?))
        }
        #[cfg(not(feature = "postgres"))]
        JournalLocation::Postgres(_) => {
            let PostgresConfig { .. } = postgres;
            Err(without("is an address of PostgreSQL", "postgres"))
        }
    }
}

/// Opens a journal that is there, and of this version, without changing it: to look into it, also while other processes
/// use it.
///
/// # Errors
///
/// As for [`open`]. Where there is no journal, none is created; one that an older version has written is left as it is.
pub async fn open_existing(
    location: impl Into<JournalLocation>,
    postgres: &PostgresConfig,
) -> Result<Arc<dyn Journal>> {
    match location.into() {
        #[cfg(feature = "sqlite")]
        JournalLocation::Sqlite(path) => {
            Ok(Arc::new(backstay_journal::SqliteJournal::open_existing(path).await?))
        }
        #[cfg(not(feature = "sqlite"))]
        JournalLocation::Sqlite(_) => Err(without("names a file", "sqlite")),
        #[cfg(feature = "postgres")]
        JournalLocation::Postgres(url) => {
            let opened = backstay_journal::PostgresJournal::open_existing(&url, postgres).await;
            Ok(Arc::new(opened.map_err(misconfigured)?))
        }
        #[cfg(not(feature = "postgres"))]
        JournalLocation::Postgres(_) => {
            let PostgresConfig { .. } = postgres;
            Err(without("is an address of PostgreSQL", "postgres"))
        }
    }
}

/// An address that cannot be used is the configuration's fault, not the journal's.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only addresses can be wrong"))]
fn misconfigured(error: JournalError) -> Error {
    match &error {
        JournalError::BadAddress { what } => Error::config(format!("`journal` cannot be used: {what}")),
        _ => error.into(),
    }
}

#[cfg(not(all(feature = "postgres", feature = "sqlite")))]
fn without(what: &str, feature: &str) -> Error {
    Error::config(format!(
        "`journal` {what}, and this build is without the feature `{feature}`: add it to the features of `backstay`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_from_a_file() {
        for address in ["postgres://db/app", "postgresql://u:p@db/app", "POSTGRES://db/app"] {
            assert_eq!(JournalLocation::from(address), JournalLocation::Postgres(address.to_owned()));
            assert_eq!(JournalLocation::from(Path::new(address)), JournalLocation::from(address));
        }
        // Mistyped, and not the name of a file that would be made.
        for text in [
            "postgress://u:p@db/app",
            " postgres://u:p@db/app ",
            "postgresql+asyncpg://u:p@db/app",
            "https://db/app",
            "postgres:u:p@db/app",
            "host=db user=u password=p dbname=app",
            "u:p@db/app",
        ] {
            let location = JournalLocation::from(text);
            assert_eq!(location, JournalLocation::Postgres(text.trim().to_owned()));
            if text.trim() != "postgres://u:p@db/app" {
                let error = location.validate().expect_err("it is no address");
                assert!(!error.to_string().contains("p@"), "{error}");
            }
        }
        for file in
            ["service.db", "/var/lib/service.db", "postgres", "postgres.db", "./a@b.db", "/srv/a@b/journal"]
        {
            assert_eq!(JournalLocation::from(file), JournalLocation::Sqlite(file.into()));
        }
    }

    #[test]
    fn an_address_is_not_shown() {
        let shown = format!("{:?}", JournalLocation::from("postgres://ann:s3cret@db.example/app"));
        assert_eq!(shown, "\"postgres://…\"");
        assert_eq!(format!("{:?}", JournalLocation::from("service.db")), "\"service.db\"");
    }
}
