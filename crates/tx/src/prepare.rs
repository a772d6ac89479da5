//! Simulate, price, and sign: everything before the first byte leaves.

use std::{fmt, time::Duration};

use alloy::{
    consensus::{SignableTransaction, TxEip1559, TxEnvelope, TxLegacy, TypedTransaction},
    eips::Encodable2718,
    network::AnyNetwork,
    primitives::{Address, Bytes, TxKind, U64, U256},
    providers::Provider,
    transports::TransportError,
};
use backstay_core::{
    Error, ErrorKind, Result, Retry,
    failure::{RefusalKind, Verdict},
    recovery::Failure,
    session::What,
    tx::{Attempt, Content, Record, StepId, first_free},
};
use backstay_journal::{Journal, Line, LineState};
use backstay_provider::{Session, error_of};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    driver::{Driver, ExternalUse},
    ledger::Ledger,
};

/// How long a signer may take: some wait for a person, or for a service far away.
const SIGNING: Duration = Duration::from_secs(60);

/// How a preparation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Signed and written down. Nothing was sent yet.
    Signed(Attempt),
    /// The call reverts at the session's block: a matter for recovery flows. Nothing was signed.
    Failed(Box<Failure>),
    /// The session's block is from before a transaction of the account that the journal has seen included: what was read
    /// there says nothing. Nothing was signed.
    Behind,
}

/// Fees for one unit of gas, in wei.
#[derive(Clone, Copy)]
enum Price {
    Eip1559 { max_fee: u128, max_priority_fee: u128 },
    Legacy { gas_price: u128 },
}

impl Driver {
    /// Simulates a step at the session's block, prices it, takes the account's next nonce, signs, and writes
    /// the signed bytes down.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InsufficientFunds`], [`ErrorKind::SignerMissing`], [`ErrorKind::Contradiction`],
    /// [`ErrorKind::TxRefused`] and [`ErrorKind::Unsupported`] when its simulation is refused or not served, and those of
    /// the session and the journal. Nothing has left.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves open whether the bytes were written down; they have not left.
    pub async fn prepare(
        &self,
        ledger: &mut Ledger,
        session: &Session,
        step: StepId,
        call: &Content,
    ) -> Result<Prepared> {
        let account = ledger.intent().account;
        let signer = self.signer(account)?;
        let gas = match self.simulate(session, ledger, step, account, call).await? {
            Ok(gas) => gas,
            Err(failure) => return Ok(Prepared::Failed(Box::new(failure))),
        };
        self.check_code(session, call).await?;
        let gas_limit = gas.saturating_add(gas.saturating_mul(self.config.gas_margin) / 100);
        let price = self.price(session).await?;
        self.check_funds(session, account, call, gas_limit, price).await?;

        let line = self.line(account);
        let _line = line.lock().await;
        loop {
            let mined = count(session, account).await?;
            let chain_id = self.endpoints.chain_id();
            let known = ledger.journal().line(ledger.line(), mined).await.map_err(Error::from)?;
            if known.used.is_some_and(|used| used > mined) {
                return Ok(Prepared::Behind);
            }
            self.check_accounted(ledger, mined, &known).await?;
            let nonce = first_free(mined, known.slots.into_keys());
            let mut transaction = build(chain_id, nonce, gas_limit, price, call);
            let signing = signer.sign_transaction(&mut transaction);
            // The account's line is held meanwhile: a signer that hangs must not hold it for ever.
            let signature = match tokio::time::timeout(SIGNING, signing).await {
                Ok(Ok(signature)) => signature,
                Ok(Err(cause)) => return Err(unsigned(account, "failed to sign").with_source(cause)),
                Err(_) => return Err(unsigned(account, "did not sign within a minute")),
            };
            let signed: TxEnvelope = transaction.into_signed(signature).into();
            let attempt = Attempt {
                nonce,
                unused_at: session.fence().number,
                hash: *signed.tx_hash(),
                raw: Bytes::from(signed.encoded_2718()),
                gas_limit,
                max_fee_per_gas: price.most(),
            };
            match ledger.try_append(vec![Record::Signed { step, attempt: attempt.clone() }]).await? {
                Ok(()) => {
                    session.note(What::Signed { nonce, hash: attempt.hash });
                    return Ok(Prepared::Signed(attempt));
                }
                // Another process took the nonce in between; these bytes are dropped unsent.
                Err(_) => continue,
            }
        }
    }

    /// Accepts every transaction of an account that is mined, whoever has sent it: the journal accounts for their nonces
    /// from here on. Returns the nonce that comes next.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] when no endpoint tells; [`ErrorKind::Journal`].
    pub async fn accept_external(&self, journal: &dyn Journal, line: Line) -> Result<u64> {
        let session = Session::begin(&self.endpoints, self.newest_block(line.account))?;
        session.step("accept external use").await;
        let mined = count(&session, line.account).await?;
        journal.account_for(line, mined).await?;
        Ok(mined)
    }

    /// Whether the journal knows of everything that the chain has mined for the account (T5).
    async fn check_accounted(&self, ledger: &Ledger, mined: u64, known: &LineState) -> Result<()> {
        let account = ledger.line().account;
        if known.accounted.is_none() && mined > 0 {
            tracing::warn!(
                %account, mined,
                "the journal holds nothing of this account, which has sent transactions: if this service sent them, the \
                 journal is new or was deleted, and what it has forgotten may be sent again"
            );
        }
        let Some(accounted) = known.accounted.filter(|accounted| *accounted < mined) else { return Ok(()) };
        match self.config.external_use {
            ExternalUse::Accept => {
                tracing::warn!(%account, from = accounted, to = mined, "nonces were used by somebody else");
                Ok(ledger.journal().account_for(ledger.line(), mined).await?)
            }
            ExternalUse::Stop => {
                let message = format!(
                    "account {account} has sent {mined} transactions, and this journal knows of {accounted}: somebody else signs for it, or the journal is an old copy; nothing was sent; find out which, then accept them with `accept_external`, or set `tx.external_use` to \"accept\""
                );
                let kind = ErrorKind::ChainAhead { account, chain: mined, journal: accounted };
                Err(Error::new(kind, message))
            }
        }
    }

    /// The gas that a call needs, or how it reverts. Estimates are advisory: a revert counts only when a
    /// fenced `eth_call` at the same block reverts as well (S4).
    async fn simulate(
        &self,
        session: &Session,
        ledger: &Ledger,
        step: StepId,
        account: Address,
        call: &Content,
    ) -> Result<Result<u64, Failure>> {
        let request = json!([{
            "from": account, "to": call.to, "value": call.value, "input": call.input,
        }, "latest"]);
        let request = request.to_string();
        let until = Instant::now() + self.patience();
        loop {
            let block = session.step(ledger.intent().label_of(step)).await;
            let refused = match session.read("eth_estimateGas", &request).await? {
                Ok(gas) => return Ok(Ok(parse::<U64>("eth_estimateGas", &gas)?.to())),
                Err(verdict) => verdict,
            };
            let held = session.read("eth_call", &request).await?;
            match (&refused, held) {
                (_, Err(Verdict::Reverted(revert))) => {
                    return Ok(Err(Failure::reverted(account, call.clone(), revert, block)));
                }
                // Held against the balance at the fence: the endpoint may have been below it.
                (Verdict::TxRefused(RefusalKind::InsufficientFunds), _)
                | (_, Err(Verdict::TxRefused(RefusalKind::InsufficientFunds))) => {
                    let balance = balance(session, account).await?;
                    if balance < call.value {
                        return Err(insufficient(account, balance, call.value));
                    }
                }
                (Verdict::Reverted(_), Ok(_)) => {}
                (Verdict::Invalid, _) => {
                    let message = format!("eth_estimateGas for {}: the request is invalid", call.to);
                    return Err(Error::new(ErrorKind::Invalid, message));
                }
                (other, _) => return Err(unread(format_args!("eth_estimateGas for {}", call.to), other)),
            }
            if Instant::now() >= until {
                let why = match &refused {
                    Verdict::Reverted(revert) => revert.describe(),
                    other => other.label().to_owned(),
                };
                let message = format!(
                    "eth_estimateGas says that the call to {} fails ({why}), the state at block {block} says that \
                     it does not, and neither has changed; nothing was sent",
                    call.to
                );
                return Err(Error::new(ErrorKind::Contradiction, message).with_retry(Retry::Exhausted));
            }
            tokio::time::sleep(self.poll()).await;
        }
    }

    /// Data that is sent where there is no contract does nothing, and succeeds: mostly an address is wrong.
    async fn check_code(&self, session: &Session, call: &Content) -> Result<()> {
        if call.input.is_empty() {
            return Ok(());
        }
        let code = value(session, "eth_getCode", &json!([call.to, "latest"]).to_string()).await?;
        if code.trim_matches('"') != "0x" {
            return Ok(());
        }
        let block = session.fence();
        let message = format!(
            "there is no contract at {} in block {block}, so a call would do nothing; nothing was sent; check the \
             address and the chain",
            call.to
        );
        Err(Error::new(
            ErrorKind::NoContractCode { address: call.to, block, endpoint: session.pin() },
            message,
        ))
    }

    async fn price(&self, session: &Session) -> Result<Price> {
        let provider = session.provider::<AnyNetwork>();
        let price = match provider.estimate_eip1559_fees().await {
            Ok(fees) => Price::Eip1559 {
                max_fee: fees.max_fee_per_gas,
                max_priority_fee: fees.max_priority_fee_per_gas,
            },
            // A chain without a base fee, or a node without fee history.
            Err(error) if error_of(&error).is_none() => Price::Legacy {
                gas_price: provider.get_gas_price().await.map_err(|error| read_error(&error))?,
            },
            Err(error) => return Err(read_error(&error)),
        };
        match self.config.max_fee_per_gas {
            None => Ok(price),
            Some(cap) if cap < price.floor() => {
                let message = format!(
                    "`tx.max_fee_per_gas` is {cap} wei, and a unit of gas costs {} now; nothing was signed; raise it, \
                     or send the intent again when gas is cheaper",
                    price.floor()
                );
                let kind = ErrorKind::TxRefused(RefusalKind::FeeBelowBaseFee);
                Err(Error::new(kind, message).with_retry(Retry::Later))
            }
            Some(cap) => Ok(price.capped(cap)),
        }
    }

    async fn check_funds(
        &self,
        session: &Session,
        account: Address,
        call: &Content,
        gas_limit: u64,
        price: Price,
    ) -> Result<()> {
        let balance = balance(session, account).await?;
        let needed =
            U256::from(gas_limit).saturating_mul(U256::from(price.most())).saturating_add(call.value);
        if balance < needed {
            return Err(insufficient(account, balance, needed));
        }
        Ok(())
    }
}

impl Price {
    /// The most that a unit of gas may cost.
    const fn most(self) -> u128 {
        match self {
            Self::Eip1559 { max_fee, .. } => max_fee,
            Self::Legacy { gas_price } => gas_price,
        }
    }

    /// The least that a unit of gas costs now. The estimate allows for twice the base fee.
    const fn floor(self) -> u128 {
        match self {
            Self::Eip1559 { max_fee, max_priority_fee } => max_fee.saturating_sub(max_priority_fee) / 2,
            Self::Legacy { gas_price } => gas_price,
        }
    }

    fn capped(self, cap: u128) -> Self {
        match self {
            Self::Eip1559 { max_fee, max_priority_fee } => Self::Eip1559 {
                max_fee: max_fee.min(cap),
                max_priority_fee: max_priority_fee.min(max_fee).min(cap),
            },
            Self::Legacy { gas_price } => Self::Legacy { gas_price: gas_price.min(cap) },
        }
    }
}

fn build(chain_id: u64, nonce: u64, gas_limit: u64, price: Price, call: &Content) -> TypedTransaction {
    let (to, value, input) = (TxKind::Call(call.to), call.value, call.input.clone());
    match price {
        Price::Eip1559 { max_fee, max_priority_fee } => TypedTransaction::Eip1559(TxEip1559 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas: max_fee,
            max_priority_fee_per_gas: max_priority_fee,
            to,
            value,
            access_list: Default::default(),
            input,
        }),
        Price::Legacy { gas_price } => TypedTransaction::Legacy(TxLegacy {
            chain_id: Some(chain_id),
            nonce,
            gas_price,
            gas_limit,
            to,
            value,
            input,
        }),
    }
}

fn unsigned(account: Address, what: &str) -> Error {
    let message = format!("the signer of account {account} {what}; nothing was sent");
    Error::new(ErrorKind::SignerMissing { account: Some(account) }, message).with_retry(Retry::Later)
}

/// How many transactions of an account the chain has included, at the session's block. `pending` cannot be
/// fenced, and is not asked.
pub(crate) async fn count(session: &Session, account: Address) -> Result<u64> {
    let count = value(session, "eth_getTransactionCount", &json!([account, "latest"]).to_string()).await?;
    Ok(parse::<U64>("eth_getTransactionCount", &count)?.to())
}

async fn balance(session: &Session, account: Address) -> Result<U256> {
    let balance = value(session, "eth_getBalance", &json!([account, "latest"]).to_string()).await?;
    parse("eth_getBalance", &balance)
}

async fn value(session: &Session, method: &'static str, params: &str) -> Result<String> {
    session.read(method, params).await?.map_err(|verdict| unread(format_args!("{method}"), &verdict))
}

/// A reply that does not say what was asked. What would be said again is not laid to the endpoints: it does not pass.
fn unread(what: fmt::Arguments<'_>, verdict: &Verdict) -> Error {
    let (kind, retry) = match verdict {
        Verdict::TxRefused(kind) if kind.is_final() => (ErrorKind::TxRefused(*kind), Retry::Never),
        Verdict::TxRefused(kind) => (ErrorKind::TxRefused(*kind), Retry::Later),
        Verdict::Unsupported => (ErrorKind::Unsupported, Retry::Never),
        Verdict::Answer
        | Verdict::Reverted(_)
        | Verdict::NotYet
        | Verdict::Missing { .. }
        | Verdict::RateLimited { .. }
        | Verdict::RangeTooLarge { .. }
        | Verdict::Fault(_)
        | Verdict::WrongIdentity
        | Verdict::Invalid
        | Verdict::Unclassified => (ErrorKind::Unavailable, Retry::Later),
    };
    Error::new(kind, format!("{what}: {}", verdict.label())).with_retry(retry)
}

fn parse<T: serde::de::DeserializeOwned>(method: &str, json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| {
        let message = format!("{method}: the answer is not a number");
        Error::new(ErrorKind::Unavailable, message).with_retry(Retry::Later).with_source(error)
    })
}

/// A fee read that failed, as our own error.
fn read_error(error: &TransportError) -> Error {
    match error_of(error) {
        Some(error) => error.clone().context("fees"),
        None => Error::new(ErrorKind::Unavailable, format!("fees: {error}")).with_retry(Retry::Later),
    }
}

fn insufficient(account: Address, balance: U256, needed: U256) -> Error {
    let message = format!(
        "account {account} has {balance} wei and needs {needed}; nothing was sent; fund it and send the intent \
         again under the same key"
    );
    Error::new(ErrorKind::InsufficientFunds { account, balance, needed }, message).with_retry(Retry::Later)
}
