//! The driver of one transaction: nonce line, fees, signing, broadcast, receipt.
//!
//! For the accounts that a client manages, this is the only place that signs and sends. Every method is a
//! duty that [`Intent::due`](backstay_core::tx::Intent::due) asks for: it may be begun again after a crash
//! at any point, and a record is durable before the effect that it announces starts.

mod driver;
mod ledger;
mod prepare;
mod settle;

pub use driver::{Driver, ExternalUse, TxConfig, TxSignerBox};
pub use ledger::Ledger;
pub use prepare::Prepared;
pub use settle::{Freshness, Settled};
