//! Keeps the journal small.

use std::{sync::Arc, time::Duration};

use backstay_journal::{Journal, JournalError};

use crate::RetentionConfig;

/// How many intents are pruned in one transaction: other writers wait that long.
const AT_ONCE: u32 = 100;
/// The pause between two transactions, so that others come in between.
const PAUSE: Duration = Duration::from_millis(50);
/// How long after the start the first look is: what runs then comes first.
const FIRST: Duration = Duration::from_secs(60);

/// Prunes what has ended long ago, for ever.
pub(crate) async fn keep_small(journal: Arc<dyn Journal>, chain_id: u64, config: RetentionConfig) {
    tokio::time::sleep(FIRST.min(config.every)).await;
    loop {
        match prune(&*journal, chain_id, config.finished).await {
            Ok(0) => {}
            Ok(pruned) => tracing::info!(pruned, "intents that ended long ago were pruned"),
            Err(error) => tracing::warn!(%error, "the journal was not pruned"),
        }
        tokio::time::sleep(config.every).await;
    }
}

/// Prunes what ended longer ago than that, a little at a time. Returns how much it was.
pub(crate) async fn prune(
    journal: &dyn Journal,
    chain_id: u64,
    older_than: Duration,
) -> Result<u64, JournalError> {
    let mut pruned = 0;
    loop {
        let few = journal.prune(chain_id, older_than, AT_ONCE).await?;
        pruned += u64::from(few);
        if few < AT_ONCE {
            return Ok(pruned);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
