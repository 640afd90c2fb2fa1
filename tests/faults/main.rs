//! Failures before, during and after a run, tried with the real binary. Each case ends in time, with a message that
//! names the cause.

mod bad_data;
mod bad_ends;
mod bad_input;
mod environment;
mod running;
mod sweep;
