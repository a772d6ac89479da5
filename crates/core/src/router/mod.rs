//! Which endpoint a read goes to next, and what its answer means (R).

mod asks;
mod config;
mod filters;
mod hedge;
mod logs;
mod lookup;
mod mark;
mod read;

pub use asks::{Asks, Declared, asks, is_known};
pub use config::ReadConfig;
pub use filters::{Filters, Fresh, LogId, Told as ToldSoFar};
pub use hedge::{HedgeConfig, Hedging, Spent};
pub use logs::{Blocks, Edge, LogFilter, Split, TooLarge};
pub use lookup::{Absent, Lookup, Opinion, Opinions};
pub use mark::{Height, Mark};
pub use read::{Done, Holding, Read, ReadDepth, Step, Told};
