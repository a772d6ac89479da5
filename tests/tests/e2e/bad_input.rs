//! What is wrong with a configuration or a request is named, and so is what to do about it.

use std::time::Duration;

use backstay::{
    Client, Config, EndpointConfig, Error, ErrorKind, HedgeConfig, Retry,
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
    let texts = ["endpoint `own`", "`wss://`", "http://host:port"];
    misconfigured(vec![EndpointConfig::new("own", "ftp://127.0.0.1:8546")], &texts).await;
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

/// What is wrong with a configuration that is changed in one place.
fn complaint(change: impl FnOnce(&mut Config)) -> Option<String> {
    let mut config = Config::new(CHAIN_ID, vec![EndpointConfig::new("own", SOUND)]);
    change(&mut config);
    let error = config.validate().err()?;
    assert_eq!(*error.kind(), ErrorKind::Config, "{error}");
    assert_eq!(error.retry(), Retry::Never, "{error}");
    Some(error.to_string())
}

#[test]
fn a_duration_that_is_zero_or_longer_than_a_year_is_named_by_its_key() {
    /// Whether zero is something that can be meant.
    #[derive(Clone, Copy, PartialEq)]
    enum Zero {
        Refused,
        Meant,
    }
    use Zero::{Meant, Refused};
    type Set = fn(&mut Config, Duration);
    let keys: [(&str, Zero, Set); 29] = [
        ("provider.attempt_timeout", Refused, |c, d| c.provider.attempt_timeout = d),
        ("provider.operation_timeout", Refused, |c, d| c.provider.operation_timeout = d),
        ("provider.connect_timeout", Refused, |c, d| c.provider.connect_timeout = d),
        ("provider.identity_recheck", Refused, |c, d| c.provider.identity_recheck = d),
        ("provider.head_poll", Refused, |c, d| c.provider.head_poll = Some(d)),
        ("provider.lookup_budget", Refused, |c, d| c.provider.lookup_budget = d),
        ("provider.fence_patience", Refused, |c, d| c.provider.fence_patience = Some(d)),
        ("provider.pool.block_time", Refused, |c, d| c.provider.pool.block_time = Some(d)),
        ("provider.pool.min_hold", Meant, |c, d| c.provider.pool.min_hold = d),
        ("provider.pool.disbelief", Refused, |c, d| c.provider.pool.disbelief = d),
        ("provider.pool.breaker.half_life", Refused, |c, d| c.provider.pool.breaker.half_life = d),
        ("provider.pool.breaker.cooldown", Refused, |c, d| c.provider.pool.breaker.cooldown = d),
        ("provider.pool.breaker.max_cooldown", Refused, |c, d| c.provider.pool.breaker.max_cooldown = d),
        ("provider.read.frontier_grace", Meant, |c, d| c.provider.read.frontier_grace = d),
        ("provider.read.frontier_retry_timeout", Refused, |c, d| c.provider.read.frontier_retry_timeout = d),
        ("provider.read.bloom_grace", Meant, |c, d| c.provider.read.bloom_grace = d),
        ("provider.read.hedge.floor", Meant, |c, d| hedge(c).floor = d),
        ("tx.inclusion_timeout", Refused, |c, d| c.tx.inclusion_timeout = d),
        ("tx.receipt_poll", Refused, |c, d| c.tx.receipt_poll = Some(d)),
        ("tx.corroboration_wait", Meant, |c, d| c.tx.corroboration_wait = Some(d)),
        ("tx.fence_patience", Refused, |c, d| c.tx.fence_patience = Some(d)),
        ("recovery.plan_timeout", Refused, |c, d| c.recovery.plan_timeout = d),
        ("claims.ttl", Refused, |c, d| c.claims.ttl = d),
        ("claims.poll", Refused, |c, d| c.claims.poll = d),
        ("postgres.connect_timeout", Refused, |c, d| c.postgres.connect_timeout = d),
        ("postgres.lock_timeout", Refused, |c, d| c.postgres.lock_timeout = d),
        ("postgres.statement_timeout", Refused, |c, d| c.postgres.statement_timeout = d),
        ("retention.finished", Refused, |c, d| c.retention.finished = d),
        ("retention.every", Refused, |c, d| c.retention.every = d),
    ];
    for (key, zero, set) in keys {
        let quoted = format!("`{key}`");
        match (zero, complaint(|config| set(config, Duration::ZERO))) {
            (Refused, Some(said)) => says(&said, &[&quoted, "is zero", "such as \"2s\""]),
            (Meant, None) => {}
            (Refused, None) => panic!("{key} may be zero"),
            (Meant, Some(said)) => panic!("{key} may not be zero: {said}"),
        }
        for long in [Duration::MAX, Duration::from_secs(400 * 86_400)] {
            let said =
                complaint(|config| set(config, long)).unwrap_or_else(|| panic!("{key} may be {long:?}"));
            says(&said, &[&quoted, "longer than a year"]);
        }
    }
}

#[test]
fn every_duration_in_the_readme_is_checked() {
    // The keys of the configuration there, which is all of it: one that is forgotten above is found here.
    let readme = include_str!("../../../README.md");
    let toml = readme.split("```toml").find(|block| block.contains("[provider.read]")).expect("it is there");
    let test = include_str!("bad_input.rs");
    let mut table = String::new();
    let mut found = 0;
    for line in toml.split("```").next().unwrap_or_default().lines() {
        let line = line.trim_start_matches("# ");
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            table = format!("{}.", name.trim_start_matches('['));
        }
        let Some((key, value)) = line.split_once(" = ") else { continue };
        let value = value.trim_start_matches('"');
        let digits = value.trim_start_matches(|c: char| c.is_ascii_digit());
        if digits.len() < value.len() && ["s\"", "ms\"", "m\""].iter().any(|unit| digits.starts_with(unit)) {
            found += 1;
            let path = format!("\"{table}{key}\"");
            assert!(test.contains(&path), "{path} is not among the durations that are tested");
        }
    }
    assert!(found >= 10, "{found} durations were found");
}

#[test]
fn values_that_contradict_each_other_or_mean_nothing_are_named_by_their_key() {
    type Change = fn(&mut Config);
    let cases: [(&[&str], Change); 18] = [
        (&["`chain_id` is zero", "Ethereum's is 1"], |c| c.chain_id = 0),
        (&["`journal` is empty", "name a file"], |c| c.journal = Some("".into())),
        (&["`journal` cannot be used", "(invalid port number)", "%2F"], |c| {
            c.journal = Some("postgres://ann:s3cret/word@db/app".into());
        }),
        (&["`postgres.schema` is \"Mine\"", "a-z"], |c| c.postgres.schema = "Mine".to_owned()),
        (&["`postgres.connections` is zero", "at least one"], |c| c.postgres.connections = 0),
        (&["`provider.attempt_timeout` is longer", "`provider.operation_timeout`", "shorter"], |c| {
            c.provider.operation_timeout = Duration::from_secs(5);
        }),
        (&["`provider.max_reply` is zero", "bytes"], |c| c.provider.max_reply = 0),
        (&["`provider.pool.max_lag` is zero", "at least 1"], |c| c.provider.pool.max_lag = Some(0)),
        (&["`provider.pool.breaker.max_cooldown` is below", "longer"], |c| {
            c.provider.pool.breaker.max_cooldown = Duration::from_millis(1);
        }),
        (&["`provider.pool.breaker.faults` is zero", "5 is the default"], |c| {
            c.provider.pool.breaker.faults = 0;
        }),
        (&["`provider.read.hedge.percentile`", "between 1 and 99"], |c| hedge(c).percentile = 0),
        (&["`provider.read.hedge.percentile`", "between 1 and 99"], |c| hedge(c).percentile = 100),
        (&["`provider.read.hedge.budget`", "between 1 and 100"], |c| hedge(c).budget = 0),
        (&["`provider.read.hedge.budget`", "leave `provider.read.hedge`"], |c| hedge(c).budget = 101),
        (&["`provider.read.hedge.floor`", "longer than a year"], |c| hedge(c).floor = Duration::MAX),
        (&["`tx.gas_margin` is 1001", "percent", "at most 1000"], |c| c.tx.gas_margin = 1_001),
        (&["`tx.max_fee_per_gas` is zero", "wei", "no cap"], |c| c.tx.max_fee_per_gas = Some(0)),
        (&["`recovery.plan_timeout` is zero"], |c| c.recovery.plan_timeout = Duration::ZERO),
    ];
    for (texts, change) in cases {
        says(&complaint(change).unwrap_or_else(|| panic!("{texts:?} is not refused")), texts);
    }
    assert_eq!(complaint(|_| ()), None, "the defaults are in order");
    // What is bounded by something else in any case may be longer than that.
    let capped: [Change; 3] = [
        |c| c.provider.attempt_timeout = Duration::from_secs(1),
        |c| c.provider.connect_timeout = Duration::from_millis(1),
        |c| c.recovery.max_rounds = 0,
    ];
    for change in capped {
        assert_eq!(complaint(change), None);
    }
}

fn hedge(config: &mut Config) -> &mut HedgeConfig {
    config.provider.read.hedge.get_or_insert_default()
}

#[test]
fn a_shape_or_a_row_that_would_match_everything_or_nothing_is_named() {
    let check = |from: &str, texts: &[&str]| {
        let text = format!("chain_id = 1\n[[endpoints]]\nname = \"own\"\nurl = \"{SOUND}\"\n{from}");
        let error = Config::from_toml(&text).and_then(|config| config.validate()).expect_err("it is wrong");
        assert_eq!(*error.kind(), ErrorKind::Config, "{error}");
        says(&error, texts);
    };
    let shape = |method: &str| format!("[provider.shapes.\"{method}\"]\nheight_param = 0\nkind = \"blocks\"");
    for method in ["", "*", "zks_*", "two words"] {
        check(
            &shape(method),
            &["`provider.shapes`", &format!("`{method}` is no method"), "by its full name"],
        );
    }
    for method in ["eth_call", "eth_getTransactionReceipt", "debug_traceBlockByNumber"] {
        check(&shape(method), &["`provider.shapes`", method, "knows", "leave it out"]);
    }
    check("[provider.shapes.zks_getBlockDetails]\nkind = \"blocks\"", &["line", "`height_param`"]);
    check(
        "[provider.shapes.zks_getBlockDetails]\nheight_param = -1\nkind = \"blocks\"",
        &["line 6", "`provider.shapes.zks_getBlockDetails.height_param`"],
    );
    check(
        "[provider.shapes.zks_getBlockDetails]\nheight_param = 0\nkind = \"bloks\"",
        &["line 7", "`blocks`"],
    );
    for contains in ["", " ", "e", "*"] {
        let row = format!("[[provider.rows]]\nclass = \"not_yet\"\ncontains = [\"{contains}\"]");
        check(&row, &["row"]);
    }
    check(
        "[[provider.rows]]\nclass = \"not_jet\"\ncontains = [\"beyond the tip\"]",
        &["line 6", "`not_yet`"],
    );
}

#[tokio::test]
async fn connecting_checks_the_configuration_before_anybody_is_asked() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let mut config = stage.config(&fleet);
    config.recovery.plan_timeout = Duration::ZERO;
    let error = refused(config).await;
    assert_eq!(*error.kind(), ErrorKind::Config, "{error}");
    assert_eq!(fleet.records().len(), 0);
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
    check(
        "class = \"wrong\"\ncontains = \"odd\"",
        &["line 9", "`provider.rows[1].class`", "`rate_limited`", "`unsupported`"],
    )
    .await;
    check(
        "class = { fault = \"odd\" }\ncontains = \"odd\"",
        &["line 9", "`provider.rows[1].class.fault`", "`server`"],
    )
    .await;
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
    config.provider.operation_timeout = Duration::from_secs(60);
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
    config.journal = Some(place.clone().into());
    let signer = PrivateKeySigner::random();
    let error = within(Client::builder(config.clone()).signer(signer.clone()).connect()).await;
    let error = error.expect_err("it is no journal");
    assert_eq!(*error.kind(), ErrorKind::Journal, "{error}");
    says(&error, &["notes.txt", "left untouched", "another path"]);
    assert_eq!(std::fs::read_to_string(&place).expect("it is there"), text);

    config.journal = Some(stage.folder.path().join("missing/journal.db").into());
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
    for (key, why) in [("k".repeat(1_025), "longer than 1024 bytes"), ("a\0".to_owned(), "NUL")] {
        let error = client.intent(&key).to(Address::ZERO, vec![]).send().await.expect_err("none can be kept");
        assert_eq!(*error.kind(), ErrorKind::Config);
        says(&error, &[why]);
        assert!(client.find_intent(&key).await.expect("the journal reads").is_none());
    }
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
    assert_eq!(shown.claims, plain.claims);
    assert_eq!(shown.postgres, plain.postgres);
    assert_eq!(shown.retention, plain.retention);
}

#[test]
fn a_value_of_the_wrong_form_is_named_by_its_key_and_never_quoted() {
    let check = |line: &str, part: &str| {
        let text = format!(
            "chain_id = 1\n[[endpoints]]\nname = \"a\"\nurl = \"http://127.0.0.1:1/\"\n{}\n",
            line.replace('|', "\n")
        );
        let error = Config::from_toml(&text).expect_err(line);
        says(&error, &[part]);
        for secret in ["s3cret", "87654321"] {
            assert!(!error.to_string().contains(secret), "{error}");
        }
    };
    check("[provider]|attempt_timeout = \"s3cret\"", "`provider.attempt_timeout`");
    check("[provider]|attempt_timeout = \"s3cret\"", "such as \"6s\"");
    check("[provider]|max_reply = \"s3cret\"", "`provider.max_reply`");
    check("headers = { \"x-api-key\" = 87654321 }", "`endpoints[0].headers.x-api-key`");
    check("role = \"s3cret\"", "`endpoints[0].role`");
    check("role = \"s3cret\"", "`send_only`");
    check("rolle = \"read\"", "unknown field `rolle`");
}
