//! What is known about each endpoint, and which one a call goes to next.

mod breaker;
mod budget;
mod history;
mod identity;
mod pool;
mod probe;
mod state;
mod status;
mod window;

pub use breaker::{Admission, Breaker, BreakerConfig, Phase, breaker_seed};
pub use budget::Budget;
pub use history::{History, Holds};
pub use identity::{Identity, Tie, judge_branch, judge_genesis};
pub use pool::{EndpointId, Need, Pick, Plausible, Pool, PoolConfig, Resting, SendPublic};
pub use probe::{Detail, Finding, Found, Landmark, Logs, MOST_QUESTIONS, Probes, Question, Said, Seen};
pub use state::{EndpointState, Member, Role};
pub use status::{BudgetStatus, EndpointStatus, HeadStatus, PoolStatus, Standing};
pub use window::{Header, HeaderWindow};
