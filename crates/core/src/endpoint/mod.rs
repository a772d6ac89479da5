//! What is known about each endpoint, and which one a call goes to next.

mod breaker;
mod identity;
mod pool;
mod window;

pub use breaker::{Admission, Breaker, BreakerConfig};
pub use identity::{Identity, Tie, judge_branch, judge_genesis};
pub use pool::{EndpointId, EndpointState, EndpointStatus, Need, Pick, Pool, PoolConfig};
pub use window::{Header, HeaderWindow};
