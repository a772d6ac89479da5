//! One flow, one key: the process is killed at six points in turn, and started again on the same journal
//! each time.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use backstay_testkit::{Action, Call, Fleet, Program, Rule, sample::Deployment};
use tokio::{process::Command, time::Instant};

use crate::{
    child::{self, KillAt, Kind as Record, Orders, Side, Teller},
    fleets::{Kind, World, count},
    report::{ByHand, FleetReport},
};

/// The argument that makes a process the child.
pub const CHILD: &str = "restart-child";
/// How long one life of the process may take.
const LIFE: Duration = Duration::from_secs(60);

/// Where the process is killed.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// By its journal.
    Journal(Record, Side),
    /// By an endpoint: the send reached the chain, its reply has not reached the process.
    SendTaken,
}

const POINTS: [Point; 6] = [
    Point::Journal(Record::Planned, Side::After),
    Point::Journal(Record::SignedPlan, Side::After),
    Point::SendTaken,
    Point::Journal(Record::IncludedPlan, Side::Before),
    Point::Journal(Record::SignedEffect, Side::After),
    Point::SendTaken,
];

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
    let Deployment { token, parameters, graphs, .. } = world.contracts;
    let mut orders = Orders {
        endpoints: fleet.urls(),
        journal: folder.path().join("journal.db"),
        key: signer.to_bytes(),
        token,
        parameters,
        graphs,
        graph: Deployment::key(Kind::Restart.name()),
        kill: None,
        teller: Teller::Backstay,
    };
    let begun = Instant::now();
    let last = lives(&fleet, &mut orders, &POINTS, &mut report).await?;
    if !last.starts_with('{') {
        report.problem(format!("the last life ended with: {last}"));
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
    let last = lives(fleet, &mut orders, &[Point::SendTaken, Point::SendTaken], &mut killed).await?;
    let registrations_mined = world.contracts.registrations(&world.chain, signer.address()).await?;
    let done = last.starts_with('{');
    Ok(ByHand { ok: done && registrations_mined == 1, registrations_mined, error: (!done).then_some(last) })
}

/// Kills the process at each point in turn, then lets it come to its end. Returns the last line that it
/// printed.
async fn lives(
    fleet: &Fleet,
    orders: &mut Orders,
    points: &[Point],
    report: &mut FleetReport,
) -> anyhow::Result<String> {
    // The process that lives now, for the endpoints to kill.
    let living = Arc::new(AtomicU32::new(0));
    for (index, point) in points.iter().enumerate() {
        orders.kill = None;
        match *point {
            Point::Journal(record, side) => orders.kill = Some(KillAt { record, side }),
            Point::SendTaken => {
                for (name, _) in fleet.urls() {
                    let living = living.clone();
                    let kill = move |_: &Call| child::kill_process(living.load(Ordering::SeqCst));
                    let rule = Rule::on("eth_sendRawTransaction").times(1).after_reply(kill);
                    fleet.endpoint(&name).set(Program::new().rule(rule.then(Action::LoseReply)));
                }
            }
        }
        match live(orders, &living).await? {
            Life::Killed => report.faults_fired += 1,
            Life::Ended(line) => {
                report.problem(format!("point {index}: it was not killed, and ended with {line}"))
            }
        }
        for (name, _) in fleet.urls() {
            fleet.endpoint(&name).heal();
        }
    }
    orders.kill = None;
    Ok(match live(orders, &living).await? {
        Life::Ended(line) => line,
        Life::Killed => "it was killed".to_owned(),
    })
}

enum Life {
    Killed,
    /// It came to its end; the last line that it printed.
    Ended(String),
}

/// One life of the process.
async fn live(orders: &Orders, living: &AtomicU32) -> anyhow::Result<Life> {
    use std::os::unix::process::ExitStatusExt;

    let program = std::env::current_exe()?;
    let process = Command::new(program)
        .arg(CHILD)
        .arg(serde_json::to_string(orders)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("the child cannot be started")?;
    living.store(process.id().context("the child has no process id")?, Ordering::SeqCst);
    let output = tokio::time::timeout(LIFE, process.wait_with_output()).await;
    living.store(0, Ordering::SeqCst);
    let Ok(output) = output else { bail!("a life of the process took more than {} s", LIFE.as_secs()) };
    let output = output?;
    if output.status.signal() == Some(9) {
        return Ok(Life::Killed);
    }
    let last = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().last().unwrap_or_default().to_owned();
    match output.status.success() {
        true => Ok(Life::Ended(last(&output.stdout))),
        false => Ok(Life::Ended(last(&output.stderr))),
    }
}
