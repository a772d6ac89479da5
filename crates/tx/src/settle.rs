//! Broadcast and wait: everything after the first byte may have left.

use std::time::Duration;

use alloy::primitives::Bytes;
use backstay_core::{
    Delivery, Error, ErrorKind, Result, Retry,
    failure::{RefusalKind, Verdict},
    session::What,
    tx::{Attempt, Inclusion, Outcome, Record, SendAnswer, StepId},
};
use backstay_provider::{FoundReceipt, Reach, Session, Submission};
use serde_json::json;
use tokio::time::Instant;

use crate::{driver::Driver, ledger::Ledger, prepare::count};

/// The least time between two sends of the same bytes, unless blocks have come in between.
const LEAST_RESEND: Duration = Duration::from_secs(1);

/// Whether signed bytes can be known not to have left yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// This process signed them just now and has not sent them.
    Fresh,
    /// They were found in the journal: they count as sent (T0).
    Recorded,
}

/// How the wait for a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is in a block, and that is written down. The session is fenced there.
    Included(Inclusion),
    /// Its nonce went to other bytes before it was ever taken; that is written down, and it can be prepared
    /// anew.
    Displaced,
    /// Every endpoint refused it, for a reason for which no pool keeps it. Its nonce is free again, and that
    /// is written down.
    Refused(RefusalKind),
}

impl Driver {
    /// Gets signed bytes included: looks for them on chain, sends them, waits for their receipt, and sends
    /// the same bytes again when two blocks have passed without them, or their time where nobody took them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`] after `inclusion_timeout`, with [`Delivery::Unknown`]: the intent stays open.
    /// [`ErrorKind::Journal`] when the inclusion cannot be written down.
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
        freshness: Freshness,
    ) -> Result<Settled> {
        let deadline = Instant::now() + self.config.inclusion_timeout;
        session.step(ledger.intent().label_of(step));
        // A retry of a submission looks at the delivery first.
        if freshness == Freshness::Recorded
            && let Some(found) = session.receipt(attempt.hash, Reach::Everywhere).await
        {
            return self.include(ledger, session, step, &found).await;
        }
        // Whether no byte has left yet, so that a refusal is final.
        let mut untouched = freshness == Freshness::Fresh;
        let mut said = None;
        loop {
            let submission = session.submit(&attempt.raw, attempt.hash).await;
            note(session, &submission);
            let answer = submission.answer;
            match answer {
                SendAnswer::Refused(kind) if untouched => {
                    return self.refused(ledger, session, step, attempt, kind).await;
                }
                SendAnswer::Refused(_) | SendAnswer::NotSent => {}
                SendAnswer::Accepted | SendAnswer::Unknown => untouched = false,
            }
            if said != Some(answer) {
                ledger
                    .append(vec![Record::Submitted { hash: attempt.hash, answer }])
                    .await
                    .map_err(after_sending)?;
                said = Some(answer);
            }
            let sent_at = self.height();
            let mut asked_at = sent_at;
            // Two blocks without it: a pool may have lost it, or never had it.
            let patience = if untouched { 1 } else { 2 };
            // A chain without transactions may have no blocks, so what nobody took goes out again after the
            // time that they would take.
            let again_at = (answer != SendAnswer::Accepted).then(|| {
                let blocks = self.endpoints.block_time() * patience;
                Instant::now() + blocks.max(LEAST_RESEND)
            });
            let again = || again_at.is_some_and(|at| Instant::now() >= at);
            while self.height() < sent_at + u64::from(patience) && !again() {
                // Elsewhere only once there is a block that the pin may be late with.
                let height = self.height();
                let reach = if height > asked_at { Reach::Everywhere } else { Reach::Pin };
                asked_at = height;
                if let Some(found) = session.receipt(attempt.hash, reach).await {
                    return self.include(ledger, session, step, &found).await;
                }
                if Instant::now() >= deadline {
                    return Err(self.too_late(attempt, untouched));
                }
                tokio::time::sleep(self.receipt_poll()).await;
            }
        }
    }

    /// Whether a second endpoint shows the block of an inclusion as canonical, waiting for it as long as the
    /// config says (T8).
    pub async fn corroborate(&self, session: &Session, inclusion: &Inclusion) -> bool {
        let wait = self
            .config
            .corroboration_wait
            .unwrap_or_else(|| (self.endpoints.block_time() * 3).max(Duration::from_secs(6)));
        let until = Instant::now() + wait;
        loop {
            match self.endpoints.corroborated(inclusion.block, Some(session.pin())).await {
                Some(true) => return true,
                None => {
                    let text = format!("no second endpoint can corroborate block {}", inclusion.block);
                    session.note(What::Note { text });
                    return false;
                }
                Some(false) if Instant::now() >= until => return false,
                Some(false) => tokio::time::sleep(self.receipt_poll()).await,
            }
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

    pub(crate) fn receipt_poll(&self) -> Duration {
        self.config.receipt_poll.unwrap_or_else(|| {
            (self.endpoints.block_time() / 4).clamp(Duration::from_millis(100), Duration::from_secs(3))
        })
    }

    async fn include(
        &self,
        ledger: &mut Ledger,
        session: &Session,
        step: StepId,
        found: &FoundReceipt,
    ) -> Result<Settled> {
        let inclusion = found.inclusion;
        ledger.append(vec![Record::Included { step, inclusion }]).await.map_err(after_sending)?;
        self.saw(ledger.intent().account, inclusion.block);
        session.carry(found);
        let how = if inclusion.succeeded { "succeeded" } else { "reverted" };
        session.note(What::Note { text: format!("included in block {}: {how}", inclusion.block) });
        Ok(Settled::Included(inclusion))
    }

    /// A first attempt that no endpoint took.
    async fn refused(
        &self,
        ledger: &mut Ledger,
        session: &Session,
        step: StepId,
        attempt: &Attempt,
        kind: RefusalKind,
    ) -> Result<Settled> {
        let released = Record::Released { nonce: attempt.nonce };
        if kind == RefusalKind::NonceTooLow {
            // Somebody else used the nonce. When the session's own block shows it, the bytes are dead.
            let until = Instant::now() + self.patience();
            while Instant::now() < until {
                session.step("nonce");
                if count(session, ledger.intent().account).await? > attempt.nonce {
                    ledger.append(vec![released]).await?;
                    let text = format!("nonce {} was used by another transaction", attempt.nonce);
                    session.note(What::Note { text });
                    return Ok(Settled::Displaced);
                }
                tokio::time::sleep(self.receipt_poll()).await;
            }
        }
        let records = match step {
            StepId::Effect => vec![released, Record::Finished { outcome: Outcome::Refused { kind } }],
            StepId::Plan { .. } => vec![released],
        };
        ledger.append(records).await?;
        Ok(Settled::Refused(kind))
    }

    fn height(&self) -> u64 {
        self.endpoints.frontier().map_or(0, |head| head.number)
    }

    fn too_late(&self, attempt: &Attempt, untouched: bool) -> Error {
        let delivery = if untouched { Delivery::NotSent } else { Delivery::Unknown };
        let message = format!(
            "transaction {} (nonce {}) was not included within {:?}; it may still be; the intent stays open and \
             can be sent again under the same key",
            attempt.hash, attempt.nonce, self.config.inclusion_timeout
        );
        Error::new(ErrorKind::Timeout, message).with_retry(Retry::Later).with_delivery(delivery)
    }
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
