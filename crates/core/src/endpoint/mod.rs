//! What is known about each endpoint, and which one a call goes to next.

mod breaker;
mod identity;
mod pool;
mod state;
mod window;

pub use breaker::{Admission, Breaker, BreakerConfig};
pub use identity::{Identity, Tie, judge_branch, judge_genesis};
pub use pool::{EndpointId, Need, Pick, Pool, PoolConfig};
pub use state::{EndpointState, EndpointStatus};
pub use window::{Header, HeaderWindow};
