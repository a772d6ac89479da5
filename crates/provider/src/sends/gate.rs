//! The gate in front of sends: bytes of a managed account go through its nonce line, or not at all (R11).

use std::sync::PoisonError;

use alloy::{
    consensus::{TxEnvelope, transaction::SignerRecoverable},
    eips::Decodable2718,
    primitives::{Address, Bytes},
};
use backstay_core::{Error, ErrorKind, Result};

use crate::{endpoints::Shared, link::wire::Call};

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

/// By name: whatever has `send` in it sends, on whichever chain it exists.
pub(crate) fn sends(method: &str) -> Sends {
    match method {
        "eth_sendRawTransaction" => Sends::Raw,
        other if other.to_ascii_lowercase().contains("send") => Sends::Once,
        _ => Sends::No,
    }
}

impl Shared {
    /// Refuses a send for an account that this client manages, or that may be for one.
    pub(crate) fn pass_gate(&self, call: &Call) -> Result<()> {
        let managed = self.managed.read().unwrap_or_else(PoisonError::into_inner);
        if managed.is_empty() {
            return Ok(());
        }
        let senders = senders(call);
        if sends(&call.method) == Sends::Raw && senders.is_empty() {
            let message = format!(
                "{}: it cannot be told who signed these bytes, and this client manages accounts that must not \
                 be sent for behind its back; nothing was sent; use a client without signers for them",
                call.method
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        match senders.into_iter().find(|sender| managed.contains(sender)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_has_send_in_its_name_sends() {
        let check = |method, expected| assert_eq!(sends(method), expected, "{method}");
        check("eth_sendRawTransaction", Sends::Raw);
        check("eth_sendTransaction", Sends::Once);
        check("zks_sendRawTransactionWithDetailedOutput", Sends::Once);
        check("personal_sendTransaction", Sends::Once);
        check("mev_sendBundle", Sends::Once);
        check("eth_call", Sends::No);
    }
}
