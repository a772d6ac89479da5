//! Journals with something in them, and the command.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use backstay::{
    BlockRef, Delivery, Grant, Inclusion, Outcome, RefusalKind, Retry,
    alloy::primitives::{Address, B256, Bytes, U256},
    journal::{
        Author, Claim, Claiming, Content, Journal, Line, NewIntent, Owner, PlanStep, Record, SendAnswer,
        SignedAttempt, SqliteJournal, StepId, Stop, Stored,
    },
    recovery::Check,
};
use serde_json::Value;
use tempfile::TempDir;

/// The chain of the journals that are made by hand.
pub(crate) const CHAIN: u64 = 1;
/// The account of their intents.
pub(crate) const ACCOUNT: Address = Address::repeat_byte(0xaa);

/// What a run of the command came to.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().expect("it was not killed"),
            out: String::from_utf8(output.stdout).expect("it is text"),
            err: String::from_utf8(output.stderr).expect("it is text"),
        }
    }

    /// What it printed, where it did what it was told.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        assert!(self.err.is_empty(), "{}", self.err);
        self.out
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.done()).expect("it is one JSON value")
    }

    /// The JSON that it printed, where it did what it was told, whatever it told meanwhile.
    #[track_caller]
    pub(crate) fn json_despite_news(self) -> Value {
        assert_eq!(self.code, 0, "{}", self.err);
        serde_json::from_str(&self.out).expect("it is one JSON value")
    }

    /// What it said on standard error, where it failed and printed nothing.
    #[track_caller]
    pub(crate) fn failed(self) -> String {
        assert_eq!((self.code, &*self.out), (1, ""), "{}", self.err);
        self.err
    }
}

/// The command, with no settings but those that are given.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstay"));
    command.env_remove("BACKSTAY_JOURNAL").env_remove("BACKSTAY_PRIVATE_KEY").arg("journal").args(arguments);
    command
}

pub(crate) fn run(arguments: &[&str]) -> Said {
    Said::of(command(arguments).output().expect("it starts"))
}

/// A journal that a service has open.
pub(crate) struct Service {
    pub(crate) journal: SqliteJournal,
    pub(crate) path: PathBuf,
    folder: TempDir,
}

impl Service {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("journal.db");
        Self { journal: SqliteJournal::open(&path).await.expect("it is created"), path, folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().expect("it is text")
    }

    /// Runs the command on the journal.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        run(&[arguments, &["--journal", self.path()]].concat())
    }

    /// Opens an intent, and writes these records of its runs.
    pub(crate) async fn intent(&self, chain_id: u64, key: &str, records: &[Record]) -> Stored {
        let opened = self.journal.open(new(chain_id, key)).await.expect("it is opened");
        if !records.is_empty() {
            let author = Author::Owner(self.claim(chain_id).await);
            self.journal.append(author, opened.id, opened.seen(), records).await.expect("they are written");
        }
        opened
    }

    async fn claim(&self, chain_id: u64) -> Claim {
        let line = Line { chain_id, account: ACCOUNT };
        let owner = Owner::new("the service");
        match self.journal.claim(line, &owner, Duration::from_secs(60)).await.expect("it is claimed") {
            Claiming::Held(claim) => claim,
            Claiming::Elsewhere { .. } => panic!("nobody else has it"),
        }
    }
}

pub(crate) fn new(chain_id: u64, key: &str) -> NewIntent {
    NewIntent { chain_id, key: key.to_owned(), account: ACCOUNT, content: call(2), grants: Vec::new() }
}

pub(crate) fn call(to: u8) -> Content {
    let input = Bytes::from_static(&[0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4]);
    Content { to: Address::repeat_byte(to), value: U256::from(5), input }
}

pub(crate) fn stop(why: &str) -> Record {
    Record::Stopped { stop: Stop { why: why.to_owned(), retry: Retry::Later, delivery: Delivery::NotSent } }
}

pub(crate) fn signed(step: StepId, nonce: u64) -> Record {
    let attempt = SignedAttempt {
        nonce,
        unused_at: 5,
        hash: hash(nonce),
        raw: Bytes::from_static(b"the signed bytes"),
        gas_limit: 60_000,
        max_fee_per_gas: 2_000_000_000,
    };
    Record::Signed { step, attempt }
}

pub(crate) fn finished(nonce: u64) -> Record {
    Record::Finished {
        outcome: Outcome::Included { inclusion: inclusion(nonce, Succeeded::Yes), corroborated: true },
    }
}

/// One record of each kind at least, up to an effect that is signed and not settled.
pub(crate) fn long_story() -> Vec<Record> {
    let approve = StepId::Plan { round: 0, step: 0 };
    let check = Check { to: Address::repeat_byte(7), input: Bytes::new(), at_least: U256::ONE };
    let grant =
        Grant { token: Address::repeat_byte(3), spender: Address::repeat_byte(2), cap: U256::from(1_000) };
    let submitted = |nonce, answer| Record::Submitted { hash: hash(nonce), answer };
    vec![
        Record::Granted { grants: vec![grant] },
        Record::Fenced { block: block(5) },
        Record::Planned {
            flow: "allowance".to_owned(),
            diagnosis: "the allowance is 0, and \u{1b}[31m1000 is needed".to_owned(),
            steps: vec![PlanStep { label: "approve".to_owned(), call: call(3), until: Some(check) }],
        },
        signed(approve, 0),
        submitted(0, SendAnswer::Refused(RefusalKind::InsufficientFunds)),
        Record::Released { nonce: 0 },
        stop("the account cannot pay: it has 0 wei, and needs 1000"),
        Record::Requested,
        signed(approve, 1),
        submitted(1, SendAnswer::Unknown),
        Record::Resumed,
        submitted(1, SendAnswer::Accepted),
        Record::Included { step: approve, inclusion: inclusion(1, Succeeded::Yes), by: "own-node".into() },
        Record::Checked { step: approve, block: block(8), holds: true },
        signed(StepId::Effect, 2),
        Record::Displaced { nonce: 2, by: B256::repeat_byte(0xdd), block: 9 },
        Record::Abandoned { why: "the approval was taken back".to_owned() },
        Record::Granted { grants: Vec::new() },
        signed(StepId::Effect, 3),
        submitted(3, SendAnswer::NotSent),
    ]
}

/// Whether a transaction took effect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Succeeded {
    Yes,
    No,
}

pub(crate) fn inclusion(nonce: u64, succeeded: Succeeded) -> Inclusion {
    let succeeded = succeeded == Succeeded::Yes;
    Inclusion { hash: hash(nonce), block: block(7), succeeded, gas_used: 46_000 }
}

pub(crate) fn block(number: u64) -> BlockRef {
    BlockRef { number, hash: B256::repeat_byte(number as u8) }
}

fn hash(nonce: u64) -> B256 {
    B256::repeat_byte(0xc0 + nonce as u8)
}

/// A text without its times and hashes, and with single spaces: what is the same each time.
pub(crate) fn same_each_time(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().filter_map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(|text| line(text) + "\n").collect()
}

fn word(word: &str) -> Option<String> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if word.len() >= 20 && word.ends_with('Z') && digits(&word[..4]) {
        return Some("TIME".to_owned());
    }
    let unit = |unit: &str| word.trim_start_matches('+').strip_suffix(unit).is_some_and(digits);
    if ["ms", "s", "m"].into_iter().any(unit) {
        return None;
    }
    let Some(at) = word.find("0x") else { return Some(word.to_owned()) };
    let length = word[at + 2..].bytes().take_while(u8::is_ascii_hexdigit).count();
    let long = length >= 8;
    Some(if long { format!("{}0x…{}", &word[..at], &word[at + 2 + length..]) } else { word.to_owned() })
}
