//! Turns the SIGBUS of a mapped file that was cut short (or whose disk fails) into a message that names rank, file and byte, and exit
//! code 1. Other SIGBUS go to the handler that was there before.

mod handler;
mod table;

pub use handler::{install, set_rank};
pub(crate) use table::Registration;
