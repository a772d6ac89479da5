//! The demo's fleets, by the demo's own judgement. `restart` needs a process to kill: the demo runs it.

use e2e::{
    fleets::{Kind, World, with_sdk},
    report::FleetReport,
};

async fn holds(kind: Kind) -> FleetReport {
    let world = World::new(kind).await.expect("the chain starts");
    let report = with_sdk(kind, &world).await.expect("the fleet can be set up");
    assert!(report.ok, "{}: {:?}\n{}", kind.name(), report.problems, report.trail);
    report
}

#[tokio::test]
async fn sound_endpoints() {
    let report = holds(Kind::Healthy).await;
    assert_eq!((report.pin_moves, report.failovers), (0, 0));
}

#[tokio::test]
async fn a_primary_that_is_a_stale_fork() {
    holds(Kind::StaleFork).await;
}

#[tokio::test]
async fn a_load_balancer_over_replicas_that_disagree() {
    holds(Kind::Replicas).await;
}

#[tokio::test]
async fn a_primary_that_is_dead_for_the_reads_of_the_deposit() {
    assert!(holds(Kind::DeadAtDeposit).await.failovers > 0);
}

#[tokio::test]
async fn a_primary_that_loses_the_replies_to_sends() {
    holds(Kind::ReplyLost).await;
}

#[tokio::test]
async fn an_endpoint_that_dies_right_after_it_served_the_approves_receipt() {
    assert!(holds(Kind::DiesAfterApprove).await.pin_moves > 0);
}

#[tokio::test]
async fn a_primary_on_another_chain() {
    holds(Kind::WrongChain).await;
}

#[tokio::test]
async fn endpoints_with_the_same_chain_id_and_another_genesis_or_history() {
    holds(Kind::SameIdOtherChain).await;
}

#[tokio::test]
async fn a_primary_whose_head_stands_still() {
    holds(Kind::Frozen).await;
}

#[tokio::test]
async fn a_primary_that_shows_each_block_late() {
    holds(Kind::Trailing).await;
}

#[tokio::test]
async fn a_primary_that_refuses_connections() {
    holds(Kind::Dead).await;
}

#[tokio::test]
async fn a_primary_that_hangs_once_connected() {
    holds(Kind::Hung).await;
}

#[tokio::test]
async fn a_primary_that_asks_to_be_left_alone_once_connected() {
    holds(Kind::RateLimited).await;
}

#[tokio::test]
async fn a_primary_that_answers_in_html_once_connected() {
    holds(Kind::Html503).await;
}

#[tokio::test]
async fn a_primary_that_fails_every_second_call_once_connected() {
    holds(Kind::Flapping).await;
}

#[tokio::test]
async fn a_read_of_old_data_that_only_the_last_endpoint_has() {
    holds(Kind::Pruned).await;
}

#[test]
fn every_fleet_is_tested_here_or_by_the_demo() {
    for kind in Kind::ALL {
        match kind {
            Kind::Healthy
            | Kind::StaleFork
            | Kind::WrongChain
            | Kind::SameIdOtherChain
            | Kind::Frozen
            | Kind::Trailing
            | Kind::Replicas
            | Kind::Dead
            | Kind::DeadAtDeposit
            | Kind::Hung
            | Kind::RateLimited
            | Kind::Html503
            | Kind::Flapping
            | Kind::Pruned
            | Kind::ReplyLost
            | Kind::DiesAfterApprove
            | Kind::Restart => assert_eq!(Kind::named(kind.name()), Some(kind)),
        }
    }
}
