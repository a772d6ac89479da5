use std::{collections::BTreeMap, time::Duration};

use alloy::providers::{Provider as _, ProviderBuilder};
use backstay_testkit::{Action, Error, Fleet, Mark, Outcome, Program, Rule, View};
use serde_json::json;

use crate::client::{Got, SOON, ask, chain, result};

#[tokio::test]
async fn a_killed_endpoint_refuses_connections_until_it_is_revived_on_its_port() {
    let chain = chain().await;
    let fleet = crate::client::fleet(&chain, Program::new()).await;
    let (url, endpoint) = (fleet.url("a"), fleet.endpoint("a"));
    // A client that keeps its connection.
    let provider = ProviderBuilder::new().connect_http(url.clone());
    provider.get_chain_id().await.expect("it answers");
    for _ in 0..3 {
        endpoint.kill().await;
        endpoint.kill().await;
        assert_eq!(ask(&url, "eth_chainId", json!([])).await, Got::Refused);
        provider.get_chain_id().await.expect_err("its connection is closed too");
        endpoint.revive().await.expect("the port is still ours");
        endpoint.revive().await.expect("it is up already");
        assert_eq!(fleet.url("a"), url);
        provider.get_chain_id().await.expect("it answers again");
    }
    assert_eq!(fleet.count("a", "eth_chainId"), 4, "a refused connection is no call");
}

#[tokio::test]
async fn a_kill_gives_up_what_is_under_way() {
    let chain = chain().await;
    let fleet = crate::client::fleet(&chain, Rule::any().then(Action::Stall(Duration::from_secs(600)))).await;
    let url = fleet.url("a");
    let waiting = tokio::spawn(async move { ask(&url, "eth_chainId", json!([])).await });
    fleet.wait_for(Mark::START, SOON, |call| call.method == "eth_chainId").await.expect("it arrives");
    fleet.endpoint("a").kill().await;
    fleet.wait_until_idle(SOON).await.expect("it is given up");
    let got = tokio::time::timeout(SOON, waiting).await.expect("the connection ends").expect("no panic");
    assert!(matches!(got, Got::Closed | Got::Reset), "{got:?}");
    let call = fleet.records().remove(0);
    assert_eq!((call.outcome, call.upstream), (Outcome::Abandoned, None));
}

#[tokio::test]
async fn endpoints_have_their_own_programs_over_one_chain() {
    let chain = chain().await;
    chain.mine(3).await.expect("anvil mines");
    let fleet = Fleet::builder()
        .endpoint("live", chain.url(), Program::new())
        .endpoint("stale", chain.url(), View::Frozen { at: 1 })
        .endpoint("broken", chain.url(), Rule::any().then(Action::http(500, "")))
        .endpoint("idle", chain.url(), Program::new())
        .start()
        .await
        .expect("the fleet starts");
    let names: Vec<_> = fleet.urls().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["live", "stale", "broken", "idle"]);
    assert_eq!(result(&fleet.url("live"), "eth_blockNumber", json!([])).await, "0x3");
    let mark = fleet.mark();
    assert_eq!(result(&fleet.url("stale"), "eth_blockNumber", json!([])).await, "0x1");
    assert!(matches!(
        ask(&fleet.url("broken"), "eth_blockNumber", json!([])).await,
        Got::Answer { status: 500, .. }
    ));
    result(&fleet.url("live"), "eth_chainId", json!([])).await;

    let since: Vec<_> = fleet.records_since(mark).into_iter().map(|call| (call.seq, call.endpoint)).collect();
    assert_eq!(since, [(1, "stale".to_owned()), (2, "broken".to_owned()), (3, "live".to_owned())]);
    assert!(fleet.records().is_sorted_by_key(|call| call.at));
    assert_eq!((fleet.count("live", "*"), fleet.count("live", "eth_chainId")), (2, 1));
    assert_eq!(["live", "stale", "broken"].map(|name| fleet.endpoint(name).faults_fired()), [0, 1, 1]);
    let one = |method: &str| (method.to_owned(), 1);
    let counts = [
        ("live", BTreeMap::from([one("eth_blockNumber"), one("eth_chainId")])),
        ("stale", BTreeMap::from([one("eth_blockNumber")])),
        ("broken", BTreeMap::from([one("eth_blockNumber")])),
        ("idle", BTreeMap::new()),
    ];
    assert_eq!(fleet.calls_by_endpoint(), counts.map(|(name, calls)| (name.to_owned(), calls)).into());
}

#[tokio::test]
async fn a_fleet_does_not_start_over_a_chain_that_is_not_there_or_with_a_name_twice() {
    let mut chain = chain().await;
    let twice = Fleet::builder().scripted("a", Program::new()).scripted("a", Program::new()).start().await;
    assert!(matches!(twice, Err(Error::DuplicateName(name)) if name == "a"));
    chain.kill();
    let dead = Fleet::builder().endpoint("a", chain.url(), Program::new()).start().await;
    assert!(matches!(dead, Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn a_chain_that_dies_is_a_bad_gateway() {
    let mut chain = chain().await;
    let fleet = crate::client::fleet(&chain, View::Trailing { blocks: 1 }).await;
    chain.kill();
    for method in ["eth_chainId", "eth_blockNumber"] {
        assert!(matches!(ask(&fleet.url("a"), method, json!([])).await, Got::Answer { status: 502, .. }));
    }
    assert!(fleet.records().iter().all(|call| matches!(call.outcome, Outcome::Unreachable(_))));
}

#[tokio::test]
async fn dropping_a_fleet_closes_its_listeners_though_handles_remain() {
    let chain = chain().await;
    let fleet = crate::client::fleet(&chain, Program::new()).await;
    let endpoint = fleet.endpoint("a");
    result(&endpoint.url(), "eth_chainId", json!([])).await;
    drop(fleet);
    let closed = async {
        while ask(&endpoint.url(), "eth_chainId", json!([])).await != Got::Refused {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, closed).await.expect("it closes");
}

#[tokio::test]
async fn waiting_for_a_call_that_never_comes_ends() {
    let fleet = Fleet::builder().scripted("a", Program::new()).start().await.expect("the fleet starts");
    let waited = fleet.wait_for(Mark::START, Duration::from_millis(20), |_| true).await;
    assert!(matches!(waited, Err(Error::NotSeen { recorded: 0, .. })));
}

#[tokio::test]
async fn many_clients_at_once_are_all_answered_and_recorded_once() {
    let chain = chain().await;
    let fleet = crate::client::fleet(&chain, View::alternating(View::Trailing { blocks: 1 })).await;
    let provider = ProviderBuilder::new().connect_http(fleet.url("a"));
    let asked = (0..200).map(|_| {
        let provider = provider.clone();
        tokio::spawn(async move { provider.get_block_number().await })
    });
    for answer in asked.collect::<Vec<_>>() {
        answer.await.expect("no panic").expect("it answers");
    }
    assert_eq!(fleet.count("a", "eth_blockNumber"), 200);
    let replicas = fleet.records().iter().filter(|call| call.replica == Some(1)).count();
    assert_eq!(replicas, 100);
}
