//! The command as an operator runs it: the real binary, over real journals.

mod errors;
mod going_on;
mod looking;
mod stage;
