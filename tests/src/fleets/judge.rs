//! What must hold when the story is over, read from the chains and from the endpoints' records.

use std::{collections::BTreeMap, io, time::Duration};

use alloy::primitives::{Address, B256};
use anyhow::Context;
use backstay::trail::What;
use backstay_testkit::{Anvil, Call, Fleet, Mark, Outcome};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use url::Url;

use super::{
    Kind, World,
    world::{BEHIND, RETRY_AFTER},
};
use crate::report::FleetReport;

/// How long after a refusal calls may still arrive that were under way by then.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// Holds the fleet against the ground truth.
pub(super) async fn judge(
    kind: Kind,
    world: &World,
    fleet: &Fleet,
    connected: Mark,
    owner: Address,
    report: &mut FleetReport,
) -> anyhow::Result<()> {
    count(world, owner, report).await?;
    match kind {
        Kind::StaleFork => {
            let (fork, at) = world.fork.as_ref().context("this world has no fork")?;
            let (stale, live) = (fork.head().await?, world.chain.head().await?);
            if stale == *at && live >= at + BEHIND {
                report.faults_fired += 1;
            } else {
                report.problem(format!("the fork stood at {at}; it is at {stale}, the live chain at {live}"));
            }
            unused(fleet, connected, "primary", report);
        }
        Kind::WrongChain | Kind::SameIdOtherChain => {
            for (name, stranger) in &world.strangers {
                unused(fleet, connected, name, report);
                stranger_left_alone(stranger, name, owner, report).await?;
                let shown = shown(fleet, name, &world.chain).await?;
                if shown == 0 {
                    report.problem(format!("{name} never showed that it is another chain"));
                }
                report.faults_fired += shown;
            }
        }
        Kind::Frozen => unused(fleet, connected, "primary", report),
        Kind::Dead => {
            if !refuses(&fleet.url("primary")).await || fleet.count("primary", "*") > 0 {
                report.problem("the primary took connections");
            }
        }
        Kind::Hung => {
            let hung = hung_attempts(fleet, connected, report);
            if hung.len() > 1 {
                report.problem(format!("{} attempts hung: {}", hung.len(), hung.join(", ")));
            }
        }
        Kind::RateLimited => {
            for early in too_early(fleet, connected) {
                report.problem(format!(
                    "the primary was asked again {early:?} after it asked to be left alone"
                ));
            }
        }
        Kind::Pruned => {
            for method in ["eth_getBlockByNumber", "eth_call"] {
                let met = |call: &Call| call.method == method && call.fault && call.endpoint == "primary";
                if !fleet.records_since(connected).iter().any(met) {
                    report.problem(format!("no {method} met the primary's null"));
                }
            }
        }
        Kind::DiesAfterApprove if report.pin_moves == 0 => report.problem("the session never moved"),
        Kind::Healthy
        | Kind::Trailing
        | Kind::Replicas
        | Kind::DeadAtDeposit
        | Kind::Html503
        | Kind::Flapping
        | Kind::ReplyLost
        | Kind::DiesAfterApprove
        | Kind::Restart => {}
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

/// Nothing of the flow may have been asked there since a mark.
fn unused(fleet: &Fleet, since: Mark, endpoint: &str, report: &mut FleetReport) {
    for method in used_after(fleet, since, endpoint) {
        report.problem(format!("after connect() {endpoint} was asked for {method}"));
    }
    let asked = report.trail.events().iter().filter_map(|event| match &event.what {
        What::Call { endpoint: asked, method, .. } if asked.as_str() == endpoint => Some(method.clone()),
        _ => None,
    });
    for method in asked.collect::<Vec<_>>() {
        report.problem(format!("the session asked {endpoint} for {method}"));
    }
}

/// What an endpoint was asked since a mark, other than what the head tracker asks everybody: which chain it is of,
/// and for blocks.
pub fn used_after(fleet: &Fleet, since: Mark, endpoint: &str) -> Vec<String> {
    let calls = fleet.records_since(since).into_iter().filter(|call| call.endpoint == endpoint);
    calls.map(|call| call.method).filter(|method| !TRACKED.contains(&method.as_str())).collect()
}

/// What the head tracker asks. A session that asks the like has it in its trail.
const TRACKED: [&str; 2] = ["eth_chainId", "eth_getBlockByNumber"];

/// What an account did on another chain: nothing.
async fn stranger_left_alone(
    stranger: &Anvil,
    name: &str,
    owner: Address,
    report: &mut FleetReport,
) -> anyhow::Result<()> {
    let nonce = stranger.rpc("eth_getTransactionCount", json!([owner, "pending"])).await?;
    if nonce != "0x0" {
        report.problem(format!("the chain behind {name} took {nonce} transactions of the account"));
    }
    Ok(())
}

/// How often an endpoint answered who it is in another way than the live chain does.
async fn shown(fleet: &Fleet, endpoint: &str, live: &Anvil) -> anyhow::Result<u64> {
    let mut known: BTreeMap<String, Value> = BTreeMap::new();
    let mut shown = 0;
    for call in fleet.records().into_iter().filter(|call| call.endpoint == endpoint) {
        let by_number = call.method == "eth_getBlockByNumber" && call.params[0] != "latest";
        let (true, Some(answer)) = (by_number || call.method == "eth_chainId", call.outcome.result()) else {
            continue;
        };
        let question = format!("{} {}", call.method, call.params);
        let right = match known.get(&question) {
            Some(right) => right.clone(),
            None => {
                let right = live.rpc(&call.method, call.params.clone()).await?;
                known.insert(question, right.clone());
                right
            }
        };
        let who = |answer: &Value| answer.get("hash").unwrap_or(answer).clone();
        // A block that only one of them has yet says nothing.
        if !answer.is_null() && !right.is_null() && who(answer) != who(&right) {
            shown += 1;
        }
    }
    Ok(shown)
}

/// Whether connections to an address are refused.
pub(super) async fn refuses(url: &Url) -> bool {
    let Ok(addresses) = url.socket_addrs(|| None) else { return false };
    let connected = TcpStream::connect(&addresses[..]).await;
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The attempts of the story that met an endpoint that hangs.
fn hung_attempts(fleet: &Fleet, since: Mark, report: &FleetReport) -> Vec<String> {
    let tracked = |method: &str| TRACKED.contains(&method);
    let records = fleet.records_since(since);
    let sent: Vec<B256> = fleet.records().iter().filter_map(Call::tx_hash).collect();
    let hung =
        |call: &Call| call.outcome == Outcome::Hung && !tracked(&call.method) && !probes_history(call, &sent);
    let mut attempts: Vec<String> =
        records.iter().filter(|call| hung(call)).map(|call| call.method.clone()).collect();
    for event in report.trail.events() {
        if let What::Call { method, verdict, times, .. } = &event.what
            && tracked(method)
            && verdict == "timeout"
        {
            attempts.extend((0..*times).map(|_| method.clone()));
        }
    }
    attempts
}

/// Whether a call is a probe of what an endpoint holds of the past, on behalf of no read: at a height by its number, as
/// no session asks, or for a transaction that the story did not send.
fn probes_history(call: &Call, sent: &[B256]) -> bool {
    let numbered =
        |block: &Value| block.as_str().is_some_and(|text| text.starts_with("0x") && text.len() < 66);
    match call.method.as_str() {
        "eth_getTransactionCount" => numbered(&call.params[1]),
        "eth_getLogs" => numbered(&call.params[0]["fromBlock"]),
        "eth_getTransactionReceipt" => {
            let hash = call.params[0].as_str().and_then(|hash| hash.parse().ok());
            hash.is_none_or(|hash: B256| !sent.contains(&hash))
        }
        _ => false,
    }
}

/// How long after a refusal with `Retry-After` each call arrived that came before the time was over.
fn too_early(fleet: &Fleet, since: Mark) -> Vec<Duration> {
    let mut refused: Option<Duration> = None;
    let mut early = Vec::new();
    for call in fleet.records_since(since) {
        if call.endpoint != "primary" || call.outcome != Outcome::Http(429) {
            continue;
        }
        match refused.map(|refused| call.at.saturating_sub(refused)) {
            Some(passed) if passed <= UNDER_WAY => {}
            Some(passed) if passed < RETRY_AFTER => early.push(passed),
            Some(_) | None => refused = Some(call.at),
        }
    }
    early
}
