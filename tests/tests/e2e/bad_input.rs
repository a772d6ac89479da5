//! What is wrong with a configuration or a request is named, and so is what to do about it.

use std::time::Duration;

use backstay::{
    Client, Config, EndpointConfig, Error, ErrorKind, Retry,
    alloy::{primitives::Address, signers::local::PrivateKeySigner},
};
use backstay_testkit::{Action, Anvil, Program, Rule};
use e2e::story::CHAIN_ID;

use crate::stage::{Stage, config, says, within};

/// Connects where it must fail.
async fn refused(config: Config) -> Error {
    within(Client::builder(config).connect()).await.expect_err("it must not connect")
}

async fn misconfigured(endpoints: Vec<EndpointConfig>, texts: &[&str]) {
    let error = refused(Config::new(CHAIN_ID, endpoints)).await;
    assert_eq!(*error.kind(), ErrorKind::Config, "{error}");
    assert_eq!(error.retry(), Retry::Never);
    says(&error, texts);
}

const SOUND: &str = "http://127.0.0.1:1/";

#[tokio::test]
async fn a_url_that_cannot_be_parsed_is_named_by_its_endpoint() {
    for url in ["not a url", "", "http://", "http://[::1", "http://host:99999"] {
        misconfigured(vec![EndpointConfig::new("own", url)], &["endpoint `own`", "url", "https://host/path"])
            .await;
    }
}

#[tokio::test]
async fn a_scheme_that_is_not_supported_is_named() {
    let texts = ["endpoint `own`", "`ws`", "not supported", "http://host:port"];
    misconfigured(vec![EndpointConfig::new("own", "ws://127.0.0.1:8546")], &texts).await;
    // The scheme was forgotten.
    for url in ["localhost:8545", "hush:hush@host:8545", "hush@host", "//hush@host"] {
        let config = Config::new(CHAIN_ID, vec![EndpointConfig::new("own", url)]);
        let error = refused(config.clone()).await;
        assert_eq!(*error.kind(), ErrorKind::Config, "{error}");
        says(&error, &["endpoint `own`", "http://host:port"]);
        assert!(!format!("{error} {error:?} {config:?}").contains("hush"), "{error} {config:?}");
    }
}

#[tokio::test]
async fn two_endpoints_of_one_name_are_named() {
    let twice = vec![EndpointConfig::new("own", SOUND), EndpointConfig::new("own", SOUND)];
    misconfigured(twice, &["`own`", "each its own name"]).await;
}

#[tokio::test]
async fn an_endpoint_without_a_name_is_refused() {
    for name in ["", "  "] {
        misconfigured(vec![EndpointConfig::new(name, SOUND)], &["empty name"]).await;
    }
}

#[tokio::test]
async fn no_endpoint_is_refused() {
    misconfigured(Vec::new(), &["no endpoint", "add at least one"]).await;
}

#[tokio::test]
async fn a_header_that_http_does_not_allow_is_named_without_its_value() {
    let check = async |name: &str, value: &str, part: &str| {
        let mut endpoint = EndpointConfig::new("own", SOUND);
        endpoint.headers.insert(name.into(), value.into());
        let error = refused(Config::new(CHAIN_ID, vec![endpoint])).await;
        assert_eq!(*error.kind(), ErrorKind::Config);
        says(&error, &["endpoint `own`", name, part]);
        assert!(!error.to_string().contains("hush"), "{error}");
    };
    check("x api key", "hush", "name").await;
    check("x-api-key", "hush\nhush", "value").await;
}

#[tokio::test]
async fn durations_of_zero_and_contradictions_are_named_by_their_key() {
    type Change = fn(&mut Config);
    let changes: [(&str, Change); 13] = [
        ("attempt_timeout", |c| c.provider.attempt_timeout = Duration::ZERO),
        ("operation_timeout", |c| c.provider.operation_timeout = Duration::ZERO),
        ("connect_timeout", |c| c.provider.connect_timeout = Duration::ZERO),
        ("identity_recheck", |c| c.provider.identity_recheck = Duration::ZERO),
        ("head_poll", |c| c.provider.head_poll = Some(Duration::ZERO)),
        ("pool.block_time", |c| c.provider.pool.block_time = Some(Duration::ZERO)),
        ("pool.breaker.cooldown", |c| c.provider.pool.breaker.cooldown = Duration::ZERO),
        ("pool.breaker.half_life", |c| c.provider.pool.breaker.half_life = Duration::ZERO),
        ("pool.breaker.max_cooldown", |c| c.provider.pool.breaker.max_cooldown = Duration::from_millis(1)),
        ("pool.breaker.faults", |c| c.provider.pool.breaker.faults = 0),
        ("max_reply", |c| c.provider.max_reply = 0),
        ("inclusion_timeout", |c| c.tx.inclusion_timeout = Duration::ZERO),
        ("receipt_poll", |c| c.tx.receipt_poll = Some(Duration::ZERO)),
    ];
    for (key, change) in changes {
        let mut config = Config::new(CHAIN_ID, vec![EndpointConfig::new("own", SOUND)]);
        change(&mut config);
        let error = refused(config).await;
        assert_eq!(*error.kind(), ErrorKind::Config, "{key}: {error}");
        says(&error, &[key]);
    }
}

const TOML: &str = r#"
chain_id = 31337
[[endpoints]]
name = "own"
url = "https://rpc.example.com/v1/hush"
[provider]
attempt_timeout = "5s"
"#;

#[test]
fn what_is_wrong_with_toml_is_named_by_line_and_key() {
    Config::from_toml(TOML).expect("it is right as it stands");
    let check = |from: &str, to: &str, texts: &[&str]| {
        let error = Config::from_toml(&TOML.replacen(from, to, 1)).expect_err("it is wrong");
        assert_eq!(*error.kind(), ErrorKind::Config);
        says(&error, texts);
        assert!(!error.to_string().contains("hush"), "{error}");
    };
    check("attempt_timeout", "attempt_timeot", &["line 7", "`attempt_timeot`", "`attempt_timeout`"]);
    check("[provider]", "[providers]", &["line 6", "`providers`", "`provider`"]);
    check("name =", "nane =", &["line 4", "`nane`", "`name`"]);
    check("chain_id = 31337", "", &["`chain_id`"]);
    check("\"5s\"", "\"soon\"", &["line 7"]);
    check("\"5s\"", "5", &["line 7"]);
    check("\"own\"", "\"own", &["line 4"]);
    check("url =", "url", &["line 5"]);
}

#[tokio::test]
async fn a_row_that_would_match_everything_or_is_of_no_class_is_named() {
    let toml = |row: &str| {
        format!("chain_id = 1\n[[endpoints]]\nname = \"own\"\nurl = \"{SOUND}\"\n[[provider.rows]]\n{row}\n")
    };
    let check = async |row: &str, texts: &[&str]| {
        let good = "class = \"invalid\"\ncontains = \"a good one\"\n[[provider.rows]]\n";
        let error = match Config::from_toml(&toml(&format!("{good}{row}"))) {
            Ok(config) => refused(config).await,
            Err(error) => error,
        };
        assert_eq!(*error.kind(), ErrorKind::Config, "{error}");
        says(&error, texts);
    };
    let named = ["`provider.rows`", "row 2"];
    check("class = \"invalid\"\ncontains = \"\"", &[named[0], named[1], "almost everything"]).await;
    check("class = \"invalid\"\ncontains = [\"good\", \"***\"]", &[named[0], named[1], "almost everything"])
        .await;
    check("class = \"invalid\"", &[named[0], named[1], "match every error", "`contains`"]).await;
    check("class = \"wrong\"\ncontains = \"odd\"", &["line 9", "`wrong`", "`rate_limited`", "`unsupported`"])
        .await;
    check("class = { fault = \"odd\" }\ncontains = \"odd\"", &["line 9", "`odd`", "`server`"]).await;
    check("class = \"invalid\"\npattern = \"odd\"", &["`pattern`", "`contains`"]).await;
    let example = "class = \"invalid\"\ncontains = \"odd\"\nexample = \"even\"";
    check(example, &[named[0], named[1], "its own example does not contain"]).await;
}

#[test]
fn a_url_or_a_header_in_the_wrong_place_of_toml_is_not_quoted() {
    let check = |text: &str| {
        let error = Config::from_toml(text).expect_err("it is wrong");
        assert_eq!(*error.kind(), ErrorKind::Config);
        assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
        says(&error, &["line"]);
    };
    check("chain_id = 1\nendpoints = \"https://rpc.example.com/hush\"");
    check("chain_id = 1\nendpoints = [\"https://rpc.example.com/hush\"]");
    check("chain_id = \"https://rpc.example.com/hush\"\nendpoints = []");
    check(
        "chain_id = 1\n[[endpoints]]\nname = \"a\"\nurl = \"http://a\"\nheaders = \"Bearer hush \\\" hush\"",
    );
    check("chain_id = 1\nendpoints = []\n[provider]\nattempt_timeout = \"https://rpc.example.com/hush\"");
    check("chain_id = 1\n[[endpoints]]\nname = \"a\"\nurl = https://rpc.example.com/hush");
    check("chain_id = 1\n[[endpoints]]\nname = \"a\"\nurl = \"https://rpc.example.com/hush");
}

#[tokio::test]
async fn a_chain_id_that_nobody_serves_is_named_with_the_one_that_is_served() {
    let chain = Anvil::builder().chain_id(1_337).launch().await.expect("anvil starts");
    let mut config = config(&[("own".to_owned(), chain.url().clone())]);
    config.chain_id = 42;
    let error = refused(config).await;
    assert_eq!(*error.kind(), ErrorKind::WrongChain, "{error}");
    says(&error, &["42", "1337", "own", "check `chain_id`"]);
}

#[tokio::test]
async fn nobody_who_listens_is_unavailable_and_says_who_was_asked() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    fleet.endpoint("primary").kill().await;
    fleet.endpoint("second").set(Rule::any().then(Action::http(503, "out of order")));
    let mut config = config(&fleet.urls());
    let plain = stage.chain.url().as_str().replace("http:", "https:");
    config.endpoints.push(EndpointConfig::new("plain", plain));
    let error = refused(config).await;
    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(error.retry(), Retry::Later);
    says(&error, &["31337", "primary", "second", "plain: tls", "check the urls"]);
}

#[tokio::test]
async fn endpoints_that_hang_do_not_make_connecting_hang() {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("own", Rule::any().then(Action::Hang).into())]).await;
    let mut config = config(&fleet.urls());
    config.provider.attempt_timeout = Duration::from_secs(60);
    config.provider.connect_timeout = Duration::from_millis(300);
    let error = refused(config).await;
    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
    says(&error, &["31337", "own"]);
}

#[tokio::test]
async fn a_client_that_signs_needs_a_journal() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let mut config = stage.config(&fleet);
    config.journal = None;
    let signing = Client::builder(config.clone()).signer(PrivateKeySigner::random());
    let error = within(signing.connect()).await.expect_err("it has none");
    assert_eq!(*error.kind(), ErrorKind::Config);
    says(&error, &["journal", "set `journal`"]);
    within(Client::builder(config).connect()).await.expect("one that reads needs none");
}

#[tokio::test]
async fn a_file_that_is_no_journal_is_named_and_left_as_it_is() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let place = stage.folder.path().join("notes.txt");
    let text = "not a journal\n".repeat(400);
    std::fs::write(&place, &text).expect("the directory takes files");
    let mut config = stage.config(&fleet);
    config.journal = Some(place.clone());
    let signer = PrivateKeySigner::random();
    let error = within(Client::builder(config.clone()).signer(signer.clone()).connect()).await;
    let error = error.expect_err("it is no journal");
    assert_eq!(*error.kind(), ErrorKind::Journal, "{error}");
    says(&error, &["notes.txt", "left untouched", "another path"]);
    assert_eq!(std::fs::read_to_string(&place).expect("it is there"), text);

    config.journal = Some(stage.folder.path().join("missing/journal.db"));
    let error = within(Client::builder(config).signer(signer).connect()).await;
    let error = error.expect_err("there is no such directory");
    assert_eq!(*error.kind(), ErrorKind::Journal, "{error}");
    says(&error, &["missing", "does not exist"]);
}

#[tokio::test]
async fn a_journal_of_another_chain_with_this_id_is_refused() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    drop(stage.reader(&fleet).await);
    let other = Anvil::builder().timestamp(1_700_000_000).launch().await.expect("anvil starts");
    let mut config = stage.config(&fleet);
    config.endpoints = vec![EndpointConfig::new("other", other.url().as_str())];
    let error = refused(config).await;
    says(&error, &["other", "block 0"]);
}

#[tokio::test]
async fn a_send_without_a_signer_is_refused() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let error = stage.register(&client, "a").send().await.expect_err("nobody signs");
    assert_eq!(*error.kind(), ErrorKind::SignerMissing { account: None });
    says(&error, &["no signer", "give the builder one"]);
}

#[tokio::test]
async fn a_send_from_an_account_without_a_signer_names_the_account() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.client(&fleet, &PrivateKeySigner::random()).await;
    let stranger = Address::repeat_byte(7);
    let error = stage.register(&client, "a").from(stranger).send().await.expect_err("nobody signs for it");
    assert_eq!(*error.kind(), ErrorKind::SignerMissing { account: Some(stranger) });
    says(&error, &[&stranger.to_string(), "`signer`"]);
}

#[tokio::test]
async fn with_several_signers_the_account_must_be_said() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let (one, other) = (stage.account().await, stage.account().await);
    let builder = stage.builder(&fleet, &one).signer(other.clone());
    let client = within(builder.connect()).await.expect("it connects");
    assert_eq!(client.accounts(), [one.address(), other.address()]);
    let error = stage.register(&client, "a").send().await.expect_err("it is not said who signs");
    assert_eq!(*error.kind(), ErrorKind::SignerMissing { account: None });
    says(&error, &["several signers", "`from`"]);
    let intent = stage.register(&client, "a").from(other.address()).grant(stage.grant()).send().await;
    within(intent.expect("it is said now").outcome()).await.expect("it ends well");
    let registered = (stage.registrations(one.address()).await, stage.registrations(other.address()).await);
    assert_eq!(registered, (0, 1));
}

#[tokio::test]
async fn an_intent_without_a_key_or_a_target_is_refused() {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("own", Program::new())]).await;
    let client = stage.client(&fleet, &PrivateKeySigner::random()).await;
    let error = client.intent(" ").to(Address::ZERO, vec![]).send().await.expect_err("it has no key");
    assert_eq!(*error.kind(), ErrorKind::Config);
    says(&error, &["key is empty"]);
    let error = client.intent("pay").send().await.expect_err("it has no target");
    assert_eq!(*error.kind(), ErrorKind::Config);
    says(&error, &["`pay`", "`to` or `call`"]);
}

#[test]
fn the_configuration_in_the_readme_is_the_default_one() {
    let readme = include_str!("../../../README.md");
    let toml = readme.split("```toml").find(|block| block.contains("[provider.read]")).expect("it is there");
    let shown =
        backstay::Config::from_toml(toml.split("```").next().unwrap_or_default()).expect("it can be read");
    let plain = backstay::Config::new(1, Vec::new());
    assert_eq!(shown.provider, plain.provider);
    assert_eq!(shown.tx, plain.tx);
    assert_eq!(shown.recovery, plain.recovery);
}
