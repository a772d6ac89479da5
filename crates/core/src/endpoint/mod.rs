//! What is known about each endpoint, and which one a call goes to next.

mod breaker;
mod history;
mod identity;
mod pool;
mod state;
mod window;

pub use breaker::{Admission, Breaker, BreakerConfig, Phase};
pub use history::{History, Holds};
pub use identity::{Identity, Tie, judge_branch, judge_genesis};
pub use pool::{EndpointId, Need, Pick, Pool, PoolConfig, Resting};
pub use state::{EndpointState, EndpointStatus, Role};
pub use window::{Header, HeaderWindow};
