//! What one reply means. Nothing outside this room looks inside an RPC error message.

mod verdict;

pub use verdict::{DataKind, FaultKind, RefusalKind, Revert, Verdict};
