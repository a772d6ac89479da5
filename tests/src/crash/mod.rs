//! The crash matrix: approve, then register, in a process that is killed at each boundary in turn.
//!
//! A process that nobody kills is recorded first: what it asks of its journal and of the endpoints. Each of these calls
//! has points at which a process can be killed, and each point is a **run** with an account of its own: the process is
//! killed there (by the journal around its journal, or by the endpoints), in some runs killed again after its restart,
//! and then lives to its end. All runs are on one chain, and the chain says whether they are right.

pub mod child;
mod journal;
mod judge;
pub mod life;
pub mod plan;
pub mod point;

use std::{path::PathBuf, time::Duration};

use alloy::{
    primitives::{Address, B256, keccak256},
    signers::local::PrivateKeySigner,
};
use anyhow::{Context, ensure};
use backstay_testkit::{Fleet, Fsync, Mark, Postgres, Program, sample::Deployment};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use tempfile::TempDir;
use url::Url;

use self::{
    child::{Orders, Store, Told},
    judge::Truth,
    life::{End, live},
    plan::{Backend, Company, Depth, Plan, Recording, Setting, plans},
    point::Calls,
};
use crate::fleets::{Kind, World};

/// How often a run is made at most that was not killed where it was sure to be: the machine may have been so slow that
/// the process took another way.
const TRIES: u32 = 2;
/// How long calls of a process that is dead may still be under way.
const SETTLES: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many of the points.
    pub depth: Depth,
    /// What the choices depend on that are left to chance.
    pub seed: u64,
    /// How many runs at once.
    pub side_by_side: usize,
    /// Where the binaries of a PostgreSQL server are.
    pub postgres: PathBuf,
    /// Only these runs: each is one in full, or a part of the names of some.
    pub only: Vec<String>,
}

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The run, as `--only` takes it.
    pub run: Plan,
    /// What kind of point it was killed at first.
    pub kind: &'static str,
    /// Whether all that must hold does.
    pub ok: bool,
    /// What does not hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// What the last life said, if it gave up.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub said: String,
    /// How often it was killed.
    pub kills: usize,
    /// How often the run was made.
    pub tries: u32,
    /// How long each life of the process took, in milliseconds.
    pub lives_ms: Vec<u64>,
    /// What was crossed in the last life.
    #[serde(skip)]
    calls: Calls,
}

impl RunReport {
    /// A report of a run that is to be made.
    pub fn new(run: Plan) -> Self {
        let kind = run.kind();
        Self {
            run,
            kind,
            ok: false,
            problems: Vec::new(),
            said: String::new(),
            kills: 0,
            tries: 1,
            lives_ms: Vec::new(),
            calls: Calls::new(),
        }
    }

    /// Whether it was killed at its first point. The second one may be behind the end.
    pub fn reached(&self) -> bool {
        self.kills > 0 || self.run.points.is_empty()
    }
}

/// Runs the matrix. `tell` hears of each run as it ends; the first are those that are recorded.
///
/// # Errors
///
/// When it cannot be set up, or there is no run as asked for. That a run fails is not an error: its report says so.
pub async fn run(options: &Options, tell: impl Fn(&RunReport)) -> anyhow::Result<Vec<RunReport>> {
    let scene = Scene::new(options).await?;
    let tell = &tell;
    let told = move |report: RunReport| {
        tell(&report);
        report
    };
    let exact: Vec<Plan> = options.only.iter().filter_map(|text| text.parse().ok()).collect();
    if !exact.is_empty() && exact.len() == options.only.len() {
        return scene.all(exact, options.side_by_side, &told).await;
    }

    let undisturbed = Setting::ALL.map(Plan::undisturbed).to_vec();
    let mut reports = scene.all(undisturbed, options.side_by_side, &told).await?;
    let recording =
        |report: &RunReport| Recording { setting: report.run.setting, calls: report.calls.clone() };
    let recordings: Vec<Recording> = reports.iter().map(recording).collect();
    let mut plans = plans(&recordings, options.depth, options.seed);
    if !options.only.is_empty() {
        plans.retain(|plan| options.only.iter().any(|part| plan.to_string().contains(part)));
        ensure!(!plans.is_empty(), "no run has {} in its name", options.only.join(" or "));
    }
    reports.extend(scene.all(plans, options.side_by_side, &told).await?);
    Ok(reports)
}

/// The chain and the database that all runs share.
struct Scene {
    world: World,
    folder: TempDir,
    #[expect(dead_code, reason = "it runs until it is dropped")]
    server: Postgres,
    database: Url,
    seed: u64,
}

/// What one run has to itself.
struct Place {
    fleet: Fleet,
    orders: Orders,
    signer: PrivateKeySigner,
}

impl Scene {
    async fn new(options: &Options) -> anyhow::Result<Self> {
        let world = World::new(Kind::Restart).await?;
        // Only clients are killed here, so nothing depends on what the server has on its disk.
        let server = Postgres::builder().programs(&options.postgres).fsync(Fsync::Off).launch().await?;
        let database = server.database().await?;
        Ok(Self { world, folder: tempfile::tempdir()?, server, database, seed: options.seed })
    }

    /// Makes runs side by side; the reports are in the order of the plans.
    async fn all(
        &self,
        plans: Vec<Plan>,
        side_by_side: usize,
        told: &impl Fn(RunReport) -> RunReport,
    ) -> anyhow::Result<Vec<RunReport>> {
        let signers = plans.iter().map(|plan| self.signer(plan, 1));
        let accounts: Vec<Address> =
            signers.map(|signer| Ok(signer?.address())).collect::<anyhow::Result<_>>()?;
        self.world.contracts.fund_all(&self.world.chain, &accounts).await?;
        let runs = plans.into_iter().enumerate().map(|(index, plan)| async move {
            let name = plan.to_string();
            let report = self.tried(plan).await.with_context(|| format!("run {name}"))?;
            anyhow::Ok((index, told(report)))
        });
        let mut reports: Vec<_> =
            stream::iter(runs).buffer_unordered(side_by_side.max(1)).try_collect().await?;
        reports.sort_by_key(|(index, _)| *index);
        Ok(reports.into_iter().map(|(_, report)| report).collect())
    }

    async fn tried(&self, plan: Plan) -> anyhow::Result<RunReport> {
        let mut tries = 1;
        loop {
            let mut report = self.made(&plan, tries).await?;
            let missed = !report.reached() && plan.points.first().is_some_and(|point| point.is_sure());
            if missed && report.ok && tries < TRIES {
                tries += 1;
                let signer = self.signer(&plan, tries)?;
                self.world.contracts.fund_all(&self.world.chain, &[signer.address()]).await?;
                continue;
            }
            if missed {
                report.problems.push("it did not come to the point at which it was to be killed".to_owned());
                report.ok = false;
            }
            return Ok(report);
        }
    }

    /// Makes one run.
    async fn made(&self, plan: &Plan, tries: u32) -> anyhow::Result<RunReport> {
        let mut place = self.place(plan, tries).await?;
        let mut report = RunReport { tries, ..RunReport::new(plan.clone()) };
        let payee = match plan.company {
            Company::Alone => None,
            Company::Payment => Some(payee(place.signer.address())),
        };
        let (mut told, mut lives) = (None, Vec::new());
        for point in plan.points.iter().map(Some).chain([None]) {
            if report.kills > 0 {
                place.orders.payee = payee;
                place.orders.approach = plan.approach;
            }
            let life = live(&place.fleet, plan.setting.wires, &mut place.orders, point).await?;
            lives.push(life.begun);
            report.lives_ms.push(life.took.as_millis() as u64);
            match life.end {
                End::Killed => report.kills += 1,
                End::Told(end) => {
                    report.calls = life.calls;
                    report.calls.extend(end.calls.clone());
                    told = Some(end);
                    break;
                }
                End::Failed(words) => {
                    let last = words.lines().last().unwrap_or_default();
                    report.problems.push(format!("life {} gave up: {last}", report.lives_ms.len()));
                    report.said = words;
                    break;
                }
                End::Stuck => {
                    report.problems.push(format!("life {} did not come to an end", report.lives_ms.len()));
                    break;
                }
            }
        }
        self.judge(&place, &lives, &told.unwrap_or_default(), &mut report).await?;
        report.ok = report.problems.is_empty();
        Ok(report)
    }

    async fn judge(
        &self,
        place: &Place,
        lives: &[Mark],
        told: &Told,
        report: &mut RunReport,
    ) -> anyhow::Result<()> {
        if let Err(error) = place.fleet.wait_until_idle(SETTLES).await {
            report.problems.push(format!("the endpoints are busy: {error}"));
        }
        let truth = Truth {
            chain: &self.world.chain,
            contracts: &self.world.contracts,
            fleet: &place.fleet,
            store: &place.orders.store,
            owner: place.signer.address(),
            payee: place.orders.payee,
            lives,
        };
        report.problems.extend(truth.problems(told).await?);
        Ok(())
    }

    async fn place(&self, plan: &Plan, tries: u32) -> anyhow::Result<Place> {
        let mut fleet = Fleet::builder();
        for name in ["primary", "second", "third"] {
            fleet = fleet.endpoint(name, self.world.chain.url(), Program::new());
        }
        let fleet = fleet.start().await?;
        let signer = self.signer(plan, tries)?;
        let name = format!("run_{:x}", signer.address());
        let store = match plan.setting.backend {
            Backend::Sqlite => Store::Sqlite(self.folder.path().join(format!("{name}.db"))),
            Backend::Postgres => Store::Postgres { url: self.database.clone(), schema: name },
        };
        let mut orders = Orders::new(&self.world.contracts, fleet.urls(), store);
        orders.key = signer.to_bytes();
        orders.graph = Deployment::key(&signer.address().to_string());
        Ok(Place { fleet, orders, signer })
    }

    /// The account of a run.
    fn signer(&self, plan: &Plan, tries: u32) -> anyhow::Result<PrivateKeySigner> {
        let key: B256 = keccak256(format!("{} {plan} {tries}", self.seed));
        Ok(PrivateKeySigner::from_bytes(&key)?)
    }
}

/// Whom the account of a run pays: nobody else does.
fn payee(owner: Address) -> Address {
    Address::from_word(keccak256(owner))
}
