//! Endpoints that are dead, hung, busy, or back again.

use std::time::Duration;

use backstay::{
    Client, ErrorKind, Retry,
    alloy::{network::Ethereum, primitives::Address, providers::Provider},
};
use backstay_testkit::{Action, Fleet, Mark, Program, Rule, View};
use tokio::time::Instant;

use crate::stage::{ATTEMPT, Stage, block_number, eventually, ours, says, status, within};

/// What an endpoint was asked since a mark, of one method.
fn asked(fleet: &Fleet, since: Mark, endpoint: &str, method: &str) -> usize {
    let calls = fleet.records_since(since).into_iter();
    calls.filter(|call| call.endpoint == endpoint && call.method == method).count()
}

/// A read that the tracker does not make.
async fn read(client: &Client) {
    let provider = client.provider::<Ethereum>();
    within(provider.get_balance(Address::repeat_byte(1))).await.expect("somebody answers");
}

#[tokio::test]
async fn a_hung_endpoint_costs_each_call_one_attempt_until_its_breaker_opens_and_then_none() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    read(&client).await;
    fleet.endpoint("primary").set(Rule::any().then(Action::Hang));
    let mark = fleet.mark();
    let begun = Instant::now();
    read(&client).await;
    let took = begun.elapsed();
    assert!(took >= ATTEMPT && took < 3 * ATTEMPT, "one attempt at the hung one: {took:?}");
    assert_eq!(asked(&fleet, mark, "primary", "eth_getBalance"), 1);
    assert_eq!(asked(&fleet, mark, "second", "eth_getBalance"), 1);

    eventually("the breaker is open", async || {
        read(&client).await;
        status(&client, "primary").excluded.is_some_and(|why| why.contains("breaker"))
    })
    .await;
    let mark = fleet.mark();
    for _ in 0..5 {
        read(&client).await;
    }
    assert_eq!(asked(&fleet, mark, "primary", "eth_getBalance"), 0);
    assert_eq!(asked(&fleet, mark, "second", "eth_getBalance"), 5);
    assert!(client.failovers() >= 1);
}

#[tokio::test]
async fn an_attempt_that_has_all_the_time_of_its_read_is_held_against_its_endpoint() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let mut config = stage.config(&fleet);
    config.provider.operation_timeout = ATTEMPT;
    // The tracker does not look meanwhile.
    config.provider.head_poll = Some(Duration::from_secs(60));
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    fleet.endpoint("primary").set(Rule::any().then(Action::Hang));
    let mark = fleet.mark();
    let late = within(client.provider::<Ethereum>().get_balance(Address::ZERO)).await;
    late.expect_err("its time is over");
    read(&client).await;
    assert_eq!(asked(&fleet, mark, "primary", "eth_getBalance"), 1);
}

#[tokio::test]
async fn a_dead_primary_is_not_noticed() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    fleet.endpoint("primary").kill().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    read(&client).await;
    stage.registered(&client, "a").await;
    assert_eq!(stage.registrations(signer.address()).await, 1);
}

#[tokio::test]
async fn a_hung_endpoint_does_not_stop_connecting_however_patient_the_attempts_are() {
    let stage = Stage::new().await;
    let hung = Rule::any().then(Action::Hang).into();
    let fleet = stage.fleet([("primary", hung), ("second", Program::new())]).await;
    let mut config = stage.config(&fleet);
    config.provider.attempt_timeout = Duration::from_secs(60);
    config.provider.operation_timeout = Duration::from_secs(60);
    config.provider.connect_timeout = Duration::from_secs(3);
    let client = within(Client::builder(config).connect()).await.expect("one is enough");
    read(&client).await;
    says(&status(&client, "primary").excluded.expect("it has not answered"), &["not identified"]);
}

#[tokio::test]
async fn an_endpoint_that_comes_back_is_used_again_without_traffic() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let mut config = stage.config(&fleet);
    config.provider.pool.breaker.cooldown = Duration::from_millis(100);
    config.provider.pool.min_hold = Duration::from_millis(100);
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    read(&client).await;
    fleet.endpoint("primary").kill().await;
    eventually("the breaker is open", async || status(&client, "primary").excluded.is_some()).await;
    read(&client).await;
    fleet.endpoint("primary").revive().await.expect("the port is ours");
    eventually("it is in use again", async || status(&client, "primary").excluded.is_none()).await;
    eventually("it serves again", async || {
        let mark = fleet.mark();
        read(&client).await;
        asked(&fleet, mark, "primary", "eth_getBalance") == 1
    })
    .await;
}

#[tokio::test]
async fn when_all_are_dead_it_says_so_and_goes_on_when_one_is_back() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let mut config = stage.config(&fleet);
    config.provider.pool.breaker.cooldown = Duration::from_millis(100);
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    for name in ["primary", "second"] {
        fleet.endpoint(name).kill().await;
    }
    let error = within(block_number(&client)).await.expect_err("nobody is there");
    let error = ours(&error);
    assert_eq!((error.kind(), error.retry()), (&ErrorKind::Unavailable, Retry::Later), "{error}");
    says(&error, &["eth_blockNumber", "primary", "second"]);
    eventually("both breakers are open", async || {
        client.status().endpoints.iter().all(|status| status.excluded.is_some())
    })
    .await;
    fleet.endpoint("second").revive().await.expect("the port is ours");
    // The pool never empties itself: a call finds it even before the next probe.
    within(block_number(&client)).await.expect("it is back");
}

#[tokio::test]
async fn an_endpoint_that_asks_us_to_wait_is_left_alone_for_as_long() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    let busy = Rule::any().then(Action::too_many_requests(3));
    let hits = busy.hits();
    fleet.endpoint("primary").set(busy);
    eventually("it has said so", async || hits.get() > 0).await;
    eventually("the client has heard", async || {
        status(&client, "primary").excluded.is_some_and(|why| why.contains("wait"))
    })
    .await;
    // What was under way at that moment may still arrive.
    fleet.wait_until_idle(ATTEMPT).await.expect("nothing is under way");
    let (mark, since) = (fleet.mark(), Instant::now());
    while since.elapsed() < Duration::from_millis(1_500) {
        read(&client).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let came: Vec<_> =
        fleet.records_since(mark).into_iter().filter(|call| call.endpoint == "primary").collect();
    assert!(
        came.is_empty(),
        "it was asked for {:?}",
        came.iter().map(|call| &call.method).collect::<Vec<_>>()
    );
    assert_eq!(status(&client, "primary").faults, 0, "to be busy is no fault");
    fleet.endpoint("primary").heal();
    eventually("it is in use again", async || status(&client, "primary").excluded.is_none()).await;
}

#[tokio::test]
async fn when_all_ask_us_to_wait_the_error_says_that() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    for name in ["primary", "second"] {
        fleet.endpoint(name).set(Rule::any().then(Action::too_many_requests(60)));
    }
    let error = ours(&within(block_number(&client)).await.expect_err("all are busy"));
    assert_eq!((error.kind(), error.retry()), (&ErrorKind::RateLimited, Retry::Later), "{error}");
    says(&error, &["primary: rate limited", "second: rate limited"]);
}

#[tokio::test]
async fn an_operation_ends_at_its_deadline_whatever_its_endpoints_do() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let mut config = stage.config(&fleet);
    config.provider.attempt_timeout = Duration::from_millis(200);
    config.provider.operation_timeout = Duration::from_millis(300);
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    for name in ["primary", "second"] {
        fleet.endpoint(name).set(Rule::any().then(Action::Hang));
    }
    let begun = Instant::now();
    let error = ours(&within(block_number(&client)).await.expect_err("nobody answers"));
    assert_eq!((error.kind(), error.retry()), (&ErrorKind::Timeout, Retry::Later), "{error}");
    assert!(begun.elapsed() < ATTEMPT, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_method_that_an_endpoint_does_not_serve_is_not_asked_for_there_again() {
    let stage = Stage::new().await;
    let unsupported = Rule::on("eth_getBalance")
        .then(Action::error(-32_601, "the method eth_getBalance does not exist/is not available"));
    let hits = unsupported.hits();
    let fleet = stage.fleet([("primary", unsupported.into()), ("second", Program::new())]).await;
    let client = stage.reader(&fleet).await;
    for _ in 0..3 {
        read(&client).await;
    }
    assert_eq!(hits.get(), 1);
    assert_eq!(status(&client, "primary").excluded, None, "it serves what else there is");
}

#[tokio::test]
async fn an_endpoint_that_lags_is_passed_over_until_it_has_caught_up() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let mut config = stage.config(&fleet);
    config.provider.pool.max_lag = Some(2);
    config.provider.pool.min_hold = Duration::from_millis(100);
    fleet.endpoint("primary").set(View::Trailing { blocks: 5 });
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    let lagging = status(&client, "primary");
    assert_eq!(lagging.lag, Some(5));
    says(&lagging.excluded.expect("it is stale"), &["stale", "5 blocks behind"]);
    let mark = fleet.mark();
    let head = stage.chain.head().await.expect("anvil answers");
    assert_eq!(within(block_number(&client)).await.expect("the second answers"), head);
    assert_eq!(asked(&fleet, mark, "primary", "eth_blockNumber"), 0);
    fleet.endpoint("primary").set_view(View::Live);
    eventually("it serves again", async || {
        let mark = fleet.mark();
        read(&client).await;
        asked(&fleet, mark, "primary", "eth_getBalance") == 1
    })
    .await;
}

#[tokio::test]
async fn a_dropped_client_asks_nothing_more() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.client(&fleet, &stage.account().await).await;
    stage.registered(&client, "a").await;
    fleet.endpoint("second").set(Rule::any().then(Action::Hang));
    drop(client);
    eventually("it has come to rest", async || {
        let mark = fleet.mark();
        tokio::time::sleep(Duration::from_millis(300)).await;
        fleet.records_since(mark).is_empty()
    })
    .await;
}

#[tokio::test]
async fn faults_of_every_kind_go_on_to_the_next_endpoint() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let mut config = stage.config(&fleet);
    // Here each fault is looked at for itself.
    config.provider.pool.breaker.faults = 1_000;
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    let faults = [
        Action::Reset,
        Action::DropBefore,
        Action::LoseReply,
        Action::CutReply,
        Action::http(500, "out of order"),
        Action::http(502, "<html>bad gateway</html>"),
        Action::http(200, "<html>please log in</html>"),
        Action::http(200, ""),
        Action::http(401, "{\"error\":\"invalid api key\"}"),
        Action::http(402, "payment required"),
        Action::error(-32_603, "request timed out"),
        Action::error(-32_000, "missing trie node"),
        Action::error(-32_601, "the method eth_getBalance does not exist/is not available"),
    ];
    for fault in faults {
        let rule = Rule::on("eth_getBalance").then(fault.clone());
        let hits = rule.hits();
        fleet.endpoint("primary").set(rule);
        read(&client).await;
        assert_eq!(hits.get(), 1, "{fault:?}");
    }
    fleet.endpoint("primary").set(Program::new());
}
