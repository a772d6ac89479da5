//! Broadcast and wait: everything after the first byte may have left.

use std::{fmt, time::Duration};

use alloy::primitives::{Address, B256, Bytes, TxHash, U64};
use backstay_core::{
    BlockRef, Delivery, EndpointName, Error, ErrorKind, Result, Retry,
    failure::{RefusalKind, Verdict},
    session::What,
    tx::{Attempt, Inclusion, Outcome, Record, SendAnswer, StepId},
};
use backstay_provider::{Corroboration, FoundReceipt, Reach, Session, Spread, Submission};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::{driver::Driver, ledger::Ledger, prepare::count};

/// The least time between two sends of bytes that nobody took, unless a block has come in between.
const LEAST_RESEND: Duration = Duration::from_secs(1);
/// How many blocks are searched at a time for the transaction that used a nonce.
const SEARCHED: u64 = 256;

/// Whether signed bytes can be known not to have left yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// This process signed them just now, and no byte has left.
    Fresh,
    /// They count as sent (T0): they were found in the journal, or an endpoint may have them.
    MaybeSent,
}

/// How the wait for a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is in a block, and that is written down. The session is fenced there.
    Included(Inclusion),
    /// Its nonce went to another transaction, which was found in a block, final where an endpoint may have these
    /// bytes; that is written down, and the step can be prepared anew.
    Displaced,
    /// Every endpoint refused it, for a reason for which no pool ever keeps it. Its nonce is free again, and
    /// that is written down.
    Refused(RefusalKind),
}

impl Driver {
    /// Gets signed bytes included: looks for them on chain, sends them, waits for their receipt, and sends
    /// the same bytes again when two blocks have passed without them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`] after `inclusion_timeout`: the intent stays open. [`ErrorKind::Superseded`] when
    /// another run has taken the intent up. [`ErrorKind::Journal`] when the inclusion cannot be written down.
    ///
    /// # Cancel safety
    ///
    /// Dropping it stops the waiting, not the transaction.
    ///
    /// # Replay safety
    ///
    /// The bytes hold one nonce, however often they are sent.
    pub async fn settle(
        &self,
        ledger: &mut Ledger,
        session: &Session,
        step: StepId,
        attempt: &Attempt,
        mut freshness: Freshness,
    ) -> Result<Settled> {
        let deadline = Instant::now() + self.config.inclusion_timeout;
        let mut said = None;
        let mut displaced = None;
        let mut search = Search::default();
        let waiting = async {
            session.step(ledger.intent().label_of(step)).await;
            if freshness == Freshness::MaybeSent {
                // A retry of a submission looks at the delivery first.
                if let Some(found) = self.look(session, attempt, Reach::Everywhere).await {
                    return self.include(ledger, session, step, &found).await;
                }
                // Whoever signed these bytes may still be alive: from here on its records are refused.
                ledger.append(vec![Record::Resumed]).await?;
            }
            let mut asked_at = self.height();
            loop {
                // Again, they go to everybody: whoever took them may have lost them.
                let first = session.endpoints().config().broadcast.spread();
                let spread = if said.is_none() { first } else { Spread::Everybody };
                let submission = session.submit(&attempt.raw, attempt.hash, spread).await;
                note(session, &submission);
                let answer = submission.answer;
                match answer {
                    SendAnswer::Refused(kind)
                        if freshness == Freshness::Fresh && submission.unanimous && kind.is_final() =>
                    {
                        return self.refuse(ledger, step, attempt, kind).await;
                    }
                    SendAnswer::Accepted | SendAnswer::Unknown => freshness = Freshness::MaybeSent,
                    SendAnswer::Refused(_) | SendAnswer::NotSent => {}
                }
                if said != Some(answer) {
                    let submitted = Record::Submitted { hash: attempt.hash, answer };
                    ledger.append(vec![submitted]).await.map_err(after_sending)?;
                    said = Some(answer);
                }
                if answer == SendAnswer::Refused(RefusalKind::NonceTooLow)
                    && let Some(other) = self.displaced_by(ledger, session, step, attempt, &mut search).await
                {
                    // Bytes that an endpoint may have keep their nonce until that is final: a reorganisation
                    // could bring them back.
                    if freshness == Freshness::Fresh || self.is_final(session, other.block).await {
                        let Displaced { nonce, by, block } = other;
                        ledger.append(vec![Record::Displaced { nonce, by, block }]).await?;
                        session.note(What::Note { text: other.to_string() });
                        return Ok(Settled::Displaced);
                    }
                    session.note(What::Note { text: format!("{other}; waiting until that is final") });
                    displaced = Some(other);
                }
                let sent_at = self.height();
                // Two blocks without it: a pool may have lost it, or never had it. When none has taken it, the
                // next block may change their minds, or a moment on a chain that is idle without it.
                let (patience, again_at) = match answer {
                    SendAnswer::Accepted => (2, None),
                    SendAnswer::Refused(_) | SendAnswer::Unknown | SendAnswer::NotSent => {
                        (1, Some(Instant::now() + self.three_blocks().max(LEAST_RESEND)))
                    }
                };
                let again = || again_at.is_some_and(|at| Instant::now() >= at);
                while self.height() < sent_at + patience && !again() {
                    // Elsewhere only once there is a block that the pin may be late with.
                    let height = self.height();
                    let reach = if height > asked_at { Reach::Everywhere } else { Reach::Pin };
                    asked_at = height;
                    if let Some(found) = self.look(session, attempt, reach).await {
                        return self.include(ledger, session, step, &found).await;
                    }
                    tokio::time::sleep(self.poll()).await;
                }
            }
        };
        match tokio::time::timeout_at(deadline, waiting).await {
            Ok(settled) => settled,
            Err(_) => Err(self.too_late(attempt, said, displaced)),
        }
    }

    /// What other endpoints say of the block of an inclusion, waiting for one to show it as long as the config
    /// says (T8).
    pub async fn corroborate(
        &self,
        session: &Session,
        inclusion: &Inclusion,
        by: Option<&EndpointName>,
    ) -> Corroboration {
        let wait = self.config.corroboration_wait;
        let wait = wait.unwrap_or_else(|| self.three_blocks().max(Duration::from_secs(6)));
        let until = Instant::now() + wait;
        let mut found = Corroboration::Absent;
        loop {
            // One that hangs does not stretch the wait.
            let asked = self.endpoints.corroborate(inclusion.block, by);
            found = tokio::time::timeout_at(until, asked).await.unwrap_or(found);
            let settled = matches!(found, Corroboration::Shown | Corroboration::Alone);
            if settled || Instant::now() >= until {
                let text = match found {
                    Corroboration::Shown => format!("block {} is corroborated", inclusion.block),
                    Corroboration::Alone => {
                        format!("no second endpoint can corroborate block {}", inclusion.block)
                    }
                    Corroboration::Absent => {
                        format!("no second endpoint has come to block {}", inclusion.block)
                    }
                    Corroboration::Contradicted(other) => {
                        format!("another endpoint has block {other} in place of {}", inclusion.block)
                    }
                };
                session.note(What::Note { text });
                return found;
            }
            tokio::time::sleep(self.poll()).await;
        }
    }

    /// Why an included transaction reverted: the same call at its block. Empty where the block's later
    /// transactions have changed what it depends on, or where it cannot be asked.
    pub async fn revert_data(&self, ledger: &Ledger, session: &Session, inclusion: &Inclusion) -> Bytes {
        let intent = ledger.intent();
        let call = &intent.content;
        let at = json!({"blockHash": inclusion.block.hash, "requireCanonical": true});
        let request =
            json!([{"from": intent.account, "to": call.to, "value": call.value, "input": call.input}, at]);
        match session.read("eth_call", &request.to_string()).await {
            Ok(Err(Verdict::Reverted(revert))) => revert.data,
            Ok(_) | Err(_) => Bytes::new(),
        }
    }

    /// Looks for the receipt. One from where the nonce was still unused cannot be of this chain.
    async fn look(&self, session: &Session, attempt: &Attempt, reach: Reach) -> Option<FoundReceipt> {
        let found = session.receipt(attempt.hash, reach).await?;
        let block = found.inclusion.block;
        if block.number <= attempt.unused_at {
            let text = format!(
                "{} serves a receipt in block {block}, where nonce {} was still unused: not believed",
                found.by, attempt.nonce
            );
            session.note(What::Note { text });
            return None;
        }
        Some(found)
    }

    async fn include(
        &self,
        ledger: &mut Ledger,
        session: &Session,
        step: StepId,
        found: &FoundReceipt,
    ) -> Result<Settled> {
        let inclusion = found.inclusion;
        let record = Record::Included { step, inclusion, by: found.by.clone() };
        ledger.append(vec![record]).await.map_err(after_sending)?;
        self.saw(ledger.intent().account, inclusion.block);
        session.carry(found);
        let how = if inclusion.succeeded { "succeeded" } else { "reverted" };
        session.note(What::Note { text: format!("included in block {}: {how}", inclusion.block) });
        Ok(Settled::Included(inclusion))
    }

    /// A first attempt that no endpoint took, and none ever will.
    async fn refuse(
        &self,
        ledger: &mut Ledger,
        step: StepId,
        attempt: &Attempt,
        kind: RefusalKind,
    ) -> Result<Settled> {
        let released = Record::Released { nonce: attempt.nonce };
        let ending = match step {
            StepId::Effect => Record::Finished { outcome: Outcome::Refused { kind } },
            StepId::Plan { .. } => Record::Abandoned { why: format!("every endpoint refused it: {kind}") },
        };
        ledger.append(vec![released, ending]).await?;
        Ok(Settled::Refused(kind))
    }

    /// The transaction that used the nonce in place of this attempt, found in a block: a count alone says that
    /// the nonce was used, not by whom, and it may have been this very attempt. The blocks are walked by hash, from
    /// the fence down to where the nonce was still unused. `None` where that is not known, or not yet.
    async fn displaced_by(
        &self,
        ledger: &Ledger,
        session: &Session,
        step: StepId,
        attempt: &Attempt,
        search: &mut Search,
    ) -> Option<Displaced> {
        if let Some(found) = search.found {
            return Some(found);
        }
        let account = ledger.intent().account;
        if search.next.is_none() {
            session.step(ledger.intent().label_of(step)).await;
            if count(session, account).await.ok()? <= attempt.nonce {
                return None;
            }
            search.next = Some(session.fence());
        }
        for _ in 0..SEARCHED {
            let at = search.next.filter(|at| at.number > attempt.unused_at)?;
            let request = json!([at.hash, true]).to_string();
            let block = session.read("eth_getBlockByHash", &request).await.ok()?.ok()?;
            let block: Block = serde_json::from_str::<Option<Block>>(&block).ok()??;
            if block.hash != at.hash {
                return None;
            }
            let uses = |used: &&Used| used.from == account && used.nonce.to::<u64>() == attempt.nonce;
            if let Some(used) = block.transactions.iter().find(uses) {
                search.next = None;
                if used.hash == attempt.hash {
                    return None;
                }
                search.found = Some(Displaced { nonce: attempt.nonce, by: used.hash, block: at.number });
                return search.found;
            }
            search.next = at.number.checked_sub(1).map(|number| BlockRef { number, hash: block.parent_hash });
        }
        None
    }

    /// Whether a block can no longer be reorganised away, by what the pin calls final.
    async fn is_final(&self, session: &Session, block: u64) -> bool {
        let finalized = session.read("eth_getBlockByNumber", "[\"finalized\",false]").await;
        let number =
            finalized.ok().and_then(|block| serde_json::from_str::<Option<Height>>(&block.ok()?).ok()?);
        number.is_some_and(|finalized| finalized.number.to::<u64>() >= block)
    }

    fn height(&self) -> u64 {
        self.endpoints.frontier().map_or(0, |head| head.number)
    }

    fn too_late(&self, attempt: &Attempt, said: Option<SendAnswer>, displaced: Option<Displaced>) -> Error {
        let delivery = match said {
            Some(SendAnswer::Refused(_)) => Delivery::Refused,
            Some(SendAnswer::NotSent) => Delivery::NotSent,
            Some(SendAnswer::Accepted | SendAnswer::Unknown) | None => Delivery::Unknown,
        };
        let why = match said {
            Some(SendAnswer::Refused(kind)) => format!("; endpoints refuse it: {kind}"),
            Some(SendAnswer::NotSent) => "; no endpoint could be sent to".to_owned(),
            Some(SendAnswer::Accepted | SendAnswer::Unknown) | None => String::new(),
        };
        let outlook = match displaced {
            Some(other) => format!("{other}, and it is signed anew once that is final"),
            None => "it may still be".to_owned(),
        };
        let message = format!(
            "transaction {} (nonce {}) was not included within {:?}{why}; {outlook}; the intent stays open and can \
             be sent again under the same key",
            attempt.hash, attempt.nonce, self.config.inclusion_timeout
        );
        Error::new(ErrorKind::Timeout, message).with_retry(Retry::Later).with_delivery(delivery)
    }
}

/// Another transaction that used a nonce.
#[derive(Clone, Copy, Debug)]
struct Displaced {
    nonce: u64,
    by: TxHash,
    block: u64,
}

impl fmt::Display for Displaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nonce {} was used by {} in block {}", self.nonce, self.by, self.block)
    }
}

/// How far the search for it has come.
#[derive(Default)]
struct Search {
    next: Option<BlockRef>,
    found: Option<Displaced>,
}

#[derive(Deserialize)]
struct Height {
    number: U64,
}

/// The parts of a block that tell who used a nonce.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block {
    hash: B256,
    parent_hash: B256,
    transactions: Vec<Used>,
}

#[derive(Deserialize)]
struct Used {
    hash: TxHash,
    from: Address,
    nonce: U64,
}

fn note(session: &Session, submission: &Submission) {
    let text = match (submission.answer, &submission.by) {
        (SendAnswer::Accepted, Some(by)) => format!("taken by {by}"),
        (SendAnswer::Accepted, None) => "taken".to_owned(),
        (SendAnswer::Refused(kind), _) => format!("refused: {kind}"),
        (SendAnswer::Unknown, _) => "it may have been taken: treated as sent".to_owned(),
        (SendAnswer::NotSent, _) => "no endpoint could be reached: nothing left".to_owned(),
    };
    session.note(What::Note { text });
}

fn after_sending(error: Error) -> Error {
    error.with_delivery(Delivery::Unknown)
}
