//! What a failure leads to: whether another round may run, and what its plan may do (F).

mod authority;
mod round;

pub use authority::authorise;
pub use round::{Diagnosis, Failure, LastRound, RoundVerdict, admit_round};
