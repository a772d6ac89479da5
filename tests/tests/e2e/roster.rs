//! Endpoints that come, go and change while a client runs; budgets that are kept; private relays.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use backstay::{
    BreakerPhase, Client, DataKind, EndpointConfig, ErrorKind, Role, SendPublic, Standing,
    alloy::{network::Ethereum, primitives::Address, providers::Provider},
};
use backstay_testkit::{Action, Anvil, Fleet, Mark, Program, Rule};
use e2e::fleets::used_after;
use futures::future::join_all;

use crate::{
    provider::payment,
    stage::{Stage, caught_up, eventually, ours, says, sends, status, within},
};

const BALANCE: &str = "eth_getBalance";

async fn read(client: &Client) {
    let provider = client.provider::<Ethereum>();
    within(provider.get_balance(Address::repeat_byte(1))).await.expect("somebody answers");
}

fn asked(fleet: &Fleet, since: Mark, endpoint: &str) -> usize {
    let calls = fleet.records_since(since).into_iter();
    calls.filter(|call| call.endpoint == endpoint && call.method == BALANCE).count()
}

fn endpoint(fleet: &Fleet, name: &str) -> EndpointConfig {
    EndpointConfig::new(name, fleet.url(name).as_str())
}

/// Connected to some of a fleet's endpoints.
async fn connected(stage: &Stage, fleet: &Fleet, to: &[&str]) -> Client {
    let mut config = stage.config(fleet);
    config.endpoints.retain(|endpoint| to.contains(&endpoint.name.as_str()));
    within(Client::builder(config).connect()).await.expect("it connects")
}

#[tokio::test]
async fn an_endpoint_added_at_run_time_serves_once_it_is_identified() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = connected(&stage, &fleet, &["primary"]).await;
    client.add_endpoint(&endpoint(&fleet, "second")).expect("it is new");
    let again = client.add_endpoint(&endpoint(&fleet, "second")).expect_err("it is there");
    says(&again, &["two endpoints are named `second`"]);
    let unnamed = client.add_endpoint(&EndpointConfig::new(" ", "http://127.0.0.1:1")).expect_err("no name");
    assert_eq!(unnamed.kind(), &ErrorKind::Config);
    eventually("it is identified", async || status(&client, "second").standing == Standing::Serving).await;
    fleet.endpoint("primary").kill().await;
    let mark = fleet.mark();
    read(&client).await;
    assert_eq!(asked(&fleet, mark, "second"), 1);
}

#[tokio::test]
async fn another_chain_added_at_run_time_is_never_used() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let other = Anvil::builder().chain_id(1_337).launch().await.expect("anvil starts");
    let client = stage.reader(&fleet).await;
    client.add_endpoint(&EndpointConfig::new("other", other.url().as_str())).expect("nothing is asked yet");
    eventually("it is found out", async || status(&client, "other").standing == Standing::Wrong).await;
    says(&status(&client, "other").excluded.expect("it is left out"), &["1337"]);
}

#[tokio::test]
async fn a_removed_endpoint_is_asked_nothing_more_and_the_last_one_stays() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let client = stage.reader(&fleet).await;
    read(&client).await;
    client.remove_endpoint("primary").expect("there is another");
    fleet.wait_until_idle(Duration::from_secs(5)).await.ok();
    eventually("it is left alone", async || {
        let mark = fleet.mark();
        tokio::time::sleep(Duration::from_millis(300)).await;
        fleet.records_since(mark).iter().all(|call| call.endpoint != "primary")
    })
    .await;
    let mark = fleet.mark();
    read(&client).await;
    assert_eq!(asked(&fleet, mark, "second"), 1);
    assert_eq!(client.status().endpoints.len(), 1);
    let gone = client.remove_endpoint("primary").expect_err("it is gone");
    says(&gone, &["no endpoint is named `primary`"]);
    let last = client.remove_endpoint("second").expect_err("it is the last");
    says(&last, &["`second`", "the last"]);
    read(&client).await;
}

#[tokio::test]
async fn an_intent_whose_endpoint_is_removed_goes_on_elsewhere() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let signer = stage.account().await;
    let client = stage.client(&fleet, &signer).await;
    let stuck = Rule::on("eth_sendRawTransaction").then(Action::Hang);
    let hits = stuck.hits();
    fleet.endpoint("primary").set(stuck);
    let intent = stage.register(&client, "a").grant(stage.grant()).send().await.expect("it is written down");
    eventually("it hangs at the primary", async || hits.get() > 0).await;
    client.remove_endpoint("primary").expect("there is another");
    let outcome = within(intent.outcome()).await.expect("it ends well");
    outcome.included().expect("it is included");
    assert_eq!(
        (stage.approvals(signer.address()).await, stage.registrations(signer.address()).await),
        (1, 1)
    );
}

#[tokio::test]
async fn an_endpoint_with_another_key_takes_over_without_a_gap() {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("node", Program::new()), ("new-key", Program::new())]).await;
    let client = connected(&stage, &fleet, &["node"]).await;
    let reading = async {
        for _ in 0..100 {
            read(&client).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let rekeyed = EndpointConfig::new("node", fleet.url("new-key").as_str());
    let (replaced, ()) = tokio::join!(client.replace_endpoint(&rekeyed), reading);
    replaced.expect("it is of this chain");
    let mark = fleet.mark();
    read(&client).await;
    assert_eq!((asked(&fleet, mark, "new-key"), asked(&fleet, mark, "node")), (1, 0));
    assert_eq!(status(&client, "node").standing, Standing::Serving);
    assert_eq!(client.status().endpoints.len(), 1);
    eventually("the old one is asked nothing more", async || {
        let mark = fleet.mark();
        tokio::time::sleep(Duration::from_millis(300)).await;
        fleet.records_since(mark).iter().all(|call| call.endpoint != "node")
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_that_does_not_prove_to_be_of_the_chain_takes_nobody_s_place() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let other = Anvil::builder().chain_id(1_337).launch().await.expect("anvil starts");
    let client = stage.reader(&fleet).await;
    let wrong = EndpointConfig::new("primary", other.url().as_str());
    let error = within(client.replace_endpoint(&wrong)).await.expect_err("it is another chain");
    assert_eq!(error.kind(), &ErrorKind::WrongChain, "{error}");
    let dead = EndpointConfig::new("primary", "http://127.0.0.1:1");
    let error = within(client.replace_endpoint(&dead)).await.expect_err("nobody is there");
    assert_eq!(error.kind(), &ErrorKind::Unavailable, "{error}");
    says(&error, &["`primary`", "the old one goes on"]);
    let unknown = EndpointConfig::new("third", fleet.url("second").as_str());
    let error = within(client.replace_endpoint(&unknown)).await.expect_err("there is none");
    says(&error, &["no endpoint is named `third`"]);
    let mut relay = endpoint(&fleet, "primary");
    relay.role = Role::Private;
    client.remove_endpoint("second").expect("there is another");
    let error = within(client.replace_endpoint(&relay)).await.expect_err("nobody would be read from");
    says(&error, &["the last that is read from"]);
    let mark = fleet.mark();
    read(&client).await;
    assert_eq!(asked(&fleet, mark, "primary"), 1);
}

#[tokio::test]
async fn reads_beyond_a_budget_go_to_the_next_endpoint() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let mut config = stage.config(&fleet);
    config.provider.head_poll = Some(Duration::from_secs(5));
    config.endpoints[0].max_per_second = NonZeroU32::new(20);
    let begun = Instant::now();
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    let mark = fleet.mark();
    join_all((0..100).map(|_| read(&client))).await;
    let (primary, second) = (asked(&fleet, mark, "primary"), asked(&fleet, mark, "second"));
    assert_eq!(primary + second, 100);
    // A second's worth, and what has come in since.
    let most = 20.0 + 20.0 * begun.elapsed().as_secs_f64();
    assert!(primary > 0 && primary as f64 <= most, "{primary} of at most {most}");
    let primary = status(&client, "primary");
    assert_eq!((primary.faults, primary.standing), (0, Standing::Serving), "to be asked less is no fault");
    assert_eq!(client.status().sticky.expect("one serves").as_str(), "primary");
}

#[tokio::test]
async fn reads_wait_for_the_budget_of_the_only_endpoint_and_the_tracker_is_not_starved() {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("only", Program::new())]).await;
    let mut config = stage.config(&fleet);
    config.endpoints[0].max_per_second = NonZeroU32::new(40);
    config.provider.head_poll = Some(Duration::from_millis(200));
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    let begun = Instant::now();
    join_all((0..120).map(|_| read(&client))).await;
    // Forty may go out at once, and the other eighty one by one.
    assert!(begun.elapsed() >= Duration::from_millis(1_950), "{:?}", begun.elapsed());
    assert_eq!(fleet.count("only", BALANCE), 120, "each once");
    stage.chain.mine(3).await.expect("anvil mines");
    let reading = async {
        loop {
            read(&client).await;
        }
    };
    tokio::select! {
        () = caught_up(&client, &stage.chain) => {}
        () = reading => {}
    }
}

#[tokio::test]
async fn no_more_requests_are_under_way_at_once_than_an_endpoint_allows() {
    let stage = Stage::new().await;
    let slow = Rule::on(BALANCE).then(Action::Stall(Duration::from_millis(100)));
    let fleet = stage.fleet([("only", slow.into())]).await;
    let mut config = stage.config(&fleet);
    config.endpoints[0].max_concurrent = NonZeroU32::new(3);
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    let begun = Instant::now();
    let most = async {
        let mut most = 0;
        loop {
            most = most.max(status(&client, "only").budget.in_flight);
            if fleet.count("only", BALANCE) == 12 {
                return most;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (_, most) = tokio::join!(join_all((0..12).map(|_| read(&client))), within(most));
    assert!(most <= 3, "{most} at once");
    assert!(begun.elapsed() >= Duration::from_millis(400), "four rounds of three: {:?}", begun.elapsed());
    eventually("every place is free again", async || status(&client, "only").budget.in_flight == 0).await;
}

#[tokio::test]
async fn transactions_go_to_the_private_relay_alone_and_nothing_is_read_there() {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("public", Program::new()), ("relay", Program::new())]).await;
    let signer = stage.account().await;
    let mut config = stage.config(&fleet);
    config.endpoints[1].role = Role::Private;
    let builder = Client::builder(config).signer(signer.clone()).flow(backstay::AllowanceFlow::new());
    let client = within(builder.connect()).await.expect("it connects");
    let mark = fleet.mark();
    stage.registered(&client, "a").await;
    assert!(sends(&fleet).iter().all(|call| call.endpoint == "relay"), "{:?}", sends(&fleet));
    let at_relay = used_after(&fleet, mark, "relay");
    assert!(at_relay.iter().all(|method| method == "eth_sendRawTransaction"), "{at_relay:?}");
    assert_eq!(stage.registrations(signer.address()).await, 1);

    // Not even when it is down.
    fleet.endpoint("relay").kill().await;
    let other = stage.account().await;
    let (raw, _) = payment(&other, 0);
    let error =
        within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await.expect_err("it is down");
    says(&ours(&error), &["public: transactions go to private endpoints only"]);
    assert!(sends(&fleet).iter().all(|call| call.endpoint == "relay"));
}

#[tokio::test]
async fn with_consent_transactions_go_elsewhere_when_the_private_relay_fails() {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("public", Program::new()), ("relay", Program::new())]).await;
    let mut config = stage.config(&fleet);
    config.endpoints[1].role = Role::Private;
    config.provider.pool.send_public = SendPublic::Also;
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    let signer = stage.account().await;
    let send = async |nonce| {
        let (raw, _) = payment(&signer, nonce);
        let pending = within(client.provider::<Ethereum>().send_raw_transaction(&raw)).await;
        within(pending.expect("it is taken").get_receipt()).await.expect("it is mined")
    };
    send(0).await;
    assert!(sends(&fleet).iter().all(|call| call.endpoint == "relay"), "it comes first");
    fleet.endpoint("relay").kill().await;
    send(1).await;
    assert!(sends(&fleet).iter().any(|call| call.endpoint == "public"));
}

#[tokio::test]
async fn a_pool_that_nobody_can_read_from_is_no_pool() {
    let stage = Stage::new().await;
    let fleet = stage.sound().await;
    let mut config = stage.config(&fleet);
    config.endpoints[0].role = Role::SendOnly;
    config.endpoints[1].role = Role::Private;
    let error = within(Client::builder(config).connect()).await.expect_err("nobody is read from");
    assert_eq!(error.kind(), &ErrorKind::Config);
    says(&error, &["no endpoint can be read from"]);
}

#[tokio::test]
async fn the_status_says_what_each_endpoint_does_and_why() {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("a", Program::new()), ("b", Program::new())]).await;
    let mut config = stage.config(&fleet);
    config.endpoints[0].max_concurrent = NonZeroU32::new(7);
    config.provider.pool.breaker.cooldown = Duration::from_secs(60);
    // A chain of known pace that mines nothing would be a standstill.
    config.provider.pool.block_time = None;
    let client = within(Client::builder(config).connect()).await.expect("it connects");
    read(&client).await;
    caught_up(&client, &stage.chain).await;
    let seen = client.status();
    let head = stage.chain.head().await.expect("anvil answers");
    assert_eq!(seen.frontier.expect("it is known").number, head);
    assert_eq!(seen.degraded, Vec::<String>::new());
    let a = status(&client, "a");
    assert_eq!((a.standing, a.role, a.breaker), (Standing::Serving, Role::Read, BreakerPhase::Closed));
    assert_eq!((a.host.as_deref(), a.lag, a.budget.max_concurrent), (Some("127.0.0.1"), Some(0), Some(7)));
    assert!(a.verdicts["answer"] > 0 && a.calls >= a.verdicts["answer"]);
    assert_eq!(a.next_probe, None);

    fleet.endpoint("a").kill().await;
    eventually("its breaker is open", async || status(&client, "a").standing == Standing::Open).await;
    let a = status(&client, "a");
    assert_eq!(
        (a.breaker, a.next_probe.is_some_and(|wait| wait <= Duration::from_secs(68))),
        (BreakerPhase::Open, true)
    );
    assert!(a.verdicts["refused"] >= 5 && a.faults >= 5, "{:?}", a.verdicts);
    fleet.endpoint("b").kill().await;
    eventually("the pool says so", async || !client.status().degraded.is_empty()).await;
    says(&client.status().degraded.join("; "), &["every endpoint that can be asked rests"]);

    let shown = serde_json::to_value(client.status()).expect("a status is data");
    assert_eq!(shown["endpoints"][0]["standing"], "open");
    let back: backstay::PoolStatus = serde_json::from_value(shown).expect("and is read back");
    assert_eq!(back.endpoints.len(), 2);
    let _: std::collections::BTreeMap<DataKind, u64> = back.endpoints[0].oldest.clone();
}
