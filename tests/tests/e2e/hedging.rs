//! Hedged reads: a slow tail is cut off for a few calls more, and nobody is blamed for it.

use std::time::Duration;

use backstay::{
    Client, HedgeConfig,
    alloy::{
        network::Ethereum,
        primitives::Address,
        providers::{Provider, RootProvider},
    },
};
use backstay_testkit::{Action, Fleet, Program, Rule};
use tokio::time::Instant;

use super::stage::{Stage, config, status, within};

const CALLS: u64 = 400;
const LATE: Duration = Duration::from_millis(300);

/// One answer in twenty is late.
fn slow_tail() -> Program {
    Rule::on("eth_getBalance").every(20).then(Action::LateReply(LATE)).into()
}

async fn stage() -> (Stage, Fleet) {
    let stage = Stage::new().await;
    let fleet = stage.fleet([("slow", slow_tail()), ("other", Program::new())]).await;
    (stage, fleet)
}

async fn connect(fleet: &Fleet, hedge: Option<HedgeConfig>) -> Client {
    let mut config = config(&fleet.urls());
    config.provider.read.hedge = hedge;
    within(Client::builder(config).connect()).await.expect("it connects")
}

/// How many of the answers were late.
async fn late(provider: &RootProvider<Ethereum>) -> u64 {
    let mut late = 0;
    for _ in 0..CALLS {
        let begun = Instant::now();
        within(provider.get_balance(Address::ZERO)).await.expect("somebody answers");
        late += u64::from(begun.elapsed() >= LATE);
    }
    late
}

fn balances(fleet: &Fleet) -> u64 {
    fleet.count("slow", "eth_getBalance") + fleet.count("other", "eth_getBalance")
}

#[tokio::test]
async fn a_slow_tail_is_hedged_for_at_most_a_tenth_more_calls() {
    let (_stage, fleet) = stage().await;
    let client = connect(&fleet, Some(HedgeConfig::default())).await;
    let late = late(&client.provider::<Ethereum>()).await;
    // What is late while nothing is known of the endpoint, and while the budget is empty.
    assert!(late <= CALLS / 100, "{late} of {CALLS} were late");
    assert!(balances(&fleet) * 10 <= CALLS * 11, "{} calls for {CALLS}", balances(&fleet));
    let slow = status(&client, "slow");
    assert_eq!((slow.excluded, slow.faults), (None, 0), "late is no fault");
    assert_eq!(client.failovers(), 0);
}

#[tokio::test]
async fn by_default_nothing_is_hedged_and_a_provider_can_be_for_itself() {
    let (_stage, fleet) = stage().await;
    let client = connect(&fleet, None).await;
    assert_eq!(late(&client.provider::<Ethereum>()).await, CALLS / 20);
    assert_eq!(balances(&fleet), CALLS);
    let late = late(&client.hedged_provider::<Ethereum>()).await;
    assert!(late <= CALLS / 100, "{late} of {CALLS} were late");
}

#[tokio::test]
async fn a_hedge_that_fails_is_held_against_nobody_and_the_first_call_is_waited_for() {
    let stage = Stage::new().await;
    let broken = Rule::on("eth_getBalance").then(Action::http(503, "no"));
    let fleet = stage.fleet([("slow", slow_tail()), ("broken", broken.into())]).await;
    let client = connect(&fleet, Some(HedgeConfig::default())).await;
    let late = late(&client.provider::<Ethereum>()).await;
    assert_eq!(late, CALLS / 20, "nobody else answers");
    assert!(fleet.count("broken", "eth_getBalance") > 0);
    assert_eq!((status(&client, "broken").faults, status(&client, "slow").faults), (0, 0));
}
