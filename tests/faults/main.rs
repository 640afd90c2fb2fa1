//! What goes wrong before, in and after a run, tried on the real binary: each case ends in time, with a message that names it.

mod bad_data;
mod bad_ends;
mod bad_input;
mod environment;
mod running;
mod sweep;
