//! Runnable examples, one file per story: `cargo run -p examples --example register`.
