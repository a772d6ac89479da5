//! Recovery flows: what to do when an intent's call reverts, and the runner that does it.
//!
//! A [`Flow`] looks at a failure and returns a plan: transactions to send first, each with the condition
//! that must hold afterwards. It only reads, through the session's view, and never sends: the [`Runner`]
//! checks the plan against the caller's grants, writes it down, and drives it in the same session.

mod allowance;
mod allowances;
mod flow;
mod runner;

pub use allowance::AllowanceFlow;
pub use allowances::Hold;
pub use flow::{Flow, PlanContext};
pub use runner::{RecoveryConfig, Run, Runner};
