//! Both backends do what every journal must do.

use async_trait::async_trait;
use backstay_journal::{
    MemoryJournal,
    conformance::{self, Store},
};

struct Memory(MemoryJournal);

#[async_trait]
impl Store for Memory {
    type Journal = MemoryJournal;

    async fn open(&self) -> MemoryJournal {
        self.0.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory() {
    conformance::run(async || Memory(MemoryJournal::new())).await;
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use backstay_journal::SqliteJournal;
    use tempfile::TempDir;

    use super::*;

    struct File(TempDir);

    #[async_trait]
    impl Store for File {
        type Journal = SqliteJournal;

        async fn open(&self) -> SqliteJournal {
            SqliteJournal::open(self.0.path().join("journal.db")).await.unwrap()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn on_many_threads() {
        conformance::run(async || File(tempfile::tempdir().unwrap())).await;
    }

    #[tokio::test]
    async fn on_one_thread() {
        conformance::run(async || File(tempfile::tempdir().unwrap())).await;
    }
}
