//! The fleets of the demo.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use alloy::{
    primitives::{Address, B256, U256},
    signers::local::PrivateKeySigner,
};
use anyhow::Context;
use backstay_testkit::{
    Action, Anvil, Call, Endpoint, Fleet, Mark, Program, Reply, Rule, View, sample::Deployment,
};
use tokio::time::{Instant, timeout};

use crate::{
    by_hand,
    report::{ByHand, FleetReport},
    restart, story,
};

/// Blocks that the live chain has before the story begins.
const HISTORY: u64 = 60;
/// How far back the stale fork stands.
const BEHIND: u64 = 40;
/// The time between blocks.
const BLOCK_TIME: Duration = Duration::from_secs(1);
/// How long the story may take.
const CAP: Duration = Duration::from_secs(60);

/// A fleet of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Three sound endpoints.
    Healthy,
    /// The primary is a fork of the live chain, 40 blocks back.
    StaleFork,
    /// The only endpoint is a load balancer over a replica at the head and one a block behind.
    Replicas,
    /// Every read of `Parameters` fails on the primary.
    DeadAtDeposit,
    /// The primary forwards sends and loses the replies.
    ReplyLost,
    /// The endpoint that served the approve's receipt is gone right after it.
    DiesAfterApprove,
    /// The process is killed at six points in turn.
    Restart,
}

impl Kind {
    /// Every fleet, in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Healthy,
        Self::StaleFork,
        Self::Replicas,
        Self::DeadAtDeposit,
        Self::ReplyLost,
        Self::DiesAfterApprove,
        Self::Restart,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::StaleFork => "stale-fork",
            Self::Replicas => "replicas",
            Self::DeadAtDeposit => "dead-at-deposit",
            Self::ReplyLost => "reply-lost",
            Self::DiesAfterApprove => "dies-after-approve",
            Self::Restart => "restart",
        }
    }

    /// What is wrong with its endpoints.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Healthy => "three sound endpoints",
            Self::StaleFork => {
                "the primary is a fork of the live chain 40 blocks back, and mines what it is sent"
            }
            Self::Replicas => "the only endpoint alternates between the head and the block below it",
            Self::DeadAtDeposit => "every read of Parameters fails on the primary",
            Self::ReplyLost => "the primary forwards sends and loses the replies",
            Self::DiesAfterApprove => "the endpoint that served the approve's receipt is gone right after it",
            Self::Restart => "the process is killed at six points in turn, and started again each time",
        }
    }

    /// The fleet of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A live chain with the contracts on it, and what a fleet needs beside it.
#[derive(Debug)]
pub struct World {
    /// The live chain.
    pub chain: Anvil,
    /// The contracts on it.
    pub contracts: Deployment,
    /// The stale fork, where the fleet has one, and the block that it stands at.
    fork: Option<(Anvil, u64)>,
}

impl World {
    /// Launches a chain of one-second blocks with some history, deploys the contracts, and forks it where the
    /// fleet needs that.
    ///
    /// # Errors
    ///
    /// When anvil cannot be found or launched.
    pub async fn new(kind: Kind) -> anyhow::Result<Self> {
        let now =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
        let genesis = now.as_secs() - 2 * HISTORY;
        let chain = Anvil::builder().timestamp(genesis).block_time(BLOCK_TIME).launch().await?;
        let contracts = Deployment::deploy(&chain, U256::from(1_000)).await?;
        chain.mine_spaced(HISTORY, BLOCK_TIME).await?;
        let fork = match kind {
            Kind::StaleFork => {
                let at = chain.head().await? - BEHIND;
                Some((Anvil::builder().fork_at(chain.url(), at).launch().await?, at))
            }
            _ => None,
        };
        Ok(Self { chain, contracts, fork })
    }

    /// A fresh account with ether and tokens.
    ///
    /// # Errors
    ///
    /// When the chain cannot be reached.
    pub async fn account(&self) -> anyhow::Result<PrivateKeySigner> {
        let signer = PrivateKeySigner::random();
        self.contracts.fund(&self.chain, signer.address()).await?;
        Ok(signer)
    }

    /// The endpoints of a fleet, and a count of what struck that no fault program counts.
    ///
    /// # Errors
    ///
    /// When a port cannot be bound.
    pub async fn fleet(&self, kind: Kind) -> anyhow::Result<(Fleet, Arc<AtomicU64>)> {
        let live = self.chain.url();
        let struck = Arc::new(AtomicU64::new(0));
        let fleet = Fleet::builder();
        let fleet = match kind {
            Kind::Healthy | Kind::Restart => fleet.endpoint("primary", live, Program::new()),
            Kind::StaleFork => {
                let (fork, _) = self.fork.as_ref().context("this world has no fork")?;
                fleet.endpoint("primary", fork.url(), Program::new())
            }
            Kind::Replicas => {
                let program = View::alternating(View::Trailing { blocks: 1 });
                return Ok((fleet.endpoint("balanced", live, program).start().await?, struck));
            }
            Kind::DeadAtDeposit => {
                let dead = Rule::any().to(self.contracts.parameters).named("reads of Parameters");
                fleet.endpoint("primary", live, dead.then(Action::http(500, "out of order")))
            }
            Kind::ReplyLost => {
                let lost = Rule::on("eth_sendRawTransaction").named("replies to sends");
                fleet.endpoint("primary", live, lost.then(Action::LoseReply))
            }
            Kind::DiesAfterApprove => {
                let mut fleet = fleet;
                for name in ["primary", "second", "third"] {
                    fleet = fleet.endpoint(name, live, Program::new());
                }
                let fleet = fleet.start().await?;
                for (name, _) in fleet.urls() {
                    let endpoint = fleet.endpoint(&name);
                    endpoint.set(dies_after_approve(&endpoint, self.contracts.token, &struck));
                }
                return Ok((fleet, struck));
            }
        };
        let fleet = fleet.endpoint("second", live, Program::new()).endpoint("third", live, Program::new());
        Ok((fleet.start().await?, struck))
    }
}

/// The program of an endpoint that is gone once it has served the receipt of an approve, if it is the first
/// to: every later request meets a reset, and a moment later the port is closed.
fn dies_after_approve(endpoint: &Endpoint, token: Address, struck: &Arc<AtomicU64>) -> Program {
    let gone = Arc::new(AtomicBool::new(false));
    let serve = {
        let (gone, struck, endpoint) = (gone.clone(), struck.clone(), endpoint.clone());
        move |call: &Call| {
            let to = match &call.upstream {
                Some(Reply::Result(receipt)) => {
                    receipt["to"].as_str().and_then(|to| to.parse::<Address>().ok())
                }
                _ => None,
            };
            if to == Some(token) && struck.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                gone.store(true, Ordering::SeqCst);
                let endpoint = endpoint.clone();
                tokio::spawn(async move {
                    // The reply itself must be out first; until the port closes, requests are reset.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    endpoint.kill().await;
                });
            }
        }
    };
    let reset = Rule::any().named("gone").when(move |_| gone.load(Ordering::SeqCst)).then(Action::Reset);
    Program::new().rule(reset).rule(Rule::on("eth_getTransactionReceipt").after_reply(serve))
}

/// Runs the story on a fleet: first with the SDK, then by hand.
///
/// # Errors
///
/// When the fleet cannot be set up. That the story fails is not an error: the report says so.
pub async fn run(kind: Kind) -> anyhow::Result<FleetReport> {
    if kind == Kind::Restart {
        return restart::run().await;
    }
    let world = World::new(kind).await?;
    let mut report = with_sdk(kind, &world).await?;
    report.by_hand = by_hand(kind, &world).await?;
    if kind == Kind::Healthy && !report.by_hand.ok {
        report.problem("by hand it must work on sound endpoints");
    }
    report.ok = report.problems.is_empty();
    Ok(report)
}

/// Runs the story on a fleet of a world, with the SDK only.
///
/// # Errors
///
/// As for [`run`].
pub async fn with_sdk(kind: Kind, world: &World) -> anyhow::Result<FleetReport> {
    let (fleet, struck) = world.fleet(kind).await?;
    let signer = world.account().await?;
    let owner = signer.address();
    let folder = tempfile::tempdir()?;
    let mut report = FleetReport { fleet: kind.name().to_owned(), ..FleetReport::default() };

    let config = story::config(&fleet.urls(), &folder.path().join("journal.db"));
    let client = story::builder(config, signer, world.contracts.parameters).connect().await?;
    let connected = fleet.mark();
    let begun = Instant::now();
    match timeout(CAP, tell(&client, &world.contracts, kind.name(), &mut report)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => report.problem(format!("{error:#}")),
        Err(_) => report.problem(format!("not done after {} s", CAP.as_secs())),
    }
    report.took(begun.elapsed());
    report.pin_moves = report.trail.pin_moves() as u64;
    report.failovers = client.failovers();
    drop(client);
    report.calls = fleet.calls_by_endpoint();
    report.rpc_calls = report.calls.values().flat_map(|methods| methods.values()).sum();
    report.faults_fired = fleet.faults_fired() + struck.load(Ordering::SeqCst);
    judge(kind, world, &fleet, connected, owner, &mut report).await?;
    report.ok = report.problems.is_empty();
    Ok(report)
}

async fn tell(
    client: &backstay::Client,
    contracts: &Deployment,
    key: &str,
    report: &mut FleetReport,
) -> anyhow::Result<()> {
    let intent = story::register(client, contracts, Deployment::key(key)).await?;
    let outcome = intent.outcome().await;
    report.trail = intent.trail();
    outcome?.included()?;
    Ok(())
}

/// Holds the fleet against the ground truth.
async fn judge(
    kind: Kind,
    world: &World,
    fleet: &Fleet,
    connected: Mark,
    owner: Address,
    report: &mut FleetReport,
) -> anyhow::Result<()> {
    count(world, owner, report).await?;
    match kind {
        Kind::Healthy | Kind::Restart => {}
        Kind::StaleFork => {
            let (fork, at) = world.fork.as_ref().context("this world has no fork")?;
            let (stale, live) = (fork.head().await?, world.chain.head().await?);
            if stale == *at && live >= at + BEHIND {
                report.faults_fired += 1;
            } else {
                report.problem(format!("the fork stood at {at}; it is at {stale}, the live chain at {live}"));
            }
            for method in used_after(fleet, connected, "primary") {
                report.problem(format!("after connect() the stale fork was asked for {method}"));
            }
        }
        Kind::DiesAfterApprove if report.pin_moves == 0 => report.problem("the session never moved"),
        Kind::Replicas | Kind::DeadAtDeposit | Kind::ReplyLost | Kind::DiesAfterApprove => {}
    }
    if kind != Kind::Healthy && report.faults_fired == 0 {
        report.problem("the fault never struck, so nothing was shown");
    }
    Ok(())
}

/// Counts the effects of an account on the live chain.
///
/// # Errors
///
/// When the chain cannot be reached.
pub(crate) async fn count(world: &World, owner: Address, report: &mut FleetReport) -> anyhow::Result<()> {
    report.approvals_mined = world.contracts.approvals(&world.chain, owner).await?;
    report.registrations_mined = world.contracts.registrations(&world.chain, owner).await?;
    if report.approvals_mined != 1 {
        report.problem(format!("{} approves were mined", report.approvals_mined));
    }
    if report.registrations_mined != 1 {
        report.problem(format!("{} registrations were mined", report.registrations_mined));
    }
    Ok(())
}

/// What an endpoint was asked, since a mark, of what only a sound endpoint may be asked: state, logs,
/// receipts and sends.
pub fn used_after(fleet: &Fleet, since: Mark, endpoint: &str) -> Vec<String> {
    const ONLY_SOUND: [&str; 9] = [
        "eth_call",
        "eth_estimateGas",
        "eth_getBalance",
        "eth_getCode",
        "eth_getStorageAt",
        "eth_getTransactionCount",
        "eth_getLogs",
        "eth_getTransactionReceipt",
        "eth_getBlockReceipts",
    ];
    let calls = fleet.records_since(since).into_iter().filter(|call| call.endpoint == endpoint);
    let methods = calls.map(|call| call.method);
    methods.filter(|method| ONLY_SOUND.contains(&method.as_str()) || method.starts_with("eth_send")).collect()
}

/// The same story over plain alloy, on endpoints with the same faults, with an account of its own.
pub(crate) async fn by_hand(kind: Kind, world: &World) -> anyhow::Result<ByHand> {
    let (fleet, _) = world.fleet(kind).await?;
    let signer = world.account().await?;
    let owner = signer.address();
    let key: B256 = Deployment::key(&format!("{} by hand", kind.name()));
    let result = by_hand::register(&fleet.urls(), signer, &world.contracts, key).await;
    let registrations_mined = world.contracts.registrations(&world.chain, owner).await?;
    let error = result.err().map(|error| format!("{error:#}"));
    Ok(ByHand { ok: error.is_none() && registrations_mined == 1, registrations_mined, error })
}
