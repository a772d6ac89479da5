//! Intents: what to send, under a key.

use alloy::{
    primitives::{Address, Bytes, U256},
    sol_types::SolCall,
};
use backstay_core::{
    Error, ErrorKind, Result,
    tx::{Content, Grant},
};
use backstay_intents::Intent;
use backstay_journal::NewIntent;

use crate::client::Client;

/// An intent that is being described. Nothing happens until it is sent.
#[derive(Debug)]
#[must_use = "an intent does nothing until it is sent"]
pub struct IntentBuilder {
    client: Client,
    key: String,
    from: Option<Address>,
    to: Option<Address>,
    value: U256,
    input: Bytes,
    grants: Vec<Grant>,
}

impl IntentBuilder {
    pub(crate) const fn new(client: Client, key: String) -> Self {
        Self { client, key, from: None, to: None, value: U256::ZERO, input: Bytes::new(), grants: Vec::new() }
    }

    /// The contract or account to send to, and the call data.
    pub fn to(mut self, to: Address, input: impl Into<Bytes>) -> Self {
        (self.to, self.input) = (Some(to), input.into());
        self
    }

    /// A contract, and a call of a `sol!` binding.
    pub fn call(self, to: Address, call: &impl SolCall) -> Self {
        self.to(to, call.abi_encode())
    }

    /// Wei to send along. Default: none.
    pub fn value(mut self, value: U256) -> Self {
        self.value = value;
        self
    }

    /// The account that signs. Default: the account of the client's only signer.
    ///
    /// It is not part of what the key stands for: an intent that is there under the key stays with the account
    /// that it was opened for.
    pub fn from(mut self, account: Address) -> Self {
        self.from = Some(account);
        self
    }

    /// An approval that recovery may make for this intent. Default: none. May be given several times.
    ///
    /// The grants of the newest send count, so one without grants takes them back.
    pub fn grant(mut self, grant: Grant) -> Self {
        self.grants.push(grant);
        self
    }

    /// Sends it, or joins the intent that was sent under the same key before. Returns once it is written
    /// down; the work goes on in the background, in the process that holds the line of its account.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::KeyConflict`] when the key was used with other content; [`ErrorKind::SignerMissing`];
    /// [`ErrorKind::Config`] for a key that is empty or longer than 1024 bytes, or a missing target; [`ErrorKind::Journal`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves open whether the intent was written down; send it again under its key.
    ///
    /// # Replay safety
    ///
    /// It takes effect at most once, however often it is sent. An intent whose call was never signed, such
    /// as one that failed for lack of funds, is tried again.
    pub async fn send(self) -> Result<Intent> {
        let Self { client, key, from, to, value, input, grants } = self;
        if key.trim().is_empty() {
            return Err(Error::config(
                "an intent's key is empty; name the effect, such as `register:<what>`",
            ));
        }
        if let Err(error) = backstay_journal::check_key(&key) {
            return Err(Error::config(error.to_string()));
        }
        let Some(to) = to else {
            return Err(Error::config(format!(
                "intent `{key}` says not where to; name it with `to` or `call`"
            )));
        };
        let account = account(client.accounts(), from)?;
        let content = Content { to, value, input };
        let new = NewIntent { chain_id: client.chain_id(), key, account, content, grants };
        client.shared.dispatcher.submit(new).await
    }
}

/// The account that signs.
fn account(accounts: &[Address], named: Option<Address>) -> Result<Address> {
    let missing =
        |account: Option<Address>, why: String| Err(Error::new(ErrorKind::SignerMissing { account }, why));
    match (named, accounts) {
        (Some(named), accounts) if accounts.contains(&named) => Ok(named),
        (Some(named), _) => missing(
            Some(named),
            format!("there is no signer for account {named}; give the builder one with `signer`"),
        ),
        (None, [account]) => Ok(*account),
        (None, []) => {
            missing(None, "there is no signer, so nothing can be sent; give the builder one".into())
        }
        (None, _) => missing(None, "there are several signers; say with `from` which account sends".into()),
    }
}
