//! What one reply means. Nothing outside this room looks inside an RPC error message.
//!
//! [`Classifier::classify`] turns a [`Reply`] into a [`Verdict`]. The wordings are data: a table of rows,
//! each with a reply that a real node, provider or proxy gave, and where that was seen. The most specific
//! rows come first, and a message counts before a code, because vendors give the same code different
//! meanings. Operators put rows of their own in front with [`Classifier::with_rows`].

mod classify;
mod hints;
mod reply;
mod revert;
mod row;
mod table;
mod verdict;
mod wording;

#[cfg(test)]
mod tests;

pub use classify::Classifier;
pub use reply::{Content, Reply, RpcError};
pub use row::{Class, Row};
pub use verdict::{DataKind, FaultKind, RefusalKind, Revert, Verdict};
pub use wording::{News, Wordings, wording};
