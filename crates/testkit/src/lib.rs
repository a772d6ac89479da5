//! Anvil fleets with fault programs on real sockets, for tests of code that talks to EVM endpoints.

mod anvil;
mod error;
mod exchange;
mod fleet;
mod lens;
mod program;
mod proxy;
mod record;
mod upstream;
mod view;

pub use anvil::{Anvil, AnvilBuilder};
pub use error::Error;
pub use fleet::{Endpoint, Fleet, FleetBuilder};
pub use program::{Action, Hits, Hook, Program, Rule};
pub use record::{Call, Mark, Outcome, Reply, RpcError};
pub use view::View;
