//! Which endpoint a read goes to next, and what its answer means (R).

mod asks;
mod read;

pub use asks::{Asks, Declared, asks};
pub use read::{Done, Null, Read, ReadConfig, Step, Told};
