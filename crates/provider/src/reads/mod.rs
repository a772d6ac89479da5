//! Reads: one endpoint after another, and what their answers mean.

mod code;
pub(crate) mod filters;
pub(crate) mod hedge;
pub(crate) mod height;
mod logs;
mod lookup;
pub(crate) mod route;
