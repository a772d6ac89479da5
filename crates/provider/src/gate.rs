//! The gate in front of sends: bytes of a managed account go through its nonce line, or not at all (R11).

use std::sync::PoisonError;

use alloy::{
    consensus::{TxEnvelope, transaction::SignerRecoverable},
    eips::Decodable2718,
    primitives::{Address, Bytes},
};
use backstay_core::{Error, ErrorKind, Result};

use crate::{endpoints::Shared, wire::Call};

/// How a method must be treated because it may change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sends {
    /// It does not send.
    No,
    /// Signed bytes: the same bytes may go to several endpoints.
    Raw,
    /// Something else that sends: never repeated once a byte may have left.
    Once,
}

pub(crate) fn sends(method: &str) -> Sends {
    match method {
        "eth_sendRawTransaction" => Sends::Raw,
        "eth_sendTransaction"
        | "eth_sendRawTransactionSync"
        | "eth_sendRawTransactionConditional"
        | "eth_sendPrivateTransaction"
        | "eth_sendPrivateRawTransaction"
        | "eth_sendBundle"
        | "mev_sendBundle"
        | "eth_sendUserOperation"
        | "eth_resend" => Sends::Once,
        // Nodes and wallets have more of them (`personal_sendTransaction`, `wallet_sendCalls`).
        other if other.contains("_send") => Sends::Once,
        _ => Sends::No,
    }
}

impl Shared {
    /// Refuses a send for an account that this client manages.
    pub(crate) fn pass_gate(&self, call: &Call) -> Result<()> {
        let managed = self.managed.read().unwrap_or_else(PoisonError::into_inner);
        if managed.is_empty() {
            return Ok(());
        }
        match senders(call).into_iter().find(|sender| managed.contains(sender)) {
            None => Ok(()),
            Some(account) => Err(Error::new(
                ErrorKind::ManagedAccount { account },
                format!(
                    "{} for {account}, which this client manages, was not sent: it would take a nonce behind \
                     the client's back; send it as an intent, or sign with another account",
                    call.method
                ),
            )),
        }
    }
}

/// The accounts that a request sends for, wherever in its parameters they stand.
fn senders(call: &Call) -> Vec<Address> {
    let params = call.params().and_then(|params| serde_json::from_str::<serde_json::Value>(params).ok());
    let mut found = Vec::new();
    let mut open: Vec<serde_json::Value> = params.into_iter().collect();
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::String(text) => found.extend(signer_of(&text)),
            serde_json::Value::Array(items) => open.extend(items),
            serde_json::Value::Object(fields) => {
                let from = fields.get("from").and_then(|from| from.as_str());
                found.extend(from.and_then(|from| from.parse::<Address>().ok()));
                open.extend(fields.into_iter().map(|(_, value)| value));
            }
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
        }
    }
    found
}

/// Who signed these bytes, where they are a transaction.
fn signer_of(text: &str) -> Option<Address> {
    let bytes: Bytes = text.parse().ok()?;
    let transaction = TxEnvelope::decode_2718(&mut bytes.as_ref()).ok()?;
    transaction.recover_signer().ok()
}
