//! One flow, one key: the process is killed at six points in turn, and started again on the same journal
//! each time.

use anyhow::Context as _;
use backstay_testkit::{Fleet, sample::Deployment};
use tokio::time::Instant;

use crate::{
    crash::{
        child::{Orders, Store, Teller, Told},
        life::{End, Wires, live},
        point::Point,
    },
    fleets::{Kind, World, count},
    report::{ByHand, FleetReport},
};

/// Where the process is killed, life after life.
const POINTS: [&str; 6] = [
    "journal.append.planned/1/after",
    "journal.append.signed-plan/1/after",
    SEND_TAKEN,
    "journal.append.included-plan/1/before",
    "journal.append.signed-effect/1/after",
    SEND_TAKEN,
];
/// The send reached the chain, its reply has not reached the process.
const SEND_TAKEN: &str = "rpc.eth_sendRawTransaction/1/answered";

/// Runs the fleet.
///
/// # Errors
///
/// When it cannot be set up.
pub async fn run() -> anyhow::Result<FleetReport> {
    let world = World::new(Kind::Restart).await?;
    let (fleet, _) = world.fleet(Kind::Restart).await?;
    let signer = world.account().await?;
    let folder = tempfile::tempdir()?;
    let mut report = FleetReport { fleet: Kind::Restart.name().to_owned(), ..FleetReport::default() };
    let store = Store::Sqlite(folder.path().join("journal.db"));
    let mut orders = Orders::new(&world.contracts, fleet.urls(), store);
    orders.key = signer.to_bytes();
    orders.graph = Deployment::key(Kind::Restart.name());
    let begun = Instant::now();
    if let Err(problem) = lives(&fleet, &mut orders, &POINTS, &mut report).await? {
        report.problem(problem);
    }
    report.took(begun.elapsed());
    report.calls = fleet.calls_by_endpoint();
    report.rpc_calls = report.calls.values().flat_map(|methods| methods.values()).sum();
    count(&world, signer.address(), &mut report).await?;
    report.by_hand = by_hand(&world, &fleet, orders).await?;
    report.ok = report.problems.is_empty();
    Ok(report)
}

/// By hand there is no journal to be killed at: the process is killed twice, each time when a send has
/// reached the chain.
async fn by_hand(world: &World, fleet: &Fleet, mut orders: Orders) -> anyhow::Result<ByHand> {
    let signer = world.account().await?;
    orders.key = signer.to_bytes();
    orders.graph = Deployment::key("restart by hand");
    orders.teller = Teller::ByHand;
    let mut killed = FleetReport::default();
    let error = lives(fleet, &mut orders, &[SEND_TAKEN; 2], &mut killed).await?.err();
    let registrations_mined = world.contracts.registrations(&world.chain, signer.address()).await?;
    Ok(ByHand { ok: error.is_none() && registrations_mined == 1, registrations_mined, error })
}

/// Kills the process at each point in turn, then lets it come to its end. Returns what it told, or why it told nothing.
async fn lives(
    fleet: &Fleet,
    orders: &mut Orders,
    points: &[&str],
    report: &mut FleetReport,
) -> anyhow::Result<Result<Told, String>> {
    for point in points {
        let point: Point = point.parse().context("a point of this fleet")?;
        match live(fleet, Wires::Sound, orders, Some(&point)).await?.end {
            End::Killed => report.faults_fired += 1,
            ended => report.problem(format!("it was not killed at {point}: {ended:?}")),
        }
    }
    Ok(match live(fleet, Wires::Sound, orders, None).await?.end {
        End::Told(told) => Ok(told),
        End::Failed(words) => Err(words.lines().last().unwrap_or_default().to_owned()),
        End::Killed => Err("it was killed".to_owned()),
        End::Stuck => Err("it did not come to an end".to_owned()),
    })
}
