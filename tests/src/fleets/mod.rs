//! The fleets of the demo.

mod judge;
mod world;

use std::{sync::atomic::Ordering, time::Duration};

use alloy::{
    network::Ethereum,
    primitives::{B256, U256},
    providers::Provider as _,
};
use anyhow::{Context, ensure};
use backstay::Client;
use backstay_testkit::sample::{Deployment, Parameters};
use tokio::time::{Instant, timeout};

pub(crate) use self::judge::count;
use self::{
    judge::judge,
    world::{Past, strike},
};
pub use self::{judge::used_after, world::World};
use crate::{
    by_hand,
    report::{ByHand, FleetReport},
    restart, story,
};

/// How long the story may take.
const CAP: Duration = Duration::from_secs(60);

/// A fleet of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Three sound endpoints.
    Healthy,
    /// The primary is a fork of the live chain, 40 blocks back.
    StaleFork,
    /// The primary is a live chain with another chain id, and the same contracts.
    WrongChain,
    /// The primary is a live chain of the same id with another genesis, the second one of the same genesis with
    /// another history.
    SameIdOtherChain,
    /// The head of the primary stands still, 40 blocks back.
    Frozen,
    /// The primary shows each block 1.5 s late.
    Trailing,
    /// The only endpoint is a load balancer over a replica at the head and one a block behind.
    Replicas,
    /// The primary refuses connections from the start.
    Dead,
    /// Every read of `Parameters` fails on the primary.
    DeadAtDeposit,
    /// The primary hangs on every call from the moment that `connect()` has returned.
    Hung,
    /// The primary answers 429 with `Retry-After` from the moment that `connect()` has returned.
    RateLimited,
    /// The primary answers 503 with a page of HTML from the moment that `connect()` has returned.
    Html503,
    /// The primary answers every second call with 502 from the moment that `connect()` has returned.
    Flapping,
    /// The story begins with a read of old data: the primary says `null` to it, the second refuses it, the third is
    /// an archive.
    Pruned,
    /// The primary forwards sends and loses the replies.
    ReplyLost,
    /// The endpoint that served the approve's receipt is gone right after it.
    DiesAfterApprove,
    /// The process is killed at six points in turn.
    Restart,
}

impl Kind {
    /// Every fleet, in the order of the table.
    pub const ALL: [Self; 17] = [
        Self::Healthy,
        Self::StaleFork,
        Self::WrongChain,
        Self::SameIdOtherChain,
        Self::Frozen,
        Self::Trailing,
        Self::Replicas,
        Self::Dead,
        Self::DeadAtDeposit,
        Self::Hung,
        Self::RateLimited,
        Self::Html503,
        Self::Flapping,
        Self::Pruned,
        Self::ReplyLost,
        Self::DiesAfterApprove,
        Self::Restart,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::StaleFork => "stale-fork",
            Self::WrongChain => "wrong-chain",
            Self::SameIdOtherChain => "same-id-other-chain",
            Self::Frozen => "frozen",
            Self::Trailing => "trailing",
            Self::Replicas => "replicas",
            Self::Dead => "dead",
            Self::DeadAtDeposit => "dead-at-deposit",
            Self::Hung => "hung",
            Self::RateLimited => "rate-limited",
            Self::Html503 => "html-503",
            Self::Flapping => "flapping",
            Self::Pruned => "pruned",
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
            Self::WrongChain => {
                "the primary is a live chain with another chain id, and the same contracts at the same places"
            }
            Self::SameIdOtherChain => {
                "the primary has the chain id and another genesis, the second the genesis and another history"
            }
            Self::Frozen => "the head of the primary stands still, 40 blocks back",
            Self::Trailing => "the primary shows each block 1.5 s late",
            Self::Replicas => "the only endpoint alternates between the head and the block below it",
            Self::Dead => "the primary refuses connections from the start",
            Self::DeadAtDeposit => "every read of Parameters fails on the primary",
            Self::Hung => "the primary hangs on every call from the moment that connect() has returned",
            Self::RateLimited => {
                "the primary answers 429 with Retry-After from the moment that connect() has returned"
            }
            Self::Html503 => {
                "the primary answers 503 with a page of HTML from the moment that connect() has returned"
            }
            Self::Flapping => {
                "the primary answers every second call with 502 from the moment that connect() has returned"
            }
            Self::Pruned => {
                "the story reads old data: the primary answers null, the second refuses, the third has it"
            }
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

    let mut config = story::config(&fleet.urls());
    config.journal = Some(folder.path().join("journal.db").into());
    // Here the reads of the story are to meet what is missing; a probe would have told of it.
    config.provider.history_probes = kind != Kind::Pruned;
    let client = story::builder(config, signer, world.contracts.parameters).connect().await?;
    let connected = fleet.mark();
    strike(kind, &fleet);
    let begun = Instant::now();
    match timeout(CAP, tell(&client, world, kind, &mut report)).await {
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

async fn tell(client: &Client, world: &World, kind: Kind, report: &mut FleetReport) -> anyhow::Result<()> {
    if let Some(past) = &world.past {
        look_back(client, &world.contracts, past).await?;
    }
    let intent = story::register(client, &world.contracts, Deployment::key(kind.name())).await?;
    let outcome = intent.outcome().await;
    report.trail = intent.trail();
    outcome?.included()?;
    Ok(())
}

/// Reads an old block, and the deposit there.
async fn look_back(client: &Client, contracts: &Deployment, past: &Past) -> anyhow::Result<()> {
    let provider = client.provider::<Ethereum>();
    let block = provider.get_block_by_number(past.block.into()).await.context("the old block")?;
    let hash = block.context("the old block is not there")?.header.hash;
    ensure!(hash == past.hash, "block {} reads {hash}, it is {}", past.block, past.hash);
    let parameters = Parameters::new(contracts.parameters, provider);
    let deposit: U256 =
        parameters.deposit().block(past.block.into()).call().await.context("the old deposit")?;
    ensure!(deposit == past.deposit, "the old deposit reads {deposit}, it was {}", past.deposit);
    Ok(())
}

/// The same story over plain alloy, on endpoints with the same faults, with an account of its own.
pub(crate) async fn by_hand(kind: Kind, world: &World) -> anyhow::Result<ByHand> {
    let (fleet, _) = world.fleet(kind).await?;
    strike(kind, &fleet);
    let signer = world.account().await?;
    let owner = signer.address();
    let key: B256 = Deployment::key(&format!("{} by hand", kind.name()));
    let past = world.past.as_ref().map(|past| (past.block, past.deposit));
    let result = by_hand::register(&fleet.urls(), signer, &world.contracts, key, past).await;
    let registrations_mined = world.contracts.registrations(&world.chain, owner).await?;
    let error = result.err().map(|error| format!("{error:#}"));
    Ok(ByHand { ok: error.is_none() && registrations_mined == 1, registrations_mined, error })
}
