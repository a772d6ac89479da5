//! A session: a line of dependent reads and writes, pinned to an endpoint and fenced at a block.

mod shape;
mod trail;

pub use shape::{Fenced, ParamsError, fence};
pub use trail::{Event, Trail, What};
