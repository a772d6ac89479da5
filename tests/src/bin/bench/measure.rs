//! Slices, pairs and ratios.

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

/// Pairs of slices; the interval below is that of the 10th and the 21st of 30, which holds the median in 95 %.
const PAIRS: usize = 30;
const LOW: usize = 9;
const HIGH: usize = 20;
const SLICE: Duration = Duration::from_millis(150);

/// A candidate against raw alloy: medians over the pairs.
pub(crate) struct Compared {
    /// Calls per second.
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// CPU time per call.
    pub(crate) cpu: f64,
    /// Allocations per call.
    pub(crate) allocs: f64,
    /// Calls that reached a server, per call.
    pub(crate) upstream: f64,
}

struct Slice {
    calls: f64,
    seconds: f64,
    cpu: f64,
    allocs: f64,
}

/// Takes turns between raw alloy and a candidate.
pub(crate) async fn compare(
    raw: &DynProvider,
    candidate: &DynProvider,
    tasks: usize,
    counted: impl Fn() -> u64,
    allocator: &'static StatsAlloc<System>,
) -> anyhow::Result<Compared> {
    // Connections are made, caches are warm.
    slice(raw, tasks, allocator).await?;
    slice(candidate, tasks, allocator).await?;
    let (mut rates, mut cpus, mut allocs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut made, mut reached) = (0.0, 0);
    for pair in 0..PAIRS {
        // Who goes first changes, so that going first is no advantage.
        let (one, other) = match pair % 2 {
            0 => {
                let one = slice(raw, tasks, allocator).await?;
                let before = counted();
                let other = slice(candidate, tasks, allocator).await?;
                reached += counted() - before;
                (one, other)
            }
            _ => {
                let before = counted();
                let other = slice(candidate, tasks, allocator).await?;
                reached += counted() - before;
                (slice(raw, tasks, allocator).await?, other)
            }
        };
        made += other.calls;
        rates.push((other.calls / other.seconds) / (one.calls / one.seconds));
        cpus.push((other.cpu / other.calls) / (one.cpu / one.calls));
        allocs.push((other.allocs / other.calls) / (one.allocs / one.calls));
    }
    rates.sort_by(f64::total_cmp);
    Ok(Compared {
        ratio: median(&mut rates.clone()),
        low: rates[LOW],
        high: rates[HIGH],
        cpu: median(&mut cpus),
        allocs: median(&mut allocs),
        upstream: reached as f64 / made,
    })
}

/// Calls, so many at once, for a slice of time.
async fn slice(
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
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    (values[middle] + values[middle.saturating_sub(1 - values.len() % 2)]) / 2.0
}

/// Keeps a process on one core where there are several: client and server do not share one.
pub(crate) fn pin_to(core: usize) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(id) = cores.get(core) {
        core_affinity::set_for_current(*id);
    }
}
