//! EVM transaction workflows that run unattended, over several RPC endpoints that are each, at times, dead,
//! hung, stale, or a load balancer over replicas that disagree.
//!
//! A [`Client`] is connected to the endpoints of one chain. [`Client::provider`] gives an alloy provider
//! whose reads fail over; [`Client::intent`] sends a transaction that takes effect at most once under its
//! key, whatever crashes: its call is simulated at a block that every later read is held to, recovery flows
//! such as [`AllowanceFlow`] fix what makes it revert, and everything is written to a journal before it
//! happens.
//!
//! ```no_run
//! use backstay::{AllowanceFlow, Client, Config, Grant, alloy::sol};
//! # use alloy::{network::Ethereum, primitives::{Address, B256}, signers::local::PrivateKeySigner};
//! # use backstay::alloy;
//!
//! sol! {
//!     #[sol(rpc)]
//!     interface Parameters { function deposit() external view returns (uint256); }
//!     interface ContextGraphs { function createContextGraph(bytes32 key) external; }
//! }
//!
//! # async fn example(
//! #     parameters: Address, graphs: Address, token: Address, key: B256, signer: PrivateKeySigner,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::from_toml(
//!     r#"
//!     chain_id = 31337
//!     journal = "service.db"
//!     [[endpoints]]
//!     name = "own-node"
//!     url = "http://127.0.0.1:8545"
//!     [[endpoints]]
//!     name = "hosted"
//!     url = "https://rpc.example.com/v1/KEY"
//!     "#,
//! )?;
//! let client = Client::builder(config).signer(signer).flow(AllowanceFlow::new()).connect().await?;
//!
//! let deposit = Parameters::new(parameters, client.provider::<Ethereum>()).deposit().call().await?;
//! let outcome = client
//!     .intent(format!("register:{key}"))
//!     .call(graphs, &ContextGraphs::createContextGraphCall { key })
//!     .grant(Grant { token, spender: graphs, cap: deposit })
//!     .send()
//!     .await?
//!     .outcome()
//!     .await?;
//! println!("registered in block {}", outcome.included()?.block);
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! One type, [`Error`], with three axes: [`Error::kind`] says what happened, [`Error::retry`] whether asking
//! again can help, [`Error::delivery`] what may have happened on chain. Through alloy's own calls it is
//! wrapped; [`error_of`] gets it back.

mod client;
mod config;
mod intent;
mod opening;

/// The alloy that this crate's types come from.
pub use alloy;
pub use backstay_core::{
    BlockRef, Delivery, EndpointName, Error, ErrorKind, Result, Retry,
    endpoint::{
        BreakerConfig, BudgetStatus, EndpointStatus, HeadStatus, Phase as BreakerPhase, PoolConfig,
        PoolStatus, Role, SendPublic, Standing,
    },
    error::Attempt,
    failure::{Class, DataKind, FaultKind, RefusalKind, Revert, Row},
    router::{Absent, Declared, HedgeConfig, Lookup, ReadConfig},
    session::Trail,
    tx::{Grant, Inclusion, Outcome},
};
pub use backstay_intents::{ClaimsConfig, Intent, Resume, RetentionConfig};
pub use backstay_provider::{Broadcast, EndpointConfig, ProviderConfig, error_of, meter};
pub use backstay_recovery::{AllowanceFlow, Flow, RecoveryConfig};
pub use backstay_tx::{ExternalUse, TxConfig};
pub use client::{Builder, Client};
pub use config::Config;
pub use intent::IntentBuilder;

/// What recovery flows are written with.
pub mod recovery {
    /// What an implementation of [`Flow`] is annotated with.
    pub use async_trait::async_trait;
    pub use backstay_core::{
        recovery::{Diagnosis, Failure},
        tx::{Check, Content, PlanStep},
    };
    pub use backstay_recovery::{AllowanceFlow, Flow, PlanContext};
}

/// What is written down about intents, and where.
pub mod journal {
    pub use backstay_core::tx::{
        Attempt as SignedAttempt, Content, Due, FoldError, Intent as IntentState, PlanStep, Record,
        RecordEffect, SendAnswer, StepId, Stop, Transaction,
    };
    pub use backstay_journal::*;

    pub use crate::opening::{JournalLocation, open, open_existing};
}

/// What a session did, event by event.
pub mod trail {
    pub use backstay_core::session::{Event, Trail, What};
}

/// The quick start in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
