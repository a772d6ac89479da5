//! Journals by where they are.

use std::{path::Path, sync::Arc};

#[cfg(not(feature = "sqlite"))]
use backstay_core::Error;
use backstay_core::Result;
use backstay_journal::Journal;

/// Opens the journal at a location, which is written as the key `journal` of the configuration is; where there is none,
/// it is created. What [`connect`](crate::Builder::connect) does first.
///
/// # Errors
///
/// [`ErrorKind::Journal`](crate::ErrorKind::Journal); a configuration error where this build cannot open such a
/// journal.
pub async fn open(location: &Path) -> Result<Arc<dyn Journal>> {
    #[cfg(feature = "sqlite")]
    return Ok(Arc::new(backstay_journal::SqliteJournal::open(location).await?));
    #[cfg(not(feature = "sqlite"))]
    return Err(without_sqlite(location));
}

/// Opens a journal that is there, and of this version, without changing it: to look into it, also while other processes
/// use it.
///
/// # Errors
///
/// As for [`open`]. Where there is no journal, none is created; one that an older version has written is left as it is.
pub async fn open_existing(location: &Path) -> Result<Arc<dyn Journal>> {
    #[cfg(feature = "sqlite")]
    return Ok(Arc::new(backstay_journal::SqliteJournal::open_existing(location).await?));
    #[cfg(not(feature = "sqlite"))]
    return Err(without_sqlite(location));
}

#[cfg(not(feature = "sqlite"))]
fn without_sqlite(_: &Path) -> Error {
    Error::config("`journal` names a file, and this build is without the feature `sqlite`")
}
