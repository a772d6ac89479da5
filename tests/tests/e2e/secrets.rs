//! Keys in URLs and headers, and private keys, reach the endpoints and nobody else.

use std::{
    error::Error as StdError,
    fmt::Write as _,
    io,
    path::Path,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use backstay::{
    AllowanceFlow, Builder, Client, EndpointConfig,
    alloy::{
        network::Ethereum,
        primitives::{Address, hex},
        providers::Provider,
        signers::local::PrivateKeySigner,
    },
    journal::PostgresJournal,
};
use backstay_testkit::Postgres;
use tracing_subscriber::fmt::MakeWriter;
use url::Url;

use crate::{
    stage::{Stage, config, eventually, status, within},
    wiretap::{Mode, Wiretap},
};

/// What nobody but the endpoint may see. The last is user and password as HTTP sends them.
const SECRETS: [&str; 6] = [
    "hush-user",
    "hush-password",
    "hush-path",
    "hush-query",
    "hush-header",
    "aHVzaC11c2VyOmh1c2gtcGFzc3dvcmQ",
];

/// An endpoint with a secret wherever there can be one.
fn endpoint(name: &str, port: u16) -> EndpointConfig {
    let url = format!("http://hush-user:hush-password@127.0.0.1:{port}/v1/hush-path?apikey=hush-query");
    let mut endpoint = EndpointConfig::new(name, url);
    endpoint.headers.insert("x-api-key".into(), "hush-header".into());
    endpoint
}

/// Everything that was said, to be searched.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Said {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// What backstay's crates log in this process, at the finest level, from the first use on. For all threads: what
/// is logged on one is easily cached as not wanted when another has no subscriber.
static SAID: LazyLock<Said> = LazyLock::new(|| {
    let crates = ["", "_core", "_provider", "_tx", "_recovery", "_journal"];
    let filter = crates.map(|name| format!("backstay{name}=trace")).join(",");
    let said = Said::default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(format!("off,{filter}"))
        .with_ansi(false)
        .with_writer(said.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("no other test listens");
    said
});

/// An error and all that is behind it, in both forms.
fn all_of(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        writeln!(text, "{error}\n{error:?}\n{error:#?}").expect("a string takes text");
        next = error.source();
    }
    text
}

fn free_of_secrets(what: &str, text: &str) {
    free_of(what, text, &SECRETS);
}

fn free_of(what: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        assert!(!text.contains(secret), "{what} gives `{secret}` away: {text}");
    }
}

/// Where a journal is, to be searched.
enum Store {
    /// In the stage's folder.
    File,
    /// In a database of its own.
    Database(Url),
}

impl Store {
    async fn database() -> Self {
        let server = Postgres::shared().await.expect("a server starts");
        Self::Database(server.database().await.expect("there is room"))
    }

    /// A builder whose journal is here. The stage's configuration names the file.
    async fn given_to(&self, builder: Builder) -> Builder {
        match self {
            Self::File => builder,
            Self::Database(url) => {
                let journal = PostgresJournal::open(url.as_str()).await.expect("it is there");
                free_of("the journal", &format!("{journal:?} {journal:#?}"), &[&self.password().await]);
                builder.journal(journal)
            }
        }
    }

    /// What lets one into it; nothing where it is a file.
    async fn password(&self) -> String {
        match self {
            Self::File => "not a password of anybody".to_owned(),
            Self::Database(_) => Postgres::shared().await.expect("a server starts").password().to_owned(),
        }
    }

    /// All that it holds, part by part.
    async fn contents(&self, stage: &Stage) -> Vec<(String, Vec<u8>)> {
        let url = match self {
            Self::File => return files(stage.folder.path()),
            Self::Database(url) => url,
        };
        let server = Postgres::shared().await.expect("a server starts");
        let names = "SELECT string_agg(table_name, ' ') FROM information_schema.tables WHERE table_schema = 'backstay'";
        let names = server.value(url, names).await.expect("it has tables");
        let mut all = Vec::new();
        for name in names.split(' ') {
            // Bytes are in lower-case hexadecimal.
            let rows =
                format!("SELECT coalesce(string_agg(rows::text, ' '), '') FROM backstay.{name} AS rows");
            all.push((name.to_owned(), server.value(url, &rows).await.expect("it can be read").into_bytes()));
        }
        all
    }
}

/// Every file of a folder, as text as far as it is.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let files = files.map(|file| file.expect("it can be listed").path()).filter(|path| path.is_file());
    files.map(|path| (path.display().to_string(), std::fs::read(&path).expect("it can be read"))).collect()
}

fn mentions(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|part| part == needle)
}

#[tokio::test]
async fn the_endpoint_is_sent_its_credentials() {
    let stage = Stage::new().await;
    let tap = Wiretap::start(stage.chain.url()).await;
    let mut config = config(&[]);
    config.endpoints = vec![endpoint("own", tap.port())];
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    within(client.provider::<Ethereum>().get_chain_id()).await.expect("it answers");
    let heads = tap.heads();
    assert!(heads.len() > 3);
    for head in heads {
        let mut lines = head.lines();
        assert_eq!(lines.next(), Some("POST /v1/hush-path?apikey=hush-query HTTP/1.1"));
        let header = |name: &str| {
            let fields = head.lines().filter_map(|line| line.split_once(": "));
            let values = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
            values.map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(header("authorization"), ["Basic aHVzaC11c2VyOmh1c2gtcGFzc3dvcmQ="]);
        assert_eq!(header("x-api-key"), ["hush-header"]);
        assert_eq!(header("host"), [format!("127.0.0.1:{}", tap.port())]);
        assert_eq!(header("content-type"), ["application/json"]);
    }
}

#[tokio::test]
async fn no_failure_gives_a_secret_away() {
    no_failure_gives_a_secret_away_over(Store::File).await;
}

#[tokio::test]
async fn no_failure_gives_a_secret_away_over_postgres() {
    no_failure_gives_a_secret_away_over(Store::database().await).await;
}

async fn no_failure_gives_a_secret_away_over(store: Store) {
    let said = &*SAID;
    let stage = Stage::new().await;
    let tap = Wiretap::start(stage.chain.url()).await;
    let signer = stage.account().await;
    let mut config = stage.config(&stage.fleet([]).await);
    config.endpoints = vec![endpoint("own", tap.port())];
    config.provider.attempt_timeout = Duration::from_millis(300);
    config.provider.operation_timeout = Duration::from_millis(700);
    free_of_secrets("the configuration", &format!("{config:?} {config:#?}"));
    let builder = async || {
        let builder = Client::builder(config.clone()).signer(signer.clone()).flow(AllowanceFlow::new());
        store.given_to(builder).await
    };
    free_of_secrets("the builder", &format!("{:?} {:#?}", builder().await, builder().await));

    let faults = [Mode::Echo, Mode::Redirect, Mode::Close, Mode::Hang];
    for mode in faults {
        tap.set(mode);
        let error = within(builder().await.connect()).await.expect_err("nobody answers");
        free_of_secrets(&format!("connecting under {mode:?}"), &all_of(&error));
    }
    tap.set(Mode::Pass);
    let mut wrong = config.clone();
    wrong.chain_id = 42;
    let error = within(Client::builder(wrong).connect()).await.expect_err("it is another chain");
    free_of_secrets("a wrong chain", &all_of(&error));

    let client = within(builder().await.connect()).await.expect("it connects");
    let intent = stage.registered(&client, "a").await;
    for mode in faults {
        tap.set(mode);
        let provider = client.provider::<Ethereum>();
        let error = within(provider.get_balance(Address::ZERO)).await.expect_err("nobody answers");
        free_of_secrets(&format!("a read under {mode:?}"), &all_of(&error));
        let error = within(provider.send_raw_transaction(&[1, 2, 3])).await.expect_err("nobody answers");
        free_of_secrets(&format!("a send under {mode:?}"), &all_of(&error));
        let failing = stage.register(&client, &format!("{mode:?}")).grant(stage.grant()).send().await;
        let failing = failing.expect("it is written down");
        let error = within(failing.outcome()).await.expect_err("nobody answers");
        free_of_secrets(&format!("an intent under {mode:?}"), &all_of(&error));
        let trail = failing.trail();
        let json = serde_json::to_string(&trail).expect("a trail is data");
        free_of_secrets("a trail", &format!("{trail} {trail:?} {json}"));
    }
    eventually("the breaker is open", async || status(&client, "own").faults > 4).await;
    let shown = serde_json::to_string(&client.status()).expect("a status is data");
    free_of_secrets("the status", &format!("{shown} {:?}", client.status()));
    free_of_secrets("the client", &format!("{client:?} {client:#?} {intent:?}"));
    let trail = intent.trail();
    let json = serde_json::to_string(&trail).expect("a trail is data");
    free_of_secrets("a trail", &format!("{trail} {trail:?} {json}"));
    let contents = store.contents(&stage).await;
    // Why the intents stopped is written down: in the words of whoever failed.
    let stopped = contents.iter().any(|(_, bytes)| mentions(bytes, br#""stopped""#));
    assert!(stopped, "what is there is found");
    for (part, bytes) in contents {
        free_of_secrets(&part, &String::from_utf8_lossy(&bytes));
    }
    let said = said.text();
    assert!(said.contains("backstay_provider") && said.contains("own"), "it was listened to: {said}");
    free_of_secrets("the log", &said);
    free_of("the log", &said, &[&store.password().await]);
}

#[tokio::test]
async fn private_keys_are_written_nowhere() {
    private_keys_are_written_nowhere_over(Store::File).await;
}

#[tokio::test]
async fn private_keys_are_written_nowhere_over_postgres() {
    private_keys_are_written_nowhere_over(Store::database().await).await;
}

async fn private_keys_are_written_nowhere_over(store: Store) {
    let said = &*SAID;
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer: PrivateKeySigner = stage.account().await;
    let builder = store.given_to(stage.builder(&fleet, &signer)).await;
    let shown = format!("{builder:?} {builder:#?}");
    let client = within(builder.connect()).await.expect("it connects");
    let intent = stage.registered(&client, "a").await;
    let raw = signer.to_bytes();
    let (lower, upper) = (hex::encode(raw), hex::encode_upper(raw));
    let contents = store.contents(&stage).await;
    let expected = match &store {
        Store::File => ["journal.db", "journal.db-wal"],
        Store::Database(_) => ["records", "slots"],
    };
    for part in expected {
        assert!(contents.iter().any(|(name, _)| name.ends_with(part)), "{part} is looked at");
    }
    let address = signer.address();
    let needle = address.as_slice();
    let journal: Vec<u8> = contents.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    let text = hex::encode(needle);
    assert!(mentions(&journal, text.as_bytes()) || mentions(&journal, needle), "what is there is found");
    for (part, bytes) in contents {
        for needle in [raw.as_slice(), lower.as_bytes(), upper.as_bytes()] {
            assert!(!mentions(&bytes, needle), "{part} holds the private key");
        }
    }
    let trail = intent.trail();
    for text in [said.text(), shown, format!("{client:?} {trail} {trail:?}")] {
        assert!(!text.contains(&lower) && !text.contains(&upper), "{text}");
    }
    for call in fleet.records() {
        assert!(!call.params.to_string().contains(&lower), "{} was told the key", call.endpoint);
    }
}
