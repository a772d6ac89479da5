//! One intent: what is written down about it, what that adds up to, and what is to be done next.

mod line;
mod record;
mod state;

pub use line::first_free;
pub use record::{
    Attempt, Check, Content, Grant, Inclusion, Outcome, PlanStep, Record, RecordEffect, SendAnswer, StepId,
    Stop,
};
pub use state::{Due, FoldError, Intent, Round, Transaction};

#[cfg(test)]
mod tests;
