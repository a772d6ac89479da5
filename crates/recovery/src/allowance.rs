//! TooLowAllowance -> approve -> retry (F2).

use std::{error::Error as StdError, fmt, future::Future, sync::Arc};

use alloy::{
    network::AnyNetwork,
    primitives::{Address, U256},
    providers::RootProvider,
    sol,
    sol_types::SolCall,
};
use async_trait::async_trait;
use backstay_core::{
    Error, ErrorKind, Result, Retry,
    failure::Revert,
    recovery::{Diagnosis, Failure},
    tx::{Check, Content, Grant, PlanStep},
};
use futures::future::BoxFuture;

use crate::flow::{Flow, PlanContext};

sol! {
    #[sol(rpc)]
    interface IERC20 {
        function allowance(address owner, address spender) external view returns (uint256);
        function approve(address spender, uint256 amount) external returns (bool);
    }

    error TooLowAllowance(address token, uint256 allowance, uint256 expected);
    error ERC20InsufficientAllowance(address spender, uint256 allowance, uint256 needed);
}

/// How tokens of before ERC-6093 say it, in lower case.
const PLAIN_WORDS: [&str; 3] = ["insufficient allowance", "insufficient-allowance", "exceeds allowance"];

type Reader = dyn Fn(RootProvider<AnyNetwork>) -> BoxFuture<'static, Result<U256, Cause>> + Send + Sync;
type Cause = Box<dyn StdError + Send + Sync>;

/// Approves what a call needs, within the intent's grants, and lets it be tried again.
///
/// The needed amount comes from the error where it says one, else from the reader. Approves are exact: the
/// allowance is set to the needed amount.
///
/// # Defaults
///
/// No reader: an error that says no amount cannot be recovered from.
#[derive(Clone, Default)]
pub struct AllowanceFlow {
    reader: Option<Arc<Reader>>,
}

impl AllowanceFlow {
    /// The flow, without a reader.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the needed amount, in the token's smallest unit, where the error does not say it. The provider
    /// reads at the session's block.
    ///
    /// ```
    /// # use alloy::{primitives::Address, sol};
    /// # use backstay_recovery::AllowanceFlow;
    /// # sol! { #[sol(rpc)] interface Parameters { function deposit() external view returns (uint256); } }
    /// # let address = Address::ZERO;
    /// let flow = AllowanceFlow::new()
    ///     .needed_by(move |view| async move { Parameters::new(address, view).deposit().call().await });
    /// ```
    #[must_use]
    pub fn needed_by<F, T, E>(mut self, read: F) -> Self
    where
        F: Fn(RootProvider<AnyNetwork>) -> T + Send + Sync + 'static,
        T: Future<Output = Result<U256, E>> + Send + 'static,
        E: Into<Cause>,
    {
        self.reader = Some(Arc::new(move |view| {
            let reading = read(view);
            Box::pin(async move { reading.await.map_err(Into::into) })
        }));
        self
    }

    async fn needed(&self, context: &PlanContext<'_>, shortfall: &Shortfall) -> Result<U256> {
        if let Some(needed) = shortfall.needed {
            return Ok(needed);
        }
        let Some(read) = &self.reader else {
            return Err(Error::new(
                ErrorKind::Recovery,
                "the contract says that the allowance is too low, but not how much it needs; give the allowance \
                 flow a reader with `needed_by`",
            ));
        };
        read(context.provider()).await.map_err(|cause| {
            // Its text is the user's own, and may hold anything: it stays behind `source`.
            Error::new(ErrorKind::Recovery, "the reader of the needed amount failed")
                .with_retry(Retry::Later)
                .with_source(cause)
        })
    }
}

#[async_trait]
impl Flow for AllowanceFlow {
    fn name(&self) -> &str {
        "allowance"
    }

    fn diagnose(&self, failure: &Failure) -> Diagnosis {
        match failure.revert.as_ref().and_then(Shortfall::read) {
            Some(shortfall) => Diagnosis::Recover(shortfall.to_string()),
            None => Diagnosis::Pass,
        }
    }

    async fn plan(&self, context: &PlanContext<'_>, failure: &Failure) -> Result<Vec<PlanStep>> {
        let Some(shortfall) = failure.revert.as_ref().and_then(Shortfall::read) else {
            return Ok(Vec::new());
        };
        let Grant { token, spender, .. } = shortfall.grant(context.grants(), failure.content.to)?;
        let needed = self.needed(context, &shortfall).await?;
        let erc20 = IERC20::new(token, context.provider::<AnyNetwork>());
        let allowance = erc20.allowance(context.account(), spender).call().await.map_err(|cause| {
            let message = format!("the allowance of {token} for {spender} cannot be read: {cause}");
            Error::new(ErrorKind::Recovery, message).with_retry(Retry::Later).with_source(cause)
        })?;
        if allowance >= needed {
            if context.block().number > failure.block.number {
                // It came between the failure and this look.
                return Ok(Vec::new());
            }
            let message = format!(
                "{spender} may already spend {allowance} of {token}, which covers {needed}, and the call still \
                 reverts; is {spender}, the grant's spender, the contract that takes the tokens?"
            );
            return Err(Error::new(ErrorKind::Recovery, message));
        }
        let approve = IERC20::approveCall { spender, amount: needed };
        let read = IERC20::allowanceCall { owner: context.account(), spender };
        Ok(vec![PlanStep {
            label: "approve".into(),
            call: Content { to: token, value: U256::ZERO, input: approve.abi_encode().into() },
            until: Some(Check { to: token, input: read.abi_encode().into(), at_least: needed }),
        }])
    }
}

impl fmt::Debug for AllowanceFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllowanceFlow").field("reader", &self.reader.is_some()).finish()
    }
}

/// What a contract says of an allowance that is too low.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Shortfall {
    token: Option<Address>,
    spender: Option<Address>,
    allowance: Option<U256>,
    needed: Option<U256>,
}

impl Shortfall {
    fn read(revert: &Revert) -> Option<Self> {
        if let Some(error) = revert.decode::<TooLowAllowance>() {
            return Some(Self {
                token: Some(error.token),
                allowance: Some(error.allowance),
                needed: Some(error.expected),
                ..Self::default()
            });
        }
        if let Some(error) = revert.decode::<ERC20InsufficientAllowance>() {
            return Some(Self {
                spender: Some(error.spender),
                allowance: Some(error.allowance),
                needed: Some(error.needed),
                ..Self::default()
            });
        }
        let reason = revert.reason()?.to_lowercase();
        PLAIN_WORDS.iter().any(|words| reason.contains(words)).then(Self::default)
    }

    /// The one grant that this is about: it says which token and spender, where the error does not.
    fn grant(&self, grants: &[Grant], contract: Address) -> Result<Grant> {
        let fits = |grant: &&Grant| {
            self.token.is_none_or(|token| grant.token == token)
                && self.spender.is_none_or(|spender| grant.spender == spender)
        };
        let candidates: Vec<&Grant> = grants.iter().filter(fits).collect();
        // Mostly the contract that was called is the one that pulls the tokens.
        let of_called = candidates.iter().find(|grant| grant.spender == contract);
        match (of_called, candidates.as_slice()) {
            (Some(grant), _) | (None, [grant]) => Ok(**grant),
            (None, []) => {
                let token = self.token.unwrap_or_default();
                let spender = self.spender.unwrap_or(contract);
                let amount = self.needed.unwrap_or_default();
                let message = format!(
                    "{self}, and no grant covers it; nothing was approved; add a grant for the token and its \
                     spender (perhaps {spender}, which was called) to the intent"
                );
                Err(Error::new(ErrorKind::NotGranted { token, spender, amount, cap: None }, message))
            }
            (None, _) => Err(Error::new(
                ErrorKind::Recovery,
                format!("{self}, and several grants could be meant; leave only the one that is"),
            )),
        }
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the allowance is too low")?;
        if let Some(token) = self.token {
            write!(f, ", token {token}")?;
        }
        if let Some(spender) = self.spender {
            write!(f, ", spender {spender}")?;
        }
        if let (Some(allowance), Some(needed)) = (self.allowance, self.needed) {
            write!(f, ", it is {allowance} and {needed} is needed")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloy::sol_types::{Revert as RevertString, SolError};

    use super::*;

    const TOKEN: Address = Address::repeat_byte(1);
    const SPENDER: Address = Address::repeat_byte(2);

    fn revert(data: Vec<u8>) -> Revert {
        Revert { data: data.into(), message: String::new() }
    }

    fn grant(token: u8, spender: u8) -> Grant {
        let (token, spender) = (Address::repeat_byte(token), Address::repeat_byte(spender));
        Grant { token, spender, cap: U256::from(9) }
    }

    #[test]
    fn every_dialect_of_a_low_allowance_is_read() {
        let (zero, nine) = (U256::ZERO, U256::from(9));
        let check = |data: Vec<u8>, expected: Option<&str>| {
            let read = Shortfall::read(&revert(data)).map(|shortfall| shortfall.to_string());
            assert_eq!(read.as_deref(), expected);
        };
        check(
            TooLowAllowance { token: TOKEN, allowance: zero, expected: nine }.abi_encode(),
            Some(
                "the allowance is too low, token 0x0101010101010101010101010101010101010101, it is 0 and 9 is needed",
            ),
        );
        check(
            ERC20InsufficientAllowance { spender: SPENDER, allowance: zero, needed: nine }.abi_encode(),
            Some(
                "the allowance is too low, spender 0x0202020202020202020202020202020202020202, it is 0 and 9 is \
                 needed",
            ),
        );
        for words in [
            "ERC20: insufficient allowance",
            "Dai/insufficient-allowance",
            "ERC20: transfer amount exceeds allowance",
        ] {
            check(RevertString::from(words).abi_encode(), Some("the allowance is too low"));
        }
        check(RevertString::from("paused").abi_encode(), None);
        check(Vec::new(), None);
    }

    #[test]
    fn the_grant_is_the_one_that_the_error_means() {
        let of_token = Shortfall { token: Some(TOKEN), ..Shortfall::default() };
        let check = |shortfall: Shortfall, grants: &[Grant], called: u8, expected: Option<Grant>| {
            assert_eq!(shortfall.grant(grants, Address::repeat_byte(called)).ok(), expected);
        };
        check(of_token, &[grant(1, 2), grant(3, 2)], 2, Some(grant(1, 2)));
        check(of_token, &[grant(1, 2), grant(1, 4)], 4, Some(grant(1, 4)));
        check(of_token, &[grant(1, 2), grant(1, 4)], 9, None);
        check(of_token, &[grant(1, 2)], 9, Some(grant(1, 2)));
        check(of_token, &[grant(3, 2)], 2, None);
        check(Shortfall::default(), &[grant(1, 2)], 2, Some(grant(1, 2)));
    }
}
