//! Each backend does what every journal must do.

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

#[cfg(feature = "postgres")]
mod postgres {
    use std::sync::atomic::{AtomicU64, Ordering};

    use backstay_journal::{PostgresConfig, PostgresJournal};
    use backstay_testkit::Postgres;
    use url::Url;

    use super::*;

    struct Schema {
        database: Url,
        config: PostgresConfig,
    }

    #[async_trait]
    impl Store for Schema {
        type Journal = PostgresJournal;

        async fn open(&self) -> PostgresJournal {
            PostgresJournal::open_with(self.database.as_str(), &self.config).await.unwrap()
        }
    }

    async fn schemas() -> impl AsyncFn() -> Schema {
        let server = Postgres::shared().await.unwrap();
        let database = server.database().await.unwrap();
        async move || {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            let mut config = PostgresConfig::default();
            config.schema = format!("journal_{}", NEXT.fetch_add(1, Ordering::Relaxed));
            Schema { database: database.clone(), config }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn on_many_threads() {
        conformance::run(schemas().await).await;
    }

    #[tokio::test]
    async fn on_one_thread() {
        conformance::run(schemas().await).await;
    }
}
