//! Who serves the right chain: chain id, genesis and branch, before an endpoint serves anything (E1).

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use alloy::primitives::{B256, U64};
use backstay_core::{
    EndpointName, Error, ErrorKind, Result,
    endpoint::{EndpointId, Header, Identity, Tie, judge_branch, judge_genesis},
    failure::{FaultKind, Verdict},
};
use futures::{
    StreamExt,
    future::{join_all, select},
    stream::FuturesUnordered,
};
use tokio::time::Instant;

use crate::{
    config::{EndpointConfig, ProviderConfig},
    endpoints::probe::probe,
    endpoints::track::{Branch, track},
    endpoints::{Endpoints, Shared, now, time_of_day},
};

/// How many different heights the branch is compared at.
const BRANCH_HEIGHTS: usize = 8;
/// How far below the head the block time is measured from.
const BASELINE: u64 = 16;

/// How long a disagreement is given to settle: looks are taken again after these times.
const LOOKS_AGAIN: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// How long slower endpoints are waited for once one has answered.
const STRAGGLERS: Duration = Duration::from_secs(3);

/// What an endpoint says of itself.
pub(crate) struct Facts {
    pub(crate) chain_id: u64,
    /// `None` where it no longer holds block 0.
    pub(crate) genesis: Option<B256>,
    pub(crate) head: Header,
}

impl Facts {
    /// Whether it no longer holds block 0, where its hash is known: something else has to tell its history.
    pub(crate) fn lacks(&self, genesis: Option<B256>) -> bool {
        self.genesis.is_none() && genesis.is_some()
    }
}

impl Endpoints {
    /// Connects: asks every endpoint who it is, and starts the head tracker.
    ///
    /// `recorded` is the genesis hash that the journal holds, if any. An endpoint that does not answer does
    /// not stop it; it is identified when it comes back.
    ///
    /// # Errors
    ///
    /// A configuration error; [`ErrorKind::Unavailable`] when no endpoint answers;
    /// [`ErrorKind::WrongChain`] when those that do serve another chain; [`ErrorKind::IdentityAmbiguous`]
    /// when they disagree and nothing decides.
    pub async fn connect(
        chain_id: u64,
        endpoints: &[EndpointConfig],
        config: ProviderConfig,
        recorded: Option<B256>,
    ) -> Result<Self> {
        let timeout = config.connect_timeout;
        let genesis = config.genesis.or(recorded);
        let shared = Arc::new(Shared::new(chain_id, endpoints, config)?);
        if let Some(genesis) = genesis {
            // Set once: nobody else has it yet.
            let _ = shared.genesis.set(Some(genesis));
        }
        match tokio::time::timeout(timeout, shared.identify(recorded)).await {
            Ok(identified) => identified?,
            Err(_) => {
                let late =
                    format!("their identity could not be checked within {timeout:?} (`connect_timeout`)");
                shared.someone(vec![late])?;
            }
        }
        let watching = track(Arc::downgrade(&shared), shared.roster.clone());
        let probing = probe(Arc::downgrade(&shared), shared.probes_due.clone());
        let tracker = tokio::spawn(async move {
            select(pin!(watching), pin!(probing)).await;
        });
        Ok(Self::new(shared, tracker.abort_handle()))
    }

    /// The hash of block 0 that the endpoints were held against.
    pub fn genesis(&self) -> Option<B256> {
        self.shared.genesis.get().copied().flatten()
    }
}

impl Shared {
    async fn identify(&self, recorded: Option<B256>) -> Result<()> {
        let (mut known, mut why) = self.roll_call().await;
        known.retain(|(id, facts)| match self.mismatch(facts, None) {
            None => true,
            Some(wrong) => {
                why.push(format!("{}: {wrong}", self.name(*id)));
                self.identified(*id, Identity::Wrong(wrong));
                false
            }
        });
        let genesis = self.agree_on_genesis(&mut known, recorded, &mut why)?;
        // Set once: `connect` runs this once.
        let _ = self.genesis.set(genesis);
        let lacking = self.set_aside(&mut known, genesis, &mut why).await;
        self.pool().tell_time(now(), time_of_day());
        for (id, facts) in &known {
            self.pool().on_head(*id, facts.head, now());
        }
        self.agree_on_branch(&mut known, &mut why).await?;
        for (id, _) in &known {
            self.identified(*id, Identity::Verified);
        }
        for (id, facts) in &lacking {
            self.pool().on_head(*id, facts.head, now());
            // The tracker looks again, and at its branch, where nothing tells now.
            let identity = self.history_of(*id).await.unwrap_or(Identity::Unverified);
            let identity = match (identity, self.branch_of(*id, facts.head).await) {
                (Identity::Verified, Ok(Branch::Other(wrong))) => Identity::Wrong(wrong),
                (Identity::Verified, Ok(Branch::Undecided) | Err(_)) => Identity::Unverified,
                (identity, _) => identity,
            };
            match &identity {
                Identity::Wrong(wrong) => why.push(format!("{}: {wrong}", self.name(*id))),
                Identity::Unverified => why.push(format!(
                    "{}: it no longer holds block 0, and nothing else tells its history; set `provider.checkpoint` \
                     to a block that it holds",
                    self.name(*id)
                )),
                Identity::Verified | Identity::Unknown => {}
            }
            self.identified(*id, identity);
        }
        if let Some((id, facts)) = known.iter().max_by_key(|(_, facts)| facts.head.number) {
            let below = facts.head.number.saturating_sub(BASELINE);
            if let Ok(Some(header)) = self.header(*id, &format!("\"0x{below:x}\"")).await {
                self.pool().on_ancestor(*id, header);
            }
        }
        self.someone(why)
    }

    /// Takes out those that no longer hold block 0, where its hash is known, and do not hold the configured checkpoint
    /// either: they have no say on the branch.
    async fn set_aside(
        &self,
        known: &mut Vec<(EndpointId, Facts)>,
        genesis: Option<B256>,
        why: &mut Vec<String>,
    ) -> Vec<(EndpointId, Facts)> {
        let mut lacking = Vec::new();
        for (id, facts) in std::mem::take(known) {
            if !facts.lacks(genesis) {
                known.push((id, facts));
                continue;
            }
            let told = match self.config.checkpoint {
                Some(_) => self.history_of(id).await.unwrap_or(Identity::Unverified),
                None => Identity::Unverified,
            };
            match told {
                Identity::Verified => known.push((id, facts)),
                Identity::Wrong(wrong) => {
                    why.push(format!("{}: {wrong}", self.name(id)));
                    self.identified(id, Identity::Wrong(wrong));
                }
                Identity::Unverified | Identity::Unknown => lacking.push((id, facts)),
            }
        }
        lacking
    }

    /// Asks every endpoint who it is. Once one has answered, the others are waited for only a little longer:
    /// one that hangs is identified when it speaks again.
    async fn roll_call(&self) -> (Vec<(EndpointId, Facts)>, Vec<String>) {
        let ids: Vec<EndpointId> = self.pool().ids().collect();
        let mut silent: BTreeSet<EndpointId> = ids.iter().copied().collect();
        let mut asked: FuturesUnordered<_> =
            ids.into_iter().map(async |id| (id, self.facts(id).await)).collect();
        let (mut known, mut why) = (Vec::new(), Vec::new());
        // The other half of the time is for comparing those that answer.
        let half = self.config.connect_timeout / 2;
        let mut until = Instant::now() + half;
        loop {
            match tokio::time::timeout_at(until, asked.next()).await {
                Err(_) | Ok(None) => break,
                Ok(Some((id, Ok(facts)))) => {
                    silent.remove(&id);
                    if known.is_empty() {
                        until = until.min(Instant::now() + STRAGGLERS);
                    }
                    known.push((id, facts));
                }
                Ok(Some((id, Err(verdict)))) => {
                    silent.remove(&id);
                    why.push(format!("{}: {}", self.name(id), verdict.label()));
                }
            }
        }
        why.extend(silent.into_iter().map(|id| format!("{}: no answer yet", self.name(id))));
        known.sort_by_key(|(id, _)| *id);
        (known, why)
    }

    /// An error unless an endpoint can be asked.
    fn someone(&self, why: Vec<String>) -> Result<()> {
        let (usable, wrong, all) = {
            let pool = self.pool();
            let count =
                |pick: fn(&Identity) -> bool| pool.ids().filter(|id| pick(pool.get(*id).identity())).count();
            (
                count(|identity| matches!(identity, Identity::Verified | Identity::Unverified)),
                count(|identity| matches!(identity, Identity::Wrong(_))),
                pool.ids().count(),
            )
        };
        if usable > 0 {
            for reason in &why {
                tracing::warn!(%reason, "an endpoint is not in use");
            }
            return Ok(());
        }
        let why = why.join("; ");
        let chain_id = self.chain_id;
        Err(if wrong > 0 && wrong == all {
            Error::new(
                ErrorKind::WrongChain,
                format!(
                    "no endpoint serves chain {chain_id}: {why}; check `chain_id` and the urls of the endpoints"
                ),
            )
        } else {
            let message =
                format!("no endpoint of chain {chain_id} can be used: {why}; check the urls and the network");
            Error::new(ErrorKind::Unavailable, message).with_retry(backstay_core::Retry::Later)
        })
    }

    fn agree_on_genesis(
        &self,
        known: &mut Vec<(EndpointId, Facts)>,
        recorded: Option<B256>,
        why: &mut Vec<String>,
    ) -> Result<Option<B256>> {
        let votes: Vec<(EndpointName, B256)> =
            known.iter().filter_map(|(id, facts)| Some((self.name(*id), facts.genesis?))).collect();
        let genesis = judge_genesis(self.config.genesis, recorded, &votes).map_err(|tie| {
            ambiguous(tie, "block 0", "set `provider.genesis` to the hash of block 0 of your chain")
        })?;
        known.retain(|(id, facts)| match self.mismatch(facts, genesis) {
            None => true,
            Some(wrong) => {
                why.push(format!("{}: {wrong}", self.name(*id)));
                self.identified(*id, Identity::Wrong(wrong));
                false
            }
        });
        Ok(genesis)
    }

    /// Compares the endpoints at the heads of each: a private branch shares the chain's genesis, and mines
    /// whatever it is sent.
    async fn agree_on_branch(
        &self,
        known: &mut Vec<(EndpointId, Facts)>,
        why: &mut Vec<String>,
    ) -> Result<()> {
        let mut heights: Vec<u64> = known.iter().map(|(_, facts)| facts.head.number).collect();
        heights.sort_unstable();
        heights.dedup();
        heights.truncate(BRANCH_HEIGHTS);
        for height in heights {
            let mut minority = self.minority_at(height, known).await;
            for wait in LOOKS_AGAIN {
                if minority.as_ref().is_ok_and(Vec::is_empty) {
                    break;
                }
                // A reorganisation that is under way looks the same for a moment.
                tokio::time::sleep(wait).await;
                minority = self.minority_at(height, known).await;
            }
            let minority = minority?;
            known.retain(|(id, _)| match minority.iter().find(|(other, _)| other == id) {
                None => true,
                Some((_, hash)) => {
                    let wrong = format!("another branch: its block {height} is {hash}, most have another");
                    why.push(format!("{}: {wrong}", self.name(*id)));
                    self.identified(*id, Identity::Wrong(wrong));
                    false
                }
            });
        }
        Ok(())
    }

    /// The endpoints whose block at a height is not the one that most have.
    async fn minority_at(
        &self,
        height: u64,
        known: &[(EndpointId, Facts)],
    ) -> Result<Vec<(EndpointId, B256)>> {
        let at = format!("\"0x{height:x}\"");
        let reach = known.iter().filter(|(_, facts)| facts.head.number >= height);
        let ask = async |id: EndpointId| Some((id, self.header(id, &at).await.ok()??.hash));
        let shown: Vec<(EndpointId, B256)> =
            join_all(reach.map(|(id, _)| ask(*id))).await.into_iter().flatten().collect();
        let votes: Vec<_> = shown.iter().map(|(id, hash)| (self.name(*id), *hash)).collect();
        let right = judge_branch(&votes).map_err(|tie| {
            let block = format!("block {height}");
            ambiguous(
                tie,
                &block,
                "remove the endpoint that is not on your chain, or add a third that decides",
            )
        })?;
        Ok(shown.into_iter().filter(|(_, hash)| Some(*hash) != right).collect())
    }

    /// Asks one endpoint who it is.
    pub(crate) async fn facts(&self, id: EndpointId) -> Result<Facts, Verdict> {
        let chain_id = self.track(id, &self.call("eth_chainId", "[]")).await?;
        let chain_id: U64 = chain_id
            .result()
            .and_then(|result| serde_json::from_str(result).ok())
            .ok_or(Verdict::Fault(FaultKind::NotJson))?;
        // By number: `earliest` is the oldest block that is held.
        let genesis = match self.header(id, "\"0x0\"").await {
            Ok(header) => header.map(|header| header.hash),
            Err(Verdict::Missing { .. } | Verdict::Unsupported | Verdict::Unclassified) => None,
            Err(other) => return Err(other),
        };
        let head = self.header(id, "\"latest\"").await?.ok_or(Verdict::NotYet)?;
        Ok(Facts { chain_id: chain_id.to(), genesis, head })
    }

    /// What is wrong with what an endpoint says of itself.
    pub(crate) fn mismatch(&self, facts: &Facts, genesis: Option<B256>) -> Option<String> {
        if facts.chain_id != self.chain_id {
            return Some(format!("it serves chain {}, not {}", facts.chain_id, self.chain_id));
        }
        match (facts.genesis, genesis) {
            (Some(shown), Some(right)) if shown != right => {
                let whence = if self.config.genesis.is_some() {
                    "configured"
                } else {
                    "known, from the journal or the others"
                };
                Some(format!("another history: its block 0 is {shown}, not {right} as is {whence}"))
            }
            _ => None,
        }
    }
}

fn ambiguous(tie: Tie, block: &str, what_to_do: &str) -> Error {
    let message = format!(
        "the endpoints disagree about {block}: {} on `{}`, {} on `{}`, and no majority decides; {what_to_do}",
        tie.left.0, tie.left.1, tie.right.0, tie.right.1
    );
    Error::new(ErrorKind::IdentityAmbiguous { left: tie.left, right: tie.right }, message)
}
