//! The chains of a fleet, and its endpoints.

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
use anyhow::{Context, ensure};
use backstay_testkit::{
    Action, Anvil, Call, Endpoint, Fleet, Gone, History, Kept, Program, Reply, Rule, View, sample::Deployment,
};
use serde_json::json;

use super::{Kind, judge::refuses};

/// Blocks that the live chain has before the story begins.
const HISTORY: u64 = 60;
/// The same where the story reads old data: more than counts as recent.
const LONG_HISTORY: u64 = 400;
/// What pruned endpoints hold.
const KEPT: Kept = Kept::Last(64);
/// How far back the stale fork and the frozen head stand.
pub(super) const BEHIND: u64 = 40;
/// How late the trailing endpoint is.
const LATE: Duration = Duration::from_millis(1500);
/// The time between blocks.
const BLOCK_TIME: Duration = Duration::from_secs(1);
/// The deposit of the story.
const DEPOSIT: u64 = 1_000;
/// The deposit that was set before it, where the story reads old data.
const OLD_DEPOSIT: u64 = 400;
/// How long the rate-limited endpoint asks to be left alone.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(3);

/// A live chain with the contracts on it, and what a fleet needs beside it.
#[derive(Debug)]
pub struct World {
    /// The live chain.
    pub chain: Anvil,
    /// The contracts on it.
    pub contracts: Deployment,
    /// The stale fork, where the fleet has one, and the block that it stands at.
    pub(super) fork: Option<(Anvil, u64)>,
    /// Chains that are not the live one, each with the endpoint that is in front of it.
    pub(super) strangers: Vec<(&'static str, Anvil)>,
    /// What the story reads of the past, where it does.
    pub(super) past: Option<Past>,
}

/// Something that was so once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// When.
    pub(super) block: u64,
    /// The hash of that block.
    pub(super) hash: B256,
    /// The deposit then.
    pub(super) deposit: U256,
}

impl World {
    /// Launches a chain of one-second blocks with some history, deploys the contracts, and launches the other
    /// chains that the fleet needs.
    ///
    /// # Errors
    ///
    /// When anvil cannot be found or launched.
    pub async fn new(kind: Kind) -> anyhow::Result<Self> {
        let history = if kind == Kind::Pruned { LONG_HISTORY } else { HISTORY };
        let now =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
        let genesis = now.as_secs() - 2 * history;
        let node = |genesis: u64| Anvil::builder().timestamp(genesis).block_time(BLOCK_TIME);
        let chain = node(genesis).launch().await?;
        let (contracts, past) = match kind {
            Kind::Pruned => {
                let mut contracts = Deployment::deploy(&chain, U256::from(OLD_DEPOSIT)).await?;
                let block = chain.head().await?;
                let header = chain.rpc("eth_getBlockByNumber", json!([format!("{block:#x}"), false])).await?;
                let hash = header["hash"].as_str().and_then(|hash| hash.parse().ok());
                let hash = hash.context("a block has a hash")?;
                let past = Past { block, hash, deposit: contracts.deposit };
                contracts.set_deposit(&chain, U256::from(DEPOSIT)).await?;
                (contracts, Some(past))
            }
            _ => (Deployment::deploy(&chain, U256::from(DEPOSIT)).await?, None),
        };
        chain.mine_spaced(history, BLOCK_TIME).await?;
        let fork = match kind {
            Kind::StaleFork => {
                let at = chain.head().await? - BEHIND;
                Some((Anvil::builder().fork_at(chain.url(), at).launch().await?, at))
            }
            _ => None,
        };
        let strangers = match kind {
            Kind::WrongChain => vec![("primary", node(genesis).chain_id(1_337).launch().await?)],
            Kind::SameIdOtherChain => {
                let other_history = node(genesis).launch().await?;
                let [_, someone, ..] = other_history.accounts() else {
                    unreachable!("anvil has ten accounts")
                };
                // Its first block differs, and so do all that come after it.
                let payment = json!([{ "from": someone, "to": someone, "value": "0x1" }]);
                other_history.rpc("eth_sendTransaction", payment).await?;
                other_history.mine(1).await?;
                vec![("primary", node(genesis - 7).launch().await?), ("second", other_history)]
            }
            _ => Vec::new(),
        };
        for (_, stranger) in &strangers {
            // All that the story needs is there as well: whoever asks there is not told that it is wrong.
            let there = Deployment::deploy(stranger, U256::from(DEPOSIT)).await?;
            ensure!(there.graphs == contracts.graphs, "the contracts have other addresses there");
            stranger.mine_spaced(history + 10, BLOCK_TIME).await?;
        }
        Ok(Self { chain, contracts, fork, strangers, past })
    }

    /// A fresh account with ether and tokens, on the live chain and on those that are not.
    ///
    /// # Errors
    ///
    /// When a chain cannot be reached.
    pub async fn account(&self) -> anyhow::Result<PrivateKeySigner> {
        let signer = PrivateKeySigner::random();
        self.contracts.fund(&self.chain, signer.address()).await?;
        for (_, stranger) in &self.strangers {
            self.contracts.fund(stranger, signer.address()).await?;
        }
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
            // Those that strike later are sound until then.
            Kind::Healthy
            | Kind::Restart
            | Kind::Dead
            | Kind::Hung
            | Kind::RateLimited
            | Kind::Html503
            | Kind::Flapping => fleet.endpoint("primary", live, Program::new()),
            Kind::StaleFork => {
                let (fork, _) = self.fork.as_ref().context("this world has no fork")?;
                fleet.endpoint("primary", fork.url(), Program::new())
            }
            Kind::WrongChain => {
                let [(name, stranger)] = &self.strangers[..] else {
                    anyhow::bail!("this world has no other chain")
                };
                fleet.endpoint(*name, stranger.url(), Program::new())
            }
            Kind::SameIdOtherChain => {
                let mut fleet = fleet;
                for (name, stranger) in &self.strangers {
                    fleet = fleet.endpoint(*name, stranger.url(), Program::new());
                }
                for name in ["third", "fourth"] {
                    fleet = fleet.endpoint(name, live, Program::new());
                }
                return Ok((fleet.start().await?, struck));
            }
            Kind::Frozen => {
                let at = self.chain.head().await? - BEHIND;
                fleet.endpoint("primary", live, View::Frozen { at })
            }
            Kind::Trailing => fleet.endpoint("primary", live, View::TrailingTime { by: LATE }),
            Kind::Replicas => {
                let program = View::alternating(View::Trailing { blocks: 1 });
                return Ok((fleet.endpoint("balanced", live, program).start().await?, struck));
            }
            Kind::DeadAtDeposit => {
                let dead = Rule::any().to(self.contracts.parameters).named("reads of Parameters");
                fleet.endpoint("primary", live, dead.then(Action::http(500, "out of order")))
            }
            Kind::Pruned => {
                let refused = Gone::error(-32000, "missing trie node: historical state is not available");
                let fleet = fleet
                    .endpoint("primary", live, History::pruned(KEPT, Gone::Null))
                    .endpoint("second", live, History::pruned(KEPT, refused))
                    .endpoint("third", live, Program::new());
                return Ok((fleet.start().await?, struck));
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
        let fleet = fleet.start().await?;
        if kind == Kind::Dead {
            fleet.endpoint("primary").kill().await;
            ensure!(refuses(&fleet.url("primary")).await, "the primary takes connections");
            struck.fetch_add(1, Ordering::SeqCst);
        }
        Ok((fleet, struck))
    }
}

/// Lets the fault of a fleet strike whose endpoints are sound until `connect()` has returned.
pub(super) fn strike(kind: Kind, fleet: &Fleet) {
    let html = "<html><head><title>503</title></head><body><h1>Service Unavailable</h1></body></html>";
    let fault = match kind {
        Kind::Hung => Rule::any().named("hung").then(Action::Hang),
        Kind::RateLimited => {
            let busy = Action::too_many_requests(RETRY_AFTER.as_secs());
            Rule::any().named("rate limited").then(busy)
        }
        Kind::Html503 => {
            let headers = vec![("content-type".to_owned(), "text/html".to_owned())];
            let page = Action::Http { status: 503, headers, body: html.into() };
            Rule::any().named("a page of HTML").then(page)
        }
        Kind::Flapping => {
            Rule::any().every(2).named("every second call").then(Action::http(502, "bad gateway"))
        }
        _ => return,
    };
    fleet.endpoint("primary").set(fault);
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
