//! One intent: what is written down about it, what that adds up to, and what is to be done next.

mod record;

pub use record::{Attempt, Check, Content, Grant, Inclusion, Outcome, PlanStep, Record, SendAnswer, StepId};
