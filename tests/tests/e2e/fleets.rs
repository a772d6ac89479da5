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

#[test]
fn every_fleet_is_tested_here_or_by_the_demo() {
    for kind in Kind::ALL {
        match kind {
            Kind::Healthy
            | Kind::StaleFork
            | Kind::Replicas
            | Kind::DeadAtDeposit
            | Kind::ReplyLost
            | Kind::DiesAfterApprove
            | Kind::Restart => assert_eq!(Kind::named(kind.name()), Some(kind)),
        }
    }
}
