//! PostgreSQL journals as schemas of a server: which are opened, which are left alone, and what survives.
#![cfg(feature = "postgres")]

mod faults;
mod link;
mod opening;

use std::{error::Error, time::Duration};

use alloy_primitives::{Address, B256, Bytes, U256};
use backstay_core::{
    BlockRef,
    tx::{Content, Record},
};
use backstay_journal::{
    Author, Claim, Claiming, Journal, JournalError, Line, NewIntent, Owner, PostgresConfig, PostgresJournal,
};
use backstay_testkit::Postgres;
use url::Url;

const CHAIN: u64 = 1;
const HERE: Line = Line { chain_id: CHAIN, account: Address::repeat_byte(1) };

async fn database() -> (&'static Postgres, Url) {
    let server = Postgres::shared().await.unwrap();
    (server, server.database().await.unwrap())
}

async fn opened(url: &Url) -> PostgresJournal {
    PostgresJournal::open(url.as_str()).await.unwrap()
}

/// A config that gives up soon.
fn impatient() -> PostgresConfig {
    let mut config = PostgresConfig::default();
    config.connect_timeout = Duration::from_millis(300);
    config.lock_timeout = Duration::from_millis(200);
    config.statement_timeout = Duration::from_millis(500);
    config
}

async fn refused(url: &Url) -> JournalError {
    PostgresJournal::open(url.as_str()).await.expect_err("it is not to be opened")
}

/// Everything that an error can show.
fn all_of(error: &JournalError) -> String {
    let mut said = format!("{error} {error:?}");
    let mut next = error.source();
    while let Some(cause) = next {
        said += &format!(" {cause}");
        next = cause.source();
    }
    said
}

/// No error shows the password, as it is or as URLs write it.
fn assert_secret(server: &Postgres, error: &JournalError) {
    let said = all_of(error);
    let encoded = server.url().password().unwrap().to_owned();
    assert!(!said.contains(server.password()) && !said.contains(&encoded), "{said}");
}

async fn claimed(journal: &PostgresJournal) -> Claim {
    match journal.claim(HERE, &Owner::new("ann"), Duration::from_secs(3_600)).await.unwrap() {
        Claiming::Held(claim) => claim,
        Claiming::Elsewhere { owner, .. } => panic!("{owner} holds it"),
    }
}

fn intent(key: &str) -> NewIntent {
    let content =
        Content { to: Address::repeat_byte(2), value: U256::from(5), input: Bytes::from_static(&[1, 2]) };
    NewIntent { chain_id: CHAIN, key: key.to_owned(), account: HERE.account, content, grants: vec![] }
}

fn fenced(number: u64) -> Record {
    Record::Fenced { block: BlockRef { number, hash: B256::repeat_byte(number as u8) } }
}

async fn seen(journal: &PostgresJournal, key: &str) -> u64 {
    journal.load(CHAIN, key).await.unwrap().expect("it is there").seen()
}

fn owner(claim: Claim) -> Author {
    Author::Owner(claim)
}
