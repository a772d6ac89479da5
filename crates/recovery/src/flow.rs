//! The trait that flows implement.

use std::fmt;

use alloy::{network::Network, primitives::Address, providers::RootProvider};
use async_trait::async_trait;
use backstay_core::{
    BlockRef, Result,
    recovery::{Diagnosis, Failure},
    tx::{Grant, PlanStep},
};
use backstay_provider::Session;

/// Something that can be done about a failure (F1).
///
/// ```
/// use backstay_recovery::{Flow, PlanContext};
/// use backstay_core::{Result, recovery::{Diagnosis, Failure}, tx::PlanStep};
/// # use alloy::{primitives::Address, sol, sol_types::SolCall};
/// # use backstay_core::tx::Content;
/// # sol! { function unpause() external; }
///
/// /// Unpauses a contract of ours before it is called.
/// #[derive(Debug)]
/// struct Unpause(Address);
///
/// #[async_trait::async_trait]
/// impl Flow for Unpause {
///     fn name(&self) -> &str {
///         "unpause"
///     }
///
///     fn diagnose(&self, failure: &Failure) -> Diagnosis {
///         match failure.revert.as_ref().and_then(|revert| revert.reason()) {
///             Some(reason) if reason == "paused" => Diagnosis::Recover("it is paused".into()),
///             _ => Diagnosis::Pass,
///         }
///     }
///
///     async fn plan(&self, _: &PlanContext<'_>, _: &Failure) -> Result<Vec<PlanStep>> {
///         let call = Content { to: self.0, value: Default::default(), input: unpauseCall {}.abi_encode().into() };
///         Ok(vec![PlanStep { label: "unpause".into(), call, until: None }])
///     }
/// }
/// ```
#[async_trait]
pub trait Flow: fmt::Debug + Send + Sync + 'static {
    /// A stable name: it is journaled with each plan.
    fn name(&self) -> &str;

    /// What this flow makes of a failure. Pure: the same failure gives the same diagnosis.
    fn diagnose(&self, failure: &Failure) -> Diagnosis;

    /// The steps to take before the intent's call is tried again. Only reads, through the context. An empty
    /// plan says that, on a closer look, there is nothing to be done.
    ///
    /// # Errors
    ///
    /// A read that fails is an error of its own; the failure that is being recovered from is kept beside
    /// it. Nothing is ever swallowed into a zero (F3).
    async fn plan(&self, context: &PlanContext<'_>, failure: &Failure) -> Result<Vec<PlanStep>>;
}

/// What a flow may see while it plans.
#[derive(Clone, Copy, Debug)]
pub struct PlanContext<'a> {
    session: &'a Session,
    account: Address,
    grants: &'a [Grant],
}

impl<'a> PlanContext<'a> {
    pub(crate) const fn new(session: &'a Session, account: Address, grants: &'a [Grant]) -> Self {
        Self { session, account, grants }
    }

    /// An alloy provider that reads at the session's block, and cannot send.
    pub fn provider<N: Network>(&self) -> RootProvider<N> {
        self.session.provider()
    }

    /// The account that signs.
    pub const fn account(&self) -> Address {
        self.account
    }

    /// The approvals that the caller allows.
    pub const fn grants(&self) -> &'a [Grant] {
        self.grants
    }

    /// The block that reads are asked at.
    pub fn block(&self) -> BlockRef {
        self.session.fence()
    }
}
