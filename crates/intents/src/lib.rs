//! Who runs which intent.
//!
//! An intent is written down by whoever sends it, in any process, and run by the process that holds its account's
//! line. A [`Dispatcher`] holds the lines of its accounts while there is work on them, one keeper task each;
//! picks up what was opened by others, and what a process that died has left; and gives handles,
//! [`Intent`]s, which wait for the outcome wherever the intent runs.

mod config;
mod dispatcher;
mod intent;
mod keeper;
mod retention;
mod run;
mod shared;

pub use config::{ClaimsConfig, Resume, RetentionConfig};
pub use dispatcher::Dispatcher;
pub use intent::Intent;
