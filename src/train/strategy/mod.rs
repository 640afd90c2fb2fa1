//! Which ranks step together, and when they synchronise.

pub mod local_sgd;
pub mod rounds;
