//! Slices, rounds and ratios.

use std::{
    alloc::System,
    time::{Duration, Instant},
};

use alloy::{
    primitives::Address,
    providers::{DynProvider, Provider},
};
use cpu_time::ProcessTime;
use futures::future::try_join_all;
use stats_alloc::{Region, StatsAlloc};

use crate::candidate::{Candidate, Farm};

/// How often each candidate has its turn; the interval below is that of the 10th and the 21st of 30, which holds the
/// median in 95 %.
pub(crate) const ROUNDS: usize = 30;
const LOW: usize = 9;
const HIGH: usize = 20;
const SLICE: Duration = Duration::from_millis(150);
/// How many calls a percentile is taken from.
pub(crate) const TAIL_CALLS: usize = 1_000;

/// What a candidate did in one turn.
pub(crate) struct Slice {
    pub(crate) calls: f64,
    seconds: f64,
    /// CPU time in seconds.
    pub(crate) cpu: f64,
    /// Allocations.
    pub(crate) allocs: f64,
    /// Calls that reached a server.
    pub(crate) reached: f64,
}

impl Slice {
    /// Calls per second.
    pub(crate) fn rate(&self) -> f64 {
        self.calls / self.seconds
    }
}

/// A median, and the interval that holds it in 95 %.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// Of [`ROUNDS`] values.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        Self {
            median: f64::midpoint(values[middle - 1], values[middle]),
            low: values[LOW],
            high: values[HIGH],
        }
    }
}

/// Rounds in which each candidate has its turn. Who goes first changes, so that going first is no advantage.
pub(crate) async fn rounds(
    candidates: &[Candidate],
    farm: &Farm,
    tasks: usize,
    allocator: &'static StatsAlloc<System>,
) -> anyhow::Result<Vec<Vec<Slice>>> {
    for candidate in candidates {
        // Connections are made, caches are warm.
        slice(&candidate.provider, tasks, allocator).await?;
    }
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let mut slices: Vec<Option<Slice>> = candidates.iter().map(|_| None).collect();
        for turn in 0..candidates.len() {
            let index = (round + turn) % candidates.len();
            let candidate = &candidates[index];
            let before = farm.reads(&candidate.servers);
            let mut measured = slice(&candidate.provider, tasks, allocator).await?;
            measured.reached = (farm.reads(&candidate.servers) - before) as f64;
            slices[index] = Some(measured);
        }
        rounds.push(slices.into_iter().flatten().collect());
    }
    Ok(rounds)
}

/// Calls, so many at once, for a slice of time.
pub(crate) async fn slice(
    provider: &DynProvider,
    tasks: usize,
    allocator: &'static StatsAlloc<System>,
) -> anyhow::Result<Slice> {
    let region = Region::new(allocator);
    let cpu = ProcessTime::now();
    let begun = Instant::now();
    let task = async || {
        let mut calls = 0u64;
        while begun.elapsed() < SLICE {
            provider.get_balance(Address::ZERO).await?;
            calls += 1;
        }
        anyhow::Ok(calls)
    };
    let calls: u64 = try_join_all((0..tasks).map(|_| task())).await?.into_iter().sum();
    Ok(Slice {
        calls: calls as f64,
        seconds: begun.elapsed().as_secs_f64(),
        cpu: cpu.elapsed().as_secs_f64(),
        allocs: region.change().allocations as f64,
        reached: 0.0,
    })
}

/// How long each of [`TAIL_CALLS`] calls took, so many at once.
pub(crate) async fn latencies(provider: &DynProvider, tasks: usize) -> anyhow::Result<Vec<Duration>> {
    let task = async |calls: usize| {
        let mut took = Vec::with_capacity(calls);
        for _ in 0..calls {
            let begun = Instant::now();
            provider.get_balance(Address::ZERO).await?;
            took.push(begun.elapsed());
        }
        anyhow::Ok(took)
    };
    let share = |task: usize| TAIL_CALLS / tasks + usize::from(task < TAIL_CALLS % tasks);
    Ok(try_join_all((0..tasks).map(share).map(task)).await?.concat())
}

/// The time, in seconds, that so large a part of them did not take longer than.
pub(crate) fn percentile(mut took: Vec<Duration>, part: f64) -> f64 {
    took.sort_unstable();
    let rank = (took.len() as f64 * part).ceil() as usize;
    took[rank.clamp(1, took.len()) - 1].as_secs_f64()
}

/// Keeps a process on one core where there are several: client and server do not share one.
pub(crate) fn pin_to(core: usize) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(id) = cores.get(core) {
        core_affinity::set_for_current(*id);
    }
}
