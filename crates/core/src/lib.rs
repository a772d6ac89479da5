//! The decisions of Backstay.
//!
//! Everything here is a function of its arguments: `now` is passed in, replies are passed in, and the
//! answer is a value. No IO, clock, lock, runtime or randomness, so that every decision can be tested on
//! simulated time and replayed from a journal.
//!
//! | room | what it decides |
//! |---|---|
//! | [`failure`] | what one reply means (the only place that reads error messages) |
//! | [`endpoint`] | what is known about each endpoint, and which one a call goes to |
//! | [`router`] | what a read asks for, where it goes next, and when a miss is believed |
//! | [`session`] | how a read is fenced at a block, and what a session did |
//! | [`recovery`] | what a failure leads to, and what a plan may do |
//! | [`tx`] | the records of an intent, their fold, and what is due |
//! | [`limits`] | what a duration in a configuration may be |
//! | [`units`] | newtypes shared by all rooms |
//! | [`error`] | the error that users see |

pub mod endpoint;
pub mod error;
pub mod failure;
pub mod limits;
pub mod recovery;
pub mod router;
pub mod session;
pub mod tx;
pub mod units;

pub use error::{Delivery, Error, ErrorKind, Result, Retry};
pub use units::{BlockRef, EndpointName};
